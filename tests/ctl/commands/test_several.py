"""Several names, and --all, for stop, pause, resume, restart and rm: a line each, and the worst exit code."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ctl.commands.test_control import become_after
from tests.ctl.conftest import Ctl
from tests.ctl.fake import Answer, FakeDaemon, problem, view
from tests.ctl.golden_files import Golden
from tests.template import command
from tests.terminal import Terminal


@pytest.fixture
def four(daemon: FakeDaemon) -> FakeDaemon:
    """One that runs, one that waits, one that is paused and one that is done."""
    daemon.views = {
        "api": view(), "cli": view("cli", state="waiting_for_retry", ralph_pid=None),
        "docs": view("docs", state="paused", ralph_pid=None),
        "web": view("web", state="done", ralph_pid=None),
    }  # fmt: skip
    for name in daemon.views:
        daemon.on(f"DELETE /v1/ralphs/{name}", lambda _: Answer(b"", 204))
    return daemon


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("stop --no-wait --all", ["api", "cli"]), ("pause --no-wait --all", ["api", "cli"]),
        ("restart --no-wait --all", ["api", "cli"]), ("resume --all", ["docs"]),
        ("stop --no-wait web api web", ["web", "api"]),
    ],
)  # fmt: skip
def test_all_means_those_to_which_it_applies(
    words: str, names: list[str], four: FakeDaemon, ctl: Ctl
) -> None:
    reply = ctl(*words.split())
    assert reply.returncode == 0, reply.stderr
    assert four.lines() == [f"POST /v1/ralphs/{name}/{words.split()[0]}" for name in names]
    assert [line.partition(":")[0] for line in reply.stdout.splitlines()] == names


def test_rm_all_leaves_what_is_running(four: FakeDaemon, ctl: Ctl) -> None:
    assert ctl("rm", "--all").returncode == 0
    assert four.lines() == ["DELETE /v1/ralphs/docs", "DELETE /v1/ralphs/web"]


def test_one_that_is_refused_keeps_no_other_from_it(four: FakeDaemon, ctl: Ctl, golden: Golden) -> None:
    refusal = problem("wrong-state", 409, "web is done, not paused", "", "ralphctl start web")
    four.on("POST /v1/ralphs/web/resume", lambda _: refusal)
    replies = [ctl("resume", "web", "nobody", "docs"), ctl("stop", "--all", "api"), ctl("resume", "web")]
    golden(*replies)
    assert [reply.returncode for reply in replies] == [4, 2, 1]
    assert four.lines()[2:] == ["POST /v1/ralphs/docs/resume", "POST /v1/ralphs/web/resume"]


def test_all_requests_are_sent_before_any_is_waited_for(daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.views = {"api": view(state="stopping"), "web": view("web", state="stopping")}
    seen: list[list[str]] = []
    become_after(daemon, "POST /v1/ralphs/api/stop", 0.3, state="stopped")

    def stopped(_: object) -> Answer:
        seen.append(daemon.lines())
        daemon.views["web"] = view("web", state="stopped")
        return Answer(daemon.views["web"], 202)

    daemon.on("POST /v1/ralphs/web/stop", stopped)
    reply = ctl("stop", "--all", "--json")
    assert [json.loads(line)["state"] for line in reply.stdout.splitlines()] == ["stopped", "stopped"]
    assert daemon.views["api"]["state"] == "stopped"


def test_nothing_to_do_is_no_fault(daemon: FakeDaemon, ctl: Ctl) -> None:
    reply = ctl("stop", "--all")
    assert (reply.returncode, reply.stdout, daemon.lines()) == (0, "", [])


@pytest.fixture
def rm(environment: dict[str, str], four: FakeDaemon, tmp_path: Path) -> Iterator[Terminal]:
    """``ralphctl rm docs web`` on a terminal."""
    argv = command("ralphctl", ["rm", "docs", "web"], environment)
    with Terminal(argv, cwd=tmp_path, environment=environment, columns=120) as terminal:
        yield terminal


@pytest.mark.parametrize(("answer", "code", "removed"), [(b"\r", 1, 0), (b"y\r", 0, 2), (b"\x04", 1, 0)])
def test_on_a_terminal_rm_says_what_goes_and_asks(
    answer: bytes, code: int, removed: int, rm: Terminal, four: FakeDaemon
) -> None:
    rm.shows("Remove docs, web? [y/N]")
    assert "The logs go" in rm.screen()
    rm.type(answer)
    assert rm.exit_code() == code
    assert len(four.lines()) == removed
