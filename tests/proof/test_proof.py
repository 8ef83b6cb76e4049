"""A run proven from its rows by a real engine, and the same run once its rows were spoiled."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import aiohttp
import msgspec

from odin.proof import Certificate
from tests.engine.bed import Bed
from tests.engine.flows import (
    ACTIVITIES,
    WORKFLOWS,
    CountOn,
    cleaned_up,
    fan_out,
    refused,
    retried,
    sleeper,
    timed_out,
)
from worker.orders import Order
from worker.shop import Purchase
from worker.subscription import Plan, subscription

INVARIANTS = ["I1", "I2", "I3", "I5", "I6", "I10", "I11", "I12", "I15", "I16"]
WAIT = timedelta(seconds=15)


async def ask(bed: Bed, path: str, engine: int = 0) -> tuple[int, bytes]:
    """Return status and body of a GET."""
    url = bed.addresses[engine] + path
    async with aiohttp.ClientSession() as http, http.get(url) as reply:
        return reply.status, await reply.read()


async def proof_of(bed: Bed, workflow_id: str, query: str = "", engine: int = 0) -> Certificate:
    """Return the certificate that an engine gives."""
    status, body = await ask(bed, f"/v1/executions/{workflow_id}/proof{query}", engine)
    assert status == 200, body
    return msgspec.json.decode(body, type=Certificate)


def wrong(proof: Certificate) -> dict[str, str]:
    """Return invariant and words of every finding that is not valid."""
    findings = [*proof.findings, *(one for run in proof.runs for one in run.findings)]
    return {one.invariant: one.words for one in findings if one.verdict != "valid"}


async def ordered(bed: Bed, order_id: str, card: str = "good") -> None:
    """Run an order to its end."""
    handle = await bed.client.start_workflow(
        Order.run, Purchase(order_id, "sku-01", 2, 1_250, card), id=order_id
    )
    await handle.result(timeout=WAIT)


async def test_a_delivered_order_is_proven_by_every_engine_with_all_its_evidence(
    market: Bed,
) -> None:
    await ordered(market, "order-1")

    proof, other = [await proof_of(market, "order-1", engine=engine) for engine in (0, 1)]

    assert (proof.verdict, wrong(proof)) == ("valid", {})
    [run] = proof.runs
    assert [one.invariant for one in run.findings] == INVARIANTS
    assert [one.invariant for one in proof.findings] == ["I19"]
    assert run.status == "completed"
    assert [event.event_id for event in run.events] == list(range(1, run.counts["events"] + 1))
    assert {event.node_id for event in run.events} <= {"engine-1", "engine-2"}
    assert all(event.incarnation and event.committed_at for event in run.events)
    assert [one.activity_type for one in run.activities] == ["reserve", "charge", "ship", "assign"]
    assert all(len(one.accepted) == 1 for one in run.activities)
    kinds = {effect.kind: effect for effect in run.effects}
    assert list(kinds) == ["reserve", "charge", "ship", "assign", "deliver"]
    for activity in run.activities:
        effect = kinds[activity.activity_type]
        assert effect.idempotency_key == activity.idempotency_key
        assert effect.event_id == activity.event_id
    assert kinds["deliver"].event_id is None
    assert run.counts["requests"] == 2  # the start, and the signal of the driver
    assert other.runs == proof.runs


async def test_an_order_that_was_given_up_is_proven_to_be_undone(market: Bed) -> None:
    await ordered(market, "order-2", card="declined")

    proof = await proof_of(market, "order-2")

    assert (proof.verdict, wrong(proof)) == ("valid", {})
    assert [effect.kind for effect in proof.runs[0].effects] == ["reserve", "unreserve"]


ONE_MORE_RANGE = """
INSERT INTO shard_term (shard_id, range_id, happening, incarnation, node_id)
SELECT shard_id, max(range_id) + 1, 'acquired', 'x', 'x' FROM event GROUP BY shard_id;
UPDATE event SET txid = pg_current_xact_id() WHERE event_id = 5
"""
SECOND_END = """
INSERT INTO event
SELECT shard_id, run_id, event_id + 1, type, recorded_at, range_id, txid, attributes
FROM event WHERE type = 'workflow_execution_completed'
"""
SECOND_CHARGE = """
INSERT INTO mock_ledger
    (service, effect, order_id, idempotency_key, amount_cents, body_hash, at)
