"""What all commands have in common: four options, one way to fail."""

from __future__ import annotations

import functools
import inspect
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar, get_type_hints

import typer

from odin.cli.failing import EXIT_USAGE, of_missing_extra, report
from odin.errors import OdinError

if TYPE_CHECKING:
    from collections.abc import Callable

E = TypeVar("E")

EXIT_INTERRUPTED: Final = 130


class Shared(NamedTuple):
    """The options that every command has."""

    address: str
    namespace: str
    api_key: str | None
    as_json: bool


_current: ContextVar[Shared] = ContextVar("shared")


def current() -> Shared:
    """Return the shared options of the command that runs."""
    return _current.get()


def _options(
    address: Annotated[
        str,
        typer.Option(envvar="ODIN_ADDRESS", help="Engines, host:port or URLs, with commas."),
    ] = "",
    namespace: Annotated[
        str, typer.Option(envvar="ODIN_NAMESPACE", help="The namespace.")
    ] = "default",
    api_key: Annotated[
        str | None,
        typer.Option(envvar="ODIN_API_KEY", help="The cluster's token.", show_default=False),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Declare the shared options; only its signature is used."""


def with_shared_options(load: Callable[[E], Callable[..., Any]], entry: E) -> Callable[..., Any]:
    """Return the command that `load(entry)` gives, with the shared options and failures added.

    A command returns its exit code, or None for 0. Errors of odin become three lines on stderr.
    """
    try:
        function = load(entry)
    except OdinError as error:
        raise SystemExit(report(error, as_json=False)) from error
    except ModuleNotFoundError as error:
        if (told := of_missing_extra(error)) is None:
            raise
        raise SystemExit(report(told, as_json=False)) from error
    own = _parameters(function)
    shared = [one for one in _parameters(_options) if one.name not in {p.name for p in own}]

    @functools.wraps(function)
    def command(**given: Any) -> None:  # noqa: ANN401 - the values of any command
        values = {one.name: given.pop(one.name, None) for one in shared}
        whole = {**_DEFAULTS, **values, **{k: v for k, v in given.items() if k in _DEFAULTS}}
        options = Shared(**whole)
        _current.set(options)
        raise typer.Exit(_run(function, given, as_json=options.as_json))

    command.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined] # read by inspect
    command.__annotations__ = {one.name: one.annotation for one in [*own, *shared]}
    return command


def _run(function: Callable[..., Any], given: dict[str, Any], *, as_json: bool) -> int:
    try:
        return _called(function, given)
    except OdinError as error:
        return report(error, as_json=as_json)
    except ExceptionGroup as group:
        expected = _first_expected(group)
        if expected is None:
            raise
        return report(expected, as_json=as_json)
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_USAGE
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # whoever read us has seen enough
        return 0


def _called(function: Callable[..., Any], given: dict[str, Any]) -> int:
    try:
        return int(function(**given) or 0)
    except ModuleNotFoundError as error:
        if (told := of_missing_extra(error)) is None:
            raise
        raise told from error


def _first_expected(error: Exception) -> OdinError | None:
    """Return the first error of odin in a group of errors."""
    if isinstance(error, ExceptionGroup):
        return next((found for one in error.exceptions if (found := _first_expected(one))), None)
    return error if isinstance(error, OdinError) else None


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters with resolved annotations, all by keyword."""
    hints = get_type_hints(function, include_extras=True)
    return [
        one.replace(annotation=hints.get(name, str), kind=inspect.Parameter.KEYWORD_ONLY)
        for name, one in inspect.signature(function).parameters.items()
    ]


_DEFAULTS: Final = {one.name: one.default for one in _parameters(_options)}
