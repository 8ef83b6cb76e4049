"""The trivial workflows that the benchmark measures: steps that give back what they are given."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from odin import activity, workflow

ATTEMPT_TIMEOUT: Final = timedelta(seconds=10)


@activity.defn
async def echo(payload: str) -> str:
    """Return what was given."""
    return payload


@workflow.defn
async def bench_steps(n: int, payload: str) -> int:
    """Run `echo` `n` times, each after the one before; return how many gave the payload back."""
    right = 0
    for _ in range(n):
        right += payload == await workflow.execute_activity(
            echo, payload, start_to_close_timeout=ATTEMPT_TIMEOUT
        )
    return right


@workflow.defn
async def bench_fan(n: int, payload: str) -> int:
    """Run `echo` `n` times side by side; return how many gave the payload back."""
    handles = [
        workflow.start_activity(echo, payload, start_to_close_timeout=ATTEMPT_TIMEOUT)
        for _ in range(n)
    ]
    return sum([payload == await handle for handle in handles])
