"""logs and events: what is asked for, how it is shown, and that a daemon's restart loses nothing."""

import io
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ralphctl.format.log_text import LogPrinter, iteration_spans, since
from ralphctl.format.output import neutralise
from tests.ctl.conftest import Ctl
from tests.ctl.fake import Answer, FakeDaemon, Request, view
from tests.ctl.golden_files import Golden
from tests.written_nights import write

LOGS = "GET /v1/ralphs/api/logs"
AT = "2026-11-21T07:00:00.123456789Z"


def record(number: int, text: str = "", stream: str = "stdout", *, partial: bool = False) -> dict[str, Any]:
    return {
        "at": AT,
        "stream": stream,
        "text": text or f"line {number}",
        "partial": partial,
        "cursor": f"c{number}",
    }


def as_lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in records)


@contextmanager
def following(environment: dict[str, str], cwd: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "ralphctl", *words],
        env=environment, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)


def test_into_a_file_go_the_very_bytes(
    daemon: FakeDaemon, environment: dict[str, str], tmp_path: Path
) -> None:
    daemon.views = {"api": view()}
    body = b"\xff\x1b]0;title\x07 raw\n"
    daemon.on(LOGS, lambda _: Answer(b"", parts=iter([body[:5], body[5:]])))
    out = subprocess.run(
        [sys.executable, "-P", "-m", "ralphctl", "logs", "api", "--raw"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
    )
    assert out.stdout == body
    assert daemon.asked[-1].query == {"tail": "100", "format": "text", "events": "raw"}


def test_the_log_of_a_build_has_its_name_beside_a_daemon(
    daemon: FakeDaemon, ctl: Ctl, tmp_path: Path
) -> None:
    daemon.views = {"api": view()}
    daemon.on(LOGS, lambda _: Answer(as_lines(record(1))))
    home = tmp_path / "state" / "build" / "shop-0123abcd" / "ralphs" / "shop"
    write(home, tmp_path / "shop", iter(()))
    run = home / "runs" / "r000001-0000beef"
    run.mkdir(parents=True)
    (run / "log.000001").write_text(f"{AT} stdout F sold\n")
    kept = ctl("logs", "shop")
    assert (kept.stdout, kept.returncode) == ("sold\n", 0), kept.stderr
    assert "this is the log on disk" in kept.stderr
    assert (ctl("logs", "api").stdout, ctl("logs", "gone").returncode) == ("line 1\n", 4)


def test_what_is_asked_for_reaches_the_daemon(daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.on(LOGS, lambda _: Answer(b""))
    reply = ctl(
        "logs", "api", "-n", "all", "--stream", "stderr", "--grep", "a b&c", "--since", "@0", "--until",
        "2026-11-21T07:00:00Z",
    )  # fmt: skip
    assert reply.returncode == 0, reply.stderr
    assert daemon.asked[-1].query == {
        "tail": "all", "stream": "stderr", "grep": "a b&c", "since": "1970-01-01T00:00:00+00:00",
        "until": "2026-11-21T07:00:00+00:00", "format": "json", "events": "text",
    }  # fmt: skip


def test_timestamps_are_local(daemon: FakeDaemon, ctl: Ctl, golden: Golden) -> None:
    daemon.on(
        LOGS, lambda _: Answer(as_lines(record(1, "hello"), record(2, "Restarting Ralph...", "regent")))
    )
    golden(ctl("logs", "api", "-t", more={"TZ": "Asia/Seoul"}))


def test_a_time_that_is_none_is_refused_with_examples(ctl: Ctl, golden: Golden) -> None:
    reply = ctl("logs", "api", "--since", "yesterweek")
    golden(reply)
    assert reply.returncode == 2


def test_a_follower_goes_on_at_its_cursor_when_the_daemon_is_back(
    daemon: FakeDaemon, environment: dict[str, str], tmp_path: Path
) -> None:
    asked: list[Request] = []
    hang = threading.Event()

    def parts(request: Request) -> Iterator[bytes]:
        if len(asked) == 1:
            whole = as_lines(record(1), record(2))
            yield whole[:20]
            yield whole[20:] + b'{"at": "half'
            hang.wait(10)
        else:
            yield as_lines(record(3))
            hang.wait(10)

    def answer(request: Request) -> Answer:
        asked.append(request)
        return Answer(b"", parts=parts(request))

    daemon.views = {"api": view()}
    daemon.on(LOGS, answer)
    with following(environment, tmp_path, "logs", "-f", "api", "--grep", "line") as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["line 1\n", "line 2\n"]
        daemon.stop()
        daemon.start()
        assert process.stdout.readline() == "line 3\n"
        hang.set()
    same = {"grep": "line", "events": "text", "follow": "true", "format": "json", "ends": "true"}
    assert asked[0].query == {"tail": "100", **same}
    assert asked[1].query == {"cursor": "c2", **same}
    assert process.returncode == 130


def entry(number: int, ended: str | None, *, run: str = "r000002-bbbbbbbb", task: str = "") -> dict[str, Any]:
    attempt = {"at": f"2026-11-21T{ended}Z", "duration_s": 60.0} if task and ended else None
    return {
        "run_id": run, "iteration": number, "at": ended and f"2026-11-21T{ended}Z",
        "task": {"id": task, "title": f"Parse {task}"} if task else None,
        "attempts": [attempt] if attempt else [],
    }  # fmt: skip


BUILT_IN = [
    entry(3, "07:10:00", task="a"),
    entry(2, "07:05:00", task="b"),
    entry(1, "07:02:00", task="a"),
    entry(1, "06:00:00", task="a", run="r000001-aaaaaaaa"),
]
OWN = [entry(2, "07:05:00"), entry(1, "07:02:00")]


@pytest.mark.parametrize(
    ("entries", "iteration", "task", "expected"),
    [
        (BUILT_IN, "3", None, [("since", "07:09:00", None)]),
        (BUILT_IN, "2", None, [("since", "07:04:00", "07:09:00")]),
        (BUILT_IN, "1", None, [("since", "07:01:00", "07:04:00")]),
        (BUILT_IN, "1:1", None, [("since", "05:59:00", "07:01:00")]),
        (BUILT_IN, "r000001-aaaaaaaa:1", None, [("since", "05:59:00", "07:01:00")]),
        (BUILT_IN, None, "PARSE B", [("since", "07:04:00", "07:09:00")]),
        (BUILT_IN, None, "b", [("since", "07:04:00", "07:09:00")]),
        (BUILT_IN, None, "a", [("since", "05:59:00", "07:01:00"), ("since", "07:01:00", "07:04:00"),
                               ("since", "07:09:00", None)]),
        (OWN, "1", None, [("cursor", "r000002-bbbbbbbb:1:0:0", "07:02:00.003000")]),
        (OWN, "2", None, [("since", "07:02:00.003000", None)]),
        (BUILT_IN, "9", None, []),
        (BUILT_IN, "x", None, []),
        ([], "1", None, []),
    ],
)  # fmt: skip
def test_the_part_of_the_log_that_is_an_iterations(
    entries: list[dict[str, Any]],
    iteration: str | None,
    task: str | None,
    expected: list[tuple[str, str, str]],
) -> None:
    day = "2026-11-21T"
    spans = [
        (
            key,
            value.removeprefix(day).removesuffix("+00:00"),
            end and end.removeprefix(day).removesuffix("+00:00"),
        )
        for span in iteration_spans(entries, iteration, task, lambda *_: None)
        for key, value, end in [
            (*next(each for each in span.items() if each[0] != "tail"), span.get("until"))
        ]
    ]
    assert spans == expected


def test_an_iteration_lasts_from_its_own_line_to_the_next_ones() -> None:
    asked: list[tuple[dict[str, str], str]] = []

    def find(part: Mapping[str, str], line: str) -> str:
        asked.append(({**part}, line))
        return f"2026-11-21T07:0{len(asked)}:00.000001999Z"

    spans = iteration_spans(BUILT_IN, "2", None, find) + iteration_spans(BUILT_IN, "3", None, find)

    assert [(span["since"][14:26], span["until"][14:26]) for span in spans] == [
        ("01:00+00:00", "02:00+00:00"), ("03:00+00:00", "04:00+00:00")
    ]  # fmt: skip
    day = "2026-11-21T07:"
    assert asked == [
        ({"since": f"{day}02:00Z", "until": f"{day}04:00+00:00"}, "Ralph: iteration 2: "),
        ({"since": f"{day}05:00Z", "until": f"{day}09:00+00:00"}, "Ralph: iteration 3: "),
        ({"since": f"{day}05:00Z", "until": f"{day}09:00+00:00"}, "Ralph: iteration 3: "),
        ({"since": f"{day}10:00Z"}, "Ralph: iteration 4: "),
    ]


def test_an_iteration_is_asked_for_by_its_time(daemon: FakeDaemon, ctl: Ctl, golden: Golden) -> None:
    daemon.on("GET /v1/ralphs/api/iterations", lambda _: Answer({"iterations": BUILT_IN}))
    daemon.on(LOGS, lambda _: Answer(as_lines(record(1, "one"))))
    assert ctl("logs", "api", "--iteration", "2").stdout == "one\n"
    assert daemon.asked[-1].query["since"] == "2026-11-21T07:04:00+00:00"
    assert ctl("logs", "api", "--task", "a").stdout == "one\n" * 3
    unknown = ctl("logs", "api", "--iteration", "9"), ctl("logs", "api", "--task", "none")
    golden(*unknown, ctl("logs", "api", "--iteration", "2", "-f"))


def test_several_logs_are_one_in_the_order_of_time(daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.views = {"api": view(), "web": view("web")}
    later = {**record(2, "later"), "at": "2026-11-21T07:00:01.000000000Z"}
    daemon.on(LOGS, lambda _: Answer(as_lines(record(1, "first"), later)))
    daemon.on("GET /v1/ralphs/web/logs", lambda _: Answer(as_lines(record(1, "two\nlines"))))
    reply = ctl("logs", "api", "web")
    assert reply.stdout == "api | first\nweb | two\nweb | lines\napi | later\n"


def test_a_follower_of_nobody_ends_with_4(daemon: FakeDaemon, ctl: Ctl) -> None:
    assert ctl("logs", "-f", "nobody").returncode == 4


def test_on_a_terminal_an_agent_can_colour_but_not_take_over(
    daemon: FakeDaemon, environment: dict[str, str], tmp_path: Path
) -> None:
    text = "\x1b[31mred\x1b[0m \x1b]52;c;aGk=\x07 \x1b[2J"
    daemon.on(LOGS, lambda _: Answer(as_lines(record(1, text), record(2, "kept", "regent"))))
    shown = on_a_terminal(["logs", "api"], environment, tmp_path)
    assert b"\x1b[31mred\x1b[0m ^[]52;c;aGk=^G ^[[2J\x1b[0m\r\n" in shown
    assert "\x1b[38;5;208m[07:00:00]  🛡️  Regent: kept\x1b[0m".encode() in shown
    assert b"\x1b[38" not in on_a_terminal(["logs", "api"], {**environment, "NO_COLOR": "1"}, tmp_path)


def on_a_terminal(words: list[str], environment: dict[str, str], cwd: Path) -> bytes:
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ralphctl", *words],
            env={**environment, "TERM": "xterm"}, cwd=cwd, stdout=theirs, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # how Linux tells that nobody has the other side open any more
                break
            if not part:
                break
            shown += part
        process.wait(10)
        return shown
    finally:
        os.close(ours)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"), ("tab\there", "tab\there"), ("crlf\r", "crlf"), ("a\rb", "a^Mb"),
        ("\x1b[1;38;5;208mx", "\x1b[1;38;5;208mx\x1b[0m"), ("\x1b[6n", "^[[6n"), ("\x9b31m", "\\x9b31m"),
        ("\x1b]8;;http://x\x1b\\y", "^[]8;;http://x^[\\y"), ("\u202egnp", "\\u202egnp"), ("\x1b[31", "^[[31"),
        ("ünïcödé 🛡️", "ünïcödé 🛡️"),
    ],
)  # fmt: skip
def test_only_colours_reach_a_terminal(text: str, shown: str) -> None:
    assert neutralise(text) == shown


def test_parts_of_a_line_are_put_together_and_streams_never_share_one() -> None:
    out = io.BytesIO()
    printer = LogPrinter(out, safe=True)
    for each in (
        record(1, "half ", partial=True), record(2, "whole"), record(3, "cut", partial=True),
        record(4, "err", "stderr"), {"gap": "3 segments were pruned", "cursor": "c9"},
        record(5, "open", partial=True),
    ):  # fmt: skip
        printer.put(each)
    printer.end()
    assert out.getvalue() == b"half whole\ncut\nerr\n[ralphd] gap in the log: 3 segments were pruned\nopen\n"


def test_times_are_taken_as_people_write_them() -> None:
    now = 1_700_000_000.0
    assert since("10m", now=now) == since(f"@{now - 600}", now=now)
    assert since("1.5h", now=now) == since(f"@{now - 5400}", now=now)
    assert since("2026-11-21T20:00:00Z") == since("2026-11-21T21:00:00+01:00")
    assert all(since(text) is None for text in ("", "m", "10x", "nanm", "infs", "@1e99", "25:00", "soon"))


def test_a_time_of_day_is_the_last_one_of_what_is_past() -> None:
    morning = datetime(2026, 11, 28, 7, 22).timestamp()
    evening, night = (datetime(2026, 11, 27, hour).timestamp() for hour in (22, 3))
    assert since("22:00", now=morning) == evening
    assert since("3:00", now=morning) == since("03:00", now=morning) == night + 86400
    assert since("22:00", now=morning, is_past=False) == evening + 86400
    assert since("2026-11-28 22:00", now=morning) == evening + 86400


def event(number: int, ralph: str | None = "api", kind: str = "ralph.started", **data: Any) -> bytes:
    body = {"id": number, "type": kind, "at": AT, "ralph": ralph, "run_id": None, "data": data}
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(body, ensure_ascii=False)}\n\n".encode()


