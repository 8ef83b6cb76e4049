"""Heartbeats: throttled, never losing the newest details, and the judgement of lost contact."""

import asyncio
from typing import Any

from odin.core import wire
from odin.core.payload import encode
from odin.worker.heartbeats import TAKEOVER_SECONDS, Heartbeats
from tests.worker.peer import History


def grant(heartbeat_ms: int | None, **changes: object) -> wire.ActivityTaskGranted:
    claim = wire.ClaimActivityTask(1, 3, "run", 7, 1, "token")
    return History("w").activity(claim, "x", heartbeat_ms=heartbeat_ms, **changes)


def beats_of(heartbeat_ms: int | None, sent: list[Any], *, auto: bool, **changes: object) -> Any:  # noqa: ANN401 - a private class
    def send(beat: wire.Heartbeat) -> bool:
        sent.append(beat.details)
        return True

    return Heartbeats(grant(heartbeat_ms, **changes), send, asyncio.get_running_loop(), auto=auto)


async def test_the_first_beat_goes_out_and_of_the_others_only_the_newest() -> None:
    sent: list[Any] = []
    beats = beats_of(50, sent, auto=False)
    for number in range(5):
        beats.beat((encode(number),))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert sent == [(encode(0),)]
    async with asyncio.timeout(5):
        while len(sent) < 2:
            await asyncio.sleep(0.005)
    assert sent[1] == (encode(4),)
    beats.end(flush=False)


async def test_a_beat_by_itself_repeats_the_details_of_the_attempt_before() -> None:
    sent: list[Any] = []
    beats = beats_of(20, sent, auto=True, heartbeat_details=(encode("far"),))
    async with asyncio.timeout(5):
        while not sent:
            await asyncio.sleep(0.005)
    beats.end(flush=False)
    assert sent[0] == (encode("far"),)


async def test_details_that_could_not_be_sent_go_out_at_the_end() -> None:
    sent: list[Any] = []
    beats = beats_of(60_000, sent, auto=False)
    beats.beat((encode(1),))
    beats.end(flush=True)
    assert sent == [(encode(1),)]
    beats.beat((encode(2),))
    await asyncio.sleep(0)
    assert sent == [(encode(1),)]


async def test_a_worker_cut_off_from_all_engines_stops_at_0_8_of_the_timeout() -> None:
    beats = beats_of(5_000, [], auto=False)
    assert not beats.lost_contact(linked=True, now=100.0, isolated=False)
    assert not beats.lost_contact(linked=False, now=103.9, isolated=True)
    assert beats.lost_contact(linked=False, now=104.1, isolated=True)


async def test_an_owner_that_may_be_dead_is_given_the_time_of_a_takeover() -> None:
    beats = beats_of(5_000, [], auto=False)
    beats.lost_contact(linked=True, now=100.0, isolated=False)
    assert not beats.lost_contact(linked=False, now=99.9 + TAKEOVER_SECONDS, isolated=False)
    assert beats.lost_contact(linked=False, now=100.1 + TAKEOVER_SECONDS, isolated=False)


async def test_contact_begins_anew_with_the_link() -> None:
    beats = beats_of(5_000, [], auto=False)
    beats.lost_contact(linked=True, now=100.0, isolated=False)
    beats.lost_contact(linked=True, now=110.0, isolated=False)
    assert not beats.lost_contact(linked=False, now=113.0, isolated=True)


async def test_without_a_heartbeat_timeout_contact_is_not_judged() -> None:
    beats = beats_of(None, [], auto=True)
    beats.lost_contact(linked=True, now=1.0, isolated=False)
    assert not beats.lost_contact(linked=False, now=9_999.0, isolated=True)
