"""The command line as a process of its own, against the API in front of an engine in memory."""

import asyncio
import json
import os
import resource
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.api import create_app
from odin.core.events import ActivityTaskCompleted, AttemptRecord, WorkflowExecutionFailed
from odin.core.payload import Failure, encode
from odin.core.requests import SignalWorkflow, StartWorkflow, TerminateWorkflow
from odin.errors import ResourceExhaustedError
from tests.service.api_backend import STARTED_US, MemoryBackend, Run
from tests.service.api_server import serving

ROOT = Path(__file__).parents[2]
HELP_SECONDS_MAX = 0.3


@dataclass
class Ended:
    code: int
    out: str
    err: str

    @property
    def data(self) -> object:
        return json.loads(self.out)


class Cli:
    """Runs `odin` against one address."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def __call__(self, *arguments: str, stdin: bytes = b"", **environ: str) -> Ended:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ODIN_", "FORCE_"))}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "odin.cli",
            *arguments,
            cwd="/",
            env={**kept, "PYTHONPATH": str(ROOT), "ODIN_ADDRESS": self._address, **environ},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(stdin), 30)
        assert process.returncode is not None
        return Ended(process.returncode, out.decode(), err.decode())


@pytest.fixture
async def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
async def odin(backend: MemoryBackend) -> AsyncIterator[Cli]:
    async with serving(create_app(backend)) as url:
        yield Cli(url)


def charge(run: Run, *, attempt: int = 1) -> None:
    """Let the run's activity complete."""
    at = STARTED_US + 600_000
    record = AttemptRecord(
        attempt=attempt,
        claim_token="c",  # noqa: S106 - names a claim, opens nothing
        worker="w",
        started_us=at,
        ended_us=at + 40_000,
        how="completed",
    )
    done = ActivityTaskCompleted(command_id=1, result=encode({"paid": 12.5}), attempts=(record,))
    run.append(done)


async def started(backend: MemoryBackend, workflow_id: str) -> Run:
    """Return the run once it is there."""
    async with asyncio.timeout(20):
        while workflow_id not in backend.runs:
            await asyncio.sleep(0.01)
    return backend.runs[workflow_id]


