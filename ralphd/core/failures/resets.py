"""How long a limit lasts: durations and moments read from what agents and vendors print (LI, 000-T5).

A text may tell several. What is said again in the same form counts as it was said last; of what is said
besides, the longest counts, since every limit has to be over; and whoever tells when to come back is believed
before an allowance that may not be used up, a vendor's habit, or the pace at which the agent tries by itself.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from math import isfinite
from typing import Final

from ralphd.core.failures.reset_parsers import (
    Confidence,
    Rank,
    ResetHint,
    epoch,
    habits,
    keyed,
    named_value,
    piped,
    remaining,
    spoken,
)
from ralphd.core.text import ends_of, normalized, unescaped
from ralphd.core.time import Moment

# Whether an output tells of a rate or usage limit as an error, and not in passing [000-T5].

_TAIL_CHARS: Final = 64 << 10
_LINE_CHARS: Final = 16 << 10
_MOST_LINES: Final = 400
_BEFORE, _AFTER = 3, 12
_MOST_PIECES: Final = 4

_STATUS: Final = (
    r"(?:\(429\)|(?:http(?:/[0-9.]{1,4})?|status(?:[ _-]?code)?|error(?:[ _-]?code)?|code|rejected|response)"
    r"\W{1,3}429\b"
    r"|\b429\W{1,3}(?:too many requests|rate|resource|quota|\{))"
)
_PHRASE: Final = re.compile(
    rf"{_STATUS}|rate[ _-]?limit|too[ _]?many[ _]?requests|usage[ _-]?limit|\blimit (?:reached|exceeded)"
    r"|\bquota (?:exceeded|exhausted)|exceeded your (?:current )?quota|exhausted your \w{1,20}"
    r"|resource[ _]?(?:has been )?exhausted"
    r"|out of (?:extra usage|premium requests)|\bhit your .{0,40}limit",
    re.IGNORECASE,
)
_ERROR: Final = re.compile(
    r"(?:error|err!|failed|failure|fatal|exception|rejected)\b[\])]?(?:\s?[:(\[{|]|\s?=|\s-|\s?,|\s[45][0-9]{2}\b)"
    r"|\b(?:unexpected |last |got )status\b|^sorry\b|^\[error\]|^error\b",
    re.IGNORECASE,
)
_CLAIM: Final = re.compile(
    r"""(?:claude\s(?:ai\s)?)?(?:
      (?:rate|usage|[\w-]{1,12}(?:\s\w{1,10})?)[ -]limits?\s(?:(?:is|was|has\sbeen)\s)?
      (?:reached|exceeded|hit|exhausted|error)\b
    | (?:rate|usage)[ _-]?limit(?:ed|_exceeded|_error|_reached)?\s{0,2}(?:$|[.!,;(|])
    | too\smany\srequests\s{0,2}(?:$|[.!,;:(|])
    | 429\s{0,2}(?:[:,(|-]|too\smany|rate|free|quota)
    | http(?:/[0-9.]{1,4})?\s429\b
    | you(?:'ve|\shave)?\s(?:hit|reached|exceeded|exhausted)\b.{0,60}?(?:limit|quota|capacity)
    | you(?:'re|\sare)\s(?:out\sof|being\srate)
    | (?:your|this)\srequest\s(?:was\srate|would\sexceed)
    | the\s(?:usage|rate)\slimit\shas\sbeen\sreached
    | (?:quota|resource)\s(?:has\sbeen\s)?(?:exceeded|exhausted)\s{0,2}(?:$|[.!,;:(|]|for\b)
    | the\srequest\swas\sthrottled
    | retry-after\s?:\s?[0-9]
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""How a line begins that is nothing but the news of a limit."""
_GLYPHS: Final = " \t|>=■✕✗×✘⎿●⚠🖐!\ufe0f└⨯❌🛑⏳"
_QUOTED: Final = re.compile(r'"[^"\n]{0,400}"|`[^`\n]{0,400}`')
_SHOWN: Final = re.compile(
    r"\s{0,8}(?:#|//|/\*|\*\s|[-+](?!\s*error)|\$|@@|diff\b|`|\"|\||[\w./-]{1,80}\.[a-z]{1,5}:[0-9]{1,6}[:-]"
    r"|(?:feat|fix|docs|chore|refactor|tests?)(?:\([^)\n]{0,40}\))?!?:"
    r"|(?:def|class|raise|throw|return|import|from|const|let|if|commit|ok|---|exec)\b|[0-9a-f]{7,40}\s)"
    r"|(?:PASS|FAIL|✓)",
)
"""Lines of code, of diffs, of searches and of logs: shown, not told."""
_JSON_LIMIT: Final = re.compile(
    r'"(?:type|code|error|api_error|api_error_type|name|status)"\s{0,2}:\s{0,2}'
    r'"(?:rate_limit\w{0,20}|usage_limit_reached|too_many_requests|resource_exhausted)"'
    r'|"(?:status|statuscode|status_code|code|api_error_status|http_status)"\s{0,2}:\s{0,2}"?429\b'
    r'|"(?:(?:error_)?(?:message|msg)|error|result|detail)"\s{0,2}:\s{0,2}"(?:[^"\\]|\\.){0,300}?'
    rf"(?:{_PHRASE.pattern})",
    re.IGNORECASE,
)
_JSON_OTHER: Final = re.compile(
    r'"type"\s{0,2}:\s{0,2}"(?:user|assistant|tool_\w{1,12}|item\.\w{1,12}|text|message|step_\w{1,8}|system)"'
    r'|"message"\s{0,2}:\s{0,2}"Reconnecting|"is_error"\s{0,2}:\s{0,2}false|"status"\s{0,2}:\s{0,2}"(?:success|allowed\w{0,10})"',
    re.IGNORECASE,
)
_IN_PROGRESS: Final = re.compile(r"\bRetrying after [0-9]{1,9}ms\b")
_JSON_VALUE: Final = re.compile(r'\s{0,40}"(?:code|status|type)"\s{0,2}:')
_REJECTED: Final = re.compile(
    r'"rate_limit_info"\s{0,2}:\s{0,2}\{[^{}]{0,200}"status"\s{0,2}:\s{0,2}"rejected"'
)


def limit_talk(output: str) -> str | None:
    """The last passage of ``output`` that tells of a limit as an error; None where none does.

    It has some lines before and after, where the length of the limit may be told.
    """
    lines = normalized(output[-_TAIL_CHARS:]).split("\n")[-_MOST_LINES:]
    for at in range(len(lines) - 1, -1, -1):
        if _tells(lines[at][:_LINE_CHARS]) or _tells_within(lines, at):
            return "\n".join(lines[max(0, at - _BEFORE) : at + _AFTER])
    return None


def _tells(line: str) -> bool:
    said = line.lstrip(_GLYPHS)
    if said.startswith(("{", "[{")):
        return _json_tells(said)
    if not _PHRASE.search(said) and not _CLAIM.match(said):
        return False
    if _SHOWN.match(line) or _IN_PROGRESS.search(line):
        return False
    body = said.find('{"')
    own = said if body < 0 else said[:body]
    own = _QUOTED.sub('""', own)
    if any(_CLAIM.match(piece) for piece in own.split(": ", _MOST_PIECES)):
        return True
    if not _ERROR.search(own):
        return False
    return bool(_PHRASE.search(own)) or (body >= 0 and _json_tells(said[body:]))


def _tells_within(lines: list[str], at: int) -> bool:
    """Whether a line is that part of a JSON error over several lines which names the limit."""
    if not _JSON_VALUE.match(lines[at][:_LINE_CHARS]) or not _JSON_LIMIT.search(lines[at][:_LINE_CHARS]):
        return False
    return any('"error"' in line[:_LINE_CHARS] or "Error" in line[:80] for line in lines[max(0, at - 6) : at])


def _json_tells(line: str) -> bool:
    if _REJECTED.search(line):
        return True
    return not _JSON_OTHER.search(line) and bool(_JSON_LIMIT.search(line))


LONGEST_S = 31 * 24 * 3600.0
"""A reset farther off than this is not believed."""

UNKNOWN_S = 60.0
"""How long a rate limit is taken to last that does not say so [000-T5]."""

_SAME_S = 120.0
"""Two resets that lie no farther apart are one, told once to the second and once to the minute."""
_DAILY_FROM_S = 600.0
"""A daily quota is not over sooner: the seconds that Google names beside it are another limit's."""
_PACE_FROM_S = 600.0
"""An agent that tries again sooner does not know when a plan's limit ends."""
_LASTING = re.compile(r"usage[ _-]limit|quota|weekly|plan|credit", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reset:
    """When a limit is over. ``source`` is the form it was read from (``retry-after``, ``resets 3pm``)."""

    until: Moment
    source: str
    confidence: Confidence


def read_reset(text: str, *, now: Moment, zone: tzinfo | None = None) -> Reset | None:
    """The reset that a text tells; None where it tells none that can be believed.

    ``zone`` is the local time zone, for times that name none; None stands for UTC. Of a long text the
    beginning and the end are read.
    """
    read = normalized(unescaped(ends_of(text)))
    told = [*keyed(read, now), *piped(read), *spoken(read, now, zone), *habits(read, now)]
    return _chosen(read, told, now)


def reset_from_headers(headers: Mapping[str, str], *, now: Moment) -> Reset | None:
    """The reset that a vendor's response headers tell; names in lower case."""
    for name in ("retry-after-ms", "retry-after"):
        told = named_value(name, headers.get(name, ""), now)
        if told and (reset := _believed(told, now)):
            return reset
    text = "\n".join(f"{name}: {value}" for name, value in headers.items() if _is_used_up(name, headers))
    read = normalized(ends_of(text))
    return _chosen(read, list(keyed(read, now)), now)


def reset_from_epoch(value: float, *, now: Moment, source: str = "epoch") -> Reset | None:
    """The reset at an epoch in seconds or milliseconds."""
    return _believed(ResetHint((epoch(value),), source, Confidence.EXACT, Rank.TOLD, source), now)


def detect_rate_limit(output: str, *, now: Moment | None = None, zone: tzinfo | None = None) -> float | None:
    """Seconds to wait when ``output`` tells of a limit as an error, 60 where it tells no length; else None.

    [000-T5] gives it no clock: without ``now`` only durations are read, and epochs and times of day are taken
    for unknown. It reads any output; where an agent's own lines are known, ``core/failures/classify``
    is more precise.
    """
    passage = limit_talk(output)
    if passage is None:
        return None
    read = normalized(unescaped(passage))
    since = 0.0 if now is None else now
    told: Iterable[ResetHint] = [*keyed(read, since), *spoken(read, since, zone)]
    if now is not None:
        told = [*told, *piped(read), *habits(read, now)]
    else:
        told = [each for each in told if each.confidence is Confidence.EXACT]
    reset = _chosen(read, list(told), since)
    return UNKNOWN_S if reset is None else reset.until - since


def _is_used_up(name: str, headers: Mapping[str, str]) -> bool:
    """Whether an allowance of codex's headers is used up, where they tell how far it is."""
    window, found, _ = name.partition("-reset-")
    if not found or not name.startswith("x-codex-"):
        return True
    try:
        return float(headers.get(f"{window}-used-percent", "100")) >= 100
    except ValueError:
        return True


def _believed(told: ResetHint, now: Moment) -> Reset | None:
    """The first reading that lies ahead, and no farther than can be believed."""
    for until in told.until:
        if isfinite(until) and 0 < until - now <= LONGEST_S:
            return Reset(until, told.source[:80], told.confidence)
    return None


def _chosen(text: str, told: list[ResetHint], now: Moment) -> Reset | None:
    """Of all that a text tells, what is to be believed."""
    believed = [(each, reset) for each in told if (reset := _believed(each, now))]
    used_up = [pair for pair in believed if not _has_rest(text, pair[0])]
    believed = [pair for pair in used_up or believed if not _is_hasty(text, *pair, now)]
    if not believed:
        return None
    best = min(each.rank for each, _ in believed)
    first = _latest(reset for each, reset in _last_said(text, believed) if each.rank is best)
    if first.until - now < _DAILY_FROM_S:
        first = _latest([first, *(reset for each, reset in believed if each.rank is Rank.HABIT)])
    return first


def _has_rest(text: str, told: ResetHint) -> bool:
    """Whether it is the end of an allowance of which something is left."""
    return told.rank is Rank.BUCKET and remaining(text, told.form)


def _is_hasty(text: str, told: ResetHint, reset: Reset, now: Moment) -> bool:
    """Whether it is an agent's own pace in front of a limit that lasts: it does not know when that ends."""
    return told.rank is Rank.PACE and reset.until - now < _PACE_FROM_S and _LASTING.search(text) is not None


def _last_said(text: str, believed: list[tuple[ResetHint, Reset]]) -> list[tuple[ResetHint, Reset]]:
    """Without what was said again in a later line, in the same form."""
    lines = {each.at: text.count("\n", 0, each.at) for each, _ in believed}
    last: dict[str, int] = {}
    for each, _ in believed:
        last[each.form] = max(last.get(each.form, 0), lines[each.at])
    return [pair for pair in believed if lines[pair[0].at] == last[pair[0].form]]


def _latest(resets: Iterable[Reset]) -> Reset:
    """The latest; of several that are the same, the exact one."""
    ordered = sorted(resets, key=lambda reset: reset.until)
    latest = ordered[-1]
    if latest.confidence is not Confidence.EXACT:
        for reset in reversed(ordered):
            if reset.confidence is Confidence.EXACT and latest.until - reset.until <= _SAME_S:
                return reset
    return latest
