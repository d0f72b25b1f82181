"""``regent.step`` answers as the table of supervision says, row by row, and nothing else changes anything."""

from collections import Counter
from typing import get_args

import pytest

from ralphd.core.supervision.events import Event
from ralphd.core.supervision.model import State
from ralphd.core.supervision.reports import answer as reply_to
from ralphd.core.supervision.step import step
from tests.core.supervision.states import (
    DEFAULT,
    EVENTS,
    GROUPS,
    POLICIES,
    REPORTS,
    SCENES,
    Row,
    answer,
    replies,
    rows,
)

ROWS = rows()
ANSWERED = {case: row for row in ROWS for case in row.cases()}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_step_answers_as_its_row_says(row: Row) -> None:
    for scene, event, policy in row.cases():
        assert answer(scene, event, policy) == row.answer, f"{scene}: {event} ({policy})"


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_pair_without_a_row_changes_nothing(scene: str, policy: str) -> None:
    """Under another policy it is answered as under the default."""
    for event in EVENTS:
        if (scene, event, policy) not in ANSWERED:
            default = ANSWERED.get((scene, event, DEFAULT))
            assert answer(scene, event, policy) == (default.answer if default else {}), event


def test_no_pair_has_two_rows() -> None:
    assert max(Counter(case for row in ROWS for case in row.cases()).values()) == 1


@pytest.mark.parametrize(("reply", "scenes"), replies().items())
def test_a_reply_depends_on_the_state_alone(reply: str, scenes: list[str]) -> None:
    for scene in scenes:
        for event in REPORTS.values():
            after = step(SCENES[scene], event, POLICIES[DEFAULT]).supervision
            assert reply_to(after, "1") == reply, scene


def test_every_run_is_replied_to() -> None:
    assert {scene for scenes in replies().values() for scene in scenes} == GROUPS["any run"]


def test_every_state_and_event_is_in_the_table() -> None:
    assert {type(each.state) for each in SCENES.values()} == set(get_args(State))
    assert {type(event) for event in EVENTS.values()} == set(get_args(Event))
