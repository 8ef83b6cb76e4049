"""The one rule for what an id may look like."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core.ids import check_id, check_run_id
from odin.errors import InvalidArgumentError

ALPHABET = string.ascii_letters + string.digits + "._:@-"


@given(text=st.text(ALPHABET, min_size=1, max_size=200).filter(lambda one: one not in {".", ".."}))
def test_ids_of_the_alphabet_pass_unchanged(text: str) -> None:
    assert check_id(text, "workflow_id") is text


@given(
    text=st.text(ALPHABET, max_size=5),
    bad=st.characters(codec=None).filter(lambda one: one not in ALPHABET),
    rest=st.text(ALPHABET, max_size=5),
)
def test_one_other_character_anywhere_is_refused(text: str, bad: str, rest: str) -> None:
    with pytest.raises(InvalidArgumentError):
        check_id(text + bad + rest, "workflow_id")


@pytest.mark.parametrize("value", ["", ".", "..", "a" * 201, "a\n", "ä", None, 3, b"abc"], ids=repr)
def test_what_is_no_id_is_refused_and_its_field_named(value: object) -> None:
    with pytest.raises(InvalidArgumentError, match="workflow_id") as refused:
        check_id(value, "workflow_id")
    assert refused.value.reason == "BAD_ID"
    assert refused.value.details == {"field": "workflow_id"}
    assert len(str(refused.value)) < 200


def test_a_run_id_is_a_uuid_of_version_seven_in_lower_case() -> None:
    good = "01890a5d-ac96-774b-bcce-b302099a8057"
    assert check_run_id(good) == good


@pytest.mark.parametrize(
    "value",
    [
        "01890A5D-AC96-774B-BCCE-B302099A8057",
        "01890a5d-ac96-474b-bcce-b302099a8057",
        "01890a5d-ac96-774b-ccce-b302099a8057",
        "01890a5dac96774bbcceb302099a8057",
        "01890a5d-ac96-774b-bcce-b302099a8057\n",
        "",
        None,
        7,
    ],
    ids=repr,
)
def test_what_is_no_run_id_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgumentError, match="not a UUIDv7"):
        check_run_id(value)
