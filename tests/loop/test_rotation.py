"""Rotation from outside: real processes, agents that crash as real ones do (L3, 003)."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import wait_for
from tests.loop.nights import Night, night_in, shown

ROTATE = 'strategy = "rotate"\nfallback = ["codex", "gemini"]\n'
CRASH = "Previous rotation crashed: "


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    """A night in which the agents take turns."""
    with night_in(tmp_path) as night:
        night.configure(ROTATE)
        yield night


def test_003_an_agent_that_is_killed_is_a_crash_and_the_next_rotation_goes_on(night: Night) -> None:
    night.configure(ROTATE, hang_s=30)
    night.tasks(2)
    night.plays("hang")
    loop = night.start()
    (call,) = night.calls(1)

    os.kill(call.pid, signal.SIGKILL)
    code, log = night.end(loop)

    assert code == 0, log
    assert [agent for agent, _ in night.did()] == ["claude", "codex", "gemini"]
    assert shown(
        log,
        "rotation: claude, codex, gemini take turns",
        "iteration 1: story 1",
        "attempt 1 by claude failed (agent crash): it was ended by SIGKILL",
        "; next: rotation: codex continues",
        "iteration 2: story 1",
        "iteration 3: story 2",
    )
    told = night.calls()[1].prompt
    assert f"- {CRASH}it was ended by SIGKILL, and not by ralphd" in told
    assert "Attempt 1, by claude, failed (agent crash)" in told
    assert CRASH not in night.calls()[2].prompt
    assert (night.kept("loop.json")["iteration"], night.kept("loop.json")["out"]) == (3, [])
    night.check_alone()


def test_003_crashes_of_all_kinds_rotate_and_a_good_end_is_none_whatever_was_printed(night: Night) -> None:
    night.configure(ROTATE, hang_s=30)
    night.tasks(2)
    noise = "ECONNRESET, ETIMEDOUT, No messages returned"
    night.plays(
        {"do": "crash_then_hang", "message": "Error: No messages returned\n"},
        "empty",
        {"do": "crash", "exit": 7},
        {"do": "task", "talks_of": noise},
        {"do": "task", "broken_lines": True},
    )

    code, log = night.ends(RALPH_AGENTS_CRASH_PATTERN_GRACE_SECONDS="0")

    assert code == 0, log
    assert [agent for agent, _ in night.did()] == ["claude", "codex", "gemini", "claude", "codex"]
    assert shown(
        log, "and is ended at once", "(agent crash)", "it printed nothing on stdout", "(agent crash)"
    )
    assert log.count(" failed (agent crash)") == 3
    assert night.kept("loop.json")["iteration"] == 5
    night.check_commits(2)
    night.check_alone()


def test_an_exhausted_agent_leaves_the_rotation_and_comes_back_in_its_turn(night: Night) -> None:
    night.configure('strategy = "rotate"\nfallback = ["codex"]\n', hang_s=20)
    night.tasks(4)
    night.plays(
        {"do": "usage_limit", "holds_s": 1, "agent": "claude"},
        {"do": "task", "agent": "codex"},
        {"do": "task", "agent": "codex", "takes_s": 2.2},  # limits are told in whole seconds
    )

    code, log = night.ends()

    assert code == 0, log
    assert [agent for agent, _ in night.did()] == ["claude", "codex", "codex", "claude", "codex"]
    assert shown(log, "claude: ", "codex continues")
    assert night.failures() == [0] * 4


def test_all_exhausted_without_a_known_reset_it_pauses_and_says_who_is_out(night: Night) -> None:
    night.configure('strategy = "rotate"\nfallback = ["codex"]\n')
    night.tasks(1)
    night.plays(
        *({"do": "usage_limit", "holds_s": 60, "hint": False, "agent": a} for a in ("claude", "codex"))
    )

    code, log = night.ends()

    assert code == 75, log
    assert [agent for agent, _ in night.did()] == ["claude", "codex"]
    assert [out["agent"] for out in night.kept("loop.json")["out"]] == ["claude", "codex"]
    assert night.kept("checkpoint.json")["pause_reason"] == "usage_limit"
    assert shown(log, "claude: ", "reset not known, next try ", "codex: ", "available; pausing")


def test_a_loop_that_is_killed_goes_on_with_the_turn_that_it_was_in(night: Night) -> None:
    night.configure(ROTATE, hang_s=30)
    night.tasks(3)
    night.plays("task", "hang")
    loop = night.start()
    night.calls(2)

    loop.kill()
    night.end(loop)
    code, log = night.ends()

    assert code == 0, log
    assert [agent for agent, _ in night.did()] == ["claude", "codex", "codex", "gemini"]
    night.check_commits(3)
    night.check_alone()


def test_a_memory_that_was_tampered_with_is_put_aside_and_the_rotation_begins_anew(night: Night) -> None:
    night.tasks(2)
    night.plays({"do": "task", "takes_s": 0.3})
    loop = night.start()
    night.calls(1)
    loop.send_signal(signal.SIGTERM)
    night.end(loop)
    held = night.kept("loop.json")
    (night.home / "loop.json").write_text(json.dumps(held | {"agents": "claude", "later": 1}))

    code, log = night.ends()

    assert code == 0, log
    assert shown(
        log, "the memory of the loop", "is damaged (agents: Input should be a valid array)", "is kept as"
    )
    assert [agent for agent, _ in night.did()] == ["claude", "claude"]
    wait_for(lambda: list(night.home.glob("loop.json.corrupt-*")), timeout_s=5, what="the damaged file")
