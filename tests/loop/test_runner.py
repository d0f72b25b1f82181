"""The built-in loop from outside: real processes, real git, agents that speak as real ones do (L1 to L13)."""

import json
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.helpers import is_alive, wait_for
from tests.loop.nights import Night, night_in, shown


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    """A night."""
    with night_in(tmp_path) as night:
        yield night


def test_a_night_of_common_troubles_ends_with_each_task_done_once(night: Night) -> None:
    night.tasks(4)
    night.plays(
        {"do": "rate_limit", "holds_s": 1},
        "task",
        {"do": "crash", "exit": 3},
        {"do": "task", "leave_child": True},
        "overloaded",
        "claim",
        {"do": "promise"},
        {"do": "task", "talks_of": "429 rate limit, usage limit reached, ECONNRESET"},
        "empty",
        {"do": "task", "broken_lines": True, "escape_codes": True, "delete_untracked": True},
    )

    code, log = night.ends()

    assert code == 0, log
    assert night.open() == 0
    night.check_commits(4)
    night.check_alone()
    assert night.failures() == [0, 0, 0, 0]
    assert [call.limited for call in night.calls()].count(True) == 0  # nobody was asked during the limit
    assert shown(
        log,
        "4 of 4 tasks open",
        "rate limit",
        " until ",
        "(agent crash)",
        "(transient)",
        "(agent incomplete)",
    )
    assert "\x1b]" not in log


def test_t5_a_rate_limit_twice_is_waited_out_and_is_nobodys_failure(night: Night) -> None:
    night.tasks(1)
    night.plays({"do": "rate_limit", "holds_s": 1}, {"do": "rate_limit", "holds_s": 1}, "task")

    code, log = night.ends()

    assert code == 0, log
    assert night.did() == [("claude", "rate_limit"), ("claude", "rate_limit"), ("claude", "task")]
    assert night.failures() == [0]


def test_a_usage_limit_hands_the_task_to_the_next_agent_and_the_first_one_comes_back(night: Night) -> None:
    night.configure('fallback = ["codex"]\n', hang_s=20)
    night.tasks(2)
    night.plays(
        {"do": "usage_limit", "holds_s": 1, "agent": "claude"},
        {"do": "task", "agent": "codex", "takes_s": 2.2},  # limits are told in whole seconds
    )

    code, log = night.ends()

    assert code == 0, log
    assert night.did() == [("claude", "usage_limit"), ("codex", "task"), ("claude", "task")]
    assert shown(log, "claude: ", " until ", "codex continues")
    assert night.failures() == [0, 0]


def test_us008_without_another_agent_it_pauses_with_75_and_goes_on_from_the_checkpoint(night: Night) -> None:
    night.tasks(2)
    night.plays("task", {"do": "usage_limit", "holds_s": 5})

    code, log = night.ends()

    assert code == 75, log
    held = night.kept("checkpoint.json")
    assert (held["pause_reason"], held["task"]["id"], held["agent"]) == ("usage_limit", "US-002", "claude")
    assert held["resume_at"] is not None
    assert json.loads((night.directory / ".ralph" / "checkpoint.json").read_text()) == held

    code, log = night.ends()  # too early: the agent is still out
    assert code == 75, log
    assert len(night.calls()) == 2
    over = datetime.fromisoformat(held["resume_at"])
    wait_for(lambda: datetime.now(UTC) >= over, timeout_s=30, what="the end of the limit")
    code, log = night.ends()
    assert code == 0, log
    night.check_commits(2)
    assert not (night.home / "checkpoint.json").exists()


def test_t1_t2_after_its_retries_another_agent_gets_the_task_and_the_story_so_far(night: Night) -> None:
    night.configure('fallback = ["codex"]\nretries_before_fallback = 1\n')
    night.tasks(1)
    night.plays(
        {"do": "crash", "exit": 7, "stderr": "boom"},
        {"do": "crash", "exit": 7, "talks_of": "a half-written file"},
        {"do": "task", "agent": "codex"},
    )

    code, log = night.ends()

    assert code == 0, log
    assert [agent for agent, _ in night.did()] == ["claude", "claude", "codex"]
    first, second, third = (call.prompt for call in night.calls())
    assert "Previous Attempt" not in first
    assert "This is attempt 2. Attempt 1, by claude, failed (agent crash)" in second
    assert "This is attempt 3. Attempt 2, by claude, failed (agent crash)" in third
    assert "a half-written file" in third
    assert "Previous rotation crashed: " in third


