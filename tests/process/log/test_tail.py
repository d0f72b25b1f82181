"""The last lines of a run: whole, of the stream that was asked for, and cheap however long the log is."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.process.log.log import RalphLog
from tests.process.log.written_logs import in_blocks, line, run_directory, run_id, write

SMALL_BLOCK = 256
PART = st.text("abc é→", max_size=6).map(str.encode)
PRINTED = st.tuples(
    st.sampled_from(["stdout", "stderr"]), st.lists(PART, min_size=1, max_size=4), st.booleans()
)


def last(
    run: Path, count: int, *, stream: str | None = "stdout", block: int = SMALL_BLOCK, limit: int = 1 << 20
) -> list[str]:
    """The last lines of a run, read in small blocks."""
    with in_blocks(block):
        return RalphLog(run.parent).last_lines(run_id(run), count, stream=stream, limit_bytes=limit)


def test_the_last_lines_of_stdout_come_in_their_order(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    for number in range(100):
        write(run, 1 + number // 30, line(b"out %d" % number))
        write(run, 1 + number // 30, line(b"err %d" % number, stream="stderr"))

    assert last(run, 3) == ["out 97", "out 98", "out 99"]
    assert last(run, 2, stream="stderr") == ["err 98", "err 99"]
    assert last(run, 3, stream=None) == ["err 98", "out 99", "err 99"]
    assert last(run, 1000) == [f"out {number}" for number in range(100)]


def test_the_parts_of_a_long_line_are_one_line_though_the_other_stream_and_a_segment_lie_between(
    tmp_path: Path,
) -> None:
    run = run_directory(tmp_path, 1)
    write(run, 1, line(b"before"))
    write(run, 1, line("caf\u00e9".encode()[:-1], flag="P"))
    write(run, 1, line(b"meanwhile", stream="stderr"))
    write(run, 2, line("\u00e9".encode()[1:] + b" au ", flag="P"))
    write(run, 2, line(b"lait"))

    assert last(run, 1) == ["caf\u00e9 au lait"]
    assert last(run, 2) == ["before", "caf\u00e9 au lait"]
    assert last(run, 3, stream=None) == ["before", "meanwhile", "caf\u00e9 au lait"]


def test_a_line_without_an_end_is_the_last_one(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    write(run, 1, line(b"whole"))
    write(run, 1, line(b"50 %", flag="P"))

    assert last(run, 2) == ["whole", "50 %"]


def test_a_record_that_was_cut_off_by_a_crash_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    write(run, 1, line(b"whole") + line(b"torn off")[:-5])

    assert last(run, 2) == ["whole", "torn"]


def test_what_is_no_record_is_left_out(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    write(run, 1, line(b"one") + b"\0" * 40 + b"\n" + line(b"two"))

    assert last(run, 5) == ["one", "two"]


def test_no_more_is_read_than_the_limit_says(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    write(run, 1, line(b"the only line of stdout"))
    for number in range(200):
        write(run, 1, line(b"err %d" % number, stream="stderr"))

    assert last(run, 1, limit=2 * SMALL_BLOCK) == []
    assert last(run, 1) == ["the only line of stdout"]


@pytest.mark.parametrize("count", [0, 5])
def test_a_run_without_output_has_no_last_lines(tmp_path: Path, count: int) -> None:
    run = run_directory(tmp_path, 1)
    empty = last(run, count)
    write(run, 1, b"")
    missing = RalphLog(tmp_path / "nowhere").last_lines(run_id(run), count)

    assert empty == last(run, count) == missing == []


def test_none_asked_for_is_none_given(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    write(run, 1, line(b"one") + line(b"two"))

    assert last(run, 0) == []


@given(st.lists(PRINTED, max_size=20), st.integers(1, 25), st.sampled_from([128, 300, 65536]))
def test_the_last_lines_are_the_end_of_all_lines(
    tmp_path_factory: pytest.TempPathFactory,
    printed: list[tuple[str, list[bytes], bool]],
    count: int,
    block: int,
) -> None:
    run = run_directory(tmp_path_factory.mktemp("runs"), 1)
    expected: dict[str, list[str]] = {"stdout": [], "stderr": []}
    segment = 1
    for stream, parts, then_rotates in printed:
        for part in parts[:-1]:
            write(run, segment, line(part, stream=stream, flag="P"))
        write(run, segment, line(parts[-1], stream=stream))
        expected[stream].append(b"".join(parts).decode())
        segment += then_rotates

    for stream, lines in expected.items():
        assert last(run, count, stream=stream, block=block) == lines[-count:]
