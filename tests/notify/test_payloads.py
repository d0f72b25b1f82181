"""What a person reads in Slack and on a phone: what happened, what it needs, what to type, and no markup."""

import json
from dataclasses import replace
from email.header import decode_header, make_header

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.alert import AlertFacts
from ralphd.core.delivery import Format, StoredEvent
from ralphd.core.quota.clock import limit_met, news_of
from ralphd.core.quota.model import QuotaClock, QuotaLimit
from ralphd.notify.payloads import MOST_MESSAGE_CHARS, MOST_NTFY_BYTES, header_text, posted
from ralphd.wire import EVENT_TYPES, EVENTS

pytestmark = pytest.mark.usefixtures("berlin")
CALL = StoredEvent(
    7,
    "ralph.escalated",
    "2026-11-21T20:00:00.000000Z",
    "demo",
    "r1",
    {
        "message": "Ralph exited (exit 1) — giving up after 3 failures",
        "needs": "a look at why",
        "do": "ralphctl explain demo",
        "directory": "/srv/demo",
    },
)


FACTS = AlertFacts(
    "buildbox", "/srv/demo", {"id": "a", "title": "Parse dates"}, 1.5, "2026-11-21T18:00:00.000000Z",
    ("1 failed", "Error: `boom` <b>"),
)  # fmt: skip


def slack(event: StoredEvent, facts: AlertFacts = FACTS) -> str:
    found: dict[str, str] = json.loads(posted(event, Format.SLACK, facts).payload)
    assert list(found) == ["text"]
    return found["text"]


def test_slack_shows_what_happened_what_to_type_and_the_output() -> None:
    assert slack(CALL).splitlines() == [
        "*demo: needs you*",
        "Ralph exited (exit 1) — giving up after 3 failures",
        "Needed: a look at why",
        "Task: Parse dates",
        "`ralphctl explain demo`",
        "buildbox · /srv/demo · $1.50 tonight · 2026-11-21 21:00 CET",
        "```",
        "1 failed",
        "Error: 'boom' &lt;b&gt;",
        "```",
    ]
    assert posted(CALL, Format.SLACK, FACTS).headers == {"content-type": "application/json"}


def test_ntfy_shows_the_same_with_its_headers() -> None:
    message = posted(CALL, Format.NTFY, FACTS)

    assert message.payload.decode().splitlines() == [
        "Ralph exited (exit 1) — giving up after 3 failures",
        "Needed: a look at why",
        "Task: Parse dates",
        "$ ralphctl explain demo",
        "buildbox · /srv/demo · $1.50 tonight · 2026-11-21 21:00 CET",
        "| 1 failed",
        "| Error: `boom` <b>",
    ]
    assert message.headers == {
        "content-type": "text/plain; charset=utf-8",
        "title": "demo: needs you",
        "priority": "5",
        "tags": "rotating_light,ralphd",
    }


def test_programs_get_the_facts_as_fields() -> None:
    data = json.loads(posted(CALL, Format.JSON, FACTS).payload)["data"]

    assert data == CALL.as_object() | {
        "host": "buildbox",
        "directory": "/srv/demo",
        "task": {"id": "a", "title": "Parse dates"},
        "cost_tonight_usd": 1.5,
        "cost_since": "2026-11-21T18:00:00.000000Z",
        "last_lines": ["1 failed", "Error: `boom` <b>"],
        "link": None,
    }


def test_a_tap_on_a_message_of_ntfy_opens_the_page() -> None:
    message = posted(CALL, Format.NTFY, replace(FACTS, link="https://box.example/ralphs/demo"))
    assert message.headers["click"] == "https://box.example/ralphs/demo"


@pytest.mark.parametrize(
    ("event_type", "priority"),
    [("ralph.failed", "4"), ("ralph.done", "3"), ("ralph.started", "2"), ("webhook.test", "3")],
)
def test_ntfy_is_loud_only_where_somebody_has_to_act(event_type: str, priority: str) -> None:
    assert posted(replace(CALL, type=event_type), Format.NTFY, FACTS).headers["priority"] == priority


def test_people_never_see_raw_keys() -> None:
    data = {"code": 3, "outcome": "failed", "pid": 7, "deep": {"a": 1}}
    event = replace(CALL, type="iteration.finished", data=data)

    assert slack(event, AlertFacts("buildbox")).splitlines() == [
        "*demo: iteration finished*",
        "buildbox · 2026-11-21 21:00 CET",
    ]


