"""Links between an aiohttp client and an ASGI server, over real sockets; and between two queues."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core import wire
from odin.core.payload import Payload
from odin.core.requests import TerminateWorkflow
from odin.errors import DeadlineExceededError, InvalidArgumentError
from odin.runtime import link_silence, link_sockets, links
from odin.runtime.link_keeper import LinkKeeper
from odin.runtime.link_sockets import WORKER_PATH, connect_socket, new_session
from odin.runtime.links import (
    BETWEEN_ENGINES,
    ENGINE_TO_WORKER,
    WORKER_TO_ENGINE,
    Link,
    LinkClosedError,
    Message,
    Socket,
)
from tests.worker.peer import Peer, peer

REQUEST = TerminateWorkflow(namespace="n", workflow_id="w", request_id="r", reason="")
RUN_ID = "01890000-0000-7000-8000-000000000001"


class Pipe:
    """A socket whose other end the test holds."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.incoming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.gate = asyncio.Event()
        self.gate.set()

    async def send_bytes(self, data: bytes) -> None:
        await self.gate.wait()
        self.sent.append(data)

    async def receive_bytes(self) -> bytes | None:
        return await self.incoming.get()

    async def close(self, *_: object) -> None:
        self.incoming.put_nowait(None)


@asynccontextmanager
async def running(link: Link, heard: list[Message]) -> AsyncIterator[None]:
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(link.run(heard.append))
        try:
            yield
        finally:
            link.close("the test is over")


def claim(seq: int) -> wire.ClaimWorkflowTask:
    return wire.ClaimWorkflowTask(seq, 1, RUN_ID, 1)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_one_turn_of_the_loop_says_travels_in_one_frame() -> None:
    pipe = Pipe()
    link = Link(pipe, ENGINE_TO_WORKER, name="x")
    async with running(link, []):
        await turns()
        for seq in range(40):
            link.send(claim(seq))
        await turns()
        link.send(claim(40))
        await turns()
        frames = [wire.decode_from_worker(one) for one in pipe.sent]
    assert [len(frame) for frame in frames] == [40, 1]
    assert frames[0] == [claim(seq) for seq in range(40)]


@given(st.integers(1, 70))
async def test_a_frame_is_what_the_codec_makes_of_its_messages(count: int) -> None:
    pipe = Pipe()
    link = Link(pipe, ENGINE_TO_WORKER, name="x")
    async with running(link, []):
        for seq in range(count):
            link.send(claim(seq))
        await turns()
    assert [wire.decode_from_worker(one) for one in pipe.sent] == [
        [claim(seq) for seq in range(count)]
    ]


