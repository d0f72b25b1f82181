"""How long a limit lasts, by example: one for each form in which agents and vendors tell it."""

import time
from datetime import UTC, datetime, timedelta, timezone
from unittest.mock import Mock
from zoneinfo import ZoneInfo

import pytest

from ralphd.core.failures.reset_parsers import (
    Confidence,
    Rank,
    ResetHint,
    WrittenMoment,
    epoch,
    find_zone,
    habits,
    keyed,
    named_value,
    piped,
    read_moment,
    remaining,
    spoken,
)
from ralphd.core.failures.resets import (
    LONGEST_S,
    detect_rate_limit,
    read_reset,
    reset_from_epoch,
    reset_from_headers,
)
from ralphd.core.time import Moment

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")


def at(text: str) -> Moment:
    """The moment of an ISO 8601 text; UTC where it names no zone."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


NOW = at("2026-11-22T14:00:00")


def wait(text: str) -> float | None:
    reset = read_reset(text, now=NOW, zone=BERLIN)
    return None if reset is None else reset.until - NOW


def until(text: str, now: Moment = NOW, zone: ZoneInfo | None = BERLIN) -> str | None:
    reset = read_reset(text, now=now, zone=zone)
    return None if reset is None else datetime.fromtimestamp(reset.until, UTC).isoformat()[:16]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("retry-after: 12", 12),
        ("Retry-After 12", 12),
        ("Retry after: 12", 12),
        ("resets at 1795356060", 60),
        ("Next available: in 5 minutes", 300),
        ("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 12\r\nServer: x", 12),
        ('{"error": {"headers": {"Retry-After": "30"}}}', 30),
        ("429 rate_limit_error (retry-after: 8)", 8),
        ("retry-after-ms: 1500", 1.5),
        ('"retryAfterMs":2500', 2.5),
        ("Retry-After: Sun, 22 Nov 2026 14:10:00 GMT", 600),
        ("retry-after: Sunday, 22-Nov-26 14:10:00 GMT", 600),
        ("retry-after: Sun Nov 22 14:10:00 2026", 600),
        ('{"resets_in_seconds": 13872}', 13872),
        ('body: "{\\"error\\":{\\"resets_in_seconds\\":602705}}"', 602705),
        ('{"resets_at":1795356060}', 60),
        ('{"resetsAt": 1795356060000}', 60),
        ("x-codex-primary-reset-after-seconds: 471285", 471285),
        ("x-ratelimit-reset-tokens: 3.4s", 3.4),
        ("x-ratelimit-reset-requests: 6m0s", 360),
        ("anthropic-ratelimit-unified-reset: 1795356060", 60),
        ("anthropic-ratelimit-requests-reset: 2026-11-22T14:00:20Z", 20),
        ('"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay":"34s"', 34),
        ("retry_delay {\n  seconds: 41\n}", 41),
        ("resets_in_minutes: 5", 300),
        ("resets-in-mins: 5", 300),
        ('"quotaResetDelay": "3h2m1.5s"', 10921.5),
        ('"quotaResetTimeStamp": "2026-11-22T15:00:00Z"', 3600),
        ("Please try again in 1.898s. Visit https://platform.example/account", 1.898),
        ("Please try again in 6m0s.", 360),
        ("or try again in 3 days 2 hours.", 266400),
        ("try again in 5 days, 22 hours and 11 minutes", 511860),
        ("Please try again in 58 hours.", 208800),
        ("try again in 120ms", 0.12),
        ("try again in\n   2 hours", 7200),
        ("Please wait 2 minutes before trying again", 120),
        ("Please wait for 43 seconds.", 43),
        ("try again in 20s, 3m tokens are used", 20),
        ("Please retry in 3.412s.", 3.412),
        ("Your quota will reset after 53s.", 53),
        ("[retrying in 2h5m attempt #4]", 7500),
        ("It will reset in 5 days 10 hours", 468000),
        ("Try again in about an hour", 3600),
        ("Try again in half an hour", 1800),
        ("available again in 00:05:00", 300),
        ("Claude AI usage limit reached|1795356060", 60),
        ("TRY AGAIN IN 5 MINUTES", 300),
        ("try\u00a0again\u202fin\u00a05\u2009minutes", 300),
        ("\x1b[31mtry again in \x1b[1m5\x1b[0m minutes\x1b]8;;http://x\x07", 300),
        ("\\u001b[31mtry again\\u00a0in 5 minutes", 300),
    ],
)
def test_a_duration_or_an_epoch_is_read_exactly(text: str, seconds: float) -> None:
    reset = read_reset(text, now=NOW, zone=BERLIN)

    assert reset is not None
    assert reset.until - NOW == pytest.approx(seconds, abs=1e-5)
    assert reset.confidence is Confidence.EXACT or "retrying" in text


@pytest.mark.parametrize(
    ("text", "expected", "confidence"),
    [
        ("You've hit your limit · resets 3pm (Asia/Seoul)", "2026-11-23T06:00", Confidence.CLOCK),
        ("You’ve hit your limit ∙ resets 11:30pm (asia/tokyo)", "2026-11-22T14:30", Confidence.CLOCK),
        ("resets 5am", "2026-11-23T04:00", Confidence.GUESSED),
        ("5-hour limit reached - resets 4 p.m.", "2026-11-22T15:00", Confidence.GUESSED),
        ("resets Nov 25, 11:44pm (UTC)", "2026-11-25T23:44", Confidence.CLOCK),
        ("resets Dec 15 at 7pm", "2026-12-15T18:00", Confidence.GUESSED),
        ("resets 7pm on Dec 15", "2026-12-15T18:00", Confidence.GUESSED),
        ("Opus weekly limit reached ∙ resets Nov 24", "2026-11-23T23:00", Confidence.GUESSED),
        ("resets Nov 22", "2026-11-22T23:00", Confidence.GUESSED),
        ("resets Nov 29 (UTC)", "2026-11-29T00:00", Confidence.GUESSED),
        ("resets tomorrow (Asia/Seoul)", "2026-11-22T15:00", Confidence.GUESSED),
        ("purchase more credits or try again at 3:51 PM.", "2026-11-22T14:51", Confidence.GUESSED),
        ("try again at 3:51\u202fPM.", "2026-11-22T14:51", Confidence.GUESSED),
        ("try again at Nov 23rd, 2026 9:01 PM.", "2026-11-23T20:01", Confidence.GUESSED),
        ("try again at 10 de dez. de 2026, 11:52.", "2026-12-10T10:52", Confidence.GUESSED),
        ("will reset when your monthly cycle ends on 11/27/2026.*", "2026-11-26T23:00", Confidence.GUESSED),
        ("cycle ends on 27/11/2026", "2026-11-26T23:00", Confidence.GUESSED),
        ("Your limit will reset at 7pm (Asia/Tokyo).", "2026-11-23T10:00", Confidence.CLOCK),
        ("resets 21:30 (Europe/Lisbon)", "2026-11-22T21:30", Confidence.CLOCK),
        ("try again after 2026-11-22T18:00:00Z", "2026-11-22T18:00", Confidence.CLOCK),
        ("Limit resets at 2026-11-22 18:00:00+02:00", "2026-11-22T16:00", Confidence.CLOCK),
        ("resets 0:30am (Asia/Tokyo)", "2026-11-22T15:30", Confidence.CLOCK),
        ("resets 0:30 PM (UTC)", "2026-11-23T12:30", Confidence.CLOCK),
        ("resets tomorrow at 9am (America/New_York)", "2026-11-23T14:00", Confidence.CLOCK),
        ("try again tomorrow at 9am (UTC)", "2026-11-23T09:00", Confidence.CLOCK),
        ("Please try again tomorrow.", "2026-11-22T23:00", Confidence.GUESSED),
        ("will reset at 9:00 AM EST on Dec 3.", "2026-12-03T14:00", Confidence.CLOCK),
        ("resets 3pm (UTC) on Wednesday", "2026-11-25T15:00", Confidence.CLOCK),
        ("resets 3pm (UTC). Dec 15 is another day", "2026-11-22T15:00", Confidence.CLOCK),
        ("resets Mon 9:00 AM (UTC)", "2026-11-23T09:00", Confidence.CLOCK),
        ("resets Sun 1pm (UTC)", "2026-11-29T13:00", Confidence.CLOCK),
        ("resets at midnight PT", "2026-11-23T08:00", Confidence.CLOCK),
        ("resets at midnight (UTC)", "2026-11-23T00:00", Confidence.CLOCK),
        ("resets at noon (UTC)", "2026-11-23T12:00", Confidence.CLOCK),
        ("resets 24:00 (UTC)", "2026-11-23T00:00", Confidence.CLOCK),
        ("resets 9am tomorrow (America/New_York)", "2026-11-23T14:00", Confidence.CLOCK),
        ("resets Dec 15 7pm 2026 (UTC)", "2026-12-15T19:00", Confidence.CLOCK),
        ("resets 3pm PST", "2026-11-22T23:00", Confidence.CLOCK),
        ("resets 3pm (GMT+9)", "2026-11-23T06:00", Confidence.CLOCK),
        ("resets 4pm (Mars/Olympus_Mons)", "2026-11-22T15:00", Confidence.GUESSED),
        ("resets 4pm (../../etc/passwd)", "2026-11-22T15:00", Confidence.GUESSED),
        ("resets 4pm (America)", "2026-11-22T15:00", Confidence.GUESSED),
        ("You have exhausted your daily quota on this model.", "2026-11-23T08:00", Confidence.GUESSED),
    ],
)
def test_a_time_of_day_or_a_date_is_read_in_its_zone_or_in_ours(
    text: str, expected: str, confidence: Confidence
) -> None:
    reset = read_reset(text, now=NOW, zone=BERLIN)

    assert reset is not None
    assert datetime.fromtimestamp(reset.until, UTC).isoformat()[:16] == expected
    assert reset.confidence is confidence


@pytest.mark.parametrize(
    "text",
    [
        "",
        "429",
        "Error: 429 Too Many Requests",
        "500 tests passed in 3.2s",
        "listening on port 8080",
        "server.js:12:30 at 2026-11-23T10:00:00Z",
        "read tcp: connection reset at 15:04:05",
        "503 upstream connect error or disconnect/reset before headers. reset reason: connection timeout",
        "git reset --hard HEAD~3",
        "try again later",
        "Please retry after a brief wait.",
        "please try again in a few minutes",
        "try again in 5",
        "retry after 3 attempts",
        "retry after 3",
        "(total retry wait time: 92.78 seconds)",
        "stream disconnected; retrying 5/5 in 3.32s…",
        "timeout: 30",
        "reset_count: 12, preset: 7, reset_timeout: 30",
        '{"type":"system","subtype":"api_retry","retry_delay_ms":572}',
        "retryDelayMs: undefined",
        "You have no quota",
        "resets 99:99",
        "resets 13pm",
        "Your quota will reset after 0s",
        "retry-after: 0",
        "retry-after: -5",
        "retry-after: Sun, 22 Nov 2026 13:00:00 GMT",
        "retry-after: 99999999",
        "try again in 40 days",
        "try again at Jan 5th, 2027 9:01 PM",
        "try again at Nov 20th, 2026 9:01 PM",
        "resets Nov 20, 3pm (UTC)",
        "resets Feb 30",
        "usage limit reached|1795300000",
        '{"resets_at": 15}',
        "resets in 999999999999 weeks",
        "resets Dec 1, 2099",
        '"rate_limit_info": {"status": "allowed_warning", "resetsAt": 1795366060}',
    ],
)
def test_what_tells_no_reset_that_can_be_believed_is_none(text: str) -> None:
    assert read_reset(text, now=NOW, zone=BERLIN) is None


def test_a_time_of_day_that_is_past_is_tomorrows() -> None:
    assert until("resets 1pm (UTC)") == "2026-11-23T13:00"
    assert until("resets 3pm (UTC)") == "2026-11-22T15:00"


def test_a_time_of_day_that_has_just_passed_is_not_tomorrows() -> None:
    """It is printed to the minute, and read a moment later: a day would be waited for nothing."""
    assert until("resets 2pm (UTC)", now=NOW + 30) == "2026-11-22T14:02"


@pytest.mark.parametrize(
    ("text", "passed_s"),
    [
        ("You've hit your session limit · resets 2pm (UTC)", 120),
        ("Claude usage limit reached. Your limit will reset at 2pm (UTC).", 57 * 60),
        ("limit reached, resets 14:00:00 (UTC)", 3599),
        ("weekly limit reached · resets Sun 2pm (UTC)", 33 * 60),
        ("usage limit reached, resets today at 2pm (UTC)", 33 * 60),
        ("limit reached, resets Nov 22 at 2pm (UTC)", 33 * 60),
    ],
)
def test_a_passed_time_that_a_service_still_names_is_no_reset(text: str, passed_s: float) -> None:
    """A limit is sometimes lifted late: until tomorrow, a night would be lost for nothing."""
    assert until(text, now=NOW + passed_s) is None


def test_a_passed_time_before_midnight_that_a_service_still_names_is_no_reset() -> None:
    assert until("resets 11:50pm (UTC)", now=at("2026-11-23T00:10")) is None
    assert until("resets 11:50pm (UTC)", now=at("2026-11-23T00:50")) == "2026-11-23T23:50"


@pytest.mark.parametrize(
    ("text", "now"),
    [
        ("You've hit your session limit · resets 11:59pm (UTC)", "2026-11-23T00:00:05"),
        ("usage limit reached, resets today at 11:59pm (UTC)", "2026-11-23T00:00:05"),
        ("weekly limit reached · resets Sun 11:59pm (UTC)", "2026-11-23T00:00:05"),
        ("limit reached, resets Dec 31 at 11:59pm (UTC)", "2027-01-01T00:00:05"),
    ],
)
def test_a_time_before_midnight_that_has_just_passed_is_not_tomorrows(text: str, now: str) -> None:
    reset = read_reset(text, now=at(now), zone=BERLIN)
    assert reset is not None
    assert reset.until == at(now) + 55


def test_a_date_that_is_past_is_next_years() -> None:
    assert until("resets Jan 2, 3pm (UTC)", now=at("2026-12-30T12:00")) == "2027-01-02T15:00"


def test_the_day_is_that_of_the_zone_and_not_of_utc() -> None:
    assert until("resets 1am (Asia/Tokyo)", now=at("2026-11-22T15:30")) == "2026-11-22T16:00"
    assert until("resets 11pm (America/Los_Angeles)", now=at("2026-11-23T06:00")) == "2026-11-23T07:00"


def test_without_a_zone_of_ours_times_are_utc() -> None:
    assert until("resets 3pm", zone=None) == "2026-11-22T15:00"


def test_in_the_hour_that_summer_time_leaves_out_the_later_moment_is_taken() -> None:
    """On 29 March 2026 clocks in Berlin go from 02:00 to 03:00: 02:30 is 01:30 UTC by winter's reckoning."""
    assert until("resets 2:30am (Europe/Berlin)", now=at("2026-03-28T23:00")) == "2026-03-29T01:30"


