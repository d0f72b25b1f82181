"""The limits of a run as pure rules: sizes, files of a control group, when a start waits."""

import pytest

from ralphd.core.limits import RunLimits, size_in_bytes, size_text


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
