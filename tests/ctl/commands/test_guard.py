"""What people see of the guard: verdicts, undo, and its part of status, explain and events."""

from typing import Any

import pytest

from ralphctl.format import event_text, explanation, gate_text, status_text
from tests.ctl.conftest import Ctl
from tests.ctl.fake import Answer, FakeDaemon, problem, view
from tests.ctl.golden_files import Golden

NOW = 1795244400.0  # 2026-11-21 07:00:00 UTC
KEPT: dict[str, Any] = {
    "at": "2026-11-21T06:40:00.000000Z", "iteration": 1, "task": None, "verdict": "kept",
    "why": "the tests pass",
    "commits": ["1a2b3c4"], "reverted": [], "tests": ["green"], "tests_s": [4.2], "undone": False,
}  # fmt: skip
REVERTED: dict[str, Any] = {
    "at": "2026-11-21T06:50:00.000000Z", "iteration": 2, "task": {"id": "US-2", "title": "Print it"},
    "verdict": "reverted", "why": "the tests failed, and pass without these 2 commits",
    "commits": ["3fa9c1d", "5d6e7f8"], "reverted": ["3fa9c1d", "5d6e7f8"], "tests": ["red", "red", "green"],
    "tests_s": [4.2, 4.3, 4.2], "undone": False,
}  # fmt: skip
GUARD: dict[str, Any] = {
    "baseline": "green", "since": "2026-11-21T06:30:00.000000Z", "testing_since": None, "boundaries": True,
    "unjudged_since": None, "verdict": REVERTED, "reverted": REVERTED,
}  # fmt: skip


# --- verdicts -------------------------------------------------------------------------------------------


