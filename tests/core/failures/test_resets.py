"""``detect_rate_limit``: which outputs tell of a limit as an error, and which only speak of one [000-T5]."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from ralphd.core.failures.resets import detect_rate_limit, read_reset

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 22, 14, tzinfo=UTC).timestamp()


def waits(output: str, *, zone: ZoneInfo | None = None) -> float | None:
    """How long an output says to wait, 60 s where it names no length; None where it reports no limit."""
    passage = detect_rate_limit(output)
    if passage is None:
        return None
    reset = read_reset(passage, now=NOW, zone=zone)
    return 60 if reset is None else reset.until - NOW


@pytest.mark.parametrize(
    ("output", "seconds"),
    [
        ("Error: Rate limit exceeded. Retry-After: 30", 30),
        ("HTTP 429", 60),
        ("HTTP/1.1 429 Too Many Requests\nretry-after: 12", 12),
        ("API Error: Request rejected (429) · This request would exceed your rate limit.", 60),
        ("429 Too Many Requests", 60),
        ("TOO MANY REQUESTS", 60),
        ("error: rate LIMIT reached", 60),
        ("Usage limit reached", 60),
        ("plan limit", 60),
        ("Your plan limit was reached", 60),
        ("Limit reached. Wait 45 seconds, or upgrade to Pro.", 45),
        ("rate limit", 60),
        ("You've hit your usage limit, try again in 2 hours.", 7200),
        ("You’ve hit your limit · resets 3pm (UTC)", 3600),
        ('{"error":{"type":"usage_limit_reached","resets_in_seconds":120}}', 120),
        ('✕ [API Error: [{\n    "error": {\n      "code": 429,\n      "retryDelay": "9s"', 9),
        ('Error: 429 {"type":"error","error":{"type":"rate_limit_error"}}', 60),
        ("stream disconnected: Rate limit reached for x. Please try again in 6.5s.", 6.5),
        ("Sorry, your request was rate-limited. Please wait 43 seconds before trying again.", 43),
        ("litellm.RateLimitError: too many requests", 60),
        ("work\n" * 9000 + "Error: rate limit exceeded", 60),
        ("⎿ rate limit", 60),
        ("■ The request was throttled", 60),
        ('⎿ {"error":{"type":"rate_limit_error"}}', 60),
        ('[{"error":{"status":"RESOURCE_EXHAUSTED"}}]', 60),
        ('Error: request {"error":{"type":"rate_limit_error"}}', 60),
        ('API Error\n{\n  "code": 429', 60),
        ('{\n  "error": {\n  "code": 429', 60),
        ("API Error" + '\n  "x": 1,' * 5 + '\n  "code": 429', 60),
    ],
)
def test_t5_a_limit_that_is_told_as_an_error_is_detected(output: str, seconds: float) -> None:
    assert waits(output) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "output",
    [
        "",
        "500 tests passed",
        "line 429",
        "FAILED tests/test_api.py:429",
        "listening on port 4290",
        "adds a rate limit handler",
        "Rate limit handler added; usage limit page done.",
        "All 42 tests pass, including `test_rate_limit_exceeded`.",
        "The README now explains too many requests and the usage limit.",
        'Translated the error strings: "Too many requests", "Rate limit reached".',
        'src/client.py:15:    raise RateLimitError("Rate limit reached. Please try again in 20s")',
        "0c3d9f1 usage limit reached: wait for the reset",
        "feat: rate limit exceeded page",
        "+    rate limit exceeded",
        'saved {"note": 1, error: rate limit exceeded}',
        "a: b: c: d: e: usage limit reached",
        "error: recursion limit reached while expanding `foo!`",
        "FATAL: connection limit exceeded for non-superusers",
        "CPU time limit exceeded",
        "Error: Max turns limit reached",
        "Iteration limit has been reached.",
        'Error: request {"type":"user","text":"rate limit"}',
        'Error: x {"type":"user","a":{"code":429}}',
        '{\n  "code": 429',
        'API Error\n  "code": 500',
        'API Error\n  "result": "rate limit"',
        "API Error" + '\n  "x": 1,' * 6 + '\n  "code": 429',
        "x" * 76 + 'Error\n  "code": 429',
        "# Error: rate limit exceeded",
        'AssertionError: expected "rate limit exceeded" on the page',
        "| 429 | Rate limit reached | wait |",
        '{"type":"user","message":{"content":"Error: rate limit exceeded (429)"}}',
        '{"type":"result","is_error":false,"result":"Error: rate limit exceeded"}',
        '{"type":"rate_limit_event","rate_limit_info":{"status":"allowed","resetsAt":1795304674}}',
    ],
)
def test_t5_what_only_speaks_of_limits_is_not_one(output: str) -> None:
    assert detect_rate_limit(output) is None


def test_t5_told_the_time_it_reads_times_of_day_as_well() -> None:
    output = "You've hit your limit · resets 3pm (UTC)"

    assert waits(output) == 3600
    assert waits("Usage limit reached, resets 4pm", zone=BERLIN) == 3600


def test_t5_a_daily_quota_lasts_until_midnight_in_california() -> None:
    output = "Error: 429 Too Many Requests: you exhausted your daily quota"

    assert waits(output) == 18 * 3600
