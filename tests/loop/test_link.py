"""Reports of the loop: in order, each until it is answered, over any absence of the daemon (H6, L9)."""

import http.server
import json
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ralphd.core.gate.verdict import Verdict, VerdictKind
from ralphd.core.supervision.model import Next
from ralphd.loop import report_client as links
from ralphd.loop.report_client import RegentReply, ReportClient
from tests.helpers import wait_for


class Regent(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers reports at a socket; ``statuses`` are what it answers first, then 200 and ``continue``."""

    daemon_threads = True

    def __init__(self, path: Path, *statuses: int) -> None:
        self.heard: list[dict[str, Any]] = []
        self.statuses = list(statuses)
        self.next = "continue"
        self.verdict: object = None
        self.waits = threading.Event()
        self.waits.set()
        super().__init__(str(path), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def end(self) -> None:
        """Listen no more."""
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        regent = self.server
        assert isinstance(regent, Regent)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        regent.heard.append({"path": self.path, **body})
        status = regent.statuses.pop(0) if regent.statuses else 200
        reply = (
            {"id": body["id"], "next": regent.next, "verdict": regent.verdict}
            if status == 200
            else {"detail": "no"}
        )
        regent.waits.wait(20)
        data = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent again is sent again soon."""
    monkeypatch.setattr(links, "RETRY_S", 0.05)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the socket is, or will be; longer than the kernel takes an address."""
    directory = tmp_path / ("d" * 100)
    directory.mkdir()
    return directory / "s"


@pytest.fixture
def regents() -> Iterator[list[Regent]]:
    """Those that are there; ended afterwards."""
    there: list[Regent] = []
    yield there
    for regent in there:
        regent.end()


def listening(place: Path, *statuses: int) -> Regent:
    """A Regent at ``place``, which is longer than an address may be."""
    short = place.parent.parent / "s"
    short.unlink(missing_ok=True)
    regent = Regent(short, *statuses)
    place.unlink(missing_ok=True)
    place.symlink_to(short)
    return regent


def test_reports_arrive_in_order_each_with_an_id_of_its_own(place: Path, regents: list[Regent]) -> None:
    regents.append(listening(place))
    link = ReportClient(str(place), "demo", "r1")

    link.report("hello", signals=True)
    answer = link.report("iteration-finished", iteration=1)

    assert answer.result(timeout=20) == RegentReply()
    link.close(10)
    assert [(said["kind"], said["id"]) for said in regents[0].heard] == [
        ("hello", "1"),
        ("iteration-finished", "2"),
    ]
    assert {(said["path"], said["run_id"]) for said in regents[0].heard} == {
        ("/v1/ralphs/demo/reports", "r1")
    }


def test_while_nobody_listens_reports_are_kept_and_then_sent(place: Path, regents: list[Regent]) -> None:
    told: list[str] = []
    link = ReportClient(str(place), "demo", "r1", told.append)
    answers = [link.report("cost", usd=number) for number in range(3)]
    wait_for(lambda: link.is_away, what="the absence to be noticed")

    regents.append(listening(place))

    assert [answer.result(timeout=20) for answer in answers] == [RegentReply()] * 3
    assert [said["usd"] for said in regents[0].heard] == [0, 1, 2]
    assert len(told) == 2  # gone, and back
    link.close(10)


def test_a_report_that_could_not_be_answered_is_sent_again_under_the_same_id(
    place: Path, regents: list[Regent]
) -> None:
    regents.append(listening(place, 503, 500))
    link = ReportClient(str(place), "demo", "r1")

    link.report("hello").result(timeout=20)

    assert [said["id"] for said in regents[0].heard] == ["1", "1", "1"]
    link.close(10)


def test_a_report_that_is_refused_is_told_and_not_sent_again(place: Path, regents: list[Regent]) -> None:
    told: list[str] = []
    regents.append(listening(place, 409))
    link = ReportClient(str(place), "demo", "r1", told.append)

    assert link.report("hello").result(timeout=20) == RegentReply()
    assert link.report("heartbeat").result(timeout=20) == RegentReply()

    assert [said["kind"] for said in regents[0].heard] == ["hello", "heartbeat"]
    assert told == ["the daemon refused a report: no"]
    link.close(10)


def test_what_the_regent_wants_comes_back(place: Path, regents: list[Regent]) -> None:
    regents.append(listening(place))
    regents[0].next = "pause"
    link = ReportClient(str(place), "demo", "r1")

    assert link.report("iteration-finished").result(timeout=20) == RegentReply(Next.PAUSE)
    link.close(10)


def test_r9_a_verdict_may_take_as_long_as_tests_do_and_nobody_is_said_to_be_away(
    place: Path, regents: list[Regent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "SLOW_LIMIT_S", 0.05)
    told: list[str] = []
    regents.append(listening(place))
    regents[0].waits.clear()
    regents[0].verdict = {"kind": "kept", "why": "the tests pass", "commits": ["a" * 40], "reverted": []}
    link = ReportClient(str(place), "demo", "r1", told.append)

    answer = link.report("iteration-finished", slowly=True)
    wait_for(lambda: len(regents[0].heard) > 1, what="the same report once more")
    regents[0].waits.set()

    verdict = answer.result(timeout=20).verdict
    assert verdict == Verdict(VerdictKind.KEPT, "the tests pass", boundary_id="r1/1", commits=("aaaaaaa",))
    assert {said["id"] for said in regents[0].heard} == {"1"}
    assert told == []
    link.close(10)


def test_heartbeats_do_not_pile_up(place: Path) -> None:
    link = ReportClient(str(place), "demo", "r1")

    beats = [link.report("heartbeat") for _ in range(50)]

    assert sum(not beat.done() for beat in beats) <= 2
    link.close(0.1)


def test_more_reports_than_are_kept_let_the_oldest_go(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MOST_KEPT", 3)
    told: list[str] = []
    link = ReportClient(str(place), "demo", "r1", told.append)
    first = link.report("cost", usd=0)
    wait_for(lambda: link.is_away, what="the absence to be noticed")

    kept = [link.report("cost", usd=number) for number in range(1, 6)]

    assert not first.done()  # it is under way
    assert [answer.cancelled() for answer in kept] == [True, True, False, False, False]
    assert any("oldest" in line for line in told)
    link.close(0.1)


def test_closing_does_not_wait_longer_than_it_may(place: Path) -> None:
    link = ReportClient(str(place), "demo", "r1")
    link.report("ending", code=0)

    link.close(0.3)

    assert link.is_away
