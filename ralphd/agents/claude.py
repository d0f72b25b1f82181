"""Claude Code: ``claude -p`` with streaming JSON.

Its ``subtype`` says ``success`` for API failures as well; ``is_error`` and what stands beside it is the
verdict.
"""

from collections.abc import Iterable
from typing import Any, Final

from ralphd.agents.agent import Ways
from ralphd.agents.reading import (
    ALIVE,
    LAST_MESSAGE_CHARS,
    NAME_CHARS,
    NOTHING,
    OwnLines,
    Sessions,
    SessionShare,
    Signs,
    content,
    count,
    epoch,
    http_status,
    listed,
    number,
    record,
    session_id,
    table,
    text,
    whole,
)
from ralphd.core.failures.agent_events import (
    AgentEvent,
    AgentText,
    FinalEvent,
    Limited,
    RetryingItself,
    Spent,
    Started,
    Warned,
)

_NO_EVIDENCE: Final = ('{"type":"user"', '{"type":"stream_event"')
"""How tool results and pieces of a message begin, which comes whole as well."""
_READ: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_BAD_ENDS: Final = ("prompt_too_long", "max_turns", "budget_exhausted")


class ClaudeParser:
    """Reads stream-json. Text of tool results is never looked at."""

    def __init__(self, sessions: Sessions | None = None) -> None:
        self._own = OwnLines()
        self._cost = SessionShare(sessions or Sessions())
        self._error_name: str | None = None

    def line(self, line: str) -> Iterable[AgentEvent]:
        """What a line of stdout says."""
        if line.startswith(_NO_EVIDENCE) and line.endswith("}"):
            return ALIVE  # the bulk of all output
        data = record(line)
        if data is None:
            return self._own.plain(line)
        self._own.event_seen()
        match data.get("type"):
            case "assistant":
                return self._assistant(data)
            case "result":
                return self._result(data)
            case "system":
                return _system(data)
            case "rate_limit_event":
                return _limited(data) or ALIVE
            case _:
                return ALIVE

    def error_line(self, line: str) -> Iterable[AgentEvent]:
        """What a line of stderr says: usage errors, refusals, crashes of the program."""
        return self._own.complaint(line)

    def own_lines(self) -> tuple[str, ...]:
        """Its synthetic error messages, the text of a failed end, stderr, lines that are no events."""
        return self._own.lines()

    def last_message(self) -> str:
        """Its last message."""
        return self._own.last_message

    def _assistant(self, data: dict[str, Any]) -> Signs:
        message = table(data.get("message"))
        said, tools = content(message.get("content"))
        if data.get("is_api_error_message") is True or message.get("model") == "<synthetic>":
            return self._complaint(data, said)
        if said and not data.get("parent_tool_use_id"):
            self._own.said(said)
        return (*((AgentText(said),) if said else ()), *tools) or ALIVE

    def _complaint(self, data: dict[str, Any], said: str) -> Signs:
        """A message that the CLI wrote itself in place of the model's."""
        if data.get("error") != "unknown":
            self._error_name = text(data.get("error"), NAME_CHARS) or self._error_name
        self._own.add(said)
        return (*_limited(data), *((Warned(said),) if said else ())) or ALIVE

    def _result(self, data: dict[str, Any]) -> Signs:
        good = _is_good(data)
        said = text(data.get("result"), LAST_MESSAGE_CHARS)
        if good:
            self._own.said(said)
            verdict = FinalEvent(good=True, message=said)
        else:
            verdict = self._failure(data, said)
            self._own.add(verdict.message)
        return (*_limited(data), *self._spent(data), verdict)

    def _spent(self, data: dict[str, Any]) -> Signs:
        """The price is the session's so far, the tokens are the attempt's."""
        usage = table(data.get("usage"))
        cost = number(data.get("total_cost_usd"))
        if cost is None:
            cost = number(data.get("cost_usd"))  # its name in older versions
        if cost is not None:
            cost = self._cost.of(session_id(data.get("session_id")), cost)
        read = sum(count(usage.get(key)) for key in _READ)
        spent = Spent(cost, read, count(usage.get("output_tokens")))
        return (spent,) if spent != Spent(0.0) and spent != Spent(None) else NOTHING

    def _failure(self, data: dict[str, Any], said: str) -> FinalEvent:
        errors = "\n".join(filter(None, (text(error) for error in listed(data.get("errors"))[:20])))
        subtype = text(data.get("subtype"), NAME_CHARS)
        code = text(data.get("api_error"), NAME_CHARS) or _end_name(data)
        code = code or text(data.get("api_error_type"), NAME_CHARS) or self._error_name or ""
        message = said or errors or subtype
        return FinalEvent(False, message, http_status(data.get("api_error_status")), code or None)


def _is_good(data: dict[str, Any]) -> bool:
    """Whether a result is a good one: everything in it that can speak of a failure has to be silent."""
    if data.get("is_error") not in (False, None) or data.get("api_error") or data.get("api_error_status"):
        return False
    if data.get("terminal_reason") in ("api_error", *_BAD_ENDS):
        return False
    return data.get("subtype") == "success"


def _end_name(data: dict[str, Any]) -> str:
    """The name of an end that is no API's failure: ``prompt_too_long``, ``max_turns``."""
    reason = text(data.get("terminal_reason"), NAME_CHARS)
    if reason in _BAD_ENDS:
        return reason
    subtype = text(data.get("subtype"), NAME_CHARS)
    return subtype.removeprefix("error_") if subtype.startswith("error_max") else ""


def _system(data: dict[str, Any]) -> Signs:
    match data.get("subtype"):
        case "init":
            model = text(data.get("model"), NAME_CHARS) or None
            return (Started(session_id(data.get("session_id")), model),)
        case "api_retry":
            delay_ms = number(data.get("retry_delay_ms"))
            return (
                RetryingItself(
                    reason=text(data.get("error"), NAME_CHARS),
                    status=http_status(data.get("error_status")),
                    attempt=whole(data.get("attempt")),
                    most=whole(data.get("max_retries")),
                    delay_s=None if delay_ms is None else delay_ms / 1000,
                ),
            )
        case _:
            return ALIVE


def _limited(data: dict[str, Any]) -> Signs:
    """A limit that is reached; the same event with another status comes with good runs."""
    told = data if "rate_limit_info" in data else table(data.get("api_error_params"))
    info = table(told.get("rate_limit_info"))
    if info.get("status") != "rejected":
        return NOTHING
    return (Limited(epoch(info.get("resetsAt")), text(info.get("rateLimitType"), NAME_CHARS)),)


WAYS: Final = Ways(
    program="claude",
    install="npm install -g @anthropic-ai/claude-code",
    tells_costs=True,
    first_events=("system",),
    start=("-p", "--output-format", "stream-json", "--verbose"),
    bypass=("--dangerously-skip-permissions",),
    bypass_instead=(
        "--permission-mode",
        "--allowedTools",
        "--allowed-tools",
        "--permission-prompt-tool",
        "--permission-prompts",
        "--allow-dangerously-skip-permissions",
    ),
    model_flag="--model",
    resume=("--resume",),
    parser=ClaudeParser,
    environment={
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        # Its own ladder is ten retries in three minutes and six minutes of silence each; the loop has one.
        "CLAUDE_CODE_MAX_RETRIES": "2",
        "API_TIMEOUT_MS": "120000",
    },
    as_root={"IS_SANDBOX": "1"},  # else it refuses to work as root without asking for permission
)
