"""The way in: help, near misses, options anywhere, sockets in odd places, pipes that close."""

import fcntl
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralphctl.cli import overview
from ralphctl.cli.overview import TABLE
from ralphctl.client import discovery
from ralphctl.format import humanize
from ralphctl.offline import state as offline
from ralphd import wire
from tests.ctl.conftest import Ctl
from tests.ctl.fake import Answer, FakeDaemon, view
from tests.ctl.golden_files import Golden, printed


def test_help_names_every_command_and_imports_none(environment: dict[str, str], tmp_path: Path) -> None:
    script = (
        "import sys; from ralphctl.main import main; main(); "
        "heavy = ('ralphctl.commands.', 'click', 'http', 'pydantic'); "
        "print(*[m for m in sys.modules if m.startswith(heavy)])"
    )
    out = subprocess.run(
        [sys.executable, "-P", "-c", script, "--help"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    ).stdout
    assert all(re.search(rf"^  ([a-z, ]+, )?{name}[ ,]", out, re.MULTILINE) for name in TABLE)
    assert out.endswith("\n\n") or out.splitlines()[-1] == ""


@pytest.mark.parametrize("width", [20, 44, 80])
def test_the_help_is_as_wide_as_the_terminal_and_the_same_by_click(width: int, ctl: Ctl) -> None:
    lines = overview.page(width).splitlines()

    assert all(len(line) <= max(width, 22) for line in lines[lines.index("Options:") :])
    asked = ctl("--json", "--help", more={"COLUMNS": str(width)})
    assert asked.stdout.splitlines() == lines


@pytest.mark.parametrize("name", [name for name in TABLE if name != "demo"])
def test_every_command_in_the_table_is_there_and_explains_itself(name: str, ctl: Ctl) -> None:
    reply = ctl(name, "--help")
    assert reply.returncode == 0, reply.stderr
    assert reply.stdout.startswith("Usage: ralphctl ")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["stauts"], "ralphctl status"), (["strat"], "ralphctl start"), (["skipwait"], "ralphctl skip-wait"),
        (["regent", "stauts"], "ralphctl regent status"), (["zzzz"], "ralphctl --help"),
    ],
)  # fmt: skip
def test_a_near_miss_is_answered_with_what_was_meant(typed: list[str], meant: str, ctl: Ctl) -> None:
    reply = ctl(*typed)
    assert reply.returncode == 2
    assert meant in reply.stderr


def test_help_and_version_are_commands_too(ctl: Ctl) -> None:
    assert ctl("help").stdout == ctl("--help").stdout
    assert ctl("version").stdout == ctl("--version").stdout
    assert ctl("help", "config", "set").stdout == ctl("config", "set", "--help").stdout
    assert json.loads(ctl("--json", "version").stdout)["version"]
    reply = ctl("help", "watch")
    assert (reply.returncode, "ralphctl status --watch" in reply.stderr) == (2, True)
    assert ctl("run", "--help").stdout == ctl("build", "--help").stdout.replace(
        "ralphctl build [", "ralphctl run ["
    )


def test_a_wrong_option_is_told_in_the_same_form(ctl: Ctl, golden: Golden) -> None:
    replies = [ctl("stop", "--nwo"), ctl("stauts"), ctl("regent", "stauts")]
    golden(*replies)
    assert {reply.returncode for reply in replies} == {2}


def test_the_short_road_leaves_what_it_does_not_know_to_click(daemon: FakeDaemon, ctl: Ctl) -> None:
    for typed in (["status", "--nope"], ["status", "a", "b"], ["status", "-C"], ["status", "--socket"]):
        assert ctl(*typed).returncode == 2, typed
    assert ctl("--version").stdout.startswith("ralphctl ")


def test_options_are_understood_before_and_after_the_command(
    daemon: FakeDaemon, ctl: Ctl, tmp_path: Path
) -> None:
    daemon.views = {"api": view(state="stopped", directory=str(tmp_path / "x"))}
    (tmp_path / "x").mkdir()
    before = ctl("-C", "x", "--socket", str(daemon.path), "--json", "stop")
    after = ctl("stop", "-C", "x", "--socket", str(daemon.path), "--json")
    assert before.returncode == 0, before.stderr
    assert before.stdout == after.stdout


def test_an_option_without_its_value_names_the_help_of_the_command(ctl: Ctl) -> None:
    assert "try: ralphctl logs --help" in ctl("logs", "api", "--since").stderr
    assert "try: ralphctl --help" in ctl("--socket").stderr


def test_a_directory_that_is_not_there_is_said(ctl: Ctl, golden: Golden) -> None:
    replies = [
        ctl("-C", "nowhere", "status"), ctl("-C", "nowhere", "stop"), ctl("config", "check", "nowhere")
    ]  # fmt: skip
    golden(*replies)
    assert {reply.returncode for reply in replies} == {1}


