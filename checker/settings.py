"""What the checker can be told from outside."""

from __future__ import annotations

from pydantic import Field

from odin.runtime.settings import PostgresSettings


class CheckerSettings(PostgresSettings):
    """Settings of the checker, beside ODIN_POSTGRES_DSN.

    Attributes:
        check_settle_seconds: ODIN_CHECK_SETTLE_SECONDS, how long after a fault, or after it was
            due, anything may take: lease, sweep and the longest retry.
        check_replay_count: ODIN_CHECK_REPLAY_COUNT, how many histories are replayed; 0: none.
        check_workflows: ODIN_CHECK_WORKFLOWS, modules that hold the workflows to replay, with
            commas; empty: the demo's.
        retention: ODIN_RETENTION, seconds for which the engines keep closed runs.
    """

    check_settle_seconds: float = Field(default=60.0, gt=0)
    check_replay_count: int = Field(default=200, ge=0, le=100_000)
    check_workflows: str = ""
    retention: float = Field(default=6 * 3_600.0, ge=0)

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules of `check_workflows`."""
        return tuple(name.strip() for name in self.check_workflows.split(",") if name.strip())
