"""Finds an author's workflows and activities: `shop`, `shop:app`, `shop.py`.

What follows the colon may be a workflow, an activity, a list of them, an object whose methods are
activities, a `Worker` (its definitions and options count, not its address), or `WorkerOptions` (for
all that the module holds). Without a colon everything decorated in the module's namespace is taken.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import linecache
import sys
import traceback
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from odin.core.definition import (
    ACTIVITY_NAME_ATTRIBUTE,
    WORKFLOW_ATTRIBUTE,
    DefinitionError,
    WorkflowDefinition,
)
from odin.errors import InvalidArgumentError
from odin.worker import Worker, WorkerOptions
from odin.worker.options import WorkerFields
from odin.worker.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


_SITE: Final = frozenset({"site-packages", "dist-packages"})
# What a Worker object says of these holds for its own deployment, not for where it is hosted now.
_NOT_TAKEN: Final = frozenset({"broker", "amqp_url", "identity", "token", "route"})


class ModuleMissingError(InvalidArgumentError):
    """The author's module, or the object in it, is not there."""

    reason = "MODULE_NOT_FOUND"


class ModuleFailedError(InvalidArgumentError):
    """The author's module cannot be imported; the message names the line."""

    reason = "MODULE_FAILED"


@dataclass
class Found:
    """What an author's modules hold.

    Attributes:
        workflows: Decorated classes and functions, or definitions.
        activities: Decorated functions and bound methods.
        options: Worker options that came with a `Worker` or `WorkerOptions`; may be empty.
    """

    workflows: list[Any] = field(default_factory=list)
    activities: list[Callable[..., Any]] = field(default_factory=list)
    options: WorkerFields = field(default_factory=WorkerFields)

    def workflow_names(self) -> list[str]:
        """Return the names of the workflow types, sorted."""
        return sorted(WorkflowDefinition.of(one).name for one in self.workflows)

    def activity_names(self) -> list[str]:
        """Return the names of the activity types, sorted."""
        return sorted(_activity_name(one) for one in self.activities)


def load(targets: Sequence[str], root: Path) -> Found:
    """Import what `targets` name and return the workflows and activities in it.

    Args:
        targets: `module`, `module:object` or `file.py[:object]`, each looked for in `root` first.
        root: The author's folder; it becomes the first entry of the import path.

    Raises:
        ModuleMissingError: A module or an object is not there.
        ModuleFailedError: Importing one raised; the message shows the author's line.
        DefinitionError: There is nothing decorated, two have one name, or one is declared wrongly.
    """
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    found = Found()
    for target in targets:
        name, _, attribute = target.partition(":")
        module = _import(_module_name(name, root), root)
        value: object = module
        for part in attribute.split(".") if attribute else ():
            value = _attribute(value, part, target)
        definitions = _definitions_in(value, module, target)
        if not definitions:
            raise DefinitionError(_nothing_in(target, module))
        _add(found, definitions)
        options = value.options if isinstance(value, Worker) else value
        if isinstance(options, WorkerOptions):
            _take_options(found, options, target)
    _check_names(found)
    Registry(found.workflows, found.activities)  # what a worker would refuse is refused here
    return found


def authored_modules(root: Path) -> dict[str, ModuleType]:
    """Return the modules that came from below `root`, by name, installed ones left out."""
    return {
        name: module
        for name, module in list(sys.modules.items())
        if name != "__main__" and is_authored(module, root)
    }


def is_authored(module: ModuleType, root: Path) -> bool:
    """Return whether a module lies below `root`, and is neither installed nor part of odin."""
    file = getattr(module, "__file__", None)
    if not file or not Path(file).is_relative_to(root) or _SITE & set(Path(file).parts):
        return False
    from odin.runtime.services import checkout  # noqa: PLC0415 - only here, for checkouts

    top = module.__name__.partition(".")[0]
    return not (top in _OWN and Path(file).is_relative_to(checkout() / top))