async def test_large_messages_are_spread_over_frames_of_bounded_size() -> None:
    pipe = Pipe()
    link = Link(pipe, ENGINE_TO_WORKER, name="x")
    details = (Payload("json", b"d" * (links.FRAME_BYTES // 3)),)
    messages = [wire.Heartbeat(1, "r", seq, "t", details) for seq in range(10)]
    async with running(link, []):
        for message in messages:
            link.send(message)
        await turns()
    assert len(pipe.sent) >= 4
    assert max(len(one) for one in pipe.sent) <= links.FRAME_BYTES + 10
    assert [one for frame in pipe.sent for one in wire.decode_from_worker(frame)] == messages


async def test_a_message_larger_than_a_frame_is_refused_and_leaves_the_others_whole() -> None:
    pipe = Pipe()
    link = Link(pipe, ENGINE_TO_WORKER, name="x")
    async with running(link, []):
        link.send(claim(1))
        with pytest.raises(InvalidArgumentError, match="Heartbeat"):
            link.send(wire.Heartbeat(1, "r" * wire.FRAME_BYTES_MAX, 1, "t"))
        with pytest.raises(InvalidArgumentError):
            link.request(lambda _: wire.Heartbeat(1, "r" * wire.FRAME_BYTES_MAX, 1, "t"), print)
        link.send(claim(2))
        await turns()
        assert link.pending == 0
    assert wire.decode_from_worker(pipe.sent[0]) == [claim(1), claim(2)]


async def test_a_link_that_does_not_take_what_is_queued_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "QUEUE_BYTES_MAX", links.FRAME_BYTES)
    pipe = Pipe()
    pipe.gate.clear()
    link = Link(pipe, ENGINE_TO_WORKER, name="x")
    async with running(link, []):
        for seq in range(20):
            link.send(wire.Heartbeat(1, "r" * (links.FRAME_BYTES // 3), seq, "t"))
        await turns()
        assert link.closed
        assert link.close_reason == "too slow"
        assert link.send(claim(1)) is False


@pytest.mark.parametrize("frame", [b"", b"\xc1", b"\x91\x92\xa4nope\x01", b"\x93\x01\x02\x03"])
async def test_a_damaged_frame_ends_the_link_and_says_so(
    frame: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    pipe = Pipe()
    link = Link(pipe, ENGINE_TO_WORKER, name="x")
    with caplog.at_level(logging.ERROR):
        async with running(link, []):
            pipe.incoming.put_nowait(frame)
            await turns()
            assert link.close_reason == "damaged frame"
    assert "a frame is damaged" in caplog.text


async def test_a_handler_that_fails_ends_the_link_and_not_the_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pipe = Pipe()
    link = Link(pipe, ENGINE_TO_WORKER, name="x")

    def fail(_: Message) -> None:
        raise RuntimeError("boom")

    frame: list[Any] = [wire.ShardMap(())]
    pipe.incoming.put_nowait(wire.encode_frame(frame))
    with caplog.at_level(logging.ERROR):
        assert await link.run(fail) == "handler failed"


async def test_requests_without_an_answer_fail_when_the_link_ends() -> None:
    pipe = Pipe()
    link = Link(pipe, ENGINE_TO_WORKER, name="x")
    async with asyncio.TaskGroup() as group:
        life = group.create_task(link.run(print))
        await turns()
        asking = [group.create_task(_closed(link)) for _ in range(3)]
        await turns()
        pipe.incoming.put_nowait(None)
        assert await life == "closed by the other end"
        assert [await one for one in asking] == [True] * 3
    assert await _closed(link)


async def _closed(link: Link) -> bool:
    with pytest.raises(LinkClosedError):
        await link.ask(claim, 5)
    return True


async def test_an_answer_that_does_not_come_is_a_deadline_exceeded_and_forgotten() -> None:
    link = Link(Pipe(), ENGINE_TO_WORKER, name="x")
    async with running(link, []):
        with pytest.raises(DeadlineExceededError):
            await link.ask(claim, 0.02)
        assert link.pending == 0


async def test_an_answer_without_a_question_is_dropped() -> None:
    pipe = Pipe()
    link = Link(pipe, ENGINE_TO_WORKER, name="x")
    heard: list[Message] = []
    async with running(link, heard):
        frame: list[Any] = [wire.NotWanted(77), wire.ShardMap(())]
        pipe.incoming.put_nowait(wire.encode_frame(frame))
        await turns()
    assert heard == [wire.ShardMap(())]


async def test_the_client_pings_and_a_silent_link_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "_TICK_SECONDS", 0.01)
    monkeypatch.setattr(links, "PING_SECONDS", 0.02)
    monkeypatch.setattr(links, "DEAD_SECONDS", 0.1)
    pipe = Pipe()
    link = Link(pipe, ENGINE_TO_WORKER, name="x", pings=True)
    async with asyncio.timeout(5):
        assert await link.run(print) == "silent"
    assert wire.decode_from_worker(pipe.sent[0]) == [wire.Ping(0)]


@pytest.mark.parametrize("impatient", [True, False])
async def test_an_impatient_link_gives_a_silent_end_up_while_something_is_asked(
    monkeypatch: pytest.MonkeyPatch, *, impatient: bool
) -> None:
    monkeypatch.setattr(link_silence, "_TICK_SECONDS", 0.02)
    monkeypatch.setattr(link_silence, "ASKED_SECONDS", 0.06)
    pipe = Pipe()
    link = Link(pipe, BETWEEN_ENGINES, name="x", impatient=impatient)
    async with running(link, []):
        await asyncio.sleep(0.2)
        assert not link.closed  # nothing is asked
        if impatient:
            with pytest.raises(LinkClosedError, match="silent"):
                await link.ask(lambda seq: wire.Forward(seq, 1, 1, REQUEST), 4)
            sent = [one for frame in pipe.sent for one in wire.decode_between_engines(frame)]
            assert [type(one) for one in sent] == [wire.Forward, wire.Ping]
        else:
            with pytest.raises(DeadlineExceededError):
                await link.ask(lambda seq: wire.Forward(seq, 1, 1, REQUEST), 0.2)
            assert not link.closed


async def test_an_impatient_link_waits_for_an_answer_as_long_as_anything_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_silence, "_TICK_SECONDS", 0.02)
    monkeypatch.setattr(link_silence, "ASKED_SECONDS", 0.06)
    pipe = Pipe()
    link = Link(pipe, BETWEEN_ENGINES, name="x", impatient=True)

    async def answers() -> None:
        pinged = 0
        while pinged < 10:
            await asyncio.sleep(0.01)
            frames = [wire.decode_between_engines(frame) for frame in pipe.sent]
            pings = [one for frame in frames for one in frame if isinstance(one, wire.Ping)]
            pongs: list[Any] = [wire.Pong(0)]
            for _ in pings[pinged:]:
                pipe.incoming.put_nowait(wire.encode_frame(pongs))
            pinged = len(pings)
        last: list[Any] = [wire.Forwarded(1, b"late")]
        pipe.incoming.put_nowait(wire.encode_frame(last))

    async with running(link, []), asyncio.TaskGroup() as group:
        group.create_task(answers())
        answer = await link.ask(lambda seq: wire.Forward(seq, 1, 1, REQUEST), 4)
    assert answer == wire.Forwarded(1, b"late")


async def test_a_ping_is_answered_and_keeps_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "_TICK_SECONDS", 0.01)
    monkeypatch.setattr(links, "DEAD_SECONDS", 0.1)
    pipe = Pipe()
    link = Link(pipe, WORKER_TO_ENGINE, name="x")
    heard: list[Message] = []
    async with running(link, heard):
        for seq in range(20):
            frame: list[Any] = [wire.Ping(seq)]
            pipe.incoming.put_nowait(wire.encode_frame(frame))
            await asyncio.sleep(0.01)
        assert not link.closed
    answers = [one for frame in pipe.sent for one in wire.decode_to_worker(frame)]
    assert answers == [wire.Pong(seq) for seq in range(20)]
    assert heard == []


# Over real sockets.


async def test_requests_and_answers_cross_a_real_websocket() -> None:
    async with peer() as engine, new_session() as session:
        socket = await connect_socket(session, engine.address, WORKER_PATH, dict)
        link = Link(socket, ENGINE_TO_WORKER, name="engine", pings=True)
        heard: list[Message] = []
        async with running(link, heard), asyncio.TaskGroup() as group:
            asking = [group.create_task(link.ask(claim, 5)) for _ in range(3)]
            for _ in asking:
                asked = await engine.hear(wire.ClaimWorkflowTask)
                engine.say(wire.NotWanted(asked.seq))
            answers = [await one for one in asking]
            assert sorted(one.seq for one in answers) == [1, 2, 3]
        assert [type(one) for one in heard] == [wire.Welcome]


async def test_an_engine_that_takes_a_connection_and_says_nothing_is_a_link_closed_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_sockets, "OPEN_SECONDS", 0.2)

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, asyncio.timeout(5), new_session() as session:
        with pytest.raises(LinkClosedError, match="TimeoutError"):
            await connect_socket(session, address, WORKER_PATH, dict)


async def test_an_engine_that_cannot_be_reached_is_a_link_closed_error() -> None:
    async with new_session() as session:
        for address in ("http://127.0.0.1:9", "not an address"):
            with pytest.raises(LinkClosedError):
                await connect_socket(session, address, WORKER_PATH, dict)


class User:
    """Counts what a keeper tells it."""

    def __init__(self) -> None:
        self.up: list[str] = []
        self.down: list[str] = []
        self.heard: list[Message] = []

    def link_up(self, _: Link, address: str) -> None:
        self.up.append(address)

    def link_message(self, _: Link, message: Message) -> None:
        self.heard.append(message)

    def link_down(self, _: Link, address: str) -> None:
        self.down.append(address)


@asynccontextmanager
async def keeping(user: User) -> AsyncIterator[LinkKeeper]:
    stop = asyncio.Event()
    async with new_session() as session, asyncio.timeout(10), asyncio.TaskGroup() as group:

        async def connect(address: str) -> Socket:
            return await connect_socket(session, address, WORKER_PATH, dict)

        keeper = LinkKeeper(connect, ENGINE_TO_WORKER, user)
        group.create_task(keeper.run(stop))
        try:
            yield keeper
        finally:
            stop.set()


async def met(engine: Peer, count: int) -> None:
    while len(engine.links) != count:
        await asyncio.sleep(0.01)


async def test_the_keeper_opens_again_what_was_cut_and_closes_what_is_not_wanted() -> None:
    user = User()
    async with peer() as engine:
        async with keeping(user) as keeper:
            keeper.want([engine.address])
            await met(engine, 1)
            first = engine.links[0]
            engine.cut()
            while not engine.links or engine.links[0] is first:
                await asyncio.sleep(0.01)
            assert keeper.wanted == {engine.address}
            keeper.want([])
            await met(engine, 0)
            keeper.want([engine.address])
            await met(engine, 1)
        await met(engine, 0)
    assert user.up == [engine.address] * 3
    assert user.down == user.up


async def test_the_keeper_stops_at_once_although_nobody_listens() -> None:
    async with asyncio.timeout(2):
        async with keeping(User()) as keeper:
            keeper.want(["http://127.0.0.1:9", "http://127.0.0.1:10"])
            await asyncio.sleep(0.2)
