"""What the daemon does to logs: its own lines about a run, and the bounds on what is kept (F5)."""

import logging
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphd.core.time import parse_rfc3339
from ralphd.process.log.log import append_regent_line, prune
from ralphd.process.log.records import Gap, LogRecord
from tests.process.log.written_logs import START, end_run, line, read, run_directory, run_id, texts, write


def segments(runs: Path) -> list[str]:
    return sorted(f"{path.parent.name[:7]}/{path.name}" for path in runs.glob("*/log.*"))


def test_what_the_regent_says_is_read_back_with_its_time(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)

    append_regent_line(run, START + 0.25, "Tests passed ✅ — commit abc1234 kept\nand more")

    first, second = read(tmp_path)
    assert isinstance(first, LogRecord)
    assert isinstance(second, LogRecord)
    assert (first.stream, first.text.decode()) == ("regent", "Tests passed ✅ — commit abc1234 kept")
    assert parse_rfc3339(first.at) == START + 0.25
    assert second.text == b"and more"
    assert (run / "regent.log").stat().st_mode & 0o777 == 0o600


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=5))
@settings(deadline=None)
def test_any_text_of_the_regent_is_kept(tmp_path_factory: pytest.TempPathFactory, said: list[str]) -> None:
    runs = tmp_path_factory.mktemp("runs")
    run = run_directory(runs, 1)
    for text in said:
        append_regent_line(run, START, text)

    lines = [each.encode() for text in said for each in text.splitlines() or [""]]
    assert texts(read(runs)) == lines


def test_a_very_long_line_of_the_regent_is_kept_in_parts(tmp_path: Path) -> None:
    append_regent_line(run_directory(tmp_path, 1), START, "x" * 40_000)

    items = read(tmp_path)
    assert b"".join(texts(items)) == b"x" * 40_000
    assert [item.partial for item in items if isinstance(item, LogRecord)] == [True, True, False]


def test_a_line_that_an_earlier_daemon_left_torn_does_not_spoil_the_next(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    append_regent_line(run, START, "torn")
    path = run / "regent.log"
    os.truncate(path, path.stat().st_size - 2)

    append_regent_line(run, START, "next")

    assert texts(read(tmp_path)) == [b"tor", b"next"]


def test_a_line_about_a_run_that_was_removed_is_logged_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        append_regent_line(tmp_path / "r000001-0000000a", START, "said")

    assert "could not be written" in caplog.text
    assert not (tmp_path / "r000001-0000000a").exists()


def test_the_bound_holds_over_all_ralphs_together_oldest_first(tmp_path: Path) -> None:
    for ralph, age_s in (("old", 1000), ("new", 10)):
        run = run_directory(tmp_path / ralph, 1)
        for segment in (1, 2):
            write(run, segment, b"x" * 100)
            os.utime(run / f"log.{segment:06d}", (START - age_s, START - age_s))
        end_run(run)

    prune([tmp_path / "new", tmp_path / "old"], total_bytes=250, living=[])

    assert not segments(tmp_path / "old")
    assert len(segments(tmp_path / "new")) == 2


def test_pruning_keeps_the_newest_output_up_to_the_bound(tmp_path: Path) -> None:
    for number in (1, 2):
        run = run_directory(tmp_path, number)
        for segment in (1, 2, 3):
            write(run, segment, b"x" * 100)
        end_run(run)

    prune([tmp_path], total_bytes=250, living=[])

    assert segments(tmp_path) == ["r000002/log.000002", "r000002/log.000003"]
    assert len(list(tmp_path.glob("*/exit.json"))) == 2


def test_a_directory_in_place_of_a_segment_keeps_no_other_output(tmp_path: Path) -> None:
    first, second = (run_directory(tmp_path, number) for number in (1, 2))
    (first / "log.000001").mkdir()
    write(second, 1, b"x" * 100)

    prune([tmp_path], total_bytes=0, living=[])

    assert segments(tmp_path) == ["r000001/log.000001"]


def test_pruning_never_takes_a_living_runs_newest_segment(tmp_path: Path) -> None:
    living, ended = (run_directory(tmp_path, number) for number in (1, 2))
    for run in (living, ended):
        for segment in (1, 2):
            write(run, segment, b"x" * 100)

    prune([tmp_path], total_bytes=0, living=[run_id(living)])

    assert segments(tmp_path) == ["r000001/log.000002"]


def test_pruning_keeps_so_many_runs_and_every_living_one(tmp_path: Path) -> None:
    runs = [run_directory(tmp_path, number) for number in range(1, 8)]
    for run in runs:
        write(run, 1, line(b"x"))
        (run / "odd").mkdir()
        (run / "odd" / "file").write_text("")
        end_run(run)

    prune([tmp_path], total_bytes=10_000, keep_runs=3, living=[run_id(runs[1])])

    assert sorted(tmp_path.iterdir()) == [runs[1], *runs[4:]]


def test_pruning_leaves_the_newest_run_there_for_the_next_number(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    write(run, 1, line(b"x"))
    end_run(run)

    prune([tmp_path], total_bytes=0, keep_runs=0, living=[])

    assert [path.name for path in run.iterdir()] == ["exit.json"]
    assert [type(item) for item in read(tmp_path)] == [Gap]


def test_pruning_follows_no_symlink(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("mine")
    runs = tmp_path / "runs"
    for number in (2, 3):
        run_directory(runs, number)
    (runs / "r000001-00000001").symlink_to(elsewhere)
    (runs / "r000002-00000002" / "link").symlink_to(elsewhere)

    prune([runs], total_bytes=0, keep_runs=1, living=[])

    assert (elsewhere / "precious").read_text() == "mine"
    assert not (runs / "r000002-00000002").exists()


def test_pruning_where_nothing_is_does_nothing(tmp_path: Path) -> None:
    prune([tmp_path / "nowhere"], total_bytes=0, living=[])
    assert not (tmp_path / "nowhere").exists()


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 300), max_size=4), st.booleans()), max_size=5),
    st.integers(0, 1500),
    st.integers(1, 4),
)
@settings(deadline=None)
def test_pruning_keeps_the_newest_and_no_more_than_it_must(
    tmp_path_factory: pytest.TempPathFactory,
    runs_made: list[tuple[list[int], bool]],
    total_bytes: int,
    keep_runs: int,
) -> None:
    runs = tmp_path_factory.mktemp("runs")
    living = []
    for number, (sizes, lives) in enumerate(runs_made, start=1):
        run = run_directory(runs, number)
        for segment, size in enumerate(sizes, start=1):
            write(run, segment, b"x" * size)
        if lives:
            living.append(run_id(run))
    before = sorted(runs.glob("*/log.*"))

    prune([runs], total_bytes=total_bytes, keep_runs=keep_runs, living=living)

    after = sorted(runs.glob("*/log.*"))
    held = {max(run.glob("log.*")) for run in map(runs.joinpath, living) if any(run.glob("log.*"))}
    assert held <= set(after)
    removable = [path for path in after if path not in held]
    assert not removable or sum(path.stat().st_size for path in after) <= total_bytes
    rest = [path for path in before if path not in held and path.parent.exists()]
    assert removable == rest[len(rest) - len(removable) :]
