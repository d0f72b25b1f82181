"""What a person was called for: in ``status``, whatever the daemon does, and acknowledged by ``ack``."""

import json
from pathlib import Path
from typing import Any

import pytest

from ralphctl.format import state_text, status_text
from ralphctl.offline import state as offline
from tests.ctl.conftest import Ctl
from tests.ctl.fake import Answer, FakeDaemon, view
from tests.ctl.format.test_state_text import NOW

MESSAGE = "Ralph gave up: no agent is left that could work: claude: Not logged in"
INCIDENT: dict[str, Any] = {
    "opened_at": "2026-11-21T03:10:00Z",
    "message": MESSAGE,
    "needs": "claude has to be logged in; then start it again",
    "do": "claude auth login && ralphctl start api",
    "held_back": 2,
    "latest": MESSAGE,
    "reminders": 0,
    "told_at": "2026-11-21T03:10:00Z",
    "acknowledged_at": None,
}
KNOWN = INCIDENT | {"acknowledged_at": "2026-11-21T06:30:00Z", "reminders": 3, "held_back": 1}
CHANGE = {
    "what": "iteration 7 finished, its task is done, commit abc1234: Parse the flags",
    "at": "2026-11-21T02:58:00Z",
}
FAILED: dict[str, Any] = {
    "state": "failed",
    "ralph_pid": None,
    "message": MESSAGE,
    "incident": INCIDENT,
    "last_change": CHANGE,
    "finished_at": "2026-11-21T03:10:00Z",
}


def rows(**changes: Any) -> list[str]:
    """What ``status`` says of a ralph, in 80 columns."""
    return status_text.ralph(view(**changes), NOW, columns=80).splitlines()


def test_status_begins_with_the_call_what_it_needs_and_the_last_change() -> None:
    assert rows(**FAILED)[:8] == [
        "api  failed: Ralph gave up: no agent is left that could work: claude: Not logged",
        "    in, 3h 50m ago",
        "  called you   3h 50m ago (03:10:00), 2 more calls held back, not acknowledged:",
        "               ralphctl ack api",
        "  needs        claude has to be logged in; then start it again",
        "  last change  4h 2m ago (02:58:00): iteration 7 finished, its task is done,",
        "               commit abc1234: Parse the flags",
        "  work         7 iterations, $1.42",
    ]


def test_the_first_step_is_what_it_needs_and_no_step_comes_twice() -> None:
    login = INCIDENT["do"]
    assert state_text.next_steps(view(**FAILED)) == [
        ("what it needs", login),
        ("see why", "ralphctl explain api"),
    ]
    explain = FAILED | {"incident": INCIDENT | {"do": "ralphctl explain api"}}
    assert state_text.next_steps(view(**explain)) == [
        ("see why", "ralphctl explain api"), ("start again", "ralphctl start api"),
    ]  # fmt: skip
    assert state_text.next_steps(view(incident=INCIDENT)) == state_text.next_steps(view())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"incident": KNOWN}, "1 more call held back, reminded 3 times, acknowledged 30m ago"),
        ({"state": "running", "incident": INCIDENT}, "2 more calls held back, over when it has worked"),
        ({"incident": {"message": "\x1b[2J", "needs": 5, "do": None}}, "never, not acknowledged"),
    ],
)
def test_status_tells_what_has_become_of_a_call(changes: dict[str, Any], said: str) -> None:
    text = " ".join(line.strip() for line in rows(**FAILED | changes))
    assert said in text
    assert "\x1b" not in text


def test_without_a_change_nothing_is_made_up() -> None:
    assert "  last change  none yet" in rows(last_change=None)
    assert not any("last change" in line for line in rows())
    assert not any("last change" in line for line in rows(last_change=None, run_id=None))


