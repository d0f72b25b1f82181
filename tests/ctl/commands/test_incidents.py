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
from tests.ctl.golden_files import Golden

MESSAGE = "Ralph gave up: no agent is available: claude: Not logged in"
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


def test_status_begins_with_the_call_what_it_needs_and_the_last_change(golden: Golden) -> None:
    golden(rows(**FAILED))


def test_the_first_step_is_what_it_needs_and_no_step_comes_twice(golden: Golden) -> None:
    explain = FAILED | {"incident": INCIDENT | {"do": "ralphctl explain api"}}
    steps = (state_text.next_steps(view(**each)) for each in (FAILED, explain))
    golden(*([f"{does}: {how}" for does, how in each] for each in steps))
    assert state_text.next_steps(view(incident=INCIDENT)) == state_text.next_steps(view())


@pytest.mark.parametrize(
    "changes",
    [
        {"incident": KNOWN},
        {"state": "running", "incident": INCIDENT},
        {"incident": {"message": "\x1b[2J", "needs": 5, "do": None}},
    ],
    ids=["acknowledged", "running", "damaged"],
)
def test_status_tells_what_has_become_of_a_call(changes: dict[str, Any], golden: Golden) -> None:
    text = "\n".join(rows(**FAILED | changes))
    golden(text)
    assert "\x1b" not in text


def test_without_a_change_nothing_is_made_up(golden: Golden) -> None:
    golden(rows(last_change=None), rows(), rows(last_change=None, run_id=None))


def test_all_that_can_be_told_of_one_fits_a_terminal_of_80_by_24(golden: Golden) -> None:
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
    golden(lines)
    assert len(lines) <= 23  # and the prompt
    assert max(map(len, lines)) <= 80


def test_without_a_daemon_status_tells_of_the_call_too(ctl: Ctl, golden: Golden, tmp_path: Path) -> None:
    place = tmp_path / "api"
    (place / ".ralph").mkdir(parents=True)
    (place / ".ralph" / "regent-state.json").write_text(json.dumps(view(**FAILED)))
    reply = ctl("status", cwd=place)
    golden(reply)
    assert reply.returncode == 1
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


def test_ack_says_what_was_acknowledged_and_what_is_still_to_do(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    acknowledging(daemon, FAILED, FAILED | {"incident": KNOWN})
    reply = ctl("ack", "api")
    golden(reply, ctl("ack", "api"))
    assert reply.returncode == 0


def test_ack_of_one_that_runs_again_says_that_nothing_is_left_to_do(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    acknowledging(daemon, {"incident": INCIDENT}, {"incident": None})
    known = ctl("ack", "api")
    nothing = ctl("ack", "api")  # no incident is open by now
    golden(known, nothing)
    assert nothing.returncode == 0
    assert json.loads(ctl("ack", "api", "--json").stdout)["name"] == "api"
