"""What the schedule can be told from outside."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr

from odin.runtime.settings import Settings


class ChaosSettings(Settings):
    """Settings of `python -m chaos`; spans in seconds.

    Attributes:
        folder: ODIN_FOLDER, the cluster's; `.odin` of this directory if it is not set.
        api_token: ODIN_API_TOKEN, the engines' bearer token.
        chaos_seed: ODIN_CHAOS_SEED, of the order and of the victims; rolled and logged if not set.
        chaos_every: ODIN_CHAOS_EVERY, from one experiment to the next.
        chaos_verdict_after: ODIN_CHAOS_VERDICT_AFTER, from the begin of one to the checker's word.
        chaos_first: ODIN_CHAOS_FIRST, until the first one.
        demo_seconds: ODIN_DEMO_SECONDS, when the load ends; nothing begins shortly before it.
    """

    folder: Path | None = None
    api_token: SecretStr | None = None
    chaos_seed: int | None = None
    chaos_every: float = Field(default=600.0, gt=0)
    chaos_verdict_after: float = Field(default=420.0, ge=0)
    chaos_first: float = Field(default=120.0, ge=0)
    demo_seconds: float = Field(default=0.0, ge=0)
