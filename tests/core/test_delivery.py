"""What is sent, whether it is sent, and what an answer leads to."""

import base64
import json
import re
from dataclasses import replace
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.alert import AlertFacts
from ralphd.core.delivery import (
    GIVE_UP_AFTER_S,
    LONGEST_RETRY_AFTER_S,
    RETRY_AFTER_S,
    BadSecret,
    Delivered,
    Delivery,
    DeliveryState,
    Destination,
    Disable,
    Format,
    GiveUp,
    KeptDelivery,
    ReceiverReply,
    Retry,
    StoredEvent,
    Unreached,
    default_name,
    is_metadata,
    is_public,
    message_id,
    secret_key,
    secret_text,
    sequel,
    signature_headers,
    wanted,
    why_not,
)
from ralphd.notify.payloads import posted
from ralphd.wire import EVENTS, is_name

EVENT = StoredEvent(
    7, "ralph.escalated", "2026-11-21T20:00:00.000000Z", "demo", "r000001-00000000", {"why": "é"}
)
FACTS = AlertFacts("here")
NOW = 1_000_000.0
DELIVERY = Delivery(1, "d", "msg_1", EVENT, queued_at=NOW, failures=0, next_at=NOW)
SECRET = "whsec_" + base64.b64encode(b"k" * 24).decode()


@pytest.mark.parametrize(
    ("pattern", "type", "fits"),
    [
        ("ralph.escalated", "ralph.escalated", True),
        ("ralph.escalated", "ralph.exited", False),
        ("ralph.*", "ralph.exited", True),
        ("ralph.*", "daemon.started", False),
        ("*", "tests.failed", True),
        ("*.failed", "tests.failed", True),
        ("*.failed", "tests.passed", False),
        ("ralph.", "ralph.exited", False),
        ("r.lph.*", "ralph.exited", False),
    ],
)
def test_a_pattern_names_events_with_star_for_any_text(pattern: str, type: str, fits: bool) -> None:
    assert Destination("http://x", on=(pattern,)).wants(type) is fits


def test_only_escalations_are_wanted_unless_more_is_asked_for() -> None:
    quiet, loud = Destination("http://quiet"), Destination("http://loud", on=("*",))

    assert wanted([quiet, loud], "ralph.escalated", {}, is_titled=True) == (quiet, loud)
    assert wanted([quiet, loud], "ralph.exited", {}, is_titled=False) == (loud,)


def test_people_are_wanted_by_what_an_event_says_and_by_its_title() -> None:
    people = Destination("http://x", on=("*",), format=Format.NTFY)

    assert wanted([people], "ralph.failed", {"message": "build failed"}, is_titled=True) == (people,)
    assert wanted([people], "ralph.failed", {"escalated": True}, is_titled=True) == ()
    assert wanted([people], "ralph.exited", {}, is_titled=False) == ()


def test_the_same_address_configured_twice_gets_one_message() -> None:
    twice = [Destination("http://x"), Destination("http://x", on=("*",))]
    assert len(wanted(twice, "ralph.escalated", {}, is_titled=True)) == 1


CRASH: tuple[tuple[str, dict[str, object]], ...] = (
    ("ralph.started", {}),
    ("ralph.exited", {}),
    ("ralph.escalated", {}),
    ("ralph.failed", {"escalated": True}),
)


def sent(to: Destination, *events: tuple[str, dict[str, object]]) -> list[str]:
    return [type for type, data in events if to.gets(type, data, is_titled=bool(EVENTS[type][0]))]


@pytest.mark.parametrize("form", [Format.SLACK, Format.NTFY])
@pytest.mark.parametrize("on", [("*",), ("ralph.*",), ("ralph.escalated", "ralph.failed")])
def test_a_crash_is_one_message_to_people(form: Format, on: tuple[str, ...]) -> None:
    assert sent(Destination("http://x", on, form), *CRASH) == ["ralph.escalated"]