def test_all_that_can_be_told_of_one_fits_a_terminal_of_80_by_24() -> None:
    end = {"code": 1, "signal": None, "outcome": "failed", "at": "2026-11-21T03:09:59Z"}
    agents = [
        {"name": name, "in": name == "codex", "until": None, "reason": "Not logged in", "last": False}
        for name in ("claude", "codex", "gemini")
    ]
    guard = {"baseline": "green", "since": "2026-11-21T02:00:00Z", "reverted": None}
    checkpoint = {
        "iteration": 8, "max_iterations": 40, "created_at": "2026-11-21T03:09:00Z", "pause_reason": "error",
        "task": {"id": "T-8", "title": "Mend the parser of the flags", "attempt": 2}, "agent": "claude",
        "uncommitted_files": ["a", "b"],
    }  # fmt: skip
    most = FAILED | {
        "command": [], "last_exit": end, "restarts": 4, "consecutive_errors": 3, "reverts": 1, "guard": guard,
        "pool": {"strategy": "rotate", "agents": agents}, "incident": KNOWN, "agent": "claude",
        "task": {"id": "T-8", "title": "Mend the parser of the flags"}, "notes": ["not a git repository"],
    }  # fmt: skip
    lines = status_text.ralph(view(**most), NOW, checkpoint=checkpoint, columns=80).splitlines()
    assert len(lines) <= 23  # and the prompt
    assert max(map(len, lines)) <= 80


def test_without_a_daemon_status_tells_of_the_call_too(ctl: Ctl, tmp_path: Path) -> None:
    place = tmp_path / "api"
    (place / ".ralph").mkdir(parents=True)
    (place / ".ralph" / "regent-state.json").write_text(json.dumps(view(**FAILED)))
    reply = ctl("status", cwd=place)
    assert reply.returncode == 1
    assert "needs        claude has to be logged in; then start it again" in reply.stdout
    assert "last change  " in reply.stdout and "Parse the flags" in reply.stdout
    assert "next         ralphctl regent start  (start the daemon)" in reply.stdout
    assert "claude auth login && ralphctl start api  (then what it needs)" in reply.stdout
    assert "ralphctl ack" not in reply.stdout  # that needs one


@pytest.mark.parametrize("evil", [5, "x", [1], {"what": [], "at": {}}, {"opened_at": []}])
def test_what_an_agent_writes_into_the_state_is_shown_or_left_out(evil: object, tmp_path: Path) -> None:
    (tmp_path / ".ralph").mkdir()
    held = view(**FAILED) | {"incident": evil, "last_change": evil}
    (tmp_path / ".ralph" / "regent-state.json").write_text(json.dumps(held))
    known = offline.last_view(str(tmp_path))
    assert known is not None
    assert "api  failed" in status_text.ralph(known, NOW, columns=20)


def acknowledging(daemon: FakeDaemon, before: dict[str, Any], after: dict[str, Any]) -> None:
    """A daemon whose ralph is so, and so when it was acknowledged."""
    daemon.views = {"api": view(**before)}

    def known(_: object) -> Answer:
        daemon.views["api"] = view(**after)
        return Answer(daemon.views["api"], 202)

    daemon.on("POST /v1/ralphs/api/ack", known)


def test_ack_says_what_was_acknowledged_and_what_is_still_to_do(daemon: FakeDaemon, ctl: Ctl) -> None:
    acknowledging(daemon, FAILED, FAILED | {"incident": KNOWN})
    reply = ctl("ack", "api")
    assert (reply.returncode, reply.stderr) == (0, "")
    assert reply.stdout.splitlines() == [
        f"api: acknowledged: {MESSAGE}, 2 more calls held back",
        "  still to do: claude has to be logged in; then start it again",
        "  next: claude auth login && ralphctl start api  (what it needs)",
    ]
    again = ctl("ack", "api").stdout
    assert again.startswith("api: acknowledged already, ") and "still to do" in again


def test_ack_of_one_that_runs_again_says_that_nothing_is_left_to_do(daemon: FakeDaemon, ctl: Ctl) -> None:
    acknowledging(daemon, {"incident": INCIDENT}, {"incident": None})
    lines = ctl("ack", "api").stdout.splitlines()
    assert lines[1:] == ["  nothing is left to do: it runs, and the next call is told at once"]
    nothing = ctl("ack", "api")  # no incident is open by now
    assert nothing.returncode == 0
    assert nothing.stdout.startswith("api: nothing to acknowledge; it is running for ")
    assert json.loads(ctl("ack", "api", "--json").stdout)["name"] == "api"
