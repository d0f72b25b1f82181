"""The end of an attempt and its evidence to a failure kind, with the rule and the reason (K1 to K4).

The evidence counts in this order: what we did ourselves; the structured final event, by its status and then
by its text; the exit status; the agent's own lines. A later one decides only where the earlier ones are
silent, or tells more exactly what they leave open: which 429, which refusal.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from enum import StrEnum
from typing import Final

from ralphd.core.failures.agent_events import FinalEvent, Limited, RetryingItself
from ralphd.core.failures.kinds import ExitMeaning, FailureKind, ended_with, meaning_of_exit
from ralphd.core.failures.patterns import (
    LineMatch,
    Patterns,
    first_error,
    folded,
    last_line,
    match_after_good_exit,
    match_in,
    read_error,
)
from ralphd.core.failures.reset_parsers import Confidence
from ralphd.core.failures.resets import LONGEST_S, Reset, read_reset, reset_from_epoch, reset_from_headers
from ralphd.core.text import truncate
from ralphd.core.time import Moment

__all__ = ["Classification", "Evidence", "ExitMeaning", "OurDoing", "Rules", "classify"]


class OurDoing(StrEnum):
    """Why we ended an attempt ourselves; that counts before anything that it printed (K1)."""

    TIMEOUT = "timeout"
    STALL = "stall"
    CRASH_PATTERN = "crash_pattern"  # L7: a crash message on stderr, and no sign of life since
    AFTER_RESULT = "after_result"  # L7: it had told its result, and did not end
    ASKED = "asked"  # a stop, a pause, the Regent


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of an attempt that has ended.

    ``code`` is the exit status, ``signal`` the signal that ended it; both None when nobody knows.
    ``own_lines`` are the agent's own lines and nothing else: no tool output, no echoed prompt, no prose of
    one that prints events; the last 50 or so, of stdout and stderr. ``printed`` says whether there was
    anything at all on stdout. ``not_started`` is why the command could not be started. ``partial``: only a
    part of what it printed was seen (one stream, a mode without events), so that nothing follows from what
    is missing. ``retrying`` is a retry of its own that nothing came after.
    """

    ours: OurDoing | None = None
    code: int | None = None
    signal: int | None = None
    verdict: FinalEvent | None = None
    limited: Limited | None = None
    own_lines: tuple[str, ...] = ()
    crash_line: str | None = None
    printed: bool = True
    not_started: str | None = None
    partial: bool = False
    retrying: RetryingItself | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """How one agent's ends are read: its patterns, its exit table, whether it prints a final event.

    ``zone`` is the local time zone, for times that name none.
    """

    agent: str
    patterns: Patterns
    exits: Mapping[int, ExitMeaning] = field(default_factory=dict)
    has_verdict: bool = False
    zone: tzinfo | None = None


@dataclass(frozen=True, slots=True)
class Classification:
    """What an attempt's end was; ``kind`` None: a success. ``rule`` names what decided, ``why`` tells it."""

    kind: FailureKind | None
    rule: str
    why: str
    reset: Reset | None = None
    asked: bool = False


_SHORT: Final = 300
_WITH_RESET: Final = frozenset({FailureKind.RATE_LIMIT, FailureKind.USAGE_LIMIT})

# What the agent's own lines may make of an exit status that leaves it open.
_REFINED: Final[Mapping[FailureKind, frozenset[FailureKind]]] = {
    FailureKind.RATE_LIMIT: frozenset({FailureKind.USAGE_LIMIT, FailureKind.FATAL}),
    FailureKind.FATAL: frozenset({FailureKind.CONTEXT, FailureKind.USAGE_LIMIT}),
}


def classify(evidence: Evidence, rules: Rules, *, now: Moment) -> Classification:
    """What the end of an attempt was, in the order of evidence (K1). Raises nothing, whatever was printed."""
    if evidence.ours is not None and (ours := _our_doing(evidence)):
        return ours
    if evidence.not_started is not None:
        return Classification(FailureKind.FATAL, "not started", _short(evidence.not_started))
    finding = _success(evidence, rules) or _failure(evidence, rules)
    if finding.kind in _WITH_RESET:
        return replace(finding, reset=_reset(evidence, rules, now))
    return finding


