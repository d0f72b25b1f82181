"""The agents by their names: the four that ralphd knows, and those that ``[agents.NAME]`` defines."""

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from ralphd.agents import claude, codex, gemini, opencode
from ralphd.agents.agent import Agent
from ralphd.agents.cli import Cli, Ways
from ralphd.agents.general import General
from ralphd.agents.patterns import patterns_of
from ralphd.config.checks import did_you_mean
from ralphd.config.specs import AgentSpec
from ralphd.config.words import printable
from ralphd.errors import ConfigFaults, UnknownAgent

_WAYS: Final[Mapping[str, Ways]] = {
    "claude": claude.WAYS,
    "codex": codex.WAYS,
    "gemini": gemini.WAYS,
    "opencode": opencode.WAYS,
}
KNOWN: Final = tuple(_WAYS)

TELL_COSTS: Final = frozenset({"claude", "opencode"})
"""Who says what an attempt cost; of the others it is unknown."""

AUTO: Final = "auto"
_AUTO_ORDER: Final = ("codex", "gemini", "claude", "opencode")
"""The order of [000-T3]; the primary is left out of it (RT-8)."""


def agent_of(name: str, spec: AgentSpec, *, outside: Mapping[str, str] | None = None) -> Agent:
    """The agent of that name, as ``spec`` has it.

    ``outside`` is the environment that the loop has, by default its own: what it says stays as it is. Raises
    UnknownAgent for a name that is neither known nor has a command, ConfigFaults for a spec that cannot work
    and for a file of patterns that cannot be used.
    """
    patterns = patterns_of(name, Path(spec.patterns) if spec.patterns else None)
    if name in _WAYS:
        around = os.environ if outside is None else outside
        return Cli(name=name, ways=_WAYS[name], patterns=patterns, spec=spec, outside=around)
    if not spec.command:
        raise _unknown(name, ())
    if spec.model:
        raise ConfigFaults(
            f"agents.{printable(name)}.model has no meaning for a command of your own",
            why="ralphd does not know how it takes a model",
            mend=f"put the model into agents.{printable(name)}.command or .args",
        )
    return General(name=name, spec=spec, patterns=patterns)


def check_names(names: Iterable[str], configured: Mapping[str, AgentSpec]) -> None:
    """Refuse names that are no agent's (RT-9). ``configured`` is what ``[agents.NAME]`` defines.

    ``auto`` is no agent's name. Raises UnknownAgent, for the first of them.
    """
    defined = tuple(name for name, spec in configured.items() if spec.command)
    for name in names:
        if name not in KNOWN and name not in defined:
            raise _unknown(name, defined)


def fallback_chain(
    primary: str, fallback: Sequence[str], configured: Mapping[str, AgentSpec]
) -> tuple[str, ...]:
    """Who is asked after ``primary``, in order, each once.

    ``auto`` stands for the known agents in the order of [000-T3], unless an agent of that name is configured.
    """
    named = [
        name
        for given in fallback
        for name in (_AUTO_ORDER if given == AUTO and AUTO not in configured else (given,))
    ]
    return tuple(name for name in dict.fromkeys(named) if name != primary)


def missing_program(agent: Agent, environment: Mapping[str, str]) -> str | None:
    """What is not installed and how to install it, in words; None where the agent's program is there."""
    if shutil.which(agent.program, path=environment.get("PATH", os.defpath)):
        return None
    program = printable(agent.program)
    ways = _WAYS.get(agent.name)
    if ways is not None and ways.program == agent.program:
        return f"{agent.name} is not installed: no program {program} on PATH; npm install -g {ways.package}"
    where = "it cannot be executed" if os.sep in agent.program else "no such program on PATH"
    return f"{program}, the command of agents.{printable(agent.name)}, cannot be started: {where}"


def _unknown(name: str, defined: tuple[str, ...]) -> UnknownAgent:
    every = (*KNOWN, *(each for each in defined if each not in KNOWN))
    return UnknownAgent(
        f"{printable(name)!r} is no agent that I know{did_you_mean(name, every)}",
        why=f"known are: {', '.join(every)}",
        mend=f"one of these, or define it: [agents.{printable(name)}] with a command, in ralph.toml",
    )
