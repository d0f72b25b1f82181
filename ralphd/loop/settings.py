"""What one loop is started with: its directories, its rules, its agents, and the way to its Regent."""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from ralphd import wire
from ralphd.agents.agent import Agent
from ralphd.agents.identity import with_account
from ralphd.agents.known import agent_of, check_names, fallback_chain, spec_of
from ralphd.config.configuration import Configuration, fields_by_key, load
from ralphd.config.values import fit_name
from ralphd.core.loop.model import LoopPolicy
from ralphd.core.loop.phases import PhasePolicy
from ralphd.dataclass import dataclass
from ralphd.errors import ConfigFaults
from ralphd.loop.report_client import ReportClient, Reports
from ralphd.store.files import make_private_directory
from ralphd.store.state import RalphFiles

if TYPE_CHECKING:
    from ralphd.loop.accounts import LoopAccounts
    from ralphd.loop.console import Console
    from ralphd.loop.reporter import Reporter
    from ralphd.loop.store import LoopStore


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """One loop. ``home`` is for what outlives it, ``keep`` for the raw output of its attempts."""

    name: str
    run_id: str
    directory: Path
    home: Path
    configuration: Configuration
    policy: LoopPolicy
    agents: Mapping[str, Agent]
    environment: Mapping[str, str] = field(repr=False)

    @property
    def keep(self) -> Path:
        return (self.home / "runs" / self.run_id if self.run_id else self.home) / "attempts"

    @property
    def is_supervised(self) -> bool:
        """Whether a Regent started it."""
        return bool(self.run_id)

    @property
    def phases(self) -> PhasePolicy:
        """The rules of the phases (L14)."""
        phases = self.configuration.phases
        has_review, fail = self.policy.reviews, phases.on_findings_remaining == "fail"
        return PhasePolicy(has_review=has_review, findings_fail=fail, **fields_by_key(PhasePolicy, phases))

    @property
    def has_gate(self) -> bool:
        """Whether the Regent runs tests at every boundary, so that the loop waits for verdicts (L9)."""
        regent = self.configuration.regent
        return regent.enabled and regent.rollback_on_test_failure and bool(regent.test_command)

    def reports(self, told: Callable[[str], None]) -> Reports:
        """Return the connection to the Regent, if there is one. ``told`` logs its problems."""
        socket_path = self.environment.get("RALPHD_SOCKET")
        if not self.is_supervised or not socket_path:
            return Reports()
        return ReportClient(socket_path, self.name, self.run_id, told)


@dataclass(frozen=True, slots=True)
class LoopContext:
    """What all parts of one loop share."""

    settings: LoopSettings
    console: "Console"
    store: "LoopStore"
    reporter: "Reporter"
    accounts: "LoopAccounts"


def supervised(home: Path, directory: Path, environ: Mapping[str, str], *, pause: bool) -> LoopSettings:
    """Return the loop of a ralph that its Regent started, by the configuration pinned in ``home``.

    ``pause``: without an agent the loop ends with 75, unless the configuration says otherwise. Raise
    RalphdError if ``home`` holds no ralph.
    """
    if (definition := RalphFiles(home).load_definition()) is None:
        raise ConfigFaults(f"{home} holds no ralph", mend="ralphctl start, in its working directory")
    configuration = Configuration.from_pinned(definition.configuration)
    run_id = environ.get("RALPH_RUN_ID", "")
    rules = _policy_and_agents(configuration, pause=pause)
    return LoopSettings(definition.name, run_id, directory, home, configuration, *rules, dict(environ))


def by_hand(directory: Path, environ: Mapping[str, str]) -> LoopSettings:
    """Return a loop that a person started in ``directory``, without a Regent. Raise RalphdError."""
    configuration = load(directory, environ=environ)
    if (level := configuration.sandbox.level) not in ("none", "auto"):
        what, why = f'[sandbox] level = "{level}" needs the daemon', "a loop without it has no sandbox"
        raise ConfigFaults(what, why=why, mend="ralphctl start, or ralphctl build")
    name = fit_name(configuration.project.name or directory.name)
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:8]
    home = Path(wire.state_directory(environ)) / "loop" / f"{name}-{digest}"
    make_private_directory(home)
    rules = _policy_and_agents(configuration, pause=True)
    return LoopSettings(name, "", directory, home, configuration, *rules, dict(environ))


def _policy_and_agents(configuration: Configuration, *, pause: bool) -> tuple[LoopPolicy, dict[str, Agent]]:
    """Return the rules of the loop's decisions, and the agents by name."""
    agents, accounts = configuration.agents, configuration.accounts.named
    chain = (agents.primary, *fallback_chain(agents.primary, agents.fallback, agents.named))
    check_names(chain, agents.named)
    pause = agents.on_exhausted == "pause" or (agents.on_exhausted == "auto" and pause)
    policy = LoopPolicy(
        agents=chain,
        rotates=agents.strategy == "rotate",
        reviews=configuration.phases.enabled and bool(configuration.phases.review_command.strip()),
        pause_when_exhausted=pause,
        **fields_by_key(LoopPolicy, configuration.ralph, agents, configuration.retry),
    )
    specs = {each: with_account(each, spec_of(each, agents.named), accounts) for each in chain}
    return policy, {each: agent_of(each, spec) for each, spec in specs.items()}
