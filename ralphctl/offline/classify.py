"""``ralphctl classify``: classify the end of an attempt from its raw output and its exit status.

Applies the loop's own rules without a daemon. The output is read line by line, so its size does not matter.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, tzinfo
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from ralphctl.format.humanize import clock, duration
from ralphd.agents import patterns, reading
from ralphd.agents.agent import Agent, General
from ralphd.agents.known import KNOWN, agent_of, first_events, known_as, printer_of, spec_of
from ralphd.config import configuration, specs, values
from ralphd.core.failures.agent_events import AgentText, FinalEvent, Limited, RetryingItself, Started, ToolUse
from ralphd.core.failures.classify import Classification, Evidence, Rules, classify
from ralphd.core.failures.kinds import hint, meaning
from ralphd.errors import UnknownAgent, UsageError
from ralphd.process.machine import local_zone

STDOUT, STDERR = "stdout", "stderr"
FAILED: Final = 1
"""The exit status that stands for an unknown failure."""

GENERAL: Final = "general"
_BY_GENERAL_RULES: Final = (GENERAL, "wrapper")
"""Any other command, and a wrapper of an agent (``wrapper:NAME``)."""

_GUESSED_FROM: Final = 50
_LOOKED_AT_FOR_NUL: Final = 8192


def judged(
    log: BinaryIO, *, agent: str | None = None, code: int = FAILED, stream: str = STDOUT, now: float,
    environ: dict[str, str], directory: Path,
) -> Classification:  # fmt: skip
    """Classify the attempt that printed ``log``.

    Without ``agent`` it is guessed from the first lines. A negative ``code`` is a signal. Raise UnknownAgent,
    UsageError for binary data, ConfigFaults.
    """
    lines = _lines(log)
    head = list(islice(lines, _GUESSED_FROM))
    known = _agent(agent or _guessed(head), environ, directory)
    return finding_of(chain(head, lines), known, code=code, stream=stream, now=now, zone=local_zone())


def finding_of(
    lines: Iterable[str], agent: Agent, *, code: int, stream: str = STDOUT, now: float,
    zone: tzinfo | None = None,
) -> Classification:  # fmt: skip
    """Classify the attempt of ``agent`` that printed these lines on ``stream``."""
    rules = Rules(agent.name, agent.patterns, agent.exits, agent.has_verdict, zone)
    return classify(_evidence(lines, agent, code, stream), rules, now=now)


def plain_agent(name: str) -> Agent:
    """Return the agent of that name without any configuration. Raise UnknownAgent."""
    if known_as(name):
        return agent_of(name, specs.AgentSpec())
    if name.split(":", 1)[0] in _BY_GENERAL_RULES:
        spec = specs.AgentSpec(command=(name,))
        return General(name=name, spec=spec, patterns=patterns.patterns_of(GENERAL))
    known = (*KNOWN, *_BY_GENERAL_RULES)
    what = f"{name!r} is not a known agent{values.did_you_mean(name, known)}"
    mend = f"one of these, or --agent {GENERAL} for any other command"
    raise UnknownAgent(what, why=f"known are: {', '.join(known)}", mend=mend)


def text_of(finding: Classification, now: float) -> str:
    """Return a finding as short aligned lines, times in local time."""
    reset = finding.reset
    rows = [("kind", finding.kind or "ok")]
    if finding.kind is not None:
        category = meaning(finding.kind).category.replace("_", " ")
        rows.append(("class", f"{category}, {hint(finding.kind, reset_known=reset is not None)}"))
    if reset is not None:
        rows.append(("reset", f"{clock(reset.until, now)} ({reset.source}, {reset.confidence})"))
        rows.append(("wait", duration(reset.until - now)))
    rows += [("rule", finding.rule), ("why", finding.why)]
    return "\n".join(f"{name:<6} {value}" for name, value in rows)


def json_of(finding: Classification, now: float) -> str:
    """Return a finding as JSON: ``kind, reset_at, wait_seconds, rule, why``."""
    found: dict[str, Any] = {"kind": finding.kind or "ok", "reset_at": None, "wait_seconds": None}
    if (reset := finding.reset) is not None:
        at = datetime.fromtimestamp(reset.until, UTC).isoformat(timespec="milliseconds")
        wait_s = round(max(0.0, reset.until - now), 3)
        found |= {"reset_at": at.replace("+00:00", "Z"), "wait_seconds": wait_s}
    return json.dumps(found | {"rule": finding.rule, "why": finding.why}, indent=2, ensure_ascii=False)


def _agent(name: str, environ: dict[str, str], directory: Path) -> Agent:
    """Return the agent with the configuration of ``directory``: its patterns may be the user's."""
    named = configuration.load(directory, environ=environ).agents.named
    if known_as(name) is None and not (name in named and named[name].command):
        return plain_agent(name)
    return agent_of(name, spec_of(name, named), outside=environ)


def _evidence(lines: Iterable[str], agent: Agent, code: int, stream: str) -> Evidence:
    parser, first = agent.parser(), first_events(agent)
    read = parser.line if stream == STDOUT else parser.error_line
    verdict, limited, retrying, whole, printed = None, None, None, False, False
    for line in lines:
        printed = printed or line.strip() != ""
        for sign in read(line):
            match sign:
                case FinalEvent():
                    verdict = sign
                case Limited():
                    limited = sign
                case RetryingItself():
                    retrying = sign
                case Started():
                    whole = whole or _event(line) in first
                case AgentText() | ToolUse():
                    retrying = None
    return Evidence(
        code=code if code >= 0 else None, signal=-code if code < 0 else None,
        verdict=verdict, limited=limited, own_lines=parser.own_lines(),
        printed=printed or stream == STDERR, partial=stream == STDERR or not whole, retrying=retrying,
    )  # fmt: skip


def _lines(log: BinaryIO) -> Iterator[str]:
    """Yield the lines without their ends, cut to MAX_LINE_CHARS. Raise UsageError for binary data."""
    at = 0
    while line := log.readline(reading.MAX_LINE_CHARS):
        if at < _LOOKED_AT_FOR_NUL and b"\0" in line[: _LOOKED_AT_FOR_NUL - at]:
            what = "this is no agent's output: it holds zero bytes, as programs and archives do"
            raise UsageError(what, mend="ralphctl classify --help")
        at += len(line)
        cut = line
        while cut and not cut.endswith(b"\n"):  # the rest of a line that is longer
            cut = log.readline(reading.MAX_LINE_CHARS)
        yield line.decode("utf-8", "replace").rstrip("\r\n")


def _guessed(head: Iterable[str]) -> str:
    """Guess the agent from the events in the first lines; ``general`` without any."""
    for line in head:
        if (name := printer_of(line)) is not None:
            return name
        if (event := _event(line)) is None:
            continue
        if event.partition(".")[0] in ("thread", "turn", "item"):
            return "codex"
        if '"sessionID":' in line:
            return GENERAL if event == "result" else "opencode"
        is_result = event == "result" and '"status":' in line
        if is_result or event in ("init", "tool_use", "tool_result", "message"):
            return "gemini"
        if event in ("system", "rate_limit_event", "assistant", "user", "result"):
            return "claude"
    return GENERAL


def _event(line: str) -> str | None:
    event = reading.table(reading.record(line) if line.startswith("{") else None).get("type")
    return event if isinstance(event, str) else None
