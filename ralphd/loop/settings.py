"""What one loop is started with: its place, its rules, its agents, and whoever hears what it does."""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ralphd import wire
from ralphd.agents.agent import Agent
from ralphd.agents.known import agent_of, check_names, fallback_chain, spec_of
from ralphd.config.configuration import Configuration, load
from ralphd.config.values import fit_name
from ralphd.core.loop.model import LoopPolicy
from ralphd.core.loop.phases import PhasePolicy
from ralphd.core.plan import AUTO
from ralphd.errors import ConfigFaults
from ralphd.loop.report_client import NoRegent, ReportClient, Reports
from ralphd.store.files import make_private_directory
from ralphd.store.state import RalphFiles


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """One loop. ``home`` keeps what outlives it; ``keep`` the raw output of its attempts.

    ``has_gate``: an iteration's verdict has to be waited for (L9).
    """

    name: str
    run_id: str
    directory: Path
    home: Path
    keep: Path
    configuration: Configuration
    policy: LoopPolicy
    agents: Mapping[str, Agent]
    environment: Mapping[str, str] = field(repr=False)
    is_supervised: bool = False

    @property
    def prompt_file(self) -> str:
        """The user's prompt, relative to the working directory."""
        return self.configuration.ralph.prompt_file

    @property
    def tasks(self) -> str:
        """The task list, or ``auto``."""
        return self.configuration.ralph.tasks or AUTO

    @property
    def phases(self) -> PhasePolicy:
        """The rules of the phases (L14)."""
        asked = self.configuration.phases
        return PhasePolicy(
            retry_count=asked.phase_retry_count,
            phase_3_retry_count=asked.phase_3_retry_count,
            has_review=self.policy.reviews,
            max_address_rounds=asked.max_address_rounds,
            findings_fail=asked.on_findings_remaining == "fail",
        )

    @property
    def has_gate(self) -> bool:
        """Whether the Regent runs tests at every boundary."""
        regent = self.configuration.regent
        return regent.enabled and regent.rollback_on_test_failure and bool(regent.test_command)

    def reports(self, told: Callable[[str], None]) -> Reports:
        """The way to the Regent, where there is one."""
        socket_path = self.environment.get("RALPHD_SOCKET")
        if not self.is_supervised or not socket_path:
            return NoRegent()
        return ReportClient(socket_path, self.name, self.run_id, told)


def supervised(home: Path, directory: Path, environ: Mapping[str, str], *, pause: bool) -> LoopSettings:
    """The loop of a ralph whose Regent started it: by the configuration that is pinned in ``home``.

    ``pause``: where no agent is left the loop ends with 75, unless the configuration says what to do.
    Raises RalphdError for a home that holds no ralph.
    """
    definition = RalphFiles(home).load_definition()
    if definition is None:
        raise ConfigFaults(f"{home} holds no ralph", mend="ralphctl start, in its working directory")
    configuration = Configuration.from_pinned(definition.configuration)
    run_id = environ.get("RALPH_RUN_ID", "")
    return _settings(
        definition.name, run_id, directory, home, home / "runs" / run_id, configuration, environ, pause=pause
    )


def by_hand(directory: Path, environ: Mapping[str, str]) -> LoopSettings:
    """A loop that somebody started in ``directory``, without a Regent. Raises RalphdError, ConfigFaults."""
    configuration = load(directory, environ=environ)
    name = fit_name(configuration.project.name or directory.name)
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:8]
    home = Path(wire.state_directory(environ)) / "loop" / f"{name}-{digest}"
    make_private_directory(home)
    return _settings(name, "", directory, home, home, configuration, environ, pause=True)


def _settings(
    name: str,
    run_id: str,
    directory: Path,
    home: Path,
    keep: Path,
    configuration: Configuration,
    environ: Mapping[str, str],
    *,
    pause: bool,
) -> LoopSettings:
    named = configuration.agents.named
    chain = (
        configuration.agents.primary,
        *fallback_chain(configuration.agents.primary, configuration.agents.fallback, named),
    )
    check_names(chain, named)
    agents = {each: agent_of(each, spec_of(each, named)) for each in chain}
    how = configuration.agents.on_exhausted
    policy = policy_of(configuration, chain, pause=how == "pause" or (how == "auto" and pause))
    return LoopSettings(
        name,
        run_id,
        directory,
        home,
        keep / "attempts",
        configuration,
        policy,
        agents,
        dict(environ),
        is_supervised=bool(run_id),
    )


def policy_of(configuration: Configuration, agents: tuple[str, ...], *, pause: bool) -> LoopPolicy:
    """The rules that the loop's decisions follow."""
    ralph, asked, retry = configuration.ralph, configuration.agents, configuration.retry
    return LoopPolicy(
        agents=agents,
        reviews=configuration.phases.enabled and bool(configuration.phases.review_command.strip()),
        rotates=asked.strategy == "rotate",
        retries_before_fallback=asked.retries_before_fallback,
        max_task_failures=asked.max_task_failures,
        timeout_s=asked.timeout_seconds,
        iteration_timeout_s=asked.iteration_timeout_seconds,
        same_agent_base_s=retry.same_agent_base_seconds,
        transient_retries=retry.transient_retries,
        base_s=retry.base_seconds,
        max_s=retry.max_seconds,
        jitter=retry.jitter,
        rate_limit_s=retry.rate_limit_seconds,
        max_rate_limit_wait_s=retry.max_rate_limit_wait_seconds,
        reset_margin_s=retry.reset_margin_seconds,
        outage_max_wait_s=retry.outage_max_wait_seconds,
        pause_when_exhausted=pause,
        max_iterations=ralph.max_iterations,
        max_cost_usd=ralph.max_cost_usd,
        max_runtime_s=ralph.max_runtime_seconds,
    )