def test_programs_get_every_event_that_matches() -> None:
    assert sent(Destination("http://x", ("ralph.*",)), *CRASH) == [type for type, _ in CRASH]


def test_an_event_named_in_full_reaches_people() -> None:
    to = Destination("http://x", ("ralph.exited", "ralph.failed"), Format.SLACK)

    assert sent(to, *CRASH) == ["ralph.exited", "ralph.failed"]
    assert sent(to, ("ralph.failed", {"message": "build failed"})) == ["ralph.failed"]


def test_what_follows_from_an_event_replaces_it_for_people() -> None:
    named = ("ralph.stalled", "ralph.retrying", "tests.failed", "commit.reverted")
    for to in (Destination("http://x", ("*",), Format.NTFY), Destination("http://x", named, Format.NTFY)):
        assert sent(to, ("ralph.stalled", {}), ("ralph.retrying", {})) == ["ralph.retrying"]
        assert sent(to, ("tests.failed", {}), ("commit.reverted", {})) == ["commit.reverted"]
        assert sent(to, ("tests.failed", {"baseline": True})) == ["tests.failed"]


@pytest.mark.parametrize(
    ("to", "name"),
    [
        (Destination("https://hooks.slack.example/T0ken", format=Format.SLACK), "slack"),
        (Destination("https://ntfy.example/topic", format=Format.NTFY), "ntfy"),
        (Destination("https://Hooks.Example.com:8443/x"), "hooks.example.com"),
        (Destination("http://[::1]:9/x"), "1"),
        (Destination("http://"), "webhook"),
        (Destination("https://bücher.example/x"), "bcher.example"),
        (Destination(f"https://{'a' * 39}.example/x"), "a" * 39),
        (Destination(f"https://{'a' * 50}.example/x"), "a" * 40),
    ],
)
def test_a_webhook_has_a_name_that_can_be_typed(to: Destination, name: str) -> None:
    assert default_name(to, ()) == name
    assert default_name(to, {name}) == f"{name}-2"
    assert default_name(to, {name, f"{name}-2"}) == f"{name}-3"
    assert is_name(default_name(to, {name}))


def test_neither_id_nor_label_of_a_destination_give_its_token_away() -> None:
    destination = Destination("https://user:hidden@hooks.example:8443/services/T0/hidden?key=hidden")

    assert destination.label == "https://hooks.example:8443"
    assert re.fullmatch("[0-9a-f]{16}", destination.id)
    assert destination.id == Destination(destination.url, on=("*",)).id


@pytest.mark.parametrize("url", ["http://[nonsense", "nonsense", "", "http://host:port/"])
def test_a_label_is_there_even_for_an_address_that_is_none(url: str) -> None:
    assert Destination(url).label == "(not an address)"


def test_the_body_names_type_and_time_and_holds_the_event() -> None:
    assert json.loads(posted(EVENT, Format.JSON, FACTS).payload) == {
        "type": "ralph.escalated",
        "timestamp": EVENT.at,
        "data": {
            "id": 7,
            "type": "ralph.escalated",
            "at": EVENT.at,
            "ralph": "demo",
            "run_id": "r000001-00000000",
            "data": {"why": "é"},
            "host": "here",
            "directory": None,
            "task": None,
            "cost_tonight_usd": None,
            "cost_since": None,
            "last_lines": [],
            "link": None,
        },
    }


def test_a_byte_that_is_no_text_does_not_stop_a_message() -> None:
    assert json.loads(posted(replace(EVENT, data={"file": "a\udcff"}), Format.JSON, FACTS).payload)["data"][
        "data"
    ] == {"file": "a?"}


def test_a_message_keeps_its_id_whoever_queues_it_again() -> None:
    assert re.fullmatch("msg_[0-9a-f]{32}", message_id(EVENT, "k"))
    assert message_id(EVENT, "k") == message_id(replace(EVENT, id=99), "k")
    assert message_id(EVENT, "k") != message_id(EVENT, "other")
    assert message_id(EVENT, "k") != message_id(replace(EVENT, ralph="other"), "k")


