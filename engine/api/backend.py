"""What the API needs of the engine: everything behind the door, in eleven calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from odin.core.requests import Accepted, ClientRequest, Outcome, Started
    from odin.proof import Certificate

    from .views import (
        ClusterView,
        ExecutionSummary,
        ExecutionView,
        HistoryPageView,
        MetricView,
        Page,
        ReadyView,
        ShardView,
        WorkerView,
    )


class ListFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs are listed; every condition that is given must hold.

    `statuses` empty means every status. Instants are microseconds since 1970 UTC;
    `started_after_us` is inclusive, `started_before_us` is not.
    """

    namespace: str = "default"
    statuses: tuple[str, ...] = ()
    workflow_type: str | None = None
    workflow_id_prefix: str | None = None
    started_after_us: int | None = None
    started_before_us: int | None = None


class Backend(Protocol):
    """The engine as its HTTP API sees it. Refusals are OdinErrors; ids have been checked."""

    async def ask(self, request: ClientRequest, timeout_ms: int) -> Started | Accepted | Outcome:
        """Admit the request, decide it here or forward it, and return the committed answer.

        Args:
            request: A wait is answered within `wait_ms`, all others within `timeout_ms`.
            timeout_ms: What is left of the client's deadline.

        Raises:
            OdinError: The request is refused, or its outcome is not known (OutcomeUnknownError).
        """
        ...

    async def describe(self, namespace: str, workflow_id: str, run_id: str | None) -> ExecutionView:
        """Return the run, the newest one where `run_id` is None; NotFoundError if there is none."""
        ...

    async def list_executions(
        self, which: ListFilter, cursor: str | None, limit: int
    ) -> Page[ExecutionSummary]:
        """Return runs, newest first; InvalidArgumentError for a cursor that it has not made."""
        ...

    async def history(  # noqa: PLR0913 - one call, and each argument a column of the query
        self,
        namespace: str,
        workflow_id: str,
        run_id: str | None,
        *,
        after: int | None,
        before: int | None,
        limit: int,
        newest_first: bool,
    ) -> HistoryPageView:
        """Return at most `limit` events with after < event_id < before (None: no bound)."""
        ...

    async def proof(self, namespace: str, workflow_id: str, run_id: str | None) -> Certificate:
        """Return what the rows prove of the chain of the newest run, or of the run `run_id` alone.

        Raises:
            NotFoundError: There is no such run.
            FailedPreconditionError: There is more of it than one answer holds.
        """
        ...

    def cluster(self) -> ClusterView:
        """Return the nodes and modes as this node knows them."""
        ...

    def shards(self) -> Sequence[ShardView]:
        """Return who owns what, as this node knows it."""
        ...

    def workers(self) -> Sequence[WorkerView]:
        """Return the workers linked to this node."""
        ...

    def metrics(self) -> Iterable[MetricView]:
        """Return the samples of this node; samples of one name stand together."""
        ...

    def ready(self) -> ReadyView:
        """Return whether requests should be routed here; touches nothing remote."""
        ...
