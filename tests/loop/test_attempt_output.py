"""Whatever an agent prints: long lines, floods, broken bytes; bounded, cut, and never fatal."""

import asyncio
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphd.loop.attempt.output import LineAssembler, Tail
from ralphd.loop.console import Console
from ralphd.process import shim
from tests.loop.attempts import Heard, Playing, agent, attempt

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _no_subreaper() -> Iterator[None]:
    """An attempt makes this process a subreaper; the tests after these do not want one."""
    yield
    shim.prctl(shim.PR_SET_CHILD_SUBREAPER, 0)


@given(st.lists(st.text(st.characters(exclude_characters="\n\r", codec="utf-8")), max_size=5), st.data())
@settings(max_examples=25)
def test_lines_are_the_same_however_they_come_in(texts: list[str], data: st.DataObject) -> None:
    whole = "".join(f"{text}\n" for text in texts).encode() + b"rest"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    lines = LineAssembler()
    found = [
        line
        for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)
        for line in lines.feed(whole[begin:end])
    ]

    assert found == texts
    assert lines.rest() == ["rest"]
    assert lines.rest() == []


def test_a_line_that_is_too_long_is_cut_and_told_as_cut_and_the_next_one_is_whole() -> None:
    lines = LineAssembler(most_bytes=10)
    found = [*lines.feed(b"0123456"), *lines.feed(b"789abc"), *lines.feed(b"def\nnext\r\n\nbr\xffken\n")]

    assert found == ["0123456789 [cut: 6 more bytes]", "next", "", "br\N{REPLACEMENT CHARACTER}ken"]


def test_a_line_without_an_end_is_held_no_further_than_its_limit() -> None:
    lines = LineAssembler(most_bytes=1000)
    for _ in range(100):
        assert lines.feed(b"x" * 1000) == []

    assert lines.rest() == ["x" * 1000 + " [cut: 99000 more bytes]"]


def test_of_a_stream_the_end_is_kept() -> None:
    tail = Tail(10)
    for piece in (b"abc", b"defghij", b"klm", b"n" * 4):
        tail.add(piece)

    assert tail.data() == b"hijklmnnnn"
    assert Tail(10).data() == b""


async def test_t2_lines_on_stdout_that_are_no_events_are_kept_for_the_next_attempt(tmp_path: Path) -> None:
    heard = Heard()
    result = await attempt(tmp_path, agent("out=text hello", "out=warned panic: boom", "exit=1"), heard).run()

    assert result.lines == ("hello", "panic: boom")
    assert heard.shown == ["hello", "player: panic: boom"]


async def test_a_flood_of_bytes_without_an_end_leaves_memory_as_it_is(tmp_path: Path) -> None:
    heard = Heard()
    script = "import os\nfor _ in range(50): os.write(1, b'x' * 1048576)\nos.write(1, b'\\ntext end\\n')"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    flood = Playing((sys.executable, "-S", "-c", script))
    result = await attempt(tmp_path, flood, heard).run()
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    assert result.lines == ("end",)
    assert grown_kib * 1024 < 60 * MIB
    assert (tmp_path / "kept" / "stdout").stat().st_size == 256 << 10


async def test_lines_of_any_bytes_are_shown_and_never_fatal(tmp_path: Path) -> None:
    heard = Heard()
    odd = b"\xff\xfe\x00\x1b]0;title\x07bell\x07\nlast without an end"
    noise = tmp_path / "noise"
    noise.write_bytes(odd)
    result = await attempt(tmp_path, Playing(("cat", os.fspath(noise)), has_verdict=False), heard).run()

    assert heard.shown == ["\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}bell", "last without an end"]
    assert result.evidence.printed


async def test_what_is_shown_and_what_is_said_come_out_in_order_and_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    console = Console(lambda: 0.0)

    console.show("one")
    console.show("two")
    console.say("three")
    assert [line[-5:] for line in capsys.readouterr().out.splitlines()] == ["one", "two", "three"]
    console.show("four")
    await asyncio.sleep(0)

    assert capsys.readouterr().out == "four\n"