@pytest.mark.parametrize("typed", [["start"], ["init"], ["config", "check"], ["classify"]])
def test_a_path_that_the_kernel_refuses_is_one_clear_error(typed: list[str], ctl: Ctl) -> None:
    prompt = "do all of the tasks, " * 20
    reply = ctl(*typed, prompt)
    assert (reply.returncode, len(reply.stderr.splitlines())) == (1, 2), reply
    assert prompt in reply.stderr
    assert "File name too long" in reply.stderr


def test_a_socket_path_may_be_longer_than_an_address(ctl: Ctl, tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 100) / ("e" * 100)
    directory.mkdir(parents=True)
    daemon = FakeDaemon(directory / "ralphd.sock")
    try:
        daemon.views = {"api": view(state="stopped")}
        daemon.on("GET /v1/events", lambda _: Answer(b""))
        for typed in (["status"], ["stop", "api"], ["events"]):
            reply = ctl(*typed, "--socket", str(daemon.path))
            assert reply.returncode == 0, reply.stderr
    finally:
        daemon.stop()


@pytest.fixture
def signpost(tmp_path: Path) -> Iterator[Path]:
    """A live ``.ralph/lock`` in ``tmp_path/project``, held as a Regent holds it."""
    lock = tmp_path / "project" / ".ralph" / "lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as held:
        json.dump({"pid": os.getpid(), "socket": str(tmp_path / "p.sock"), "state_directory": "/s"}, held)
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        yield lock


def test_a_planted_lock_receives_nothing(
    ctl: Ctl, signpost: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    """An agent can write and hold ``.ralph/lock``; ``start`` sends the whole environment."""
    daemon = FakeDaemon(tmp_path / "p.sock")
    try:
        daemon.views = {"private": view("private")}
        project = signpost.parents[1]
        assert discovery.lock_owner(str(project)) == str(daemon.path), "it is well forged"
        for typed in ("status", "stop", "logs"):
            assert "private" not in ctl(typed, cwd=project).stdout
        assert str(daemon.path) not in discovery.candidates(None, environment, str(project))
        assert daemon.asked == []
    finally:
        daemon.stop()


def test_a_planted_lock_that_nests_deeply_is_no_lock(ctl: Ctl, signpost: Path) -> None:
    signpost.write_text("[" * 16_384)
    assert discovery.lock_owner(str(signpost.parents[1])) is None
    assert "Traceback" not in ctl("status", cwd=signpost.parents[1]).stderr


def test_a_relative_state_home_is_ignored() -> None:
    """Each directory would have a daemon of its own, and one in the background the directory /."""
    assert wire.state_directory({"HOME": "/h", "XDG_STATE_HOME": "/s"}) == "/s/ralphd"
    for relative in ("s", "./s", ""):
        assert wire.state_directory({"HOME": "/h", "XDG_STATE_HOME": relative}) == "/h/.local/state/ralphd"


def test_a_build_that_runs_in_the_directory_is_found_in_the_state_directory(
    ctl: Ctl, environment: dict[str, str], tmp_path: Path
) -> None:
    project = tmp_path / "project" / "sub"
    project.mkdir(parents=True)
    home = offline.build_state_directory(str(project.parent), "p", environment)
    home.mkdir(parents=True)
    daemon = FakeDaemon(home / "ralphd.sock")
    try:
        daemon.views = {"private": view("private")}
        assert ctl("status", cwd=project).returncode == 3, "nobody holds its lock"
        with (home / "lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            assert "private" in ctl("status", cwd=project).stdout
            assert ctl("status", cwd=tmp_path).returncode == 3
    finally:
        daemon.stop()


def test_the_daemon_of_another_user_is_not_spoken_to(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ralphctl.client import transport
    from ralphd.errors import Forbidden

    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    if os.getuid() == 0:
        transport.connect([str(daemon.path)]).close()  # root may do as it likes here anyway
    else:
        with pytest.raises(Forbidden):
            transport.connect([str(daemon.path)])


@pytest.mark.parametrize("typed", ["status", "events --tail 5000"])  # more than a pipe holds
def test_a_pipe_that_closes_ends_it_without_a_word(
    typed: str, daemon: FakeDaemon, environment: dict[str, str], tmp_path: Path
) -> None:
    daemon.views = {f"r{i}": view(f"r{i}") for i in range(2000)}
    body = b'data: {"id":1,"type":"t","at":"x","ralph":"r","run_id":null,"data":{}}\n\n'
    daemon.on("GET /v1/events", lambda _: Answer(body * 20_000))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "ralphctl", *typed.split()],
        env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(10) == 141


def test_what_speaks_no_http_is_said_to(ctl: Ctl, daemon: FakeDaemon, golden: Golden) -> None:
    daemon.on("GET /v1/status", lambda _: Answer(b"<html>", 500))
    reply = ctl("status")
    golden(reply)
    assert reply.returncode == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.9, "59s"), (60, "1m"), (725, "12m 5s"), (7980, "2h 13m"), (273600, "3d 4h"), (-5, "0s")],
)
def test_durations_are_two_parts_at_most(seconds: float, text: str) -> None:
    assert humanize.duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1970-01-01T00:00:00Z", 0.0), ("2024-02-29T12:00:00.5Z", 1709208000.5),
        ("2026-11-21T20:00:00.123456789Z", 1795291200.123456), ("2026-11-21", None), (None, None),
        ("x" * 20, None),
    ],
)  # fmt: skip
def test_moments_are_read(text: str | None, moment: float | None) -> None:
    assert humanize.moment(text) == moment


