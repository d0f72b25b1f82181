"""Reading a log: what comes out is what was written, in order, however it is cut into segments and blocks."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphd.core.supervision.model import RunId
from ralphd.core.time import parse_rfc3339
from ralphd.process.log.log import RalphLog
from ralphd.process.log.records import BLOCK_BYTES, Cursor, Gap, LogQuery, LogRecord, LogText
from ralphd.process.log.segments import RunFiles
from tests.process.log.written_logs import (
    cursor_of,
    end_run,
    gaps,
    in_blocks,
    line,
    plain,
    read,
    run_directory,
    run_id,
    shown,
    stamp,
    texts,
    write,
    write_regent,
)

TEXT = st.binary(max_size=40).map(lambda text: text.replace(b"\n", b"."))
STREAM = st.sampled_from(["stdout", "stderr"])
ENTRY = st.tuples(STREAM, TEXT, st.integers(0, 3), st.sampled_from(["stay", "stay", "segment", "run"]))
REGENT = st.tuples(TEXT, st.integers(0, 6))
JUNK = st.sampled_from(
    [b"", b"no record", b"\0" * 30, b"2026-99-11T20:00:00.000000000Z stdout F x", b"\xff stdout F"]
)
BLOCK = st.sampled_from([128, 200, 65536])


class Written:
    """A log and what it says, in the order in which it has to be read back."""

    def __init__(
        self, runs: Path, entries: list[tuple[str, bytes, int, str]], regent: list[tuple[bytes, int]]
    ) -> None:
        self.runs = runs
        self.expected: list[tuple[str, bytes]] = []
        self._run = run_directory(runs, 1)
        at, segment, number, regent_at = 0, 1, 1, 0
        said: list[tuple[int, bytes]] = []
        for text, later in regent:
            regent_at += later
            said.append((regent_at, text))
        for stream, text, later, then in entries:
            at += later
            while said and said[0][0] < at:
                self._say(*said.pop(0))
            write(self._run, segment, line(text, at=at, stream=stream))
            self.expected.append((stream, text))
            if then == "segment":
                segment += 1
            if then == "run":
                number, segment = number + 1, 1
                self._run = run_directory(runs, number)
        for each in said:
            self._say(*each)

    def _say(self, at: int, text: bytes) -> None:
        write_regent(self._run, line(text, at=at, stream="regent"))
        self.expected.append(("regent", text))


@given(st.lists(ENTRY, max_size=30), st.lists(REGENT, max_size=6), BLOCK)
@settings(deadline=None)
def test_what_was_written_is_read_back_with_the_regents_lines_between(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[tuple[str, bytes, int, str]],
    regent: list[tuple[bytes, int]],
    block: int,
) -> None:
    written = Written(tmp_path_factory.mktemp("runs"), entries, regent)

    assert plain(read(written.runs, block_bytes=block)) == written.expected


@given(st.lists(ENTRY, max_size=30), st.lists(REGENT, max_size=6), st.integers(0, 40), BLOCK)
@settings(deadline=None)
def test_the_tail_is_the_last_records(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[tuple[str, bytes, int, str]],
    regent: list[tuple[bytes, int]],
    tail: int,
    block: int,
) -> None:
    written = Written(tmp_path_factory.mktemp("runs"), entries, regent)

    last = written.expected[-tail:] if tail else []
    assert plain(read(written.runs, LogQuery(tail=tail), block_bytes=block)) == last


@given(st.lists(ENTRY, max_size=30), st.lists(REGENT, max_size=6), STREAM, st.integers(0, 40))
@settings(deadline=None)
def test_the_tail_counts_what_the_filters_let_through(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[tuple[str, bytes, int, str]],
    regent: list[tuple[bytes, int]],
    stream: str,
    tail: int,
) -> None:
    written = Written(tmp_path_factory.mktemp("runs"), entries, regent)

    passing = [each for each in written.expected if each[0] == stream]
    wanted = passing[-tail:] if tail else []
    assert plain(read(written.runs, LogQuery(tail=tail, stream=stream), block_bytes=128)) == wanted


@given(st.lists(ENTRY, min_size=1, max_size=20), st.lists(REGENT, max_size=5), st.data())
@settings(deadline=None)
def test_reading_from_any_cursor_gives_exactly_the_rest(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[tuple[str, bytes, int, str]],
    regent: list[tuple[bytes, int]],
    data: st.DataObject,
) -> None:
    written = Written(tmp_path_factory.mktemp("runs"), entries, regent)
    items = read(written.runs, block_bytes=128)
    place = data.draw(st.integers(0, len(items) - 1))

    cursor = Cursor.parse(str(cursor_of(items[place])))

    assert read(written.runs, LogQuery(cursor=cursor)) == items[place + 1 :]


@given(st.lists(st.one_of(TEXT.map(line), JUNK.map(lambda junk: junk + b"\n")), max_size=30), BLOCK)
@settings(deadline=None)
def test_lines_that_are_no_records_are_told_as_gaps_and_cost_no_other_line(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], block: int
) -> None:
    runs = tmp_path_factory.mktemp("runs")
    write(run_directory(runs, 1), 1, b"".join(lines))

    items = read(runs, block_bytes=block)

    good = [each[40:-1] for each in lines if each.startswith(b"2026-11-")]
    assert texts(items) == good
    assert len(gaps(items)) == len(lines) - len(good)
    assert texts(read(runs, LogQuery(tail=3), block_bytes=block)) == good[-3:]


@given(st.lists(ENTRY, max_size=30), st.lists(REGENT, max_size=6), BLOCK)
@settings(deadline=None)
def test_plain_text_holds_the_same_bytes_as_the_records(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[tuple[str, bytes, int, str]],
    regent: list[tuple[bytes, int]],
    block: int,
) -> None:
    written = Written(tmp_path_factory.mktemp("runs"), entries, regent)

    with in_blocks(block):
        items = list(RalphLog(written.runs).read(LogQuery(as_text=True)))

    assert shown(items) == b"".join(text + b"\n" for _, text in written.expected)


@given(st.binary(max_size=3000), st.binary(max_size=300))
@settings(deadline=None)
def test_no_bytes_whatever_break_a_reader(
    tmp_path_factory: pytest.TempPathFactory, log: bytes, regent: bytes
) -> None:
    runs = tmp_path_factory.mktemp("runs")
    run = run_directory(runs, 1)
    write(run, 1, log)
    write_regent(run, regent)
    end_run(run)

    with in_blocks(128):
        items = list(RalphLog(runs).read(LogQuery()))
        assert shown(list(RalphLog(runs).read(LogQuery(as_text=True)))) == shown(items)
        assert len(list(RalphLog(runs).read(LogQuery(tail=5, grep="x")))) <= 5


def test_plain_text_comes_in_whole_blocks(tmp_path: Path) -> None:
    write(run_directory(tmp_path, 1), 1, b"".join(line(b"x" * 99, at=n) for n in range(1000)))

    items = list(RalphLog(tmp_path).read(LogQuery(as_text=True)))

    assert len(items) == 3
    assert all(isinstance(item, LogText) for item in items)
    assert shown(items) == (b"x" * 99 + b"\n") * 1000


def test_parts_of_a_long_line_are_joined_in_plain_text(tmp_path: Path) -> None:
    write(run_directory(tmp_path, 1), 1, line(b"one ", flag="P") + line(b"line") + line(b"next"))

    assert shown(list(RalphLog(tmp_path).read(LogQuery(as_text=True)))) == b"one line\nnext\n"
    assert [item.partial for item in read(tmp_path) if isinstance(item, LogRecord)] == [True, False, False]


def test_a_regents_line_stands_where_it_was_said_among_whole_blocks(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    write(run, 1, line(b"before", at=1) + line(b"after", at=9))
    write_regent(run, line(b"Restarting Ralph...", at=5, stream="regent"))

    assert (
        shown(list(RalphLog(tmp_path).read(LogQuery(as_text=True))))
        == b"before\nRestarting Ralph...\nafter\n"
    )


def test_runs_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (1_000_000, 999_999, 2):
        write(run_directory(tmp_path, number), 1, line(b"%d" % number))
    (tmp_path / "not-a-run").mkdir()

    assert texts(read(tmp_path)) == [b"2", b"999999", b"1000000"]


def _a_link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


@pytest.mark.parametrize("put", [_a_link, Path.mkdir, os.mkfifo])
@pytest.mark.parametrize("name", ["log.000001", "log.000002", "log.000003", "regent.log"])
@pytest.mark.parametrize("tail", [None, 10])
def test_what_a_run_put_in_place_of_a_log_hides_no_other_line(
    tmp_path: Path, put: Callable[[Path], None], name: str, tail: int | None
) -> None:
    run = run_directory(tmp_path, 1)
    kept = [each for each in ("log.000001", "log.000002", "log.000003") if each != name]
    for each in kept:
        write(run, int(each[-1]), line(each.encode()))
    put(run / name)
    end_run(run)
    write(run_directory(tmp_path, 2), 1, line(b"later", at=1))

    found = texts(read(tmp_path, LogQuery(tail=tail)))

    assert found == [*map(str.encode, kept), b"later"]


def test_a_log_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    assert read(tmp_path / "nowhere") == []
    assert read(tmp_path / "nowhere", LogQuery(tail=5)) == []


@given(st.lists(ENTRY, max_size=60), st.lists(REGENT, max_size=6), st.integers(0, 99), BLOCK)
@settings(deadline=None)
def test_the_lines_since_a_moment_are_all_of_them(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[tuple[str, bytes, int, str]],
    regent: list[tuple[bytes, int]],
    since: int,
    block: int,
) -> None:
    written = Written(tmp_path_factory.mktemp("runs"), entries, regent)
    records = [each for each in read(written.runs, block_bytes=block) if isinstance(each, LogRecord)]

    query = LogQuery(since=parse_rfc3339(stamp(since)))

    wanted = [(each.stream, each.text) for each in records if each.at >= stamp(since)]
    assert plain(read(written.runs, query, block_bytes=block)) == wanted


def test_the_lines_since_a_moment_cost_the_same_in_a_log_of_any_size(tmp_path: Path) -> None:
    def bytes_read(lines: int) -> int:
        run = run_directory(tmp_path / str(lines), 1)
        write(run, 1, b"".join(line(b"x" * (number % 90), at=number) for number in range(lines)))
        with mock.patch.object(os, "pread", wraps=os.pread) as pread:
            found = read(run.parent, LogQuery(since=parse_rfc3339(stamp(lines - 20))), block_bytes=4096)
        assert len(found) == 20
        return sum(call.args[1] for call in pread.call_args_list)

    small, large = bytes_read(1_000), bytes_read(32_000)

    assert large <= small + 6 * 4096  # five times as many halves, and one block


def test_the_tail_of_the_lines_since_a_moment_costs_no_more(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    write(run, 1, b"".join(line(b"x" * 60, at=number) for number in range(32_000)))
    query = LogQuery(since=parse_rfc3339(stamp(32_000 - 20)), tail=1000)

    with mock.patch.object(os, "pread", wraps=os.pread) as pread:
        found = read(tmp_path, query, block_bytes=4096)

    assert len(found) == 20
    assert sum(call.args[1] for call in pread.call_args_list) <= 40 * 4096  # of 800


def test_a_clock_that_was_set_back_hides_no_line_of_the_time_after(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    write(run, 1, b"".join(line(b"%d" % at, at=at) for at in (*range(200), *range(100, 300))))

    found = read(tmp_path, LogQuery(since=parse_rfc3339(stamp(150))), block_bytes=128)

    assert texts(found)[-150:] == [b"%d" % at for at in range(150, 300)]


def test_since_and_until_name_the_first_and_the_last_moment_shown(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    write(run, 1, b"".join(line(b"%d" % n, at=n) for n in range(10)))
    write(run, 2, b"".join(line(b"%d" % n, at=n) for n in range(10, 20)))

    query = LogQuery(since=parse_rfc3339(stamp(5)), until=parse_rfc3339(stamp(12)))

    assert texts(read(tmp_path, query)) == [b"%d" % n for n in range(5, 13)]
    assert texts(read(tmp_path, LogQuery(tail=2, until=parse_rfc3339(stamp(12))))) == [b"11", b"12"]


def test_grep_looks_for_a_fixed_text(tmp_path: Path) -> None:
    write(run_directory(tmp_path, 1), 1, line(b"a.c") + line(b"abc") + line("größer".encode()))

    assert texts(read(tmp_path, LogQuery(grep="a.c"))) == [b"a.c"]
    assert texts(read(tmp_path, LogQuery(grep="ö"))) == ["größer".encode()]


def test_the_last_line_of_a_dead_run_is_shown_without_its_newline(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    write(run, 1, line(b"whole") + line(b"cut o")[:-1])
    end_run(run)

    for items in (read(tmp_path), read(tmp_path, LogQuery(tail=2))):
        assert texts(items) == [b"whole", b"cut o"]
        assert isinstance(items[-1], LogRecord)
        assert items[-1].partial
    assert read(tmp_path, LogQuery(cursor=cursor_of(read(tmp_path)[-1]))) == []


def test_a_line_that_is_being_written_is_left_for_the_next_reader(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    write(run, 1, line(b"whole") + line(b"in two writes")[:-5])

    first = read(tmp_path, LogQuery(tail=1))
    write(run, 1, line(b"in two writes")[-5:])

    assert texts(first) == [b"whole"]
    assert texts(read(tmp_path, LogQuery(cursor=cursor_of(first[-1])))) == [b"in two writes"]


def test_the_last_output_is_as_old_as_the_newest_segment_that_holds_something(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    log = RalphLog(tmp_path)
    assert log.last_output_at(run_id(run)) is None
    write(run, 1, b"")
    assert log.last_output_at(run_id(run)) is None

    write(run, 1, line(b"something"))
    write(run, 2, b"")

    assert log.last_output_at(run_id(run)) == (run / "log.000001").stat().st_mtime


def test_the_last_output_is_found_without_listing_a_directory_that_has_not_changed(tmp_path: Path) -> None:
    run, log = run_directory(tmp_path, 1), RalphLog(tmp_path)
    write(run, 1, line(b"something"))
    os.utime(run, (1e9, 1e9))
    first = log.last_output_at(run_id(run))
    assert first == (run / "log.000001").stat().st_mtime

    write(run, 2, line(b"more"))
    os.utime(run / "log.000002", (2e9, 2e9))
    os.utime(run, (1e9, 1e9))
    assert log.last_output_at(run_id(run)) == first
    os.utime(run, (1.1e9, 1.1e9))
    assert log.last_output_at(run_id(run)) == 2e9


def test_the_last_output_is_that_of_the_run_that_was_asked_for(tmp_path: Path) -> None:
    first, second, log = run_directory(tmp_path, 1), run_directory(tmp_path, 2), RalphLog(tmp_path)
    write(first, 1, line(b"something"))
    assert log.last_output_at(run_id(first)) is not None
    assert log.last_output_at(run_id(second)) is None
    first.rename(tmp_path / "away")
    assert log.last_output_at(run_id(first)) is None
    (tmp_path / "away").rename(first)
    assert log.last_output_at(run_id(first)) is not None


def test_a_clock_that_was_set_back_costs_no_line(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    for at in (9, 3, 7, 1):
        write(run, 1, line(b"%d" % at, at=at))
    write_regent(run, line(b"said", at=5, stream="regent") + line(b"again", at=2, stream="regent"))

    assert [text for text in texts(read(tmp_path)) if text.isdigit()] == [b"9", b"3", b"7", b"1"]
    assert len(read(tmp_path)) == 6
    assert all(not isinstance(item, Gap) for item in read(tmp_path))
    assert len(read(tmp_path, LogQuery(tail=3))) >= 3


def test_of_two_lines_at_one_time_the_regents_is_the_later_in_the_tail_too(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    write(run, 1, line(b"printed", at=5))
    write_regent(run, line(b"said", at=5, stream="regent"))

    assert texts(read(tmp_path)) == [b"printed", b"said"]
    assert texts(read(tmp_path, LogQuery(tail=1))) == [b"said"]


def test_reading_ends_where_the_log_ended_when_it_began(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    cut = line(b"cut while it was written")
    write(run, 1, line(b"x" * 50) * 5 + cut[:-9])
    reading = RalphLog(tmp_path).read(LogQuery())

    with in_blocks(128):
        items = [next(reading)]
        write(run, 1, cut[-9:] + line(b"later"))
        write(run, 2, line(b"in another segment"))
        end_run(run)
        write(run_directory(tmp_path, 2), 1, line(b"in another run"))
        items += list(reading)

    assert texts(items) == [b"x" * 50] * 5


@pytest.mark.parametrize(
    ("printed", "passed"),
    [
        (line(b"one") + line(b"two"), True),
        (line(b"an {odd} line"), True),
        (line(b'{"type":"result"}'), False),
        (line(b"one") + line(b'{"type":"result"}'), False),
        (line(b"a part", flag="P"), False),
        (line(b"one")[:-1], False),
        (b"", False),
    ],
)
def test_lines_that_can_be_no_event_are_passed_over(tmp_path: Path, printed: bytes, passed: bool) -> None:
    run = run_directory(tmp_path, 1)
    write(run, 1, printed)
    start = Cursor.start_of(RunId(run.name))

    after, is_all = RalphLog(tmp_path).after_plain(start)

    assert (after.offset, is_all) == ((len(printed), True) if passed else (0, False))


def test_plain_lines_are_passed_over_block_by_block_and_none_of_a_missing_segment(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    write(run, 1, line(b"x" * 87) * 1024)  # 128 bytes each: a block ends with a line
    log, at = RalphLog(tmp_path), Cursor.start_of(RunId(run.name))

    at, is_all = log.after_plain(at)
    assert (at.offset, is_all) == (BLOCK_BYTES, False)
    at, is_all = log.after_plain(at)
    assert (at.offset, is_all) == (2 * BLOCK_BYTES, False)
    assert log.after_plain(replace(at, segment=2)) == (replace(at, segment=2), False)


def test_each_segment_has_a_path_of_its_own_in_any_order(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)

    assert [files.segment(number).name for number in (0, 1, 2, 2, 1)] == [
        f"log.00000{number}" for number in (0, 1, 2, 2, 1)
    ]
