"""I4 by its words: each way in which the terms of a shard can be wrong is told by its name."""

from __future__ import annotations

import pytest

from checker.invariants.rows import ShardRow
from checker.invariants.terms import Terms
from odin.proof.rows import TermRow

GOOD = "a:acquired:1:10 a:expired:1:20 b:acquired:2:20 b:bumped:3:30 b:released:3:40"


def rows(text: str) -> list[TermRow]:
    """Each term is owner:happening:range:instant."""
    found = []
    for one in text.split():
        owner, what, range_id, at = one.split(":")
        found.append(
            TermRow(
                shard_id=1,
                range_id=int(range_id),
                incarnation=owner,
                node_id=owner,
                what=what,
                at_us=int(at),
                txid=1,
                commit_at_us=None,
            )
        )
    return found


def words(text: str, *, fence: int, owner: str | None = None) -> str:
    terms = Terms()
    terms.add(ShardRow(shard_id=1, range_id=fence, owner=owner), rows(text))
    return terms.finding().words


def test_terms_one_after_another_are_valid() -> None:
    assert words(GOOD, fence=3) == ""
    assert words(f"{GOOD} c:acquired:4:41", fence=4, owner="c") == ""


@pytest.mark.parametrize(
    ("text", "fence", "owner", "expected"),
    [
        ("a:acquired:2:10", 2, "a", "1 x a range that skips one"),
        ("a:acquired:1:10 a:bumped:3:20", 3, "a", "1 x a range that skips one"),
        (
            "a:acquired:1:10 a:bumped:1:10",
            1,
            "a",
            "1 x a term that does not begin exactly once",
        ),
        (
            "a:acquired:1:10 a:released:1:20 a:expired:1:20",
            1,
            None,
            "1 x a term that ends twice",
        ),
        ("a:acquired:1:10 b:released:1:20", 1, None, "1 x a term of two owners"),
        ("a:released:1:5 a:acquired:1:10", 1, None, "1 x a term that ends before it begins"),
        (
            "a:acquired:1:10 b:bumped:2:20",
            2,
            "b",
            "1 x a term prolonged by somebody else than its owner",
        ),
        (
            "a:acquired:1:10 a:released:1:20 a:bumped:2:20",
            2,
            "a",
            "1 x a term prolonged by somebody else than its owner",
        ),
        (
            "a:acquired:1:10 b:acquired:2:20",
            2,
            "b",
            "1 x a term taken over although the one before never ended",
        ),
        (
            "a:acquired:1:10 a:expired:1:30 b:acquired:2:20",
            2,
            "b",
            "1 x two terms that overlap",
        ),
        ("a:acquired:1:10", 2, "a", "1 x a fence whose term nobody recorded"),
        ("a:acquired:1:10", 1, "b", "1 x an owner that its term does not name"),
        (
            "a:acquired:1:10 a:released:1:20",
            1,
            "a",
            "1 x an owner after its term was released",
        ),
    ],
)
def test_a_term_that_is_wrong_is_wrong_in_one_way(
    text: str, fence: int, owner: str | None, expected: str
) -> None:
    assert words(text, fence=fence, owner=owner) == expected
