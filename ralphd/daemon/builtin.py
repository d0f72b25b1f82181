"""The built-in loop as the daemon starts it: its command, and what has to be there before it is started.

What is wrong is told to whoever starts a ralph, as an error with what to do, not at night by its first run.
The agents are loaded when the first such loop is looked at: a daemon of other commands is smaller without.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ralphd.config.configuration import Configuration
from ralphd.config.specs import AgentsSpec, PhasesSpec
from ralphd.core.loop.phases import UNREVIEWED
from ralphd.core.loop.pool import rotation_words
from ralphd.core.plan import parallel_words
from ralphd.errors import CommandNotStartable, ConfigFaults
from ralphd.loop.workdir_files import read_plan, read_prompt

if TYPE_CHECKING:
    from ralphd.agents.agent import Agent


def command_of(home: Path, *, tied: bool) -> tuple[str, ...]:
    """What runs the loop of the ralph in ``home``. ``tied``: nobody stays to wait for a limit's reset (P5).

    Made anew for each run, so that the first one after an upgrade is of the new version. ``-P``: what lies in
    the working directory is an agent's, and never imported.
    """
    command = (sys.executable, "-P", "-m", "ralphd.loop", "--home", str(home))
    return (*command, "--pause-when-exhausted") if tied else command


def notes_on_loop(
    directory: Path, configuration: Configuration, environment: Mapping[str, str]
) -> tuple[str, ...]:
    """What the owner of a ralph should be told of its built-in loop.

    Raises a RalphdError for what it cannot be started with: names that are no agent's, a prompt or a task
    list that cannot be read, a primary agent that is not installed where ``environment`` looks. Blocks.
    """
    if configuration.ralph.mode == "iteration":
        raise ConfigFaults(
            'mode = "iteration" is for a command, and there is none',
            why="the built-in loop goes from one iteration to the next by itself",
            mend="leave out [ralph] mode, or set [ralph] command in ralph.toml",
        )
    agents = _agents(configuration.agents, environment)
    read_prompt(directory, configuration.ralph.prompt_file)
    return (
        *_plan_words(directory, configuration.ralph.tasks),
        *_turns(agents, configuration),
        *_missing(agents, directory, environment),
        *_twins(agents),
        *_untold_costs(agents, configuration),
        *_reviews(configuration.phases),
    )


def _reviews(asked: PhasesSpec) -> list[str]:
    """What phases are without a review."""
    return [UNREVIEWED] if asked.enabled and not asked.review_command.strip() else []


def _turns(agents: "list[Agent]", configuration: Configuration) -> list[str]:
    """How a rotation goes."""
    rotates = configuration.agents.strategy == "rotate"
    return [rotation_words([agent.name for agent in agents])] if rotates else []


def _twins(agents: "list[Agent]") -> list[str]:
    """Agents that are started by the same words: what keeps one out keeps the other out as well."""
    from ralphd.agents.agent import LaunchSpec

    launches = [(agent.name, agent.launch(LaunchSpec("", Path("prompt")))) for agent in agents]
    return [
        f"{first} and {second} are one agent under two names: same command, arguments, model and environment"
        for i, (second, launch) in enumerate(launches)
        for first in [next((name for name, earlier in launches[:i] if earlier == launch), None)]
        if first is not None
    ]


def _untold_costs(agents: "list[Agent]", configuration: Configuration) -> list[str]:
    """A limit that some agents' attempts do not count toward, since they do not say what they cost."""
    from ralphd.agents.known import tells_costs

    silent = [agent.name for agent in agents if not tells_costs(agent)]
    if not configuration.ralph.max_cost_usd or not silent:
        return []
    return [f"max_cost_usd counts what agents tell; no costs are told by {', '.join(silent)}"]


def _agents(asked: AgentsSpec, environment: Mapping[str, str]) -> "list[Agent]":
    """Those who may be asked, the primary first. Raises UnknownAgent, ConfigFaults."""
    from ralphd.agents.known import agent_of, check_names, fallback_chain, spec_of

    names = (asked.primary, *fallback_chain(asked.primary, asked.fallback, asked.named))
    check_names(names, asked.named)
    return [agent_of(name, spec_of(name, asked.named), outside=environment) for name in names]


def _plan_words(directory: Path, tasks: str) -> list[str]:
    plan = read_plan(directory, tasks)
    if plan is None:
        return ["there is no task list: each iteration gets the prompt alone"]
    if plan.fault is not None:
        raise ConfigFaults(
            "the task list cannot be used",
            why=plan.fault,
            mend=f"put {plan.file} right, or name another one by [ralph] tasks",
        )
    count = f"{len(plan.tasks)} task{'' if len(plan.tasks) == 1 else 's'}"
    told = f"the task list is {plan.file}: {count}, {len(plan.open)} open at the start"
    return [told, *filter(None, [parallel_words(plan)])]


def _missing(agents: "list[Agent]", directory: Path, environment: Mapping[str, str]) -> list[str]:
    """What is said of fallbacks that are not installed. Raises CommandNotStartable for the primary."""
    first, *others = agents
    if (missing := _what_is_missing(first, directory, environment)) is not None:
        raise CommandNotStartable(
            f"the agent {first.name} cannot be started",
            why=missing,
            mend="install it, or name another one: ralphctl start --agent NAME",
        )
    found = [_what_is_missing(agent, directory, environment) for agent in others]
    return [f"passed over as long as it is missing: {missing}" for missing in found if missing is not None]


def _what_is_missing(agent: "Agent", directory: Path, environment: Mapping[str, str]) -> str | None:
    """As the run will find it: a path that is relative begins in its working directory."""
    from ralphd.agents.known import missing_program

    if os.sep in agent.program and os.access(directory / agent.program, os.X_OK):
        return None
    return missing_program(agent, environment)
