"""Classify the end of an attempt: evidence to a failure kind, with the rule and the reason (K1 to K4).

The evidence counts in this order: what we did ourselves; the structured final event, by its status and then
by its text; the exit status; the agent's own lines. A later one decides only where the earlier ones are
silent, or refines what they leave open: which 429, which refusal.
"""

import re
from collections.abc import Mapping
from dataclasses import field, replace
from datetime import tzinfo
from enum import StrEnum
from typing import Final

from ralphd.core.failures import patterns, resets
from ralphd.core.failures.agent_events import FinalEvent, Limited, RetryingItself
from ralphd.core.failures.kinds import ExitMeaning, FailureKind, ended_with, meaning_of_exit
from ralphd.core.failures.patterns import Patterns, first_error, match_after_good_exit, match_in, read_error
from ralphd.core.failures.reset_parsers import Confidence
from ralphd.core.failures.resets import LONGEST_S, Reset, detect_rate_limit, read_reset, reset_from_epoch
from ralphd.core.quota.model import WINDOWS
from ralphd.core.text import truncate
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass


class OurDoing(StrEnum):
    """Why we ended an attempt ourselves; this counts before anything that it printed (K1)."""

    TIMEOUT = "timeout"
    STALL = "stall"
    CRASH_PATTERN = "crash_pattern"  # L7: a crash message on stderr, and no sign of life since
    LOST_CONNECTION = "lost_connection"  # L7: a lost connection on stderr, and no evidence of work since
    AFTER_RESULT = "after_result"  # L7: it had reported its result, and did not exit
    ASKED = "asked"  # a stop, a pause, the Regent


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about an attempt that has ended.

    ``code`` is the exit status, ``signal`` the signal that killed it; both None when unknown. ``own_lines``
    are the last 50 or so of the agent's own lines, of stdout and stderr: no tool output, no echoed prompt, no
    prose of an agent that prints events. ``printed``: there was something on stdout. ``not_started`` is why
    the command could not be started. ``partial``: only a part of the output was seen (one stream, a mode
    without events), so that nothing follows from what is missing. ``retrying`` is a last retry of its own.
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

    @property
    def exited_well(self) -> bool:
        return self.code == 0 and self.signal is None


@dataclass(frozen=True, slots=True)
class Rules:
    """One agent's patterns and exit table, and whether it prints a final event.

    ``zone`` is the local time zone, for times without one.
    """

    agent: str
    patterns: Patterns
    exits: Mapping[int, ExitMeaning] = field(default_factory=dict)
    has_verdict: bool = False
    zone: tzinfo | None = None


@dataclass(frozen=True, slots=True)
class Classification:
    """The kind of an attempt's end, None for a success; ``rule`` names what decided, ``why`` explains it."""

    kind: FailureKind | None
    rule: str
    why: str
    reset: Reset | None = None
    asked: bool = False


_SHORT: Final = 300
_PIPED: Final = re.compile(r"\s*\|\s*\d{9,}")
_EPOCH: Final = re.compile(r"(?<![\w.-])1\d{9}(?:\d{3})?(?![\w-])")
_WITH_RESET: Final = frozenset({FailureKind.RATE_LIMIT, FailureKind.USAGE_LIMIT})

# What the agent's own lines may make of an exit status that leaves it open.
_REFINED: Final[Mapping[FailureKind, frozenset[FailureKind]]] = {
    FailureKind.RATE_LIMIT: frozenset({FailureKind.USAGE_LIMIT, FailureKind.FATAL}),
    FailureKind.FATAL: frozenset({FailureKind.CONTEXT, FailureKind.USAGE_LIMIT}),
}


def classify(evidence: Evidence, rules: Rules, *, now: Moment) -> Classification:
    """Classify the end of an attempt by the order of evidence (K1). Never raise, whatever was printed."""
    if ours := _our_doing(evidence):
        return ours
    if evidence.not_started is not None:
        return Classification(FailureKind.FATAL, "not started", _short(evidence.not_started))
    finding = _success(evidence, rules) or _failure(evidence, rules)
    if finding.kind in _WITH_RESET:
        why = _PIPED.sub("", finding.why)  # nobody reads ``reached|1795476710``: the reset is shown as a time
        why = finding.kind.replace("_", " ") if _EPOCH.search(why) else why
        return replace(finding, why=why, reset=_reset(evidence, rules, now))
    return finding


