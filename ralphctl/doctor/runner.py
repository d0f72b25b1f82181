"""Run checks concurrently within a time limit, and print the results."""

import enum
import json
import textwrap
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ralphctl.format.humanize import count
from ralphctl.format.output import BOLD, GREEN, RED, YELLOW, clean, paint
from ralphd.dataclass import dataclass
from ralphd.errors import RalphdError

QUIET_S = 1.0
"""After this time the user learns which checks are still running."""


class Level(enum.StrEnum):
    """Only FAILED makes the exit code 1."""

    OK = "ok"
    UNKNOWN = "not known"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """``advice`` holds commands, one per line; the runner fills in an empty ``check``.

    ``repair`` is the step of ``--fix``: cannot lose anything, returns what it did, may raise OSError.
    """

    level: Level
    text: str
    advice: str = ""
    repair: Callable[[], str] | None = None
    repaired: tuple[str, ...] = ()
    check: str = ""


Results = CheckResult | Sequence[CheckResult]

ok = partial(CheckResult, Level.OK)
unknown = partial(CheckResult, Level.UNKNOWN)
warning = partial(CheckResult, Level.WARNING)
failed = partial(CheckResult, Level.FAILED)

FIX = "ralphctl doctor --fix"
_COLOURS = {Level.OK: GREEN, Level.UNKNOWN: BOLD, Level.WARNING: YELLOW, Level.FAILED: RED}


def fault_result(fault: RalphdError, advice: str = "") -> CheckResult:
    """Return the failure that an error stands for; ``advice`` is for one without."""
    return failed("\n".join([fault.what, *fault.why.splitlines()]), fault.mend or advice)


def repair(result: CheckResult) -> CheckResult:
    """Carry out the repair of a result. If it fails, add the reason to the text and keep the level."""
    if result.repair is None:
        return result
    try:
        return replace(result, level=Level.OK, advice="", repair=None, repaired=(result.repair(),))
    except OSError as fault:
        return replace(result, text=f"{result.text}\n--fix failed: {fault}", repair=None)


def as_json(results: Sequence[CheckResult]) -> str:
    checks = [
        {"check": each.check, "level": each.level, "found": each.text}
        | {"mend": each.advice.splitlines(), "repaired": each.repaired}
        for each in results
    ]
    counts = {**dict.fromkeys(Level, 0), **Counter(each.level for each in results)}
    return json.dumps({"checks": checks, "counts": counts}, indent=2, ensure_ascii=False)


def as_text(results: Sequence[CheckResult], *, columns: int, colour: bool, quiet: bool = False) -> str:
    """Format one line per check, wrapped at ``columns``, with its commands below it, and a summary.

    The worst results are last, where a reader looks first. ``quiet``: warnings and failures only; empty
    without any.
    """
    levels = list(Level)[2:] if quiet else list(Level)
    shown = [each for level in levels for each in results if each.level is level]
    if quiet and not shown:
        return ""
    width = max((len(each.check) for each in shown), default=0) + 2
    lines = [line for each in shown for line in _lines(each, width, columns=columns, colour=colour)]
    counts = Counter(each.level for each in results)
    words = {level: f"{number} {level}" for level in Level if (number := counts[level]) or level is Level.OK}
    words |= {Level.WARNING: count(counts[Level.WARNING], "warning")} if counts[Level.WARNING] else {}
    hint = f"; some can be fixed with: {FIX}" if any(each.repair for each in results) else ""
    return "\n".join([*lines, "", ", ".join(words.values()) + hint])


def _lines(result: CheckResult, width: int, *, columns: int, colour: bool) -> Iterator[str]:
    label = result.level.ljust(max(map(len, Level)) + 2)
    indent = " " * (len(label) + width)
    wrap = partial(textwrap.wrap, width=max(columns - len(indent), 12), break_on_hyphens=False)
    first, *more = [part for line in result.text.splitlines() for part in wrap(clean(line))] or [""]
    yield (paint(label, _COLOURS[result.level], on=colour) + result.check.ljust(width) + first).rstrip()
    yield from (indent + line for line in more)
    yield from (f"{indent}done: {clean(line)}" for line in result.repaired)
    # A command is never broken: it is to be copied.
    yield from (f"{indent}try: {clean(line)}" for line in result.advice.splitlines())


class Check(NamedTuple):
    """A named check; ``run`` may block, and may raise OSError."""

    name: str
    run: Callable[[], Results]


def run_checks(
    checks: Sequence[Check], *, limit_s: float, waiting: Callable[[list[str]], None]
) -> list[CheckResult]:
    """Return all results in the order of the checks, those that are late as not known.

    Call ``waiting`` once with the names of the checks that take longer than QUIET_S. An exception of a
    check other than OSError passes through.
    """
    futures: list[Future[Results]] = [Future() for _ in checks]
    for check, future in zip(checks, futures, strict=True):
        # Daemon threads: nothing else leaves a system call that hangs, such as one on a dead NFS server.
        threading.Thread(target=_run, args=(check, future), daemon=True).start()
    _, late = wait(futures, min(QUIET_S, limit_s))
    if late:
        waiting([check.name for check, future in zip(checks, futures, strict=True) if future in late])
        _, late = wait(futures, limit_s - QUIET_S)
    results: list[CheckResult] = []
    for check, future in zip(checks, futures, strict=True):
        try:
            answer = unknown(f"no answer within {limit_s:g} s") if future in late else future.result()
        except OSError as fault:
            answer = failed(f"could not be checked: {fault}")
        some = [answer] if isinstance(answer, CheckResult) else answer
        results += [replace(each, check=each.check or check.name) for each in some]
    return results


def _run(check: Check, future: Future[Results]) -> None:
    try:
        future.set_result(check.run())
    except BaseException as fault:  # raised in the main thread
        future.set_exception(fault)
