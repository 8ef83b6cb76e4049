"""Each rule says yes to good rows, no to each spoiled copy, and neither without its rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from odin.proof import Chain, RunRows, judge_chain, judge_run, worst
from odin.proof.findings import Finding
from tests.proof.good import (
    NEXT,
    ORDER,
    RUN,
    SECOND,
    START_US,
    Spoil,
    attempt,
    effect,
    first,
    given_up_order,
    good_chain,
    good_open_run,
    good_order,
    json_payload,
    with_attributes,
    with_event,
    with_more_effects,
    with_row,
)
from tests.proof.spoiled import BEGAN_US, COMPLETED, SCHEDULED, SPOILED

GOOD = {"order": good_order(), "open": good_open_run(), "given up": given_up_order()}


def of(invariant: str, findings: tuple[Finding, ...]) -> Finding:
    """Return the finding of one invariant."""
    [found] = [finding for finding in findings if finding.invariant == invariant]
    return found


@pytest.mark.parametrize("which", GOOD)
def test_good_rows_are_valid_by_every_rule(which: str) -> None:
    findings = judge_run(GOOD[which])

    assert [one for one in findings if one.verdict != "valid"] == []
    assert [one.invariant for one in findings] == [
        *("I1", "I2", "I3", "I5", "I6", "I10", "I11", "I12", "I15", "I16"),
    ]
    assert worst(findings) == "valid"


@pytest.mark.parametrize(
    ("invariant", "which", "spoil"),
    [(invariant, which, spoil) for invariant, _, which, spoil in SPOILED],
    ids=[f"{invariant}-{what}" for invariant, what, _, _ in SPOILED],
)
def test_a_spoiled_copy_is_invalid_by_its_rule(invariant: str, which: str, spoil: Spoil) -> None:
    found = of(invariant, judge_run(spoil(GOOD[which])))

    assert found.verdict == "invalid", found
    assert found.subjects
    assert found.words
    assert found.counts["invalid"] > 0


def later_unknown(rows: RunRows) -> RunRows:
    """Return the rows without the commit time of the range after the last event's."""
    *known, after = rows.terms or ()
    return replace(rows, terms=(*known, replace(after, commit_at_us=None)))


UNKNOWN: list[tuple[str, str, Spoil]] = [
    ("I1", "no row", lambda r: replace(r, execution=None)),
    ("I2", "no row", lambda r: replace(r, execution=None)),
    ("I3", "no terms", lambda r: replace(r, terms=None)),
    ("I3", "no commit times", lambda r: replace(r, has_commit_times=False)),
    ("I3", "one commit time is gone", lambda r: with_event(r, 3, commit_at_us=None)),
    ("I6", "no row", lambda r: replace(r, execution=None)),
    ("I10", "no ledgers", lambda r: replace(r, effects=None)),
    ("I11", "no ledgers", lambda r: replace(r, effects=None)),
    ("I11", "no row", lambda r: replace(r, execution=None)),
    ("I12", "no row", lambda r: replace(r, execution=None)),
    ("I3", "when the next range began is gone", later_unknown),
    ("I11", "empty ledgers", lambda r: replace(r, effects=(), effects_since_us=None)),
    ("I11", "younger ledgers", lambda r: replace(r, effects=(), effects_since_us=2**62)),
    ("I12", "no ledgers", lambda r: replace(r, effects=None)),
    (
        "I16",
        "a commit time is gone",
        lambda r: with_event(r, first(r, "timer_fired").event_id, commit_at_us=None),
    ),
    (
        "I15",
        "attempts of another shape",
        lambda r: with_attributes(r, first(r, COMPLETED).event_id, attempts=[3]),
    ),
]


@pytest.mark.parametrize(
    ("invariant", "spoil"),
    [(invariant, spoil) for invariant, _, spoil in UNKNOWN],
    ids=[f"{invariant}-{what}" for invariant, what, _ in UNKNOWN],
)
def test_a_rule_without_its_rows_says_that_it_does_not_know(invariant: str, spoil: Spoil) -> None:
    found = of(invariant, judge_run(spoil(good_order())))

    assert found.verdict == "unknown", found
    assert found.subjects
    assert found.words


def test_what_happens_at_the_last_instant_that_is_allowed_is_valid() -> None:
    rows = good_order()
    fired = first(rows, "timer_fired")
    due_us = first(rows, "timer_started").attributes["fires_at_us"]
    rows = with_event(rows, fired.event_id, recorded_at_us=due_us, commit_at_us=due_us)
    rows = with_event(rows, 4, recorded_at_us=rows.events[2].recorded_at_us)
    tried = [
        {**attempt(1, "one", BEGAN_US, "failed"), "ended_us": BEGAN_US},
        attempt(2, "two", BEGAN_US, "failed"),
        attempt(3, "three", BEGAN_US + 100_000 - SECOND, "completed"),
    ]
    rows = with_attributes(rows, first(rows, COMPLETED).event_id, attempts=tried)

    assert [one for one in judge_run(rows) if one.verdict != "valid"] == []


