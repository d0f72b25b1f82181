"""What people see of the guard: verdicts, undo, and its part of status, explain and events."""

from typing import Any

import pytest

from ralphctl.format import event_text, explanation, gate_text, status_text
from tests.ctl.conftest import Ctl
from tests.ctl.fake import Answer, FakeDaemon, problem, view

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
    "verdict": REVERTED, "reverted": REVERTED,
}  # fmt: skip


# --- verdicts -------------------------------------------------------------------------------------------


def test_verdicts_are_a_table_that_fits_the_screen_with_the_reason_wrapped() -> None:
    long = {**KEPT, "at": "2026-11-01T06:40:00Z", "verdict": "untested", "undone": True, "iteration": None,
            "why": "somebody else works here while it is judged: HEAD was at 1a2b3c4 of main\x1b[2J",
            "tests": ["red", "timed_out", "cannot_run"], "commits": ["1a2b3c4"] * 9}  # fmt: skip
    lines = gate_text.verdict_table([long, REVERTED, KEPT], NOW).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["WHEN", "ITER", "VERDICT", "COMMITS", "TESTS", "WHY"]
    page = gate_text.verdict_table([REVERTED, KEPT], NOW)
    assert page.splitlines() == [
        "WHEN      ITER  VERDICT   COMMITS   TESTS             WHY",
        "06:50:00  2     reverted  3fa9c1d,  red, red, green;  the tests failed, and pass",
        "                          5d6e7f8   12s               without these 2 commits",
        "06:40:00  1     kept      1a2b3c4   green; 4s         the tests pass",
    ]
    assert "\x1b" not in gate_text.verdict_table([long], NOW)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {},
            ["the guard is off", "[regent]", "rollback_on_test_failure = true", 'test_command = "make test"'],
        ),
        ({"guard": {**GUARD, "boundaries": False}}, ["has told no end", "notify iteration-finished --wait"]),
        ({"guard": GUARD}, ["no iteration has ended with one"]),
        ({"notes": ["the guard is off: this is not a git repository"]}, ["not a git repository"]),
    ],
)
def test_without_verdicts_it_is_said_why_and_what_to_do(
    changes: dict[str, Any], said: list[str], daemon: FakeDaemon, ctl: Ctl
) -> None:
    daemon.views["api"] = view(**changes)
    daemon.on("GET /v1/ralphs/api/verdicts", lambda request: Answer({"verdicts": []}))
    done = ctl("verdicts", "api", "--limit", "5")
    assert (done.returncode, done.stderr) == (0, "")
    assert [words for words in said if words not in done.stdout] == []
    assert daemon.asked[0].query == {"limit": "5"}


