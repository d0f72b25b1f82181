"""What is no longer there: cursors of pruned segments and runs, files deleted while they are read."""

from pathlib import Path

import pytest

from ralphd.errors import UsageError
from ralphd.process.log.log import RalphLog
from ralphd.process.log.records import Cursor, LogQuery
from tests.process.log.written_logs import (
    cursor_of,
    end_run,
    gaps,
    line,
    read,
    run_directory,
    run_id,
    texts,
    write,
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "r000001-0000000a",
        "../../etc:1:0:0",
        "r000001-0000000a:0:0:0",
        "r000001-0000000a:1:-1:0",
        "r000001-0000000a:1:0:0\n",
        "r000001-0000000a:1:0:0:0",
        "r000001-0000000a:1:\u0661:0",
    ],
)
def test_what_is_no_cursor_is_refused_in_words(text: str) -> None:
    with pytest.raises(UsageError, match="is no cursor"):
        Cursor.parse(text)


def test_a_pruned_segment_leaves_a_gap_that_says_so(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    for segment in range(1, 5):
        write(run, segment, line(b"%d" % segment))
    cursor = cursor_of(read(tmp_path)[0])
    for segment in (1, 2, 3):
        (run / f"log.{segment:06d}").unlink()

    items = read(tmp_path, LogQuery(cursor=cursor))

    assert gaps(items) == ["output is missing here: segments 1 to 3 are no longer kept"]
    assert texts(items) == [b"4"]
    assert read(tmp_path, LogQuery(cursor=cursor_of(items[0]))) == items[1:]
    assert texts(read(tmp_path, LogQuery(tail=5))) == [b"4"]


def test_a_cursor_of_a_pruned_run_goes_on_at_the_next_one_that_is_kept(tmp_path: Path) -> None:
    runs = [run_directory(tmp_path, number) for number in (3, 4)]
    for run in runs:
        write(run, 1, line(run.name.encode()))
    gone = Cursor.parse("r000002-00000002:1:0:0")

    items = read(tmp_path, LogQuery(cursor=gone))

    assert gaps(items) == ["run r000002-00000002 is no longer kept"]
    assert texts(items) == [run.name.encode() for run in runs]
    assert cursor_of(items[0]) == Cursor(run_id(runs[0]), 1, 0, 0)


def test_a_cursor_beyond_the_end_goes_on_at_the_end(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    write(run, 1, line(b"there"))

    for text in (f"{run.name}:1:9999:0", f"{run.name}:7:1:0", f"{run.name}:1:45:77"):
        items = read(tmp_path, LogQuery(cursor=Cursor.parse(text)))
        assert texts(items) == []
        assert "beyond the end" in gaps(items)[0]
        assert read(tmp_path, LogQuery(cursor=cursor_of(items[-1]))) == []


def test_a_run_whose_whole_output_was_pruned_says_so(tmp_path: Path) -> None:
    pruned, silent, last = (run_directory(tmp_path, number) for number in (1, 2, 3))
    end_run(pruned, log_bytes=10)
    end_run(silent, log_bytes=0)
    write(last, 1, line(b"last"))

    items = read(tmp_path)

    assert gaps(items) == ["the output of this run is no longer kept"]
    assert texts(items) == [b"last"]


def test_a_segment_and_a_run_that_are_deleted_while_they_are_read_do_not_end_the_reading(
    tmp_path: Path,
) -> None:
    first, second = run_directory(tmp_path, 1), run_directory(tmp_path, 2)
    for segment in (1, 2, 3):
        write(first, segment, line(b"%d" % segment))
    write(second, 1, line(b"second"))
    reading = RalphLog(tmp_path).read(LogQuery())

    items = [next(reading)]
    for path in list(first.iterdir()):
        path.unlink()
    first.rmdir()
    items += list(reading)

    assert texts(items) == [b"1", b"second"]
    assert gaps(items) == [f"run {first.name} was removed while it was read"]
