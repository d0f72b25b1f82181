"""The log of a ralph over the API: as text, as JSON, from anywhere, and as it grows."""

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from ralphd.api.routes.logs import PlainText
from ralphd.core.supervision.model import RunId
from ralphd.process.log.log import append_regent_line
from ralphd.process.log.records import Cursor, Gap, LogRecord
from tests.api.serving import Whole

RUN = RunId("r000001-aaaaaaaa")
URL = "/v1/ralphs/alice/logs"


class Printed:
    """A run's log, written as the shim writes it: one line a second from 20:00:00 on."""

    def __init__(self, api: Whole, run_id: str = RUN) -> None:
        self.directory: Path = api.host.runs_directory("alice") / run_id
        self.directory.mkdir()
        self._seconds = 0

    def line(self, text: bytes, *, stream: str = "stdout", flag: str = "F") -> None:
        head = f"2026-11-21T20:{self._seconds // 60:02}:{self._seconds % 60:02}.000000000Z {stream} {flag} "
        self._seconds += 1
        with (self.directory / "log.000001").open("ab") as segment:
            segment.write(head.encode() + text + b"\n")


@pytest.fixture
def printed(api: Whole) -> Printed:
    return Printed(api)


async def as_json(api: Whole, query: str = "") -> list[dict[str, Any]]:
    reply = await api.client.get(f"{URL}?format=json{query}")
    assert reply.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in reply.text.splitlines()]


async def test_text_is_what_was_printed_byte_for_byte(api: Whole, printed: Printed) -> None:
    for text in (b"one", b"", b"\xff\x1b[31mred", "zwölf".encode()):
        printed.line(text)

    reply = await api.client.get(URL)

    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert reply.content == b"one\n\n\xff\x1b[31mred\n" + "zwölf\n".encode()


async def test_json_says_when_where_and_how_to_go_on(api: Whole, printed: Printed) -> None:
    printed.line(b"caf\xc3\xa9 \xff", stream="stderr")
    printed.line(b"half", flag="P")

    first, second = await as_json(api)

    assert first == {
        "at": "2026-11-21T20:00:00.000000000Z",
        "stream": "stderr",
        "text": "café \ufffd",
        "partial": False,
        "cursor": first["cursor"],
    }
    assert second["partial"] is True
    assert str(Cursor.parse(second["cursor"])) == second["cursor"]


async def test_the_last_hundred_lines_are_shown_unless_asked_otherwise(api: Whole, printed: Printed) -> None:
    for number in range(150):
        printed.line(b"%d" % number)
    numbers = list(range(150))

    async def shown(query: str) -> list[int]:
        return [int(line) for line in (await api.client.get(URL + query)).text.split()]

    assert await shown("") == numbers[50:]
    assert await shown("?tail=3") == numbers[-3:]
    assert await shown("?tail=0") == []
    assert await shown("?tail=all") == numbers
    assert await shown("?since=2026-11-21T20:02:00Z") == numbers[120:]
    assert await shown("?tail=all&until=2026-11-21T20:00:02Z") == numbers[:3]
    assert await shown("?grep=14&tail=all") == [14, 114, *range(140, 150)]


async def test_a_cursor_goes_on_where_the_last_reply_ended(api: Whole, printed: Printed) -> None:
    for number in range(10):
        printed.line(b"%d" % number)
    seen = await as_json(api, "&tail=all")

    again = await as_json(api, f"&cursor={seen[3]['cursor']}")

    assert [line["text"] for line in again] == ["4", "5", "6", "7", "8", "9"]
    assert await as_json(api, f"&cursor={seen[-1]['cursor']}") == []


async def test_a_cursor_of_a_run_that_is_gone_is_told_as_a_gap(api: Whole) -> None:
    Printed(api, "r000005-bbbbbbbb").line(b"here")

    gap, line = await as_json(api, "&cursor=r000002-cccccccc:1:0:0")

    assert set(gap) == {"gap", "cursor"}
    assert line["text"] == "here"


async def test_streams_are_told_apart(api: Whole, printed: Printed) -> None:
    printed.line(b"out")
    printed.line(b"err", stream="stderr")

    assert (await api.client.get(f"{URL}?stream=stderr")).text == "err\n"
    assert (await api.client.get(f"{URL}?stream=stdout")).text == "out\n"


