"""An attempt that is let be: what is heard of it, what is kept, and that nothing of it is left (L5)."""

import os
import signal
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ralphd.core.failures.agent_events import Figures, FinalEvent, Limited, RetryingItself
from ralphd.core.failures.classify import OurDoing
from ralphd.git.repo import head
from ralphd.process import shim
from tests.helpers import is_alive
from tests.loop.attempts import Heard, Playing, agent, attempt
from tests.players import player


@pytest.fixture(autouse=True)
def _no_subreaper() -> Iterator[None]:
    """An attempt makes this process a subreaper; the tests after these do not want one."""
    yield
    shim.prctl(shim.PR_SET_CHILD_SUBREAPER, 0)


async def test_what_an_agent_says_of_itself_is_kept(tmp_path: Path) -> None:
    heard = Heard()
    words = ("out=started s-1", "out=text hello", "out=tool edit", "out=spent 0.25", "out=spent 0.5")
    result = await attempt(tmp_path, agent(*words, "out=limited five_hour", "out=good all done"), heard).run()

    assert (result.session, result.model, result.last_message) == ("s-1", "model-1", "hello")
    assert result.figures == Figures(0.75, 20, 4)
    assert result.worked
    assert result.lines == ("hello", "[edit] src/a.py") == tuple(heard.shown)
    assert result.evidence.verdict == FinalEvent(True, "all done")
    assert result.evidence.limited == Limited(5.0, "five_hour")
    assert (result.evidence.code, result.evidence.signal, result.evidence.ours) == (0, None, None)
    assert result.started_at < result.ended_at
    assert heard.kills == []


async def test_a_limit_that_the_agent_got_over_is_none(tmp_path: Path) -> None:
    words = ("out=limited five_hour", "out=text on", "out=bad too many turns")
    result = await attempt(tmp_path, agent(*words)).run()

    assert result.evidence.limited is None


async def test_a_total_replaces_what_was_told_before_and_silence_about_costs_stays_silence(
    tmp_path: Path,
) -> None:
    told = await attempt(tmp_path, agent("out=spent 5", "out=total 0.125")).run()
    untold = await attempt(tmp_path, agent("out=text hello")).run()

    assert told.figures == Figures(0.125, 100, 20)
    assert untold.figures == Figures(None, 0, 0)


async def test_complaints_and_retries_are_told_and_stderr_is_shown(tmp_path: Path) -> None:
    heard = Heard()
    words = ("out=warned take care", "out=retry overloaded", "err=a complaint", "out=bad 529", "exit=1")
    result = await attempt(tmp_path, agent(*words), heard).run()

    assert heard.warnings == []
    assert heard.retries == [RetryingItself("overloaded")]
    assert sorted(heard.shown) == ["a complaint", "player: take care"]
    assert result.evidence.own_lines == ("a complaint",)
    assert result.evidence.code == 1
    assert not result.worked


async def test_a_retry_that_nothing_came_after_is_evidence(tmp_path: Path) -> None:
    last = await attempt(tmp_path, agent("out=text a", "out=retry overloaded")).run()
    passed = await attempt(tmp_path, agent("out=retry overloaded", "out=text a")).run()

    assert last.evidence.retrying == RetryingItself("overloaded")
    assert passed.evidence.retrying is None


async def test_a_command_that_prints_no_events_is_shown_as_it_is(tmp_path: Path) -> None:
    heard = Heard()
    words = ("out=working\x1b[1m hard\x1b[0m\r", f"out={'x' * 3000}", "kill=11")
    result = await attempt(tmp_path, agent(*words, has_verdict=False), heard).run()

    assert heard.shown == ["working hard", "x" * 2000 + " [cut: 3000 characters]"]
    assert result.lines == tuple(heard.shown)
    assert (result.evidence.code, result.evidence.signal) == (None, signal.SIGSEGV)


async def test_the_last_50_lines_are_kept_and_a_long_text_is_cut(tmp_path: Path) -> None:
    heard = Heard()
    result = await attempt(tmp_path, agent("times=300", "out=text line"), heard).run()

    assert len(heard.shown) == 300
    assert result.lines == ("line",) * 50


