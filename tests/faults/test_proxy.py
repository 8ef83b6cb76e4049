"""Each fault of the proxy, on real sockets: what each end of a connection sees of it."""

from __future__ import annotations

import asyncio

import pytest

from cluster.proxy.faults import Direction, Fault, LinkName, Order
from odin.errors import InvalidArgumentError, NotFoundError

from .wires import LINK, is_silent, scene, until

BIG = bytes(range(256)) * 20_000


async def test_without_a_fault_everything_passes_both_ways_and_so_do_ends() -> None:
    async with scene() as wire:
        reader, writer, heard = await wire.talk()
        writer.write(BIG)
        async with asyncio.timeout(20):
            assert await reader.readexactly(len(BIG)) == BIG
        assert bytes(heard.data) == b"hello" + BIG
        writer.write_eof()
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        assert heard.end == "eof"
        await until(lambda: wire.exchange.links()[0].open_count == 0)
        assert wire.exchange.links()[0].bytes_up == len(BIG) + 5
        writer.close()


async def test_an_end_that_is_reset_is_reset_at_the_other_end_too() -> None:
    async with scene() as wire:
        _, writer, heard = await wire.talk()
        writer.transport.set_write_buffer_limits(0)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(1, 13, b"\x01\0\0\0\0\0\0\0")  # SO_LINGER, at once
        writer.transport.abort()
        await until(lambda: heard.end)
        assert heard.end == "reset"


async def test_a_link_that_refuses_resets_what_is_open_and_lets_nobody_in_until_healed() -> None:
    async with scene() as wire:
        reader, writer, heard = await wire.talk()
        fault_id = await wire.begin(Fault(mode="refuse"))
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        await until(lambda: heard.end == "reset")
        with pytest.raises(ConnectionRefusedError):
            await wire.connect()
        assert await wire.exchange.heal(fault_id)
        _, again, _ = await wire.talk()
        again.close()
        writer.close()


async def test_a_link_that_resets_accepts_and_resets() -> None:
    async with scene() as wire:
        fault_id = await wire.begin(Fault(mode="reset"))
        reader, writer = await wire.connect()
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        writer.close()
        await wire.exchange.heal(fault_id)
        _, writer, _ = await wire.talk()
        writer.close()
        assert len(wire.server.heard) == 1


async def test_a_blackhole_keeps_connections_hides_their_ends_and_gives_back_what_was_sent() -> (
    None
):
    async with scene() as wire:
        reader, writer, heard = await wire.talk()
        fault_id = await wire.begin(Fault(mode="blackhole"))
        writer.write(b"lost in space")
        assert await is_silent(reader)
        late_reader, late_writer = await wire.connect()
        late_writer.write(b"me too")
        assert await is_silent(late_reader)
        assert len(wire.server.heard) == 1
        assert bytes(heard.data) == b"hello"
        await wire.exchange.heal(fault_id)
        async with asyncio.timeout(5):
            assert await reader.readexactly(13) == b"lost in space"
            assert await late_reader.readexactly(6) == b"me too"
        fault_id = await wire.begin(Fault(mode="blackhole"))
        writer.close()
        late_writer.transport.abort()
        await asyncio.sleep(0.2)
        assert heard.end == ""
        await wire.exchange.heal(fault_id)
        await until(lambda: heard.end)


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_one_way_is_lost_and_the_other_is_not(direction: Direction) -> None:
    async with scene() as wire:
        reader, writer, heard = await wire.talk()
        fault_id = await wire.begin(Fault(mode="blackhole", direction=direction))
        writer.write(b"x")
        assert await is_silent(reader)
        assert bytes(heard.data) == (b"hello" if direction == "up" else b"hellox")
        await wire.exchange.heal(fault_id)
        async with asyncio.timeout(5):
            assert await reader.readexactly(1) == b"x"
        writer.close()


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_of_a_half_open_connection_one_end_never_hears_of_the_end(
    direction: Direction,
) -> None:
    async with scene() as wire:
        reader, writer, heard = await wire.talk()
        fault_id = await wire.begin(Fault(mode="half_open", direction=direction))
        if direction == "up":
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
            await asyncio.sleep(0.2)
            assert heard.end == ""
        else:
            await until(lambda: heard.end == "reset")
            assert await is_silent(reader)
        _, fresh, _ = await wire.talk()  # new ones are whole
        await wire.exchange.heal(fault_id)
        await until(lambda: heard.end == "reset")
        fresh.close()
        writer.close()


async def test_a_delay_is_kept_and_so_is_the_order() -> None:
    async with scene() as wire:
        reader, writer, _ = await wire.talk()
        await wire.begin(Fault(mode="delay", direction="up", delay_ms=100, jitter_ms=100))
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(20):
            writer.write(b"%02d" % number)
            await asyncio.sleep(0.005)
        async with asyncio.timeout(5):
            text = await reader.readexactly(40)
        assert text == b"".join(b"%02d" % number for number in range(20))
        assert 0.1 <= loop.time() - began < 1.5
        writer.close()