@pytest.mark.parametrize(
    "place",
    ["checkpoint_saved", "checkpoint_cleared", "tasks_saved", "memory_saved", "handoff_saved"],
)
def test_a_loop_that_is_killed_after_any_write_goes_on_and_does_each_task_once(
    night: Night, place: str
) -> None:
    night.tasks(2)
    night.plays("task", {"do": "crash", "exit": 1}, "task")
    armed = night.root / "armed"
    failpoint = {"RALPHD_FAILPOINTS": f"loop.{place}=kill", "RALPHD_FAILPOINTS_WHEN": str(armed)}
    loop = night.start(**failpoint)
    night.calls(1)
    armed.touch()

    assert night.end(loop)[0] == -signal.SIGKILL
    code, log = night.ends()

    assert code == 0, log
    night.check_commits(2)
    night.check_alone()


def test_a_loop_that_is_killed_takes_its_agent_along_and_the_next_one_goes_on(night: Night) -> None:
    night.tasks(1)
    night.plays("hang")
    loop = night.start()
    (call,) = night.calls(1)

    loop.kill()
    night.end(loop)

    wait_for(lambda: not is_alive(call.pid), what="the agent's end")
    code, log = night.ends()
    assert code == 0, log
    assert "resuming from the checkpoint: iteration 1, task story 1" in log
    assert "attempt 1 by claude was interrupted" in log
    night.check_commits(1)


def test_us005_a_hanging_agent_is_ended_after_a_warning_and_a_checkpoint_and_tried_again(
    night: Night,
) -> None:
    night.tasks(1)
    night.plays("hang_stubborn")

    code, log = night.ends()

    assert code == 0, log
    assert shown(log, "the checkpoint is saved", "(stall)")
    night.check_alone()


def test_us004_an_agent_that_takes_too_long_is_ended_and_the_next_try_has_more_time(night: Night) -> None:
    night.configure("timeout_seconds = 2\n")
    night.tasks(1)
    night.plays({"do": "think", "seconds": 60, "every_s": 0.1})

    code, log = night.ends()

    assert code == 0, log
    assert shown(
        log, "claude: attempt 1, time limit 2.0 s", "the checkpoint is saved", "(timeout)", "time limit 3.0 s"
    )


def test_003_a_crash_message_followed_by_silence_ends_the_agent_and_is_noted(night: Night) -> None:
    night.tasks(1)
    night.plays({"do": "crash_then_hang", "message": "Error: No messages returned\n"})

    code, log = night.ends()

    assert code == 0, log
    assert shown(log, "(agent crash)", "No messages returned")
    assert "Previous rotation crashed: " in night.calls()[1].prompt


def test_us009_a_pause_waits_for_the_iteration_and_the_next_run_goes_on(night: Night) -> None:
    night.tasks(2)
    night.plays({"do": "task", "takes_s": 1})
    loop = night.start()
    night.calls(1)

    loop.send_signal(signal.SIGUSR1)
    code, log = night.end(loop)

    assert code == 75, log
    assert "Pausing after current iteration..." in log
    assert night.open() == 1
    assert night.kept("checkpoint.json")["pause_reason"] == "user_requested"
    assert night.ends()[0] == 0


def test_us006_ctrl_c_in_a_wait_keeps_the_checkpoint_and_ends_with_130(night: Night) -> None:
    night.tasks(1)
    night.plays({"do": "rate_limit", "seconds": 100})
    loop = night.start()
    wait_for(lambda: _rests(night), timeout_s=30, what="a wait")

    loop.send_signal(signal.SIGINT)
    code, log = night.end(loop)

    assert code == 130, log
    held = night.kept("checkpoint.json")
    assert (held["pause_reason"], held["task"]["id"]) == ("interrupted", "US-001")