def test_a_secret_is_base64_behind_its_prefix_or_any_text() -> None:
    assert secret_key(SECRET + "\n") == b"k" * 24
    assert secret_key(" plain text \n") == b"plain text"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("whsec_***", "the part after whsec_ is not base64"),
        (f"{SECRET}*", "the part after whsec_ is not base64"),
        ("whsec_", "it is empty"),
        ("", "it is empty"),
        (" \n", "it is empty"),
    ],
)
def test_a_secret_that_is_none_is_told_without_repeating_it(text: str, why: str) -> None:
    with pytest.raises(BadSecret) as caught:
        secret_key(text)

    assert str(caught.value) == why


def test_a_message_is_signed_as_standard_webhooks_sign() -> None:
    """Sign the example of the specification."""
    key = secret_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

    headers = signature_headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330.5, b'{"test": 2432232314}', key)

    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_a_label_has_no_port_where_the_address_has_none() -> None:
    assert Destination("https://hooks.example/hidden").label == "https://hooks.example"


def test_without_a_secret_there_is_no_signature() -> None:
    assert signature_headers("msg_1", 12.9, b"{}", None) == {"webhook-id": "msg_1", "webhook-timestamp": "12"}


@pytest.mark.parametrize("status", [200, 202, 204, 299])
def test_any_2xx_is_delivered(status: int) -> None:
    assert sequel(ReceiverReply(status), DELIVERY, now=NOW, jitter=0.5) == Delivered()


def test_410_disables() -> None:
    assert sequel(ReceiverReply(410), DELIVERY, now=NOW, jitter=0.5) == Disable("answered 410 Gone")


@pytest.mark.parametrize(
    ("failures", "wait_s"), [*enumerate([5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400])]
)
def test_a_refused_message_is_sent_again_over_hours(failures: int, wait_s: int) -> None:
    answer = sequel(ReceiverReply(500), replace(DELIVERY, failures=failures), now=NOW, jitter=0.5)

    assert answer == Retry(NOW + wait_s, "answered 500")


@pytest.mark.parametrize("status", [300, 301, 399])
def test_a_redirect_is_a_failure_that_says_what_to_do(status: int) -> None:
    answer = sequel(ReceiverReply(status), DELIVERY, now=NOW, jitter=0.5)

    assert isinstance(answer, Retry)
    assert "final URL" in answer.why


def test_an_error_of_the_client_is_no_redirect() -> None:
    answer = sequel(ReceiverReply(400), DELIVERY, now=NOW, jitter=0.5)

    assert answer == Retry(NOW + RETRY_AFTER_S[0], "answered 400")


def test_while_nobody_answers_it_is_tried_every_few_minutes_for_the_network_may_be_back() -> None:
    for failures, wait_s in enumerate([5, 30, 60] + [300] * 50):
        answer = sequel(Unreached("no route"), replace(DELIVERY, failures=failures), now=NOW, jitter=0.5)
        assert answer == Retry(NOW + wait_s, "no route")


@pytest.mark.parametrize(
    ("retry_after", "wait_s"),
    [
        ("120", 120.0),
        ("1", RETRY_AFTER_S[0]),
        (formatdate(NOW + 600, usegmt=True), 600.0),
        (formatdate(NOW - 600, usegmt=True), RETRY_AFTER_S[0]),
        ("9" * 400, LONGEST_RETRY_AFTER_S),
        ("31536000", LONGEST_RETRY_AFTER_S),
        ("soon", RETRY_AFTER_S[0]),
        ("-5", RETRY_AFTER_S[0]),
        ("", RETRY_AFTER_S[0]),
        ("٣", RETRY_AFTER_S[0]),
    ],
)
def test_retry_after_is_obeyed_within_a_day(retry_after: str, wait_s: float) -> None:
    answer = sequel(ReceiverReply(503, retry_after), DELIVERY, now=NOW, jitter=0.5)

    assert answer == Retry(NOW + wait_s, "answered 503")