async def test_help_is_there_at_once_and_names_every_command(odin: Cli) -> None:
    await odin("--help")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = await odin("--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ended.code == 0
    for name in ("run", "list", "show", "history", "terminate", "up", "bench", "version"):
        assert f"\n  {name} " in ended.out
    # All of its time is its own processor's: a machine that is busy otherwise proves nothing.
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < HELP_SECONDS_MAX


async def test_help_imports_nothing_that_only_other_commands_need() -> None:
    program = (
        "import sys; from odin.cli.program import program; program(['--help'])\n"
        "print(*sorted({'aiohttp', 'rich', 'odin.client', 'asyncio'} & set(sys.modules)))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    assert out.decode().strip() == ""


async def test_a_typing_error_is_met_with_a_suggestion(odin: Cli) -> None:
    ended = await odin("histroy", "o-1")
    assert (ended.code, ended.out) == (2, "")
    assert "history" in ended.err


async def test_run_prints_where_to_find_the_run(odin: Cli, backend: MemoryBackend) -> None:
    ended = await odin("run", "order", "--input", '{"sku":"tea"}', "--input", "2", "--id", "o-1")
    request = backend.asked[0]
    assert isinstance(request, StartWorkflow)
    assert [one.data for one in request.input] == [b'{"sku":"tea"}', b"2"]
    assert (ended.code, ended.out) == (0, f"o-1\t{backend.runs['o-1'].run_id}\n")


async def test_run_takes_its_input_from_stdin_and_makes_an_id(
    odin: Cli, backend: MemoryBackend
) -> None:
    ended = await odin("run", "order", "--input-file", "-", "--json", stdin=b"[1]")
    (workflow_id,) = backend.runs
    assert workflow_id.startswith("order-")
    assert ended.data == {"workflow_id": workflow_id, "run_id": backend.runs[workflow_id].run_id}


async def test_run_wait_tells_the_steps_on_stderr_and_the_result_on_stdout(
    odin: Cli, backend: MemoryBackend
) -> None:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(odin("run", "order", "--id", "o-1", "--wait"))
        run = await started(backend, "o-1")
        charge(run, attempt=2)
        run.close("completed", encode([1.5]))
    ended = running.result()
    assert (ended.code, ended.out) == (0, "[1.5]\n")
    assert '✔ charge (attempt 2) 40ms {"paid":12.5}' in ended.err


async def test_a_run_that_fails_is_told_and_ends_with_1(odin: Cli, backend: MemoryBackend) -> None:
    failure = Failure("the card is empty", type="CardError")
    for more in ([], ["--json"]):
        async with asyncio.TaskGroup() as group:
            workflow_id = f"o-{len(more)}"
            running = group.create_task(odin("run", "order", "--id", workflow_id, "--wait", *more))
            run = await started(backend, workflow_id)
            run.append(WorkflowExecutionFailed(failure=failure))
            run.close("failed", failure=failure)
        ended = running.result()
        assert ended.code == 1
        assert "CardError: the card is empty" in (ended.out if more else ended.err)
        assert bool(ended.out) == bool(more)


async def test_a_refused_start_ends_with_4_and_says_what_to_do(
    odin: Cli, backend: MemoryBackend
) -> None:
    await odin("run", "order", "--id", "o-1")
    ended = await odin("run", "order", "--id", "o-1")
    assert (ended.code, ended.out) == (4, "")
    assert "why: o-1 runs already (ALREADY_STARTED)" in ended.err
    assert backend.runs["o-1"].run_id in ended.err
    assert "next:" in ended.err


async def test_errors_are_json_where_json_is_asked_for(odin: Cli) -> None:
    ended = await odin("show", "nothing", "--json")
    told = json.loads(ended.err)
    assert (ended.code, ended.out) == (4, "")
    assert (told["code"], told["reason"]) == ("NOT_FOUND", "NOT_FOUND")


async def test_no_engine_ends_with_3(backend: MemoryBackend) -> None:
    async with serving(create_app(backend)) as url:
        pass
    ended = await Cli(url)("list")
    assert (ended.code, ended.out) == (3, "")
    assert "odin up" in ended.err


async def test_refusals_for_load_end_with_4(odin: Cli, backend: MemoryBackend) -> None:
    backend.before = lambda _: ResourceExhaustedError("full", retry_after=30)
    ended = await odin("run", "order")
    assert ended.code == 4
    assert "takes no more now" in ended.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "order", "--input", "{tea}"],
        ["run", "order", "--timeout", "soon"],
        ["run", "order", "--id", "o 1"],
        ["list", "--since", "1y"],
        ["list", "--limit", "0"],
        ["show"],
        ["list", "--status", "sleeping"],
    ],
)
async def test_wrong_usage_ends_with_2(
    odin: Cli, backend: MemoryBackend, arguments: list[str]
) -> None:
    ended = await odin(*arguments)
    assert (ended.code, ended.out, backend.asked) == (2, "", [])
    assert ended.err


async def test_a_token_is_asked_for_by_name(backend: MemoryBackend) -> None:
    key = "k3y"
    async with serving(create_app(backend, token=key)) as url:
        refused = await Cli(url)("list")
        allowed = await Cli(url)("list", ODIN_API_KEY=key)
    assert (refused.code, allowed.code) == (4, 0)
    assert "ODIN_API_KEY" in refused.err


async def test_list_is_lines_for_programs(odin: Cli, backend: MemoryBackend) -> None:
    for one in range(3):
        await odin("run", "order", "--id", f"o-{one}")
    table = await odin("list", "--failed", "--since", "1h", "--limit", "2")
    as_json = await odin("list", "--json")
    head, *rows = [line.split("\t") for line in table.out.splitlines()]
    assert head[:3] == ["WORKFLOW ID", "TYPE", "STATUS"]
    assert [row[0] for row in rows] == ["o-2", "o-1"]
    assert isinstance(as_json.data, list)
    assert [one["workflow_id"] for one in as_json.data] == ["o-2", "o-1", "o-0"]
    assert backend.filters[0].statuses == ("failed", "terminated", "timed_out")
    assert backend.filters[0].started_after_us