def test_us007_a_wait_is_skipped_by_its_signal(night: Night) -> None:
    night.tasks(1)
    night.plays({"do": "rate_limit", "seconds": 100})
    loop = night.start()
    wait_for(lambda: _rests(night), timeout_s=30, what="a wait")

    loop.send_signal(signal.SIGUSR2)

    assert night.end(loop)[0] == 0


def test_what_a_person_ticks_in_a_wait_is_not_done_again(night: Night) -> None:
    night.tasks(2)
    night.plays({"do": "rate_limit", "seconds": 100})
    loop = night.start()
    wait_for(lambda: _rests(night), timeout_s=30, what="a wait")

    text = (night.directory / "prd.json").read_text()
    night.write("prd.json", text.replace("false", "true", 1))
    loop.send_signal(signal.SIGUSR2)

    code, log = night.end(loop)
    assert code == 0, log
    (call,) = night.calls()[1:]
    assert "US-002" in call.prompt and "US-001" not in call.prompt


def _rests(night: Night) -> bool:
    checkpoints = night.root.glob("state/ralphd/loop/*/checkpoint.json")
    return any(json.loads(each.read_text())["pause_reason"] == "rate_limit" for each in checkpoints)


def test_a_second_ctrl_c_ends_the_agent_now(night: Night) -> None:
    night.tasks(1)
    night.plays("hang")
    loop = night.start()
    (call,) = night.calls(1)

    loop.send_signal(signal.SIGINT)
    assert loop.stdout is not None
    line = next(line for line in loop.stdout if "stopping after this iteration" in line)
    loop.send_signal(signal.SIGINT)
    code, log = night.end(loop)

    assert code == 130, line + log
    assert not is_alive(call.pid)
    assert night.failures() == [0]


def test_l10_a_limit_of_iterations_really_stops_it(night: Night) -> None:
    night.configure(more="[ralph]\nmax_iterations = 2\n")
    night.tasks(3)
    night.plays()

    code, log = night.ends()

    assert code == 5, log
    assert night.open() == 1
    assert "max_iterations = 2 reached" in log


def test_l10_a_limit_of_costs_really_stops_it(night: Night) -> None:
    night.configure(more="[ralph]\nmax_cost_usd = 0.5\n")
    night.tasks(3)
    night.plays({"do": "task", "cost_usd": 0.3}, {"do": "task", "cost_usd": 0.3})

    code, log = night.ends()

    assert (code, night.open()) == (5, 1), log
    assert night.kept("loop.json")["cost_usd"] == 0.6


def test_l10_without_a_list_the_promise_ends_it_and_an_echoed_prompt_does_not(night: Night) -> None:
    night.write("PROMPT.md", "Do it all, then say\n<promise>COMPLETE</promise>\n")
    night.git("add", "-A")
    night.git("commit", "-qm", "start")
    night.plays({"do": "task", "echo_prompt": True}, "promise")

    code, log = night.ends()

    assert code == 0, log
    assert len(night.calls()) == 2
    assert "the agent declared that all is done" in log


def test_l10_without_a_list_two_iterations_without_a_commit_end_it(night: Night) -> None:
    night.plays("claim", "claim", "claim")

    code, log = night.ends()

    assert code == 0, log
    assert len(night.calls()) == 2
    assert "succeeded without a commit" in log


def test_l9_what_is_done_is_pushed_to_the_upstream(night: Night) -> None:
    night.configure(more="[git]\nauto_push = true\nauto_pull_rebase = true\n")
    night.tasks(1)
    night.git("init", "-q", "--bare", str(night.root / "origin.git"))
    night.git("remote", "add", "origin", str(night.root / "origin.git"))
    night.git("push", "-q", "-u", "origin", "main")
    night.plays()

    code, log = night.ends()

    assert code == 0, log
    assert night.git("rev-parse", "main") == night.git("rev-parse", "origin/main")
    assert night.git("ls-remote", "origin", "main").split()[0] == night.git("rev-parse", "main").strip()


