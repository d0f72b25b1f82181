"""What cannot be done is answered with what, why and what to do, and changes nothing."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.players import player
from tests.whole.harness import Daemon, View, daemon_in
from tests.whole.person import Files, Person, Said, tree_of

SLEEPER = player("sleeper")
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file somebody else's")
AS_USER = pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")


@pytest.fixture
def person(daemon: Daemon) -> Person:
    """Who types at a terminal beside a daemon that runs."""
    daemon.start()
    return Person(daemon)


@contextmanager
def nothing_changes(person: Person) -> Iterator[None]:
    """Neither ralphs, nor runs, nor files of the home or of the ralphs' state are others afterwards.

    What a run that goes on prints is its own: the time of its last output may be another.
    """

    def all_there_is() -> tuple[list[View], Files, Files]:
        daemon = person.daemon
        views = [{**view, "last_output_at": None} for view in daemon.status()["ralphs"]]
        kept = tree_of(daemon.state / "ralphs")
        for name in [name for name in kept if name.endswith("/history.jsonl")]:
            lines = kept.pop(name)[2].splitlines()  # who sent a request is recorded
            others = [line for line in lines if not line.startswith(b'{"kind":"request"')]
            kept |= {name: (0, 0, b"\n".join(others))} if others else {}
        return views, tree_of(daemon.home), kept

    for view in person.daemon.status()["ralphs"]:
        if view["ralph_pid"]:
            person.says_lines(view["name"], 1)
    before = all_there_is()
    yield
    assert all_there_is() == before


def expect_refusal(said: Said, code: int, what: str, *, why: str = "", mend: str | None = "") -> None:
    """The answer has its three parts: ``error: what``, why, ``try: mend``; None where no mend is needed."""
    assert said.returncode == code, said
    assert said.stdout == ""
    assert "Traceback" not in said.stderr
    first, *more = said.stderr.splitlines()
    assert first.startswith("error: "), said.stderr
    assert what in first
    tries = [line for line in more if line.startswith("  try: ")]
    assert why in "\n".join(line for line in more if line not in tries)
    assert mend is None or tries, said.stderr
    assert (mend or "") in "\n".join(tries)


def start(person: Person, place: Path, command: Sequence[str], *words: str) -> Said:
    return person("start", str(place), *words, "--", *command)


# --- the command --------------------------------------------------------------------------------------


def test_a_command_that_is_nowhere_is_refused(person: Person) -> None:
    place = person.directory()
    with nothing_changes(person):
        said = start(person, place, ["no-such-agent"])
        expect_refusal(said, 1, "cannot start no-such-agent", why="not on PATH", mend="./no-such-agent")


def test_a_command_without_a_first_word_is_refused(person: Person) -> None:
    directory = person.directory()  # as of `start -- "$LOOP"` where the variable is not set
    with nothing_changes(person):
        said = person("start", str(directory), "--", "", "x")
    expect_refusal(said, 2, "the first word of the command is empty", mend="ralphctl start")


def test_options_that_a_command_of_your_own_does_not_get_are_named(person: Person) -> None:
    options = ["--agent", "codex", "--timeout", "5", "--max-cost", "3"]
    said = person("start", *options, str(person.directory()), "--", *SLEEPER)
    assert said.returncode == 0 and "no effect on a command of your own: --agent, --timeout\n" in said.stderr


def test_a_ralph_that_came_not_to_be_is_no_event(person: Person) -> None:
    expect_refusal(start(person, person.directory(), ["no-such-agent"]), 1, "cannot start no-such-agent")
    assert not [event for event in person.daemon.events() if event["ralph"]]


def test_a_path_to_nothing_is_refused(person: Person) -> None:
    place = person.directory()
    with nothing_changes(person):
        expect_refusal(
            start(person, place, ["./loop.sh"]),
            1,
            "cannot start ./loop.sh",
            why=f"there is no {place}/loop.sh",
        )


def test_a_file_that_is_not_executable_is_refused(person: Person) -> None:
    place = person.directory()
    (place / "loop.sh").write_text("#!/bin/sh\n")
    with nothing_changes(person):
        said = start(person, place, ["./loop.sh"])
        expect_refusal(
            said, 1, "cannot start ./loop.sh", why="is not executable", mend=f"chmod +x {place}/loop.sh"
        )


def test_a_script_that_does_not_say_what_runs_it_is_refused(person: Person) -> None:
    place = person.directory()
    (place / "loop.sh").write_text("echo hello\n")
    (place / "loop.sh").chmod(0o755)
    with nothing_changes(person):
        expect_refusal(
            start(person, place, ["./loop.sh"]),
            1,
            "cannot start ./loop.sh",
            why="no #! line",
            mend="#!/bin/sh",
        )


def test_a_script_whose_interpreter_is_missing_is_refused(person: Person) -> None:
    place = person.directory()
    (place / "loop.sh").write_text("#!/no/such/shell\n")
    (place / "loop.sh").chmod(0o755)
    with nothing_changes(person):
        expect_refusal(start(person, place, ["./loop.sh"]), 1, "cannot start ./loop.sh", why="/no/such/shell")


def test_a_relative_command_is_looked_for_in_the_directory(person: Person) -> None:
    place, elsewhere = person.directory(), person.directory("elsewhere")
    (place / "loop.sh").write_text("#!/bin/sh\npwd\n")
    (place / "loop.sh").chmod(0o755)
    said = person("start", "../demo", "--", "./loop.sh", cwd=elsewhere)
    assert said.returncode == 0, said
    assert person.says_lines("demo", 1) == [str(place)]


def test_a_command_that_cannot_be_started_leaves_a_known_ralph_as_it_was(person: Person) -> None:
    place = person.directory()
    person.starts(place, SLEEPER)
    assert person("stop", "demo").returncode == 0
    before = person.daemon.view("demo")
    expect_refusal(start(person, place, ["./gone"], "--replace"), 1, "cannot start ./gone", mend=None)
    assert person.daemon.view("demo") == before
    assert person("start", "demo").returncode == 0


# --- the directory ------------------------------------------------------------------------------------


def test_a_directory_that_is_missing_is_refused(person: Person) -> None:
    with nothing_changes(person):
        expect_refusal(
            start(person, person.daemon.home / "gone", SLEEPER),
            1,
            f"{person.daemon.home}/gone is not a directory",
            mend="ralphctl start DIR",
        )


def test_a_file_is_no_directory(person: Person) -> None:
    (person.daemon.home / "file").touch()
    with nothing_changes(person):
        expect_refusal(start(person, person.daemon.home / "file", SLEEPER), 1, "file is not a directory")


@AS_USER
def test_a_directory_that_is_not_writable_is_refused(person: Person) -> None:
    place = person.directory()
    place.chmod(0o500)
    with nothing_changes(person):
        expect_refusal(
            start(person, place, SLEEPER), 1, f"{place} is not writable", why=".ralph/", mend="chmod u+wx"
        )
    place.chmod(0o700)


def test_a_directory_that_takes_no_files_is_refused(person: Person) -> None:
    with nothing_changes(person):
        said = start(person, Path("/proc"), SLEEPER)
        expect_refusal(said, 1, "/proc")


def test_the_state_directory_is_no_place_to_work_in(person: Person) -> None:
    with nothing_changes(person):
        said = start(person, person.daemon.root, SLEEPER)
        expect_refusal(said, 1, "holds ralphd's own state", why="could delete it", mend="RALPHD_STATE_DIR")


def test_a_directory_that_another_daemon_supervises_is_refused_and_its_holder_named(
    person: Person, tmp_path: Path
) -> None:
    place = person.directory()
    person.starts(place, SLEEPER)
    with daemon_in(tmp_path / "two") as second:
        second.start()
        other = Person(second)
        with nothing_changes(person):
            said = other("--socket", str(second.state / "ralphd.sock"), "start", str(place), "--", *SLEEPER)
        expect_refusal(said, 1, f"{place} is supervised already", why=str(person.daemon.pid), mend="--socket")
        assert "kill" not in said.stderr
        assert second.status()["ralphs"] == []
        assert not list(second.state.glob("ralphs/*"))


def test_a_directory_that_was_moved_under_its_run_is_refused_without_ending_the_daemon(
    person: Person,
) -> None:
    place = person.directory()
    person.starts(place, SLEEPER)
    moved = place.rename(place.with_name("moved"))
    said = start(person, moved, SLEEPER)
    expect_refusal(said, 1, f"{moved} is supervised already", why=str(person.daemon.pid), mend="status --all")
    assert "kill" not in said.stderr


def test_a_ralph_that_runs_is_not_started_again(person: Person) -> None:
    place = person.directory()
    pid = person.starts(place, SLEEPER)["ralph_pid"]
    with nothing_changes(person):
        again = start(person, place, SLEEPER)
        assert (again.returncode, f"demo: already running (pid {pid})" in again.stdout) == (0, True), again


def test_one_ralph_works_in_a_directory(person: Person) -> None:
    place = person.directory()
    person.starts(place, SLEEPER)
    with nothing_changes(person):
        said = start(person, place, SLEEPER, "--name", "another")
        expect_refusal(said, 1, f"{place} is the directory of the ralph demo", mend="ralphctl rm demo")


def test_a_file_in_the_place_of_dot_ralph_is_refused(person: Person) -> None:
    place = person.directory()
    (place / ".ralph").write_text("mine")
    with nothing_changes(person):
        said = start(person, place, SLEEPER)
        expect_refusal(
            said,
            1,
            f"{place}/.ralph is no directory",
            why="ralphd keeps its files",
            mend=f"mv {place}/.ralph",
        )


@pytest.mark.parametrize("target", ["elsewhere", "nowhere"])
def test_a_symlink_in_the_place_of_dot_ralph_is_refused(target: str, person: Person) -> None:
    place = person.directory()
    person.directory("elsewhere")
    (place / ".ralph").symlink_to(person.daemon.home / target)
    with nothing_changes(person):
        said = start(person, place, SLEEPER)
        expect_refusal(
            said, 1, f"{place}/.ralph is a symbolic link", why="follows no link", mend=f"mv {place}/.ralph"
        )


def test_a_directory_that_is_no_git_repository_is_allowed_and_that_is_said(person: Person) -> None:
    said = start(person, person.directory(), SLEEPER)
    assert said.returncode == 0, said
    assert "note: not a git repository" in said.stderr
    assert "not a git repository" in person("status", "demo").stdout


# --- the name -----------------------------------------------------------------------------------------


def test_a_name_that_is_taken_is_refused(person: Person) -> None:
    person.starts(person.directory(), SLEEPER)
    place = person.directory("other")
    with nothing_changes(person):
        said = start(person, place, SLEEPER, "--name", "demo")
        expect_refusal(
            said, 1, f"the name demo belongs to the ralph in {person.daemon.home}/demo", mend="--name demo-2"
        )


@pytest.mark.parametrize("name", ["Demo", "../x", "-x", ".x", "a b", "x" * 64, "ü", ""])
def test_a_name_that_is_none_is_refused(name: str, person: Person) -> None:
    place = person.directory()
    with nothing_changes(person):
        said = person("start", str(place), f"--name={name}", "--", *SLEEPER)
        expect_refusal(said, 2, "is not the name of a ralph", why="a letter or digit first")


@pytest.mark.parametrize(
    "command", ["stop", "status", "logs", "pause", "resume", "restart", "rm", "wait", "skip-wait"]
)
def test_a_name_that_nobody_has_is_told(command: str, person: Person) -> None:
    expect_refusal(person(command, "nobody"), 4, "there is no ralph 'nobody'", mend="ralphctl status")


# --- the configuration --------------------------------------------------------------------------------

FIVE_FAULTS = """\
[regent]
max_retires = 3
retry_backoff_seconds = "soon"
[ralph]
mode = "lopp"
[agent]
primary = "claude"
[logs]
run_bytes = 1
"""


def test_all_faults_of_a_configuration_are_told_at_once(person: Person) -> None:
    place = person.directory(toml=FIVE_FAULTS)
    with nothing_changes(person):
        said = start(person, place, SLEEPER)
        expect_refusal(said, 78, "5 faults", mend=None)
        for fault in (
            "ralph.toml:2: regent.max_retires: unknown key, did you mean max_retries?",
            "ralph.toml:3: regent.retry_backoff_seconds",
            "ralph.toml:5: ralph.mode",
            "ralph.toml:6: agent",
            "ralph.toml:9: logs.run_bytes",
        ):
            assert fault in said.stderr
        checked = person("config", "check", str(place))
        assert checked.returncode == 78, checked
        assert [line for line in said.stderr.splitlines() if "ralph.toml" in line] == [
            line for line in checked.stderr.splitlines() if "ralph.toml" in line
        ]
        as_json = person("config", "check", str(place), "--json")
        assert as_json.returncode == 78, as_json
        faults = json.loads(as_json.stdout)["faults"]
        assert [f"  {fault}" for fault in faults] == as_json.stderr.splitlines()[1:6]


def test_a_configuration_that_is_no_toml_is_told_with_its_line(person: Person) -> None:
    place = person.directory(toml="[regent]\nmax_retries = = 3\n")
    with nothing_changes(person):
        expect_refusal(start(person, place, SLEEPER), 78, "", why="ralph.toml:2: is not TOML", mend=None)


@AS_ROOT
def test_a_configuration_of_somebody_else_is_refused(person: Person) -> None:
    place = person.directory(toml="[regent]\nmax_retries = 9\n")
    os.chown(place / "ralph.toml", 12345, 12345)
    with nothing_changes(person):
        said = start(person, place, SLEEPER)
        expect_refusal(said, 78, "", why="belongs to another user (uid 12345)", mend=None)
        assert f"chown {os.geteuid()} {place}/ralph.toml" in said.stderr


def test_a_configuration_that_others_can_write_is_refused(person: Person) -> None:
    place = person.directory(toml="[regent]\nmax_retries = 9\n")
    (place / "ralph.toml").chmod(0o666)
    with nothing_changes(person):
        said = start(person, place, SLEEPER)
        expect_refusal(said, 78, "", why="can be written by other users", mend=None)
        assert f"chmod go-w {place}/ralph.toml" in said.stderr


def test_a_configuration_broken_since_the_last_start_is_told_and_the_ralph_stays_as_it_was(
    person: Person,
) -> None:
    place = person.directory()
    person.starts(place, SLEEPER)
    assert person("stop", "demo").returncode == 0
    (place / "ralph.toml").write_text("[regent]\nmax_retires = 3\n")
    with nothing_changes(person):
        expect_refusal(person("start", "demo"), 78, "", why="did you mean max_retries?", mend=None)


# --- the daemon ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("status", "demo"),
        ("stop", "demo"),
        ("pause", "demo"),
        ("logs", "demo"),
        ("events",),
        ("start", "demo", "--no-autostart"),
        ("regent", "status"),
    ],
)
def test_without_a_daemon_the_command_that_starts_it_is_named(words: tuple[str, ...], daemon: Daemon) -> None:
    person = Person(daemon)
    person.directory("demo")
    before = tree_of(daemon.root)
    expect_refusal(person(*words), 3, "no ralphd is running", why="looked at ", mend="ralphctl regent start")
    assert tree_of(daemon.root) == before
    assert not daemon.leftovers()


@pytest.mark.parametrize(
    ("word", "meant"), [("stauts", "status"), ("strat", "start"), ("lgos", "logs"), ("resarts", "restart")]
)
def test_a_command_that_is_nearly_one_is_answered_with_that_one(
    word: str, meant: str, daemon: Daemon
) -> None:
    said = Person(daemon)(word)
    assert said.returncode == 2, said
    assert f"'{word}'" in said.stderr
    assert f"ralphctl {meant}" in said.stderr


@pytest.mark.parametrize("file", ["ralph.json", "regent-state.json"])
def test_state_from_the_future_is_left_as_it_is(file: str, person: Person) -> None:
    daemon, place = person.daemon, person.directory()
    person.starts(place, SLEEPER)
    person.starts(person.directory("other"), SLEEPER)
    assert person("stop", "demo").returncode == 0
    daemon.kill()
    original = daemon.files("demo") / file
    original.write_text(original.read_text().replace('"version": 1', '"version": 99'))
    before, mirrored = tree_of(daemon.files("demo")), tree_of(place)
    daemon.start()
    assert [view["name"] for view in daemon.status()["ralphs"]] == ["other"]
    assert daemon.status()["daemon"]["status"] == "degraded"
    wanted = [("status", "demo"), ("stop", "demo"), ("start", "demo"), ("start", str(place), "--", *SLEEPER)]
    for words in wanted:
        said = person(*words, cwd=daemon.root)
        expect_refusal(said, 78, "demo cannot be used", why="newer ralphd (version 99, this one knows 1)")
    assert tree_of(daemon.files("demo")) == before
    assert tree_of(place) == mirrored


def test_a_mirror_from_the_future_is_not_written_over(person: Person) -> None:
    place = person.directory()
    (place / ".ralph").mkdir(mode=0o700)
    mirror = place / ".ralph" / "regent-state.json"
    mirror.write_text('{"version": 99, "name": "demo", "state": "ascended"}')
    said = start(person, place, SLEEPER)
    assert mirror.read_text() == '{"version": 99, "name": "demo", "state": "ascended"}', said


def test_a_cursor_that_was_pruned_gets_a_gap_and_then_what_is_left(daemon: Daemon) -> None:
    person = Person(daemon)
    person.configures("[logs]\nrun_bytes = 2097152\n")
    daemon.start()
    run = person.starts(person.directory(), player("flood", daemon.root / "count", 4_000_000))["run_id"]
    daemon.becomes("demo", "done")
    pruned = f"/v1/ralphs/demo/logs?cursor={run}:1:0:0&format=text"
    first, second, *_ = daemon.ask("GET", pruned).decode().splitlines()
    assert first.startswith("[ralphd] gap in the log: ")
    assert second[:12].isdigit()
    reply = daemon.api("GET", "/v1/ralphs/demo/logs?cursor=nonsense")
    assert reply.status == 422
    assert reply.body["type"] == "urn:ralphd:problem:usage"