def test_what_is_wrong_outweighs_what_is_not_known() -> None:
    rows = with_event(with_event(good_order(), 3, commit_at_us=None), 5, range_id=6)

    assert of("I3", judge_run(rows)).verdict == "invalid"
    assert worst(judge_run(rows)) == "invalid"
    assert worst(()) == "unknown"


def test_the_steps_of_an_author_s_own_workflow_need_no_entry_in_the_shop_s_ledgers() -> None:
    rows = with_row(replace(good_order(), effects=()), workflow_type="MyOwnShop")

    assert of("I11", judge_run(rows)).verdict == "valid"


def test_an_effect_of_another_run_on_the_same_order_is_not_this_run_s_fault() -> None:
    rows = with_more_effects(
        good_order(), effect(9, "reserve", "shipping", f"{ORDER}/{NEXT}/1", START_US)
    )

    assert worst(judge_run(rows)) == "valid"


def test_an_activity_that_lists_only_its_newest_attempts_is_not_held_to_the_older_ones() -> None:
    rows = good_order()
    event_id = first(rows, COMPLETED).event_id
    many = [attempt(n, f"t{n}", BEGAN_US + n, "failed") for n in range(51, 250)]
    newest = [*many, attempt(250, "t250", BEGAN_US + 250, "completed")]
    rows = with_attributes(rows, first(rows, SCHEDULED).event_id, retry_policy={})

    assert of("I15", judge_run(with_attributes(rows, event_id, attempts=newest))).verdict == "valid"


def test_a_good_chain_is_valid() -> None:
    assert [finding.verdict for finding in judge_chain(good_chain())] == ["valid"]
    for run in good_chain().runs:
        assert worst(judge_run(run)) == "valid", judge_run(run)


def chain_with(chain: Chain, number: int, rows: RunRows) -> Chain:
    """Return the chain with another run in one place."""
    runs = list(chain.runs)
    runs[number] = rows
    return replace(chain, runs=tuple(runs))


def second_successor(chain: Chain) -> Chain:
    """Return the chain with one more run that continues the first."""
    twin = chain.runs[1]
    other = replace(twin, run_id=RUN[:-1] + "9")
    return replace(chain, runs=(*chain.runs, other))


SPOILED_CHAINS: dict[str, Callable[[Chain], Chain]] = {
    "no successor": lambda c: replace(c, runs=c.runs[:1], starts=(c.starts or ())[:1]),
    "two successors": second_successor,
    "another transaction": lambda c: chain_with(c, 1, with_event(c.runs[1], 1, txid=1)),
    "continues nobody": lambda c: chain_with(
        c, 1, with_attributes(c.runs[1], 1, continued_from_run_id=None)
    ),
    "a run that did not continue": lambda c: chain_with(
        c, 0, with_event(c.runs[0], 3, type="workflow_execution_completed")
    ),
    "another first run": lambda c: chain_with(c, 1, with_row(c.runs[1], first_run_id=NEXT)),
    "two open": lambda c: chain_with(c, 0, with_row(c.runs[0], status="running")),
}


@pytest.mark.parametrize("what", SPOILED_CHAINS)
def test_a_spoiled_chain_is_invalid(what: str) -> None:
    [found] = judge_chain(SPOILED_CHAINS[what](good_chain()))

    assert found.verdict == "invalid", found


def test_a_successor_that_was_not_read_leaves_its_link_unknown() -> None:
    chain = good_chain()

    [found] = judge_chain(replace(chain, runs=chain.runs[:1]))
    [unread] = judge_chain(replace(chain, starts=None))

    assert found.verdict == "unknown"
    assert unread.verdict == "unknown"


def test_a_run_whose_predecessor_is_gone_begins_what_is_kept() -> None:
    chain = good_chain()

    [found] = judge_chain(replace(chain, runs=chain.runs[1:], starts=(chain.starts or ())[1:]))

    assert found.verdict == "valid"


def test_amounts_in_another_encoding_are_not_compared() -> None:
    rows = good_order()
    charge = rows.events[5]
    assert charge.attributes["activity_type"] == "charge"
    secret = with_attributes(rows, charge.event_id, input=[["aes", b"..."]])
    told = with_attributes(rows, charge.event_id, input=[json_payload({"amount_cents": 1})])

    assert of("I10", judge_run(secret)).verdict == "valid"
    assert of("I10", judge_run(told)).verdict == "invalid"
