"""Typed settings: one place that reads the environment, relations checked before anything starts.

A service composes the blocks below into its own class and calls `load`. Variables are `ODIN_*`;
a nested block's fields come after a double underscore (`ODIN_LEASE__RENEW_EVERY=3`). Declare
durations as `Duration`: seconds or ISO 8601. A secret is of a type that never prints itself.
"""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from ipaddress import ip_address
from typing import Annotated, Self, TypeAlias, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from odin.core.lease import LeaseTimes
from odin.errors import ConfigurationError

SettingsType = TypeVar("SettingsType", bound=BaseSettings)


def _seconds(value: object) -> object:
    """Read "3" and "0.5" as seconds; the environment has only text, and pydantic wants a unit."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


# Seconds ("2.5") or ISO 8601 ("PT2.5S"), never below zero.
Duration: TypeAlias = Annotated[timedelta, BeforeValidator(_seconds), Field(ge=timedelta(0))]


class Settings(BaseSettings):
    """Base of every service's settings: frozen, from `ODIN_*`, other variables left alone."""

    model_config = SettingsConfigDict(
        env_prefix="ODIN_",
        env_nested_delimiter="__",
        env_ignore_empty=True,
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,
        populate_by_name=True,
    )


class Block(BaseModel):
    """Base of a nested group of settings: frozen, unknown names refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def load(settings: type[SettingsType], **overrides: object) -> SettingsType:
    """Return `settings` as the environment and `overrides` (which win) give them.

    Raises:
        ConfigurationError: names each variable that is missing or wrong, why, and what to do.
    """
    try:
        return settings(**overrides)  # type: ignore[arg-type]  # pydantic checks the values itself
    except ValidationError as error:
        raise ConfigurationError(_explain(settings, error)) from None


class PostgresSettings(Settings):
    """Where Postgres is, and how many connections this process may hold."""

    postgres_dsn: SecretStr
    postgres_pool_size: int = Field(default=4, ge=1, le=200)

    @property
    def dsn(self) -> str:
        """The DSN in the clear; never to be logged."""
        return self.postgres_dsn.get_secret_value()

    @model_validator(mode="after")
    def _names_postgres(self) -> Self:
        _check_url("ODIN_POSTGRES_DSN", self.dsn, ("postgres", "postgresql"))
        return self


class Broker(Enum):
    """What carries tasks to workers."""

    RABBITMQ = "rabbitmq"
    EMBEDDED = "embedded"


class BrokerSettings(Settings):
    """Which broker, and where it is."""

    broker: Broker = Broker.RABBITMQ
    amqp_url: SecretStr | None = None

    @property
    def url(self) -> str:
        """The AMQP URL in the clear, never to be logged; empty for the embedded broker."""
        return self.amqp_url.get_secret_value() if self.amqp_url else ""

    @model_validator(mode="after")
    def _has_url(self) -> Self:
        if self.broker is Broker.EMBEDDED:
            return self
        if not self.amqp_url:
            raise ValueError(
                "ODIN_BROKER=rabbitmq needs ODIN_AMQP_URL; give it, or set ODIN_BROKER=embedded "
                "to hand tasks to workers over their links"
            )
        _check_url("ODIN_AMQP_URL", self.url, ("amqp", "amqps"))
        return self


class ValkeySettings(Settings):
    """Where Valkey is; without it telemetry is dropped and quotas are each node's own share."""

    valkey_url: SecretStr | None = None

    @property
    def valkey(self) -> str | None:
        """The URL in the clear, never to be logged; None if there is no Valkey."""
        return self.valkey_url.get_secret_value() if self.valkey_url else None

    @model_validator(mode="after")
    def _names_valkey(self) -> Self:
        if self.valkey:
            _check_url(
                "ODIN_VALKEY_URL", self.valkey, ("valkey", "valkeys", "redis", "rediss", "unix")
            )
        return self


class HttpSettings(Settings):
    """Where this process listens, under what address others reach it, and what lets them in."""

    http_host: str = "127.0.0.1"
    http_port: int = Field(default=0, ge=0, le=65_535)
    http_advertise: str | None = None
    api_token: SecretStr | None = None

    @property
    def token(self) -> str | None:
        """The bearer token in the clear, never to be logged; None if none is asked for."""
        return self.api_token.get_secret_value() if self.api_token else None

    def advertised(self, bound_port: int) -> str:
        """Return the base URL for others, given the port that was really bound."""
        if self.http_advertise:
            return self.http_advertise.rstrip("/")
        host = f"[{self.http_host}]" if ":" in self.http_host else self.http_host
        return f"http://{host}:{bound_port}"

    @model_validator(mode="after")
    def _closed_unless_told(self) -> Self:
        if not is_loopback(self.http_host) and not self.api_token:
            raise ValueError(
                f"ODIN_HTTP_HOST={self.http_host} can be reached from other machines: set "
                "ODIN_API_TOKEN (16 characters or more) so that not everybody is let in, or listen "
                "on 127.0.0.1"
            )
        if self.token is not None and len(self.token) < _TOKEN_CHARACTERS_MIN:
            raise ValueError(
                "ODIN_API_TOKEN is too short to be safe: use 16 random characters or more"
            )
        if is_wildcard(self.http_host) and not self.http_advertise:
            raise ValueError(
                f"ODIN_HTTP_HOST={self.http_host} says where to listen, not under what address "
                "others reach this node: set ODIN_HTTP_ADVERTISE, e.g. http://10.0.0.7:7100"
            )
        if self.http_advertise:
            _check_url("ODIN_HTTP_ADVERTISE", self.http_advertise, ("http", "https"))
        return self


class LeaseSettings(Block):
    """How a node's lease is held; the relations are those of `odin.core.lease.LeaseTimes`."""

    renew_every: Duration = timedelta(seconds=3)
    serve_for: Duration = timedelta(seconds=8)
    duration: Duration = timedelta(seconds=10)

    @property
    def times(self) -> LeaseTimes:
        """The spans as the lease arithmetic takes them."""
        return LeaseTimes(
            renew_every=self.renew_every.total_seconds(),
            serve_for=self.serve_for.total_seconds(),
            duration=self.duration.total_seconds(),
        )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        try:
            _ = self.times
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return self


def is_loopback(host: str) -> bool:
    """Return whether nothing but this machine can reach a listener on `host`."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False  # a name may point anywhere


def is_wildcard(host: str) -> bool:
    """Return whether `host` means every address of the machine."""
    if not host:
        return True
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


_TOKEN_CHARACTERS_MIN = 16


def _check_url(name: str, value: str, schemes: tuple[str, ...]) -> None:
    scheme = urlsplit(value).scheme
    if scheme not in schemes:
        shown = f"begins with {scheme + '://'!r}" if scheme else "is not a URL"
        raise ValueError(
            f"{name} {shown}; it must begin with {schemes[-1] if len(schemes) == 1 else schemes[0]}://"
        )


def _explain(settings: type[BaseSettings], error: ValidationError) -> str:
    """Return one line per fault, each naming the variable to change; values are never shown."""
    prefix = settings.model_config.get("env_prefix", "")
    lines = []
    for fault in error.errors(include_input=False, include_url=False):
        path = "__".join(str(part) for part in fault["loc"])
        variable = f"{prefix}{path}".upper() if path else ""
        if fault["type"] == "missing":
            lines.append(f"{variable} is not set")
            continue
        message = fault["msg"].removeprefix("Value error, ")
        lines.append(f"{variable}: {message}" if variable and variable not in message else message)
    return f"{settings.__name__}: " + "; ".join(lines)
