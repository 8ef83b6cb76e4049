"""Starts workflows and talks to them, from any asyncio program.

    client = await Client.connect("localhost:7300")
    order = await client.start_workflow(order_workflow, Order("tea"), id="order-7")
    receipt = await order.result()

Any engine of the cluster answers; several addresses are tried in turn. Every call that changes
something has a request id, so that its repeats have one effect.
"""

from __future__ import annotations

import os
import secrets
import socket
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, overload

import msgspec

from odin._client.failures import WorkflowContinuedAsNewError, WorkflowFailureError
from odin._client.handle import UNSET, Call, WorkflowHandle, arguments
from odin._client.listing import ListOptions, list_pages
from odin._client.models import (
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowHistory,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from odin._client.start import StartOptions, start_body, type_of
from odin._client.transport import Request, Transport
from odin.core.ids import DEFAULT_NAMESPACE, check_id
from odin.core.requests import Started

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from types import TracebackType

__all__ = [
    "Client",
    "WorkflowContinuedAsNewError",
    "WorkflowExecution",
    "WorkflowExecutionDescription",
    "WorkflowExecutionStatus",
    "WorkflowFailureError",
    "WorkflowHandle",
    "WorkflowHistory",
    "WorkflowIDConflictPolicy",
    "WorkflowIDReusePolicy",
]

R = TypeVar("R")
A = TypeVar("A")
S = TypeVar("S")
P = ParamSpec("P")

_TIMEOUT = timedelta(seconds=15)


class Client:
    """A connection to a cluster. Close it, or use it as an async context manager.

    Attributes:
        addresses: Base URLs of engines.
        namespace: Where its workflows live.
        identity: Who it says it is in histories.
        api_key: The bearer token, if there is one.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        namespace: str = DEFAULT_NAMESPACE,
        api_key: str | None = None,
        identity: str | None = None,
        timeout: timedelta = _TIMEOUT,
    ) -> None:
        """Take the same arguments as `connect`; nothing is opened before the first call."""
        self._transport = Transport(addresses, api_key)
        self.addresses = self._transport.addresses
        self.namespace = check_id(namespace, "namespace")
        self.identity = identity or f"{os.getpid()}@{socket.gethostname()}"
        self.api_key = api_key
        self._call = Call(self._transport, self.namespace, self.identity, timeout.total_seconds())

    @classmethod
    async def connect(
        cls,
        *addresses: str,
        namespace: str = DEFAULT_NAMESPACE,
        api_key: str | None = None,
        identity: str | None = None,
        timeout: timedelta = _TIMEOUT,  # noqa: ASYNC109 - of every later call, not of this one
    ) -> Self:
        """Return a client of the cluster whose engines listen at `addresses`.

        It is not an error if none answers now: each call has its own deadline.

        Args:
            addresses: host:port or URLs; several may stand in one string, with commas.
            namespace: Where its workflows live.
            api_key: The bearer token, if the cluster asks for one.
            identity: Who the client says it is in histories; process id and host when None.
            timeout: How long a call is repeated while no engine gives a definite answer.

        Raises:
            InvalidArgumentError: One is not an address.
        """
        return cls(
            addresses, namespace=namespace, api_key=api_key, identity=identity, timeout=timeout
        )

    async def close(self) -> None:
        """Close all connections; calling it again does nothing."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        stack: TracebackType | None,
    ) -> None:
        await self.close()

    @overload
    async def start_workflow(
        self,
        workflow: Callable[[A], Awaitable[R]],
        arg: A,
        **options: Unpack[StartOptions],
    ) -> WorkflowHandle[R]: ...
    @overload
    async def start_workflow(
        self,
        workflow: Callable[[S, A], Awaitable[R]],
        arg: A,
        **options: Unpack[StartOptions],
    ) -> WorkflowHandle[R]: ...
    @overload
    async def start_workflow(
        self,
        workflow: Callable[P, Awaitable[R]],
        *,
        args: Sequence[Any] = ...,
        **options: Unpack[StartOptions],
    ) -> WorkflowHandle[R]: ...
    @overload
    async def start_workflow(
        self,
        workflow: str | type,
        arg: object = ...,
        *,
        args: Sequence[Any] | None = ...,
        result_type: type[R],
        **options: Unpack[StartOptions],
    ) -> WorkflowHandle[R]: ...
    @overload
    async def start_workflow(
        self,
        workflow: str | type,
        arg: object = ...,
        *,
        args: Sequence[Any] | None = ...,
        **options: Unpack[StartOptions],
    ) -> WorkflowHandle[Any]: ...
    async def start_workflow(
        self,
        workflow: Any,
        arg: Any = UNSET,
        *,
        args: Sequence[Any] | None = None,
        result_type: Any = None,
        **options: Unpack[StartOptions],
    ) -> WorkflowHandle[Any]:
        """Start a workflow and return a handle on it, once the start is committed.

        Args:
            workflow: The decorated function, class or run method, or the workflow type's name.
            arg: The one argument, if it takes one.
            args: Its arguments, if it takes several.
            result_type: What `result()` decodes to; the function's return annotation when None.
            options: See `StartOptions`; only `id` is required.

        Raises:
            WorkflowAlreadyStartedError: A run of this id is in the way.
            ResourceExhaustedError: The cluster takes no more runs now, and said so to the end.
            OutcomeUnknownError: Whether it was started is not known.
        """
        name, declared = type_of(workflow)
        request_id = options.get("request_id") or secrets.token_hex(16)
        values = arguments(arg, args)
        body = start_body(name, values, options, request_id, self.identity)
        namespace = {} if self.namespace == DEFAULT_NAMESPACE else {"namespace": self.namespace}
        request = Request(
            method="POST",
            path="/v1/executions",
            query=namespace,
            body=body,
            request_id=request_id,
        )
        reply = await self._transport.call(request, self._call.timeout_seconds)
        started = msgspec.json.decode(reply.body, type=Started)
        return WorkflowHandle(
            self._call,
            options["id"],
            run_id=started.run_id,
            first_run_id=started.first_run_id,
            result_type=declared if result_type is None else result_type,
        )

    @overload
    async def execute_workflow(
        self,
        workflow: Callable[[A], Awaitable[R]],
        arg: A,
        **options: Unpack[StartOptions],
    ) -> R: ...
    @overload
    async def execute_workflow(
        self,
        workflow: Callable[[S, A], Awaitable[R]],
        arg: A,
        **options: Unpack[StartOptions],
    ) -> R: ...
    @overload
    async def execute_workflow(
        self,
        workflow: Callable[P, Awaitable[R]],
        *,
        args: Sequence[Any] = ...,
        **options: Unpack[StartOptions],
    ) -> R: ...
    @overload
    async def execute_workflow(
        self,
        workflow: str | type,
        arg: object = ...,
        *,
        args: Sequence[Any] | None = ...,
        result_type: type[R],
        **options: Unpack[StartOptions],
    ) -> R: ...
    @overload
    async def execute_workflow(
        self,
        workflow: str | type,
        arg: object = ...,
        *,
        args: Sequence[Any] | None = ...,
        **options: Unpack[StartOptions],
    ) -> Any: ...  # noqa: ANN401 - whatever the workflow returns
    async def execute_workflow(
        self,
        workflow: Any,
        arg: Any = UNSET,
        *,
        args: Sequence[Any] | None = None,
        result_type: Any = None,
        **options: Unpack[StartOptions],
    ) -> Any:
        """Start a workflow and return its result; arguments and errors of both."""
        handle = await self.start_workflow(
            workflow, arg, args=args, result_type=result_type, **options
        )
        return await handle.result()

    def get_workflow_handle(
        self,
        workflow_id: str,
        *,
        run_id: str | None = None,
        first_run_id: str | None = None,
        result_type: Any = Any,  # noqa: ANN401 - any type that a payload can be decoded to
    ) -> WorkflowHandle[Any]:
        """Return a handle on an execution that exists; nothing is asked of the cluster.

        Args:
            workflow_id: The id that it was started with.
            run_id: One run of it; None: whichever is the newest.
            first_run_id: The first run of its chain, if it is known.
            result_type: What `result()` decodes to.
        """
        return WorkflowHandle(
            self._call,
            workflow_id,
            run_id=run_id,
            is_pinned=run_id is not None,
            first_run_id=first_run_id,
            result_type=result_type,
        )

    def get_workflow_handle_for(
        self,
        workflow: Callable[..., Awaitable[R]],
        workflow_id: str,
        *,
        run_id: str | None = None,
        first_run_id: str | None = None,
    ) -> WorkflowHandle[R]:
        """Return a handle like `get_workflow_handle`, with the result type of `workflow`."""
        return self.get_workflow_handle(
            workflow_id, run_id=run_id, first_run_id=first_run_id, result_type=type_of(workflow)[1]
        )

    async def list_workflows(
        self, *, limit: int | None = None, **which: Unpack[ListOptions]
    ) -> AsyncIterator[WorkflowExecution]:
        """Yield runs, newest first.

        Args:
            limit: At most this many; None: all.
            which: See `ListOptions`.
        """
        count = 0
        async for page in list_pages(self._call, which, limit):
            for execution in page.items:
                if limit is not None and count >= limit:
                    return
                count += 1
                yield execution
