"""What is printed of a reset, in whatever form, is read back."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from ralphd.core.failures.reset_parsers import JUST_PASSED_S
from ralphd.core.failures.resets import LONGEST_S, Reset, detect_rate_limit, read_reset
from ralphd.core.time import Moment

DAY_S = 24 * 3600
few = settings(max_examples=40)
zones = st.sampled_from(
    [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Asia/Kolkata",
        "Australia/Lord_Howe",
        "Pacific/Apia",
        "Asia/Seoul",
    ]
).map(ZoneInfo)
moments = st.integers(1_767_225_600, 1_830_000_000).map(float)  # 2026 and 2027
minutes = moments.map(lambda moment: moment // 60 * 60)
lengths = st.integers(1, int(LONGEST_S) - 1)
LETTERS = '0123456789:/-.,+()[]{}"\\ \n\x1b\x00TZapmhsd dayinretjanovUTC٣😀éß\u202f’·'
SPACES = st.sampled_from([" ", "\u00a0", "\u202f", "\n  "])


def until(reset: Reset | None) -> Moment | None:
    return None if reset is None else reset.until


def clock(local: datetime, *, twelve: bool, capital: bool) -> str:
    """A time of day as agents print it: ``3pm``, ``3:51 PM``, ``15:51``."""
    if not twelve:
        return f"{local:%H:%M}"
    half = f"{local:%p}" if capital else f"{local:%p}".lower()
    minute = f":{local.minute:02}" if local.minute or capital else ""
    return f"{local.hour % 12 or 12}{minute}{' ' if capital else ''}{half}"


def is_the_later(moment: Moment, zone: ZoneInfo) -> bool:
    """Whether clocks do not show the same once more, an hour later."""
    local = datetime.fromtimestamp(moment, zone)
    return local.replace(fold=1).timestamp() <= moment


def spelt(seconds: int, *, words: bool) -> str:
    """A duration as agents print it: ``3 days 2 hours``, ``6m0s``."""
    counts: list[str] = []
    for size, letter, word in (
        (86400, "d", "day"),
        (3600, "h", "hour"),
        (60, "m", "minute"),
        (1, "s", "second"),
    ):
        count, seconds = divmod(seconds, size)
        if count or (letter == "s" and not counts):
            counts.append(f"{count} {word}{'s' * (count != 1)}" if words else f"{count}{letter}")
    return (" " if words else "").join(counts)


@few
@given(
    moments,
    lengths,
    st.booleans(),
    SPACES,
    st.sampled_from(["try again", "Please retry", "It will reset", "resets"]),
)
def test_a_duration_is_read_back(now: Moment, seconds: int, words: bool, space: str, opening: str) -> None:
    text = f"{opening} in {spelt(seconds, words=words)}.".replace(" ", space)

    assert until(read_reset(text, now=now)) == now + seconds


@few
@given(
    moments,
    lengths,
    st.sampled_from(
        ["retry-after: {}", '"resets_in_seconds":{}', "Retry-After={}", '\\"retryAfter\\": \\"{}s\\"']
    ),
)
def test_seconds_with_a_name_are_read_back(now: Moment, seconds: int, form: str) -> None:
    assert until(read_reset(form.format(seconds), now=now)) == now + seconds
    passage = detect_rate_limit(f"Error: rate limit exceeded\n{form.format(seconds)}")
    assert passage is not None and until(read_reset(passage, now=now)) == now + seconds


@few
@given(
    moments,
    lengths,
    st.sampled_from([1, 1000]),
    st.sampled_from(["usage limit reached|{}", '"resetsAt": {}', '\\"resets_at\\":{},']),
)
def test_an_epoch_is_read_back(now: Moment, seconds: int, unit: int, form: str) -> None:
    text = form.format(int(now + seconds) * unit)

    assert until(read_reset(text, now=now)) == now + seconds


@few
@given(moments, lengths, zones)
def test_iso_8601_and_http_dates_are_read_back(now: Moment, seconds: int, zone: ZoneInfo) -> None:
    there = datetime.fromtimestamp(now + seconds, zone)

    assert until(read_reset(f"try again after {there.isoformat()}", now=now)) == now + seconds
    http = format_datetime(there.astimezone(UTC), usegmt=True)
    assert until(read_reset(f"Retry-After: {http}", now=now)) == now + seconds


@few
@given(moments, st.integers(0, DAY_S - 3600), zones, st.booleans(), st.booleans(), st.booleans())
def test_a_time_of_day_is_read_back(
    now: Moment, seconds: int, zone: ZoneInfo, named: bool, twelve: bool, capital: bool
) -> None:
    """In whatever zone, over every change of the clocks; of what they show twice, the later is taken."""
    told = (now + seconds) // 60 * 60
    local = datetime.fromtimestamp(told, zone)
    text = f"resets {clock(local, twelve=twelve, capital=capital)}{f' ({zone.key})' if named else ''}"

    read = until(read_reset(text, now=now, zone=zone))

    assert read is not None
    if told <= now:
        assert now < read <= now + JUST_PASSED_S or not is_the_later(told, zone)
    elif is_the_later(told, zone):
        assert read == told
    else:
        assert told < read <= told + 3600


@few
@given(
    minutes,
    st.integers(DAY_S, int(LONGEST_S) - DAY_S),
    zones,
    st.sampled_from(["{:%b %-d}, {}", "{:%B %-d} at {}", "{:%b %-dth, %Y} {}", "{:%Y-%m-%d} {}"]),
)
def test_a_date_and_a_time_are_read_back(now: Moment, seconds: int, zone: ZoneInfo, form: str) -> None:
    told = (now + seconds) // 60 * 60
    local = datetime.fromtimestamp(told, zone)
    text = f"resets {form.format(local, clock(local, twelve=True, capital=False))} ({zone.key})"

    read = until(read_reset(text, now=now, zone=UTC))

    assert read == told or (not is_the_later(told, zone) and read is not None and told < read <= told + 3600)


@few
@given(moments, zones, st.integers(1, 30))
def test_a_date_alone_is_the_beginning_of_its_day(now: Moment, zone: ZoneInfo, days: int) -> None:
    local = datetime.fromtimestamp(now, zone)
    day = local.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=days)

    read = until(read_reset(f"resets {day:%b %-d}", now=now, zone=zone))

    assert read in (day.timestamp(), day.replace(fold=1).timestamp())


@few
@given(st.text(alphabet=LETTERS, max_size=100), moments, zones)
def test_whatever_is_read_lies_ahead_and_can_be_believed(text: str, now: Moment, zone: ZoneInfo) -> None:
    for said in (text, f"resets {text}", f"try again in {text}", f"retry-after: {text}"):
        read = until(read_reset(said, now=now, zone=zone))
        assert read is None or 0 < read - now <= LONGEST_S
        assert detect_rate_limit(said) is None or said.strip()
