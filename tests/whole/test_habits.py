"""What people type first: several names, a branch of its own, another command, and no prompt yet."""

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from ralphctl.setup.detect import on_branch
from ralphd.errors import DaemonNotRunning, DirectoryUnusable, InternalError, RalphdError, UsageError
from tests.terminal import Terminal
from tests.whole.harness import Daemon
from tests.whole.loops import loop_in, open_tasks, release
from tests.whole.person import Person, argv

SLEEPER = ("sleep", "600")
AtTerminal = Callable[..., Terminal]


@pytest.fixture
def person(daemon: Daemon) -> Person:
    """Somebody whose daemon is running."""
    daemon.start()
    return Person(daemon)


@pytest.fixture
def at_a_terminal(daemon: Daemon) -> Iterator[AtTerminal]:
    """Type a command at a terminal, in a directory."""
    with ExitStack() as opened:

        def begin(directory: Path, *words: str) -> Terminal:
            environment = Person(daemon).environment | {"TERM": "xterm-256color", "NO_COLOR": "1"}
            return opened.enter_context(Terminal(argv(words), cwd=directory, environment=environment))

        yield begin


def repository(person: Person, name: str = "demo") -> Path:
    """A repository with one commit on ``main``, of a file ``a``."""
    place = person.directory(name)
    git(place, "init", "-q", "-b", "main")
    (place / "a").write_text("main\n")
    git(place, "add", "a")
    git(place, "commit", "-q", "-m", "a")
    return place


