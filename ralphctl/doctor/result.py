"""The result of a check, and how results are printed: text for people, JSON for programs, an exit code."""

from __future__ import annotations

import enum
import json
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from ralphctl.format.humanize import count
from ralphctl.format.output import BOLD, GREEN, RED, YELLOW, clean, paint


class Level(enum.StrEnum):
    """Only FAILED makes the exit code 1."""

    OK = "ok"
    UNKNOWN = "not known"
    WARNING = "warning"
    FAILED = "failed"


Repair: TypeAlias = Callable[[], str]
"""A step of ``--fix``: cannot lose anything, returns what it did, may raise OSError."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """``advice`` holds commands, one per line; the runner fills in an empty ``check``."""

    level: Level
    text: str
    advice: str = ""
    repairs: tuple[Repair, ...] = ()
    repaired: tuple[str, ...] = ()
    check: str = ""


Results: TypeAlias = CheckResult | Sequence[CheckResult]

ok = partial(CheckResult, Level.OK)
unknown = partial(CheckResult, Level.UNKNOWN)
warning = partial(CheckResult, Level.WARNING)
failed = partial(CheckResult, Level.FAILED)

FIX = "ralphctl doctor --fix"
_COLOURS = {Level.OK: GREEN, Level.UNKNOWN: BOLD, Level.WARNING: YELLOW, Level.FAILED: RED}
_SIDE_BY_SIDE = 60
"""On narrower terminals the text stands below the name of its check."""


def repair(result: CheckResult) -> CheckResult:
    """Carry out the repairs of a result. If one fails, add the reason to the text and keep the level."""
    done: list[str] = []
    try:
        for step in result.repairs:
            done.append(step())
    except OSError as fault:
        text = f"{result.text}\n--fix could not put it right: {fault}"
        return replace(result, text=text, repaired=tuple(done), repairs=())
    return replace(result, level=Level.OK, advice="", repairs=(), repaired=tuple(done)) if done else result


def as_json(results: Sequence[CheckResult]) -> str:
    checks = [
        {"check": each.check, "level": each.level, "found": each.text}
        | {"mend": each.advice.splitlines(), "repaired": each.repaired}
        for each in results
    ]
    counts = Counter(each.level for each in results)
    document = {"checks": checks, "counts": {level: counts[level] for level in Level}}
    return json.dumps(document, indent=2, ensure_ascii=False)


def as_text(results: Sequence[CheckResult], *, columns: int, colour: bool) -> str:
    """Format one line per check, wrapped at ``columns``, with its commands below it, and a summary."""
    width = max((len(each.check) for each in results), default=0) + 2
    lines = [line for each in results for line in _lines(each, width, columns=columns, colour=colour)]
    counts = Counter(each.level for each in results)
    parts = [f"{counts[Level.OK]} ok"]
    parts += [f"{counts[Level.UNKNOWN]} not known"] if counts[Level.UNKNOWN] else []
    parts += [count(counts[Level.WARNING], "warning")] if counts[Level.WARNING] else []
    parts += [f"{counts[Level.FAILED]} failed"] if counts[Level.FAILED] else []
    hint = f"; some of it can be put right by: {FIX}" if any(each.repairs for each in results) else ""
    return "\n".join([*lines, "", ", ".join(parts) + hint])


def _lines(result: CheckResult, width: int, *, columns: int, colour: bool) -> Iterator[str]:
    label = result.level.ljust(max(map(len, Level)) + 2)
    is_wide = columns >= _SIDE_BY_SIDE
    indent = " " * (len(label) + width if is_wide else 2)
    painted = paint(label, _COLOURS[result.level], on=colour)
    wrap = partial(textwrap.wrap, width=max(columns - len(indent), 12), break_on_hyphens=False)
    first, *more = [part for line in result.text.splitlines() for part in wrap(clean(line))] or [""]
    if is_wide:
        yield (painted + result.check.ljust(width) + first).rstrip()
    else:
        yield from (painted + result.check, indent + first)
    yield from (indent + line for line in more)
    yield from (f"{indent}done: {clean(line)}" for line in result.repaired)
    # A command is never broken: it is to be copied.
    yield from (f"{indent}try: {clean(line)}" for line in result.advice.splitlines())
