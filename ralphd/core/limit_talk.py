"""Whether an output tells of a rate or usage limit as an error, and not in passing [000-T5]."""

import re
from typing import Final

from ralphd.core.plain_text import plain

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
    lines = plain(output[-_TAIL_CHARS:]).split("\n")[-_MOST_LINES:]
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
