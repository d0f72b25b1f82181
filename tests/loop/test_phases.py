"""Attempts in phases from outside: plan, implement, review, address, and where they go on (L14, L15, 004)."""

import json
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import is_alive, wait_for
from tests.loop.nights import Night, night_in, shown

PLAN = {"do": "claim", "says": "First this, then that."}
WORKED = {"do": "claim", "says": "It is put right."}
DISMISSES = {"do": "claim", "says": 'Not worth it: {"dismiss": ["R1"], "why": "by design"}'}
FINDS = """echo '{"findings": [{"id": "R1", "message": "a name is too short", "file": "a.py", "line": 3}]}'"""
CLEAN = "echo '[]'"
PHASES = """
[phases]
enabled = true
review_command = {command}
{more}
"""


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    """A night in which attempts have phases."""
    with night_in(tmp_path) as night:
        yield night


def reviews(night: Night, *scripts: str, more: str = "", agents: str = "", hang_s: float = 20) -> None:
    """The review says this, one time after the other; then that all is well."""
    folder = night.root / "reviews"
    folder.mkdir(exist_ok=True)
    for number, script in enumerate(scripts, 1):
        (folder / f"{number}.sh").write_text(script)
    (folder / "next.sh").write_text(
        f"cd {shlex.quote(str(folder))}\necho >>count\nn=$(wc -l <count)\n"
        'if [ -e "$n.sh" ]; then . "./$n.sh"; else echo "[]"; fi\n'
    )
    command = json.dumps(f"sh {shlex.quote(str(folder / 'next.sh'))}")
    night.configure(agents, PHASES.format(command=command, more=more), hang_s=hang_s)


def invoked(log: str) -> list[str]:
    """The phases with an agent, in the order in which they were begun."""
    return re.findall(r"invoking phase \d \(attempt \d/\d\): (\w+)", log)


def test_l14_an_attempt_plans_implements_is_reviewed_and_addresses_what_was_found(night: Night) -> None:
    reviews(night, FINDS)
    night.tasks(1)
    night.plays(PLAN, {"do": "task", "cost_usd": 0.5}, {**WORKED, "cost_usd": 0.25})

    code, log = night.ends()

    assert code == 0, log
    plan, implement, address = (call.prompt for call in night.calls())
    assert "## This phase: plan" in plan
    assert "First this, then that." in implement
    assert "- [R1] a.py:3: a name is too short" in address
    assert shown(
        log,
        "invoking phase 1 (attempt 1/1): plan",
        "invoking phase 2 (attempt 1/1): implement",
        "review: sh ",
        "the review took ",
        "the review has 1 finding: a.py:3: a name is too short",
        "invoking phase 3 (attempt 1/1): address",
        "the review has no findings",
        "iteration 1: done",
    )
    assert night.kept("loop.json")["cost_usd"] == 0.76
    kept = sorted(each.name for each in (night.home / "attempts").iterdir())
    assert kept == [f"00001-01-{name}" for name in ("address", "implement", "plan", "review", "review-2")]
    assert not (night.home / "phases.json").exists()
    night.check_alone()


def test_004_address_and_triage_are_tried_again_twice_at_most_and_every_try_is_logged(night: Night) -> None:
    reviews(night, FINDS, FINDS, more="phase_3_retry_count = 7")
    night.tasks(1)
    night.plays(PLAN, "task", "crash", "empty", WORKED, "crash", DISMISSES)

    code, log = night.ends()

    assert code == 0, log
    assert invoked(log) == ["plan", "implement", *["address"] * 3, *["triage"] * 2]
    assert shown(
        log, "invoking phase 3 (attempt 1/3): address", "phase 3 failed, retrying: Segmentation fault"
    )
    assert shown(log, "invoking phase 3 (attempt 3/3): address", "phase 3 failed, retrying", "(attempt 2/3)")
    assert (
        "phase 3 (address): Segmentation fault" in night.calls()[3].prompt
    )  # what went wrong, for the next try
    assert shown(log, "the triage dismisses 1 finding: a.py:3", "iteration 1: done")
    assert len(night.calls()) == 7