_OWN: Final = frozenset(
    ["odin", "engine", "relay", "worker", "mocks", "chaos", "checker", "cluster", "bench"]
)


# Importing.


def _module_name(given: str, root: Path) -> str:
    """Return the dotted name of a module that may be given as a path."""
    if not given.endswith(".py") and "/" not in given:
        name = given
    else:
        path = Path(given) if Path(given).is_absolute() else root / given
        if not path.resolve().is_relative_to(root):
            raise ModuleMissingError(f"{given} lies outside of {root}: start odin in its folder")
        parts = path.resolve().relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1:] == ("__init__",) else parts)
    if not name or not all(part.isidentifier() for part in name.split(".")):
        raise ModuleMissingError(f"{given!r} is not the name of a module: write shop or shop:app")
    return name


def _import(name: str, root: Path) -> ModuleType:
    _check_not_taken(name, root)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ModuleMissingError(_missing(name, root)) from None
        raise ModuleFailedError(f"{name} cannot be imported\n{place_of(error, root)}") from error
    except (Exception, SystemExit) as error:  # whatever a module raises
        said = f"{name} cannot be imported\n{place_of(error, root)}"
        if isinstance(error, RuntimeError) and "running event loop" in str(error):
            said += "\nput what the file runs as a script below: if __name__ == '__main__':"
        raise ModuleFailedError(said) from error


def _check_not_taken(name: str, root: Path) -> None:
    """Refuse a module of the author that another, already imported one hides."""
    top = name.partition(".")[0]
    is_here = (root / f"{top}.py").is_file() or (root / top).is_dir()
    known = sys.modules.get(top)
    if not is_here or known is None:
        return
    file = getattr(known, "__file__", None)
    paths = [Path(one) for one in ([file] if file else getattr(known, "__path__", []))]
    if not any(path.is_relative_to(root) for path in paths):
        where = file or "built into Python"
        raise ModuleMissingError(
            f"{top!r} in {root} is hidden by another module of that name ({where}): rename it"
        )


def _missing(name: str, root: Path) -> str:
    path = name.replace(".", "/")
    said = f"no module {name!r}: looked for {path}.py and {path}/__init__.py in {root}"
    said += " and for an installed package"
    here = sorted(one.stem for one in root.glob("*.py"))
    if close := difflib.get_close_matches(name, here, n=1):
        said += f"; did you mean {close[0]!r}?"
    elif here:
        said += f"; the modules here: {', '.join(here[:10])}"
    return said


def place_of(error: BaseException, root: Path) -> str:
    """Return an error with the author's line that led to it, as lines for a person."""
    said = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return _at(error.filename, error.lineno, f"{type(error).__name__}: {error.msg}", root)
    frames = [
        one
        for one in traceback.extract_tb(error.__traceback__)
        if Path(one.filename).is_relative_to(root) and not _SITE & set(Path(one.filename).parts)
    ]
    if not frames:
        return said
    return _at(frames[-1].filename, frames[-1].lineno or 0, said, root)


def _at(file: str, line: int, said: str, root: Path) -> str:
    linecache.checkcache(file)
    text = linecache.getline(file, line).strip()
    return f"  {short_path(file, root)}:{line}: {said}" + (f"\n    {text}" if text else "")


def short_path(file: str, root: Path) -> str:
    """Return a file's name relative to `root` where it lies below it."""
    path = Path(file)
    return str(path.relative_to(root)) if path.is_relative_to(root) else file


# Collecting.


def _attribute(value: object, name: str, target: str) -> object:
    try:
        return getattr(value, name)
    except AttributeError:
        known = [one for one in vars(value) if not one.startswith("_")]
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ModuleMissingError(f"{target}: there is no {name!r} in it{hint}") from None


