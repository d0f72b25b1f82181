"""The agents on PATH, each with the version that it tells of itself.

They are asked all at once, each within a time limit, after which all that it has started is ended.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from ralphctl.doctor.runner import ask
from ralphd.agents.agent import QUIET
from ralphd.agents.known import KNOWN, agent_of
from ralphd.config.specs import AgentSpec

LIMIT_S = 5.0
"""How long an agent may take to tell its version."""
_PATIENCE_S = 1.0
_VERSION = re.compile(r"\d{1,6}(?:\.\d{1,6}){1,3}(?:-[0-9A-Za-z.-]{1,24})?")


@dataclass(frozen=True, slots=True)
class FoundAgent:
    """One that is there. ``version`` is empty where it did not tell any in time."""

    name: str
    program: str
    version: str

    @property
    def words(self) -> str:
        """``claude 2.1.330``"""
        return f"{self.name} {self.version}" if self.version else f"{self.name} (version unknown)"


def found_agents(
    environ: Mapping[str, str], *, slow: Callable[[], None] = lambda: None, limit_s: float = LIMIT_S
) -> tuple[FoundAgent, ...]:
    """The known agents whose program is on PATH, in the order in which they are preferred.

    ``slow`` is called once when they need more than a second. Blocks for little more than ``limit_s``.
    """
    programs = _programs(environ)
    if not programs:
        return ()
    with ThreadPoolExecutor(max_workers=len(programs)) as pool:
        asked: dict[str, Future[str]] = {
            name: pool.submit(version_of, program, environ, limit_s=limit_s)
            for name, program in programs.items()
        }
        if wait(asked.values(), timeout=_PATIENCE_S).not_done:
            slow()
        return tuple(FoundAgent(name, programs[name], told.result()) for name, told in asked.items())


def _programs(environ: Mapping[str, str]) -> dict[str, str]:
    path = environ.get("PATH", os.defpath)
    wanted = {name: agent_of(name, AgentSpec(), outside=environ).program for name in KNOWN}
    found = {name: shutil.which(program, path=path) for name, program in wanted.items()}
    return {name: os.path.abspath(program) for name, program in found.items() if program}  # noqa: PTH100


def version_of(program: str, environ: Mapping[str, str], *, limit_s: float) -> str:
    """What a program says to ``--version``; empty where that is none, or where it takes too long."""
    said = ask([program, "--version"], {**environ, **QUIET}, limit_s)
    found = _VERSION.search(said.text) if said is not None else None
    return found[0] if found else ""
