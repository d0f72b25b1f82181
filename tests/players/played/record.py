"""The script of a play, which call takes which of its steps, what each call was: files under one lock."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Step = dict[str, Any]
TOLD = ("RALPH", "CI", "TERM", "NO_COLOR", "CLAUDE_", "GEMINI_", "OPENCODE_", "DISABLE_")


class Book:
    """A script; ``SCRIPT.state`` (steps taken, limits, living calls) and ``SCRIPT.calls`` beside it."""

    def __init__(self, script: str) -> None:
        self._script = script
        self.number = 0

    def begin(self, agent: str, argv: list[str], prompt: str, stdin: str, session: str | None) -> Step:
        """Record the call that begins, and give the step that it has to play."""
        now = time.time()
        with self._state() as state:
            self.number = state["calls"] = state.get("calls", 0) + 1
            living = {number: seen for number, seen in state.get("living", {}).items() if _lives(*seen)}
            step = self._step(state, agent, now)
            call = {
                "number": self.number,
                "agent": agent,
                "argv": argv,
                "stdin": stdin,
                "prompt": prompt,
                "environment": {key: value for key, value in os.environ.items() if key.startswith(TOLD)},
                "directory": os.getcwd(),
                "pid": os.getpid(),
                "session": session,
                "started_at": now,
                "beside": sorted(map(int, living)),
                "do": step.get("do", "task"),
                "limited": bool(step.get("again")),
            }
            living[str(self.number)] = [os.getpid(), _born(os.getpid())]
            state["living"] = living
        self._write(call)  # who sees it may kill the call: by now the step is taken for good
        return step

    def end(self, code: int) -> None:
        """Record that the call ended by itself; a call without such a record was ended."""
        with self._state() as state:
            state.get("living", {}).pop(str(self.number), None)
            self._write({"number": self.number, "ended_at": time.time(), "exit": code})

    def _step(self, state: dict[str, Any], agent: str, now: float) -> Step:
        """The step of a limit that still holds for this agent, else the first that nobody has taken yet."""
        limits = state.setdefault("limits", {})
        if agent in limits and now < limits[agent]["until"]:
            left = limits[agent]["until"] - now
            return {**limits[agent]["step"], "left_s": left, "again": True}
        with open(self._script, encoding="utf-8") as file:
            script = json.load(file)
        taken = state.setdefault("taken", [])
        step: Step = script.get("otherwise", {"do": "task"})
        for at, candidate in enumerate(script.get("steps", [])):
            if at not in taken and candidate.get("agent", agent) == agent:
                taken.append(at)
                step = candidate
                break
        if step.get("holds_s"):
            limits[agent] = {"until": now + step["holds_s"], "step": step}
        return {**step, "left_s": step["holds_s"]} if step.get("holds_s") else step

    def _write(self, record: dict[str, Any]) -> None:
        with open(f"{self._script}.calls", "ab") as file:
            file.write(json.dumps(record).encode() + b"\n")

    @contextmanager
    def _state(self) -> Iterator[dict[str, Any]]:
        # A call may be killed at any moment: what it leaves is the state before or the one after.
        file = os.open(f"{self._script}.state", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = os.fstat(file).st_size
            state: dict[str, Any] = json.loads(os.pread(file, size, 0) or b"{}")
            yield state
            os.pwrite(file, json.dumps(state).encode().ljust(size), 0)
        finally:
            os.close(file)


def _born(pid: int) -> int:
    """The kernel's start time of a process, by which a pid that is used again is known."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rpartition(")")[2].split()[19])


def _lives(pid: int, born: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            words = file.read().rpartition(")")[2].split()
    except OSError:
        return False
    return words[0] not in "ZX" and int(words[19]) == born