def test_l14_what_ends_an_attempt_leaves_the_phase_where_the_next_one_goes_on(night: Night) -> None:
    """A crash, a limit, findings that are left: each has its task here, and each plan is made once."""
    reviews(night, CLEAN, FINDS, CLEAN, FINDS, FINDS, more="max_address_rounds = 1")
    night.tasks(3)
    night.plays(
        *(PLAN, {"do": "crash", "exit": 3}, "task"),  # 1: the work fails; then its review is clean
        *(PLAN, "task", {"do": "rate_limit", "seconds": 0.1}, WORKED),  # 2: a limit before it is addressed
        *(
            PLAN,
            "task",
            WORKED,
            {"do": "claim", "says": "All of it needs work."},
            "claim",
        ),  # 3: findings left
    )

    code, log = night.ends()

    assert code == 0, log
    first, second = ["plan", "implement", "implement"], ["plan", "implement", "address", "address"]
    assert invoked(log) == [*first, *second, "plan", "implement", "address", "triage", "implement"]
    assert shown(log, "failed (agent crash): phase 2 (implement): Segmentation fault")
    assert shown(log, "claude: phase 3 (address)", "invoking phase 3 (attempt 1/1): address")
    assert shown(
        log, "failed (agent incomplete): 1 finding is left after 1 round: a.py:3: a name is too short"
    )
    assert "1 finding is left after 1 round" in night.calls()[-1].prompt
    assert night.open() == 0
    night.check_alone()


def test_l15_a_triage_that_takes_too_long_fails_the_attempt_and_one_that_crashes_dismisses_nothing(
    night: Night,
) -> None:
    reviews(night, FINDS, FINDS, agents="timeout_seconds = 2\n")
    night.tasks(1)
    night.plays(PLAN, "task", WORKED, {"do": "think", "seconds": 60}, "crash", WORKED)

    code, log = night.ends()

    assert code == 0, log
    assert invoked(log) == ["plan", "implement", "address", "triage", "triage", "address"]
    assert shown(log, "the checkpoint is saved", "failed (timeout): phase 3 (triage)")
    assert "phase 3 failed, so that nothing is dismissed: Segmentation fault" in log


def test_l14_a_loop_that_is_killed_in_any_phase_goes_on_there(night: Night) -> None:
    """The task is ticked when its review begins: it is not done before the review says so."""
    hangs = f"touch {shlex.quote(str(night.root / 'reviews' / 'here'))}; sleep 100"
    reviews(night, hangs, FINDS, FINDS)
    night.tasks(1)
    hang = {"do": "hang"}
    night.plays(hang, PLAN, hang, "task", hang, WORKED, hang, DISMISSES)

    logs = []
    for calls in (1, 3):
        loop = night.start()
        night.calls(calls)
        loop.kill()
        logs.append(night.end(loop)[1])
    loop = night.start()
    wait_for((night.root / "reviews" / "here").exists, what="the review")
    held = night.kept("phases.json")
    loop.kill()
    logs.append(night.end(loop)[1])
    for calls in (5, 7):
        loop = night.start()
        night.calls(calls)
        loop.kill()
        logs.append(night.end(loop)[1])
    code, log = night.ends()

    assert code == 0, log
    assert (held["phase"], held["plan"], night.open()) == ("review", "First this, then that.", 0)
    assert list(map(invoked, logs)) == [
        ["plan"],
        ["plan", "implement"],
        ["implement"],
        ["address"],
        ["address", "triage"],
    ]
    assert invoked(log) == ["triage"]
    assert "waiting for a review: US-001" in log
    assert "First this, then that." in night.calls()[3].prompt
    night.check_alone()


def test_l15_a_review_that_cannot_be_run_ends_the_loop_until_a_person_has_put_it_right(night: Night) -> None:
    reviews(night, "exec no-such-linter --all")
    night.tasks(1)
    night.plays(PLAN)

    code, log = night.ends()

    assert code == 78, log
    assert shown(log, "cannot continue: nothing could be reviewed: it was not found: ", "no-such-linter")
    assert shown(log, "fix [phases] review_command in ralph.toml, then start it again")
    assert night.kept("phases.json")["phase"] == "review"
    assert night.kept("checkpoint.json")["task"]["id"] == "US-001"
    code, log = night.ends()
    assert (code, invoked(log)) == (0, []), log
    assert len(night.calls()) == 2