def _our_doing(evidence: Evidence) -> Classification | None:
    """What we did decides, except for an agent that had reported its result and only did not exit (L7)."""
    match evidence.ours:
        case OurDoing.ASKED:
            return Classification(None, "ours: asked", "it was stopped on request", asked=True)
        case OurDoing.TIMEOUT:
            why = "it exceeded its time limit and was terminated"
            return Classification(FailureKind.TIMEOUT, "ours: timeout", why)
        case OurDoing.STALL:
            why = "it gave no sign of life and was terminated"
            return Classification(FailureKind.STALL, "ours: stall", why)
        case OurDoing.CRASH_PATTERN:
            line = _short(evidence.crash_line or "a crash message")
            why = f"it printed {line!r} on stderr, which is a crash message, and was terminated"
            return Classification(FailureKind.AGENT_CRASH, "ours: crash pattern", why)
        case OurDoing.LOST_CONNECTION:
            why = f"it lost its connection ({_short(evidence.crash_line or '')}), hung and was terminated"
            return Classification(FailureKind.TRANSIENT, "ours: lost connection", why)
    return None


def _success(evidence: Evidence, rules: Rules) -> Classification | None:
    """Return a success, if it is one (K4). Whatever is printed beside a good final event does not count."""
    ended_by_us = evidence.ours is OurDoing.AFTER_RESULT
    if not ended_by_us and not evidence.exited_well:
        return None
    if evidence.verdict is not None:
        ended = "it did not exit afterwards and was terminated" if ended_by_us else "exit status 0"
        success = Classification(None, "final event", f"its final event says success; {ended}")
        return success if evidence.verdict.good else None
    is_unproved = ended_by_us or (rules.has_verdict and not evidence.partial) or not evidence.printed
    if is_unproved or match_after_good_exit(evidence.own_lines, rules.patterns) is not None:
        return None
    return Classification(None, "exit status 0", "exit status 0, and no failure on its last lines")


def _failure(evidence: Evidence, rules: Rules) -> Classification:
    by_exit = meaning_of_exit(evidence.code, evidence.signal, rules.exits)
    exit_says = by_exit and Classification(by_exit[1].kind, by_exit[0], by_exit[1].why)
    if evidence.verdict is None:
        only_after_good_exit = evidence.exited_well and (evidence.partial or not rules.has_verdict)
        match_lines = match_after_good_exit if only_after_good_exit else match_in
        by_line = _by_line(match_lines(evidence.own_lines, rules.patterns))
        if exit_says is not None:
            refined = _REFINED.get(exit_says.kind or FailureKind.UNKNOWN, ())
            return by_line if by_line is not None and by_line.kind in refined else exit_says
        known = _limit_event(evidence) or by_line or _own_retries(evidence, rules)
        return known or _by_words(evidence, rules) or _unexplained(evidence)
    if not evidence.verdict.good:
        return _bad_verdict(evidence.verdict, evidence, rules, exit_says)
    why = f"its final event says success, but it ended with {ended_with(evidence.code, evidence.signal)}"
    return exit_says or Classification(FailureKind.AGENT_CRASH, "exit after a good final event", why)


def _bad_verdict(
    verdict: FinalEvent, evidence: Evidence, rules: Rules, exit_says: Classification | None
) -> Classification:
    if (limit := _limit_event(evidence)) and verdict.status in (None, 429):
        return limit
    text = " ".join(filter(None, (verdict.code, verdict.message, verdict.body)))
    if reading := read_error(text, rules.patterns.phrases, status=verdict.status):
        why = _short(verdict.message or reading.words)
        return Classification(reading.kind, f"final event: {reading.rule}", why)
    if by_line := _by_line(match_in(evidence.own_lines, rules.patterns)) or exit_says:
        return by_line
    if not text or text == verdict.code:
        code = f" ({verdict.code})" if verdict.code else ""
        why = f"its final event says failure{code}, not why"
        return Classification(FailureKind.AGENT_CRASH, "final event", why)
    return Classification(FailureKind.UNKNOWN, "final event", _short(verdict.message or text))


