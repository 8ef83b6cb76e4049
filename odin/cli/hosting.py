"""`odin worker`: hosts an author's workflows and activities until it is told to stop."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from odin.cli.authored import load
from odin.cli.connecting import address_of, get_json
from odin.cli.nearby import nearby
from odin.cli.output import chat
from odin.cli.shared import current
from odin.errors import ConfigurationError, InvalidArgumentError
from odin.runtime.log import setup_logging
from odin.runtime.service import serve
from odin.worker import Worker
from odin.worker.options import EMBEDDED, RABBITMQ, default_identity

if TYPE_CHECKING:
    from odin.cli.authored import Found

AMQP_VARIABLE: Final = "ODIN_AMQP_URL"
_END_SECONDS: Final = 4.0
_LEVELS: Final = ("debug", "info", "warning", "error")


def worker(  # noqa: PLR0913 - one parameter for each option of the command
    targets: Annotated[list[str], typer.Argument(metavar="MODULE[:OBJECT]…", help="What to host.")],
    *,
    task_queue: Annotated[
        str | None, typer.Option("--task-queue", "--queue", help="Whose tasks it takes.")
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            envvar="ODIN_BROKER",
            help="rabbitmq (at ODIN_AMQP_URL) or embedded; the engines are asked if absent.",
        ),
    ] = None,
    slots: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Activities at once; 100 if absent.")
    ] = None,
    identity: Annotated[str | None, typer.Option(help="How people tell it from others.")] = None,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds that running activities have once told to stop.")
    ] = 5.0,
    log_level: Annotated[
        str, typer.Option("--log-level", help="debug, info, warning or error.")
    ] = "info",
) -> int:
    r"""Host workflows and activities; Ctrl-C ends it in order.

    Modules are looked for in the current folder first.

    \b
      odin worker shop                       everything decorated in shop.py
      odin worker shop.orders shop.billing   of two modules
      odin worker shop:app                   a list, a Worker, or an object with activities
    """
    if log_level not in _LEVELS:
        raise InvalidArgumentError(f"--log-level is {', '.join(_LEVELS)}, not {log_level!r}")
    found = load(targets, Path.cwd())
    options = found.options
    options["broker"] = broker or _broker_of_cluster()
    if options["broker"] == RABBITMQ:
        options["amqp_url"] = _amqp_url()
    options["identity"] = identity or default_identity()
    options["namespace"] = current().namespace
    options["token"] = current().api_key
    options["graceful_shutdown_timeout"] = timedelta(seconds=grace)
    if task_queue is not None:
        options["task_queue"] = task_queue
    if slots is not None:
        options["max_concurrent_activities"] = slots
    setup_logging("worker", options["identity"], level=log_level)
    return asyncio.run(_host(found))


async def _host(found: Found) -> int:
    made = Worker(
        address_of(current()),
        workflows=found.workflows,
        activities=found.activities,
        **found.options,
    )
    options = made.options
    chat(f"worker {options.identity} of task queue {options.task_queue} ({options.broker} broker)")
    chat(f"  engines     {address_of(current()) or 'http://127.0.0.1:7300'}")
    chat(f"  workflows   {', '.join(found.workflow_names()) or 'none'}")
    chat(f"  activities  {', '.join(found.activity_names()) or 'none'}")
    await serve(
        {"worker": made.run},
        options.graceful_shutdown_timeout + timedelta(seconds=_END_SECONDS),
    )
    return 0


def _broker_of_cluster() -> str:
    """Return the broker that the engines use.

    Raises:
        UnreachableError: No engine answers; --broker does without.
    """
    broker = str(get_json("/v1/cluster")["broker"])
    return broker if broker in {RABBITMQ, EMBEDDED} else RABBITMQ


def _amqp_url() -> str:
    """Return where RabbitMQ is: as the environment says, or as the local cluster does.

    Raises:
        ConfigurationError: Nobody says it.
    """
    if url := os.environ.get(AMQP_VARIABLE):
        return url
    local = nearby()
    if local is not None and local.address == address_of(current()) and local.amqp_url:
        return local.amqp_url
    raise ConfigurationError(
        f"the engines hand their tasks out through RabbitMQ, and nobody says where it is: set"
        f" {AMQP_VARIABLE}, e.g. amqp://user:password@127.0.0.1:5672/"
    )
