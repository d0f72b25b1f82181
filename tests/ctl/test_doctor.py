"""`ralphctl doctor`: each check fails for real, names what to do, and is repaired where that is safe."""

import fcntl
import json
import os
import resource
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ralphctl.doctor import agents, daemon, runner
from ralphctl.doctor.daemon import set_mode
from ralphctl.doctor.runner import (
    Check,
    CheckResult,
    Level,
    as_json,
    as_text,
    failed,
    ok,
    repair,
    run_checks,
    warning,
)
from ralphctl.offline.processes import ProgramOutput, ask
from ralphd import __version__
from ralphd.agents import known
from ralphd.agents.known import login_command
from ralphd.config.specs import AgentSpec
from ralphd.git import repo
from tests.ctl.fake import Answer as Reply
from tests.ctl.fake import FakeDaemon
from tests.ctl.golden_files import Golden
from tests.helpers import is_alive, wait_for

SECRET, ADDRESS = "sk-ant-0123456789abcdef", "someone@example.invalid"

LOGGED_IN = f"""#!/bin/sh
case "$1" in
  --version) echo "2.1.330 (Claude Code)" ;;
  *) echo '{{"loggedIn": true, "email": "{ADDRESS}", "key": "{SECRET}"}}' ;;
esac
"""
LOGGED_OUT = """#!/bin/sh
case "$1" in
  --version) echo "codex-cli 0.169.0" ;;
  *) echo "Not logged in" >&2; exit 1 ;;
esac
"""
HANGS = """#!/bin/sh
setsid sh -c 'echo $$ > "$GRANDCHILD"; exec sleep 1000' &
exec sleep 1000
"""
NEVER_STOPS = """#!/bin/sh
exec yes 9.9.9
"""


def program(folder: Path, name: str, text: str) -> None:
    """An agent that is there."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def asked(
    environment: Mapping[str, str], cwd: Path, *words: str, limits: Mapping[int, int] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command itself, with resource limits."""

    def limit() -> None:
        for which, most in (limits or {}).items():
            resource.setrlimit(which, (most, most))

    return subprocess.run(
        [sys.executable, "-P", "-m", "ralphctl", "doctor", *words],
        cwd=cwd, env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        preexec_fn=limit,
    )  # fmt: skip


def by_check(said: str) -> dict[str, dict[str, Any]]:
    """The results in a reply, by their check."""
    return {each["check"]: each for each in json.loads(said)["checks"]}


def page(results: Sequence[CheckResult]) -> str:
    """The results as they are printed, each with what it is about."""
    return as_text([*results], columns=100, colour=False)


def paragraphs(text: str, *checks: str) -> list[str]:
    """Of a page, the lines about these checks, which do not depend on the machine."""
    wanted, lines = False, []
    for line in text.splitlines():
        if not line.startswith(" "):
            wanted = any(f" {check}  " in line for check in checks)
        if wanted:
            lines.append(line)
    return lines


def repository_in(place: Path, *words: str) -> None:
    """A repository with nothing in it."""
    subprocess.run(["git", "init", "-q", *words, str(place)], check=True)