def test_verdicts_are_a_table_that_fits_the_screen_with_the_reason_wrapped(golden: Golden) -> None:
    long = {**KEPT, "at": "2026-11-01T06:40:00Z", "verdict": "untested", "undone": True, "iteration": None,
            "why": "somebody else works here while it is judged: HEAD was at 1a2b3c4 of main\x1b[2J",
            "tests": ["red", "timed_out", "cannot_run"], "commits": ["1a2b3c4"] * 9}  # fmt: skip
    wide = gate_text.table([long, REVERTED, KEPT], NOW)
    golden(wide, gate_text.table([REVERTED, KEPT], NOW))
    assert max(map(len, wide.splitlines())) <= 80


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"guard": {**GUARD, "boundaries": False}},
        {"guard": GUARD},
        {"notes": ["the guard is off: this is not a git repository"]},
    ],
    ids=["off", "no boundaries", "no iteration yet", "no repository"],
)
def test_without_verdicts_it_is_said_why_and_what_to_do(
    changes: dict[str, Any], daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    daemon.views["api"] = view(**changes)
    daemon.on("GET /v1/ralphs/api/verdicts", lambda request: Answer({"verdicts": []}))
    done = ctl("verdicts", "api", "--limit", "5")
    golden(done)
    assert done.returncode == 0
    assert daemon.asked[0].query == {"limit": "5"}


def test_verdicts_lead_to_undo_and_come_as_json_too(daemon: FakeDaemon, ctl: Ctl, golden: Golden) -> None:
    daemon.views["api"] = view()
    daemon.on("GET /v1/ralphs/api/verdicts", lambda request: Answer({"verdicts": [REVERTED, KEPT]}))
    golden(ctl("verdicts"))
    assert '"tests_s": [4.2, 4.3, 4.2]' in ctl("verdicts", "api", "--json").stdout


# --- undo -----------------------------------------------------------------------------------------------


def back(state: str, *made: str) -> Answer:
    commits = [{"sha": "3fa9c1d" + "0" * 33, "subject": "Print\x1b it"}]
    new = [{"sha": sha * 40, "subject": "Reapply"} for sha in made]
    ralph = view(state=state, ralph_pid=None)
    return Answer(
        {"iteration": 2, "task": None, "commits": commits, "made": new, "head": None, "ralph": ralph}
    )


@pytest.mark.parametrize(
    ("words", "asked"),
    [(("api", "2"), 2), (("2",), 2), (("api",), None), ((), None)],
    ids=["api 2", "2", "api", "nothing"],
)
def test_undo_says_what_is_back_and_what_to_do_next(
    words: tuple[str, ...], asked: int | None, daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    daemon.views["api"] = view()
    daemon.on("POST /v1/ralphs/api/undo", lambda request: back("paused", "e"))
    golden(ctl("undo", *words))
    assert daemon.body_of("POST /v1/ralphs/api/undo") == {"iteration": asked}


def test_undo_of_what_is_back_of_a_stopped_ralph_and_a_refusal(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    daemon.views["api"] = view()
    daemon.on("POST /v1/ralphs/api/undo", lambda request: back("stopped"))
    done = ctl("undo", "api")
    daemon.on(
        "POST /v1/ralphs/api/undo",
        lambda request: problem("not-undone", 409, "it is not put back", "conflict: a.py", "git status"),
    )
    refused, wrong = ctl("undo", "api"), ctl("undo", "api", "two")
    golden(done, refused, wrong)
    assert (refused.returncode, wrong.returncode) == (1, 2)


# --- status, explain, events ----------------------------------------------------------------------------


def status(**changes: Any) -> str:
    return status_text.ralph(view(**changes), NOW)


def test_status_says_what_the_tests_say_and_what_was_reverted_last(golden: Golden) -> None:
    red = {**GUARD, "baseline": "red", "reverted": None}
    unknown = {**red, "baseline": "unknown"}
    golden(
        {
            "green": status(guard=GUARD, reverts=1),
            "green before": status(guard={**GUARD, "unjudged_since": "7c8d9e0"}, state="done"),
            "red": status(guard=red),
            "unknown": status(guard=unknown),
            "unknown and stopped": status(guard=unknown, state="stopped"),
        }
    )


def test_status_says_since_when_the_tests_run(golden: Golden) -> None:
    tested = {**GUARD, "testing_since": "2026-11-21T06:57:00.000000Z"}
    golden(status(state="testing", guard=tested), status(state="testing"))


def test_a_pause_by_the_guard_says_what_to_look_at_and_how_to_go_on(golden: Golden) -> None:
    changes = {
        "state": "paused",
        "pause_reason": "guard",
        "message": "a rebase is half done",
        "ralph_pid": None,
    }
    nothing_reverted = status(guard={**GUARD, "reverted": None}, **changes)
    golden(status(guard=GUARD, **changes), nothing_reverted)
    assert "undo" not in nothing_reverted


def test_explain_has_a_part_about_the_guard(golden: Golden) -> None:
    verdict = {"at": REVERTED["at"], "rule": "R5", "title": "Commits were reverted",
               "because": "they are red", "figures": [], "missing": [], "done": "one each"}  # fmt: skip
    shown = {"rule": "E1", "title": "Ralph is done", "because": "0", "run_id": "r1", "verdict": verdict}
    golden(explanation.page("api", shown, NOW))


def test_events_of_the_guard_are_told_in_words(golden: Golden) -> None:
    events: list[tuple[str, dict[str, Any]]] = [
        ("tests.passed", {"baseline": True, "tests": "green"}),
        ("tests.passed", {"iteration": 1, "tests": ["green"]}),
        ("tests.failed", REVERTED),
        ("tests.failed", {"baseline": True, "message": "The tests are red"}),
        ("commit.kept", {**KEPT, "message": "commit kept"}),
        ("commit.reverted", {**REVERTED, "message": "Tests failed", "why": "they are red"}),
        ("guard.blocked", {"message": "a rebase is half done"}),
        ("commit.restored", {"message": "Put back", "iteration": 2}),
    ]
    golden([f"{kind}: {event_text.event_words(kind, data)}" for kind, data in events])
