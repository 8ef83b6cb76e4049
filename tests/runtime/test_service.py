from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from odin.runtime.parent import PARENT_PID, ParentWatch
from odin.runtime.service import EXIT_FAILED, EXIT_REFUSED_TO_START, LoopEndedError, serve
from odin.runtime.services import checkout

SOON = timedelta(seconds=5)
PROGRAM = """
import asyncio, sys, threading, time
from datetime import timedelta
from odin.errors import ConfigurationError
from odin.runtime.service import run, serve

async def orderly(stop):
    print("ready", flush=True)
    await stop.wait()
    await asyncio.sleep(0)
    print("drained", flush=True)

async def stuck(stop):
    print("ready", flush=True)
    await asyncio.Event().wait()

async def refused(stop):
    raise ConfigurationError("ODIN_X is wrong: amqp://me:hunter2@host/")

async def broken(stop):
    raise ZeroDivisionError("by design")

async def threaded(stop):
    print("ready", flush=True)
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)
    await stop.wait()

async def main():
    await serve({"main": globals()[sys.argv[1]]}, timedelta(seconds=float(sys.argv[2])))

run(main, service="test", node="node-1")
"""


@contextmanager
def service(
    loop: str, drain_seconds: float = 20, environ: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, loop, str(drain_seconds)],
        cwd=checkout(),
        env={**os.environ, **(environ or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_until_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_work_in_hand_end_and_exits_with_zero(number: signal.Signals) -> None:
    with service("orderly") as process:
        wait_until_ready(process)
        process.send_signal(number)
        out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (0, "drained\n"), err
    events = [json.loads(line)["event"] for line in err.splitlines()]
    assert events == ["serving", "told to stop", "draining", "stopped"]


def test_a_second_signal_does_not_wait_for_the_drain() -> None:
    with service("stuck") as process:
        wait_until_ready(process)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        while "draining" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
    assert process.returncode == EXIT_FAILED


def test_a_loop_that_will_not_stop_is_cut_at_the_deadline() -> None:
    with service("stuck", drain_seconds=0.05) as process:
        wait_until_ready(process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
    assert process.returncode == EXIT_FAILED


def test_a_thread_that_will_not_end_does_not_hold_the_process() -> None:
    with service("threaded") as process:
        wait_until_ready(process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    assert process.returncode == 0


def test_an_expected_error_is_one_clear_line_without_a_stack() -> None:
    with service("refused") as process:
        _, err = process.communicate(timeout=10)
    assert process.returncode == EXIT_REFUSED_TO_START
    last = json.loads(err.splitlines()[-1])
    assert (last["event"], last["reason"]) == ("refused to go on", "BAD_CONFIGURATION")
    assert last["detail"] == "ODIN_X is wrong: amqp://me:***@host/"
    assert "Traceback" not in err
    assert "hunter2" not in err


def test_an_unexpected_error_is_told_with_its_stack() -> None:
    with service("broken") as process:
        _, err = process.communicate(timeout=10)
    assert process.returncode == EXIT_FAILED
    assert "ZeroDivisionError" in err


def test_a_service_ends_when_its_supervisor_is_gone() -> None:
    waiting = [sys.executable, "-c", "input()"]
    with (
        subprocess.Popen(waiting, stdin=subprocess.PIPE) as supervisor,
        service("orderly", environ={PARENT_PID: str(supervisor.pid)}) as process,
    ):
        wait_until_ready(process)
        supervisor.kill()  # not waited for yet: a zombie is gone, too
        out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (0, "drained\n")
    assert "supervisor is gone" in err


def test_a_supervisor_that_lives_is_not_gone_and_one_that_never_was_is() -> None:
    assert not ParentWatch(os.getppid()).is_gone()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert ParentWatch(gone.pid).is_gone()


async def test_a_loop_that_fails_drains_the_others_and_its_error_leaves() -> None:
    drained = []

    async def good(stop: asyncio.Event) -> None:
        await stop.wait()
        await asyncio.sleep(0)
        drained.append("good")

    async def bad(stop: asyncio.Event) -> None:
        raise ValueError("lost")

    with pytest.raises(ExceptionGroup) as failed:
        await serve({"good": good, "bad": bad}, SOON)
    assert [str(error) for error in failed.value.exceptions] == ["lost"]
    assert drained == ["good"]


async def test_a_failure_is_told_even_if_another_loop_will_not_drain() -> None:
    async def stuck(stop: asyncio.Event) -> None:
        await asyncio.Event().wait()

    async def bad(stop: asyncio.Event) -> None:
        raise ValueError("lost")

    with pytest.raises(ExceptionGroup) as failed:
        await serve({"stuck": stuck, "bad": bad}, timedelta(seconds=0.01))
    assert [type(error) for error in failed.value.exceptions] == [ValueError, TimeoutError]


async def test_a_loop_that_ends_unasked_is_a_failure() -> None:
    async def good(stop: asyncio.Event) -> None:
        await stop.wait()

    async def quitter(stop: asyncio.Event) -> None:
        return

    with pytest.raises(ExceptionGroup) as failed:
        await serve({"good": good, "quitter": quitter}, SOON)
    assert isinstance(failed.value.exceptions[0], LoopEndedError)


async def test_a_loop_may_stop_the_service_itself() -> None:
    async def job(stop: asyncio.Event) -> None:
        stop.set()

    await serve({"job": job}, SOON)


async def test_a_stop_event_from_outside_ends_the_service() -> None:
    stop, running = asyncio.Event(), asyncio.Event()

    async def good(stop: asyncio.Event) -> None:
        running.set()
        await stop.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(serve({"good": good}, SOON, stop))
        await running.wait()
        stop.set()


async def test_cancelling_a_service_cancels_its_loops() -> None:
    running, cancelled = asyncio.Event(), asyncio.Event()

    async def good(stop: asyncio.Event) -> None:
        running.set()
        try:
            await stop.wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with asyncio.TaskGroup() as group:
        task = group.create_task(serve({"good": good}, SOON))
        await running.wait()
        task.cancel()
    assert cancelled.is_set()
