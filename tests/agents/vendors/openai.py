"""OpenAI's two APIs: Responses, as codex asks it, and Chat Completions, as opencode does."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from tests.agents.vendors.answers import Answer, Asked, Call, Event, How, Refusal

_CHAT_USAGE = {"prompt_tokens": 1200, "completion_tokens": 42, "total_tokens": 1242}
_RESPONSE_USAGE = {
    "input_tokens": 1200, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 42,
    "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 1242,
}  # fmt: skip


def read_response(path: str, body: Mapping[str, Any]) -> Asked:
    """What a request to ``/v1/responses`` wants."""
    given = body.get("input")
    last = given[-1] if isinstance(given, list) and given else {}
    is_result = str(last.get("type", "")).endswith("_call_output")
    return _asked(body, str(last.get("output")) if is_result else None)


def read_chat(path: str, body: Mapping[str, Any]) -> Asked:
    """What a request to ``/v1/chat/completions`` wants."""
    last = (body.get("messages") or [{}])[-1]
    return _asked(body, str(last.get("content")) if last.get("role") == "tool" else None)


def _asked(body: Mapping[str, Any], result: str | None) -> Asked:
    functions = [tool.get("function") or tool for tool in body.get("tools") or ()]
    tools = {each["name"]: each.get("parameters") or {} for each in functions if each.get("name")}
    return Asked(body.get("model", "unknown"), bool(body.get("stream")), result, tools)


def response_events(asked: Asked, reply: Call | str) -> Iterator[Event]:
    """A response as a stream."""
    response = whole_response(asked, reply)
    begun = response | {"status": "in_progress", "output": [], "usage": None}
    item = response["output"][0]
    yield _event("response.created", response=begun)
    yield _event("response.output_item.added", output_index=0, item=item | {"status": "in_progress"})
    if isinstance(reply, str):
        place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        yield _event("response.output_text.delta", **place, delta=reply)
    yield _event("response.output_item.done", output_index=0, item=item)
    yield _event("response.completed", response=response)


def whole_response(asked: Asked, reply: Call | str) -> dict[str, Any]:
    """The same response in one piece."""
    return {
        "id": f"resp_{time.time_ns()}", "object": "response", "created_at": int(time.time()),
        "model": asked.model, "status": "completed", "output": [_item(reply)], "usage": _RESPONSE_USAGE,
    }  # fmt: skip


def chat_events(asked: Asked, reply: Call | str) -> Iterator[Event]:
    """A chat completion as a stream."""
    base = _chat(asked, "chat.completion.chunk")
    message = _message(reply)
    if isinstance(reply, Call):
        message["tool_calls"] = [call | {"index": 0} for call in message["tool_calls"]]
    for delta, end in ((message, None), ({}, _finish(reply))):
        yield None, base | {"choices": [{"index": 0, "delta": delta, "finish_reason": end}]}
    yield None, base | {"choices": [], "usage": _CHAT_USAGE}
    yield None, "[DONE]"


def whole_chat(asked: Asked, reply: Call | str) -> dict[str, Any]:
    """The same completion in one piece."""
    choice = {"index": 0, "message": _message(reply), "finish_reason": _finish(reply)}
    return _chat(asked, "chat.completion") | {"choices": [choice], "usage": _CHAT_USAGE}


def refusal(answer: Answer) -> Refusal:
    """What the service says when it fails so."""
    match answer.how:
        case How.RATE_LIMIT:
            return _rate_limit(answer.retry_after_s)
        case How.USAGE_LIMIT:
            return _used_up(answer.reset_at or 0.0)
        case How.OVERLOADED:
            return _error(529, "server_error", "server_is_overloaded", "Overloaded")
        case How.UNAVAILABLE:
            text = "The engine is currently overloaded, please try again later"
            return _error(503, "server_error", None, text)
        case _:
            text = "Incorrect API key provided: made-up."
            return _error(401, "invalid_request_error", "invalid_api_key", text)


def _rate_limit(after_s: int | None) -> Refusal:
    if after_s is None:
        return _error(429, "requests", "rate_limit_exceeded", "Too Many Requests")
    text = (
        "Rate limit reached for gpt-5 in organization org-x on tokens per min (TPM): Limit 30000, "
        f"Used 29100, Requested 2100. Please try again in {after_s}s."
    )
    refused = _error(429, "tokens", "rate_limit_exceeded", text)
    return Refusal(refused.status, refused.body, {"retry-after": str(after_s)})


def _used_up(reset_at: float) -> Refusal:
    """The body of a ChatGPT plan whose window is used up."""
    left_s = max(1, round(reset_at - time.time()))
    error = {
        "type": "usage_limit_reached", "message": "The usage limit has been reached", "plan_type": "plus",
        "resets_at": int(reset_at), "resets_in_seconds": left_s,
    }  # fmt: skip
    return Refusal(429, {"error": error})


def _error(status: int, kind: str, code: str | None, text: str) -> Refusal:
    return Refusal(status, {"error": {"message": text, "type": kind, "param": None, "code": code}})


def _event(name: str, **data: Any) -> Event:
    return name, {"type": name} | data


def _item(reply: Call | str) -> dict[str, Any]:
    if isinstance(reply, Call):
        call = {"call_id": f"call_{time.time_ns()}", "arguments": json.dumps(dict(reply.arguments))}
        call |= {"namespace": reply.namespace} if reply.namespace else {}
        return {"type": "function_call", "id": "fc_1", "name": reply.name, "status": "completed"} | call
    content = [{"type": "output_text", "text": reply, "annotations": []}]
    return {
        "type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content
    }  # fmt: skip


def _chat(asked: Asked, kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": int(time.time()), "model": asked.model}


def _message(reply: Call | str) -> dict[str, Any]:
    if isinstance(reply, str):
        return {"role": "assistant", "content": reply}
    function = {"name": reply.name, "arguments": json.dumps(dict(reply.arguments))}
    call = {"id": f"call_{time.time_ns()}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _finish(reply: Call | str) -> str:
    return "tool_calls" if isinstance(reply, Call) else "stop"
