"""The agents by their names: those that ralphd knows, and those that ``[agents.NAME]`` defines.

Four of the known ones have a module each, the others a file in ``clis``, which is read when it is needed.
"""

import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from ralphd.agents import claude, codex, gemini, opencode
from ralphd.agents.agent import Agent, Cli, Ways
from ralphd.agents.described import General, ways_of
from ralphd.agents.description import DESCRIBED, description_of
from ralphd.agents.patterns import patterns_of
from ralphd.config.specs import AgentSpec
from ralphd.config.values import did_you_mean, printable
from ralphd.errors import ConfigFaults, UnknownAgent

_WAYS: Final[Mapping[str, Ways]] = {
    "claude": claude.WAYS,
    "codex": codex.WAYS,
    "gemini": gemini.WAYS,
    "opencode": opencode.WAYS,
}
KNOWN: Final = (*_WAYS, *DESCRIBED)

AUTO: Final = "auto"
_AUTO_ORDER: Final = ("codex", "gemini", "claude", "opencode")
"""The order of [000-T3]; the primary is left out of it (RT-8)."""


def agent_of(name: str, spec: AgentSpec, *, outside: Mapping[str, str] | None = None) -> Agent:
    """The agent of that name, as ``spec`` has it.

    ``outside`` is the environment that the loop has, by default its own: what it says stays as it is. Raises
    UnknownAgent for a name that is neither known nor has a command, ConfigFaults for a spec that cannot work
    and for a file of patterns that cannot be used.
    """
    known = known_as(name)
    patterns = patterns_of(known or name, Path(spec.patterns) if spec.patterns else None)
    ways = _ways(known) if known else None
    if ways is None and not spec.command:
        raise _unknown(name, ())
    if spec.model and not (ways and ways.model_flag):
        whom = f"the CLI {known}" if known else "a command of your own"
        raise ConfigFaults(
            f"agents.{printable(name)}.model has no meaning for {whom}",
            why="ralphd does not know how it takes a model",
            mend=f"put the model into agents.{printable(name)}.{'args' if known else 'command or .args'}",
        )
    if ways is None:
        return General(name=name, spec=spec, patterns=patterns)
    around = os.environ if outside is None else outside
    return Cli(name=name, ways=ways, patterns=patterns, spec=spec, outside=around)


def known_as(name: str) -> str | None:
    """The one of KNOWN that a name stands for: itself, or a CLI that is called so as well; else None."""
    return name if name in KNOWN else _other_names().get(name)


def spec_of(name: str, configured: Mapping[str, AgentSpec]) -> AgentSpec:
    """What ``[agents.NAME]`` says of an agent, under this name of his or another."""
    if (spec := configured.get(name)) is not None or (known := known_as(name)) is None:
        return spec or AgentSpec()
    return next((spec for each, spec in configured.items() if known_as(each) == known), AgentSpec())


def tells_costs(agent: Agent) -> bool:
    """Whether an agent says what its attempts cost; of the others it is unknown."""
    return isinstance(agent, Cli) and agent.ways.tells_costs


def first_events(agent: Agent) -> tuple[str, ...]:
    """What an agent's output begins with, where it prints events."""
    return agent.ways.first_events if isinstance(agent, Cli) else ()


def printer_of(line: str) -> str | None:
    """The described CLI that alone prints such a line; None where it could be anyone's."""
    given = ((name, description_of(name).known_by) for name in DESCRIBED)
    return next((name for name, known_by in given if known_by and known_by.match(line)), None)


def check_names(names: Iterable[str], configured: Mapping[str, AgentSpec]) -> None:
    """Refuse names that are no agent's (RT-9). ``configured`` is what ``[agents.NAME]`` defines.

    ``auto`` is no agent's name. Raises UnknownAgent, for the first of them.
    """
    defined = tuple(name for name, spec in configured.items() if spec.command)
    for name in names:
        if known_as(name) is None and name not in defined:
            raise _unknown(name, defined)


def fallback_chain(
    primary: str, fallback: Sequence[str], configured: Mapping[str, AgentSpec]
) -> tuple[str, ...]:
    """Who is asked after ``primary``, in order, each once.

    ``auto`` stands for the four agents of [000-T3] in that order, unless an agent of that name is configured.
    A CLI that is asked for under two of its names is asked once.
    """
    named = [
        name
        for given in fallback
        for name in (_AUTO_ORDER if given == AUTO and AUTO not in configured else (given,))
    ]
    by_agent = {known_as(name) or name: name for name in reversed((primary, *named))}
    return tuple(name for name in dict.fromkeys(named) if name in by_agent.values() and name != primary)


def missing_program(agent: Agent, environment: Mapping[str, str]) -> str | None:
    """What is not installed and how to install it, in words; None where the agent's program is there."""
    if shutil.which(agent.program, path=environment.get("PATH", os.defpath)):
        return None
    program = printable(agent.program)
    if isinstance(agent, Cli) and agent.ways.program == agent.program:
        return f"{agent.name} is not installed: no program {program} on PATH; {agent.ways.install}"
    where = "it cannot be executed" if os.sep in agent.program else "no such program on PATH"
    return f"{program}, the command of agents.{printable(agent.name)}, cannot be started: {where}"


@cache
def _ways(known: str) -> Ways:
    return _WAYS.get(known) or ways_of(known)


@cache
def _other_names() -> Mapping[str, str]:
    return {other: name for name in DESCRIBED for other in description_of(name).other_names}


def _unknown(name: str, defined: tuple[str, ...]) -> UnknownAgent:
    every = (*KNOWN, *(each for each in defined if each not in KNOWN))
    return UnknownAgent(
        f"{printable(name)!r} is no agent that I know{did_you_mean(name, every)}",
        why=f"known are: {', '.join(every)}",
        mend=f"one of these, or define it: [agents.{printable(name)}] with a command, in ralph.toml",
    )


# How people log in to the agents that ralphd knows, and by what a missing login is known.

_COMMANDS: Final[Mapping[str, str]] = {
    "amp": "amp login",
    "claude": "claude auth login",
    "codex": "codex login",
    "copilot": "copilot login",
    "cursor": "cursor-agent login",
    "gemini": "gemini",
    "kiro": "kiro-cli login",
    "opencode": "opencode auth login",
    "qwen": "qwen",
}
"""Of those that have one; `gemini` and `qwen` ask when they are started by hand."""

_NO_LOGIN: Final = re.compile(
    r"log(?:ged)?[ _-]?in\b|unauthori[sz]ed|authenticat|\bauth\b|oauth|api[ _-]?key|access token",
    re.IGNORECASE,
)


def login_command(agent: str) -> str | None:
    """What a person types to log in to the agent of that name; None where ralphd knows of nothing."""
    known = known_as(agent)
    return None if known is None else _COMMANDS.get(known)


def is_no_login(rule: object, why: object) -> bool:
    """Whether an attempt failed for want of a login, by the rule that told its kind and its reason."""
    return _NO_LOGIN.search(f"{rule} {why}") is not None
