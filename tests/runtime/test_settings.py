from __future__ import annotations

from datetime import timedelta

import pytest

from odin.errors import ConfigurationError
from odin.runtime.settings import (
    Broker,
    BrokerSettings,
    Duration,
    HttpSettings,
    LeaseSettings,
    PostgresSettings,
    Settings,
    ValkeySettings,
    is_loopback,
    load,
)


class EngineSettings(PostgresSettings, BrokerSettings, ValkeySettings, HttpSettings):
    lease: LeaseSettings = LeaseSettings()
    drain_timeout: Duration = timedelta(seconds=2)


class LeaseOnly(Settings):
    lease: LeaseSettings = LeaseSettings()


def environment(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    for name, value in values.items():
        monkeypatch.setenv(f"ODIN_{name}", value)


def refusal(settings: type[Settings]) -> str:
    with pytest.raises(ConfigurationError) as refused:
        load(settings)
    return str(refused.value)


def test_blocks_compose_into_the_settings_of_a_service(monkeypatch: pytest.MonkeyPatch) -> None:
    environment(
        monkeypatch,
        POSTGRES_DSN="postgresql://u:hunter2@h/d",
        AMQP_URL="amqp://u:hunter2@h/",
        LEASE__DURATION="PT12S",
        DRAIN_TIMEOUT="3.5",
    )
    settings = load(EngineSettings)
    assert settings.dsn == "postgresql://u:hunter2@h/d"
    assert settings.broker is Broker.RABBITMQ
    assert settings.valkey is None
    assert settings.lease.times.duration == 12.0
    assert settings.drain_timeout == timedelta(seconds=3.5)
    assert "hunter2" not in repr(settings) + str(settings) + settings.model_dump_json()


def test_what_is_given_in_code_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, POSTGRES_DSN="postgresql://h/a")
    assert load(PostgresSettings, postgres_dsn="postgresql://h/b").dsn == "postgresql://h/b"


def test_settings_cannot_be_changed_later() -> None:
    settings = load(HttpSettings)
    with pytest.raises(ValueError, match="frozen"):
        settings.http_port = 1  # type: ignore[misc]  # that it cannot be is the point


def test_what_is_missing_is_named_by_its_variable() -> None:
    assert "ODIN_POSTGRES_DSN is not set" in refusal(PostgresSettings)


def test_a_wrong_value_is_named_but_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, POSTGRES_DSN="mysql://u:hunter2@h/d", HTTP_PORT="hunter2")
    text = refusal(PostgresSettings) + refusal(HttpSettings)
    assert "ODIN_POSTGRES_DSN begins with 'mysql://'" in text
    assert "ODIN_HTTP_PORT: " in text
    assert "hunter2" not in text


def test_rabbitmq_needs_its_url_and_the_embedded_broker_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "ODIN_AMQP_URL" in refusal(BrokerSettings)
    environment(monkeypatch, BROKER="embedded")
    assert load(BrokerSettings).broker is Broker.EMBEDDED
    environment(monkeypatch, BROKER="kafka")
    assert "ODIN_BROKER" in refusal(BrokerSettings)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "example.org", ""])  # noqa: S104 - these are what is refused
def test_nothing_listens_beyond_this_machine_without_a_token(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match="ODIN_API_TOKEN"):
        load(HttpSettings, http_host=host, http_advertise="http://10.0.0.7:7100")
    settings = load(
        HttpSettings,
        http_host=host,
        http_advertise="http://10.0.0.7:7100/",
        api_token="sixteen-or-more-characters",  # noqa: S106 - a test's own
    )
    assert settings.advertised(1) == "http://10.0.0.7:7100"


def test_a_token_that_can_be_guessed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, API_TOKEN="short")  # noqa: S106 - what is refused
    assert "too short" in refusal(HttpSettings)


def test_a_wildcard_needs_an_address_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, HTTP_HOST="0.0.0.0", API_TOKEN="sixteen-or-more-characters")  # noqa: S104, S106 - what is refused
    assert "ODIN_HTTP_ADVERTISE" in refusal(HttpSettings)


def test_the_advertised_address_follows_the_port_that_was_bound() -> None:
    assert load(HttpSettings).advertised(7_100) == "http://127.0.0.1:7100"
    assert load(HttpSettings, http_host="::1").advertised(7_100) == "http://[::1]:7100"


def test_a_lease_out_of_order_is_refused_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, LEASE__RENEW_EVERY="5")
    text = refusal(LeaseOnly)
    assert "renew_every" in text
    assert "ODIN_LEASE" in text


def test_a_misspelt_field_of_a_block_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, LEASE__RENEW_EVRY="3")
    assert "ODIN_LEASE__RENEW_EVRY" in refusal(LeaseOnly)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.8.0.1", True), ("::1", True), ("localhost", True), ("h", False)],
)
def test_loopback_is_what_cannot_be_reached_from_outside(
    host: str,
    expected: bool,  # noqa: FBT001 - a table column
) -> None:
    assert is_loopback(host) is expected
