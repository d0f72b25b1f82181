"""The question before a loop starts where a checkpoint is, on a real terminal and without one (L13)."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ralphctl.format import checkpoint_text
from ralphctl.offline import checkpoint
from ralphctl.offline import state as offline
from ralphd.core.loop.model import CHECKPOINT_VERSION
from tests.ctl.conftest import Ctl
from tests.ctl.fake import Answer, FakeDaemon, view
from tests.ctl.format.test_state_text import NOW
from tests.ctl.golden_files import Golden
from tests.helpers import wait_for
from tests.template import CLOCK, command
from tests.terminal import Terminal

HELD: dict[str, Any] = {
    "version": 1, "created_at": "2026-11-21T04:47:00Z", "iteration": 6, "max_iterations": 40,
    "task": {"id": "T-3", "title": "Mend the parser", "attempt": 2}, "agent": "claude",
    "pause_reason": "usage_limit", "resume_at": "2026-11-21T09:13:00Z",
    "uncommitted_files": ["a.py", "b\x1b[2J"],
    "head_commit": "abc1234", "snapshot_ref": "refs/ralph/checkpoints/000006", "session_id": None,
    "total_cost_usd": 1.424, "why": "claude has used up its plan",
}  # fmt: skip
START = "POST /v1/ralphs/api/start"
QUESTION = "Resume, Discard, or View details? [R/d/v]"
Start = Callable[..., Terminal]


@pytest.fixture
def work(tmp_path: Path, daemon: FakeDaemon) -> Path:
    """The directory of a ralph with the built-in loop, which is stopped and has a checkpoint."""
    directory = tmp_path / "api"
    directory.mkdir()
    daemon.views = {"api": view(state="stopped", command=[], directory=str(directory), ralph_pid=None)}
    home = tmp_path / "state" / "ralphs" / "api"
    home.mkdir(parents=True)
    (home / "checkpoint.json").write_text(json.dumps(HELD))
    return directory


def resume_of(daemon: FakeDaemon) -> dict[str, Any]:
    """What the request says of the checkpoint."""
    return {key: value for key, value in daemon.body_of(START).items() if key == "resume"}


def original(work: Path) -> Path:
    return work.parent / "state" / "ralphs" / "api" / "checkpoint.json"


@pytest.fixture
def start(environment: dict[str, str], work: Path) -> Iterator[Start]:
    """``ralphctl start`` on a terminal, at ``NOW``."""
    opened: list[Terminal] = []

    def begin(*words: str) -> Terminal:
        around = environment | {"NO_COLOR": "1", CLOCK: str(NOW)}
        argv = command("ralphctl", ["start", *words], around)
        opened.append(Terminal(argv, cwd=work, environment=around, columns=300))
        return opened[-1]

    yield begin
    for terminal in opened:
        with terminal:
            pass


def test_on_a_terminal_the_checkpoint_is_told_and_enter_resumes(
    start: Start, daemon: FakeDaemon, golden: Golden
) -> None:
    terminal = start()
    terminal.shows(QUESTION)
    assert daemon.lines() == []
    terminal.type(b"\r")

    assert terminal.exit_code() == 0
    golden(terminal.lines())
    assert resume_of(daemon) == {"resume": True}


def test_view_shows_all_of_it_and_asks_again_and_discard_says_where_it_is_kept(
    start: Start, daemon: FakeDaemon, golden: Golden, work: Path
) -> None:
    terminal = start("api")
    terminal.shows(QUESTION)
    terminal.type(b"what?\r")
    wait_for(lambda: terminal.screen().count(QUESTION) == 2)
    terminal.type(b"v\r")
    wait_for(lambda: terminal.screen().count(QUESTION) == 3)
    assert "\x1b" not in terminal.screen()
    terminal.type(b"Discard\r")

    assert terminal.exit_code() == 0
    golden(terminal.lines())
    assert resume_of(daemon) == {"resume": False}
    assert original(work).exists()  # that is the loop's to do


def test_ctrl_c_at_the_question_changes_and_starts_nothing(
    start: Start, daemon: FakeDaemon, golden: Golden
) -> None:
    terminal = start()
    terminal.shows(QUESTION)
    terminal.type(b"\x03")

    assert terminal.exit_code() == 130
    golden(terminal.lines())
    assert daemon.lines() == []


def test_the_end_of_input_at_the_question_is_as_without_a_terminal(
    start: Start, daemon: FakeDaemon, golden: Golden
) -> None:
    terminal = start()
    terminal.shows(QUESTION)
    terminal.type(b"\x04")

    assert terminal.exit_code() == 0
    golden(terminal.lines())
    assert resume_of(daemon) == {}


def test_without_a_terminal_it_resumes_and_says_so_in_one_line(
    ctl: Ctl, daemon: FakeDaemon, golden: Golden, work: Path
) -> None:
    reply = ctl("start", cwd=work)
    golden(reply)
    assert reply.returncode == 0
    assert resume_of(daemon) == {}


@pytest.mark.parametrize(("flag", "sent"), [("--resume", True), ("--no-resume", False)])
def test_a_flag_answers_the_question(flag: str, sent: bool, ctl: Ctl, daemon: FakeDaemon, work: Path) -> None:
    assert ctl("start", "api", flag).returncode == 0
    assert resume_of(daemon) == {"resume": sent}


def test_both_flags_or_one_with_a_command_are_a_usage_error(
    ctl: Ctl, daemon: FakeDaemon, golden: Golden
) -> None:
    both, own = ["--resume", "--no-resume"], ["--resume", "--", "./loop.sh"]
    replies = [ctl(command, *words) for words in (both, own) for command in ("start", "build")]
    golden(*replies)
    assert {reply.returncode for reply in replies} == {2}
    assert daemon.asked == []


def test_a_ralph_with_a_command_of_its_own_is_not_asked_about(
    start: Start, daemon: FakeDaemon, golden: Golden, work: Path
) -> None:
    daemon.views["api"]["command"] = ["./loop.sh"]
    terminal = start("--no-resume")
    assert terminal.exit_code() == 0
    assert resume_of(daemon) == {}
    golden(terminal.lines())


def test_an_agent_makes_the_built_in_loop_of_it(ctl: Ctl, daemon: FakeDaemon, work: Path) -> None:
    daemon.views["api"]["command"] = ["./loop.sh"]
    daemon.on("POST /v1/ralphs", lambda _: Answer(daemon.views["api"], 201))
    assert ctl("start", "--agent", "codex", cwd=work).returncode == 0
    assert daemon.body_of("POST /v1/ralphs")["command"] == []


def test_one_that_runs_is_not_asked_about(start: Start, daemon: FakeDaemon) -> None:
    daemon.views["api"] |= {"state": "running", "ralph_pid": 4711}
    assert start().exit_code() == 0
    assert resume_of(daemon) == {}


def test_a_damaged_one_is_said_and_a_no_starts_nothing(
    start: Start, daemon: FakeDaemon, golden: Golden, work: Path, ctl: Ctl
) -> None:
    original(work).write_text('{"version": 1, "iteration": "six"}')
    terminal = start()
    terminal.shows("Start without it? [y/N]")
    terminal.type(b"\r")
    assert terminal.exit_code() == 1
    assert daemon.lines() == []

    reply = ctl("start", cwd=work)
    golden(terminal.lines(), reply)
    assert reply.returncode == 0
    assert resume_of(daemon) == {"resume": False}
    assert original(work).read_text() == '{"version": 1, "iteration": "six"}'


def test_one_of_a_newer_version_is_started_without_only_by_a_person(
    start: Start, daemon: FakeDaemon, golden: Golden, work: Path, ctl: Ctl
) -> None:
    original(work).write_text(json.dumps(HELD | {"version": 2}))
    reply = ctl("start", cwd=work)
    assert reply.returncode == 78
    assert daemon.lines() == []

    terminal = start()
    terminal.shows("Start without it? [y/N]")
    terminal.type(b"y\r")
    assert terminal.exit_code() == 0
    golden(reply, terminal.lines())
    assert resume_of(daemon) == {"resume": False}


def test_a_copy_alone_is_gone_on_from_and_put_aside_where_nobody_can(
    ctl: Ctl, daemon: FakeDaemon, golden: Golden, work: Path
) -> None:
    (work / ".ralph").mkdir()
    copy = work / ".ralph" / "checkpoint.json"
    original(work).rename(copy)
    first = ctl("start", cwd=work)

    copy.write_text("{")
    reply = ctl("start", cwd=work)
    assert reply.returncode == 0
    [kept_as] = copy.parent.glob("checkpoint.json.corrupt-*")
    assert kept_as.read_text() == "{"
    golden(first, reply, hide={str(kept_as): "THE-COPY"})


def test_a_daemon_that_is_away_is_not_started_before_the_question_is_answered(
    start: Start, daemon: FakeDaemon, work: Path
) -> None:
    definition = {"directory": str(work), "command": [], "goal": "stopped"}
    (original(work).parent / "ralph.json").write_text(json.dumps(definition))
    daemon.stop()
    terminal = start("api")
    terminal.shows(QUESTION)
    terminal.type(b"\x03")
    assert terminal.exit_code() == 130
    assert "starting the daemon" not in terminal.screen()
    assert not daemon.path.exists()


def test_what_the_daemon_tells_counts_where_its_files_are_out_of_reach(
    ctl: Ctl, daemon: FakeDaemon, golden: Golden, work: Path
) -> None:
    original(work).unlink()
    daemon.views["api"]["checkpoint"] = HELD
    golden(ctl("start", cwd=work))


def test_what_is_wrong_with_a_checkpoint_is_said(golden: Golden, tmp_path: Path) -> None:
    faults = {}
    for case, text in {
        "empty": "",
        "a list": "[]",
        "no version": "{}",
        "a later version": '{"version": 9}',
        "a bad number": json.dumps(HELD | {"iteration": -1}),
        "a bad task": json.dumps(HELD | {"task": 5}),
    }.items():
        (tmp_path / "checkpoint.json").write_text(text)
        found = checkpoint.find(str(tmp_path), [tmp_path])
        assert found is not None
        assert found.fault
        faults[case] = found.fault
    golden(faults)
    (tmp_path / "checkpoint.json").write_text(json.dumps(HELD))
    whole = checkpoint.find(str(tmp_path), [tmp_path])
    assert whole is not None
    assert whole.fault == ""


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(json.dumps(HELD))
    (tmp_path / "checkpoint.json").symlink_to(tmp_path / "elsewhere")
    found = checkpoint.find(str(tmp_path), [tmp_path])
    assert found is not None
    assert "damaged" in found.fault


def test_one_that_is_old_is_told_and_never_passed_over(golden: Golden) -> None:
    old = NOW + 7 * 86400
    golden(checkpoint_text.summary(HELD, old), [": ".join(row) for row in checkpoint_text.rows(HELD, old)])
    assert len(checkpoint_text.summary(HELD, NOW)) == 2


def test_the_version_that_status_knows_is_that_of_the_loop() -> None:
    assert offline.CHECKPOINT_VERSION == CHECKPOINT_VERSION


@pytest.mark.parametrize(
    ("reason", "task", "is_boundary"),
    [
        ("iteration_boundary", {"id": "a"}, True), ("interrupted", None, True),
        ("user_requested", None, True),
        ("interrupted", {"id": "a"}, False), ("usage_limit", None, False), (None, None, False),
    ],
)  # fmt: skip
def test_between_two_iterations_nothing_is_asked(reason: object, task: object, is_boundary: bool) -> None:
    assert checkpoint.is_boundary({"pause_reason": reason, "task": task}) is is_boundary
