"""The half of an event loop that workflows cannot have: threads, sockets, running it oneself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NoReturn

from odin.core.failures import ForbiddenCallError

if TYPE_CHECKING:
    from collections.abc import Callable

_THREADS: Final = (
    "its outcome is not recorded; do the work in an activity and await workflow.execute_activity"
)
_IO: Final = "I/O belongs into an activity; await workflow.execute_activity"
_ODIN_RUNS_IT: Final = "odin runs the loop; await the coroutine instead"
_SIGNALS: Final = "signals of the process are not recorded; use workflow.signal"
_IO_METHODS: Final = [
    "add_reader",
    "add_writer",
    "connect_accepted_socket",
    "connect_read_pipe",
    "connect_write_pipe",
    "create_connection",
    "create_datagram_endpoint",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "getaddrinfo",
    "getnameinfo",
    "remove_reader",
    "remove_writer",
    "sendfile",
    "sock_accept",
    "sock_connect",
    "sock_recv",
    "sock_recv_into",
    "sock_recvfrom",
    "sock_recvfrom_into",
    "sock_sendall",
    "sock_sendfile",
    "sock_sendto",
    "start_tls",
    "subprocess_exec",
    "subprocess_shell",
]

FORBIDDEN: Final[dict[str, str]] = {
    "add_signal_handler": _SIGNALS,
    "call_soon_threadsafe": "no other thread may touch a workflow; send it a signal",
    "close": _ODIN_RUNS_IT,
    "remove_signal_handler": _SIGNALS,
    "run_forever": _ODIN_RUNS_IT,
    "run_in_executor": _THREADS,
    "run_until_complete": _ODIN_RUNS_IT,
    "set_default_executor": _THREADS,
    "set_exception_handler": "an error of a workflow goes to whoever awaits it",
    "set_task_factory": "tasks are made so that their order is the same everywhere",
    "shutdown_default_executor": _ODIN_RUNS_IT,
    "stop": _ODIN_RUNS_IT,
    **dict.fromkeys(_IO_METHODS, _IO),
}
"""Method of an event loop to why it is refused and what to do in its place."""


class ForbiddingLoop(asyncio.AbstractEventLoop):
    """Refuses what cannot be repeated at replay, and what only the owner of the loop may do.

    Attributes:
        fault: The first thing that went wrong beyond repair; it fails the workflow task even if
            the code catches it.
    """

    fault: BaseException | None = None

    def forbid(self, what: str, why: str) -> NoReturn:
        """Fail the workflow task for a call that cannot be repeated.

        Raises:
            ForbiddenCallError: Always.
        """
        error = ForbiddenCallError(f"{what} cannot be used in a workflow: {why}")
        if self.fault is None:
            self.fault = error
        raise error


def _refusal(name: str, why: str) -> Callable[..., Any]:
    def refuse(self: ForbiddingLoop, *_args: object, **_kwargs: object) -> NoReturn:
        self.forbid(f"loop.{name}", why)

    refuse.__name__ = name
    refuse.__doc__ = f"Refuse: {why}."
    return refuse


for _name, _why in FORBIDDEN.items():
    setattr(ForbiddingLoop, _name, _refusal(_name, _why))