def test_ends_are_told_in_words(golden: Golden) -> None:
    ends = [(0, None), (127, None), (None, 9), (None, None), (137, None), (None, 99)]
    golden({f"code {code}, signal {signal}": humanize.exit_words(code, signal) for code, signal in ends})


def test_a_path_that_the_locale_cannot_name_is_one_clear_error(daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.views = {"api": view(directory="/somewhere/\u2713")}
    ascii_only = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    reply = ctl("status", more=ascii_only)
    assert reply.returncode == 1
    assert "Traceback" not in reply.stderr and "  try: export LC_ALL=C.UTF-8\n" in reply.stderr


def test_a_full_disk_under_the_answer_is_one_clear_error(
    environment: dict[str, str], golden: Golden, tmp_path: Path
) -> None:
    with open("/dev/full", "w") as full:
        said = subprocess.run(
            [sys.executable, "-P", "-m", "ralphctl", "--help"],
            env=environment, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    golden(printed("ralphctl --help > /dev/full", said.returncode, "", said.stderr))
    assert said.returncode == 1


@pytest.mark.parametrize(("words", "closed"), [("stop api", ">&-"), ("report", ">&-"), ("stop api", "2>&-")])
def test_with_a_closed_stream_a_command_does_its_work(
    daemon: FakeDaemon, environment: dict[str, str], tmp_path: Path, words: str, closed: str
) -> None:
    daemon.views = {"api": view("api", state="stopped", directory=str(tmp_path))}
    typed = f'exec "$0" -P -m ralphctl {words} {closed}'
    said = subprocess.run(
        ["sh", "-c", typed, sys.executable],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in said.stderr and said.returncode == (4 if words == "report" else 0), said
    assert daemon.lines() == ([] if words == "report" else ["POST /v1/ralphs/api/stop"])


@pytest.mark.parametrize(
    "words",
    [
        ("stop", "x"), ("start", "--no-autostart"), ("pause", "x"), ("explain", "x"), ("verdicts", "x"),
        ("report",), ("events",), ("wait", "x"), ("webhooks", "list"), ("ack", "x"), ("notify", "cost", "1"),
        ("regent", "status"), ("doctor", "--help"), ("init", "--help"), ("classify", "--help"),
    ],
)  # fmt: skip
def test_a_short_command_loads_nothing_heavy(
    words: tuple[str, ...], environment: dict[str, str], tmp_path: Path
) -> None:
    script = (
        "import sys, atexit; from ralphctl.main import main; "
        "atexit.register(lambda: print('LOADED', *sys.modules)); main()"
    )
    printed = subprocess.run(
        [sys.executable, "-P", "-c", script, *words],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    ).stdout
    loaded = set(printed.rpartition("LOADED")[2].split())
    assert "ralphctl.main" in loaded
    assert not loaded & {"asyncio", "fastapi", "httpx", "pydantic", "rich"}


# --- another system ---------------------------------------------------------------------------------------


def elsewhere(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program where Python has no pidfd, as on macOS."""
    code = f"import os, sys; del os.pidfd_open; from {module} import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("module", "words"),
    [("ralphctl.main", "status"), ("ralphctl.main", "start -- true"), ("ralphd.__main__", "")],
)
def test_without_linux_one_line_says_what_is_needed(module: str, words: str) -> None:
    done = elsewhere(module, *words.split())

    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"error: ralphd needs Linux.*os\.pidfd_open\n", done.stderr)


@pytest.mark.parametrize("words", ["--version", "--help", ""])
def test_without_linux_version_and_help_are_printed(words: str) -> None:
    done = elsewhere("ralphctl.main", *words.split())

    assert (done.returncode, done.stderr) == (0, "")
    assert "ralphctl" in done.stdout