def test_verdicts_lead_to_undo_and_come_as_json_too(daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.views["api"] = view()
    daemon.on("GET /v1/ralphs/api/verdicts", lambda request: Answer({"verdicts": [REVERTED, KEPT]}))
    assert "next: ralphctl undo api ITER" in ctl("verdicts").stdout
    assert '"tests_s": [4.2, 4.3, 4.2]' in ctl("verdicts", "api", "--json").stdout


# --- undo -----------------------------------------------------------------------------------------------


def back(state: str, *made: str) -> Answer:
    commits = [{"sha": "3fa9c1d" + "0" * 33, "subject": "Print\x1b it"}]
    new = [{"sha": sha * 40, "subject": "Reapply"} for sha in made]
    ralph = view(state=state, ralph_pid=None)
    return Answer(
        {"iteration": 2, "task": None, "commits": commits, "made": new, "head": None, "ralph": ralph}
    )


@pytest.mark.parametrize(("words", "asked"), [(("api", "2"), 2), (("2",), 2), (("api",), None), ((), None)])
def test_undo_says_what_is_back_and_what_to_do_next(
    words: tuple[str, ...], asked: int | None, daemon: FakeDaemon, ctl: Ctl
) -> None:
    daemon.views["api"] = view()
    daemon.on("POST /v1/ralphs/api/undo", lambda request: back("paused", "e"))
    done = ctl("undo", *words)
    assert done.stdout.splitlines() == [
        "api: put back 1 commit of iteration 2",
        "  3fa9c1d  Print^[ it",
        "  by commit eeeeeee; nothing was pushed",
        "  next: ralphctl resume api  (go on; the tests run first)",
    ]
    assert daemon.body_of("POST /v1/ralphs/api/undo") == {"iteration": asked}


def test_undo_of_what_is_back_of_a_stopped_ralph_and_a_refusal(daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.views["api"] = view()
    daemon.on("POST /v1/ralphs/api/undo", lambda request: back("stopped"))
    done = ctl("undo", "api")
    assert "1 commit of iteration 2 were there already" in done.stdout
    assert "next: ralphctl start api" in done.stdout
    daemon.on(
        "POST /v1/ralphs/api/undo",
        lambda request: problem("not-undone", 409, "it is not put back", "conflict: a.py", "git status"),
    )
    refused = ctl("undo", "api")
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        "error: it is not put back",
        "  conflict: a.py",
        "  try: git status",
    ]
    assert ctl("undo", "api", "two").returncode == 2


# --- status, explain, events ----------------------------------------------------------------------------


def status(**changes: Any) -> list[str]:
    return status_text.ralph(view(**changes), NOW).splitlines()


def test_status_says_what_the_tests_say_and_what_was_reverted_last() -> None:
    page = status(guard=GUARD, reverts=1)
    assert "  tests        green before this iteration, since 06:30:00" in page
    assert (
        "  reverted     3fa9c1d, 5d6e7f8 of iteration 2, 10m ago (06:50:00): "
        "the tests failed, and pass without these 2 commits"
    ) in page
    assert "  restarts     0, 1 iteration reverted" in page
    red = {**GUARD, "baseline": "red", "reverted": None}
    assert "  tests        red since 06:30:00: commits are not judged" in status(guard=red)
    unknown = {**red, "baseline": "unknown"}
    assert not any(line.startswith("  tests") for line in status(guard=unknown))
    assert "  tests        not known: they run once before the next start" in status(
        guard=unknown, state="stopped"
    )


def test_status_says_since_when_the_tests_run() -> None:
    tested = {**GUARD, "testing_since": "2026-11-21T06:57:00.000000Z"}
    assert status(state="testing", guard=tested)[0] == "api  running the tests for 3m (pid 4711)"
    assert status(state="testing")[0] == "api  running the tests (pid 4711)"


def test_a_pause_by_the_guard_says_what_to_look_at_and_how_to_go_on() -> None:
    changes = {
        "state": "paused",
        "pause_reason": "guard",
        "message": "a rebase is half done",
        "ralph_pid": None,
    }
    page = status(guard=GUARD, **changes)
    assert page[0] == "api  paused by the guard: a person has to look at its commits"
    assert "  look at      a rebase is half done" in page
    assert page[-3:] == [
        "  next         ralphctl verdicts api  (see why)",
        "               ralphctl undo api  (put reverted commits back)",
        "               ralphctl resume api  (then go on)",
    ]
    assert not any("undo" in line for line in status(guard={**GUARD, "reverted": None}, **changes))


def test_explain_has_a_part_about_the_guard() -> None:
    verdict = {"at": REVERTED["at"], "rule": "R5", "title": "Commits were reverted",
               "because": "they are red", "figures": [], "missing": [], "done": "one each"}  # fmt: skip
    shown = {"rule": "E1", "title": "Ralph is done", "because": "0", "run_id": "r1", "verdict": verdict}
    lines = explanation.page("api", shown, NOW).splitlines()
    assert "the guard: Commits were reverted, 10m ago (06:50:00)" in lines
    assert "  rule      R5: they are red" in lines


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        ("tests.passed", {"baseline": True, "tests": "green"}, "the tests passed before Ralph begins"),
        ("tests.passed", {"iteration": 1, "tests": ["green"]}, "iteration 1: the tests passed"),
        ("tests.failed", REVERTED, "iteration 2: the tests failed (red, red, green)"),
        ("tests.failed", {"baseline": True, "message": "The tests are red"}, "The tests are red"),
        ("commit.kept", {**KEPT, "message": "commit kept"}, "iteration 1: commit kept"),
        ("commit.reverted", {**REVERTED, "message": "Tests failed", "why": "they are red"},
         "iteration 2, Print it: Tests failed: they are red"),
        ("guard.blocked", {"message": "a rebase is half done"}, "a rebase is half done"),
        ("commit.restored", {"message": "Put back", "iteration": 2}, "Put back"),
    ],
)  # fmt: skip
def test_events_of_the_guard_are_told_in_words(kind: str, data: dict[str, Any], said: str) -> None:
    assert event_text.event_words(kind, data) == said
