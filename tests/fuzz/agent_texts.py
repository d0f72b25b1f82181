"""Parsers of what agents, reviews, tests and task lists say."""

import json
from functools import cache
from pathlib import Path

from ralphctl.offline import classify as offline_classify
from ralphd.agents.known import KNOWN
from ralphd.agents.parsers import TextParser
from ralphd.agents.streams import EventText
from ralphd.core import plan
from ralphd.core.failures import agent_events, resets
from ralphd.core.failures.agent_events import AgentEvent
from ralphd.core.failures.classify import Classification
from ralphd.core.gate.weakened import counts_of, hiding_runner, script_files
from ralphd.core.landing.task_lists import merged_list, with_ticks
from ralphd.core.loop import review
from ralphd.core.text import normalized, one_line, plain, plain_lines, strip_controls, unescaped
from ralphd.core.time import parse_rfc3339, read_duration, rfc3339
from ralphd.loop.attempt.output import LineAssembler
from tests.fuzz.parsers import JSON_TOKENS, MIB, TEXT_TOKENS, Parser, is_kind, is_showable, must, text_of

NOW = 1_795_476_400.0
AT = "2026-11-22T01:00:00.000000000Z"
CORPUS = Path(__file__).parents[1] / "agents" / "samples"


@cache
def corpus(most: int = 4096) -> list[bytes]:
    """Return what agents printed, by the project's own samples."""
    found = []
    for name in ("corpus.jsonl", "wrappers.jsonl"):
        for line in (CORPUS / name).read_text().splitlines():
            entry = json.loads(line)
            texts = [each for each in entry.values() if isinstance(each, str) and len(each) > 30]
            lists = [each for each in entry.values() if isinstance(each, list)]
            texts += ["\n".join(map(str, each)) for each in lists]
            found += [text[:most].encode() for text in texts]
    return found


EVENTS = [
    b'{"type":"system","subtype":"init","session_id":"s1","model":"m"}\n'
    b'{"type":"assistant","message":{"content":[{"type":"text","text":"hello"},{"type":"tool_use","name":"Bash",'
    b'"input":{"command":"ls"}}]},"session_id":"s1"}\n'
    b'{"type":"result","subtype":"success","is_error":false,"result":"done","total_cost_usd":0.5,"session_id":"s1"'
    b',"usage":{"input_tokens":5,"output_tokens":7}}\n',
    b'{"type":"rate_limit_event","session_id":"s1","rate_limit_info":{"status":"rejected","resetsAt":1795480000,'
    b'"rateLimitType":"five_hour","utilization":1.0}}\n{"type":"stream_event","session_id":"s1","event":{}}',
    b'{"type":"thread.started","thread_id":"t"}\n{"type":"item.completed","item":{"type":"agent_message","text":"x"}}'
    b'\n{"type":"turn.failed","error":{"message":"{\\"error\\":{\\"message\\":\\"quota\\",\\"code\\":429}}"}}\n'
    b'{"type":"turn.completed","usage":{"input_tokens":1,"cached_input_tokens":1,"output_tokens":2}}',
    b'{"type":"init","timestamp":"t","session_id":"a","model":"m"}\n{"type":"message","timestamp":"t","role":'
    b'"assistant","content":"x","delta":true}\n{"type":"result","timestamp":"t","status":"error","stats":{}}',
    b'{"type":"step_start","sessionID":"s","part":{}}\n{"type":"text","sessionID":"s","part":{"text":"x"}}\n'
    b'{"type":"step_finish","sessionID":"s","part":{"cost":0.1,"tokens":{"input":1,"output":2}}}\n'
    b'{"type":"error","sessionID":"s","error":{"name":"APIError","data":{"message":"m","statusCode":429}}}',
]
AGENTS = (*KNOWN, "general")


def agent_stream(data: bytes) -> None:
    """Read a whole output as each agent's in turn: the first byte chooses."""
    name = AGENTS[data[0] % len(AGENTS)] if data else AGENTS[0]
    parser: TextParser = offline_classify.plain_agent(name).parser()
    assembler = LineAssembler(64 << 10)
    half = len(data) // 2
    lines = [*assembler.feed(data[:half]), *assembler.feed(data[half:]), *assembler.rest()]
    for number, line in enumerate(lines):
        signs = tuple(parser.line(line) if number % 7 else parser.error_line(line))
        for sign in signs:
            must(type(sign).__module__ == AgentEvent.__args__[0].__module__, f"{sign!r} is no event")
            for shown in agent_events.shown_lines(sign):
                is_showable(shown)
        agent_events.traits_of(signs)
    must(len(parser.own_lines()) <= 60, "too many own lines are kept")
    must(len(parser.last_message()) <= 1 * MIB, "the last message is not bounded")


