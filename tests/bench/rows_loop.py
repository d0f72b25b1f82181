"""What the built-in loop costs: an iteration without its agent, its memory, and listening to an agent."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ralphd.process import shim
from tests.bench.agents import __file__ as AGENTS
from tests.bench.bench import Bench
from tests.bench.measure import wait_until
from tests.bench.ours import Daemon
from tests.bench.table import Line, Verdict

ITERATIONS = 20
ITERATION_GOAL_S = 0.150
MEMORY_GOAL_MB = 60.0
LOOP_S = 60.0
TALK_BYTES = 200_000_000
TALK_GOAL = 50.0
GROWTH_MB = 5.0
LISTEN_S = 100.0
HOW_ITERATED = (
    f"{ITERATIONS} iterations of the built-in loop under a daemon, each one task of a check list that an"
    " agent ticks and commits; CPU seconds of the loop and of all that it started (git), less what the agent"
    " says it took itself. Memory is the loop's resident memory at its most."
)
HOW_TALKED = (
    f"{TALK_BYTES // 10**6} MB of an agent's events from its process to the loop's log, by CPU second of the"
    " loop's process: step after step of some words, a tool's use and its result, which is 0.5, 2, 8 or"
    " 16 kB long. Growth is how much higher its memory rises than with a tenth of it."
)
_WORDS = "I look at what is there, then change it. " * 10
_RESULT = "total 12: what a tool found\n"
_RESULT_BYTES = (500, 2_000, 8_000, 16_000)
_STEPS = 16


def iterations(bench: Bench) -> Sequence[Line]:
    """One loop under one daemon."""
    daemon = Daemon(bench.place())
    record, last = daemon.home / "record", ITERATIONS + 1
    directory = _project(daemon, record, last)
    try:
        daemon.start()
        body = {"directory": str(directory), "command": [], "environment": daemon.environment}
        daemon.ask("POST", "/v1/ralphs", body)
        loop = _awaited(record, 1, daemon)
        before_s = _whole_cpu_s(loop)
        Path(f"{record}.1").touch()
        _awaited(record, last, daemon)
        spent_s = _whole_cpu_s(loop) - before_s
        peak_mb = _peak_mb(loop)
        agents_s = sum(map(float, record.read_text().split()))
        Path(f"{record}.{last}").touch()
        wait_until(
            lambda: daemon.status()["loop"]["state"] == "done", limit_s=LOOP_S, what="the loop is done"
        )
    finally:
        daemon.close()
    each_s = (spent_s - agents_s) / ITERATIONS
    return [
        Line(
            "the loop's own CPU, an iteration", "<= 150 ms", f"{each_s * 1e3:.0f} ms",
            Verdict.of(each_s <= ITERATION_GOAL_S), HOW_ITERATED,
        ),
        Line(
            "memory of the loop", "<= 60 MB", f"{peak_mb:.0f} MB", Verdict.of(peak_mb <= MEMORY_GOAL_MB),
            "The same loop.",
        ),
    ]  # fmt: skip


def _project(daemon: Daemon, record: Path, last: int) -> Path:
    """A repository with a prompt, a list of tasks, and the agent that does them."""
    directory = daemon.home / "work" / "loop"
    directory.mkdir(parents=True)
    command = json.dumps([sys.executable, "-I", "-S", AGENTS, "work", str(record), str(last)])
    (directory / "ralph.toml").write_text(
        f'[agents]\nprimary = "worker"\n[agents.worker]\ncommand = {command}\n'
    )
    (directory / "PROMPT.md").write_text("Do the next task.\n")
    (directory / "TASKS.md").write_text("".join(f"- [ ] task {number + 1}\n" for number in range(last)))
    (daemon.home / ".gitconfig").write_text("[user]\nname = bench\nemail = bench@localhost\n")
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "tasks"]):
        subprocess.run(["git", *words], cwd=directory, env=daemon.environment, check=True, timeout=20)
    return directory


def _awaited(record: Path, number: int, daemon: Daemon) -> int:
    """Wait until the agent is at that call and waits; the pid of the loop."""
    wait_until(Path(f"{record}.{number}.here").exists, limit_s=LOOP_S, what=f"call {number} of the agent")
    return int(daemon.status()["loop"]["ralph_pid"])


def _whole_cpu_s(pid: int) -> float:
    """CPU seconds of a process and of all its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _peak_mb(pid: int) -> float:
    text = shim.read_bytes(f"/proc/{pid}/status").decode()
    return int(text.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


def listening(bench: Bench) -> Sequence[Line]:
    """Each of the four agents' formats; the slowest counts."""
    speeds, growths = {}, {}
    for agent, (block, end) in _blocks().items():
        place = bench.place()
        (place / "block").write_bytes(block)
        few = _listened(agent, place, len(block), TALK_BYTES // 10, end)
        all_of_it = _listened(agent, place, len(block), TALK_BYTES, end)
        speeds[agent] = TALK_BYTES / 1e6 / all_of_it["cpu_s"]
        growths[agent] = all_of_it["peak_mb"] - few["peak_mb"]
    growth_mb = max(growths.values())
    told = ", ".join(f"{agent} {speed:.0f}" for agent, speed in speeds.items())
    met = min(speeds.values()) >= TALK_GOAL and growth_mb <= GROWTH_MB
    return [
        Line(
            "agents' output read, MB by CPU s", ">= 50, no growth", f"{told}; growth {growth_mb:.1f} MB",
            Verdict.of(met), HOW_TALKED,
        )
    ]  # fmt: skip


def _listened(agent: str, place: Path, block_bytes: int, size: int, end: str) -> dict[str, Any]:
    words = [agent, str(place), str(place / "block"), str(size // block_bytes), end]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tests.bench.listener", *words],
        cwd=Path(__file__).parents[2], check=True, timeout=LISTEN_S, stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    told: dict[str, Any] = json.loads(done.stdout)
    if not told["ended_well"]:
        raise ValueError(f"{agent} was not heard to its end")
    return told


def _blocks() -> dict[str, tuple[bytes, str]]:
    """For each agent some of the steps that it prints, again and again, and the line that ends it."""
    made: dict[str, tuple[_Step, dict[str, Any]]] = {
        "claude": (_claude, {"type": "result", "subtype": "success", "is_error": False}),
        "codex": (_codex, {"type": "turn.completed", "usage": {"input_tokens": 1}}),
        "gemini": (_gemini, {"type": "result", "status": "success", "stats": {}}),
        "opencode": (_opencode, _step_finish("stop")),
    }
    results = [(_RESULT * (size // len(_RESULT) + 1))[:size] for size in _RESULT_BYTES] * _STEPS
    return {agent: (_lines(step, results), json.dumps(end)) for agent, (step, end) in made.items()}


def _lines(step: "_Step", results: Sequence[str]) -> bytes:
    return "".join(json.dumps(event) + "\n" for result in results for event in step(result)).encode()


def _claude(result: str) -> list[dict[str, Any]]:
    def assistant(block: dict[str, Any]) -> dict[str, Any]:
        return {"type": "assistant", "message": {"model": "m", "content": [block]}, "session_id": "s"}

    use = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": _WORDS}}
    told = {"type": "user", "message": {"content": [{"type": "tool_result", "content": result}]}}
    return [assistant({"type": "text", "text": _WORDS}), assistant(use), told]


def _codex(result: str) -> list[dict[str, Any]]:
    def item(event: str, **more: Any) -> dict[str, Any]:
        return {"type": f"item.{event}", "item": {"id": "item_1", **more}}

    command = {"type": "command_execution", "command": _WORDS}
    return [
        item("completed", type="agent_message", text=_WORDS),
        item("started", **command),
        item("completed", **command, aggregated_output=result, exit_code=0),
    ]


def _gemini(result: str) -> list[dict[str, Any]]:
    piece = {"type": "message", "role": "assistant", "content": _WORDS[:200], "delta": True}
    use = {"type": "tool_use", "tool_name": "run", "parameters": {"command": _WORDS}}
    return [piece, piece, use, {"type": "tool_result", "tool_id": "t", "status": "success", "output": result}]


def _opencode(result: str) -> list[dict[str, Any]]:
    def event(kind: str, **part: Any) -> dict[str, Any]:
        return {"type": kind, "sessionID": "s", "part": part}

    state = {"status": "completed", "input": {"command": _WORDS}, "output": result}
    words = event("text", type="text", text=_WORDS)
    return [
        event("step_start"),
        words,
        event("tool_use", tool="bash", state=state),
        _step_finish("tool-calls"),
    ]


def _step_finish(reason: str) -> dict[str, Any]:
    tokens = {"input": 1200, "output": 42, "reasoning": 0, "cache": {"write": 0, "read": 0}}
    part = {"type": "step-finish", "reason": reason, "tokens": tokens, "cost": 0.01}
    return {"type": "step_finish", "sessionID": "s", "part": part}


_Step = Callable[[str], list[dict[str, Any]]]
