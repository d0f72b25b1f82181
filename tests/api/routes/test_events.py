"""The event stream: replayed, then live, without loss and without doubles."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from ralphd.api.routes import events
from tests.api.serving import Whole


async def received(reply: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """Each event of a stream, with what ``id`` and ``event`` said beside its data."""
    fields: dict[str, str] = {}
    async for line in reply.aiter_lines():
        name, _, value = line.partition(": ")
        if line:
            fields[name] = value
            continue
        if "data" in fields:
            event = json.loads(fields["data"])
            assert (str(event["id"]), event["type"]) == (fields["id"], fields["event"])
            yield event
        fields = {}


async def numbers(api: Whole, query: str, headers: dict[str, str] | None = None) -> list[int]:
    """The numbers of the events that a stream holds, to its end."""
    async with api.client.stream("GET", f"/v1/events{query}", headers=headers) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        return [event["data"]["number"] async for event in received(reply)]


async def test_an_event_arrives_live_with_all_its_parts(api: Whole) -> None:
    async with api.client.stream("GET", "/v1/events") as reply:
        told = await api.host.tell("ralph.started", 7)
        event = await anext(received(reply))

    assert event == told.as_object()
    assert set(event) == {"id", "type", "at", "ralph", "run_id", "data"}


async def test_without_a_beginning_only_what_comes_is_sent(api: Whole) -> None:
    await api.host.tell("ralph.started", 1)
    async with api.client.stream("GET", "/v1/events") as reply:
        await api.host.tell("ralph.started", 2)
        assert (await anext(received(reply)))["data"] == {"number": 2}


async def test_a_replay_begins_where_it_is_asked_to(api: Whole) -> None:
    told = [await api.host.tell("ralph.started", number) for number in range(5)]

    assert await numbers(api, "?follow=false&replay=2") == [3, 4]
    assert await numbers(api, "?follow=false&replay=0") == []
    assert await numbers(api, "?follow=false&replay=100") == [0, 1, 2, 3, 4]
    assert await numbers(api, "?follow=false&since=0") == [0, 1, 2, 3, 4]
    assert await numbers(api, f"?follow=false&since={told[2].id}") == [3, 4]
    assert await numbers(api, "?follow=false", {"Last-Event-ID": str(told[0].id)}) == [1, 2, 3, 4]
    assert await numbers(api, "?follow=false&since=0", {"Last-Event-ID": str(told[3].id)}) == [4]


async def test_one_who_comes_again_is_told_what_was_missed_without_waiting_for_news(api: Whole) -> None:
    first = await api.host.tell("ralph.started", 1)
    await api.host.tell("ralph.failed", 2)

    async with api.client.stream("GET", "/v1/events", headers={"Last-Event-ID": str(first.id)}) as reply:
        assert (await anext(received(reply)))["data"] == {"number": 2}


async def test_a_replay_longer_than_a_page_is_whole(api: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PAGE", 3)
    for number in range(10):
        await api.host.tell("ralph.started", number)

    assert await numbers(api, "?follow=false&since=0") == list(range(10))


@pytest.mark.parametrize("id", ["-1", "abc", "1.5", "9" * 40])
async def test_an_id_that_was_never_sent_is_refused(api: Whole, id: str) -> None:
    reply = await api.client.get("/v1/events", headers={"Last-Event-ID": id})

    assert (reply.status_code, reply.json()["type"]) == (422, "urn:ralphd:problem:usage")


async def test_a_beginning_beyond_every_event_is_just_the_end(api: Whole) -> None:
    await api.host.tell("ralph.started", 1)

    assert await numbers(api, f"?follow=false&since={2**63 - 1}") == []
    assert (await api.client.get(f"/v1/events?since={2**63}")).status_code == 422


async def test_coming_again_by_the_last_id_loses_nothing_and_doubles_nothing(api: Whole) -> None:
    dice = random.Random(4)
    total = 300

    async def tell_all() -> None:
        for number in range(total):
            await api.host.tell("ralph.started", number)
            if number % 10 == 0:
                await asyncio.sleep(0.002)

    telling = asyncio.create_task(tell_all())
    seen: list[int] = []
    last = "0"
    while len(seen) < total:
        async with api.client.stream("GET", "/v1/events", headers={"Last-Event-ID": last}) as reply:
            stay = dice.randrange(1, 40)
            async for event in received(reply):
                seen.append(event["data"]["number"])
                last = str(event["id"])
                stay -= 1
                if stay == 0 or len(seen) == total:
                    break
    await telling

    assert seen == list(range(total))


async def test_events_that_were_published_out_of_order_or_never_are_sent_in_order(api: Whole) -> None:
    async with api.client.stream("GET", "/v1/events") as reply:
        kept = [
            await api.host.events.append("ralph.started", 0.0, None, None, {"number": n}) for n in range(3)
        ]
        for one in (2, 1):  # 0 is never published
            event = kept[one]
            assert event is not None
            api.host.hub.publish(event)
        await api.host.tell("ralph.started", 3)

        seen = received(reply)
        assert [(await anext(seen))["data"]["number"] for _ in range(4)] == [0, 1, 2, 3]


async def test_a_listener_that_falls_behind_is_ended_and_resumes(api: Whole) -> None:
    async with api.client.stream("GET", "/v1/events") as reply:
        first = await api.host.tell("ralph.started", 0)
        seen = received(reply)
        assert (await anext(seen))["id"] == first.id
        for number in range(1, 1200):
            event = await api.host.events.append("ralph.started", 0.0, None, None, {"number": number})
            assert event is not None
            kept = event
        for number in range(1100):  # all at once: the bound of a listener is 1000
            api.host.hub.publish(
                kept.__class__(kept.id + number, "ralph.started", kept.at, None, None, {"number": 0})
            )
        rest = [event["data"]["number"] async for event in seen]

    assert rest[:1199] == list(range(1, 1200))


async def test_a_quiet_stream_shows_that_it_lives(api: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PING_S", 0.02)

    async with api.client.stream("GET", "/v1/events") as reply:
        lines = reply.aiter_lines()
        assert await anext(lines) == "retry: 1000"
        seen = [await anext(lines) for _ in range(4)]
        assert seen.count(": ping") == 2 or seen[1] == ": ping"
        await api.host.tell("ralph.started", 5)
        while not (line := await anext(lines)).startswith("data: "):
            pass

    assert json.loads(line.removeprefix("data: "))["data"] == {"number": 5}


async def test_events_told_just_before_the_end_are_sent(api: Whole) -> None:
    async with api.client.stream("GET", "/v1/events") as reply:
        last = await api.host.tell("daemon.stopping", 9)
        api.host.stopping.set()
        seen = [event["id"] async for event in received(reply)]

    assert seen == [last.id]
