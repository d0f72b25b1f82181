"""The limits of a run as pure rules: sizes, files of a control group, when a start waits, schedules."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ralphd.core.limits import (
    RunLimits,
    is_scheduled,
    next_scheduled,
    size_in_bytes,
    size_text,
    windows_of,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8GiB", 8 << 30),
        ("1.5 MiB", 3 << 19),
        (" 512KiB ", 512 << 10),
        ("1PiB", 1 << 50),
        ("4096", 4096),
        ("7B", 7),
        (12, 12),
    ],
)
def test_a_size_is_read(text: object, size: int) -> None:
    assert size_in_bytes(text) == size


@pytest.mark.parametrize("text", ["8GB", "-1GiB", "1e9", "GiB", "", "8 gib", "9" * 16, True, 1.5, None])
def test_what_is_not_a_size_stays_for_the_check_of_its_type(text: object) -> None:
    assert size_in_bytes(text) is text


@pytest.mark.parametrize("text", ["8GiB", "3MiB", "1PiB", "1025KiB", "7", "0"])
def test_a_size_is_shown_as_it_is_read(text: str) -> None:
    size = size_in_bytes(text)
    assert isinstance(size, int)
    assert size_text(size) == text


def test_only_given_limits_are_written() -> None:
    assert RunLimits().files() == {}
    given = RunLimits(max_memory_bytes=8 << 30, max_processes=500, cpu_weight=50)
    assert given.files() == {"memory.max": "8589934592", "pids.max": "500", "cpu.weight": "50"}


def test_limits_without_effect_are_named() -> None:
    given = RunLimits(max_memory_bytes=8 << 30, cpu_weight=50)
    assert given.unavailable({"memory", "cpu", "io"}) is None
    assert RunLimits().unavailable(None) is None
    assert "memory and cpu" in (given.unavailable({"pids"}) or "")
    assert "cannot create control groups" in (given.unavailable(None) or "")


@pytest.mark.parametrize(
    ("free", "running", "waits"),
    [(0.5, 0, ""), (0.5, 1, ""), (0.5, 2, "max_running"), (0.049, 0, "min_free_memory"), (0.05, 1, "")],
)
def test_a_start_waits_for_memory_and_for_other_runs(free: float, running: int, waits: str) -> None:
    why = RunLimits(min_free_memory=0.05, max_running=2).why_wait(free, running)
    assert waits in (why or "") and bool(why) is bool(waits)


def test_without_limits_no_start_waits() -> None:
    assert RunLimits().why_wait(0.0, 10_000) is None


# --- schedules ----------------------------------------------------------------------------------------

BERLIN = ZoneInfo("Europe/Berlin")


def local(text: str, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold).timestamp()


@pytest.mark.parametrize(
    ("schedule", "time", "is_open"),
    [
        ("", "12:00", True),
        ("23:00-07:00", "22:59:59", False),
        ("23:00-07:00", "23:00", True),
        ("23:00-07:00", "06:59:59", True),
        ("23:00-07:00", "07:00", False),
        ("9:00-12:00, 13:00 - 24:00", "12:30", False),
        ("9:00-12:00, 13:00 - 24:00", "23:59", True),
        ("00:00-24:00", "00:00", True),
        ("18:00-00:00", "00:00", False),
    ],
)
def test_a_schedule_holds_by_the_local_clock(schedule: str, time: str, is_open: bool) -> None:
    assert is_scheduled(schedule, local(f"2026-11-22T{time}"), BERLIN) is is_open


@pytest.mark.parametrize(
    ("schedule", "at", "then"),
    [
        ("23:00-07:00", "2026-11-22T12:00:30", "2026-11-22T23:00"),
        ("23:00-07:00", "2026-11-22T07:00", "2026-11-22T23:00"),
        ("09:00-10:00,12:00-13:00", "2026-11-22T10:00", "2026-11-22T12:00"),
        ("09:00-10:00,12:00-13:00", "2026-11-22T13:00", "2026-11-23T09:00"),
        ("02:30-07:00", "2026-03-29T01:00", "2026-03-29T03:00"),  # 02:00 to 03:00 is left out
        ("02:15-02:45", "2026-03-29T01:00", "2026-03-30T02:15"),
        ("09:00-10:00", "2026-03-28T12:00", "2026-03-29T09:00"),
        ("09:00-10:00", "2026-10-24T12:00", "2026-10-25T09:00"),
    ],
)
def test_the_next_time_is_right_across_midnight_and_daylight_saving(
    schedule: str, at: str, then: str
) -> None:
    assert next_scheduled(schedule, local(at), BERLIN) == local(then)


def test_an_hour_that_comes_twice_is_scheduled_twice() -> None:
    assert is_scheduled("02:00-03:00", local("2026-10-25T02:30"), BERLIN)
    assert is_scheduled("02:00-03:00", local("2026-10-25T02:30", fold=1), BERLIN)
    assert next_scheduled("02:30-03:00", local("2026-10-25T02:10", fold=1), BERLIN) == local(
        "2026-10-25T02:30", fold=1
    )


@given(st.integers(0, 1439), st.integers(0, 1439), st.integers(1_750_000_000, 1_830_000_000).map(float))
def test_the_next_time_is_scheduled_and_none_is_before_it(start: int, end: int, at: float) -> None:
    schedule = f"{start // 60:02}:{start % 60:02}-{end // 60:02}:{end % 60:02}"
    assume(start != end)

    then = next_scheduled(schedule, at, BERLIN)

    assert is_scheduled(schedule, then, BERLIN)
    minutes = range(int(at // 60) + 1, int(then // 60))
    assert not any(is_scheduled(schedule, 60.0 * minute, BERLIN) for minute in minutes)


@pytest.mark.parametrize(
    "schedule", ["night", "23-07", "25:00-07:00", "23:00-07:60", "24:00-07:00", "23:00-07:00,", "8:00-08:00"]
)
def test_what_is_not_a_schedule_is_refused_with_an_example(schedule: str) -> None:
    with pytest.raises(ValueError, match=r"23:00-07:00|same time"):
        windows_of(schedule)
