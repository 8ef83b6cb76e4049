"""Golden scenarios: whole stories of the decisions, to be read by people (`scenarios/*.txt`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.scenario_player import parse, play

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_story_goes_as_it_is_told(path: Path, request: pytest.FixtureRequest) -> None:
    told = path.read_text(encoding="utf-8")
    played = play(told)
    if request.config.getoption("--rewrite", default=False):
        path.write_text(played, encoding="utf-8")
    else:
        assert played == told, "run pytest with --rewrite and review the diff"


def test_the_stories_are_there() -> None:
    assert len(FILES) >= 12


def test_a_story_that_goes_otherwise_is_noticed() -> None:
    told = FILES[0].read_text(encoding="utf-8")
    [first, *_] = parse(told)
    assert first.trace
    assert play(told.replace(first.trace[0], "another line", 1)) != told.replace(
        first.trace[0], "another line", 1
    )