def test_uncommitted_work_is_kept_in_a_snapshot_when_the_agent_crashes(night: Night) -> None:
    night.tasks(1)
    night.plays({"do": "usage_limit", "holds_s": 100})
    night.write("half.txt", "half of it\n")

    assert night.ends()[0] == 75

    held = night.kept("checkpoint.json")
    assert held["uncommitted_files"] == ["half.txt"]
    assert night.git("show", f"{held['snapshot_ref']}:half.txt") == "half of it\n"
    assert (night.directory / "half.txt").read_text() == "half of it\n"


def test_what_a_crashed_agent_left_half_written_is_set_aside_where_that_is_asked_for(night: Night) -> None:
    night.configure(more='[git]\nrepair = "abort"\n')
    night.tasks(1)
    night.write("mine.txt", "not committed\n")
    night.plays({"do": "crash", "leaves": {"half.py": "def later(:"}}, "task")

    code, log = night.ends()

    assert code == 0, log
    assert (night.directory / "mine.txt").read_text() == "not committed\n"
    assert not (night.directory / "half.py").exists()
    ref = night.git("for-each-ref", "--format=%(refname)", "refs/ralph/left").strip()
    assert night.git("show", f"{ref}:half.py") == "def later(:"
    told = f"set aside: half.py. See it: git show --stat {ref}"
    assert told in log and told in night.calls()[-1].prompt


def test_what_was_done_on_no_branch_is_brought_to_the_branch_before_it_is_judged(night: Night) -> None:
    night.configure(more='[git]\nrepair = "abort"\n')
    night.tasks(2)
    night.plays({"do": "task", "detaches": True}, "task")

    code, log = night.ends()

    assert code == 0, log
    assert night.git("symbolic-ref", "HEAD") == "refs/heads/main\n"
    night.check_commits(2)
    assert "HEAD was on no branch: it is on main again, with its commits" in log


def _break_list(night: Night) -> None:
    night.write("prd.json", '{"userStories": [\n{"id": "US-001"\n]}')


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda night: (night.directory / "PROMPT.md").unlink(), "PROMPT.md"),
        (lambda night: night.write("PROMPT.md", " \n"), "empty"),
        (lambda night: (night.directory / "PROMPT.md").write_bytes(b"\xff\xfe"), "UTF-8"),
        (_break_list, "line 3"),
        (lambda night: night.configure('fallback = ["cluade"]\n'), "cluade"),
    ],
    ids=["no prompt", "empty prompt", "no text", "broken list", "unknown agent"],
)
def test_bad_input_is_said_and_nothing_is_begun(night: Night, spoil: object, words: str) -> None:
    night.tasks(1)
    night.plays()
    assert callable(spoil)
    spoil(night)

    code, log = night.ends()

    assert code == 78, log
    assert words in log
    assert "Traceback" not in log
    assert not night.calls()


def test_an_agent_that_is_not_installed_is_said_and_the_next_one_works(night: Night) -> None:
    night.configure('fallback = ["codex"]\n')
    night.tasks(1)
    night.plays()
    (night.bin / "claude").unlink()

    code, log = night.ends(PATH=f"{night.bin}{os.pathsep}/usr/bin{os.pathsep}/bin")

    assert code == 0, log
    assert "claude is not used until you act" in log
    assert night.did() == [("codex", "task")]


def test_a_second_loop_in_the_same_directory_is_refused(night: Night) -> None:
    night.tasks(1)
    night.plays("hang")
    first = night.start()
    night.calls(1)

    code, log = night.ends()

    assert code == 78, log
    assert f"held by pid {first.pid}" in log
    night.loop = first


def test_a_checkpoint_of_a_newer_version_is_kept_as_it_is(night: Night) -> None:
    night.tasks(1)
    night.plays({"do": "usage_limit", "holds_s": 100})
    assert night.ends()[0] == 75
    newer = json.dumps({**night.kept("checkpoint.json"), "version": 99})
    (night.home / "checkpoint.json").write_text(newer)

    code, log = night.ends()

    assert code == 78, log
    assert (night.home / "checkpoint.json").read_text() == newer
    assert "99" in log


def test_without_a_repository_it_works_all_the_same(night: Night) -> None:
    for name in ("HEAD", "config"):
        (night.directory / ".git" / name).unlink()
    night.plays("promise")

    code, log = night.ends()

    assert code == 0, log
    assert "not a git repository" in log
