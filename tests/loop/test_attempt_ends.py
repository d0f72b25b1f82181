"""An attempt that we end: for time, for silence, for a crash line, after its result, because we are asked."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from ralphd.core.failures.classify import OurDoing, Rules, classify
from ralphd.core.failures.kinds import FailureKind
from ralphd.core.stall_detector import SilenceLimits
from ralphd.loop.attempt import termination as module
from ralphd.loop.attempt.agent_run import AgentResult, AgentRun
from ralphd.process import shim
from tests.helpers import eventually, is_alive
from tests.loop.attempts import PATIENT, PATTERNS, Heard, Playing, agent, attempt
from tests.players import player

SHORT = SilenceLimits(hang_timeout_s=1.0, startup_grace_s=0.0)
CRASH_LINE = "Error: No messages returned"


@pytest.fixture(autouse=True)
def _no_subreaper() -> Iterator[None]:
    """An attempt makes this process a subreaper; the tests after these do not want one."""
    yield
    shim.prctl(shim.PR_SET_CHILD_SUBREAPER, 0)


def evidence(place: Path) -> dict[str, object]:
    """What was kept of why it was ended."""
    kept: dict[str, object] = json.loads((place / "kept" / "evidence.json").read_text())
    return kept


async def test_l6_its_time_is_bounded_whatever_it_does(tmp_path: Path) -> None:
    heard = Heard()
    busy = agent("times=100", "out=text busy", "rest=0.05")
    result = await attempt(tmp_path, busy, heard, timeout_s=0.5).run()

    assert result.evidence.ours is OurDoing.TIMEOUT
    ((ours, why),) = heard.kills
    assert ours is OurDoing.TIMEOUT
    assert why.startswith("player ran for 0.") and why.endswith("time limit exceeded, ending it")
    assert (
        evidence(tmp_path)["because"] == "timeout_seconds = 0.5 bounds an attempt, even if it makes progress"
    )


async def test_one_that_ignores_sigterm_is_killed_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GRACE_S", 0.2)
    heard = Heard()
    family = Playing(player("family"), has_verdict=False)
    result = await attempt(tmp_path, family, heard, timeout_s=0.7).run()
    pids = {name: int(pid) for name, pid in (line.split() for line in heard.shown)}

    assert result.evidence.signal == 9
    assert len(pids) == 6
    assert not any(map(is_alive, pids.values()))


async def test_one_that_ends_at_sigterm_has_its_last_words(tmp_path: Path) -> None:
    script = "trap 'echo saved; exit 7' TERM; echo begun; while :; do sleep 0.05; done"
    polite = Playing(("/bin/sh", "-c", script), has_verdict=False)
    result = await attempt(tmp_path, polite, timeout_s=0.5).run()

    assert (result.evidence.ours, result.evidence.code) == (OurDoing.TIMEOUT, 7)
    assert result.lines[-1] == "saved"


async def test_h4_silence_is_warned_of_and_then_ended_with_its_evidence(tmp_path: Path) -> None:
    heard = Heard()
    began = time.monotonic()
    result = await attempt(tmp_path, agent("out=text hello", "rest=60"), heard, limits=SHORT).run()

    assert time.monotonic() - began < 30
    assert result.evidence.ours is OurDoing.STALL
    assert heard.kills[0][0] is OurDoing.STALL
    assert "player has been silent for" in heard.warnings[0]
    kept = evidence(tmp_path)
    assert (kept["rule"], kept["last_lines"]) == ("H4", ["hello"])
    assert "attempt_agent" in str(kept["processes"])


async def test_h2_a_silent_one_that_writes_files_is_let_live(tmp_path: Path) -> None:
    heard = Heard()
    words = ("out=text hello", "times=17", "file=notes.txt", "rest=0.1")
    result = await attempt(tmp_path, agent(*words), heard, limits=SHORT).run()

    assert (result.evidence.ours, result.evidence.code) == (None, 0)
    assert heard.warnings and not heard.kills


async def test_l6_empty_steps_are_no_life_whatever_the_tree_does(tmp_path: Path) -> None:
    heard = Heard()
    words = ("out=text hello", "times=400", "out=alive", "out=empty", "file=notes.txt", "rest=0.05")
    result = await attempt(tmp_path, agent(*words), heard, limits=SHORT).run()

    assert result.evidence.ours is OurDoing.STALL
    assert heard.kills[0][1].startswith("player only printed empty steps for 1.")
    kept = evidence(tmp_path)
    assert kept["rule"] == "L6"
    assert "attempt_agent" in str(kept["processes"])


async def test_l6_of_one_that_prints_events_other_lines_are_no_life(tmp_path: Path) -> None:
    noise = ("times=400", "out=noise", "rest=0.05")
    limits = replace(SHORT, io_bytes=1 << 20, switches_per_s=1000.0, cpu_percent=1000.0)
    events = await attempt(tmp_path, agent("out=text hello", *noise), limits=limits).run()
    lines = await attempt(
        tmp_path, agent("times=25", "out=noise", "rest=0.06", has_verdict=False), limits=limits
    ).run()

    assert events.evidence.ours is OurDoing.STALL
    assert lines.evidence.ours is None


async def test_l6_a_progress_bar_of_one_that_prints_no_events_is_life(tmp_path: Path) -> None:
    script = "for i in 1 2 3 4 5 6 7 8 9; do printf '\\r%d0 %%' $i; sleep 0.3; done"
    bar = Playing(("/bin/sh", "-c", script), has_verdict=False)
    limits = replace(SHORT, io_bytes=1 << 20, switches_per_s=1000.0, cpu_percent=1000.0)
    result = await attempt(tmp_path, bar, limits=limits).run()

    assert (result.evidence.ours, result.evidence.code) == (None, 0)


async def test_l7_a_crash_line_and_silence_after_it_is_the_end(tmp_path: Path) -> None:
    heard = Heard()
    words = ("out=text hello", f"err={CRASH_LINE}", "err=    at main (cli.js:1)", "rest=60")
    result = await attempt(tmp_path, agent(*words), heard, crash_grace_s=0.2).run()

    assert result.evidence.ours is OurDoing.CRASH_PATTERN
    assert result.evidence.crash_line == CRASH_LINE
    assert heard.kills[0][0] is OurDoing.CRASH_PATTERN


@pytest.mark.parametrize("line", [CRASH_LINE, "request failed: connect ETIMEDOUT"])
async def test_l7_a_crash_line_ends_at_once_where_no_grace_is_given(tmp_path: Path, line: str) -> None:
    result = await attempt(tmp_path, agent(f"err={line}", "rest=60"), crash_grace_s=0).run()

    assert result.evidence.crash_line == line


@pytest.mark.parametrize("life", ["out=text on", "out=retry 529", "err=text on"])
async def test_l7_a_sign_of_life_after_a_crash_line_takes_it_back(tmp_path: Path, life: str) -> None:
    words = (f"err={CRASH_LINE}", life, "rest=4.5")  # a busy machine may need 2 s between the two lines
    result = await attempt(tmp_path, agent(*words), crash_grace_s=4.0).run()

    assert (result.evidence.ours, result.evidence.crash_line, result.evidence.code) == (None, None, 0)


LOST = "Error: read ECONNRESET"
QUIET = SilenceLimits(hang_timeout_s=60.0, io_bytes=1 << 20, switches_per_s=1000.0, cpu_percent=1000.0)


@pytest.mark.parametrize("has_verdict", [True, False])
async def test_003_a_lost_connection_and_silence_after_it_is_the_end(
    tmp_path: Path, has_verdict: bool
) -> None:
    heard = Heard()
    words = ("out=text hello", f"err={LOST}", "err=  code: 'ECONNRESET'", "rest=60")
    playing = agent(*words, has_verdict=has_verdict)
    result = await attempt(tmp_path, playing, heard, limits=QUIET, lost_grace_s=1.5).run()

    assert (result.evidence.ours, result.evidence.crash_line) == (OurDoing.LOST_CONNECTION, LOST)
    assert heard.kills[0][0] is OurDoing.LOST_CONNECTION
    because = evidence(tmp_path)["because"]
    assert "a lost connection, transient_pattern_grace_seconds = 1.5" in str(because)
    finding = classify(result.evidence, Rules("player", PATTERNS), now=0.0)
    assert (finding.kind, finding.rule) == (FailureKind.TRANSIENT, "ours: lost connection")


@pytest.mark.parametrize(
    "words",
    [
        (f"err={LOST}", "out=text on", "rest=3"),
        (f"err={LOST}", *("rest=0.4", "file=a") * 8),
    ],
)
async def test_003_who_works_after_a_lost_connection_is_left_alone(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    result = await attempt(tmp_path, agent(*words), limits=QUIET, lost_grace_s=1.5).run()

    assert (result.evidence.ours, result.evidence.code) == (None, 0)


async def test_l7_a_result_and_no_end_after_it_is_a_success_whose_tree_is_ended(tmp_path: Path) -> None:
    heard = Heard()
    result = await attempt(tmp_path, agent("out=good done", "rest=60"), heard, exit_grace_s=0.2).run()

    assert result.evidence.ours is OurDoing.AFTER_RESULT
    assert result.evidence.verdict is not None and result.evidence.verdict.good
    assert heard.kills == []


async def test_l7_one_that_works_on_after_a_result_is_let_work(tmp_path: Path) -> None:
    words = ("out=good first", "out=text more to do", "rest=0.6", "out=good second")
    result = await attempt(tmp_path, agent(*words), exit_grace_s=0.3).run()

    assert result.evidence.ours is None
    assert result.evidence.verdict is not None and result.evidence.verdict.message == "second"


async def test_its_time_is_over_while_it_ends_after_its_result(tmp_path: Path) -> None:
    result = await attempt(tmp_path, agent("out=good done", "rest=60"), timeout_s=0.5).run()

    assert result.evidence.ours is OurDoing.AFTER_RESULT


async def begun(tmp_path: Path) -> tuple[AgentRun, "asyncio.Task[object]", int]:
    """An attempt under way, and the pid of its agent."""
    heard = Heard()
    under_way = attempt(tmp_path, Playing(player("stubborn"), has_verdict=False), heard, limits=PATIENT)
    task: asyncio.Task[object] = asyncio.create_task(under_way.run())
    await eventually(lambda: len(heard.shown) == 2, what="the family")
    return under_way, task, int(heard.shown[0].split()[1])


async def test_one_that_is_asked_to_end_ends_at_once(tmp_path: Path) -> None:
    under_way, task, pid = await begun(tmp_path)
    under_way.end()
    under_way.end(OurDoing.TIMEOUT)
    result = await task

    assert isinstance(result, AgentResult)
    assert result.evidence.ours is OurDoing.ASKED
    assert not is_alive(pid)


async def test_one_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    _, task, pid = await begun(tmp_path)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    assert task.cancelled()
    assert not is_alive(pid)


async def test_one_that_ends_by_itself_while_its_end_is_prepared_was_not_ended_by_us(tmp_path: Path) -> None:
    class Slow(Heard):
        async def before_kill(self, ours: OurDoing, why: str) -> None:
            await super().before_kill(ours, why)
            go.touch()
            await eventually(lambda: not is_alive(int(self.shown[0])), what="its end")

    heard, go = Slow(), tmp_path / "go"
    script = f"echo $$; while [ ! -e {go} ]; do sleep 0.02; done; exit 4"
    result = await attempt(
        tmp_path, Playing(("/bin/sh", "-c", script), has_verdict=False), heard, timeout_s=0.4
    ).run()

    assert [ours for ours, _ in heard.kills] == [OurDoing.TIMEOUT]
    assert (result.evidence.ours, result.evidence.code) == (None, 4)