def test_l15_findings_that_are_left_may_be_a_warning(night: Night) -> None:
    reviews(
        night, FINDS, "exec no-such-linter", more='max_address_rounds = 0\non_findings_remaining = "warn"'
    )
    night.tasks(2)
    night.plays(PLAN, "task", PLAN, "task")

    code, log = night.ends()

    assert code == 0, log
    assert shown(log, "1 finding is left after 0 rounds: a.py:3: a name is too short; that is a warning")
    assert shown(
        log, "iteration 1: done", "not reviewed: it was not found", "that is a warning", "iteration 2: done"
    )


def test_l12_a_second_ctrl_c_ends_a_review_with_all_that_it_has_started(night: Night) -> None:
    pids = night.root / "pids"
    reviews(night, f"sleep 100 & setsid sleep 100 & echo $$ $! >{shlex.quote(str(pids))}; wait")
    night.tasks(1)
    night.plays(PLAN)
    loop = night.start()
    wait_for(lambda: pids.exists() and pids.read_text(), timeout_s=30, what="the review")

    loop.send_signal(signal.SIGINT)
    assert loop.stdout is not None
    line = next(line for line in loop.stdout if "stopping after this iteration" in line)
    loop.send_signal(signal.SIGINT)
    code, log = night.end(loop)

    assert code == 130, line + log
    assert not [pid for pid in map(int, pids.read_text().split()) if is_alive(pid)]
    assert night.failures() == [0]
    assert night.kept("phases.json")["phase"] == "review"


def test_l15_a_review_that_takes_too_long_is_made_twice_and_a_flood_is_read_to_its_end(night: Night) -> None:
    flood = "head -c 52428800 /dev/zero | tr '\\\\0' x; echo; echo the last line; exit 1"
    reviews(night, flood, "sleep 60", agents="timeout_seconds = 2\n")
    night.tasks(1)
    night.plays(PLAN, "task", WORKED)

    code, log = night.ends()

    assert code == 0, log
    assert "the last line" in night.calls()[2].prompt
    assert len(night.calls()[2].prompt) < 20_000
    assert "no review: it ran into its time limit of 2.0 s; once more" in log


def test_l15_a_real_linter_is_a_review(night: Night) -> None:
    ruff = Path(sys.executable).with_name("ruff")
    command = json.dumps(f"{shlex.quote(str(ruff))} check --isolated --no-cache --output-format json .")
    night.configure("", PHASES.format(command=command, more=""), hang_s=20)
    night.tasks(1)
    night.plays(
        PLAN,
        {"do": "task", "files": {"a.py": "import os\n"}},
        {"do": "task", "files": {"a.py": "import os\n\nprint(os.name)\n"}},
    )

    code, log = night.ends()

    assert code == 0, log
    assert "`os` imported but unused" in night.calls()[2].prompt
    assert "a.py:1" in night.calls()[2].prompt
    assert shown(log, "the review has 1 finding", "the review has no findings")


def test_a_long_review_command_is_cut_visibly_in_the_log(night: Night) -> None:
    night.configure("", PHASES.format(command=json.dumps(f"true {'long ' * 40}; true"), more=""), hang_s=20)
    night.tasks(1)
    night.plays(PLAN, WORKED)

    _, log = night.ends()

    assert "long long…, time limit" in log


def test_l14_without_a_review_command_there_is_plan_and_implement_and_that_is_said(night: Night) -> None:
    night.configure("", "[phases]\nenabled = true\n", hang_s=20)
    night.tasks(1)
    night.plays(PLAN, "task")

    code, log = night.ends()

    assert code == 0, log
    assert invoked(log) == ["plan", "implement"]
    assert "an attempt is plan and implement, and no review" in log


def test_l6_the_attempts_time_holds_for_all_its_phases(night: Night) -> None:
    reviews(night, "sleep 60", agents="timeout_seconds = 2\niteration_timeout_seconds = 3\n")
    night.tasks(1)
    night.plays({**PLAN, "takes_s": 1}, {"do": "task", "takes_s": 1})

    code, log = night.ends()

    assert code == 0, log
    assert shown(log, "failed (timeout): the 3.0 s of the attempt were used up in the review")
    assert invoked(log) == ["plan", "implement"]
