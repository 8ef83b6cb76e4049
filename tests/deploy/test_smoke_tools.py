"""What the smoke test leans on, without containers."""

import asyncio
import resource
import tomllib
from pathlib import Path

import pytest

from deploy.smoke.podman import missing_programs, settings_files
from deploy.smoke.running import Runner, SmokeError
from deploy.smoke.setting import make_setting
from odin.runtime.settings import is_loopback

from .reading import EXAMPLE


def runner(folder: Path, *hidden: str) -> Runner:
    environ = {"PATH": "/usr/bin:/bin"}
    return Runner(folder / "log.txt", environ, folder, list(hidden), grace_seconds=1.0)


async def test_no_secret_gets_into_the_log(tmp_path: Path) -> None:
    run = runner(tmp_path, "hunter2hunter2")
    assert await run.run("echo", "the password is hunter2hunter2", seconds=10)
    with pytest.raises(SmokeError) as failed:
        await run.run("false", "hunter2hunter2", seconds=10)
    assert "hunter2" not in str(failed.value)
    logged = (tmp_path / "log.txt").read_text(encoding="utf-8")
    assert "the password is ***" in logged
    assert "hunter2" not in logged


async def test_a_command_that_takes_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    script = "sleep 60 & echo $! >child; wait"
    with pytest.raises(SmokeError, match="took more than 1 s"):
        await runner(tmp_path).run("sh", "-c", script, seconds=1.0)
    child = Path("/proc") / (tmp_path / "child").read_text(encoding="utf-8").strip()
    async with asyncio.timeout(5):
        while child.exists() and "(zombie)" not in (child / "status").read_text(encoding="utf-8"):
            await asyncio.sleep(0.02)


async def test_what_a_cancelled_command_has_started_may_come_to_its_end(tmp_path: Path) -> None:
    # The child outlives its parent for a moment, as `podman start` does below podman-compose.
    script = "(trap '' TERM; sleep 0.4; echo done >end) & : >begun; wait"
    async with asyncio.TaskGroup() as group:
        running = group.create_task(runner(tmp_path).run("sh", "-c", script, seconds=10))
        async with asyncio.timeout(5):
            while not (tmp_path / "begun").exists():
                await asyncio.sleep(0.02)
        running.cancel()
    assert (tmp_path / "end").read_text(encoding="utf-8") == "done\n"


def test_containers_ask_for_no_higher_limits_than_this_process_may_set(tmp_path: Path) -> None:
    pointing = settings_files(tmp_path)
    with Path(pointing["CONTAINERS_CONF"]).open("rb") as file:
        limits = tomllib.load(file)["containers"]["default_ulimits"]
    asked = dict(one.split("=") for one in limits)
    for name, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        _, highest = resource.getrlimit(number)
        assert highest < 0 or int(asked[name].partition(":")[0]) <= highest


def test_the_deployment_that_is_tried_is_private_and_on_loopback(tmp_path: Path) -> None:
    setting = make_setting(EXAMPLE, tmp_path / "env")
    assert setting.file.stat().st_mode & 0o077 == 0
    assert len(set(setting.addresses.values())) == 3
    assert all(
        is_loopback(address.split("/")[2].split(":")[0]) for address in setting.addresses.values()
    )
    assert setting.token not in repr(setting)


def test_a_helper_that_podman_lacks_is_named_before_containers_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("deploy.smoke.podman._HELPERS", (str(tmp_path / "helpers"),))
    helpers = ["catatonit", "netavark", "aardvark-dns"]
    assert missing_programs() == ["podman", "runc", "debootstrap", *helpers]
    (tmp_path / "helpers").mkdir()
    for name in helpers:
        (tmp_path / "helpers" / name).touch(mode=0o755)
    assert missing_programs() == ["podman", "runc", "debootstrap"]