def test_in_the_hour_that_is_repeated_the_later_moment_is_taken() -> None:
    """On 1 November 2026 clocks in New York show 01:30 at 05:30 and at 06:30 UTC."""
    assert until("resets 1:30am", now=at("2026-11-01T04:00"), zone=NEW_YORK) == "2026-11-01T06:30"
    assert until("resets 1:30am", now=at("2026-11-01T06:00"), zone=NEW_YORK) == "2026-11-01T06:30"


def test_of_several_limits_the_longest_counts() -> None:
    assert wait('{"primary":{"resets_in_seconds":600},"secondary":{"resets_in_seconds":90000}}') == 90000
    assert wait("weekly limit: try again in 3 days\n5-hour limit: try again in 2 hours") == 259200
    assert wait("Please retry in 3.5s.\nSuggested retry after 3s.") == 3.5


def test_what_is_said_again_counts_as_it_was_said_last() -> None:
    assert wait("Please retry in 30s.\nwarning: x\nPlease retry in 4s.") == 4


def test_a_window_that_is_open_does_not_count() -> None:
    text = (
        '{"rate_limit_info":{"status":"rejected","resetsAt":1795356600,"unifiedWindows":{"five_hour":'
        '{"utilization":1,"resetsAt":1795356600,"status":"rejected"},"seven_day":{"utilization":0.4,'
        '"resetsAt":1795650274,"status":"allowed"}}}}'
    )
    assert wait(text) == 600


