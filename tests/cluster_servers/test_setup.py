"""Which server is used, how a missing one is installed, and what is said where neither works."""

import asyncio
import os
import signal
import stat
import sys
from pathlib import Path

import pytest

from cluster.servers import ExternalServer, ServerError, ServerSet, leftovers, rabbitmq
from cluster.servers import __main__ as command
from cluster.servers.common import Process, secret_file


def test_a_server_that_the_environment_names_is_used_as_it_is(tmp_path: Path) -> None:
    named = {
        "ODIN_POSTGRES_DSN": "postgresql://somewhere/odin",
        "ODIN_AMQP_URL": "amqp://somewhere/",
        "ODIN_VALKEY_URL": "valkey://somewhere/",
    }
    servers = ServerSet(tmp_path, named)
    assert [server.url for server in servers.all] == list(named.values())
    assert all(isinstance(server, ExternalServer) for server in servers.all)


async def test_a_server_of_others_is_never_ended() -> None:
    server = ExternalServer("rabbitmq", "amqp://somewhere/")
    async with server:
        assert server.pid is None
        for refused in (server.kill, server.restart):
            with pytest.raises(ServerError, match="not ours"):
                await refused()


@pytest.fixture
def no_rabbitmq(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setattr(rabbitmq, "PROGRAMS", programs)
    monkeypatch.setattr(rabbitmq, "POLICY", tmp_path / "policy-rc.d")
    return programs


async def test_without_rabbitmq_an_ordinary_user_is_told_the_one_command(
    no_rabbitmq: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ServerError) as caught:
        await rabbitmq.ensure_installed({})
    assert caught.value.advice == (
        "Run: sudo apt-get install rabbitmq-server, or set ODIN_AMQP_URL."
    )


async def test_without_rabbitmq_root_installs_it_and_no_service_may_start_meanwhile(
    no_rabbitmq: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "path"
    folder.mkdir()
    installer = folder / "apt-get"
    installer.write_text(
        "#!/bin/sh\n"
        f'echo "$DEBIAN_FRONTEND $@" >> {tmp_path}/calls\n'
        f"{tmp_path}/policy-rc.d || echo policy $? >> {tmp_path}/calls\n"
        f'[ "$1" = install ] && touch {no_rabbitmq}/rabbitmq-server\n'
        "exit 0\n"
    )
    installer.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    await rabbitmq.ensure_installed(os.environ)

    assert (tmp_path / "calls").read_text().splitlines() == [
        "noninteractive update --quiet",
        "policy 101",
        "noninteractive install --yes --quiet --no-install-recommends rabbitmq-server",
        "policy 101",
    ]
    assert not (tmp_path / "policy-rc.d").exists()


def test_a_missing_program_is_told_in_one_line_and_no_traceback(
    no_rabbitmq: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv("ODIN_TEST_RABBITMQ", raising=False)
    assert command.main(["--prepare"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "RabbitMQ is not installed",
        "Run: sudo apt-get install rabbitmq-server, or set ODIN_AMQP_URL.",
    ]


def test_with_a_named_broker_nothing_is_installed(
    no_rabbitmq: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("ODIN_AMQP_URL", "amqp://somewhere/")
    assert command.main(["--prepare"]) == 0


def test_where_systemd_runs_the_machines_broker_is_kept_off_at_the_next_boot_too() -> None:
    assert list(rabbitmq.install_commands(systemd=True)[-1]) == [
        "systemctl",
        "disable",
        "--quiet",
        "rabbitmq-server.service",
    ]


def test_a_policy_that_the_machine_has_stays_as_it_is(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text("the machine's own")
    with rabbitmq.nothing_starts(policy):
        pass
    assert policy.read_text() == "the machine's own"


def test_a_secret_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    first = secret_file(tmp_path / "password")
    assert secret_file(tmp_path / "password") == first
    assert len(first) == 48
    assert stat.S_IMODE((tmp_path / "password").stat().st_mode) == 0o600


async def test_an_orphan_of_an_earlier_owner_is_ended_and_a_stranger_is_not(tmp_path: Path) -> None:
    program = [sys.executable, "-c", "import time; print('runs', flush=True); time.sleep(60)"]
    orphan = await _spawn([*program, str(tmp_path)], tmp_path)
    stranger = await _spawn(program, tmp_path)
    try:
        # A process that is becoming another program shows neither arguments nor environment.
        await orphan.until_ready(lambda: _says("runs", 2, tmp_path), 20, "two programs")
        leftovers.remember(tmp_path, stranger.pid)
        await leftovers.end_orphan(tmp_path, signal.SIGTERM)
        assert stranger.running

        leftovers.remember(tmp_path, orphan.pid)
        await leftovers.end_orphan(tmp_path, signal.SIGTERM)
        await asyncio.wait_for(orphan.end(signal.SIGCONT, 5), 5)
        assert not orphan.running
    finally:
        await stranger.end(signal.SIGKILL, 5)


async def _says(word: str, times: int, folder: Path) -> bool:
    return (folder / "log").read_text().count(word) == times


async def _spawn(command: list[str], folder: Path) -> Process:
    return await Process.spawn(
        command,
        log=folder / "log",
        environ={"PATH": os.environ["PATH"]},
        death_signal=signal.SIGTERM,
    )


async def test_a_program_that_ends_while_it_starts_is_reported_with_its_last_words(
    tmp_path: Path,
) -> None:
    async def never() -> bool:
        return False

    process = await _spawn(["sh", "-c", "echo no such thing; exit 3"], tmp_path)
    with pytest.raises(ServerError, match="ended while it started\nno such thing"):
        await process.until_ready(never, 10, "the server")