def classified(data: bytes) -> None:
    """Classify an attempt: its agent, exit status and stream are the first bytes."""
    head, text = data[:3].ljust(3, b"\0"), text_of(data[3:])
    agent = offline_classify.plain_agent(AGENTS[head[0] % len(AGENTS)])
    code = (0, 1, 2, 75, 127, 130, -9, -11)[head[1] % 8]
    stream = ("stdout", "stderr")[head[2] % 2]
    found = offline_classify.finding_of(text.split("\n"), agent, code=code, stream=stream, now=NOW)
    is_kind(found, Classification)
    is_showable(one_line(found.why, 300))
    must(found.reset is None or found.reset.until < NOW + 400 * 86400, "a reset after more than a year")
    must(found.reset is None or rfc3339(found.reset.until), "")
    json.loads(offline_classify.json_of(found, NOW))
    offline_classify.text_of(found, NOW)


def event_text(data: bytes) -> None:
    """Word the events of a log, in which streams are mixed."""
    reader = EventText(verbose=True)
    for line in text_of(data).split("\n"):
        text = reader.line(line, AT)
        is_kind(text, str, None)
        for each in (text or "").split("\n"):
            is_showable(each)
    must(not reader._has_failed, "an event raised")


def reset_times(data: bytes) -> None:
    text = text_of(data)
    found = resets.read_reset(text, now=NOW)
    must(found is None or 0 <= found.until - NOW < 400 * 86400, f"a reset at {found}")
    is_kind(resets.detect_rate_limit(text), str, None)
    name, _, value = text.partition(":")
    resets.reset_from_headers(
        {name.lower(): value, "retry-after": value, "x-ratelimit-reset": value}, now=NOW
    )
    duration = read_duration(text)
    must(duration is None or 0 <= duration.seconds < 1e20, f"a duration of {duration}")


def moments(data: bytes) -> None:
    """A moment that is read can be written, and reads as the same."""
    try:
        moment = parse_rfc3339(text_of(data))
    except ValueError:
        return
    must(abs(parse_rfc3339(rfc3339(moment)) - moment) < 1e-3, "a moment changes when it is written")


def task_list(data: bytes) -> None:
    text = text_of(data)
    for file in ("tasks.md", "prd.json"):
        found = plan.parse(file, text)
        is_kind(found, plan.Plan)
        ids = [task.id for task in found.tasks]
        must(len(set(ids)) == len(ids), "two tasks have one id")
        for task in found.tasks:
            must(task.id, "a task without an id")
            is_showable(task.title)
    plan.has_task_headings(text)


def list_merge(data: bytes) -> None:
    """Merge three versions of a list, which are divided by form feeds."""
    base, ours, theirs = [*text_of(data).split("\f"), "", ""][:3]
    merged = merged_list(base, ours, theirs)
    is_kind(merged, str, None)
    must(merged_list(base, base, base) == base, "a list that nobody changed is changed")
    must(with_ticks(ours, ours) == ours, "a list gets ticks of its own")


def review_output(data: bytes) -> None:
    text = text_of(data[1:])
    code = (0, 1, 126, 137, None)[data[0] % 5 if data else 0]
    for cut in (False, True):
        found = review.read_review(code, text, text[:200], cut=cut)
        is_kind(found, review.Review)
        must(len(found.findings) <= review.MOST_FINDINGS, "too many findings")
        must(len({each.id for each in found.findings}) == len(found.findings), "two findings have one id")
        for each in found.findings:
            is_showable(each.short)
            is_showable(each.id)
        is_showable(found.trouble)
    review.dismissed_by(text, review.read_review(1, text).findings)


def test_counts(data: bytes) -> None:
    lines = text_of(data).split("\n")
    counts = counts_of(lines[-2000:], is_cut=len(lines) > 2000)
    must(counts is None or 0 <= counts.ran < 1e15, f"{counts}")
    script_files(lines[0][:5000])
    hiding_runner(lines[0][:5000], lines[1:20])


def plain_text(data: bytes) -> None:
    text = text_of(data)
    is_showable(plain(text.replace("\n", " ").replace("\t", " ")))
    for line in plain_lines(text):
        is_showable(line.replace("\t", " "))
    is_showable(one_line(text, 500))
    must(len(one_line(text, 80)) <= 80, "a line is not cut")
    strip_controls(text)
    unescaped(normalized(text[: 1 * MIB]))


