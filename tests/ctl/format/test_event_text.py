"""The words for what happens in a fleet; any key may be missing, since other machines can say anything."""

from typing import Any

import pytest

from ralphctl.format.event_text import event_words


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        ("item.claimed", {"item": "i-a", "commit": "", "token": 1}, "i-a is worked on here"),
        ("item.taken_over", {"item": "i-a", "previous": "h1"}, "i-a continues here, after h1"),
        ("item.released", {"item": "i-a", "why": "drained"}, "i-a is given back: drained"),
        (
            "item.done",
            {"item": "i-a", "why": "landed on main as abc"},
            "i-a has ended: landed on main as abc",
        ),
        ("item.held", {"item": "i-a", "why": ""}, "i-a needs you"),
        ("item.held", {"why": "?", "commit": ""}, "why ?"),
        (
            "fleet.fenced",
            {"item": "i-a", "by": "h2", "refs": ["refs/ralph/stale/b/1"]},
            "i-a is h2's now; what was not pushed: refs/ralph/stale/b/1",
        ),
        (
            "fleet.fenced",
            {"item": "i-a"},
            "i-a is another machine's now; what was not pushed: nowhere but here",
        ),
    ],
)
def test_an_event_of_the_fleet_is_a_sentence(kind: str, data: dict[str, Any], words: str) -> None:
    assert event_words(kind, data) == words


def test_an_iteration_without_a_number_is_told_in_words_too() -> None:
    task = {"id": "my task", "title": "my task"}
    assert event_words("iteration.started", {"task": task}) == "an iteration: my task"
    assert event_words("iteration.finished", {"task": task, "failed": True}) == "an iteration ended: failed"


def test_who_sent_a_request_is_told_in_words() -> None:
    by = {"pid": 7, "uid": 1000, "run_id": None, "command": "ralphctl start"}
    assert event_words("ralph.started", {"pid": 9, "by": by}) == "pid 9, by pid 7 (ralphctl start), uid 1000"
    assert event_words("daemon.stopping", {"by": by | {"device": "My phone"}}) == 'by device "My phone"'