async def test_the_regents_own_lines_stand_between_in_the_seeds_form(api: Whole, printed: Printed) -> None:
    printed.line(b"before")
    moment = 1_795_291_200.5
    append_regent_line(printed.directory, moment, "Restarting Ralph...")
    clock = time.strftime("%H:%M:%S", time.localtime(moment))

    text = (await api.client.get(URL)).text

    assert text == f"before\n[{clock}]  🛡️  Regent: Restarting Ralph...\n"
    assert [line["stream"] for line in await as_json(api)] == ["stdout", "regent"]


@pytest.mark.parametrize("form", ["text", "json"])
async def test_a_follower_sees_a_line_soon_after_it_is_written_and_goes_on_to_the_next_run(
    api: Whole, printed: Printed, form: str
) -> None:
    printed.line(b"old")
    async with api.client.stream("GET", f"{URL}?follow=true&format={form}&tail=1") as reply:
        lines = reply.aiter_lines()
        assert "old" in await anext(lines)
        begun = time.monotonic()
        printed.line(b"new")
        assert "new" in await anext(lines)
        assert time.monotonic() - begun < 5
        Printed(api, "r000002-bbbbbbbb").line(b"next run")
        async with asyncio.timeout(2):
            assert "next run" in await anext(lines)


async def test_ten_megabytes_arrive_whole(api: Whole, printed: Printed) -> None:
    line = b"2026-11-21T20:00:00.000000000Z stdout F " + b"x" * 99 + b"\n"
    (printed.directory / "log.000001").write_bytes(line * 100_000)

    reply = await api.client.get(f"{URL}?tail=all")

    assert reply.content == (b"x" * 99 + b"\n") * 100_000


@pytest.mark.parametrize(
    "query",
    [
        "tail=-1",
        "tail=many",
        "since=yesterday",
        "since=2026-11-21T20:00:00",
        "until=x",
        "since=0001-01-01T00:00:00%2B14:00",
        "until=9999-12-31T23:59:59-14:00",
        "stream=stdin",
        "cursor=nonsense",
        "format=xml",
        "follow=perhaps",
        "events=some",
        "tial=3",
    ],
)
async def test_a_query_that_does_not_fit_is_refused_with_the_reason(api: Whole, query: str) -> None:
    reply = await api.client.get(f"{URL}?{query}")

    assert reply.status_code == 422
    assert reply.headers["content-type"] == "application/problem+json"
    assert re.search(r"\w", reply.json()["detail"])


async def test_the_log_of_an_unknown_ralph_is_not_there_and_of_a_new_one_empty(api: Whole) -> None:
    assert (await api.client.get("/v1/ralphs/nobody/logs")).status_code == 404
    assert (await api.client.get(URL)).content == b""


async def test_events_are_raw_unless_asked_otherwise(api: Whole, printed: Printed) -> None:
    event = b'{"type":"item.completed","item":{"type":"agent_message","text":"one\\ntwo"}}'
    printed.line(event)
    printed.line(b"plain")

    assert (await api.client.get(URL)).content == event + b"\nplain\n"
    assert (await api.client.get(f"{URL}?events=text")).content == b"one\ntwo\nplain\n"
    assert [each["text"] for each in await as_json(api, "&events=text")] == ["one\ntwo", "plain"]
    assert [each["text"] for each in await as_json(api, "&events=text&tail=2")] == ["two", "plain"]


@pytest.mark.parametrize("form", ["text", "json"])
async def test_a_follower_that_asks_for_it_ends_when_the_ralph_is_over(
    api: Whole, printed: Printed, form: str
) -> None:
    printed.line(b"last")
    api.host.is_over = True

    reply = await api.client.get(f"{URL}?follow=true&ends=true&events=text&format={form}")

    assert reply.text.count("last") == 1


def shown(*items: LogRecord | Gap) -> str:
    form = PlainText()
    return b"".join(map(form, items)).decode()


def record(text: str, *, stream: str = "stdout", run_id: str = RUN, partial: bool = False) -> LogRecord:
    cursor = Cursor(RunId(run_id), 1, 0, 0)
    return LogRecord("2026-11-21T20:00:00.000000000Z", stream, text.encode(), partial, cursor)


def test_parts_of_a_line_are_put_together_and_never_with_another_line() -> None:
    part, other = record("par", partial=True), record("err", stream="stderr")

    assert shown(part, record("tial")) == "partial\n"
    assert shown(part, other, record("tial")) == "par\nerr\ntial\n"
    assert shown(part, record("new", run_id="r000002-bbbbbbbb")) == "par\nnew\n"
    assert shown(part, Gap(part.cursor, "pruned")) == "par\n[ralphd] gap in the log: pruned\n"
    assert shown(part, record("", partial=True), record("tial")) == "partial\n"
