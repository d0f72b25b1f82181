"""The list of survivors is of today: each change could still be made, and says why it may survive."""

from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.change import difference
from tests.mutants.survivors import Survivor, survivors

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "known", survivors(), ids=lambda known: f"{known.function or 'import'}: {known.before}"
)
def test_each_survivor_is_of_text_that_is_still_there_and_has_a_reason(known: Survivor) -> None:
    text = " ".join((ROOT / known.file).read_text(encoding="utf-8").split())

    assert known.before in text
    assert known.after != known.before
    assert known.reason.strip()


def test_no_survivor_is_listed_twice() -> None:
    twice = [key for key, times in Counter(known.key for known in survivors()).items() if times > 1]

    assert twice == []


def test_a_change_is_told_by_the_lines_that_went_and_came() -> None:
    assert difference("a\n  b  # x\nc\n", "a\n  d\nc\n") == ("b # x", "d")
    assert difference("a\nb\nb\n", "a\nb\n") == ("b", "")
    assert difference("a\n", "a\nb\n") == ("", "b")
