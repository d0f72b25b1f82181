"""A thousand nights of eight hours: whatever goes wrong, every promise is kept after every event."""

import re
from pathlib import Path

import pytest

from tests.sim.__main__ import bad_nights, told
from tests.sim.faults import Fault, Script, Setting, What, script_of
from tests.sim.story import broken, rule_of, story
from tests.sim.wrong_cores import WRONG

CHUNK = 50
NIGHTS = 1000
SEEN_BY = 300
"""The nights within which a wrong core is noticed; most are in the first ten."""


@pytest.mark.parametrize("first", range(0, NIGHTS, CHUNK))
def test_whatever_a_night_brings_every_promise_is_kept(first: int, tmp_path: Path) -> None:
    bad = bad_nights(range(first, first + CHUNK))

    assert not bad, f"seeds {[seed for seed, _ in bad]}\n{told(script_of(bad[0][0]), tmp_path)}"


@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_wrong_core_does_not_get_through_many_nights(name: str) -> None:
    wrong = WRONG[name]

    seen = (broken(script, wrong.steps) for script in wrong.nights(SEEN_BY))
    first = next((found for found in seen if found is not None), None)

    assert first is not None, "no night has noticed"
    assert rule_of(first) in wrong.rules, first


def test_commits_destroyed_twice_before_the_pause_call_a_person_once() -> None:
    assert broken(Script(1, Setting(), (Fault(33, What.DESTROYS), Fault(43, What.DESTROYS)))) is None


def test_the_same_seed_is_the_same_night_and_a_saved_one_too() -> None:
    script = script_of(7)

    again = story(script)

    assert again == story(script_of(7)) == story(Script.from_json(script.to_json()))
    assert "every promise was kept" in again


def test_a_bad_night_is_made_as_small_as_it_gets_and_told_with_the_command_that_plays_it(
    tmp_path: Path,
) -> None:
    wrong = WRONG["the loop waits twice as long as a limit says"]
    bad = next(script for script in wrong.nights(SEEN_BY) if broken(script, wrong.steps) is not None)

    words = told(bad, tmp_path, wrong.steps)

    kept = tmp_path / f"night-{bad.seed}.json"
    smallest = Script.from_json(kept.read_text())
    assert len(smallest.faults) == 1 < len(bad.faults)
    assert broken(smallest, wrong.steps) is not None
    assert broken(smallest) is None
    assert re.search(r"^  \d\d:\d\d:\d\d  claude: +fails: ", words, re.MULTILINE)
    assert "BROKEN: no wait is too long" in words
    assert f"python -m tests.sim {kept} --story" in words