def _our_doing(evidence: Evidence) -> Classification | None:
    """What we did decides, but for an agent that had told its result and only did not end (L7)."""
    match evidence.ours:
        case OurDoing.ASKED:
            return Classification(None, "ours: asked", "it was asked to end", asked=True)
        case OurDoing.TIMEOUT:
            return Classification(
                FailureKind.TIMEOUT, "ours: timeout", "it ran into its time limit, and was ended"
            )
        case OurDoing.STALL:
            return Classification(FailureKind.STALL, "ours: stall", "it gave no sign of life, and was ended")
        case OurDoing.CRASH_PATTERN:
            line = _short(evidence.crash_line or "a crash message")
            why = f"it printed {line!r} on stderr, which is a crash message, and was ended"
            return Classification(FailureKind.AGENT_CRASH, "ours: crash pattern", why)
    return None


def _success(evidence: Evidence, rules: Rules) -> Classification | None:
    """A success where there is one (K4); what an agent prints on top of a good final event counts nothing."""
    ended_by_us = evidence.ours is OurDoing.AFTER_RESULT
    well = ended_by_us or (evidence.code == 0 and evidence.signal is None)
    if not well:
        return None
    if evidence.verdict is not None:
        ended = "it did not end by itself afterwards, and was ended" if ended_by_us else "exit status 0"
        return (
            Classification(None, "final event", f"its final event says success; {ended}")
            if _good(evidence)
            else None
        )
    if ended_by_us or (rules.has_verdict and not evidence.partial) or not evidence.printed:
        return None
    if match_after_good_exit(evidence.own_lines, rules.patterns) is not None:
        return None
    return Classification(None, "exit status 0", "exit status 0, and no failure on its last lines")


def _good(evidence: Evidence) -> bool:
    return evidence.verdict is not None and evidence.verdict.good


def _failure(evidence: Evidence, rules: Rules) -> Classification:
    if evidence.verdict is not None and not evidence.verdict.good:
        return _bad_verdict(evidence.verdict, evidence, rules)
    exit_says = _exit(evidence, rules)
    if _good(evidence):
        why = f"its final event says success, but it ended with {_ended(evidence)}"
        return exit_says or Classification(FailureKind.AGENT_CRASH, "exit after a good final event", why)
    return _without_verdict(evidence, rules, exit_says)


def _bad_verdict(verdict: FinalEvent, evidence: Evidence, rules: Rules) -> Classification:
    if (limit := _limit_told(evidence)) and verdict.status in (None, 429):
        return limit
    text = " ".join(filter(None, (verdict.code, verdict.message, verdict.body)))
    reading = read_error(text, rules.patterns.phrases, status=verdict.status)
    if reading is not None:
        return Classification(
            reading.kind, f"final event: {reading.rule}", _short(verdict.message or reading.words)
        )
    if (said := _said(evidence.own_lines, rules)) is not None:
        return said
    if (exit_says := _exit(evidence, rules)) is not None:
        return exit_says
    if not text or text == verdict.code:
        told = f" ({verdict.code})" if verdict.code else ""
        return Classification(
            FailureKind.AGENT_CRASH, "final event", f"its final event says failure{told}, not why"
        )
    return Classification(FailureKind.UNKNOWN, "final event", _short(verdict.message or text))


def _without_verdict(evidence: Evidence, rules: Rules, exit_says: Classification | None) -> Classification:
    good_exit = evidence.code == 0 and evidence.signal is None
    if good_exit and (evidence.partial or not rules.has_verdict):
        said = _from(match_after_good_exit(evidence.own_lines, rules.patterns))
    else:
        said = _said(evidence.own_lines, rules)
    if exit_says is not None:
        more = said is not None and said.kind in _REFINED.get(exit_says.kind or FailureKind.UNKNOWN, ())
        return said if said is not None and more else exit_says
    return _limit_told(evidence) or said or _retrying(evidence, rules) or _unsaid(evidence)


