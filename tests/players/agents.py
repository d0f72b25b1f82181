"""Agents for tests: programs on PATH that speak as claude, codex, gemini and opencode do, and play a script.

    bin = agents.install(tmp_path / "bin")
    steps = [{"do": "rate_limit", "holds_s": 2}, {"do": "task"}]
    script = agents.write_script(tmp_path / "script.json", steps)
    environment = agents.environment(bin, script)
    ... run the loop ...
    assert [call.do for call in agents.calls(script)] == ["rate_limit", "task"]

Each call takes the first step that is left and names no other ``agent``; when none is left, ``otherwise``
(``{"do": "task"}``). ``do`` is one of HABITS in ``played/habits.py``:

- ``task``: a file, the tick in every list, a commit; ``files`` writes more, ``says`` are its last words,
  ``detaches``: on no branch;
- ``rate_limit, usage_limit, overloaded, econnreset, fatal, context``: gives up as that CLI does. With
  ``holds_s`` every call of this agent within that time meets the same, is told what is left of it, and takes
  no step (``limited`` in its record); ``hint: false`` tells no time. ``rate_limit`` with ``seconds`` tells a
  time that does not hold;
- ``crash`` (``exit``, ``signal``, ``message``, ``leaves``: files by name), ``crash_then_hang``
  (``message``), ``hang``, ``hang_stubborn``, ``result_then_hang``, ``empty``, ``empty_steps`` (``seconds``);
- ``retry_loop`` (``seconds``, then ``recovers`` or gives up with ``kind``);
- ``think`` (``seconds``, ``every_s``): silent, writes a file now and then, does the task;
- ``claim`` (``says``, ``runs``), ``promise`` (``after_task``), ``parrot`` (the prompt as its answer).

With any that speaks: ``takes_s, cost_usd, tokens, echo_prompt, retries, talks_of, output_mb, long_line_mb,
broken_lines, escape_codes, stderr, leave_child, delete_untracked`` (``clean_paths``).
"""

import json
import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAMES = ("claude", "codex", "gemini", "opencode", "plain")


@dataclass(frozen=True, slots=True)
class Call:
    """What one call of an agent was. ``beside`` are the calls that lived when it began.

    ``ended_at`` and ``exit`` are None where it did not end by itself.
    """

    number: int
    agent: str
    argv: tuple[str, ...]
    stdin: str
    prompt: str
    environment: Mapping[str, str]
    directory: str
    pid: int
    session: str | None
    started_at: float
    beside: tuple[int, ...]
    do: str
    limited: bool
    ended_at: float | None = None
    exit: int | None = None


def install(directory: Path, names: Iterable[str] = NAMES) -> Path:
    """Put agents of these names into ``directory``, which is made; gives it, for PATH.

    Who asks for the version alone gets one, and that is no call.
    """
    directory.mkdir(parents=True, exist_ok=True)
    player = Path(__file__).with_name("agent.py").resolve()
    for name in names:
        program = directory / name
        words = shlex.join([sys.executable, "-S", "-E", str(player), name])
        asked = 'if [ "$*" = --version ]; then echo 1.0.0; exit; fi'
        program.write_text(f'#!/bin/sh\n{asked}\nexec {words} "$@"\n')
        program.chmod(0o755)
    return directory


def write_script(path: Path, steps: Sequence[Mapping[str, Any]], **more: Any) -> Path:
    """Write a script and forget what was played of it; ``more`` may name ``otherwise``."""
    path.write_text(json.dumps({"steps": list(steps), **more}))
    for suffix in (".state", ".calls", ".children"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    return path


def environment(directory: Path, script: Path) -> dict[str, str]:
    """What has to be added to an environment so that the installed agents are found and know their script."""
    return {"PATH": f"{directory}{os.pathsep}{os.environ['PATH']}", "PLAYED_SCRIPT": str(script)}


def calls(script: Path) -> list[Call]:
    """The calls so far, in the order in which they began."""
    found: dict[int, dict[str, Any]] = {}
    path = Path(f"{script}.calls")
    for line in path.read_text().splitlines() if path.exists() else ():
        record = json.loads(line)
        found.setdefault(record["number"], {}).update(record)
    return [
        Call(**{**record, "argv": tuple(record["argv"]), "beside": tuple(record["beside"])})
        for _, record in sorted(found.items())
    ]


def children(script: Path) -> list[int]:
    """The pids of the children that calls left behind (``leave_child``)."""
    path = Path(f"{script}.children")
    return [int(line) for line in path.read_text().split()] if path.exists() else []