def test_events_are_one_line_each(daemon: FakeDaemon, ctl: Ctl, golden: Golden) -> None:
    daemon.on(
        "GET /v1/events", lambda _: Answer(event(1, message="up\x1b[2J") + event(2, "web", pid=7, x=None))
    )
    golden(ctl("events"))
    assert daemon.asked[-1].query == {"replay": "20", "follow": "false"}
    assert [json.loads(line)["id"] for line in ctl("events", "web", "--json").stdout.splitlines()] == [2]


def test_events_of_an_unknown_ralph_are_an_error(daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.views["quiet"] = view("quiet")
    daemon.on("GET /v1/events", lambda _: Answer(event(1, "removed")))
    assert ctl("events", "nosuch").returncode == ctl("events", "-f", "nosuch").returncode == 4
    assert ctl("events", "quiet").returncode == ctl("events", "removed").returncode == 0


def test_events_tell_ends_in_words_and_moments_in_local_time(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    ended = {"code": None, "signal": 15, "outcome": "asked"}
    told = event(1, "a-name-of-some-length", "ralph.exited", **ended)
    told += event(2, "web", "wait.started", until="2020-11-21T07:00:25.000000Z")
    daemon.on("GET /v1/events", lambda _: Answer(told))
    golden(ctl("events", more={"TZ": "Asia/Seoul"}))


def test_events_tell_attempts_in_words(daemon: FakeDaemon, ctl: Ctl, golden: Golden) -> None:
    where: dict[str, Any] = {"iteration": 2, "task": {"id": "US-2", "title": "Parse it"}}
    why: dict[str, Any] = {"failure_kind": "agent_crash", "why": "exit status 3", "next": "codex goes on"}
    told = event(1, kind="attempt.finished", **where, attempt=3, agent="claude", outcome="failed", **why)
    told += event(2, kind="attempt.finished", outcome="ok", agent="mine", cost_usd=0.5, commits=2, rule="x")
    told += event(3, kind="iteration.started", **where)
    told += event(
        4, kind="iteration.finished", **where, failed=False, summary="US-2 is done", commits=["ab", "cd"]
    )
    told += event(5, kind="wait.started", message="Ralph waits: a tide", until="2020-11-21T07:00:25.000000Z")
    told += event(
        6, kind="agent.exhausted", message="claude is out until 2020-11-21T07:00:25.000000Z: a week"
    )
    daemon.on("GET /v1/events", lambda _: Answer(told))
    golden(ctl("events"))


def test_events_go_on_after_the_last_id_when_the_daemon_is_back(
    daemon: FakeDaemon, environment: dict[str, str], tmp_path: Path
) -> None:
    asked: list[Request] = []
    hang = threading.Event()

    def parts() -> Iterator[bytes]:
        yield b": ping\n\n" + event(6 + len(asked), text="one\u2028line")
        hang.wait(10)

    def answer(request: Request) -> Answer:
        if request.query.get("follow") == "false":
            return Answer(event(6))
        asked.append(request)
        return Answer(b"", parts=parts())

    daemon.on("GET /v1/events", answer)
    with following(environment, tmp_path, "events", "-f", "--json") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["id"] == 7
        daemon.stop()
        daemon.start()
        assert json.loads(process.stdout.readline())["id"] == 8
        hang.set()
    assert [request.headers["last-event-id"] for request in asked] == ["6", "7"]
