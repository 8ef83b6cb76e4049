"""What undoes a fault, as values that survive their runner, and the doing of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, assert_never

import aiohttp
import msgspec

from odin.client import Client
from odin.errors import NotFoundError, OdinError, UnavailableError

if TYPE_CHECKING:
    from .levers import Levers

Kind: TypeAlias = Literal["cluster", "mock", "write", "remove", "terminate"]
MOCK_TIMEOUT: Final = aiohttp.ClientTimeout(total=5.0)


class Undo(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One step that undoes something; doing it twice does no harm.

    Attributes:
        kind: "cluster": heal what is on the cluster's record; "mock": tell the mock at `address` to
            behave; "write": put `text` into the file `path`; "remove": delete that file;
            "terminate": end the runs `workflow_ids`.
        address: Of a mock.
        path: Of a file.
        text: What it is to hold.
        workflow_ids: Of runs that would never end by themselves.
    """

    kind: Kind
    address: str = ""
    path: str = ""
    text: str = ""
    workflow_ids: list[str] = []


CLUSTER: Final = Undo(kind="cluster")
BEHAVE: Final = {"kind": "none"}


async def undo(step: Undo, levers: Levers, api_key: str | None = None) -> None:
    """Do one step.

    Raises:
        OdinError: it could not be done; it is to be tried again.
    """
    match step.kind:
        case "cluster":
            await levers.breaker.heal()
        case "mock":
            if _is_there(step.address, levers):  # in a process that has gone nothing is left of it
                await tell_mock(step.address, levers.secrets().mock_admin_token, BEHAVE)
        case "write":
            await asyncio.to_thread(Path(step.path).write_text, step.text, encoding="utf-8")
        case "remove":
            await asyncio.to_thread(Path(step.path).unlink, missing_ok=True)
        case "terminate":
            await _terminate(step.workflow_ids, levers, api_key)
        case _ as never:
            assert_never(never)


async def tell_mock(address: str, token: str, body: object) -> list[dict[str, object]]:
    """Tell a mock how to behave; return its behaviours as it lists them.

    Raises:
        UnavailableError: it does not answer, or refuses.
    """
    headers = {"Authorization": f"Bearer {token}"}
    url = f"{address}/admin/behaviour"
    try:
        async with (
            aiohttp.ClientSession(timeout=MOCK_TIMEOUT, headers=headers) as session,
            session.request("GET" if body is None else "POST", url, json=body) as answer,
        ):
            content = await answer.read()
            answer.raise_for_status()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise UnavailableError(f"the mock at {address} cannot be told: {error}") from error
    found: list[dict[str, object]] = msgspec.json.decode(content)["behaviours"]
    return found


def _is_there(address: str, levers: Levers) -> bool:
    state = levers.state()
    parts = state.parts if state is not None and state.is_supervised else []
    return any(one.address == address and one.is_alive for one in parts)


async def _terminate(workflow_ids: list[str], levers: Levers, api_key: str | None) -> None:
    state = levers.state()
    if state is None or not state.is_supervised or not state.engines:
        return  # whatever runs there is nobody's concern before the next start
    left: list[str] = []
    async with Client(state.engines, api_key=api_key, identity="chaos") as client:
        for workflow_id in workflow_ids:
            try:
                await client.get_workflow_handle(workflow_id).terminate("the experiment is over")
            except NotFoundError:
                continue
            except OdinError as error:
                if error.reason not in _OVER:
                    left.append(f"{workflow_id}: {error}")
    if left:
        raise UnavailableError(f"could not be terminated: {'; '.join(left[:3])}")


_OVER: Final = ("RUN_CLOSED",)