def _own_retries(evidence: Evidence, rules: Rules) -> Classification | None:
    """It ended amid its own retries: their reason is the failure's."""
    again = evidence.retrying
    reading = again and read_error(again.reason, rules.patterns.phrases, status=again.status)
    if again is None or not reading:
        return None
    why = f"it ended while it retried: {again.reason or again.status}"
    return Classification(reading.kind, f"its own retries: {reading.rule}", _short(why))


def _by_words(evidence: Evidence, rules: Rules) -> Classification | None:
    """A limit in words that no pattern knows [000-T5], of an agent that failed."""
    passage = None if evidence.exited_well else detect_rate_limit("\n".join(evidence.own_lines))
    if passage is None:
        return None
    reading = read_error(passage, rules.patterns.phrases)
    kind = reading.kind if reading and reading.kind in _WITH_RESET else FailureKind.RATE_LIMIT
    return Classification(kind, "words of a limit", _short(passage))


def _limit_event(evidence: Evidence) -> Classification | None:
    """A limit that the vendor reported as an event; without a reset and a name it may be any 429."""
    limited = evidence.limited
    if limited is None or (limited.resets_at is None and not limited.name):
        return None
    name, _ = WINDOWS.get(limited.name or "", (limited.name or "", 0))
    return Classification(FailureKind.USAGE_LIMIT, "limit event", f"{name} usage limit".lstrip())


def _unexplained(evidence: Evidence) -> Classification:
    ended = ended_with(evidence.code, evidence.signal)
    if evidence.code is None and evidence.signal is None:
        why = "how it ended is unknown, and its output does not say why"
        return Classification(FailureKind.UNKNOWN, "nothing known", why)
    error = first_error(evidence.own_lines)
    if not evidence.printed:
        why = f"{ended}: {_short(error)}" if error else f"it printed nothing on stdout; {ended}"
        return Classification(FailureKind.AGENT_CRASH, "no output", why)
    if evidence.code == 0:
        why = "exit status 0, but its final event is missing"
        return Classification(FailureKind.AGENT_CRASH, "no final event", why)
    why = f"{ended}, and its output does not say why"
    if error:
        why = f"{ended}: {_short(error)}"
    elif line := patterns.last_line(evidence.own_lines):
        why = f"{ended}; last line: {_short(line)}"
    return Classification(FailureKind.AGENT_CRASH, "exit status", why)


def _by_line(match: patterns.LineMatch | None) -> Classification | None:
    return Classification(match.kind, f"line: {match.rule}", _short(match.line)) if match else None


def _reset(evidence: Evidence, rules: Rules, now: Moment) -> Reset | None:
    """When the limit is over: by the event, the vendor's headers, its body, the message, the lines."""
    limited, verdict = evidence.limited, evidence.verdict
    texts: list[str] = []
    if limited is not None and (at := limited.resets_at) is not None:
        if 0 <= now - at <= LONGEST_S:  # just passed: then the texts are not read for another
            return Reset(at, "resetsAt", Confidence.EXACT)
        if reset := reset_from_epoch(at, now=now, source="resetsAt"):
            return reset
    if verdict is not None:
        if reset := resets.reset_from_headers(verdict.headers, now=now):
            return reset
        texts = [verdict.body, verdict.message]
    if (match := match_in(evidence.own_lines, rules.patterns)) is not None:
        texts.append(match.text)
    elif (passage := detect_rate_limit("\n".join(evidence.own_lines))) is not None:
        texts.append(passage)
    return next(filter(None, (read_reset(text, now=now, zone=rules.zone) for text in texts if text)), None)


def _short(text: str) -> str:
    return truncate(" ".join(patterns.folded(text).split()), _SHORT)