def test_an_exact_moment_is_preferred_to_the_same_one_cut_to_the_minute() -> None:
    reset = read_reset('"resetsAt":1795356034 resets 2:01pm (UTC)', now=NOW)

    assert reset is not None
    assert (reset.until - NOW, reset.confidence) == (34, Confidence.EXACT)


def test_an_allowance_that_is_not_used_up_does_not_count() -> None:
    text = '"x-ratelimit-remaining-requests":"499","x-ratelimit-remaining-tokens":"0","x-ratelimit-reset-requests":"6h0m","x-ratelimit-reset-tokens":"3s"'  # noqa: E501
    assert wait(text) == 3


def test_the_agents_own_pace_counts_only_where_nothing_else_is_told() -> None:
    assert wait("API Error (Connection error.) · Retrying in 5 seconds… (attempt 4/10)") == 5
    assert wait("Rate limit reached. Try again in 17 seconds; retrying in 3s") == 17
    assert wait("usage limit reached. Retrying in 32.0 seconds") is None


def test_a_daily_quota_is_not_over_in_seconds() -> None:
    assert until('You exhausted your daily quota. "retryDelay":"34s"') == "2026-11-23T08:00"
    assert wait("You exhausted your daily quota. Please retry in 10800s.") == 10800


def test_the_source_tells_what_was_read() -> None:
    def source(text: str) -> str:
        reset = read_reset(text, now=NOW)
        assert reset is not None
        return reset.source

    assert source("You've hit your limit · resets  3pm (Asia/Seoul), sorry") == "resets 3pm (Asia/Seoul)"
    assert source("Retry-After: 12") == "retry-after"
    assert source("please try again in 6m0s. Visit us") == "try again in 6m0s"
    assert len(source("x-" * 5 + "ratelimit-reset-" + "a" * 24 + ": 5s")) <= 80


