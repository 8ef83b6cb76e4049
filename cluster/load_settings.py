"""What the load generator can be told from outside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr

from odin.runtime.settings import Settings

Share = Annotated[float, Field(ge=0, le=1)]


class LoadSettings(Settings):
    """Settings of `python -m cluster.load`.

    Attributes:
        engines: ODIN_ENGINES, addresses of engines separated by commas.
        api_token: ODIN_API_TOKEN, the engines' bearer token.
        demo_seconds: ODIN_DEMO_SECONDS, after how long it ends by itself; 0: when it is told to.
        load_rate: ODIN_LOAD_RATE, orders per second.
        load_subscriptions: ODIN_LOAD_SUBSCRIPTIONS, how many subscriptions run beside.
        load_period_seconds: ODIN_LOAD_PERIOD_SECONDS, a subscription's period.
        load_decline_share: ODIN_LOAD_DECLINE_SHARE, how many of the cards decline.
        load_concurrency: ODIN_LOAD_CONCURRENCY, starts under way at once; more are left out.
        load_order_limit_seconds: ODIN_LOAD_ORDER_LIMIT_SECONDS, after which an order gives up.
        load_run: ODIN_LOAD_RUN, the part of all ids that names this run; random if empty.
        load_seed: ODIN_LOAD_SEED, of the dice that choose what is bought.
        load_origin: ODIN_LOAD_ORIGIN, who asks, for quotas.
        load_observe_every: ODIN_LOAD_OBSERVE_EVERY, of how many orders one is asked how it stands,
            when it has started and at the end; 0: none.
        client_log: ODIN_CLIENT_LOG, the file that says what became of every call.
        postgres_dsn: ODIN_POSTGRES_DSN, where a copy of the file goes, for the checker.
    """

    engines: str
    api_token: SecretStr | None = None
    demo_seconds: float = Field(default=0.0, ge=0)
    load_rate: float = Field(default=5.0, gt=0, le=1_000)
    load_subscriptions: int = Field(default=3, ge=0, le=100)
    load_period_seconds: float = Field(default=5.0, gt=0)
    load_decline_share: Share = 0.05
    load_concurrency: int = Field(default=100, ge=1, le=1_000)
    load_order_limit_seconds: float = Field(default=240.0, gt=0)
    load_run: str = Field(default="", pattern=r"^[A-Za-z0-9._:@-]{0,80}$")
    load_seed: int = 0
    load_origin: str = "synthetic"
    load_observe_every: int = Field(default=0, ge=0)
    client_log: Path = Path(".odin/client-log.jsonl")
    postgres_dsn: SecretStr | None = None
