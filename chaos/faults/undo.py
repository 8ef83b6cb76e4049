"""What undoes a fault, as values that survive their runner, and the doing of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, assert_never

import aiohttp
import msgspec

from odin.client import Client
from odin.errors import NotFoundError, OdinError, UnavailableError

from .docker import Docker
from .docker_address import parsed

if TYPE_CHECKING:
    from .levers import Reach

Kind: TypeAlias = Literal["cluster", "mock", "write", "remove", "terminate", "container"]
Action: TypeAlias = Literal["", "start", "unpause", "connect"]
CONTAINER_LOOKS: Final = 3
CONTAINER_LOOK_SECONDS: Final = 0.5
MOCK_TIMEOUT: Final = aiohttp.ClientTimeout(total=5.0)


class Undo(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One step that undoes something; doing it twice does no harm.

    Attributes:
        kind: "cluster": heal what is on the cluster's record; "mock": tell the mock at `address` to
            behave; "write": put `text` into the file `path`; "remove": delete that file;
            "terminate": end the runs `workflow_ids`; "container": do `action` to `container`, by
            the Docker engine at `address`.
        address: Of a mock, or of a Docker engine.
        path: Of a file.
        text: What it is to hold.
        workflow_ids: Of runs that would never end by themselves.
        action: What brings a container back.
        container: Its id.
        network: What it is to be connected to.
        aliases: By which names, there.
    """

    kind: Kind
    address: str = ""
    path: str = ""
    text: str = ""
    workflow_ids: list[str] = []
    action: Action = ""
    container: str = ""
    network: str = ""
    aliases: list[str] = []


CLUSTER: Final = Undo(kind="cluster")
BEHAVE: Final = {"kind": "none"}


async def undo(step: Undo, levers: Reach, api_key: str | None = None) -> None:
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
        case "container":
            await restored(step)
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


async def restored(step: Undo) -> None:
    """Bring a container back to what it was; one that has been removed needs nothing.

    It is looked at more than once: what was asked of the engine by a runner that was told to end in
    the middle may come true a moment later.

    Raises:
        OdinError: the engine does not answer, or cannot do it.
    """
    docker = Docker(parsed(step.address))
    for look in range(CONTAINER_LOOKS):
        if look:
            await asyncio.sleep(CONTAINER_LOOK_SECONDS)
        try:
            found = await docker.inspect(step.container)
            status = found.state.status
            if step.action == "start" and status in ("exited", "created", "stopped"):
                await docker.do("start", step.container)
            elif step.action == "unpause" and status == "paused":
                await docker.do("unpause", step.container)
            elif step.action == "connect" and step.network not in found.network_settings.networks:
                await docker.connect(step.network, step.container, step.aliases)
        except NotFoundError:
            return


def _is_there(address: str, levers: Reach) -> bool:
    state = levers.state()
    parts = state.parts if state is not None and state.is_supervised else []
    return any(one.address == address and one.is_alive for one in parts)


async def _terminate(workflow_ids: list[str], levers: Reach, api_key: str | None) -> None:
    state = levers.state()
    if state is None or not state.is_supervised or not state.engines:
        return  # whatever runs there is nobody's concern before the next start
    left: list[str] = []
    key = api_key or levers.api_key()
    async with Client(state.engines, api_key=key, identity="chaos") as client:
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
