"""Event streams as the vendors' CLIs print them, one list of lines per CLI, shortened."""

import json

AT = "2026-11-21T21:00:00.000000000Z"


def lines(*events: dict[str, object]) -> list[str]:
    return [json.dumps(event, separators=(",", ":")) for event in events]


def claude(session: str = "s-1", cost: float = 0.11, text: str = "I fixed it.") -> list[str]:
    edit = {"file_path": "/repo/a.py", "old_string": "x = 1", "new_string": "x = 2"}
    content = [{"type": "text", "text": text}, {"type": "tool_use", "name": "Edit", "input": edit}]
    result = [{"type": "tool_result", "content": [{"type": "text", "text": "1 line changed"}]}]
    usage = {"input_tokens": 1200, "output_tokens": 40, "cache_read_input_tokens": 800}
    return lines(
        {"type": "system", "subtype": "init", "session_id": session, "model": "claude-opus-5-5"},
        {"type": "assistant", "message": {"role": "assistant", "content": content}, "session_id": session},
        {"type": "user", "message": {"role": "user", "content": result}, "session_id": session},
        {"duration_ms": 9, "session_id": session, "total_cost_usd": cost, "usage": usage, "is_error": False,
         "result": text, "subtype": "success", "type": "result"},
    )  # fmt: skip


def limited(session: str = "s-1", resets_at: int = 1795304674) -> list[str]:
    info = {"status": "rejected", "resetsAt": resets_at, "rateLimitType": "five_hour"}
    words = "You've hit your 5-hour limit"
    message = {"role": "assistant", "model": "<synthetic>", "content": [{"type": "text", "text": words}]}
    return lines(
        {"type": "rate_limit_event", "rate_limit_info": info, "session_id": session},
        {"type": "assistant", "message": message, "session_id": session, "is_api_error_message": True},
        {"type": "result", "subtype": "success", "is_error": True, "api_error_status": 429, "result": words,
         "total_cost_usd": 0, "session_id": session},
    )  # fmt: skip


CODEX = lines(
    {"type": "thread.started", "thread_id": "t-1"},
    {"type": "turn.started"},
    {"type": "item.started", "item": {"type": "command_execution", "command": "make test"}},
    {"type": "item.completed", "item": {"type": "command_execution", "aggregated_output": "14 passed\n"}},
    {"type": "item.completed", "item": {"type": "agent_message", "text": "All tests pass."}},
    {"type": "turn.completed", "usage": {"input_tokens": 2400, "output_tokens": 84}},
)
CODEX_LIMITED = lines(
    {"type": "thread.started", "thread_id": "t-2"},
    {"type": "error", "message": "You’ve hit your usage limit. Upgrade to Pro or try again at 11:44 PM."},
    {
        "type": "turn.failed",
        "error": {"message": "You’ve hit your usage limit. Upgrade to Pro or try again at 11:44 PM."},
    },
)
_WHEN = "2026-11-21T21:01:41.682Z"
GEMINI = lines(
    {"type": "init", "timestamp": _WHEN, "session_id": "g-1", "model": "gemini-2.5-pro"},
    {"type": "message", "timestamp": _WHEN, "role": "user", "content": "the prompt"},
    {"type": "tool_use", "timestamp": _WHEN, "tool_name": "replace", "tool_id": "1",
     "parameters": {"file_path": "a.py", "old_string": "x", "new_string": "y"}},
    {"type": "tool_result", "timestamp": _WHEN, "tool_id": "1", "status": "success", "output": "replaced"},
    {"type": "message", "timestamp": _WHEN, "role": "assistant", "content": "Done ", "delta": True},
    {"type": "message", "timestamp": _WHEN, "role": "assistant", "content": "now.", "delta": True},
    {"type": "result", "timestamp": _WHEN, "status": "success",
     "stats": {"input_tokens": 7, "output_tokens": 3}},
)  # fmt: skip
_PART = {"sessionID": "ses_1", "timestamp": 1}
OPENCODE = lines(
    {"type": "step_start", **_PART, "part": {}},
    {"type": "tool_use", **_PART,
     "part": {"tool": "bash", "state": {"input": {"command": "ls"}, "output": "a.py\n"}}},
    {"type": "text", **_PART, "part": {"text": "One file."}},
    {"type": "step_finish", **_PART,
     "part": {"reason": "stop", "cost": 0.02, "tokens": {"input": 10, "output": 5}}},
)  # fmt: skip