async def test_the_prompt_comes_by_stdin_and_without_one_there_is_nothing_to_read(tmp_path: Path) -> None:
    given = await attempt(tmp_path, agent("read", stdin=b"x" * 3_000_000)).run()
    without = await attempt(tmp_path, agent("read")).run()

    assert given.last_message == "read 3000000"
    assert without.last_message == "read 0"


async def test_an_agent_that_never_reads_its_prompt_blocks_nobody(tmp_path: Path) -> None:
    result = await attempt(tmp_path, agent("out=text busy", "rest=0.1", stdin=b"x" * 5_000_000)).run()

    assert (result.evidence.code, result.last_message) == (0, "busy")


async def test_it_carries_the_attempts_name_and_what_was_added_for_it(tmp_path: Path) -> None:
    playing = replace(agent("env=RALPH_ATTEMPT_ID", "env=EXTRA", "env=PATH"), environment={"EXTRA": "yes"})
    result = await attempt(tmp_path, playing).run()

    cookie, extra, path = result.lines
    assert cookie.startswith(f"RALPH_ATTEMPT_ID is {tmp_path.name}-1-")
    assert (extra, path) == ("EXTRA is yes", f"PATH is {os.environ['PATH']}")


async def test_the_end_of_its_output_is_kept_as_it_was(tmp_path: Path) -> None:
    words = ("out=\x1b[31mraw", "err=text oh", "times=300", f"out={'y' * 1000}")
    await attempt(tmp_path, agent(*words)).run()
    out, err = (tmp_path / "kept" / "stdout").read_bytes(), (tmp_path / "kept" / "stderr").read_bytes()

    assert len(out) == 256 << 10 and out.endswith(b"y\n")
    assert err == b"text oh\n"
    assert stat.S_IMODE((tmp_path / "kept" / "stdout").stat().st_mode) == 0o600


async def test_a_line_that_its_parser_chokes_on_ends_nothing(tmp_path: Path) -> None:
    result = await attempt(tmp_path, agent("out=broken", "out=text on it goes")).run()

    assert result.lines == ("on it goes",)


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("no-such-agent", "-p"), 127, "cannot start no-such-agent: no-such-agent is not on PATH"),
        (("./plain.txt",), 126, "is not executable"),
        (("python3", "a\0b"), 126, "null byte"),
        (("python3", "x" * (4 << 20)), 126, "fewer or shorter arguments"),
    ],
)
async def test_a_command_that_cannot_be_started_is_told_in_words(
    tmp_path: Path, argv: tuple[str, ...], code: int, words: str
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "plain.txt").write_text("no program")
    result = await attempt(tmp_path, Playing(argv)).run()

    assert result.evidence.code == code
    assert words in (result.evidence.not_started or "")
    assert not result.evidence.printed


async def test_a_directory_that_is_gone_is_told_in_words(tmp_path: Path) -> None:
    gone = attempt(tmp_path, agent("exit=0"))
    (tmp_path / "home").rmdir()
    result = await gone.run()

    assert f"the directory {tmp_path / 'home'} is gone" in (result.evidence.not_started or "")


async def test_a_commit_alone_is_work(tmp_path: Path) -> None:
    commit = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x"
    made = Playing(("/bin/sh", "-c", f"git init -q && {commit}"))
    assert not (await attempt(tmp_path, Playing(("git", "init", "-q"))).run()).worked

    result = await attempt(tmp_path, made).run()

    assert head(tmp_path / "home") is not None
    assert result.evidence.code == 0
    assert result.worked


async def test_nothing_of_a_tree_is_left_however_it_detached_itself(tmp_path: Path) -> None:
    heard = Heard()
    result = await attempt(tmp_path, Playing(player("family", "leave"), has_verdict=False), heard).run()
    family = {name: int(pid) for name, pid in (line.split() for line in heard.shown)}

    assert family.keys() == {"child", "setsid", "double", "stubborn", "cleared", "leader"}
    assert not any(map(is_alive, family.values()))
    assert result.evidence.code == 3
    assert len(result.swept) == 5
    assert f"(pid {family['double']})" in " ".join(result.swept)


async def test_one_that_is_ended_before_it_began_is_not_started(tmp_path: Path) -> None:
    ended = attempt(tmp_path, agent("file=began"))
    ended.end()
    result = await ended.run()

    assert result.evidence.ours is OurDoing.ASKED
    assert not (tmp_path / "home" / "began").exists()
