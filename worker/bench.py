"""The trivial workflow that the benchmark measures: steps that do nothing, one after the other."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from odin import activity, workflow

STEPS: Final = 5
PAYLOAD_BYTES: Final = 200
ATTEMPT_TIMEOUT: Final = timedelta(seconds=10)


@activity.defn
async def echo(payload: str) -> str:
    """Return what was given."""
    return payload


@workflow.defn
async def bench_steps(n: int, payload: str) -> int:
    """Run `echo` `n` times, each after the one before; return `n`."""
    for _ in range(n):
        await workflow.execute_activity(echo, payload, start_to_close_timeout=ATTEMPT_TIMEOUT)
    return n
