"""The keys of ``ralphctl top`` and what they redraw, with a daemon whose answers the test sets."""

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from textual.pilot import Pilot

from ralphctl.client.client import Client
from ralphctl.top.app import TopApp
from ralphctl.top.feed import TopFeed
from ralphctl.top.model import gathered
from tests.ctl.conftest import SEVEN
from tests.ctl.fake import Answer, FakeDaemon, Request, view
from tests.helpers import eventually

Shown = Callable[[], str]


class News:
    """The events that the daemon sends, to whoever follows them."""

    def __init__(self, daemon: FakeDaemon, line: str = "GET /v1/events") -> None:
        self._sent: list[dict[str, Any]] = []
        self._more = threading.Condition()
        self.is_over = False
        daemon.on(line, self._answer)

    def send(self, ralph: str | None, **more: str) -> None:
        with self._more:
            event = {"id": len(self._sent) + 1, "type": "ralph.started", "ralph": ralph, "data": {}}
            self._sent.append(event | more)
            self._more.notify_all()

    def end(self) -> None:
        with self._more:
            self.is_over = True
            self._more.notify_all()

    def _answer(self, request: Request) -> Answer:
        return Answer(None, parts=self._parts(int(request.headers.get("last-event-id", 0))))

    def _parts(self, after: int) -> Iterator[bytes]:
        while not self.is_over:
            with self._more:
                if not self._sent[after:] and not self.is_over:
                    self._more.wait(20)
                new, after = self._sent[after:], len(self._sent)
            yield b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in new) or b": alive\n\n"


@pytest.fixture
def news(daemon: FakeDaemon) -> Iterator[News]:
    daemon.views = {name: view(name) for name in ("api", "docs", "web")}
    daemon.views["docs"] |= {"state": "failed", "message": "gave [red]up[/red]"}
    daemon.on("GET /v1/quota", lambda _: Answer({"accounts": []}))
    for name in daemon.views:
        daemon.on(f"GET /v1/ralphs/{name}/logs", lambda request: Answer(line_of(request)))
    news = News(daemon)
    yield news
    news.end()


def line_of(request: Request) -> bytes:
    record = {"at": "2026-11-21T06:59:48.000000Z", "stream": "stdout", "partial": False, "cursor": "r:1:0"}
    text = f"[b]{request.path.split('/')[3]} prints[/b]"
    return b"" if "cursor" in request.query else json.dumps(record | {"text": text}).encode() + b"\n"


@asynccontextmanager
async def running(daemon: FakeDaemon) -> AsyncIterator[tuple[Pilot[int], Shown]]:
    client = Client(lambda: [str(daemon.path)])
    feed = TopFeed(client, gathered(client, SEVEN - 3600), 0, colour=False)
    app = TopApp(feed, colour=False, utf8=True)
    async with app.run_test(size=(100, 24)) as pilot:

        def shown() -> str:
            return "\n".join(app.picture.lines)

        yield pilot, shown


def selected(shown: str) -> str:
    return next(line[1:].split()[0] for line in shown.splitlines() if line.startswith("▸"))


async def test_who_needs_you_is_first_and_arrows_select(daemon: FakeDaemon, news: News) -> None:
    async with running(daemon) as (pilot, shown):
        assert selected(shown()) == "docs"
        assert "gave [red]up[/red]" in shown() and "needs you: docs: ralphctl explain docs" in shown()
        await eventually(lambda: "[b]docs prints[/b]" in shown())
        await pilot.press("down", "down", "down")
        assert selected(shown()) == "web"
        await eventually(lambda: "[b]web prints[/b]" in shown())
        assert "docs prints" not in shown()
        await pilot.press("up")
        assert selected(shown()) == "api"


async def test_keys_request_and_a_stop_is_confirmed(daemon: FakeDaemon, news: News) -> None:
    async with running(daemon) as (pilot, shown):
        await pilot.press("down", "S")
        assert "Stop api after this iteration, or at once if it reports none? [y/N]" in shown()
        await pilot.press("n")
        assert "not stopped" in shown() and daemon.lines() == []
        await pilot.press("S", "down", "y")  # what is asked of api is not answered for web
        assert daemon.lines() == []
        await pilot.press("S", "y")
        await eventually(lambda: daemon.lines() == ["POST /v1/ralphs/web/stop"])
        await pilot.press("s")
        assert "web is not waiting" in shown()
        await pilot.press("p")
        await eventually(lambda: daemon.lines()[1:] == ["POST /v1/ralphs/web/pause"])
        daemon.views["web"]["state"] = "paused"
        news.send("web")
        await eventually(lambda: "2 needs you" in shown())
        await pilot.press("p")
        await eventually(lambda: daemon.lines()[2:] == ["POST /v1/ralphs/web/resume"])
        await pilot.press("question_mark")
        assert "list the keys" in shown()
        await pilot.press("q")
    assert pilot.app.return_value == 0


async def test_an_event_has_its_ralph_read_again(daemon: FakeDaemon, news: News) -> None:
    async with running(daemon) as (_, shown):
        await eventually(lambda: "[b]docs prints[/b]" in shown())
        reads = [request.path for request in daemon.asked].count("/v1/status")
        daemon.views["api"] |= {"state": "failed", "message": "out of ideas"}
        news.send("api")
        await eventually(lambda: "out of ideas" in shown())
        assert [request.path for request in daemon.asked].count("/v1/status") == reads
        assert len([request for request in daemon.asked if request.path == "/v1/events"]) == 1
        del daemon.views["docs"]
        news.send("docs")
        await eventually(lambda: selected(shown()) == "api")


async def test_a_daemon_that_is_away_is_reported_and_awaited(daemon: FakeDaemon, news: News) -> None:
    async with running(daemon) as (_, shown):
        news.end()
        daemon.stop()
        await eventually(lambda: "ralphd is away: waiting for it" in shown())
        daemon.views["late"] = view("late")
        news.is_over = False
        daemon.start()
        await eventually(lambda: "4 ralphs" in shown() and "ralphd is away" not in shown())
