"""What the worker service can be told from outside."""

from __future__ import annotations

from typing import Self

from pydantic import Field, SecretStr, model_validator

from odin.runtime.settings import BrokerSettings


class WorkerSettings(BrokerSettings):
    """Settings of the worker service, beside the broker's (ODIN_BROKER, ODIN_AMQP_URL).

    Attributes:
        engines: ODIN_ENGINES, addresses of engines separated by commas.
        worker_id: ODIN_WORKER_ID, the name under which it appears in lists and logs.
        task_queue: ODIN_TASK_QUEUE, what it serves.
        api_token: ODIN_API_TOKEN, the engines' bearer token.
        payments_url: ODIN_PAYMENTS_URL.
        shipping_url: ODIN_SHIPPING_URL.
        drivers_url: ODIN_DRIVERS_URL.
    """

    engines: str
    worker_id: str = Field(default="worker", pattern=r"^[A-Za-z0-9._:@-]{1,200}$")
    task_queue: str = Field(default="default", pattern=r"^[A-Za-z0-9._:@-]{1,200}$")
    api_token: SecretStr | None = None
    payments_url: str
    shipping_url: str
    drivers_url: str

    @property
    def engine_addresses(self) -> list[str]:
        """The engines' addresses."""
        return [part.strip() for part in self.engines.split(",") if part.strip()]

    @model_validator(mode="after")
    def _knows_an_engine(self) -> Self:
        if not self.engine_addresses:
            raise ValueError("ODIN_ENGINES names no engine: give http://host:port, with commas")
        return self