def _retrying(evidence: Evidence, rules: Rules) -> Classification | None:
    """It ended amid its own tries: what they were for."""
    again = evidence.retrying
    reading = again and read_error(again.reason, rules.patterns.phrases, status=again.status)
    if again is None or not reading:
        return None
    why = f"it ended while it tried again by itself: {again.reason or again.status}"
    return Classification(reading.kind, f"its own retries: {reading.rule}", _short(why))


def _limit_told(evidence: Evidence) -> Classification | None:
    """A limit that the vendor told of as an event; one without a reset and a name may be any 429."""
    limited = evidence.limited
    if limited is None or (limited.resets_at is None and not limited.name):
        return None
    name = f" ({limited.name})" if limited.name else ""
    return Classification(
        FailureKind.USAGE_LIMIT, "limit event", f"the vendor told that a limit{name} is reached"
    )


def _unsaid(evidence: Evidence) -> Classification:
    """Nothing that is known says why."""
    if evidence.code is None and evidence.signal is None:
        return Classification(
            FailureKind.UNKNOWN, "nothing known", "nobody knows how it ended, and it said nothing of it"
        )
    if not evidence.printed:
        return Classification(
            FailureKind.AGENT_CRASH, "no output", f"it printed nothing on stdout; {_ended(evidence)}"
        )
    if evidence.code == 0:
        why = "exit status 0, but its final event is missing"
        return Classification(FailureKind.AGENT_CRASH, "no final event", why)
    why = f"{_ended(evidence)}, and nothing it printed says why"
    if error := first_error(evidence.own_lines):
        why = f"{_ended(evidence)}: {_short(error)}"
    elif line := last_line(evidence.own_lines):
        why = f"{why}; its last line: {_short(line)}"
    return Classification(FailureKind.AGENT_CRASH, "exit status", why)


def _said(lines: tuple[str, ...], rules: Rules) -> Classification | None:
    return _from(match_in(lines, rules.patterns))


def _from(said: LineMatch | None) -> Classification | None:
    return Classification(said.kind, f"line: {said.rule}", _short(said.line)) if said else None


def _exit(evidence: Evidence, rules: Rules) -> Classification | None:
    said = meaning_of_exit(evidence.code, evidence.signal, rules.exits)
    return Classification(said[1].kind, said[0], said[1].why) if said else None


def _ended(evidence: Evidence) -> str:
    return ended_with(evidence.code, evidence.signal)


def _reset(evidence: Evidence, rules: Rules, now: Moment) -> Reset | None:
    """When the limit is over: by the event, the vendor's headers, its body, the message, the lines."""
    limited, verdict = evidence.limited, evidence.verdict
    if limited is not None and (known := _told_reset(limited, now)):
        return known
    if verdict is not None and (known := reset_from_headers(verdict.headers, now=now)):
        return known
    for text in _texts(evidence, rules):
        if text and (known := read_reset(text, now=now, zone=rules.zone)):
            return known
    return None


def _told_reset(limited: Limited, now: Moment) -> Reset | None:
    """The moment of the event; one that has just passed is no reason to read another from the text."""
    at = limited.resets_at
    if at is None:
        return None
    if 0 <= now - at <= LONGEST_S:
        return Reset(at, "resetsAt", Confidence.EXACT)
    return reset_from_epoch(at, now=now, source="resetsAt")


def _texts(evidence: Evidence, rules: Rules) -> Iterator[str]:
    if evidence.verdict is not None:
        yield evidence.verdict.body
        yield evidence.verdict.message
    if (said := match_in(evidence.own_lines, rules.patterns)) is not None:
        yield said.text


def _short(text: str) -> str:
    return truncate(" ".join(folded(text).split()), _SHORT)
