"""The commands there are, and how the one that is asked for is loaded."""

from __future__ import annotations

import inspect
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import typer

from odin.cli.shared import with_shared_options
from odin.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Entry(NamedTuple):
    """A command: where its function is, and one line of help.

    `module` is a module of odin, or "service:<name>": then the function is in `commands.py` of that
    service's package, or in the module that "service:<name>.<module>" names, with its options as
    Typer annotations.
    """

    module: str
    function: str
    help: str
    panel: str


_RUNS: Final = "Workflows"
_CLUSTER: Final = "Cluster"
_LOCAL: Final = "Local cluster"

COMMANDS: Final[dict[str, Entry]] = {
    "run": Entry("odin.cli.running", "run", "Start a workflow, and watch it with --wait.", _RUNS),
    "list": Entry("odin.cli.listing", "list_runs", "List runs, newest first.", _RUNS),
    "show": Entry("odin.cli.listing", "show", "Show one run and what it waits for.", _RUNS),
    "history": Entry("odin.cli.histories", "history", "Print a run's event history.", _RUNS),
    "prove": Entry("odin.cli.proving", "prove", "Prove from its rows that it went right.", _RUNS),
    "signal": Entry("odin.cli.telling", "signal", "Send a signal to an open run.", _RUNS),
    "cancel": Entry("odin.cli.telling", "cancel", "Ask an open run to stop.", _RUNS),
    "terminate": Entry("odin.cli.telling", "terminate", "End an open run at once.", _RUNS),
    "cluster": Entry("odin.cli.cluster_views", "cluster", "Show the engines.", _CLUSTER),
    "shards": Entry("odin.cli.cluster_views", "shards", "Show who owns which shard.", _CLUSTER),
    "workers": Entry("odin.cli.cluster_views", "workers", "Show the linked workers.", _CLUSTER),
    "check": Entry("service:checker", "check_history", "Prove that all runs went right.", _CLUSTER),
    "worker": Entry("odin.cli.hosting", "worker", "Host workflows and activities.", _CLUSTER),
    "dev": Entry("service:cluster.dev", "dev", "Run an author's workflows, and reload.", _LOCAL),
    "up": Entry("service:cluster", "up", "Start a local cluster.", _LOCAL),
    "down": Entry("service:cluster", "down", "Stop the local cluster.", _LOCAL),
    "ps": Entry("service:cluster", "ps", "Show the local cluster's processes.", _LOCAL),
    "logs": Entry("service:cluster", "logs", "Show the local cluster's logs.", _LOCAL),
    "demo": Entry("service:cluster", "demo", "Run the demo on this machine.", _LOCAL),
    "break": Entry("service:cluster", "break_things", "Break a part on purpose.", _LOCAL),
    "heal": Entry("service:cluster", "heal", "Heal what was broken on purpose.", _LOCAL),
    "chaos": Entry("service:chaos.command", "chaos", "Run experiments with faults.", _LOCAL),
    "bench": Entry("service:bench", "bench", "Measure throughput and latency.", _LOCAL),
    "version": Entry("odin.cli.versions", "version", "Print the version.", _LOCAL),
}
_EXAMPLES: Final = """Durable workflows as ordinary async Python functions.

\b
  odin dev shop                                    run the workflows of shop.py, and reload them
  odin up                                          start a local cluster
  odin run Order --input '{"order_id": "o-1", "sku": "tea"}' --wait   start one and watch it
  odin list --failed --since 1h                    what went wrong lately
  odin history order-7 --follow                    what happens to one run

\b
ODIN_ADDRESS, ODIN_NAMESPACE and ODIN_API_KEY stand for the options of the same names.
Exit codes: 0 done, 1 the run failed, 2 wrong usage, 3 no engine reached, 4 refused, 5 check failed.
"""


def program(arguments: Sequence[str]) -> typer.Typer:
    """Return the program; of its commands only the one named in `arguments` is loaded."""
    app = typer.Typer(
        name="odin",
        help=_EXAMPLES,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_root)
    asked = next((one for one in arguments if not one.startswith("-")), None)
    for name, entry in COMMANDS.items():
        function = with_shared_options(_load, entry) if name == asked else _stub
        text = entry.help if name != asked else _help_of(function)
        app.command(name, help=text)(function)
    return app


def _help_of(function: Callable[..., Any]) -> str:
    """Return the docstring; a line of backslash and b keeps the lines below as they are."""
    return (inspect.getdoc(function) or "").replace("\\b\n", "\b\n")


def _root() -> None:
    pass


def _stub() -> None:
    """Stands for a command that is not asked for."""


def _load(entry: Entry) -> Callable[..., Any]:
    """Return the function of a command.

    Raises:
        ConfigurationError: This installation lacks it.
    """
    kind, _, service = entry.module.partition(":")
    module = entry.module
    if kind == "service":
        from odin.runtime.services import module_of  # noqa: PLC0415 - only these commands need it

        service, _, inner = service.partition(".")
        module = f"{module_of(service)}.{inner or 'commands'}"
        if find_spec(module) is None:
            raise ConfigurationError(f"this installation of odin has no command {entry.function!r}")
    function: Callable[..., Any] = getattr(import_module(module), entry.function)
    return function
