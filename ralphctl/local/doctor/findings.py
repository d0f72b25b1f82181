"""What a check has found, and how findings are told: text for people, JSON for programs, an exit code."""

from __future__ import annotations

import enum
import json
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ralphctl.tell import BOLD, GREEN, RED, YELLOW, clean, paint
from ralphctl.words import count
from ralphd import wire


class Level(enum.StrEnum):
    """How it is. Only FAILED makes the exit code 1."""

    OK = "ok"
    UNKNOWN = "not known"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SetMode:
    """A file or directory of ours is to be private again."""

    path: Path
    mode: int


@dataclass(frozen=True, slots=True)
class RemoveSocket:
    """A socket that nobody listens on, and nobody can, is to go; it is the one with this inode."""

    path: Path
    inode: int
    lock: Path


@dataclass(frozen=True, slots=True)
class IgnoreAll:
    """``.ralph/.gitignore`` is to keep git from what is beside it."""

    path: Path


Repair: TypeAlias = SetMode | RemoveSocket | IgnoreAll
"""What ``--fix`` may do: nothing that could lose anything."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check has found. ``mend`` says what to do, a command a line; ``done`` what was repaired."""

    check: str
    level: Level
    found: str
    mend: str = ""
    repairs: tuple[Repair, ...] = ()
    done: tuple[str, ...] = ()


_COLOURS = {Level.OK: GREEN, Level.UNKNOWN: BOLD, Level.WARNING: YELLOW, Level.FAILED: RED}
_BESIDE = 60
"""Below so many columns what was found stands below its check."""
FIX = "ralphctl doctor --fix"


def exit_code(findings: Iterable[Finding]) -> int:
    """1 where a check failed."""
    return wire.EXIT_FAILED if any(each.level is Level.FAILED for each in findings) else wire.EXIT_OK


def as_json(findings: Sequence[Finding]) -> str:
    """All of it as one object."""
    checks = [
        {
            "check": each.check,
            "level": each.level.value,
            "found": each.found,
            "mend": each.mend.splitlines(),
            "repaired": list(each.done),
        }
        for each in findings
    ]
    counts = {level.value: _number(findings, level) for level in Level}
    return json.dumps({"checks": checks, "counts": counts}, indent=2, ensure_ascii=False)


def page(findings: Sequence[Finding], *, columns: int, colour: bool) -> str:
    """A line a check, ``columns`` wide; what to do is below it."""
    broad = max(len(level.value) for level in Level) + 2
    named = max((len(each.check) for each in findings), default=0) + 2
    lines = [
        line for each in findings for line in _lines(each, (broad, named), columns=columns, colour=colour)
    ]
    return "\n".join([*lines, "", _summary(findings)])


def _lines(finding: Finding, first: tuple[int, int], *, columns: int, colour: bool) -> Iterable[str]:
    label, check = finding.level.value.ljust(first[0]), finding.check
    indent = sum(first) if columns >= _BESIDE else 2
    head = label + (check.ljust(first[1]) if columns >= _BESIDE else check)
    told, *more = _wrapped(finding.found, columns - indent)
    painted = paint(head[: first[0]], _COLOURS[finding.level], on=colour) + head[first[0] :]
    if columns >= _BESIDE:
        yield (painted + told).rstrip()
    else:
        yield painted.rstrip()
        yield "  " + told
    yield from (" " * indent + line for line in more)
    yield from (f"{' ' * indent}done: {clean(line)}" for line in finding.done)
    # A command is never broken: it is to be copied.
    yield from (f"{' ' * indent}try: {clean(line)}" for line in finding.mend.splitlines())


def _wrapped(text: str, width: int) -> list[str]:
    lines = [
        line
        for each in text.splitlines()
        for line in textwrap.wrap(clean(each), max(width, 12), break_on_hyphens=False)
    ]
    return lines or [""]


def _summary(findings: Sequence[Finding]) -> str:
    failed, warnings = _number(findings, Level.FAILED), _number(findings, Level.WARNING)
    unknown = _number(findings, Level.UNKNOWN)
    parts = [f"{_number(findings, Level.OK)} ok"]
    parts += [f"{unknown} not known"] if unknown else []
    parts += [count(warnings, "warning")] if warnings else []
    parts += [f"{failed} failed"] if failed else []
    if any(each.repairs for each in findings):
        parts[-1] += f"; some of it can be put right by: {FIX}"
    return ", ".join(parts)


def _number(findings: Iterable[Finding], level: Level) -> int:
    return sum(each.level is level for each in findings)
