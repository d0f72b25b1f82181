"""How each CLI speaks: the same few things said in the lines that claude, codex, gemini and opencode print.

What a voice cannot say (codex knows no price) it leaves out. Nothing here decides anything.
"""

import json
import os
import time
from typing import Any

from tests.players.played.texts import Failure, claude_text, codex_text, gemini_text, message


def put(data: bytes, descriptor: int = 1) -> None:
    """Write all of ``data``, whatever its size."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class Voice:
    """A CLI that prints plain text: its failures go to stderr, and it ends without a final event."""

    name = "plain"

    def __init__(self, session: str) -> None:
        self.session = session
        self.cost_usd = 0.0
        self.tokens = (1200, 84)

    def started(self) -> None:
        """It is about to begin."""

    def echo(self, prompt: str) -> None:
        """It shows what it was asked."""
        self.say(prompt)

    def say(self, text: str) -> None:
        """Its own words."""
        put(f"{text}\n".encode())

    def use(self, command: str, output: str) -> None:
        """It has used a tool."""
        put(f"$ {command}\n{output}\n".encode())

    def retrying(self, attempt: int, most: int, delay_s: float) -> None:
        """It has met an overloaded server and tries again by itself."""
        put(f"Overloaded. Retrying in {delay_s:g} seconds ({attempt}/{most})\n".encode())

    def empty_step(self) -> None:
        """It got an answer with nothing in it."""

    def good(self, text: str) -> int:
        """Its last words, and its exit status."""
        put(f"{text}\n".encode())
        return 0

    def bad(self, failure: Failure) -> int:
        """Why it gives up, and its exit status."""
        put(f"Error: {message(failure)}\n".encode(), 2)
        return 1

    def line(self, event: dict[str, Any]) -> None:
        """One event as a line."""
        put(json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")


class Claude(Voice):
    """``claude -p --output-format stream-json --verbose``: everything on stdout, failures too."""

    name = "claude"

    def started(self) -> None:
        self.line(
            {"type": "system", "subtype": "init", "cwd": os.getcwd(), "session_id": self.session,
             "tools": ["Bash"], "mcp_servers": [], "model": "claude-played-1",
             "permissionMode": "bypassPermissions"}
        )  # fmt: skip

    def echo(self, prompt: str) -> None:
        self.say(prompt)

    def say(self, text: str) -> None:
        self._message("assistant", [{"type": "text", "text": text}])

    def use(self, command: str, output: str) -> None:
        self._message(
            "assistant",
            [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": command}}],
        )
        self._message(
            "user", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": output, "is_error": False}]
        )

    def retrying(self, attempt: int, most: int, delay_s: float) -> None:
        self.line(
            {"type": "system", "subtype": "api_retry", "attempt": attempt, "max_retries": most,
             "retry_delay_ms": round(delay_s * 1000), "error_status": 529, "error": "overloaded",
             "session_id": self.session}
        )  # fmt: skip

    def good(self, text: str) -> int:
        self.say(text)
        self._result(False, text, "completed")
        return 0

    def bad(self, failure: Failure) -> int:
        text = claude_text(failure)
        more: dict[str, Any] = {"api_error_status": failure.status}
        if failure.kind == "usage_limit":
            limit: dict[str, Any] = {"status": "rejected", "rateLimitType": "five_hour"}
            if failure.resets_in_s is not None:
                limit["resetsAt"] = int(time.time() + failure.resets_in_s + 0.999)
            self.line({"type": "rate_limit_event", "rate_limit_info": limit, "session_id": self.session})
            more |= {"api_error_type": "rate_limit_error", "api_error": "usage_limit_reached"}
        elif failure.kind == "econnreset":
            more["api_error"] = "connection_failed"
        self._message("assistant", [{"type": "text", "text": text}], synthetic=True)
        self._result(True, text, "prompt_too_long" if failure.kind == "context" else "api_error", **more)
        return 1

    def _message(self, role: str, content: list[dict[str, Any]], *, synthetic: bool = False) -> None:
        message: dict[str, Any] = {"role": role, "type": "message", "content": content}
        if role == "assistant":
            message["model"] = "<synthetic>" if synthetic else "claude-played-1"
        event = {"type": role, "message": message, "session_id": self.session}
        self.line(event | ({"is_api_error_message": True} if synthetic else {}))

    def _result(self, is_error: bool, text: str, reason: str, **more: Any) -> None:
        tokens = {"input_tokens": self.tokens[0], "output_tokens": self.tokens[1]}
        usage = {} if is_error else {"claude-played-1": {"costUSD": self.cost_usd}}
        self.line(
            {"session_id": self.session, "total_cost_usd": self.cost_usd, "usage": tokens,
             "modelUsage": usage, "terminal_reason": reason, "is_error": is_error, "num_turns": 2,
             "subtype": "success", "api_error_status": None, "result": text, "type": "result",
             "duration_ms": 900} | more
        )  # fmt: skip


class Codex(Voice):
    """``codex exec --json``: only ``turn.failed`` and ``turn.completed`` are its verdict; no price."""

    name = "codex"

    def started(self) -> None:
        put(b"Reading additional input from stdin...\n", 2)
        self.line({"type": "thread.started", "thread_id": self.session})
        self.line({"type": "turn.started"})

    def say(self, text: str) -> None:
        self._item({"id": "item_2", "type": "agent_message", "text": text})

    def use(self, command: str, output: str) -> None:
        item = {"id": "item_1", "type": "command_execution", "command": f"/bin/bash -lc {command!r}"}
        begun = item | {"aggregated_output": "", "exit_code": None, "status": "in_progress"}
        self.line({"type": "item.started", "item": begun})
        self._item(item | {"aggregated_output": output, "exit_code": 0, "status": "completed"})

    def retrying(self, attempt: int, most: int, delay_s: float) -> None:
        self.line(
            {
                "type": "error",
                "message": f"Reconnecting... {attempt}/{most} (unexpected status 529: Overloaded)",
            }
        )

    def good(self, text: str) -> int:
        self.say(text)
        usage = {"input_tokens": self.tokens[0], "cached_input_tokens": 0, "output_tokens": self.tokens[1]}
        self.line({"type": "turn.completed", "usage": usage | {"reasoning_output_tokens": 0}})
        return 0

    def bad(self, failure: Failure) -> int:
        text = codex_text(failure)
        self.line({"type": "error", "message": text})
        self.line({"type": "turn.failed", "error": {"message": text}})
        return 1

    def _item(self, item: dict[str, Any]) -> None:
        self.line({"type": "item.completed", "item": item})


class Gemini(Voice):
    """``gemini --output-format stream-json``: its exit status is the HTTP status modulo 256; no price."""

    name = "gemini"

    def started(self) -> None:
        put(b"YOLO mode is enabled. All tool calls will be automatically approved.\n", 2)
        self._event("init", session_id=self.session, model="gemini-played-1")

    def echo(self, prompt: str) -> None:
        self._event("message", role="user", content=prompt)

    def say(self, text: str) -> None:
        self._event("message", role="assistant", content=text, delta=True)

    def use(self, command: str, output: str) -> None:
        self._event(
            "tool_use", tool_name="run_shell_command", tool_id="run_1", parameters={"command": command}
        )
        self._event("tool_result", tool_id="run_1", status="success", output=output)

    def retrying(self, attempt: int, most: int, delay_s: float) -> None:
        put(f"Attempt {attempt} failed with status 503. Retrying with backoff...\n".encode(), 2)

    def good(self, text: str) -> int:
        self.say(text)
        self._event("result", status="success", stats=self._stats())
        return 0

    def bad(self, failure: Failure) -> int:
        error = {"type": "unknown", "message": f"[API Error: {gemini_text(failure)}]"}
        self._event("result", status="error", error=error, stats=self._stats())
        return {"usage_limit": 173, "rate_limit": 173, "overloaded": 247, "econnreset": 1}.get(
            failure.kind, 144
        )

    def _stats(self) -> dict[str, Any]:
        sent, got = self.tokens
        return {"total_tokens": sent + got, "input_tokens": sent, "output_tokens": got, "cached": 0,
                "tool_calls": 1, "duration_ms": 222, "models": {}}  # fmt: skip

    def _event(self, kind: str, **more: Any) -> None:
        self.line({"type": kind, "timestamp": "2026-11-21T21:01:41.682Z"} | more)


class Opencode(Voice):
    """``opencode run --format json``: no final event; nothing is printed while it tries again."""

    name = "opencode"

    def say(self, text: str) -> None:
        self._part("text", {"type": "text", "text": text})

    def use(self, command: str, output: str) -> None:
        self._part("step_start", {"type": "step-start"})
        state = {"status": "completed", "input": {"command": command}, "output": output, "title": command}
        self._part("tool_use", {"type": "tool", "tool": "bash", "callID": "call_1", "state": state})
        self._finish("tool-calls", *self.tokens, 0.0)

    def retrying(self, attempt: int, most: int, delay_s: float) -> None:
        """It is silent."""

    def empty_step(self) -> None:
        self._part("step_start", {"type": "step-start"})
        self._finish("unknown", 0, 0, 0.0)

    def good(self, text: str) -> int:
        self._part("step_start", {"type": "step-start"})
        self.say(text)
        self._finish("stop", *self.tokens, self.cost_usd)
        return 0

    def bad(self, failure: Failure) -> int:
        text = message(failure)
        headers = {"content-type": "application/json"}
        if failure.wait_s is not None:
            headers |= {"retry-after": f"{failure.wait_s:g}"}
        body: dict[str, Any] = {
            "message": text,
            "type": "usage_limit_reached" if failure.kind == "usage_limit" else "error",
        }
        if failure.resets_in_s is not None:
            body["resets_in_seconds"] = round(failure.resets_in_s, 3)
        data = {"message": text, "isRetryable": failure.status in (429, 529), "responseHeaders": headers,
                "responseBody": json.dumps({"error": body})}  # fmt: skip
        if failure.status is not None:
            data["statusCode"] = failure.status
        error = {"name": "APIError", "data": data}
        self.line({"type": "error", "timestamp": 1795293751156, "sessionID": self.session, "error": error})
        return 1

    def _finish(self, reason: str, sent: int, got: int, cost: float) -> None:
        tokens = {
            "total": sent + got,
            "input": sent,
            "output": got,
            "reasoning": 0,
            "cache": {"write": 0, "read": 0},
        }
        self._part("step_finish", {"type": "step-finish", "reason": reason, "tokens": tokens, "cost": cost})

    def _part(self, kind: str, part: dict[str, Any]) -> None:
        named = part | {"id": "prt_1", "messageID": "msg_1", "sessionID": self.session}
        self.line({"type": kind, "timestamp": 1795294917905, "sessionID": self.session, "part": named})


VOICES: dict[str, type[Voice]] = {voice.name: voice for voice in (Claude, Codex, Gemini, Opencode)}
