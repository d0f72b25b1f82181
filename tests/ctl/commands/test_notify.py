"""notify: what is sent, how long it is tried, and which exit codes a script sees."""

import json
import subprocess
import sys
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ralphctl.commands import notify
from ralphd.errors import UsageError
from tests.ctl.conftest import Ctl
from tests.ctl.fake import Answer, FakeDaemon, Request, problem
from tests.ctl.golden_files import Golden

RUN = {"RALPH_NAME": "api", "RALPH_RUN_ID": "r000012-3fa9c1d2"}
ROUTE = "POST /v1/ralphs/api/reports"
NOW = 1_795_244_400.0


def id_of(request: Request) -> str:
    assert request.body is not None
    return str(request.body["id"])


def answers(daemon: FakeDaemon, then: str = "continue") -> None:
    def answer(request: Request) -> Answer:
        return Answer({"id": id_of(request), "next": then, "verdict": None})

    daemon.on(ROUTE, answer)


def in_run(daemon: FakeDaemon) -> dict[str, str]:
    return RUN | {"RALPHD_SOCKET": str(daemon.path)}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hello"], {"kind": "hello", "signals": False}),
        (["hello", "--signals", "--agent", "claude"], {"kind": "hello", "signals": True, "agent": "claude"}),
        (["iteration-started"], {"kind": "iteration-started"}),
        (
            ["iteration-started", "--iteration", "3", "--task", "US-1", "--title", "Parse\n it"],
            {"kind": "iteration-started", "iteration": 3, "task": {"id": "US-1", "title": "Parse it"}},
        ),
        (["attempt-finished", "--agent", "a"], {"kind": "attempt-finished", "agent": "a", "outcome": "done"}),
        (
            ["attempt-finished", "--agent", "a", "--failure-kind", "timeout", "--exit-code", "124",
             "--cost", "0.5", "--duration", "61"],
            {"kind": "attempt-finished", "agent": "a", "outcome": "failed", "failure_kind": "timeout",
             "exit_code": 124, "cost_usd": 0.5, "duration_s": 61.0},
        ),
        (["iteration-finished"], {"kind": "iteration-finished", "failed": False, "wait": False}),
        (
            ["iteration-finished", "--iteration", "3", "--failed", "--summary", "x" * 5000],
            {
                "kind": "iteration-finished",
                "iteration": 3,
                "failed": True,
                "summary": "x" * 4000,
                "wait": False,
            },
        ),
        (["waiting", "--until", "over"], {"kind": "waiting", "until": None}),
        (
            ["waiting", "--until", "2026-11-22T03:00:00Z", "--reason", "usage limit"],
            {"kind": "waiting", "until": "2026-11-22T03:00:00+00:00", "reason": "usage limit"},
        ),
        (["cost", "0.25"], {"kind": "cost", "usd": 0.25}),
        (["heartbeat"], {"kind": "heartbeat"}),
    ],
)  # fmt: skip
def test_a_report_holds_the_run_an_id_and_what_was_said(
    daemon: FakeDaemon, ctl: Ctl, words: list[str], said: dict[str, Any]
) -> None:
    answers(daemon)

    reply = ctl("notify", *words, more=in_run(daemon))

    assert (reply.returncode, reply.stdout, reply.stderr) == (0, "", "")
    [request] = daemon.asked
    assert len(id_of(request)) == 24
    assert request.body == {"run_id": RUN["RALPH_RUN_ID"], "id": id_of(request), **said}


@pytest.mark.parametrize(("then", "code"), [("continue", 0), ("stop", 10), ("pause", 75)])
def test_what_to_do_next_is_printed_and_the_exit_code(
    daemon: FakeDaemon, ctl: Ctl, then: str, code: int
) -> None:
    answers(daemon, then)

    waited = ctl("notify", "iteration-finished", "--wait", more=in_run(daemon))
    told = ctl("notify", "iteration-finished", more=in_run(daemon))

    assert (waited.returncode, waited.stdout) == (code, f"{then}\n")
    assert (told.returncode, told.stdout) == (0, "")


