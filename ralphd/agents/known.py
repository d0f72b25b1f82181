"""The agents by their names: the CLIs of ``clis/``, and those that ``[agents.NAME]`` defines."""

import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from ralphd import wire
from ralphd.agents import claude, codex, parsers
from ralphd.agents.agent import Agent, Cli, General, ParserMaker
from ralphd.agents.description import DESCRIBED, description_of
from ralphd.agents.patterns import WELL_KNOWN, patterns_of
from ralphd.config.specs import AgentSpec
from ralphd.config.values import did_you_mean, printable
from ralphd.errors import ConfigFaults, UnknownAgent

KNOWN: Final = tuple(dict.fromkeys((*WELL_KNOWN, *DESCRIBED)))
_PARSERS: Final[Mapping[str, ParserMaker]] = {"claude": claude.ClaudeParser, "codex": codex.CodexParser}
AUTO: Final = "auto"
_NO_LOGIN: Final = re.compile(
    r"(?i)log(?:ged)?[ _-]?in\b|unauthori[sz]ed|authenticat|\bauth\b|oauth|api[ _-]?key|access token"
)


def agent_of(name: str, spec: AgentSpec, *, outside: Mapping[str, str] | None = None) -> Agent:
    """Return the agent of that name with the user's ``spec``.

    ``outside`` is the loop's environment, by default this process's: its values are left as they are. Raise
    UnknownAgent for a name that is neither known nor has a command, ConfigFaults for a spec that cannot work
    and for an unusable file of patterns.
    """
    known = known_as(name)
    patterns = patterns_of(known or base_name(name), Path(spec.patterns) if spec.patterns else None)
    description = description_of(known) if known else None
    if description is None and not spec.command:
        raise _unknown(name, ())
    if spec.model and not (description and description.start.model):
        whom, key = f"the CLI {known}" if known else "a command of your own", f"agents.{printable(name)}"
        what, why = f"{key}.model has no meaning for {whom}", "ralphd does not know how it takes a model"
        mend = f"put the model into {key}.{'args' if known else 'command or .args'}"
        raise ConfigFaults(what, why=why, mend=mend)
    if description is None:
        return General(name=name, spec=spec, patterns=patterns)
    outside = os.environ if outside is None else outside
    parser = _PARSERS.get(known or "", parsers.described_parser)
    return Cli(
        name=name, description=description, patterns=patterns, spec=spec, outside=outside, make_parser=parser
    )


def known_as(name: str) -> str | None:
    """Return the one of KNOWN that a name stands for: itself, or a CLI with this other name; else None.

    ``claude@work``, an account of the user's, stands for ``claude``.
    """
    name = base_name(name)
    return name if name in KNOWN else _other_names().get(name)


def base_name(name: str) -> str:
    """Return the agent of a member of the pool: ``claude`` for ``claude@work``."""
    return name.partition("@")[0]


def spec_of(name: str, configured: Mapping[str, AgentSpec]) -> AgentSpec:
    """Return what ``[agents.NAME]`` says of an agent, under this name or another of its names."""
    if (spec := configured.get(base_name(name))) is not None or (known := known_as(name)) is None:
        return spec or AgentSpec()
    return next((spec for each, spec in configured.items() if known_as(each) == known), AgentSpec())


def tells_costs(agent: Agent) -> bool:
    """Whether an agent reports what its attempts cost; of the others it is unknown."""
    return isinstance(agent, Cli) and agent.description.tells_costs


def first_events(agent: Agent) -> tuple[str, ...]:
    """Return the types of events that an agent's output begins with, where it prints events."""
    return agent.description.first_events if isinstance(agent, Cli) else ()


def printer_of(line: str) -> str | None:
    """Return the CLI that alone prints such a line; None where it could be anyone's."""
    known_by = ((name, description_of(name).known_by) for name in DESCRIBED)
    return next((name for name, expression in known_by if expression and expression.match(line)), None)


def check_names(names: Iterable[str], configured: Mapping[str, AgentSpec]) -> None:
    """Raise UnknownAgent for the first name that is neither known nor configured with a command."""
    defined = tuple(name for name, spec in configured.items() if spec.command)
    for name in names:
        if known_as(name) is None and base_name(name) not in defined:
            raise _unknown(base_name(name), defined)


def fallback_chain(
    primary: str, fallback: Sequence[str], configured: Mapping[str, AgentSpec]
) -> tuple[str, ...]:
    """Return the agents that follow ``primary``, in order, each once whatever names it has.

    ``auto`` stands for four agents in a fixed order, unless an agent of that name is configured.
    """
    auto = (AUTO,) if AUTO in configured else wire.AUTO_AGENTS
    named = [name for given in fallback for name in (auto if given == AUTO else (given,))]
    backwards = reversed((primary, *named))
    by_agent = {(known_as(name) or base_name(name), name.partition("@")[2]): name for name in backwards}
    return tuple(name for name in dict.fromkeys(named) if name in by_agent.values() and name != primary)


def missing_program(agent: Agent, environment: Mapping[str, str]) -> str | None:
    """Return what is not installed and how to install it, in words; None where the program is on PATH."""
    if shutil.which(agent.program, path=environment.get("PATH", os.defpath)):
        return None
    program = printable(agent.program)
    if isinstance(agent, Cli) and agent.description.program == agent.program:
        install = agent.description.install
        return f"{agent.name} is not installed: no program {program} on PATH; {install}"
    where = "it cannot be executed" if os.sep in agent.program else "no such program on PATH"
    return f"{program}, the command of agents.{printable(agent.name)}, cannot be started: {where}"


def login_command(agent: str) -> str | None:
    """Return what a person types to log in to the agent of that name; None where ralphd knows none."""
    known = known_as(agent)
    return (description_of(known).login or None) if known else None


def is_no_login(rule: object, why: object) -> bool:
    """Whether an attempt failed because of a missing login, by its classification."""
    return _NO_LOGIN.search(f"{rule} {why}") is not None


def state_paths() -> tuple[str, ...]:
    """Return where the known CLIs keep their state, for ``core.sandbox.default_writable``."""
    return tuple(path for name in DESCRIBED for path in description_of(name).state)


@cache
def _other_names() -> Mapping[str, str]:
    return {other: name for name in DESCRIBED for other in description_of(name).other_names}


def _unknown(name: str, defined: tuple[str, ...]) -> UnknownAgent:
    every = (*KNOWN, *(each for each in defined if each not in KNOWN))
    what = f"{printable(name)!r} is not a known agent{did_you_mean(name, every)}"
    mend = f"one of these, or define it: [agents.{printable(name)}] with a command, in ralph.toml"
    return UnknownAgent(what, why=f"known are: {', '.join(every)}", mend=mend)
