"""compose.yaml keeps what docs/containers.md says of it."""

import re
from typing import Any

import pytest

from .reading import deployment, module_run_by, services

SERVICES = services(deployment())
ONE_SHOT = "migrate"
LASTING = sorted(SERVICES.keys() - {ONE_SHOT})
_TAGGED = re.compile(r"[\w./-]+:(?P<tag>[\w.-]+)")


def named(kind: str) -> list[str]:
    return [name for name in SERVICES if re.fullmatch(rf"{kind}-\d", name)]


def test_all_parts_of_the_system_are_there() -> None:
    assert len(named("engine")) == 3
    assert len(named("worker")) == 3
    rest = {"postgres", "rabbitmq", "valkey", "migrate", "payments", "shipping", "drivers", "load"}
    assert set(SERVICES) == rest | {*named("engine"), *named("worker")}


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_no_port_is_published_beyond_loopback(name: str) -> None:
    assert all(str(port).startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))
    assert SERVICES[name].get("network_mode") is None


def test_only_the_engines_are_published_each_on_a_port_of_its_own() -> None:
    published = {name: one["ports"] for name, one in SERVICES.items() if one.get("ports")}
    assert sorted(published) == named("engine")
    assert len({str(ports) for ports in published.values()}) == len(published)


@pytest.mark.parametrize("variables", [deployment(), {}], ids=["example", "defaults"])
def test_every_image_names_its_release(variables: dict[str, str]) -> None:
    # Without an env file the secrets are missing, so that only they are given.
    given = {name: text for name, text in deployment().items() if "IMAGE" not in name}
    for name, service in services(variables or given).items():
        match = _TAGGED.fullmatch(service["image"])
        assert match, name
        assert match["tag"] != "latest", name


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_nobody_runs_as_root(name: str) -> None:
    user = str(SERVICES[name]["user"]).partition(":")[0]
    assert user not in {"", "0", "root"}
    assert not SERVICES[name].get("privileged")


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_nobody_keeps_a_capability_or_may_write_to_its_root(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["read_only"] is True


@pytest.mark.parametrize("name", LASTING)
def test_every_service_has_a_health_check_and_a_restart_policy(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}
    assert {"interval", "timeout", "retries", "start_period"} <= set(service["healthcheck"])


def test_the_one_that_ends_by_itself_is_not_restarted_and_is_waited_for() -> None:
    assert SERVICES[ONE_SHOT]["restart"] == "no"
    waiting = [name for name, one in SERVICES.items() if ONE_SHOT in one.get("depends_on", {})]
    assert set(waiting) == {*named("engine"), "payments", "shipping", "drivers"}
    for name in waiting:
        condition = SERVICES[name]["depends_on"][ONE_SHOT]["condition"]
        assert condition == "service_completed_successfully", name


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_whoever_is_waited_for_until_it_is_well_can_be_asked(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        if how["condition"] == "service_healthy":
            assert not SERVICES[other]["healthcheck"].get("disable"), other


@pytest.mark.parametrize("name", named("engine"))
def test_an_engine_is_known_by_the_name_of_its_service(name: str) -> None:
    environment = SERVICES[name]["environment"]
    assert environment["ODIN_NODE_ID"] == name
    assert environment["ODIN_HTTP_ADVERTISE"] == f"http://{name}:{environment['ODIN_HTTP_PORT']}"


@pytest.mark.parametrize("name", named("worker"))
def test_a_worker_is_well_if_an_engine_lists_it(name: str) -> None:
    service = SERVICES[name]
    assert service["environment"]["ODIN_WORKER_ID"] == name
    assert f'"name":"{name}"' in service["healthcheck"]["test"]


def test_whoever_talks_to_engines_knows_all_of_them_and_the_token() -> None:
    every = {SERVICES[name]["environment"]["ODIN_HTTP_ADVERTISE"] for name in named("engine")}
    tokens = {SERVICES[name]["environment"]["ODIN_API_TOKEN"] for name in named("engine")}
    for name in [*named("worker"), "load", "drivers"]:
        environment: dict[str, Any] = SERVICES[name]["environment"]
        prefix = "ODIN_MOCK_ENGINE" if name == "drivers" else "ODIN_"
        engines = environment["ODIN_MOCK_ENGINES" if name == "drivers" else "ODIN_ENGINES"]
        token = environment[f"{prefix}_TOKEN" if name == "drivers" else "ODIN_API_TOKEN"]
        assert set(engines.split(",")) == every, name
        assert {token} == tokens, name


def test_nobody_holds_the_address_of_a_server_that_it_does_not_need() -> None:
    for name in ("payments", "shipping", "drivers", "load"):
        assert "amqp" not in str(SERVICES[name]["environment"]), name
    assert "postgresql" not in str(SERVICES["load"]["environment"])
    for name in named("worker"):
        assert "postgresql" not in str(SERVICES[name]["environment"]), name


def test_odin_s_services_run_what_the_wheel_holds() -> None:
    modules = {name: module_run_by(one) for name, one in SERVICES.items()}
    own = {name: module for name, module in modules.items() if module}
    assert set(own) == set(SERVICES) - {"postgres", "rabbitmq", "valkey"}
    assert all(m.startswith(("odin.services.", "odin.runtime.")) for m in own.values())
