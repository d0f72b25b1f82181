"""What wrappers print in their own words when the agent within fails: the classes that are easily missed."""

import json
from pathlib import Path

import pytest

from ralphctl.offline.classify import FAILED, finding_of, plain_agent
from ralphd.agents.known import KNOWN

NOW = 1_800_000_000.0
WRAPPERS = Path(__file__).parent / "samples" / "wrappers.jsonl"
LINES = [json.loads(line) for line in WRAPPERS.read_text("utf-8").splitlines()]


def kind_of(text: str, agent: str, *, code: int = FAILED) -> str:
    finding = finding_of(text.split("\n"), plain_agent(agent), code=code, stream="stderr", now=NOW)
    return finding.kind.value if finding.kind else "ok"


@pytest.mark.parametrize("agent", ["general", *KNOWN])
def test_a_wrapper_s_own_words_have_their_kind(agent: str) -> None:
    wrong = [
        (each["text"], found) for each in LINES if (found := kind_of(each["text"], agent)) != each["kind"]
    ]

    assert wrong == []


def test_the_seconds_of_a_limit_are_read_from_json_within_a_line() -> None:
    text = 'error: usage limit, {"resets_in_seconds": 4}'
    finding = finding_of([text], plain_agent("general"), code=FAILED, stream="stderr", now=NOW)

    assert finding.reset is not None
    assert (finding.reset.until, finding.reset.source) == (NOW + 4, "resets_in_seconds")