def test_nobody_is_mentioned_and_nothing_linked_by_what_an_agent_wrote() -> None:
    message = "<!channel> see <https://evil.example|this> & more"
    text = slack(replace(CALL, data={"message": message, "do": "`rm`"}), AlertFacts("h"))

    assert "<" not in text and ">" not in text
    assert "&lt;!channel&gt;" in text and "&amp; more" in text
    assert "`rm`" in text and "``" not in text


def test_a_time_in_a_message_is_local_for_people_alone() -> None:
    message = "claude is not used until 2026-11-21T23:30:00.000000Z: limit, see 2026-99-21T23:30:00Z"
    event = replace(CALL, type="agent.exhausted", data={"message": message})
    here = "claude is not used until 2026-11-22 00:30 CET: limit, see 2026-99-21T23:30:00Z"

    assert here in slack(event)
    assert here in posted(event, Format.NTFY, FACTS).payload.decode()
    sent = json.loads(posted(event, Format.JSON, FACTS).payload)
    assert (sent["timestamp"], sent["data"]["data"]["message"]) == (CALL.at, message)


@pytest.mark.parametrize("form", [Format.SLACK, Format.NTFY])
def test_a_message_without_end_is_cut(form: Format) -> None:
    facts = replace(FACTS, host="h" * 100_000, task={"title": "é" * 100_000})
    message = posted(replace(CALL, data={"message": "é" * 100_000, "do": "x" * 100_000}), form, facts)

    assert len(message.payload) < 8 * MOST_MESSAGE_CHARS
    assert form is Format.SLACK or len(message.payload) <= MOST_NTFY_BYTES
    assert "…" in message.payload.decode()


@pytest.mark.parametrize("text", ["ralph: done", "", "a" * 200])
def test_plain_ascii_is_a_header_as_it_is(text: str) -> None:
    assert header_text(text) == text


@given(st.text(max_size=120))
def test_a_header_is_one_ascii_line_that_reads_as_what_was_meant(text: str) -> None:
    header = header_text(text)
    meant = " ".join("".join(mark if mark.isprintable() else " " for mark in text).split())

    assert header.isascii() and (header.isprintable() or not header)
    assert all(len(word) <= 75 for word in header.split(" ")) or header == meant
    assert str(make_header(decode_header(header))) == meant


def test_no_line_of_a_text_becomes_a_header() -> None:
    evil = replace(CALL, ralph="x\r\nX-Evil: 1\r\n\r\nbody")
    headers = posted(evil, Format.NTFY, FACTS).headers

    assert headers["title"] == "x X-Evil: 1 body: needs you"
    assert header_text("=?UTF-8?B?aGk=?=").startswith("=?UTF-8?B?")


@given(
    st.sampled_from(EVENT_TYPES),
    st.dictionaries(st.text(max_size=5), st.none() | st.booleans() | st.floats() | st.text(), max_size=4),
    st.sampled_from(Format),
)
def test_every_event_has_a_body_and_headers_that_can_be_sent(
    event_type: str, data: dict[str, object], form: Format
) -> None:
    message = posted(replace(CALL, type=event_type, data=data), form, FACTS)

    assert message.payload
    assert all(value.isascii() and value.isprintable() for value in message.headers.values())


def test_each_type_of_event_has_a_row_of_words() -> None:
    assert tuple(EVENTS) == EVENT_TYPES
    assert all(priority in (2, 3, 4, 5) for _, priority, _ in EVENTS.values())


def test_the_reset_of_an_account_is_a_time_for_people() -> None:
    clock = limit_met(
        QuotaClock("claude@work"), QuotaLimit(1795530360.0, 1795530000.0, "5-hour limit", "a.1")
    )
    kind, _, data = news_of(clock) or ("", "", {})
    event = StoredEvent(9, kind, "2026-11-24T14:00:00.000000Z", None, None, data)
    assert slack(event).splitlines()[1] == (
        "account claude@work: 5-hour limit, met by a; nobody starts before 2026-11-24 15:26 CET"
    )
    assert data["until"] == "2026-11-24T14:26:00.000000Z"