async def test_colours_are_for_people_only(odin: Cli) -> None:
    await odin("run", "order", "--id", "o-1")
    assert "\x1b[" not in (await odin("list")).out
    assert "\x1b[" in (await odin("list", FORCE_COLOR="1")).out
    plain = await odin("list", FORCE_COLOR="1", NO_COLOR="1")
    assert "\x1b[36m" not in plain.out


async def test_show_tells_how_a_run_stands(odin: Cli) -> None:
    await odin("run", "order", "--id", "o-1", "--input", '"tea"')
    ended = await odin("show", "o-1")
    assert "status        running" in ended.out
    assert "engine-1, shard 3, range 9" in ended.out
    data = (await odin("show", "o-1", "--json")).data
    assert isinstance(data, dict)
    assert data["started_at"] == "2026-05-28T20:26:40Z"


async def test_history_joins_what_was_asked_and_how_it_ended(
    odin: Cli, backend: MemoryBackend
) -> None:
    await odin("run", "order", "--id", "o-1")
    charge(backend.runs["o-1"])
    ended = await odin("history", "o-1")
    last = ended.out.splitlines()[-1].split("\t")
    assert last == [
        "3",
        "+500ms",
        "activity_task_completed",
        "charge",
        "1",
        "100ms",
        "40ms",
        '{"paid":12.5}',
    ]
    events = (await odin("history", "o-1", "--json")).out.splitlines()
    assert [json.loads(one)["event_id"] for one in events] == [1, 2, 3]
    full = await odin("history", "o-1", "--full")
    assert '"start_to_close":60.0' in full.out


async def test_history_follow_goes_on_until_the_run_has_ended(
    odin: Cli, backend: MemoryBackend
) -> None:
    await odin("run", "order", "--id", "o-1")
    async with asyncio.TaskGroup() as group:
        following = group.create_task(odin("history", "o-1", "--follow"))
        backend.runs["o-1"].close("completed", encode("done"))
    ended = following.result()
    assert ended.code == 0
    assert ended.out.splitlines()[-1].endswith("\tdone")


async def test_a_foreign_text_cannot_steer_the_terminal(odin: Cli, backend: MemoryBackend) -> None:
    await odin("run", "order", "--id", "o-1")
    failure = Failure("\x1b[2J\x9b1mgone")
    backend.runs["o-1"].append(WorkflowExecutionFailed(failure=failure))
    ended = await odin("history", "o-1")
    assert "gone" in ended.out
    assert "\x1b" not in ended.out
    assert "\x9b" not in ended.out


async def test_signal_sends_its_arguments(odin: Cli, backend: MemoryBackend) -> None:
    await odin("run", "order", "--id", "o-1")
    ended = await odin("signal", "o-1", "approve", "--input", '"ann"', "--request-id", "mine")
    request = backend.asked[-1]
    assert isinstance(request, SignalWorkflow)
    assert (request.name, request.input[0].data, request.request_id) == (
        "approve",
        b'"ann"',
        "mine",
    )
    assert (ended.code, ended.out) == (0, "")


async def test_terminate_needs_a_yes(odin: Cli, backend: MemoryBackend) -> None:
    await odin("run", "order", "--id", "o-1")
    asked = await odin("terminate", "o-1")
    assert (asked.code, len(backend.asked)) == (2, 1)
    ended = await odin("terminate", "o-1", "--yes", "--reason", "enough", "--json")
    request = backend.asked[-1]
    assert isinstance(request, TerminateWorkflow)
    assert (ended.code, request.reason) == (0, "enough")
    assert ended.data == {"workflow_id": "o-1", "done": "terminated"}


@pytest.mark.parametrize("name", ["cluster", "shards", "workers"])
async def test_the_cluster_is_shown_as_lines_and_as_json(odin: Cli, name: str) -> None:
    lines = await odin(name)
    as_json = await odin(name, "--json")
    assert (lines.code, as_json.code) == (0, 0)
    assert len(lines.out.splitlines()) >= 2
    assert as_json.data


async def test_version_needs_no_cluster() -> None:
    ended = await Cli("127.0.0.1:1")("version", "--json")
    assert isinstance(ended.data, dict)
    assert set(ended.data) == {"odin", "python"}
