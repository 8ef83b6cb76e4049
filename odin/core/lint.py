"""Looks through the source of workflows for calls that come out differently at replay.

It finds what no guard at run time can: `datetime.now` and its like are methods of C types. It
follows calls to plain functions of the same module. A line that is meant as it stands carries the
comment `# odin: allow`.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from odin.core.definition import ACTIVITY_NAME_ATTRIBUTE, DefinitionError
from odin.core.determinism import GUARDED, names_by_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ALLOW: Final = "# odin: allow"

_NOW: Final = "use workflow.now()"
_ACTIVITY: Final = "do it in an activity"
_CALLS: Final[dict[str, str]] = {
    **GUARDED,
    "asyncio.run": "await the coroutine",
    "asyncio.to_thread": _ACTIVITY,
    "builtins.input": _ACTIVITY,
    "builtins.open": _ACTIVITY,
    "datetime.date.today": _NOW,
    "datetime.datetime.now": _NOW,
    "datetime.datetime.today": _NOW,
    "datetime.datetime.utcnow": _NOW,
    "os.getpid": _ACTIVITY,
    "os.listdir": _ACTIVITY,
    "os.system": _ACTIVITY,
    "random.SystemRandom": "use workflow.random()",
    "time.ctime": _NOW,
    "time.gmtime": _NOW,
    "time.localtime": _NOW,
}
_PACKAGES: Final = frozenset(
    [
        "aiohttp",
        "asyncpg",
        "boto3",
        "httpx",
        "multiprocessing",
        "psycopg",
        "requests",
        "socket",
        "subprocess",
        "threading",
    ]
)
# The module that a function written in C names as its own, and the one that it is asked of.
_PUBLIC: Final[dict[str, str]] = {"_io": "io", "_thread": "threading", "posix": "os"}
_ENVIRONMENT: Final = "differs between workers; pass what you need as an argument"


def check_functions(functions: Iterable[Callable[..., object]]) -> tuple[str, ...]:
    """Look through the functions of a workflow.

    Returns:
        Warnings: what may be meant, but often is not.

    Raises:
        DefinitionError: A call comes out differently at replay; the message has file, line and
            alternative.
    """
    linter = _Linter()
    for function in functions:
        linter.check(function)
    if linter.errors:
        raise DefinitionError("\n".join(linter.errors))
    return tuple(linter.warnings)


class _Linter:
    """What was found in the functions looked through so far."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self._seen: set[object] = set()
        self._names = names_by_id()

    def check(self, function: Callable[..., object]) -> None:
        """Look through one function and those of its module that it calls."""
        plain = inspect.unwrap(function)
        if not isinstance(plain, FunctionType) or plain.__code__ in self._seen:
            return
        self._seen.add(plain.__code__)
        try:
            lines, first = inspect.getsourcelines(plain)
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, SyntaxError):  # typed at a prompt, made by exec, or a lambda inside a call
            return
        _Body(self, plain, lines, first, self._names).visit(tree)


class _Body(ast.NodeVisitor):
    """Goes through the body of one function."""

    def __init__(
        self,
        linter: _Linter,
        function: FunctionType,
        lines: list[str],
        first: int,
        names: dict[int, str],
    ) -> None:
        self._linter = linter
        self._function = function
        self._lines = lines
        self._first = first
        self._names = names
        self._imported: dict[str, str] = {}
        self._own: set[str] = set()

    def visit(self, node: ast.AST) -> None:
        """Learn which names are the function's own, then look at it."""
        if isinstance(node, ast.Module):
            for inner in ast.walk(node):
                self._learn(inner)
        super().visit(node)

    def _learn(self, node: ast.AST) -> None:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    whole = alias.name if alias.asname else alias.name.partition(".")[0]
                    self._imported[alias.asname or whole] = whole
            case ast.ImportFrom(module=str(module), names=names):
                for alias in names:
                    self._imported[alias.asname or alias.name] = f"{module}.{alias.name}"
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                self._own.add(name)
            case _:
                pass

    def visit_Call(self, node: ast.Call) -> None:
        """Look at what is called."""
        dotted = self._dotted(node.func)
        if dotted in _CALLS:
            self._error(node, f"{_shown(dotted)}()", _CALLS[dotted])
        elif dotted == "random.Random" and not node.args:
            self._error(node, "random.Random()", "use workflow.random(), or give it a seed")
        elif dotted == "os.getenv":
            self._warn(node, "os.getenv()", _ENVIRONMENT)
        elif dotted.partition(".")[0] in _PACKAGES:
            self._error(node, f"{dotted}()", _ACTIVITY)
        elif isinstance(node.func, ast.Name) and node.func.id not in self._own:
            self._follow(self._function.__globals__.get(node.func.id))
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Look for the environment of the process."""
        if self._dotted(node) == "os.environ":
            self._warn(node, "os.environ", _ENVIRONMENT)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        """Look at what is iterated."""
        self._iterated(node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        """Look at what is iterated."""
        self._iterated(node.iter)
        self.generic_visit(node)

    def _iterated(self, node: ast.expr) -> None:
        is_set = isinstance(node, (ast.Set, ast.SetComp)) or (
            isinstance(node, ast.Call)
            and self._dotted(node.func) in {"builtins.set", "builtins.frozenset"}
        )
        if is_set:
            self._warn(node, "iterating a set", "its order differs between processes; sort it")

    def _follow(self, found: object) -> None:
        if (
            isinstance(found, FunctionType)
            and found.__module__ == self._function.__module__
            and not hasattr(found, ACTIVITY_NAME_ATTRIBUTE)
        ):
            self._linter.check(found)

    def _dotted(self, node: ast.expr) -> str:
        """Return the full name of what an expression stands for, or "" if that cannot be told."""
        match node:
            case ast.Name(id=name) if name in self._imported:
                return self._imported[name]
            case ast.Name(id=name) if name in self._own:
                return ""
            case ast.Name(id=name):
                known = self._function.__globals__
                return self._name_of(known.get(name, getattr(builtins, name, None)))
            case ast.Attribute(value=value, attr=attribute):
                base = self._dotted(value)
                return f"{base}.{attribute}" if base else ""
            case _:
                return ""

    def _name_of(self, found: Any) -> str:  # noqa: ANN401 - whatever the module holds
        if id(found) in self._names:
            return self._names[id(found)]
        if isinstance(found, ModuleType):
            return found.__name__
        module, name = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
        if not isinstance(module, str) or not isinstance(name, str):
            return ""
        public = f"{_PUBLIC.get(module, module)}.{name}"
        return "builtins.open" if public == "io.open" else public

    def _error(self, node: ast.expr, what: str, instead: str) -> None:
        for where in self._places(node):
            self._linter.errors.append(
                f"{where}: {what} comes out differently at replay; {instead}"
            )

    def _warn(self, node: ast.expr, what: str, why: str) -> None:
        for where in self._places(node):
            self._linter.warnings.append(f"{where}: {what}: {why}")

    def _places(self, node: ast.expr) -> Iterator[str]:
        """Give the place of `node`, unless its line is allowed."""
        if ALLOW not in self._lines[node.lineno - 1]:
            yield f"{self._function.__code__.co_filename}:{self._first + node.lineno - 1}"


def _shown(dotted: str) -> str:
    return dotted.removeprefix("builtins.")
