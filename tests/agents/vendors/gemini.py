"""Gemini's generateContent and streamGenerateContent, as gemini asks them."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from tests.agents.vendors.answers import Answer, Asked, Call, Event, How, Refusal

_RPC = "type.googleapis.com/google.rpc."
_METRIC = "generativelanguage.googleapis.com/generate_content_free_tier_requests"


def read(path: str, body: Mapping[str, Any]) -> Asked:
    """What a request to ``/v1beta/models/MODEL:generateContent`` wants."""
    parts = (body.get("contents") or [{}])[-1].get("parts") or ()
    declared = [each for group in body.get("tools") or () for each in group.get("functionDeclarations") or ()]
    model = path.rpartition("/")[2].partition(":")[0]
    return Asked(
        model=model,
        streams="stream" in path.rpartition(":")[2],
        result=next((str(part["functionResponse"]) for part in parts if "functionResponse" in part), None),
        tools={
            each["name"]: each.get("parametersJsonSchema") or each.get("parameters") or {}
            for each in declared
        },
    )


def events(asked: Asked, reply: Call | str) -> Iterator[Event]:
    """An answer as a stream: a beginning without an end to it, and the rest."""
    if isinstance(reply, str):
        begun = whole(asked, "So. ")
        del begun["candidates"][0]["finishReason"]
        yield None, begun
    yield None, whole(asked, reply)


def whole(asked: Asked, reply: Call | str) -> dict[str, Any]:
    """The same answer in one piece."""
    part = (
        {"functionCall": {"name": reply.name, "args": dict(reply.arguments)}}
        if isinstance(reply, Call)
        else {"text": reply}
    )
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 1200, "candidatesTokenCount": 42, "totalTokenCount": 1242}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": asked.model}


def refusal(answer: Answer) -> Refusal:
    """What the service says when it fails so."""
    match answer.how:
        case How.RATE_LIMIT if answer.retry_after_s is None:
            return _error(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota).")
        case How.RATE_LIMIT:
            return _exhausted("Minute", 5, f"{answer.retry_after_s}.412")
        case How.USAGE_LIMIT:
            return _exhausted("Day", 100, str(max(1, round((answer.reset_at or 0.0) - time.time()))))
        case How.OVERLOADED | How.UNAVAILABLE:
            return _error(503, "UNAVAILABLE", "The model is overloaded. Please try again later.")
        case _:
            return _error(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.")


def _exhausted(per: str, limit: int, after_s: str) -> Refusal:
    text = (
        "You exceeded your current quota, please check your plan and billing details.\n"
        f"* Quota exceeded for metric: {_METRIC}, limit: {limit}, model: gemini-2.5-pro\n"
        f"Please retry in {after_s}s."
    )
    violation = {
        "quotaMetric": _METRIC, "quotaId": f"GenerateRequestsPer{per}PerProjectPerModel-FreeTier",
        "quotaDimensions": {"location": "global", "model": "gemini-2.5-pro"}, "quotaValue": str(limit),
    }  # fmt: skip
    details: list[dict[str, Any]] = [
        {"@type": f"{_RPC}QuotaFailure", "violations": [violation]},
        {"@type": f"{_RPC}RetryInfo", "retryDelay": f"{after_s}s"},
    ]
    return _error(429, "RESOURCE_EXHAUSTED", text, details)


def _error(status: int, name: str, text: str, details: list[dict[str, Any]] | None = None) -> Refusal:
    error = {"code": status, "message": text, "status": name} | ({"details": details} if details else {})
    return Refusal(status, {"error": error})