RESETS = [
    b"Claude AI usage limit reached|1795480000",
    b"resets 3pm (Europe/Berlin)",
    b"try again in 3 days 2 hours 5 min",
    b"Please retry after 1.898s",
    b'{"retryDelay":"58.2s"}',
    b"retry-after: 120",
    b"resets Nov 23, 9:15am (UTC)",
    b"429 Too Many Requests: rate limit reached for requests",
    b"quota will reset after 14h5m",
]
REVIEWS = [
    b'\x01[{"file":"a.py","line":3,"message":"unused","code":"F401"}]',
    b'\x00{"findings":[{"id":"1","text":"x"}]}',
    b'\x01```json\n{"issues": [{"messages": [{"text": "y", "row": 2}], "path": "b"}]}\n```\n',
    b"\x01a plain word\n",
    b'\x00[{"id":"1","message":"m"},{"id":"1","message":"n"}]',
]
COUNTS = [
    b"= 1 failed, 1 passed, 1 skipped, 1 deselected, 1 xfailed in 3.01s =",
    b"Ran 4 tests in 0.001s\n\nOK (skipped=1)",
    b"test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s",
    b"Tests:       1 skipped, 1 todo, 2 passed, 4 total",
    b"      Tests  1 failed | 2 passed (3)",
    b"# tests 3\n# pass 2\n# fail 1\n# cancelled 0\n# skipped 0\n# todo 0",
    b"ok  \ta/b\t0.01s\nFAIL\tc/d [build failed]",
    b"--- PASS: TestA (0.00s)\n    --- FAIL: TestA/x (0.10s)",
    b'{"Time":"x","Action":"pass","Package":"a","Test":"TestA","Elapsed":0}',
]
COUNT_UNITS = (
    b'{"Action":"pass"',
    b'"Action":"pass","Test":"',
    b'"Test":"',
    b"1 passed, ",
    b"test result: ok. 1 passed; 1",
    b"OK (a a",
    b"Ran 1 tests in 1s\n",
    b"1 a",
    b"      Tests  1 a",
    b"--- PASS: (1.1",
    b"Tests: 1 a, ",
    b"ok  \t \t[",
)
LISTS = [
    b"# Plan\n\n## Task 1: parse\n- [x] a\n- [ ] b\n## Task 2 (done)\n",
    b"- [ ] one\n- [x] two\n  - [ ] part\n",
    b"1. [ ] US-001: title\n2. [~] second [P]\n### US-3 \xe2\x9c\x85 Done\n**Status:** done\n",
    b'{"userStories":[{"id":"US-1","title":"t","passes":true,"priority":1},{"id":"US-1","title":"u"}]}',
    b'[{"name":"a","status":"in_progress"},{"description":"b","steps":["x"]}]',
    b"## Optional\n- [ ] no\n```\n- [ ] c\n```\n",
]
LIST_UNITS = (
    b"# a\n",
    b"###### Task 1: a\n",
    b"- [x] a\n",
    b"  - [ ] a\n",
    b"> - [ ] a\n",
    b"**Status:** done\n",
    b"```\n",
    b"1. [ ] ",
    b"Task 1: ",
    b"US-001 - ",
    b'{"title":"a"},',
    b'[{"tasks":',
    b"~~a",
    b"(done) ",
    b"- [ ] a b c d\n",
    b"<!-- ",
    b"| a | b |\n",
    b"a" * 3000 + b"\n",
)
RESET_UNITS = (
    b"resets at 3pm ",
    b"resets ",
    b"in 3 days ",
    b"retry-after: 1 ",
    b'{"error":{"type":"',
    b"limit ",
    b"try again ",
    b"\\\\u0041",
    b"`a",
    b'"a"',
    b"Nov 23, ",
    b"3:15 ",
    b"429 ",
    b"|1795480000",
    b"usage limit reached ",
    b"reset ",
    b"1h2m3s ",
    b"error: ",
    b"quota ",
    b"(UTC) ",
    b"at async f\n",
    b'"code": ',
    b"Retrying after 1ms",
)

PARSERS = (
    Parser(
        "agent-stream",
        agent_stream,
        [bytes([n % 9]) + each for n, each in enumerate([*EVENTS, *corpus()[::5]])],
        (*JSON_TOKENS, *TEXT_TOKENS),
        weight=4,
    ),
    Parser(
        "classify",
        classified,
        [bytes([n % 9, n % 8, n % 2]) + each for n, each in enumerate(corpus()[::3])],
        (*TEXT_TOKENS, *RESETS),
        weight=4,
        units=RESET_UNITS,
    ),
    Parser("event-text", event_text, EVENTS, JSON_TOKENS, weight=2),
    Parser("reset-times", reset_times, [*RESETS, *corpus()[::9]], TEXT_TOKENS, weight=3, units=RESET_UNITS),
    Parser(
        "moments",
        moments,
        [b"2026-11-21T20:00:00.5Z", b"2026-W01-1T00:00+23:59", b"20261121T200000,5-12:34:56.7"],
    ),
    Parser("task-list", task_list, LISTS, TEXT_TOKENS, weight=3, units=LIST_UNITS, most_bytes=4 * MIB),
    Parser("list-merge", list_merge, [b"\f".join(LISTS[:3]), b"- [ ] a\f- [x] a\f- [~] a"], units=LIST_UNITS),
    Parser("review", review_output, REVIEWS, JSON_TOKENS, weight=2),
    Parser("test-counts", test_counts, COUNTS, TEXT_TOKENS, weight=2, units=COUNT_UNITS),
    Parser(
        "plain-text",
        plain_text,
        [b"\x1b[1;31mred\x1b[0m\r\n", b"\x1b]8;;http://x\x07a\x9b2J", b"a\x1bP1$r\x1b\\"],
        TEXT_TOKENS,
    ),
)
