"""What a mock service can be told from outside: ODIN_MOCK_*."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from pydantic import AliasChoices, Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from odin.runtime.settings import Settings, is_loopback


class MockSettings(Settings):
    """Settings of one mock service.

    Attributes:
        dsn: The books (ODIN_MOCK_DSN, else ODIN_POSTGRES_DSN).
        host: Where to listen.
        port: On which port; 0 takes a free one.
        pool_size: Connections to Postgres.
        admin_token: Opens /admin/behaviour, from loopback only; without it the route is closed.
        engines: Addresses of engines, separated by commas; drivers report deliveries there.
        engine_token: The engines' bearer token.
        delivery_seconds_min: How long a driver is under way at least.
        delivery_seconds_max: And at most.
        retention: How long keys and ledger rows are kept.
    """

    model_config = SettingsConfigDict(env_prefix="ODIN_MOCK_")

    dsn: SecretStr = Field(validation_alias=AliasChoices("ODIN_MOCK_DSN", "ODIN_POSTGRES_DSN"))
    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65_535)
    pool_size: int = Field(default=4, ge=1, le=50)
    admin_token: SecretStr | None = Field(default=None, min_length=16)
    engines: str = ""
    engine_token: SecretStr | None = None
    delivery_seconds_min: float = Field(default=5.0, ge=0)
    delivery_seconds_max: float = Field(default=20.0, ge=0)
    retention: timedelta = timedelta(hours=24)

    @property
    def engine_addresses(self) -> tuple[str, ...]:
        """The engines' base addresses."""
        return tuple(part.strip() for part in self.engines.split(",") if part.strip())

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        if self.delivery_seconds_min > self.delivery_seconds_max:
            raise ValueError(
                "ODIN_MOCK_DELIVERY_SECONDS_MIN is above ODIN_MOCK_DELIVERY_SECONDS_MAX"
            )
        if not is_loopback(self.host) and self.admin_token is None:
            raise ValueError(
                f"ODIN_MOCK_HOST={self.host} can be reached from other machines: mocks belong on "
                "127.0.0.1; set ODIN_MOCK_ADMIN_TOKEN if you want it nevertheless"
            )
        return self


def plain(secret: SecretStr | None) -> str | None:
    """Return a secret in the clear, never to be logged."""
    return secret.get_secret_value() if secret else None
