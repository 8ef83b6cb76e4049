"""What the worker service can be told from outside."""

from __future__ import annotations

from typing import Self

from pydantic import Field, SecretStr, model_validator

from odin.runtime.settings import BrokerSettings, ValkeySettings


class WorkerSettings(BrokerSettings, ValkeySettings):
    """Settings of the worker service, beside ODIN_BROKER, ODIN_AMQP_URL and ODIN_VALKEY_URL.

    Attributes:
        engines: ODIN_ENGINES, addresses of engines separated by commas.
        worker_id: ODIN_WORKER_ID, the name under which it appears in lists and logs.
        task_queue: ODIN_TASK_QUEUE, what it serves.
        worker_slots: ODIN_WORKER_SLOTS, activities at once.
        worker_routes: ODIN_WORKER_ROUTES, `advertised=dialled` pairs of engine addresses, separated
            by commas, for a worker that reaches the engines through something in between.
        api_token: ODIN_API_TOKEN, the engines' bearer token.
        payments_url: ODIN_PAYMENTS_URL.
        shipping_url: ODIN_SHIPPING_URL.
        drivers_url: ODIN_DRIVERS_URL.
    """

    engines: str
    worker_id: str = Field(default="worker", pattern=r"^[A-Za-z0-9._:@-]{1,200}$")
    task_queue: str = Field(default="default", pattern=r"^[A-Za-z0-9._:@-]{1,200}$")
    worker_slots: int = Field(default=100, ge=1, le=10_000)
    worker_routes: str = ""
    api_token: SecretStr | None = None
    payments_url: str
    shipping_url: str
    drivers_url: str

    @property
    def engine_addresses(self) -> list[str]:
        """The engines' addresses."""
        return [part.strip() for part in self.engines.split(",") if part.strip()]

    @property
    def routes(self) -> dict[str, str]:
        """Advertised address → the one to dial."""
        pairs = (part.strip().partition("=") for part in self.worker_routes.split(","))
        return {advertised: dialled for advertised, found, dialled in pairs if found}

    @model_validator(mode="after")
    def _knows_an_engine(self) -> Self:
        if not self.engine_addresses:
            raise ValueError("ODIN_ENGINES names no engine: give http://host:port, with commas")
        return self
