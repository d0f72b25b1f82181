"""The built-in loop as the daemon starts it: its command, and the checks before its start.

Faults are raised to the person who starts a ralph, not found at night by its first run. The agents are loaded
with the first such loop: a daemon of other commands is smaller without.
"""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ralphd.config.configuration import Configuration
from ralphd.core.loop.phases import UNREVIEWED
from ralphd.core.loop.pool import rotation_words
from ralphd.core.plan import list_words, parallel_words
from ralphd.core.quota.model import AccountRules
from ralphd.core.supervision.backoff import raised_words
from ralphd.errors import CommandNotStartable, ConfigFaults, RalphdError
from ralphd.loop.workdir_files import read_plan, read_prompt

if TYPE_CHECKING:
    from ralphd.agents.agent import Agent
    from ralphd.daemon.ralph.record import RalphRecord


def command_of(home: Path, *, tied: bool) -> tuple[str, ...]:
    """Return the command of the loop in ``home``. ``tied``: no daemon stays to wait for a reset (P5).

    Not stored, so that the first run after an upgrade is of the new version. ``-P``: files in the working
    directory are an agent's, and never imported.
    """
    command = (sys.executable, "-P", "-m", "ralphd.loop", "--home", str(home))
    return (*command, "--pause-when-exhausted") if tied else command


def notes_on_loop(
    directory: Path, configuration: Configuration, environment: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the notes on a ralph's built-in loop for its owner.

    Raises RalphdError for unknown agents, a prompt or a task list that cannot be read, and a primary agent
    that is not installed on the PATH of ``environment``. Blocks.
    """
    if configuration.ralph.mode == "iteration":
        why = "the built-in loop runs its iterations itself"
        mend = "leave out [ralph] mode, or set [ralph] command in ralph.toml"
        raise ConfigFaults('mode = "iteration" is for a command, and there is none', why=why, mend=mend)
    agents, limits = _agents(configuration, environment), configuration.agents
    read_prompt(directory, configuration.ralph.prompt_file)
    notes = _plan_words(directory, configuration.ralph.tasks)
    if configuration.agents.strategy == "rotate":
        notes.append(rotation_words([agent.name for agent in agents]))
    notes += [
        *_missing(agents, directory, environment),
        *_twins(agents),
        *_unknown_costs(agents, configuration),
        *filter(None, [raised_words(limits.timeout_seconds, limits.iteration_timeout_seconds)]),
    ]
    if configuration.phases.enabled and not configuration.phases.review_command.strip():
        notes.append(UNREVIEWED)
    return tuple(notes)


def accounts_of(account: "RalphRecord") -> Mapping[str, AccountRules]:
    """Return the accounts of a ralph's installed agents, by id; none if one agent shares its with nobody.

    A fault is for the run to report. Blocks.
    """
    from ralphd.agents.identity import account_of

    configuration, environment = account.configuration, account.environment
    directory, named = account.definition.directory, configuration.accounts.named
    with suppress(RalphdError, OSError):
        agents = _agents(configuration, environment)
        present = [each for each in agents if _what_is_missing(each, directory, environment) is None]
        found = [account_of(each, named, environment) for each in present]
        if None not in found:
            return {each.id: each.rules for each in found if each is not None}
    return {}


def _twins(agents: "list[Agent]") -> list[str]:
    """Note agents that are started by the same command: what stops one stops the other as well."""
    from ralphd.agents.agent import LaunchSpec

    launches = [(agent.name, agent.launch(LaunchSpec("", Path("prompt")))) for agent in agents]
    return [
        f"{first} and {second} are one agent under two names: same command, arguments, model and environment"
        for i, (second, launch) in enumerate(launches)
        for first in [next((name for name, earlier in launches[:i] if earlier == launch), None)]
        if first is not None
    ]


def _unknown_costs(agents: "list[Agent]", configuration: Configuration) -> list[str]:
    from ralphd.agents.known import tells_costs

    silent = [agent.name for agent in agents if not tells_costs(agent)]
    if not configuration.ralph.max_cost_usd or not silent:
        return []
    return [f"max_cost_usd counts the costs that agents report; none are reported by {', '.join(silent)}"]


def _agents(configuration: Configuration, environment: Mapping[str, str]) -> "list[Agent]":
    from ralphd.agents.identity import with_account
    from ralphd.agents.known import agent_of, check_names, fallback_chain, spec_of

    asked, accounts = configuration.agents, configuration.accounts.named
    names = (asked.primary, *fallback_chain(asked.primary, asked.fallback, asked.named))
    check_names(names, asked.named)
    specs = {name: with_account(name, spec_of(name, asked.named), accounts) for name in names}
    return [agent_of(name, spec, outside=environment) for name, spec in specs.items()]


def _plan_words(directory: Path, tasks: str) -> list[str]:
    plan = read_plan(directory, tasks)
    if plan is not None and plan.fault is not None:
        mend = f"put {plan.file} right, or name another one by [ralph] tasks"
        raise ConfigFaults("the task list cannot be used", why=plan.fault, mend=mend)
    if plan is None or not plan.tasks:
        return [list_words(plan)]
    count = f"{len(plan.tasks)} task{'' if len(plan.tasks) == 1 else 's'}"
    words = f"the task list is {plan.file}: {count}, {len(plan.open)} open at the start"
    return [words, *filter(None, [parallel_words(plan)])]


def _missing(agents: "list[Agent]", directory: Path, environment: Mapping[str, str]) -> list[str]:
    """Note the fallbacks that are not installed. Raises CommandNotStartable for the primary."""
    first, *others = agents
    if (missing := _what_is_missing(first, directory, environment)) is not None:
        mend = "install it, or name another one: ralphctl start --agent NAME"
        raise CommandNotStartable(f"the agent {first.name} cannot be started", why=missing, mend=mend)
    return [
        f"passed over as long as it is missing: {missing}"
        for agent in others
        if (missing := _what_is_missing(agent, directory, environment)) is not None
    ]


def _what_is_missing(agent: "Agent", directory: Path, environment: Mapping[str, str]) -> str | None:
    # As the run resolves it: a relative path begins in its working directory.
    from ralphd.agents.known import missing_program

    if os.sep in agent.program and os.access(directory / agent.program, os.X_OK):
        return None
    return missing_program(agent, environment)
