"""Which links a cluster has, and what parts are told of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.options import Options
from cluster.parts import Part, Reach, listening, plan
from cluster.place import Place
from cluster.proxying import proxied, proxy_part
from engine.settings import EngineSettings
from odin.runtime.settings import load

ADDRESSES = {
    "postgres": "postgresql://odin:p%40ss@127.0.0.1:5433/odin?sslmode=disable",
    "broker": "amqp://odin:secret@127.0.0.1/",
    "valkey": "unix:///run/valkey.sock",
    "mock-token": "hush",
}


def parts_of(tmp_path: Path) -> tuple[dict[str, Part], dict[tuple[str, str], int]]:
    options = Options(engines=2, workers=1, load_rate=3, proxies=True)
    ports = {name: 4_000 + number for number, name in enumerate(listening(options))}

    def direct(part: str, dependency: str) -> str:
        return ADDRESSES.get(dependency) or f"http://127.0.0.1:{ports[dependency]}"

    def planned(reach: Reach) -> list[Part]:
        return plan(options, Place(tmp_path), ports, reach, {})

    through = proxied(planned, direct, None)
    by_link = {(one.part, one.dependency): one.port for one in through.wires}
    return {one.name: one for one in planned(through.reach)}, by_link


def test_every_link_has_a_listener_of_its_own_and_credentials_stay_where_they_were(
    tmp_path: Path,
) -> None:
    parts, ports = parts_of(tmp_path)
    assert len(set(ports.values())) == len(ports)
    assert {one for one in ports if one[0] == "engine-1"} == {
        ("engine-1", "postgres"),
        ("engine-1", "broker"),
        ("engine-1", "engine-2"),
    }
    port = ports["engine-1", "postgres"]
    assert parts["engine-1"].environ["ODIN_POSTGRES_DSN"] == (
        f"postgresql://odin:p%40ss@127.0.0.1:{port}/odin?sslmode=disable"
    )
    port = ports["worker-1", "broker"]
    assert parts["worker-1"].environ["ODIN_AMQP_URL"] == f"amqp://odin:secret@127.0.0.1:{port}/"
    # A socket in the file system has no link, and what is no address is left alone.
    assert parts["engine-1"].environ["ODIN_VALKEY_URL"] == "unix:///run/valkey.sock"
    assert parts["payments"].environ["ODIN_MOCK_ADMIN_TOKEN"] == ADDRESSES["mock-token"]


def test_engines_and_workers_translate_what_engines_tell_of_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, ports = parts_of(tmp_path)
    told = {name: parts[name].address for name in ("engine-1", "engine-2")}
    ways = {name: f"http://127.0.0.1:{ports['worker-1', name]}" for name in told}
    routes = ",".join(f"{told[name]}={ways[name]}" for name in told)
    assert parts["worker-1"].environ["ODIN_WORKER_ROUTES"] == routes
    assert parts["worker-1"].environ["ODIN_ENGINES"] == ",".join(ways.values())
    for name, value in parts["engine-1"].environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ODIN_AMQP_URL", "amqp://127.0.0.1:1/")
    way = f"http://127.0.0.1:{ports['engine-1', 'engine-2']}"
    assert load(EngineSettings).routes == {told["engine-2"]: way}


def test_the_proxy_is_told_where_everything_is_and_no_password(tmp_path: Path) -> None:
    options = Options(engines=1, workers=0, mocks=False)

    def planned(reach: Reach) -> list[Part]:
        return plan(options, Place(tmp_path), {"engine-1": 1}, reach, {})

    through = proxied(planned, lambda _, what: ADDRESSES.get(what, "http://127.0.0.1:1"), None)
    targets = {one.dependency: (one.host, one.target_port) for one in through.wires}
    assert targets == {"postgres": ("127.0.0.1", 5433), "broker": ("127.0.0.1", 5672)}
    part = proxy_part(through.wires, 4_321, "token", {})
    assert part.port == 4_321
    assert "p%40ss" not in part.environ["ODIN_PROXY_LINKS"]
    assert "token" not in repr(part)
