"""Anthropic's Messages API, as claude asks it."""

import json
import time
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any

from tests.agents.vendors.answers import Answer, Asked, Call, Event, How, Refusal

_WEEK_S = 4 * 86400
_USAGE = {"input_tokens": 1200, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}


def read(path: str, body: Mapping[str, Any]) -> Asked:
    """What a request to ``/v1/messages`` wants."""
    since = takewhile(lambda each: each.get("role") != "assistant", reversed(body.get("messages") or []))
    contents = [each["content"] for each in since if isinstance(each.get("content"), list)]
    results = (block for content in contents for block in content if block.get("type") == "tool_result")
    return Asked(
        model=body.get("model", "unknown"),
        streams=bool(body.get("stream")),
        result=next(map(_text, results), None),
        tools={tool["name"]: tool.get("input_schema") or {} for tool in body.get("tools") or ()},
    )


def _text(result: Mapping[str, Any]) -> str:
    content = result.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("text") or block.get("tool_name")) for block in content)


def events(asked: Asked, reply: Call | str) -> Iterator[Event]:
    """A message as a stream."""
    message = whole(asked, reply) | {"content": [], "stop_reason": None}
    block = _block(reply)
    if isinstance(reply, Call):
        delta = {"type": "input_json_delta", "partial_json": _json(reply.arguments)}
        empty = block | {"input": {}}
    else:
        delta, empty = {"type": "text_delta", "text": reply}, block | {"text": ""}
    for data in (
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": _stop(reply), "stop_sequence": None},
            "usage": {"output_tokens": 42},
        },
        {"type": "message_stop"},
    ):
        yield str(data["type"]), data


def whole(asked: Asked, reply: Call | str) -> dict[str, Any]:
    """The same message in one piece."""
    return {
        "id": f"msg_{time.time_ns()}", "type": "message", "role": "assistant", "model": asked.model,
        "content": [_block(reply)], "stop_reason": _stop(reply), "stop_sequence": None,
        "usage": _USAGE | {"output_tokens": 42},
    }  # fmt: skip


def refusal(answer: Answer) -> Refusal:
    """What the service says when it fails so."""
    match answer.how:
        case How.RATE_LIMIT:
            text = "This request would exceed your organization's rate limit. Please try again later."
            return _error(429, "rate_limit_error", text, _retry_after(answer.retry_after_s))
        case How.USAGE_LIMIT:
            text = "This request would exceed your account's rate limit. Please try again later."
            return _error(429, "rate_limit_error", text, _window(answer.reset_at or 0.0))
        case How.OVERLOADED:
            return _error(529, "overloaded_error", "Overloaded")
        case How.UNAVAILABLE:
            return _error(503, "api_error", "Service unavailable")
        case _:
            return _error(401, "authentication_error", "invalid x-api-key")


def _error(status: int, kind: str, text: str, headers: Mapping[str, str] | None = None) -> Refusal:
    return Refusal(status, {"type": "error", "error": {"type": kind, "message": text}}, headers or {})


def _retry_after(seconds: int | None) -> dict[str, str]:
    return {} if seconds is None else {"retry-after": str(seconds)}


def _window(reset_at: float) -> dict[str, str]:
    """The headers of a subscription whose five hours are used up."""
    prefix, epoch = "anthropic-ratelimit-unified-", int(reset_at)
    told = {
        "status": "rejected", "reset": epoch, "representative-claim": "five_hour",
        "5h-status": "rejected", "5h-reset": epoch, "5h-utilization": "1.0",
        "7d-status": "allowed", "7d-reset": epoch + _WEEK_S, "7d-utilization": "0.4",
        "overage-status": "rejected", "overage-disabled-reason": "org_level_disabled",
    }  # fmt: skip
    left_s = max(1, epoch - int(time.time()))
    return {prefix + name: str(value) for name, value in told.items()} | {"retry-after": str(left_s)}


def _block(reply: Call | str) -> dict[str, Any]:
    if isinstance(reply, Call):
        use = {"id": f"toolu_{time.time_ns()}", "name": reply.name, "input": dict(reply.arguments)}
        return {"type": "tool_use"} | use
    return {"type": "text", "text": reply}


def _stop(reply: Call | str) -> str:
    return "tool_use" if isinstance(reply, Call) else "end_turn"


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value))