@pytest.fixture
def ill(tmp_path: Path, environment: dict[str, str]) -> dict[str, str]:
    """A place where nearly all is wrong; the environment in which it is looked at."""
    state, work, tools = tmp_path / "state", tmp_path / "work", tmp_path / "tools"
    work.mkdir()
    repository_in(work)
    state.chmod(0o755)
    held = os.open(state, os.O_PATH)  # however long the path is
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(f"/proc/self/fd/{held}/ralphd.sock")
    os.close(held)
    (state / "events.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 8192)
    (work / ".ralph").mkdir()
    (work / "ralph.toml").write_text("[regent]\nmax_retrys = 3\n")
    program(tools, "claude", LOGGED_IN)
    program(tools, "codex", LOGGED_OUT)
    return environment | {
        "PATH": f"{tools}:{environment['PATH']}",
        "PYTHONDONTWRITEBYTECODE": "1",  # files are limited in size, and half a module would stay
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
    }


def test_all_that_is_wrong_is_told_at_once_and_what_is_safe_is_mended(
    ill: dict[str, str], tmp_path: Path
) -> None:
    work, state = tmp_path / "work", tmp_path / "state"
    told = asked(
        ill, work, "--json", limits={resource.RLIMIT_NOFILE: 200, resource.RLIMIT_FSIZE: 64}
    )  # fmt: skip

    assert told.returncode == 1, told.stderr
    found = by_check(told.stdout)
    failed = {name for name, each in found.items() if each["level"] == "failed"}
    assert failed == {"state directory", "sqlite", "events.db", "open files", "configuration"}
    warned = {name for name, each in found.items() if each["level"] == "warning"}
    assert warned >= {"socket", "repository", ".ralph", "login codex"}
    assert all(each["mend"] for each in found.values() if each["level"] in ("failed", "warning"))
    assert "did you mean max_retries?" in found["configuration"]["found"]
    assert found["agent claude"]["found"].endswith("/tools/claude")
    assert found["login claude"]["level"] == "ok"
    assert SECRET not in told.stdout
    assert ADDRESS not in told.stdout

    mended = by_check(asked(ill, work, "--json", "--fix").stdout)

    assert [mended[name]["level"] for name in ("state directory", "socket")] == ["ok"] * 2
    assert f"chmod 0700 {state}" in mended["state directory"]["repaired"]
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert not (state / "ralphd.sock").exists()
    assert mended[".ralph"]["mend"] == [f"echo '*' > {work}/.ralph/.gitignore"]
    assert not (work / ".ralph" / ".gitignore").exists()
    assert mended["sqlite"]["level"] == "ok"


def test_agents_that_hang_or_print_for_ever_are_ended_and_not_known(
    environment: dict[str, str], tmp_path: Path
) -> None:
    tools, grandchild = tmp_path / "tools", tmp_path / "grandchild"
    program(tools, "codex", HANGS)
    program(tools, "claude", NEVER_STOPS)
    around = environment | {"PATH": f"{tools}:{environment['PATH']}", "GRANDCHILD": str(grandchild)}
    began = time.monotonic()

    told = asked(around, tmp_path, "--json", "--limit", "0.5")

    assert time.monotonic() - began < 15
    found = by_check(told.stdout)
    assert [found[f"login {name}"]["level"] for name in ("codex", "claude")] == ["not known"] * 2
    pid = grandchild.read_text().strip() if grandchild.exists() else ""
    assert not pid or not is_alive(int(pid))


def test_without_git_a_home_a_daemon_that_answers_or_an_agent_it_looks_at_the_rest(
    environment: dict[str, str], golden: Golden, tmp_path: Path
) -> None:
    (tmp_path / "no-home").touch()
    state = tmp_path / "state"
    with (state / "lock").open("w") as held:
        held.write("4711\n")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        around = environment | {"PATH": "/nowhere", "HOME": str(tmp_path / "no-home"), "COLUMNS": "200"}

        told = asked(around, tmp_path)

    assert told.returncode == 1, told.stderr
    golden(paragraphs(told.stdout, "lock", "daemon", "git", "agents"))
    assert told.stderr == ""


def test_a_daemon_of_another_version_and_one_that_is_degraded_are_told(
    daemon_: FakeDaemon, environment: dict[str, str], golden: Golden, tmp_path: Path
) -> None:
    def says(version: str, problems: list[str]) -> CheckResult:
        body = {"version": version, "daemon": {"pid": 7, "problems": problems, "tree_means": "cgroup"}}
        daemon_.on("GET /v1/status", lambda _: Reply(body))
        return daemon.daemon(None, environment, str(tmp_path), 5.0)

    same, older, degraded = says(__version__, []), says("0.0.1", []), says(__version__, ["the disk is full"])
    assert same.level is Level.OK
    assert older.level is Level.WARNING
    daemon_.on("GET /v1/status", lambda _: Reply(b"<html>"))
    broken = daemon.daemon(None, environment, str(tmp_path), 5.0)
    assert broken.level is Level.FAILED
    golden(page([same, older, degraded, broken]), hide={__version__: "VERSION"})


@pytest.fixture
def daemon_(daemon: FakeDaemon) -> FakeDaemon:
    """The fake one, by a name that is free here."""
    return daemon


def test_ralphs_that_should_run_while_no_daemon_does_are_told(
    environment: dict[str, str], golden: Golden, tmp_path: Path
) -> None:
    for name, state in [(f"api{n}", "stopped") for n in range(4)] + [("x", "done"), ("y", "failed")]:
        home = tmp_path / "state" / "ralphs" / name
        home.mkdir(parents=True)
        (home / "ralph.json").write_text(json.dumps({"directory": "/srv/api", "goal": "running"}))
        (home / "regent-state.json").write_text(json.dumps({"state": state}))

    found = daemon.daemon(None, environment, str(tmp_path), 1.0)

    assert found.level is Level.WARNING
    golden(page([found]))


def test_failures_come_last_and_quiet_shows_nothing_but_problems() -> None:
    results = [failed("bad", check="a"), ok("fine", check="b"), warning("odd", check="c")]

    lines = [line.split()[1] for line in as_text(results, columns=80, colour=False).splitlines()[:3]]
    quiet = as_text(results, columns=80, colour=False, quiet=True)

    assert lines == ["b", "c", "a"]
    assert "fine" not in quiet
    assert quiet.endswith("1 ok, 1 warning, 1 failed")
    assert as_text(results[1:2], columns=80, colour=False, quiet=True) == ""


def test_events_that_are_still_in_the_log_are_read(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE events (id INTEGER)")
    connection.commit()
    before = path.read_bytes()

    found = daemon.events(tmp_path, limit_s=10.0)

    assert (found.level, found.text) == (Level.OK, "intact")
    assert path.read_bytes() == before
    connection.close()


def test_what_is_configured_in_a_repository_is_told_without_names(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, "/dev/null")
    work = tmp_path / "work"
    repository_in(work)
    author = {f"GIT_{who}_{key}": "x" for who in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    by_variables = agents.repository(work, os.environ | author, 10.0)
    assert isinstance(by_variables, CheckResult) and by_variables.level is Level.OK
    for key, value in (("user.name", "Someone"), ("user.email", ADDRESS)):
        subprocess.run(["git", "-C", str(work), "config", key, value], check=True)

    sound = agents.repository(work, os.environ, 10.0)
    subprocess.run(["git", "-C", str(work), "config", "core.logAllRefUpdates", "false"], check=True)
    results = agents.repository(work, os.environ, 10.0)
    assert not isinstance(results, CheckResult)
    (warned,) = results

    assert isinstance(sound, CheckResult)
    assert sound.level is Level.OK
    assert ADDRESS not in sound.text
    assert warned.level is Level.WARNING
    golden(page([sound, warned]))


def test_a_guard_without_tests_which_start_refuses_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "ralph.toml").write_text("[regent]\nrollback_on_test_failure = true\nmax_retries = 7\n")
    configuration, result = agents.configured(tmp_path, {"HOME": str(tmp_path)})
    assert result.level is Level.FAILED and "test_command is not" in result.text
    assert configuration.regent.max_retries == 7, "the other checks have the rest"


def test_a_primary_that_is_configured_and_not_there_fails_and_a_fallback_warns(
    environment: dict[str, str], golden: Golden, tmp_path: Path
) -> None:
    from ralphd.config.configuration import load

    (tmp_path / "ralph.toml").write_text('[agents]\nprimary = "claude"\nfallback = ["codex"]\n')
    around = environment | {"PATH": str(tmp_path)}

    checks = agents.agent_checks(load(tmp_path, environ=around), around, 1.0)
    found = run_checks(checks, limit_s=10.0, waiting=lambda names: None)

    assert [(each.check, each.level) for each in found] == [
        ("agent claude", Level.FAILED),
        ("agent codex", Level.WARNING),
    ]
    golden(page(found))


@pytest.mark.parametrize(
    ("agent", "answer", "keys", "level"),
    [
        ("claude", ProgramOutput(0, '{"loggedIn": true}'), [], Level.OK),
        ("claude", ProgramOutput(1, 'warning\n{"loggedIn": false}'), [], Level.WARNING),
        ("claude", ProgramOutput(1, '{"loggedIn": true, "note": "not logged in elsewhere"}'), [], Level.OK),
        ("claude", ProgramOutput(1, "error: unknown command 'auth'"), [], Level.UNKNOWN),
        ("codex", ProgramOutput(0, f"Logged in using an API key - {SECRET}"), [], Level.OK),
        ("codex", ProgramOutput(1, "Not logged in"), [], Level.WARNING),
        ("codex", ProgramOutput(1, "Not logged in"), ["CODEX_API_KEY"], Level.UNKNOWN),
        ("codex", ProgramOutput(1, "Logged in? no idea"), [], Level.UNKNOWN),
        ("codex", ProgramOutput(None, ""), [], Level.UNKNOWN),
        ("cursor", ProgramOutput(0, f"\x1b[32m✓\x1b[0m Logged in as {ADDRESS}"), [], Level.OK),
        ("kiro", None, [], Level.UNKNOWN),
    ],
)
def test_a_login_is_never_guessed_and_its_answer_never_shown(
    agent: str, answer: ProgramOutput | None, keys: list[str], level: Level
) -> None:
    found = agents.login_result(agent, agents.LOGINS[agent][0], answer, keys)

    assert found.level is level
    if level is Level.WARNING:
        assert found.advice == login_command(agent)
    if "says" in found.text:
        assert found.text.endswith(agents.LOGINS[agent][0])
    assert SECRET not in found.text + found.advice
    assert ADDRESS not in found.text + found.advice


def test_free_space_is_judged_by_bytes() -> None:
    levels = [daemon.free_space(Path("/"), size).level for size in (10 << 30, 500 << 20, 50 << 20)]
    assert levels == [Level.OK, Level.WARNING, Level.FAILED]


def test_the_file_system_of_a_place_is_that_of_its_innermost_mount() -> None:
    mounts = [("/", "ext4"), ("/home", "nfs"), ("/home", "nfs4"), ("/home/some one/local", "xfs")]

    assert daemon.mount_type(mounts, Path("/var/lib")) == "ext4"
    assert daemon.mount_type(mounts, Path("/home/you/.local")) == "nfs4"
    assert daemon.mount_type(mounts, Path("/home/some one/local/x")) == "xfs"
    assert daemon.network_mount("nfs4", Path("/home/you")).level is Level.WARNING
    assert daemon.network_mount("xfs", Path("/home/you")).level is Level.OK


@pytest.mark.parametrize(
    ("printed", "level"), [("yes", Level.OK), ("no", Level.WARNING), ("", Level.UNKNOWN)]
)
def test_only_a_clock_that_is_not_synchronised_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, level: Level
) -> None:
    if printed:
        program(tmp_path, "timedatectl", f"#!/bin/sh\necho {printed}\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert daemon.clock({"PATH": str(tmp_path)}, 10.0).level is level


def test_a_unit_without_linger_is_warned_of() -> None:
    assert daemon.linger(False).advice == "loginctl enable-linger"
    assert daemon.linger(False).level is Level.WARNING
    assert daemon.linger(True).level is Level.OK


def test_a_directory_that_cannot_be_written_is_no_place_for_a_ralph(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        found = daemon.working_directory(tmp_path)
    finally:
        tmp_path.chmod(0o755)
    assert found.level is (Level.FAILED if os.geteuid() else Level.OK)  # root writes anywhere


def test_what_is_no_directory_no_socket_or_a_link_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "link-work").mkdir()
    (tmp_path / "link-work" / ".ralph").symlink_to(tmp_path)

    assert daemon.state_directory(tmp_path / "file").level is Level.FAILED
    assert daemon.state_directory(tmp_path / "link").level is Level.FAILED
    assert daemon.state_directory(tmp_path / "file" / "below").level is Level.FAILED
    assert daemon.state_directory(tmp_path / "new").level is Level.OK
    assert daemon.socket(tmp_path / "file", tmp_path / "lock").level is Level.FAILED
    linked = daemon.ralph_directory(tmp_path / "link-work")
    assert isinstance(linked, CheckResult)
    assert linked.level is Level.FAILED
    assert daemon.ralph_directory(tmp_path) == ()


def test_a_repair_follows_no_link_and_says_why_it_was_not_made(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs").write_text("x")
    (tmp_path / "theirs").chmod(0o644)
    (tmp_path / "link").symlink_to(tmp_path / "theirs")

    repair(failed("open", "x", partial(set_mode, Path("link"))))
    left = repair(failed("open", "x", partial(set_mode, Path("gone"))))

    assert stat.S_IMODE((tmp_path / "theirs").stat().st_mode) == 0o644
    assert left.level is Level.FAILED
    golden(page([left]))


def test_a_check_that_hangs_is_named_and_then_told_as_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "QUIET_S", 0.05)
    free, named = threading.Event(), list[list[str]]()

    def hangs() -> list[CheckResult]:
        free.wait(60)
        return []

    quick = Check("quick", lambda: ok("well"))

    def broken() -> list[CheckResult]:
        raise OSError("no such device")

    found = run_checks(
        [Check("nfs", hangs), quick, Check("broken", broken)],
        limit_s=0.3,
        waiting=lambda names: named.append([*names]),
    )
    free.set()

    assert named == [["nfs"]]
    assert [each.level for each in found] == [Level.UNKNOWN, Level.OK, Level.FAILED]


def test_a_program_is_ended_with_its_group_when_its_time_is_up(tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! > {tmp_path / 'pid'}; wait"

    answer = ask(["/bin/sh", "-c", script], os.environ, 1.0)

    assert answer == ProgramOutput(None, "")
    pid = int(wait_for(lambda: (tmp_path / "pid").read_text().strip(), what="a pid"))
    wait_for(lambda: not is_alive(pid), what="its end")
    assert ask(["/bin/sh", "-c", "echo 1.2.3; exit 3"], os.environ, 30.0) == ProgramOutput(3, "1.2.3\n")
    assert ask(["/nowhere/at/all"], os.environ, 1.0) is None


def test_the_page_says_what_to_do_and_neutralises_what_comes_from_outside(golden: Golden) -> None:
    results = [
        ok("2.39", check="git"),
        warning("odd\x1b[2J " + "word " * 30, "date\nntp", check="clock"),
    ]

    text = as_text(results, columns=80, colour=False)

    golden(text)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert json.loads(as_json(results))["counts"] == {"ok": 1, "not known": 0, "warning": 1, "failed": 0}


@pytest.mark.parametrize("agent", agents.LOGINS)
def test_the_command_that_is_named_is_that_of_the_agents_program(agent: str) -> None:
    program = known.agent_of(agent, AgentSpec()).program
    assert agents.LOGINS[agent][0].split()[0] == program
    assert (login_command(agent) or "").split()[0] == program


def test_a_database_that_is_locked_is_not_called_damaged(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "events.db", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE events (id INTEGER)")
        connection.execute("BEGIN EXCLUSIVE")
        result = daemon.events(tmp_path, limit_s=0.1)
    assert (result.level, "locked" in result.text) == (Level.UNKNOWN, True)


def test_more_open_files_are_asked_for_where_they_are_to_be_had(
    monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    texts = {}
    for limits in ((256, 4096), (256, 512), (256, 256)):
        monkeypatch.setattr("resource.getrlimit", lambda _, limits=limits: limits)
        texts[f"{limits[0]} of {limits[1]}"] = page([daemon.open_files()])
    golden(texts)


@pytest.mark.parametrize(("version", "text"), [("2.33.1", "2.33.1, older than 2.34"), ("2.34.0", "2.34.0")])
def test_a_git_that_is_too_old_for_worktrees_is_named(
    version: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repo, "line", lambda *words: f"git version {version}")

    assert agents.git(os.environ).text == text