def git(place: Path, *words: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    return subprocess.run(["git", *who, *words], cwd=place, check=True, capture_output=True, text=True).stdout


def branch(place: Path) -> str:
    return git(place, "symbolic-ref", "--short", "HEAD").strip()


def test_of_several_starts_at_once_one_starts_the_daemon(daemon: Daemon) -> None:
    person = Person(daemon)
    places = [person.directory(f"p{number}") for number in range(4)]
    try:
        with ThreadPoolExecutor(4) as pool:
            replies = [*pool.map(lambda place: person("start", "--", *SLEEPER, cwd=place), places)]
        assert [reply.returncode for reply in replies] == [0] * 4, replies
        assert not any("owns" in reply.stderr for reply in replies)
    finally:
        person("regent", "stop", "--now")


def test_several_are_stopped_and_removed_with_a_line_each(daemon: Daemon, person: Person) -> None:
    for name in ("api", "web"):
        person.starts(person.directory(name), SLEEPER)
    stopped = person("stop", "api", "web", "nobody", "--now")
    assert stopped.returncode == 4
    assert [line.split(":")[0] for line in stopped.stdout.splitlines()] == ["api", "web"]
    assert person("stop", "--all").returncode == 0
    removed = person("rm", "--all")
    assert removed.returncode == 0
    assert "web: removed, with its logs; " in removed.stdout
    assert daemon.status()["ralphs"] == []


def test_a_branch_of_its_own_is_made_and_used_again(daemon: Daemon, person: Person) -> None:
    place = repository(person)
    first = person("start", "--branch", "night", "--", *SLEEPER, cwd=place)
    assert (first.returncode, branch(place)) == (0, "night"), first
    assert "switched to the new branch night (was main)" in first.stderr
    assert "commits go to branch night" in first.stdout
    running = person("start", "--branch", "other", cwd=place)
    assert (running.returncode, branch(place)) == (1, "night")
    assert person("stop", "--now", cwd=place).returncode == 0
    again = person("start", "demo", "--branch", "main")
    assert (again.returncode, branch(place)) == (0, "main"), again


@pytest.mark.parametrize(
    "kind", ["changed", "untracked", "ignored", "unfinished", "bad name", "no repository"]
)
def test_a_branch_never_costs_work(kind: str, daemon: Daemon, person: Person) -> None:
    place = repository(person)
    git(place, "switch", "-q", "-c", "night")
    for name in ("a", "b", "c"):
        (place / name).write_text("night\n")
    git(place, "add", ".")
    git(place, "commit", "-q", "-m", "night")
    git(place, "switch", "-q", "main")
    (place / ".git" / "info" / "exclude").write_text("c\n")
    mine = {"changed": "a", "untracked": "b", "ignored": "c"}.get(kind)
    if mine:
        (place / mine).write_text("mine\n")
    if kind == "unfinished":
        (place / ".git" / "MERGE_HEAD").write_text(git(place, "rev-parse", "night"))
    hook = place / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\ntouch hooked\n")
    hook.chmod(0o755)
    elsewhere = person.directory("plain") if kind == "no repository" else place
    wanted = "-x" if kind == "bad name" else "night"

    said = person("start", f"--branch={wanted}", "--", *SLEEPER, cwd=elsewhere)

    assert said.returncode in (1, 2), said
    assert branch(place) == "main"
    assert not mine or (place / mine).read_text() == "mine\n"
    assert not (place / "hooked").exists()
    assert person("status", "--json").stdout.count('"name"') == 0


@pytest.mark.parametrize("at", ["main", "detached", "unborn", "night exists"])
def test_a_refused_start_switches_back(at: str, person: Person) -> None:
    place = person.directory("demo") if at == "unborn" else repository(person)
    if at == "unborn":
        git(place, "init", "-q", "-b", "main")
    elif at != "main":
        git(place, *(("switch", "-q", "--detach") if at == "detached" else ("branch", "night")))
    before = (place / ".git" / "HEAD").read_text(), git(place, "branch", "--list")
    for command in ((), ("--", "/not/there")):
        said = person("start", "--branch", "night", *command, cwd=place)
        assert said.returncode != 0 and "switched back to " in said.stderr, said
        assert ((place / ".git" / "HEAD").read_text(), git(place, "branch", "--list")) == before


def test_a_name_that_is_no_branch_is_refused_with_the_reason(person: Person) -> None:
    place = repository(person)
    git(place, "tag", "v1")
    commit = git(place, "rev-parse", "HEAD").strip()
    for name in ("a b", "../x", "HEAD", "-f", "a..b", "", "@", "@{-1}", "refs/heads/x", commit, "v1"):
        with pytest.raises(UsageError) as refused, on_branch(place, name):
            pass
        why = "is a tag" if name == "v1" else "is not a valid branch name"
        assert str(refused.value).startswith(f"{name!r} {why}")
    assert (branch(place), git(place, "branch", "--list")) == ("main", "* main\n")


def test_without_git_a_branch_is_refused_with_the_reason(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = repository(person)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(DirectoryUnusable, match="git is not installed"), on_branch(place, "night"):
        pass


@pytest.mark.parametrize("lost", [DaemonNotRunning("gone"), InternalError("bug")])
def test_a_lost_daemon_leaves_the_branch_to_its_loop(lost: RalphdError, person: Person) -> None:
    place = repository(person)
    with pytest.raises(type(lost)), on_branch(place, "night"):
        raise lost
    assert branch(place) == "night"


def test_changes_that_are_in_nobodys_way_come_along(person: Person) -> None:
    place = repository(person)
    git(place, "branch", "night")
    (place / "a").write_text("mine\n")
    assert person("start", "--branch", "night", "--", *SLEEPER, cwd=place).returncode == 0
    assert (branch(place), (place / "a").read_text()) == ("night", "mine\n")


def test_another_command_is_asked_about(daemon: Daemon, person: Person, at_a_terminal: AtTerminal) -> None:
    place = person.directory()
    person.starts(place, SLEEPER)
    assert person("stop", "demo", "--now").returncode == 0
    assert person("start", "--", "sleep", "700", cwd=place).returncode == 2
    no = at_a_terminal(place, "start", "--", "sleep", "700")
    no.shows("Replace sleep 600 by sleep 700? [y/N]")
    no.type(b"\r")
    assert (no.exit_code(), daemon.view("demo")["command"]) == (1, list(SLEEPER))
    yes = at_a_terminal(place, "start", "--", "sleep", "700")
    yes.shows("[y/N]")
    yes.type(b"y\r")
    assert (yes.exit_code(), daemon.view("demo")["command"]) == (0, ["sleep", "700"])
    assert "replaced the earlier" not in yes.screen()


def test_without_a_prompt_init_is_offered_and_the_loop_starts(
    daemon: Daemon, person: Person, at_a_terminal: AtTerminal
) -> None:
    place = loop_in(daemon)
    (place / "PROMPT.md").unlink()
    refused = person("start", cwd=place)
    assert (refused.returncode, "try: ralphctl init" in refused.stderr) == (78, True), refused
    no = at_a_terminal(place, "start")
    no.shows("Run ralphctl init now? [Y/n]")
    no.type(b"n\r")
    assert no.exit_code() == 78
    yes = at_a_terminal(place, "start")
    yes.shows("Run ralphctl init now? [Y/n]")
    yes.type(b"\r")
    assert yes.exit_code() == 0, yes.screen()
    assert (place / "PROMPT.md").exists()
    daemon.becomes("demo", "done", timeout_s=60)
    assert open_tasks(place) == 0


def test_build_offers_it_too(daemon: Daemon, at_a_terminal: AtTerminal) -> None:
    place = loop_in(daemon)
    (place / "PROMPT.md").unlink()
    run = at_a_terminal(place, "run")
    run.shows("Run ralphctl init now? [Y/n]")
    run.type(b"y\r")
    assert run.exit_code() == 0, run.screen()
    assert open_tasks(place) == 0


def test_a_stop_between_iterations_leaves_no_question(
    daemon: Daemon, person: Person, at_a_terminal: AtTerminal
) -> None:
    place = loop_in(daemon, "rest")
    assert person("start", cwd=place).returncode == 0
    person.says_lines("demo", 3)
    assert person("stop", "--no-wait", "demo").returncode == 0
    release(daemon)
    daemon.becomes("demo", "stopped", timeout_s=60)
    again = at_a_terminal(place, "start")
    assert again.exit_code() == 0, again.screen()
    assert "resuming from the checkpoint: " in again.screen()
    assert "[R/d/v]" not in again.screen()
    daemon.becomes("demo", "done", timeout_s=60)