SELECT service, effect, order_id, idempotency_key, amount_cents, body_hash, at
FROM mock_ledger WHERE effect = 'charge'
"""
SPOILED = {
    "a dropped event": ("DELETE FROM event WHERE event_id = 3", {"I1", "I5"}),
    "a range that nobody had": ("UPDATE event SET range_id = 0 WHERE event_id = 4", {"I3"}),
    "a write after its range": (ONE_MORE_RANGE, {"I2", "I3"}),
    "a second end": (SECOND_END, {"I1", "I2"}),
    "a charge without a trace": ("DELETE FROM mock_ledger WHERE effect = 'charge'", {"I11"}),
    "a double charge": (SECOND_CHARGE, {"I10", "I12"}),
    "a row that still runs": ("UPDATE execution SET status = 'running', closed_at = NULL", {"I2"}),
    "damaged attributes": ("UPDATE event SET attributes = 'x' WHERE event_id = 2", {"I2", "I5"}),
}


async def test_a_run_whose_rows_were_spoiled_is_proven_wrong_by_the_right_invariants(
    market: Bed,
) -> None:
    await ordered(market, "order-3")
    await market.execute(
        "CREATE TABLE kept_event AS SELECT * FROM event;"
        "CREATE TABLE kept_execution AS SELECT * FROM execution;"
        "CREATE TABLE kept_ledger AS SELECT * FROM mock_ledger;"
    )
    seen = {}
    for what, (statement, _) in SPOILED.items():
        await market.execute(statement)
        proof = await proof_of(market, "order-3")
        assert proof.verdict == "invalid", what
        seen[what] = set(wrong(proof))
        await market.execute(
            "DELETE FROM event; INSERT INTO event SELECT * FROM kept_event;"
            "DELETE FROM execution; INSERT INTO execution SELECT * FROM kept_execution;"
            "DELETE FROM shard_term WHERE node_id = 'x'; DELETE FROM mock_ledger;"
            "INSERT INTO mock_ledger OVERRIDING SYSTEM VALUE SELECT * FROM kept_ledger;"
        )

    assert seen == {what: invariants for what, (_, invariants) in SPOILED.items()}
    assert (await proof_of(market, "order-3")).verdict == "valid"


async def test_retries_timers_and_a_takeover_are_proven(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)
    await bed.client.execute_workflow(retried, args=["key", 3], id="retried")
    sleeping = await bed.client.start_workflow(sleeper, 1_500, id="sleeper")
    await bed.lose_all_terms()
    await sleeping.result(timeout=WAIT)

    tried, slept = await proof_of(bed, "retried"), await proof_of(bed, "sleeper")

    assert (wrong(tried), wrong(slept)) == ({}, {})
    assert [one.attempts for one in tried.runs[0].activities] == [3]
    assert len({event.range_id for event in slept.runs[0].events}) == 2
    [timers] = [one for one in slept.runs[0].findings if one.invariant == "I16"]
    assert timers.counts["fired"] == 1
    assert timers.counts["latest_us"] >= 0


async def test_a_chain_is_proven_as_a_whole_and_run_by_run(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)
    handle = await bed.client.start_workflow(CountOn.run, args=[0, 3], id="chain")
    for count in (1, 2, 3):
        await handle.signal(CountOn.tick)
        await bed.until("SELECT count(*) > $1 FROM execution", min(count, 2))
    await handle.result(timeout=WAIT)

    whole = await proof_of(bed, "chain")
    runs = [run.run_id for run in whole.runs]
    single = [await proof_of(bed, "chain", f"?run_id={run_id}") for run_id in runs]

    assert (len(runs), wrong(whole)) == (3, {})
    assert whole.findings[0].counts == {"runs": 3, "links": 2}
    assert [(len(one.runs), wrong(one)) for one in single] == [(1, {})] * 3
    assert [one.findings[0].counts["links"] for one in single] == [1, 2, 1]

    await bed.execute("DELETE FROM execution WHERE run_id = $1::text::uuid", runs[1])
    assert set(wrong(await proof_of(bed, "chain"))) == {"I19"}
    assert set(wrong(await proof_of(bed, "chain", f"?run_id={runs[0]}"))) == {"I19"}


async def test_an_open_run_is_proven_as_far_as_it_has_come(market: Bed) -> None:
    plan = Plan(period_seconds=60, amount_cents=100, card="good")
    handle = await market.client.start_workflow(subscription, plan, id="open")
    await market.until("SELECT EXISTS (SELECT FROM event WHERE type = 'timer_started')")

    proof = await proof_of(market, "open")

    assert wrong(proof) == {}
    [complete] = [one for one in proof.runs[0].findings if one.invariant == "I6"]
    assert complete.counts == {"open": 1}
    await handle.terminate()


async def test_without_commit_times_nothing_is_said_of_the_fence(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)
    await bed.client.execute_workflow(sleeper, 10, id="old")
    # As if more transactions had passed than commit times are kept for.
    await bed.execute("UPDATE event SET txid = '1'; UPDATE shard_term SET txid = '1'")

    proof = await proof_of(bed, "old")

    assert proof.verdict == "unknown"
    assert set(wrong(proof)) == {"I3", "I16"}
    assert proof.runs[0].events[0].committed_at is None


async def test_what_cannot_be_proven_is_refused_with_the_reason(bed: Bed) -> None:
    nobody = "/v1/executions/nobody/proof"
    refused = {
        nobody: (404, "NOT_FOUND"),
        f"{nobody}?run_id=00000000-0000-7000-8000-000000000000": (404, "NOT_FOUND"),
        f"{nobody}?run_id=7": (400, "BAD_ID"),
        f"{nobody}?limit=7": (400, "UNKNOWN_PARAMETER"),
    }
    seen = {}
    for path in refused:
        status, body = await ask(bed, path)
        seen[path] = (status, msgspec.json.decode(body)["reason"])

    assert seen == refused


async def test_more_than_one_answer_holds_is_refused_before_it_is_read(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)
    await bed.client.execute_workflow(sleeper, 10, id="large")

    for change in ("next_event_id = 10002", "history_bytes = 20000000"):
        await bed.execute(f"UPDATE execution SET {change}")
        status, body = await ask(bed, "/v1/executions/large/proof")
        told = msgspec.json.decode(body)
        assert (status, told["reason"], told["retryable"]) == (400, "PROOF_TOO_LARGE", False)
        assert "run_id" in told["detail"]
        await bed.execute("UPDATE execution SET next_event_id = 6, history_bytes = 100")


async def test_a_run_of_another_workflow_is_not_proven_under_this_id(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)
    handle = await bed.client.start_workflow(sleeper, 10, id="mine")
    await handle.result(timeout=WAIT)

    status, _ = await ask(bed, f"/v1/executions/yours/proof?run_id={handle.run_id}")

    assert status == 404


async def test_runs_of_every_kind_are_proven(bed: Bed) -> None:
    await bed.start_worker(WORKFLOWS, ACTIVITIES)
    client = bed.client
    started: dict[str, tuple[Any, list[Any]]] = {
        "fan out": (fan_out, [5]),
        "refused": (refused, ["a"]),
        "timed out": (timed_out, ["b"]),
        "cancelled": (cleaned_up, ["c"]),
        "ended": (cleaned_up, ["d"]),
        "late": (sleeper, [60_000]),
    }
    ids = {name: name.replace(" ", "-") for name in started}
    for name, (flow, arguments) in started.items():
        options: dict[str, Any] = {"run_timeout": timedelta(milliseconds=300)}
        await client.start_workflow(
            flow, args=arguments, id=ids[name], **(options if name == "late" else {})
        )
    await bed.until(
        "SELECT count(*) = 2 FROM event JOIN execution USING (shard_id, run_id)"
        " WHERE type = 'activity_task_scheduled' AND workflow_id IN ('cancelled', 'ended')"
    )
    await client.get_workflow_handle("cancelled").cancel()
    await client.get_workflow_handle("ended").terminate()
    statuses = {
        name: (await client.get_workflow_handle(one).wait(timeout=WAIT)).status
        for name, one in ids.items()
    }

    proofs = {name: await proof_of(bed, one) for name, one in ids.items()}

    assert statuses["cancelled"] == "canceled"
    assert statuses["ended"] == "terminated"
    assert statuses["late"] == "timed_out"
    assert {name: wrong(proof) for name, proof in proofs.items() if wrong(proof)} == {}
    [left] = [one for one in proofs["ended"].runs[0].findings if one.invariant == "I6"]
    assert left.counts == {"abandoned": 1}
