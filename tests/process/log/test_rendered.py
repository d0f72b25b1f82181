"""A log with events replaced by text: parts are joined, the tail counts what is shown, the rest stays."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ralphd.process.log.log import RalphLog
from ralphd.process.log.records import Item, LogQuery, LogRecord
from ralphd.process.log.rendered import MOST_PARTS, Render, rendered
from tests.process.log.written_logs import end_run, line, run_directory, shown, write, write_regent


def render() -> Render:
    """Events are ``{"say":TEXT}``; other JSON is none."""

    def text(line: str, at: str) -> str | None:
        return line[8:-2].replace("/", "\n") if line.startswith('{"say":"') and line.endswith('"}') else None

    return text


def say(text: str) -> bytes:
    return b'{"say":"%s"}' % text.encode()


def read(runs: Path, tail: int | None = None, *, as_text: bool = False) -> bytes:
    log = RalphLog(runs)
    items: Iterator[Item] = rendered(
        log.read, LogQuery(tail=tail, as_text=as_text, whole_events=True), render
    )
    return shown([item for item in items if not isinstance(item, LogRecord) or item.stream != "regent"])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_directory(tmp_path, 1)


@pytest.mark.parametrize("as_text", [False, True])
def test_events_become_text_and_other_lines_stay(run: Path, *, as_text: bool) -> None:
    for at, text in enumerate((b"one", say("two/three"), say(""), b'{"half', b"\xff\x00", say("four"))):
        write(run, 1, line(text, at=at))
    assert read(run.parent, as_text=as_text) == b'one\ntwo\nthree\n{"half\n\xff\x00\nfour\n'


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("tail", [None, 1, 2])
def test_a_line_in_parts_is_one_event_wherever_reading_begins(
    run: Path, tail: int | None, *, as_text: bool
) -> None:
    text = "x" * 40_000
    whole = say(text)
    write(run, 1, line(b"before", at=0))
    for first in range(0, len(whole), 16_384):
        flag = "F" if first + 16_384 >= len(whole) else "P"
        write(run, 1, line(whole[first : first + 16_384], at=1, flag=flag))
    expected = text.encode() + b"\n" if tail == 1 else b"before\n" + text.encode() + b"\n"
    assert read(run.parent, tail, as_text=as_text) == expected


def test_a_line_in_parts_may_have_lines_of_the_other_stream_between(run: Path) -> None:
    write(run, 1, line(b'{"say":', flag="P") + line(b"beside", stream="stderr") + line(b'"hello"}'))
    assert read(run.parent) == b"beside\nhello\n"


def test_a_line_that_is_too_long_or_never_ends_is_shown_as_it_is(run: Path) -> None:
    write(run, 1, b"".join(line(b'{"' + b"y" * 10, flag="P") for _ in range(MOST_PARTS + 5)) + line(b"end"))
    write(run, 1, line(say("next")) + line(b'{"say":"lost', flag="P"))
    end_run(run)
    later = run_directory(run.parent, 2)
    write(later, 1, line(say("later")))
    printed = read(run.parent)
    assert printed.startswith(b'{"yyy')
    assert b"end\nnext\n" in printed
    assert printed.endswith(b'{"say":"lostlater\n')


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("tail", [1, 3, 5, 30])
def test_the_tail_counts_lines_that_are_shown(run: Path, tail: int, *, as_text: bool) -> None:
    for number in range(200):
        write(run, 1, line(say("" if number % 10 else f"{number}/and more"), at=number))
    expected = [each for number in range(0, 200, 10) for each in (f"{number}", "and more")][-tail:]
    assert read(run.parent, tail, as_text=as_text).decode().splitlines() == expected


def test_where_nothing_is_an_event_the_tail_is_that_of_the_log(run: Path) -> None:
    for number in range(50):
        write(run, 1, line(b"%d" % number, at=number))
    write_regent(run, line(b"said", at=60, stream="regent"))
    assert read(run.parent, 4) == b"47\n48\n49\n"