async def test_a_throttled_link_keeps_to_its_rate() -> None:
    async with scene() as wire:
        reader, writer, _ = await wire.talk()
        await wire.begin(Fault(mode="throttle", direction="down", bytes_per_second=100_000))
        loop = asyncio.get_running_loop()
        began = loop.time()
        writer.write(b"x" * 50_000)
        async with asyncio.timeout(5):
            await reader.readexactly(50_000)
        assert 0.35 < loop.time() - began < 1.5
        writer.close()


async def test_a_cut_comes_right_after_the_pattern_and_the_dependency_has_read_it_all() -> None:
    async with scene() as wire:
        wire.server.is_mute = True
        reader, writer = await wire.connect()
        fault_id = await wire.begin(Fault(mode="cut_after", pattern="COMMIT;"))
        writer.write(b"a" * 1_000 + b"COM")
        await asyncio.sleep(0.05)
        writer.write(b"MIT;never")
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        heard = wire.server.heard[0]
        await until(lambda: heard.end)
        assert heard.end == "eof"
        assert bytes(heard.data) == b"a" * 1_000 + b"COMMIT;"
        assert wire.exchange.faults()[0].match_count == 1
        _, again = await wire.connect()  # once is once
        again.write(b"COMMIT;")
        await until(lambda: len(wire.server.heard) == 2 and wire.server.heard[1].data == b"COMMIT;")
        assert wire.server.heard[1].end == ""
        await wire.exchange.heal(fault_id)
        again.close()
        writer.close()


async def test_a_freeze_before_the_pattern_keeps_it_and_what_follows_until_healed() -> None:
    async with scene() as wire:
        reader, writer, heard = await wire.talk()
        fault_id = await wire.begin(Fault(mode="freeze_before", pattern="SYNC", is_once=False))
        writer.write(b"bindSYNCmore")
        assert await is_silent(reader, 0.1) is False  # the echo of what came before it
        await until(lambda: bytes(heard.data) == b"hellobind")
        writer.write(b"and more")
        await asyncio.sleep(0.1)
        assert bytes(heard.data) == b"hellobind"
        await wire.exchange.heal(fault_id)
        await until(lambda: bytes(heard.data) == b"hellobindSYNCmoreand more")
        writer.close()


async def test_a_freeze_after_the_pattern_withholds_the_answer_alone() -> None:
    async with scene() as wire:
        reader, writer, heard = await wire.talk()
        fault_id = await wire.begin(Fault(mode="freeze_after", pattern="SYNC"))
        writer.write(b"SYNC")
        assert await is_silent(reader)
        assert bytes(heard.data) == b"helloSYNC"
        await wire.exchange.heal(fault_id)
        async with asyncio.timeout(5):
            assert await reader.readexactly(4) == b"SYNC"
        writer.close()


async def test_a_fault_heals_by_itself_after_its_time() -> None:
    async with scene() as wire:
        reader, writer, _ = await wire.talk()
        await wire.begin(Fault(mode="blackhole"), 0.3)
        writer.write(b"x")
        assert await is_silent(reader, 0.1)
        async with asyncio.timeout(5):
            assert await reader.readexactly(1) == b"x"
        await until(lambda: wire.exchange.faults() == [])
        writer.close()


async def test_two_faults_of_a_link_hold_until_both_are_healed() -> None:
    async with scene() as wire:
        reader, writer, _ = await wire.talk()
        first = await wire.begin(Fault(mode="blackhole", direction="up"))
        second = await wire.begin(Fault(mode="blackhole"))
        writer.write(b"x")
        await wire.exchange.heal(second)
        assert await is_silent(reader, 0.2)
        await wire.exchange.heal(first)
        async with asyncio.timeout(5):
            assert await reader.readexactly(1) == b"x"
        writer.close()


async def test_what_makes_no_sense_is_refused() -> None:
    async with scene() as wire:
        with pytest.raises(NotFoundError, match="nobody → postgres"):
            await wire.exchange.begin(
                Order(
                    links=[LinkName("nobody", "postgres")],
                    fault=Fault(mode="refuse"),
                    seconds=1,
                )
            )
        for fault, seconds in [
            (Fault(mode="refuse"), 0.0),
            (Fault(mode="refuse"), 601.0),
            (Fault(mode="delay"), 1.0),
            (Fault(mode="throttle"), 1.0),
            (Fault(mode="refuse", pattern="x"), 1.0),
            (Fault(mode="cut_after"), 1.0),
            (Fault(mode="cut_after", pattern="x" * 300), 1.0),
            (Fault(mode="cut_after", pattern="x", is_statement=True, direction="down"), 1.0),
        ]:
            with pytest.raises(InvalidArgumentError):
                await wire.exchange.begin(Order(links=[LINK], fault=fault, seconds=seconds))
        assert wire.exchange.faults() == []