@given(st.text("0129.-+eE:,; GMTSatNov\n\x00٣é", max_size=40))
def test_no_retry_after_header_is_strange_enough_to_break_it(text: str) -> None:
    answer = sequel(ReceiverReply(429, text), DELIVERY, now=NOW, jitter=0.5)

    assert isinstance(answer, Retry)
    assert NOW < answer.at <= NOW + LONGEST_RETRY_AFTER_S


@given(
    st.floats(0, 1, exclude_max=True),
    st.integers(0, 100),
    st.sampled_from([ReceiverReply(500), Unreached("x")]),
)
def test_jitter_spreads_a_wait_by_a_tenth(
    jitter: float, failures: int, answer: ReceiverReply | Unreached
) -> None:
    delivery = replace(DELIVERY, failures=failures)
    middle = sequel(answer, delivery, now=NOW, jitter=0.5)
    spread = sequel(answer, delivery, now=NOW, jitter=jitter)

    assert isinstance(middle, Retry)
    assert isinstance(spread, Retry)
    assert abs((spread.at - NOW) / (middle.at - NOW) - 1) <= 0.1 + 1e-9


def test_a_message_is_given_up_when_it_is_old_and_was_tried_often() -> None:
    tired = replace(DELIVERY, failures=len(RETRY_AFTER_S))
    late = NOW + GIVE_UP_AFTER_S

    assert sequel(Unreached("x"), tired, now=late, jitter=0.5) == GiveUp("x")
    assert isinstance(sequel(Unreached("x"), tired, now=late - 1, jitter=0.5), Retry)
    assert isinstance(sequel(Unreached("x"), DELIVERY, now=late, jitter=0.5), Retry)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822"])
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
        "::1",
        "::",
        "fe80::1%eth0",
        "fc00::1",
        "ff02::1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "64:ff9b::a00:1",
        "2002:7f00:1::",
        "2001:0:0:0:0:0:f5ff:fffe",
        "64:ff9b:1::a00:1",
        "64:ff9b:1::5db8:d822",
        "fec0::1",
        "::ffff:0:a00:1",
        "::169.254.169.254",
        "4000::1",
        "192.0.0.9",
        "3fff::1",
    ],
)
def test_all_other_addresses_are_not_whatever_they_hide_in(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["224.0.0.1", "ff02::1", "255.255.255.255", "::ffff:224.0.0.1"])
def test_a_group_is_never_sent_to(address: str) -> None:
    assert "group" in (why_not([address], allow_private=True) or "")


def test_one_private_address_among_public_ones_is_enough_to_refuse_a_name() -> None:
    public = ["93.184.216.34", "2606:2800:220:1::1"]

    assert why_not(public, allow_private=False) is None
    assert "private" in (why_not([*public, "10.0.0.1"], allow_private=False) or "")
    assert why_not([*public, "10.0.0.1", "::1"], allow_private=True) is None


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.0.1",
        "fe80::1%eth0",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a9fe:a9fe",
        "::ffff:0:a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "fd00:ec2::254",
        "100.100.100.200",
        "2001::5601:5601",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::23",
        "fd20:ce::254",
    ],
)
def test_a_metadata_service_is_never_reached_whatever_is_allowed(address: str) -> None:
    assert is_metadata(address)
    assert "metadata" in (why_not(["93.184.216.34", address], allow_private=True) or "")


def test_a_secret_that_we_make_is_one_that_receivers_take() -> None:
    assert secret_key(secret_text(b"k" * 32)) == b"k" * 32


def test_what_is_stored_and_configured_keeps_its_words() -> None:
    assert [*Format] == ["json", "slack", "ntfy"]
    assert [*DeliveryState] == ["pending", "delivered", "given_up"]


def test_a_destination_is_public_and_takes_json_by_itself() -> None:
    assert Destination("u") == Destination("u", ("ralph.escalated",), Format.JSON, False, None, None)
    assert KeptDelivery(DELIVERY) == KeptDelivery(DELIVERY, DeliveryState.PENDING, None, None)
