"""What a person reads at seven in the morning: the state with its reason, waits with their countdown."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ralphctl.commands import attach, build
from ralphctl.format import humanize, state_text, status_text
from ralphctl.live.screen import countdown_lines, wait_announcement
from ralphd import wire
from ralphd.core.loop.model import PauseReason
from ralphd.core.plan import list_words, parse
from ralphd.errors import CommandNotStartable
from tests.ctl.fake import view
from tests.ctl.golden_files import Golden

NOW_TEXT = "2026-11-21T07:00:00Z"
NOW = 1795244400.0


@pytest.fixture(autouse=True)
def seoul(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is nine hours ahead."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Seoul")
        patched.setenv("HOME", "/home/someone")
        time.tzset()
        yield
    time.tzset()


LIMIT = {"reason": "usage_limit", "until": "2026-11-21T09:13:00Z"}
CRASH = {"reason": "crash", "until": "2026-11-21T07:00:25Z"}


STATES: list[dict[str, Any]] = [
    {"state": "idle"},
    {"state": "running"},
    {"state": "running", "ralph_pid": None, "started_at": None},
    {"state": "waiting_for_retry", "wait": CRASH},
    {"state": "waiting_for_retry", "wait": {**CRASH, "until": NOW_TEXT}},
    {"state": "waiting_for_retry", "wait": None},
    {"state": "paused", "pause_reason": "usage_limit", "wait": LIMIT},
    {"state": "paused", "pause_reason": "requested"},
    {"state": "paused", "pause_reason": "the moon\x1b[2J"},
    {"state": "stopping"},
    {"state": "pausing", "message": "ends when its iteration is finished; asked at 2026-11-21T06:48:00Z"},
    {"state": "running", "wait": LIMIT, "task": {"id": "US-1", "title": "Parse"}},
    {"state": "running", "wait": {"reason": "the moon\x1b[2J", "until": NOW_TEXT}},
    {"state": "running", "wait": {"reason": "tide", "until": NOW_TEXT}},
    {"state": "running", "wait": {"reason": "codex is out: Try later.", "until": NOW_TEXT}},
    {"state": "stopped", "finished_at": "2026-11-21T06:57:55Z"},
    {
        "state": "stopped",
        "message": "no progress: two iterations committed nothing",
        "finished_at": "2026-11-21T06:57:55Z",
    },
    {"state": "failed", "message": "exit 1 three times", "finished_at": "2026-11-20T06:00:00Z"},
    {"state": "failed", "consecutive_errors": 3, "last_exit": {"code": None, "signal": 11}},
    {"state": "done", "finished_at": NOW_TEXT},
    {
        "state": "done",
        "message": "but 1 file was not committed: a; next: git status",
        "finished_at": NOW_TEXT,
    },
    {"state": "of the future"},
]


def test_a_state_is_told_in_words(golden: Golden) -> None:
    texts = [state_text.state_words(view(started_at="2026-11-21T04:47:00Z") | each, NOW) for each in STATES]
    golden({json.dumps(each): said for each, said in zip(STATES, texts, strict=True)})


def test_of_a_loop_that_works_again_the_checkpoint_tells_no_end_of_a_wait(golden: Golden) -> None:
    held = {
        "iteration": 2,
        "max_iterations": 1,
        "pause_reason": "rate_limit",
        "resume_at": "2026-11-21T07:01:00Z",
    }
    paused = view(state="paused", ralph_pid=None)
    golden(
        status_text.ralph(paused, NOW, checkpoint=held),
        status_text.ralph(view(), NOW, checkpoint=held),  # a limit counts from each start anew
    )


def test_one_that_was_stopped_resumes_when_a_person_says_so() -> None:
    held = {"iteration": 2, "pause_reason": "rate_limit", "resume_at": "2026-11-21T07:01:00Z"}
    paused = view(state="paused", ralph_pid=None)
    assert "resumes" in status_text.ralph(paused, NOW, checkpoint=held)
    step = ("continue", "ralphctl build")  # without a daemon, nothing continues without a person
    assert "resumes" not in status_text.ralph(paused, NOW, checkpoint=held, step=step)
    assert "resumes" not in status_text.ralph(view(state="stopped", ralph_pid=None), NOW, checkpoint=held)


def test_a_used_up_budget_needs_a_larger_one() -> None:
    done = view(state="done", ralph_pid=None, message="a limit: $5.00 of $4.00 spent (max_cost_usd)")
    assert ("give it more", "ralphctl start --max-cost USD api") in state_text.next_steps(done)
    step = ("give it more", "ralphctl build --max-cost USD")
    assert build._next_steps(done) == [state_text.build_step(done, done["directory"])] == [step]


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (0, "16:00:00"), (86400, "tomorrow 16:00"), (-86400, "yesterday 16:00"),
        (3 * 86400, "Tue 24 Nov 16:00"),
        (8 * 3600, "tomorrow 00:00"), (400 * 86400, "26 Dec 2027 16:00"),
    ],
)  # fmt: skip
def test_a_clock_names_the_day_when_it_is_not_today(at: float, said: str) -> None:
    assert humanize.clock(NOW + at, NOW) == said


def test_the_day_before_a_short_or_a_long_day_is_yesterday(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    monday = time.mktime((2026, 3, 30, 0, 30, 0, 0, 0, -1))  # Sunday had 23 hours
    assert humanize.clock(monday - 3600, monday) == "yesterday 23:30"
    assert humanize.clock(monday - 86_400, monday) == "Sat 28 Mar 23:30"
    sunday = time.mktime((2026, 10, 25, 23, 30, 0, 0, 0, -1))  # it has 25
    assert humanize.clock(sunday - 86_400, sunday) == "00:30:00"
    assert humanize.clock(sunday - 90_000, sunday) == "yesterday 23:30"


def test_last_output_tells_its_age_and_its_time(golden: Golden) -> None:
    golden(
        status_text.ralph(view(last_output_at="2026-11-21T06:59:48Z"), NOW),
        status_text.ralph(view(last_output_at=None), NOW),
    )


def test_without_a_daemon_an_output_that_is_not_in_the_file_yet_is_unknown(golden: Golden) -> None:
    idle = view(last_output_at=None, state="idle", run_id=None)
    views = (view(last_output_at=None), idle, view(last_output_at="2026-11-21T06:59:48Z"))
    golden(*(status_text.ralph(each, NOW, step=("start it", "now")) for each in views))


def test_every_state_comes_with_something_to_do() -> None:
    for state in wire.STATES:
        assert all(how.startswith("ralphctl ") for _, how in state_text.next_steps(view(state=state)))


def test_without_a_daemon_what_waits_for_one_is_not_told_to_skip_its_wait(golden: Golden) -> None:
    waits = view(state="waiting_for_retry", wait={"reason": "no_daemon", "until": None})
    golden([f"{does}: {how}" for does, how in state_text.next_steps(waits)])


def test_every_reason_for_a_pause_has_words() -> None:
    assert not [reason for reason in PauseReason if "(" in humanize.pause_words(reason.value)]


def test_a_wait_of_the_built_in_loop_can_be_skipped(golden: Golden) -> None:
    waits = view(name="api", command=[], wait={"reason": "rate_limit", "until": "2026-11-21T07:04:00Z"})
    golden(
        *(
            [f"{does}: {how}" for does, how in state_text.next_steps(each)]
            for each in (waits, {**waits, "command": ["./loop.sh"]})
        )
    )


def test_a_wait_is_counted_down_in_one_line(golden: Golden) -> None:
    waits = view(command=[], wait={"reason": "rate_limit", "until": "2026-11-21T07:04:12Z"})
    golden(countdown_lines(waits, NOW, has_keys=True)[:1], wait_announcement(waits, NOW))
    assert countdown_lines(waits, NOW + 300, has_keys=True) == []
    assert countdown_lines(view(), NOW, has_keys=True) == []
    assert wait_announcement(view(state="waiting_for_retry", wait=CRASH), NOW) == ""


def test_text_of_others_cannot_move_the_terminal() -> None:
    evil = "\x1b[2J\nfake  running\u202e"
    text = status_text.ralph(
        view(
            task=evil,
            directory=f"/{evil}",
            command=[evil],
            message=evil,
            branch=evil,
            notes=[evil],
            state=evil,
        ),
        NOW,
        checkpoint={"task": {"title": evil}, "pause_reason": evil, "iteration": evil},
    )
    assert not set(text) & {"\x1b", "\u202e"}
    assert not any(line.startswith("fake") for line in text.splitlines())


def test_what_a_tree_uses_is_told_when_it_was_asked_for(golden: Golden) -> None:
    used = {"cpu_s": 754.2, "rss_bytes": 91_000_000, "processes": 3}
    golden(status_text.ralph(view(resources=used), NOW))


def test_a_command_is_shown_as_it_would_be_typed_and_a_home_is_short(golden: Golden) -> None:
    shell = view(command=["sh", "-c", "echo 'hi' there"], directory="/home/someone/x")
    golden(status_text.ralph(shell, NOW), status_text.ralph(view(command=[]), NOW))


def test_a_pause_before_the_loop_has_begun_tells_of_no_checkpoint(golden: Golden, tmp_path: Path) -> None:
    paused = view(
        state="paused", pause_reason="requested", command=[], checkpoint=None, directory=str(tmp_path)
    )
    assert build._settled_code(paused) == wire.EXIT_PAUSED
    golden(build._settled_words(paused, NOW))


def test_only_another_agent_that_is_installed_is_suggested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = {"agents": [{"name": "codex"}]}
    limited = view(state="paused", pause_reason="usage_limit", command=[], directory=str(tmp_path), pool=pool)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "another agent" not in str(build._next_steps(limited))
    for name in ("codex", "gemini", "claude"):
        (tmp_path / name).symlink_to("/bin/true")
    step = ("continue with another agent", "ralphctl build --fallback gemini")
    assert build._next_steps(limited)[-1] == step


def test_what_a_start_advises_is_said_in_the_words_of_build(golden: Golden) -> None:
    fault = CommandNotStartable(
        "no claude", mend="install it, or name another one: ralphctl start --agent NAME"
    )
    golden(build._of_build(fault, "/x").mend)


def test_status_has_no_count_of_tasks_from_the_start() -> None:
    notes = ["the task list is TASKS.md: 5 tasks, 5 open at the start", "not a git repository"]
    shown = status_text.ralph(view(tasks={"done": 5, "total": 5}, notes=notes), NOW)
    assert "at the start" not in shown and "not a git repository" in shown
    assert "at the start" in status_text.ralph(view(notes=notes), NOW)


def test_one_task_is_no_tasks() -> None:
    assert "1 of 1 task done" in state_text.work_words(view(tasks={"done": 1, "total": 1}))
    assert list_words(parse("TASKS.md", "- [ ] one\n")) == "TASKS.md: 1 of 1 task open"


def test_attach_ends_with_the_tasks_and_the_cost() -> None:
    done = view(state="done", tasks={"done": 2, "total": 2}, total_cost_usd=0.22, finished_at=None)
    words = attach._settled_words(done, NOW)[0]
    assert words.startswith("api: done: 2 of 2 tasks done") and words.endswith("$0.22")