def test_json_prints_the_reply(daemon: FakeDaemon, ctl: Ctl) -> None:
    answers(daemon, "stop")

    reply = ctl("notify", "iteration-finished", "--wait", "--id", "7", "--json", more=in_run(daemon))

    assert reply.returncode == 10
    assert json.loads(reply.stdout) == {"id": "7", "next": "stop", "verdict": None}


def test_outside_of_a_run_it_says_whom_it_is_for(daemon: FakeDaemon, ctl: Ctl, golden: Golden) -> None:
    first, *others = (
        ctl("notify", kind, more=in_run(daemon) | {missing: ""})
        for kind in ("hello", "heartbeat", "iteration-finished")
        for missing in ("RALPH_NAME", "RALPH_RUN_ID")
    )

    golden(first)
    assert {(reply.returncode, reply.stderr) for reply in others} == {(2, first.stderr)}
    assert daemon.asked == []


@pytest.mark.parametrize(
    "words",
    [
        ["cost"], ["cost", "much"], ["cost", "-1"], ["waiting"], ["waiting", "--until", "later"],
        ["waiting", "--until", "2026-11-22T03:00:00"], ["waiting", "--until", "+2 fortnights"],
        ["attempt-finished"], ["finished"],
        ["iteration-finished", "--iteration", "-1"], ["iteration-finished", "--iteration", "1000000001"],
        ["cost", "nan"], ["cost", "inf"], ["cost", "1000001"], ["cost", "1", "--id", "x" * 101],
        ["cost", "1", "--wait-timeout", "nan"], ["cost", "1", "--wait-timeout", "inf"],
    ],
)  # fmt: skip
def test_words_that_do_not_fit_are_usage_errors_and_send_nothing(
    daemon: FakeDaemon, ctl: Ctl, words: list[str]
) -> None:
    reply = ctl("notify", *words, more=in_run(daemon))

    assert reply.returncode == 2, reply
    assert reply.stderr.startswith("error: ")
    assert daemon.asked == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["iteration-started", "--task", "", "--title", "", "--agent", ""], {}),
        (["iteration-started", "--task", "", "--title", "T"], {"task": {"id": "T", "title": "T"}}),
        (
            ["iteration-started", "--task", "US\n" + "1" * 200, "--title", "\udcff bad"],
            {"task": {"id": "US " + "1" * 97, "title": "bad"}},
        ),
        (
            ["attempt-finished", "--agent", "", "--outcome", "", "--failure-kind", ""],
            {"agent": "unknown", "outcome": "done"},
        ),
        (
            ["iteration-finished", "--summary", "cut amid \udced\udc95"],
            {"failed": False, "summary": "cut amid ??", "wait": False},
        ),
    ],
)
def test_texts_of_a_script_are_made_to_fit_and_cost_no_boundary(
    daemon: FakeDaemon, ctl: Ctl, words: list[str], said: dict[str, Any]
) -> None:
    answers(daemon)

    reply = ctl("notify", *words, more=in_run(daemon))

    assert (reply.returncode, reply.stderr) == (0, "")
    [request] = daemon.asked
    assert request.body is not None
    assert {name: request.body[name] for name in request.body if name not in ("run_id", "id", "kind")} == said


def test_more_patience_than_a_socket_has_is_no_fault(daemon: FakeDaemon, ctl: Ctl) -> None:
    answers(daemon)

    reply = ctl("notify", "cost", "1", "--wait-timeout", "1e9", more=in_run(daemon))

    assert (reply.returncode, reply.stderr) == (0, "")


@pytest.mark.parametrize("run_id", ["x" * 101, "two\nlines"], ids=["long", "two lines"])
def test_what_can_be_no_run_is_not_sent(daemon: FakeDaemon, ctl: Ctl, golden: Golden, run_id: str) -> None:
    reply = ctl("notify", "heartbeat", more=in_run(daemon) | {"RALPH_RUN_ID": run_id})

    golden(reply)
    assert reply.returncode == 2
    assert daemon.asked == []


