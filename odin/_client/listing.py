"""Lists of executions, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from .models import ExecutionPage
from .transport import Request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .handle import Call

_PAGE = 200


class ListOptions(TypedDict, total=False):
    """Which executions are listed; every condition that is given must hold.

    Attributes:
        status: One status or several.
        failed: True: failed, terminated or timed out; False: none of these.
        workflow_type: The workflow type's name.
        id_prefix: How the workflow id begins.
        started_after: Started at this instant or later.
        started_before: Started earlier.
    """

    status: str | Sequence[str] | None
    failed: bool | None
    workflow_type: str | None
    id_prefix: str | None
    started_after: datetime | None
    started_before: datetime | None


def list_query(which: ListOptions) -> dict[str, str]:
    """Return the query parameters for `which`.

    Raises:
        TypeError: A condition is unknown.
    """
    unknown = which.keys() - ListOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"unknown conditions {sorted(unknown)}")
    query: dict[str, str] = {}
    for name, value in which.items():
        if value is not None:
            query["workflow_id" if name == "id_prefix" else name] = _text(value)
    return query


def _text(value: Any) -> str:  # noqa: ANN401 - any of the options' types
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return str(value) if isinstance(value, str) else ",".join(map(str, value))


async def list_pages(
    call: Call, which: ListOptions, limit: int | None
) -> AsyncIterator[ExecutionPage]:
    """Yield pages of runs, newest first, with `limit` as a hint of how many are wanted."""
    query = {**list_query(which), "limit": str(min(_PAGE, limit or _PAGE))}
    if call.namespace != "default":
        query["namespace"] = call.namespace
    while True:
        request = Request(method="GET", path="/v1/executions", query=query)
        reply = await call.transport.call(request, call.timeout_seconds)
        page = msgspec.json.decode(reply.body, type=ExecutionPage)
        yield page
        if page.next_cursor is None:
            return
        query = {**query, "cursor": page.next_cursor}