def test_headers_tell_what_a_vendor_asks_for_before_what_is_left_of_allowances() -> None:
    def wait_of(**headers: str) -> float | None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        reset = reset_from_headers(named, now=NOW)
        return None if reset is None else reset.until - NOW

    assert wait_of(retry_after="3", x_ratelimit_reset_tokens="6m0s") == 3
    assert wait_of(retry_after="3", retry_after_ms="2900") == pytest.approx(2.9, abs=1e-6)
    assert wait_of(retry_after="3", x_codex_primary_reset_after_seconds="90000") == 3
    assert wait_of(x_ratelimit_reset_tokens="3s", x_ratelimit_used_percent="1") == 3
    assert wait_of(retry_after="Sun, 22 Nov 2026 14:00:09 GMT") == 9
    assert wait_of(retry_after="soon", x_ratelimit_reset_tokens="3s") == 3
    assert wait_of(
        x_ratelimit_remaining_requests="7", x_ratelimit_reset_requests="1h",
        x_ratelimit_remaining_tokens="0", x_ratelimit_reset_tokens="4s",
    ) == 4  # fmt: skip
    assert wait_of(
        x_codex_primary_used_percent="100", x_codex_primary_reset_after_seconds="60",
        x_codex_secondary_used_percent="20", x_codex_secondary_reset_after_seconds="90000",
    ) == 60  # fmt: skip
    assert wait_of(content_length="304", date="Sun, 22 Nov 2026 14:00:00 GMT") is None
    assert wait_of() is None


