"""How long a limit lasts: durations and moments read from what agents and vendors print.

A text may name several. Of repetitions in the same form the last counts; of different ones the longest, since
every limit has to be over. An explicit time to come back precedes an allowance that may not be used up, a
vendor's habit, and the pace of the agent's own retries.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import tzinfo
from math import isfinite
from typing import Final

from ralphd.core.failures import reset_parsers as parsers
from ralphd.core.failures.reset_parsers import Confidence, Rank, ResetHint, epoch, named_value, remaining
from ralphd.core.text import ends_of, normalized, unescaped
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass

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
    r"""(?:claude\s(?:ai\s)?|your\s)?(?:
      (?:[\w-]{1,12}(?:\s\w{1,10})?[ -])?limits?\s(?:(?:is|was|has\sbeen)\s)?
      (?:reached|exceeded|hit|exhausted|error)\b
    | (?:rate|usage|plan)[ _-]?limit(?:ed|_exceeded|_error|_reached)?\s{0,2}(?:$|[.!,;(|])
    | too\smany\srequests\s{0,2}(?:$|[.!,;:(|])
    | 429\s{0,2}(?:[:,(|-]|too\smany|rate|free|quota)
    | http(?:/[0-9.]{1,4})?\s429\b
    | you(?:'ve|\shave)?\s(?:hit|reached|exceeded|exhausted|used)\b.{0,60}?(?:limit|quota|capacity|your\splan)
    | you(?:'re|\sare)\s(?:out\sof|being\srate|over\syour|sending\s(?:too|requests\stoo))
    | (?:your|this)\srequest\s(?:was\srate|would\sexceed)
    | the\s(?:usage|rate)\slimit\shas\sbeen\sreached
    | (?:quota|resource)\s(?:has\sbeen\s)?(?:exceeded|exhausted)\s{0,2}(?:$|[.!,;:(|]|for\b)
    | the\srequest\swas\sthrottled
    | retry-after\s?:\s?[0-9]
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""The beginning of a line that only reports a limit."""
_OTHER_LIMIT: Final = re.compile(
    r"\b(?:time|memory|heap|size|file|line|length|recursion|iterations?|turns?|steps?|depth|connection|process"
    r"|thread|retry|retries|attempts?|redirect|character)[ -]limits?(?: is| was| has been)?"
    r" (?:reached|exceeded|hit)\b",
    re.IGNORECASE,
)
"""A report of a limit that no service has: of the machine, of a program, or of the agent itself."""
_GLYPHS: Final = " \t|>=■✕✗×✘⎿●⚠🖐!\ufe0f└⨯❌🛑⏳"
_QUOTED: Final = re.compile(r'"[^"\n]{0,400}"|`[^`\n]{0,400}`')
_SHOWN: Final = re.compile(
    r"\s{0,8}(?:#|//|/\*|\*\s|[-+](?!\s*error)|\$|@@|diff\b|`|\"|\||[\w./-]{1,80}\.[a-z]{1,5}:[0-9]{1,6}[:-]"
    r"|(?:feat|fix|docs|chore|refactor|tests?)(?:\([^)\n]{0,40}\))?!?:"
    r"|(?:def|class|raise|throw|return|import|from|const|let|if|commit|ok|---|exec)\b|[0-9a-f]{7,40}\s)"
    r"|(?:PASS|FAIL|✓)|.{0,300}\bI\b(?!/)"
)
"""Lines of code, diffs, searches, logs and first-person prose: shown, not reported."""
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


def detect_rate_limit(output: str) -> str | None:
    """Return the last passage of ``output`` that reports a limit as an error; None where none does [000-T5].

    It has some lines before and after, where the length of the limit may be named.
    """
    lines = normalized(output[-_TAIL_CHARS:]).split("\n")[-_MOST_LINES:]
    for at in range(len(lines) - 1, -1, -1):
        if _reports(lines[at][:_LINE_CHARS]) or _reports_within(lines, at):
            return "\n".join(lines[max(0, at - _BEFORE) : at + _AFTER])
    return None


def _reports(line: str) -> bool:
    words = _OTHER_LIMIT.sub("", line.lstrip(_GLYPHS))
    if words.startswith(("{", "[{")):
        return _json_reports(words)
    if not _PHRASE.search(words) and not _CLAIM.match(words):
        return False
    if _SHOWN.match(line) or _IN_PROGRESS.search(line):
        return False
    prose, brace, _ = words.partition('{"')
    prose = _QUOTED.sub('""', prose)
    if any(_CLAIM.match(piece) for piece in prose.split(": ", _MOST_PIECES)):
        return True
    if not _ERROR.search(prose):
        return False
    return bool(_PHRASE.search(prose)) or (bool(brace) and _json_reports(words[words.index(brace) :]))


def _reports_within(lines: list[str], at: int) -> bool:
    """Whether a line is the part of a JSON error over several lines that names the limit."""
    line = lines[at][:_LINE_CHARS]
    if not _JSON_VALUE.match(line) or not _JSON_LIMIT.search(line):
        return False
    return any('"error"' in line[:_LINE_CHARS] or "Error" in line[:80] for line in lines[max(0, at - 6) : at])


def _json_reports(line: str) -> bool:
    is_limit = not _JSON_OTHER.search(line) and _JSON_LIMIT.search(line)
    return bool(_REJECTED.search(line) or is_limit)


LONGEST_S = 31 * 24 * 3600.0
"""A reset farther off than this is not believed."""

_SAME_S = 120.0
"""Two resets within this are one, named once to the second and once to the minute."""
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
    """Return the reset that a text names; None where it names none that can be believed.

    ``zone`` is the local time zone, for times without one; None stands for UTC. Of a long text the beginning
    and the end are read.
    """
    read = normalized(unescaped(ends_of(text)))
    stated = [*parsers.keyed(read, now), *parsers.piped(read)]
    return _chosen(read, [*stated, *parsers.spoken(read, now, zone), *parsers.habits(read, now)], now)


def reset_from_headers(headers: Mapping[str, str], *, now: Moment) -> Reset | None:
    """Return the reset that a vendor's response headers name; header names are in lower case."""
    for name in ("retry-after-ms", "retry-after"):
        hint = named_value(name, headers.get(name, ""), now)
        if hint and (reset := _believed(hint, now)):
            return reset
    text = "\n".join(f"{name}: {value}" for name, value in headers.items() if _is_used_up(name, headers))
    read = normalized(ends_of(text))
    return _chosen(read, list(parsers.keyed(read, now)), now)


def reset_from_epoch(value: float, *, now: Moment, source: str = "epoch") -> Reset | None:
    """Return the reset at an epoch in seconds or milliseconds."""
    return _believed(ResetHint((epoch(value),), source, Confidence.EXACT, Rank.TOLD, source), now)


def _is_used_up(name: str, headers: Mapping[str, str]) -> bool:
    """Whether an allowance of codex's headers is used up, where they report its share."""
    window, found, _ = name.partition("-reset-")
    if not found or not name.startswith("x-codex-"):
        return True
    try:
        return float(headers.get(f"{window}-used-percent", "100")) >= 100
    except ValueError:
        return True


def _believed(hint: ResetHint, now: Moment) -> Reset | None:
    """Return the first reading that lies ahead, and not farther than can be believed."""
    until = next((until for until in hint.until if isfinite(until) and 0 < until - now <= LONGEST_S), None)
    return None if until is None else Reset(until, hint.source[:80], hint.confidence)


def _chosen(text: str, hints: list[ResetHint], now: Moment) -> Reset | None:
    """Of all that a text names, return what is to be believed."""
    pairs = [(hint, reset) for hint in hints if (reset := _believed(hint, now))]
    # An allowance of which something is left does not limit: its end is ignored.
    used_up = [pair for pair in pairs if pair[0].rank is not Rank.BUCKET or not remaining(text, pair[0].form)]
    # An agent's own pace in front of a limit that lasts: it does not know when that ends.
    is_lasting = _LASTING.search(text) is not None
    pairs = [
        (hint, reset)
        for hint, reset in used_up or pairs
        if not (is_lasting and hint.rank is Rank.PACE and reset.until - now < _PACE_FROM_S)
    ]
    if not pairs:
        return None
    best = min(hint.rank for hint, _ in pairs)
    first = _latest(reset for hint, reset in _last_of_each_form(text, pairs) if hint.rank is best)
    if first.until - now < _DAILY_FROM_S:
        first = _latest([first, *(reset for hint, reset in pairs if hint.rank is Rank.HABIT)])
    return first


def _last_of_each_form(text: str, pairs: list[tuple[ResetHint, Reset]]) -> list[tuple[ResetHint, Reset]]:
    lines = {hint.at: text.count("\n", 0, hint.at) for hint, _ in pairs}
    last: dict[str, int] = {}
    for hint, _ in pairs:
        last[hint.form] = max(last.get(hint.form, 0), lines[hint.at])
    return [pair for pair in pairs if lines[pair[0].at] == last[pair[0].form]]


def _latest(resets: Iterable[Reset]) -> Reset:
    """Return the latest; of several that are the same, the exact one."""
    ordered = sorted(resets, key=lambda reset: reset.until)
    same = [reset for reset in ordered if ordered[-1].until - reset.until <= _SAME_S]
    exact = [reset for reset in same if reset.confidence is Confidence.EXACT]
    return (exact or same)[-1]
