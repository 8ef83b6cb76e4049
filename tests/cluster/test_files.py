"""What the local cluster writes down, chooses and shows."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import subprocess
from io import StringIO
from pathlib import Path

import pytest

from cluster import logview
from cluster.figures import Figures, Total, Watcher
from cluster.footer import PlainScreen, remarks, summary
from cluster.identity import fingerprint
from cluster.logfile import last_words, rotate, said
from cluster.options import Options
from cluster.parts import MOCKS, listening, plan
from cluster.place import ClusterRunsError, Place
from cluster.ports import LOWEST, Reservations, choose_ports
from cluster.state import (
    ClusterState,
    PartState,
    Secrets,
    read_secrets,
    read_state,
    write_secrets,
    write_state,
)
from cluster.status import phase_of, row_of
from odin.errors import InvalidArgumentError, NotFoundError
from odin.runtime.clock import SystemClock
from odin.runtime.telemetry import Snapshot, Telemetry
from tests.service.demo_fixture import execute

from .support import command, environ


def place_at(folder: Path) -> Place:
    place = Place(folder)
    place.prepare()
    return place


def test_ports_lie_below_those_of_outgoing_connections_and_differ() -> None:
    begin = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = choose_ports([str(n) for n in range(20)])
    assert len(set(ports.values())) == 20
    assert all(LOWEST <= port < begin for port in ports.values())


def test_two_names_that_prefer_the_same_port_get_two() -> None:
    (port,) = choose_ports(["a"]).values()
    ports = choose_ports(["a", "b"], {"a": [port], "b": [port]})
    assert ports["a"] == port
    assert ports["b"] != port


def test_a_preferred_port_is_taken_only_if_it_is_free() -> None:
    (port,) = choose_ports(["a"]).values()
    assert choose_ports(["a"], {"a": [port]}) == {"a": port}
    with socket.create_server(("127.0.0.1", port)):
        assert choose_ports(["a"], {"a": [port]}) != {"a": port}


def test_two_clusters_never_choose_the_same_port() -> None:
    first, second = Reservations(), Reservations()
    try:
        (port,) = choose_ports(["a"], reservations=first).values()
        assert choose_ports(["a"], {"a": [port]}, second)["a"] != port
        first.close()
        third = Reservations()
        assert choose_ports(["a"], {"a": [port]}, third)["a"] == port
        third.close()
    finally:
        second.close()


def test_secrets_are_for_the_owner_alone_and_not_in_the_state(tmp_path: Path) -> None:
    place = place_at(tmp_path / "odin")
    write_secrets(place, Secrets(postgres_dsn="postgresql://odin:hush@127.0.0.1/odin"))
    assert stat.S_IMODE(place.secrets.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.folder.stat().st_mode) == 0o700
    assert read_secrets(place).postgres_dsn.startswith("postgresql://odin:hush")


def test_a_state_that_was_written_is_read_again(tmp_path: Path) -> None:
    place = place_at(tmp_path)
    assert read_state(place) is None
    state = ClusterState(
        pid=os.getpid(),
        fingerprint=fingerprint(os.getpid()),
        phase="running",
        started_at="2026-01-01T00:00:00+00:00",
        parts=[PartState(name="engine-1", kind="engine")],
    )
    write_state(place, state)
    assert read_state(place) == state
    assert state.is_supervised
    assert phase_of(state) == "running"
    state.fingerprint = "another"
    assert phase_of(state) == "lost"
    place.state.write_text("{")
    assert read_state(place) is None


def test_one_folder_has_one_cluster(tmp_path: Path) -> None:
    place = place_at(tmp_path)
    with place.owned():
        told = f"supervisor pid {os.getpid()}"
        with pytest.raises(ClusterRunsError, match=told), place.owned():
            raise AssertionError("it was owned twice")
        second = subprocess.run(
            command("up", folder=tmp_path), check=False, env=environ(), capture_output=True
        )
    assert second.returncode == 4
    assert b"odin down" in second.stderr
    with place.owned():
        pass


def test_numbers_that_cannot_run_are_refused() -> None:
    for wrong in ({"engines": 0}, {"workers": -1}, {"load_rate": -1.0}, {"engines": 51}):
        with pytest.raises(InvalidArgumentError):
            Options(**wrong)


def test_each_part_is_given_the_addresses_of_what_it_depends_on_one_by_one(tmp_path: Path) -> None:
    options = Options(engines=2, workers=1, load_rate=3)
    ports = dict.fromkeys(listening(options), 4321)
    asked: set[tuple[str, str]] = set()

    def reach(part: str, dependency: str) -> str:
        asked.add((part, dependency))
        return f"{part}->{dependency}"

    parts = {one.name: one for one in plan(options, Place(tmp_path), ports, reach, {})}
    assert list(parts) == ["engine-1", "engine-2", *MOCKS, "worker-1", "load"]
    assert parts["engine-2"].environ["ODIN_POSTGRES_DSN"] == "engine-2->postgres"
    assert parts["worker-1"].environ["ODIN_ENGINES"] == "worker-1->engine-1,worker-1->engine-2"
    assert parts["worker-1"].environ["ODIN_DRIVERS_URL"] == "worker-1->drivers"
    assert ("worker-1", "postgres") not in asked
    assert all("->" not in repr(one) for one in parts.values()), "no secret in a representation"


def test_without_a_broker_engines_and_workers_use_the_embedded_one(tmp_path: Path) -> None:
    options = Options(engines=1, workers=1, mocks=False)
    parts = plan(
        options,
        Place(tmp_path),
        {"engine-1": 1},
        lambda _, what: "" if what == "broker" else "x",
        {},
    )
    assert [one.name for one in parts] == ["engine-1", "worker-1"]
    assert [one.environ["ODIN_BROKER"] for one in parts] == ["embedded", "embedded"]


def test_a_log_that_grows_too_long_is_put_aside_while_its_part_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "engine-1.log"
    with path.open("ab", buffering=0) as file:
        file.write(b"old\n" * 100)
        assert not rotate(path, cap_bytes=1_000)
        assert rotate(path, cap_bytes=100)
        file.write(b"new\n")
    assert path.read_bytes() == b"new\n"
    assert path.with_suffix(".log.1").read_bytes() == b"old\n" * 100


def test_last_words_are_short_readable_and_hold_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    assert last_words(path) == ""
    path.write_text('{"event": "refused", "at": "t", "level": "error", "detail": "a://u:p@h/"}\n\n')
    assert last_words(path) == "refused detail=a://u:***@h/"
    assert said("Traceback (most recent call last):") == "Traceback (most recent call last):"
    path.write_text("x" * 1_000)
    assert len(last_words(path)) == 300


def test_a_counter_of_restarted_processes_is_summed() -> None:
    total = Total()
    for count in (3, 5, 1, 2):
        total.see(count)
    assert total.value == 7


def test_the_footer_says_what_is_known_and_what_is_not() -> None:
    figures = Figures(
        shards={"engine-1": 22, "engine-2": None},
        in_flight=7,
        finished=12,
        refused=0,
        charged_twice=1,
        stale=["engine-2"],
    )
    engines = [
        PartState(name="engine-1", kind="engine", phase="running"),
        PartState(name="engine-2", kind="engine", phase="waiting", exit_code=-9),
    ]
    assert summary(figures, engines) == (
        "engines 1/2 | shards 22/? | in flight 7 | finished 12/min | refused 0 | charged twice: 1"
    )
    assert remarks(figures, engines) == [
        "(no fresh telemetry of engine-2)",
        "(engine-2 ended by signal 9)",
    ]
    lost = Figures(postgres_answers=False, telemetry_answers=False)
    assert [one.split()[0] for one in remarks(lost, [])] == ["(Postgres", "(Valkey"]


def test_a_reader_that_has_gone_away_stops_no_cluster() -> None:
    class Gone(StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    PlainScreen(SystemClock(), Gone()).line("nobody reads this")


def test_a_process_that_has_gone_unnoticed_is_shown_as_gone() -> None:
    part = PartState(
        name="engine-1", kind="engine", phase="running", pid=os.getpid(), fingerprint="another"
    )
    row = row_of(part, None, SystemClock())
    assert (row["state"], row["pid"], row["is_stale"]) == ("gone", None, True)
    part.fingerprint = fingerprint(os.getpid())
    fresh = Snapshot("engine", "engine-1", 0.5, 0, {}, {"odin_shard_owned": 22.0})
    row = row_of(part, fresh, SystemClock())
    assert (row["state"], row["is_stale"], row["numbers"]) == ("running", False, {"shards": 22.0})


def test_logs_are_shown_in_order_of_time_and_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = place_at(tmp_path)
    place.log_of("a").write_text('{"at": "2026-01-01T00:00:02.000Z", "event": "second"}\n')
    place.log_of("b").write_text('{"at": "2026-01-01T00:00:01.000Z", "event": "first"}\nmore\n')
    assert logview.show(place, logview.Wanted()) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in shown] == ["first", "more", "second"]
    logview.show(place, logview.Wanted(part="b", as_json=True))
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (first["part"], first["event"], second) == ("b", "first", {"part": "b", "line": "more"})
    with pytest.raises(NotFoundError, match="there are a, b"):
        logview.show(place, logview.Wanted(part="c"))


def test_following_a_log_survives_that_it_is_emptied(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("before\n")
    follower = logview.Follower(path)
    with path.open("ab", buffering=0) as file:
        file.write(b"one\nhal")
        assert follower.more() == ["one"]
        file.write(b"f\n")
        assert follower.more() == ["half"]
        os.truncate(path, 0)
        assert follower.more() == []
        file.write(b"two\n")
        assert follower.more() == ["two"]


async def test_an_order_charged_again_is_counted_once(dsn: str, valkey_url: str) -> None:
    charge = (
        "INSERT INTO mock_ledger (service, effect, order_id, idempotency_key, body_hash) "
        "VALUES ('payments', 'charge', '{}', '{}', '')"
    )
    watcher = Watcher(dsn, valkey_url, ["engine-1"], [], SystemClock())
    try:
        await execute(dsn, charge.format("a", "1"), charge.format("b", "1"))
        assert (await watcher.look()).charged_twice == 0
        await execute(dsn, charge.format("a", "2"))
        assert (await watcher.look()).charged_twice == 1
        assert (await watcher.look()).charged_twice == 1
    finally:
        await watcher.close()


async def test_telemetry_that_is_missing_is_unknown_not_zero(dsn: str, valkey_url: str) -> None:
    telemetry = Telemetry(valkey_url, "engine", "engine-of-this-test")
    telemetry.gauge("odin_shard_owned", 5)
    await telemetry.flush()
    await telemetry.close()
    engines = ["engine-of-this-test", "engine-of-nobody"]
    watcher = Watcher(dsn, valkey_url, engines, [], SystemClock())
    try:
        figures = await watcher.look()
    finally:
        await watcher.close()
    assert list(figures.shards.values()) == [5, None]
    assert (figures.in_flight, figures.finished) == (0, 0)


async def test_servers_that_do_not_answer_make_numbers_unknown_and_nothing_fail() -> None:
    (port,) = choose_ports(["nobody"]).values()
    dsn, url = f"postgresql://x:y@127.0.0.1:{port}/z", f"valkey://127.0.0.1:{port}/0"
    watcher = Watcher(dsn, url, ["engine-1"], [], SystemClock())
    async with asyncio.timeout(10):
        figures = await watcher.look()
    assert not figures.postgres_answers
    assert not figures.telemetry_answers
    assert figures.in_flight is None