def test_an_epoch_is_in_seconds_or_milliseconds_and_lies_ahead() -> None:
    def wait_of(value: float) -> float | None:
        reset = reset_from_epoch(value, now=NOW)
        return None if reset is None else reset.until - NOW

    assert wait_of(NOW + 60) == 60
    assert wait_of((NOW + 60) * 1000) == 60
    assert wait_of(NOW) is None
    assert wait_of(NOW + LONGEST_S) == LONGEST_S
    for unbelievable in (NOW - 1, NOW + LONGEST_S + 1, 0, -1, float("nan"), float("inf")):
        assert wait_of(unbelievable) is None


@pytest.mark.parametrize(
    "piece",
    [
        "resets ",
        "try again in 5s ",
        "resets 3pm (Asia/Seoul) ",
        "x-ratelimit-",
        "\x1b[",
        '{"',
        "a-",
        "\n",
        "\x00\xff",
        "9" * 50,
    ],
)
def test_a_huge_or_binary_text_takes_no_time(piece: str) -> None:
    """Of megabytes the ends are looked at, and no expression goes back over what it has read."""
    text = piece * (4_000_000 // len(piece))

    before = time.process_time()
    read_reset(text, now=NOW)
    detect_rate_limit(text)

    assert time.process_time() - before < 2
    assert wait(text + "\nretry-after: 7") == max(7, wait(text) or 0)


def test_after_at_and_on_a_duration_is_none() -> None:
    assert wait("resets at 9h30") is None
    assert wait("resets in 9h30m") == 9.5 * 3600
    assert wait("resets 2h") == 2 * 3600


def test_a_time_to_the_second_that_has_passed_was_not_cut_to_the_minute() -> None:
    assert until("resets 13:59:30 (UTC)") is None
    assert until("resets 13:00:00 (UTC)") == "2026-11-23T13:00"
    assert until("resets 13:59 (UTC)") == "2026-11-22T14:01"


def test_a_passed_time_of_day_has_tomorrow_alone() -> None:
    for text in ("9am", "1pm"):
        written = read_moment(text, now=NOW)
        assert written is not None and all(moment > NOW + 3600 for moment in written.moments)
        assert len(written.moments) == 1


def test_today_is_the_date_in_the_zone_that_is_named() -> None:
    assert until("resets tomorrow (Asia/Seoul)", now=at("2026-11-22T16:00:00")) == "2026-11-23T15:00"
    assert until("resets today at 3pm (UTC)") == "2026-11-22T15:00"
    assert until("resets today at 1pm (UTC)") is None


def test_a_moment_of_the_past_is_none_and_one_in_an_unknown_zone_is_not_sure() -> None:
    past = read_moment("2020-01-01 10:00 UTC", now=NOW)
    assert past is not None and past.moments == ()
    assert read_moment("3pm (Europe/Atlantis)", now=NOW) == WrittenMoment((), sure=False, end=21)


def test_parts_of_a_second_count() -> None:
    assert wait("try again at 2026-11-22T18:00:00.25Z") == 14400.25
    assert wait("try again at 2026-11-22T18:00:00.1234567Z") == pytest.approx(14400.123456, abs=1e-5)


def test_a_year_of_two_digits_is_of_this_century() -> None:
    assert wait("retry-after: Monday, 22-Nov-27 14:10:00 GMT") is None


@pytest.mark.parametrize(
    ("name", "hours"),
    [("+14", 14.0), ("UTC+9", 9.0), ("GMT-9:30", -9.5), ("+15", None), ("pst", -8.0), ("est5edt", -5.0)],
)
def test_a_zone_is_found_by_offset_or_name(name: str, hours: float | None) -> None:
    zone = find_zone(name)
    offset = None if zone is None else datetime(2026, 11, 22, tzinfo=zone).utcoffset()
    assert offset == (None if hours is None else timedelta(hours=hours))


@pytest.mark.parametrize("text", ["resets 3pm ({})", "resets Nov 29 at 3pm {}", "reset: 3pm ({})"])
def test_a_zone_without_tzdata_leaves_no_reset(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ralphd.core.failures.reset_parsers.ZoneInfo", Mock(side_effect=KeyError))
    assert read_reset(text.format("America/New_York"), now=NOW, zone=BERLIN) is None
    assert wait("resets 3pm (Pro/Max)") is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Asia/Calcutta", "Asia/Kolkata"),
        ("Asia/Saigon", "Asia/Ho_Chi_Minh"),
        ("Asia/Katmandu", "Asia/Kathmandu"),
        ("Asia/Rangoon", "Asia/Yangon"),
        ("Europe/Kiev", "Europe/Kyiv"),
    ],
)
@pytest.mark.parametrize("lacks_old", [True, False])
def test_one_name_of_a_renamed_zone_is_enough(
    old: str, new: str, lacks_old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = timezone(timedelta(hours=5.5))
    zones = {new if lacks_old else old: zone}
    monkeypatch.setattr("ralphd.core.failures.reset_parsers.ZoneInfo", zones.__getitem__)
    assert find_zone(old) == zone


def test_utc_is_found_whatever_its_name() -> None:
    assert [find_zone(name) for name in ("UTC", "gmt", "z")] == [UTC, UTC, UTC]


@pytest.mark.parametrize(
    ("key", "value", "moment"),
    [
        ("resets_on", "30", None),
        ("resets_at", "30", None),
        ("reset_time", "30", None),
        ("reset_timestamp", "30", None),
        ("resets_at_epoch", "30", None),
        ("resets_at_unix", "30", None),
        ("resets_at", "1000000000", 1e9),
        ("reset", "1000000000", 1e9),
        ("reset", "30", 35.0),
        ("retry_after_ms", "1500", 6.5),
        ("retry_after_millis", "1500", 6.5),
        ("retry_after_milliseconds", "1500", 6.5),
        ("retry_after_ms", "100000000000", 1e8),
        ("retry_after", "soon", None),
    ],
)
def test_the_name_of_a_value_names_its_unit(key: str, value: str, moment: float | None) -> None:
    hint = named_value(key, value, 5.0)
    assert hint == (None if moment is None else ResetHint((moment,), key, Confidence.EXACT, Rank.TOLD, key))


def test_an_epoch_from_1e11_is_in_milliseconds() -> None:
    assert (epoch(1e11), epoch(1e11 - 1)) == (1e8, 1e11 - 1)


def test_a_hint_names_its_form_its_rank_and_its_place() -> None:
    exact = Confidence.EXACT
    after = ResetHint((NOW + 12,), "retry-after", exact, Rank.TOLD, "retry-after", 2)
    bucket = "x-ratelimit-reset-tokens"
    assert list(keyed("x\nRetry-After: 12", NOW)) == [after]
    assert list(keyed(f"x {bucket}: 3s", NOW)) == [
        ResetHint((NOW + 3,), bucket, exact, Rank.BUCKET, bucket, 2)
    ]
    assert list(keyed("x retry_delay {\n  seconds: 41\n}", NOW)) == [
        ResetHint((NOW + 41,), "retry_delay", exact, Rank.TOLD, "retry_delay", 2)
    ]
    assert list(piped("x limit  reached | 1795356060")) == [
        ResetHint((NOW + 60,), "limit reached", exact, Rank.TOLD, "reached|", 2)
    ]
    assert list(habits("You exhausted your daily quota", NOW)) == [
        ResetHint(
            (at("2026-11-23T08:00"),),
            "daily quota", Confidence.GUESSED, Rank.HABIT, "daily quota",
        )
    ]  # fmt: skip


def test_a_sentence_is_named_by_the_limits_in_its_line() -> None:
    text = "day\nweek\nMonth and Opus: Try again in 5s.\nyear"
    assert list(spoken(text, NOW, UTC)) == [
        ResetHint(
            (NOW + 5,), "Try again in 5s", Confidence.EXACT, Rank.TOLD, "try again in month,opus",
            text.index("Try"),
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "is_left"),
    [("X-RateLimit-Remaining-Tokens: 1", True), ('"x-ratelimit-remaining-tokens":"0"', False), ("", False)],
)
def test_what_is_left_of_an_allowance_is_read(text: str, is_left: bool) -> None:
    assert remaining(text, "x-ratelimit-reset-tokens") is is_left


def test_only_its_own_object_makes_a_value_one_of_an_open_window() -> None:
    assert wait('{"a":{"status":"allowed"},"b":{"resetsAt":1795356060}}') == 60
    assert wait('{"a":{"status":"allowed","resetsAt":1795650274},"b":{"resetsAt":1795356060}}') == 60


def test_the_source_of_an_epoch_is_that_of_its_caller() -> None:
    reset = reset_from_epoch(NOW + 60, now=NOW, source="resetsAt")
    assert reset is not None
    assert (reset.source, reset.confidence) == ("resetsAt", Confidence.EXACT)
    long = reset_from_epoch(NOW + 60, now=NOW, source="s" * 99)
    assert long is not None and long.source == "s" * 80


def test_codex_allowances_without_a_share_count() -> None:
    def wait_of(headers: dict[str, str]) -> float | None:
        reset = reset_from_headers(headers, now=NOW)
        return None if reset is None else reset.until - NOW

    after = {"x-codex-primary-reset-after-seconds": "30"}
    assert wait_of(after) == 30
    assert wait_of(after | {"x-codex-primary-used-percent": "?"}) == 30
    assert wait_of(after | {"x-codex-primary-used-percent": "99"}) is None


def test_ten_minutes_are_long_enough_to_be_believed() -> None:
    assert wait("usage limit reached. Retrying in 600 seconds") == 600
    assert wait("usage limit reached. Retrying in 599 seconds") is None
    assert wait("You exhausted your daily quota. Please retry in 600s.") == 600
    assert until("You exhausted your daily quota. Please retry in 599s.") == "2026-11-23T08:00"


def test_two_minutes_apart_are_the_same_moment() -> None:
    def confidence(seconds: int) -> Confidence:
        reset = read_reset(f"try again in {seconds}s, resets 3pm (UTC)", now=NOW)
        assert reset is not None
        return reset.confidence

    assert confidence(3480) is Confidence.EXACT
    assert confidence(3479) is Confidence.CLOCK