def test_while_the_daemon_is_away_the_same_report_is_sent_again(daemon: FakeDaemon, ctl: Ctl) -> None:
    def away(request: Request) -> Answer:
        if len(daemon.asked) == 1:
            threading.Thread(target=daemon.stop).start()
            threading.Timer(1.2, daemon.start).start()
            return problem("shutting-down", 503, "ralphd is shutting down")
        return Answer({"id": id_of(request), "next": "pause", "verdict": None})

    daemon.on(ROUTE, away)

    reply = ctl("notify", "iteration-finished", "--wait", "--summary", "s", more=in_run(daemon))

    assert (reply.returncode, reply.stdout) == (75, "pause\n")
    assert reply.stderr.count("retrying for at most 60 s") == 1
    first, *more = [request.body for request in daemon.asked]
    assert more
    assert all(body == first for body in more)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["iteration-finished", "--wait"], 3),
        (["iteration-finished"], 3),
        (["cost", "1"], 3),
        (["hello"], 3),
        (["heartbeat"], 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_without_a_daemon_nothing_waits_for_ever_and_a_heartbeat_ends_no_script(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden, words: list[str], code: int
) -> None:
    daemon.stop()

    reply = ctl("notify", *words, "--wait-timeout", "0.3", more=in_run(daemon))

    golden(reply)
    assert (reply.returncode, reply.stdout) == (code, "")


def test_a_daemon_that_does_not_answer_is_given_up_too(daemon: FakeDaemon, ctl: Ctl) -> None:
    silent = threading.Event()

    def answer(request: Request) -> Answer:
        silent.wait(20)
        return Answer({})

    daemon.on(ROUTE, answer)

    reply = ctl("notify", "iteration-finished", "--wait", "--wait-timeout", "0.5", more=in_run(daemon))
    silent.set()

    assert (reply.returncode, reply.stdout) == (3, "")
    assert "ralphd did not answer within" in reply.stderr


@pytest.mark.parametrize("kind", ["heartbeat", "iteration-finished"])
def test_what_the_daemon_refuses_is_told_and_no_exit_code_is_taken_for_an_answer(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden, kind: str
) -> None:
    daemon.on(ROUTE, lambda _: problem("stale-report", 409, "the report was not acted upon", "it is over"))

    reply = ctl("notify", kind, more=in_run(daemon))

    golden(reply)
    assert reply.returncode == (0 if kind == "heartbeat" else 1)
    assert len(daemon.asked) == 1


def test_another_daemon_of_the_user_is_not_told(daemon: FakeDaemon, ctl: Ctl) -> None:
    answers(daemon)
    gone = RUN | {"RALPHD_SOCKET": str(daemon.path.parent / "gone.sock")}

    reply = ctl("notify", "cost", "1", "--wait-timeout", "0", more=gone)

    assert reply.returncode == 3
    assert daemon.asked == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("+90s", 90), ("+90", 90), ("+1.5m", 90), ("+2h", 7200), ("+1d", 86400), ("+0", 0)],
)
def test_a_moment_may_be_given_from_now_on(text: str, seconds: float) -> None:
    told = notify.moment(text, NOW)

    assert told is not None
    assert datetime.fromisoformat(told).timestamp() == NOW + seconds


@pytest.mark.parametrize("text", ["", "+", "+-5", "+nan", "+1e99", "+inf", "soon", "2026-11-22"])
def test_what_is_no_moment_is_refused_with_the_forms_that_are(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        notify.moment(text, NOW)

    assert "+90s" in refused.value.why


def test_titles_and_reasons_are_made_to_fit() -> None:
    assert notify.one_line(" two\n\tlines\x1b[2J ") == "two lines[2J"
    assert len(notify.one_line("x" * 9000)) == 500
    assert notify.one_line("파싱 완료") == "파싱 완료"
    assert notify.bounded("a\0b" + "x" * 9000) == "ab" + "x" * 3998


def test_a_report_loads_nothing_heavy(environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-X",
            "importtime",
            "-m",
            "ralphctl",
            "notify",
            "heartbeat",
            "--wait-timeout",
            "0",
        ],
        env=environment | RUN,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=20,
    )

    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "ralphctl.client.client" in loaded
    assert not loaded & {"asyncio", "httpx", "pydantic", "rich", "sqlite3"}