def _definitions_in(value: object, module: ModuleType, target: str) -> list[object]:
    """Return the workflows and activities that a target stands for; empty if there are none."""
    if isinstance(value, ModuleType | WorkerOptions):
        of = value if isinstance(value, ModuleType) else module
        return _decorated(vars(of).values(), of.__name__)
    if isinstance(value, Worker):
        registry = value.registry
        return [*registry.workflows.values(), *(one.fn for one in registry.activities.values())]
    if isinstance(value, list | tuple | set | frozenset):
        found: list[object] = []
        for place, one in enumerate(value):
            if not (of_one := [one] if _is_definition(one) else _methods(one)):
                raise DefinitionError(
                    f"{target}[{place}] is {one!r}: neither a workflow nor an activity"
                )
            found += of_one
        return found
    return [value] if _is_definition(value) else _methods(value)


def _decorated(values: Iterable[object], module_name: str) -> list[object]:
    """Return what is decorated, and the activities of objects whose class the module defines."""
    kept: list[object] = []
    for value in values:
        if _is_definition(value):
            kept.append(value)
        elif type(value).__module__ == module_name:
            kept += _methods(value)
    return kept


def _is_definition(value: object) -> bool:
    if isinstance(value, WorkflowDefinition):
        return True
    if isinstance(value, type):
        return isinstance(vars(value).get(WORKFLOW_ATTRIBUTE), WorkflowDefinition)
    if isinstance(value, FunctionType | MethodType):
        return hasattr(value, WORKFLOW_ATTRIBUTE) or hasattr(value, ACTIVITY_NAME_ATTRIBUTE)
    return isinstance(getattr(type(value), "__call__", None), FunctionType) and (  # noqa: B004 - its attributes count
        ACTIVITY_NAME_ATTRIBUTE in getattr(value, "__dict__", {})
    )


def _methods(value: object) -> list[object]:
    """Return the activities among the methods of an object, bound to it."""
    if isinstance(value, type | ModuleType):
        return []
    names = [
        name
        for name in dir(type(value))
        if hasattr(inspect.getattr_static(type(value), name), ACTIVITY_NAME_ATTRIBUTE)
    ]
    return [getattr(value, name) for name in names]


def _add(found: Found, values: Iterable[object]) -> None:
    for value in values:
        if callable(value) and hasattr(value, ACTIVITY_NAME_ATTRIBUTE):
            if value not in found.activities:
                found.activities.append(value)
        elif all(_definition(value) is not _definition(one) for one in found.workflows):
            found.workflows.append(value)


def _take_options(found: Found, options: WorkerOptions, target: str) -> None:
    if found.options:
        raise DefinitionError(f"{target}: two objects bring options for one worker")
    for one in fields(options):
        if one.name not in _NOT_TAKEN:
            found.options[one.name] = getattr(options, one.name)  # type: ignore[literal-required] # a field of it


def _definition(value: object) -> WorkflowDefinition:
    return WorkflowDefinition.of(value)


def _activity_name(value: Callable[..., Any]) -> str:
    return str(getattr(value, ACTIVITY_NAME_ATTRIBUTE))


# What can be wrong with it.


def _check_names(found: Found) -> None:
    named = [("workflow", _definition(one).name, _definition(one).run) for one in found.workflows]
    named += [("activity", _activity_name(one), one) for one in found.activities]
    known: dict[tuple[str, str], Callable[..., Any]] = {}
    for kind, name, function in named:
        other = known.setdefault((kind, name), function)
        if other is not function:
            way = "workflow" if kind == "workflow" else "activity"
            raise DefinitionError(
                f"two {kind} definitions have the name {name!r}: {_line_of(other)} and"
                f" {_line_of(function)}; give one another with @{way}.defn(name=...)"
            )


def _line_of(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "?" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _nothing_in(target: str, module: ModuleType) -> str:
    said = f"{target} has no workflow and no activity: mark them with @workflow.defn and"
    said += " @activity.defn"
    for name, value in vars(module).items():
        if isinstance(value, type) and any(
            hasattr(one, ACTIVITY_NAME_ATTRIBUTE) for one in vars(value).values()
        ):
            said += f"; the activities of class {name} need an object: shop = {name}(...)"
            break
    return said
