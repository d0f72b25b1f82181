"""What the next attempt knows of the one before, and when none follows: a real loop, played agents."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loop.nights import Night, night_in, shown

CRASH = {"do": "crash", "exit": 7, "talks_of": "a half-written file"}
GUESSED = {"do": "usage_limit", "hint": False}
OWN_AGENT = """\
#!/bin/sh
if [ ! -e {seen} ]; then
    touch {seen}
    echo 'error: usage limit, {{"resets_in_seconds": 2}}' >&2
    exit 1
fi
exec {bin}/plain "$@"
"""


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    with night_in(tmp_path) as night:
        yield night


def test_t2_a_failed_task_of_a_later_iteration_gets_number_and_lines(night: Night) -> None:
    night.configure("retries_before_fallback = 0\n")
    night.tasks(2)
    night.plays(CRASH, "task", CRASH, "task")

    code, log = night.ends()

    assert code == 0, log
    _, other, again, last = (call.prompt for call in night.calls())
    assert "Previous Attempt" not in other
    assert "This is attempt 2. Attempt 1, by claude, failed (agent crash)" in again
    assert "This is attempt 3. Attempt 2, by claude, failed (agent crash)" in last
    assert "a half-written file" in again.split("## Previous Attempt")[1]


def test_t2_in_a_rotation_attempts_are_counted_over_all_turns(night: Night) -> None:
    night.configure('fallback = ["codex"]\nstrategy = "rotate"\n')
    night.tasks(1)
    night.plays(CRASH, CRASH)

    code, log = night.ends()

    assert code == 0, log
    _, second, third = (call.prompt for call in night.calls())
    assert "This is attempt 2. Attempt 1, by claude, failed (agent crash)" in second
    assert "This is attempt 3. Attempt 2, by codex, failed (agent crash)" in third


def test_t2_the_numbers_outlive_a_killed_loop(night: Night) -> None:
    night.configure("retries_before_fallback = 0\n")
    night.tasks(1)
    night.plays(CRASH, {"do": "hang"}, "task")
    loop = night.start()
    night.calls(2)
    loop.kill()
    night.end(loop)

    code, log = night.ends()

    assert code == 0, log
    prompt = night.calls()[-1].prompt
    assert "This is attempt 3. Attempt 1, by claude, failed (agent crash)" in prompt
    assert "a half-written file" in prompt.split("## Previous Attempt")[1]


def test_t4_a_task_is_skipped_after_more_failures_than_allowed(night: Night) -> None:
    night.configure("max_task_failures = 1\n")
    night.tasks(1)
    night.plays(CRASH, CRASH)

    code, log = night.ends()

    assert (code, night.failures(), len(night.calls())) == (1, [2], 2), log
    checkpoint = night.kept("checkpoint.json")
    assert (bool(checkpoint["session_id"]), checkpoint["resumes_session"]) == (True, False)


def test_t5_the_seconds_of_an_own_agent_are_waited_for(night: Night) -> None:
    own = night.root / "own.sh"
    own.write_text(OWN_AGENT.format(seen=night.root / "seen", bin=night.bin))
    own.chmod(0o755)
    mine = f'on_exhausted = "wait"\n[agents.mine]\ncommand = ["{own}"]\n'
    night.configure(mine.replace("[agents.mine]", '[agents.mine]\nprompt_via = "stdin"'))
    toml = night.directory / "ralph.toml"
    toml.write_text(toml.read_text().replace('primary = "claude"', 'primary = "mine"'))
    night.tasks(1)
    night.plays()

    code, log = night.ends()

    assert code == 0, log
    assert re.search(r"Ralph: mine: .*usage limit.* until \S+ \(in [012]\.\d s\)", log), log
    assert "not known" not in log


def test_us008_who_resumes_before_a_guessed_reset_has_the_agent_asked_once(night: Night) -> None:
    night.tasks(1)
    night.plays(GUESSED, GUESSED, "task")

    codes = [night.ends()[0] for _ in range(3)]

    assert codes == [75, 75, 0]
    assert [do for _, do in night.did()] == ["usage_limit", "usage_limit", "task"]


def test_003_a_lost_connection_that_hangs_is_transient_and_retried(night: Night) -> None:
    night.configure("transient_pattern_grace_seconds = 1\n", hang_s=40)
    night.tasks(1)
    night.plays({"do": "crash_then_hang", "message": "Error: read ECONNRESET\n"})

    code, log = night.ends()

    assert code == 0, log
    assert shown(log, "no sign of life for 1", "it lost its connection", "iteration 1: done"), log
    assert [do for _, do in night.did()] == ["crash_then_hang", "task"]
    assert night.failures() == [0]


def test_t7_the_retry_of_a_phase_gets_half_as_much_time_again(night: Night) -> None:
    phases = "[phases]\nenabled = true\nphase_retry_count = 1\n"
    night.configure("timeout_seconds = 1\n", phases, hang_s=30)
    night.tasks(1)
    night.plays({"do": "hang"}, {"do": "claim", "says": "First this."}, "task")

    code, log = night.ends()

    assert code == 0, log
    assert shown(
        log, "invoking phase 1 (attempt 1/2): plan, time limit 1.0 s", "(attempt 2/2): plan, time limit 1.5 s"
    ), log


def test_the_record_of_a_task_has_what_the_next_prompt_needs(night: Night) -> None:
    night.configure("max_task_failures = 1\n")
    night.tasks(1)
    night.plays(CRASH, CRASH)
    night.ends()

    (record,) = json.loads((night.home / "tasks.json").read_text())["tasks"].values()
    assert (record["attempts"], record["last_attempt"], record["last_agent"]) == (2, 2, "claude")
    assert "a half-written file" in "\n".join(record["last_lines"])
