"""The state of one ralph, in memory and on disk.

What was decided is written before it is acted upon: history, then events, then state. A daemon that dies in
between answers the same facts again; history and events know them by their keys.
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ralphd import diagnostics
from ralphd.config import configuration as config
from ralphd.config.configuration import COMMAND, Configuration
from ralphd.core.delivery import Destination
from ralphd.core.incidents import Escalation, Incident, of_a_bug
from ralphd.core.record import change_of
from ralphd.core.supervision import model
from ralphd.core.supervision.events import BaselineTested, Committed, Event, RunEnded, VerdictReached
from ralphd.core.supervision.exit_policy import outcome
from ralphd.core.supervision.reports import Heartbeat, Reported
from ralphd.core.time import Moment, rfc3339
from ralphd.daemon.ralph.announcer import Announcer, Audience
from ralphd.daemon.ralph.callers import REQUESTED_BY
from ralphd.daemon.ralph.journal import Journal
from ralphd.daemon.ralph.run_source import RunSource
from ralphd.daemon.services import Services
from ralphd.dataclass import dataclass
from ralphd.git.diagnostics import uncommitted_digests
from ralphd.git.repo import ReflogMark, head
from ralphd.process.rundir import RunRecord
from ralphd.store import mirror
from ralphd.store.checkpoint import Summary
from ralphd.store.history import History
from ralphd.store.loop_files import LoopWatch
from ralphd.store.state import Definition, Facts, LastExit, RalphFiles, RegentState

if TYPE_CHECKING:
    from ralphd.core.supervision.door import Caller

# What a ralph is pinned to, and what of it is in force.


@dataclass(frozen=True, slots=True)
class ActiveConfiguration:
    """The configuration in force. ``awaited`` are the changes that the next run gets, in words."""

    definition: Definition
    configuration: config.Configuration
    policy: model.Policy
    awaited: tuple[str, ...] = ()

    @classmethod
    def of(cls, definition: Definition) -> "ActiveConfiguration":
        """Put a definition in force. Raise ConfigFaults, NewerState."""
        configuration = config.Configuration.from_pinned(definition.configuration)
        policy = replace(configuration.policy(), own_loop=definition.runs_own_loop)
        return cls(definition, configuration, policy)

    def changed_to(self, definition: Definition, pinned: Definition) -> "ActiveConfiguration":
        """Return the same for ``definition``, while ``pinned`` is what the next run gets."""
        own = self.definition
        changed = (
            definition.configuration != own.configuration or definition.runs_own_loop != own.runs_own_loop
        )
        base = ActiveConfiguration.of(definition) if changed else replace(self, definition=definition)
        return replace(base, awaited=_awaited(base, pinned))


def _awaited(active: ActiveConfiguration, pinned: Definition) -> tuple[str, ...]:
    if active.definition.configuration == pinned.configuration:
        return ()
    changes = config.differences(active.configuration, config.Configuration.from_pinned(pinned.configuration))
    return tuple(
        f"from the next run on: {change.key} = {change.now or 'not set'} (now {change.pinned or 'not set'})"
        for change in changes
        if change.key != COMMAND or active.definition.command != pinned.command
    )


OUTPUT_SAVED_WITHIN_S = 290.0
"""The last output's time is on disk within five minutes, the first one's at once: writes are most of an idle
daemon's work, and a daemon that starts takes the time from the log."""
HOME_DELETED = "its files in the state directory were deleted; lost: logs, history"
_OF_THE_RUN = (Reported, Committed, BaselineTested, VerdictReached)
"""No request causes these facts, even while one takes effect."""


class RalphRecord(RunSource):
    """Definition, supervision and facts of a ralph, in memory and on disk alike."""

    def __init__(
        self, files: RalphFiles, definition: Definition, record: RegentState, services: Services
    ) -> None:
        self.files, self.history = files, History(files.history_file)
        self.records = Journal(files, self.history, services, definition.name)
        self.telling = Announcer(files, self.records, services)
        self.definition = definition
        self.in_force = ActiveConfiguration.of(definition)
        self.drift: tuple[Mapping[str, Any], ...] = ()
        self.notes: list[str] = []
        self.requested_by: Caller | None = None  # until its request has taken effect
        self._supervision, self._facts = record.supervision, record.facts
        self._services = services
        self._kept = LoopWatch(files.home)
        self._unsaved = self._stale = False
        self._output_since: float | None = None  # by the monotonic clock: printed since, and not saved
        # One write at a time: a periodic save must never overwrite a newer transition.
        self._writing = asyncio.Lock()

    @property
    def supervision(self) -> model.Supervision:
        return self._supervision

    @property
    def configuration(self) -> Configuration:
        """What is in force: for a run that lives, the configuration that it was started with."""
        return self.in_force.configuration

    @property
    def policy(self) -> model.Policy:
        return self.in_force.policy

    @property
    def run_name(self) -> str:
        return self.definition.name

    @property
    def facts(self) -> Facts:
        return self._facts

    def view(self) -> dict[str, Any]:
        """Return the ralph as the API shows it, without what only a live run knows."""
        held = self.in_force.definition
        return self._record().shown(held) | {
            "directory": str(self.definition.directory),
            "command": list(held.command),
            "checkpoint": self._summary,
            "drift": list(self.drift),
        }

    def same(self) -> tuple[object, ...]:
        """Return what ``view`` is made of: as long as it is equal, so is the view."""
        held = (self.definition, self.in_force, self.drift)
        return (
            self._supervision,
            self._facts,
            *held,
            self._summary,
            self._pool,
            self._kept.tasks,
            self._kept.cost_usd,
        )

    @property
    def _summary(self) -> Summary | None:
        return self._kept.checkpoint if self.definition.runs_own_loop else None

    @property
    def _pool(self) -> Mapping[str, Any] | None:
        return self._kept.pool(self._services.clock.now()) if self.definition.runs_own_loop else None

    def _record(self) -> RegentState:
        return self._state(self._supervision, self._facts)

    def _state(self, supervision: model.Supervision, facts: Facts) -> RegentState:
        of_loop = (self._kept.tasks, self._kept.cost_usd) if self.definition.runs_own_loop else ()
        return RegentState(supervision, facts, self._pool, *of_loop)

    def redefine(self, definition: Definition) -> None:
        """Take another definition, from the next run on; saved with the next write."""
        self.definition = definition
        self.drift = ()
        self._unsaved = True
        if self.is_governed_by_a_run:
            self.govern_by(self.in_force.definition)
        else:
            self.take_up()

    @property
    def is_governed_by_a_run(self) -> bool:
        """Whether a run lives or is starting, whose configuration stays in force."""
        return isinstance(self._supervision.state, (*model.HAS_A_RUN, model.Starting))

    def take_up(self) -> None:
        """Put the pinned definition in force: a run begins, or none lives."""
        self.govern_by(self.definition)

    def govern_by(self, definition: Definition) -> None:
        """Put a run's own definition in force while it lives."""
        self.in_force = self.in_force.changed_to(definition, self.definition)

    def note_run(self, run: RunRecord) -> None:
        """Note the run that lives; saved with the next write."""
        facts = replace(
            self._facts, run_id=run.run_id, ralph_pid=run.pid, started_at=run.started_at, finished_at=None
        )
        if self._facts.run_id != run.run_id:
            facts = replace(facts, last_output_at=None)
        if facts != self._facts:
            self._facts = facts
            self._unsaved = True

    def note_gone(self) -> None:
        """Note that the run's processes have ended, before its end is answered."""
        self._facts = replace(self._facts, ralph_pid=None)
        self._stale = True

    async def write_down(self, fact: Event, answer: model.Step) -> None:
        """Make ``answer`` the truth, on disk first: history, then events, then state."""
        before, meaning = self._supervision, answer.exit_meaning
        learnt: dict[str, Any] = {}
        if isinstance(fact, RunEnded) and meaning is not None:
            learnt = await self.enter_end(fact.ending, meaning, before.said)
        elif await self.records.enter_fact(fact, before):
            await self._mirror()
            if isinstance(fact, Reported):
                await self.look_at_loop_files()
                diagnostics.reach("account.report_entered")
        elif isinstance(fact, Reported) and not isinstance(fact.report, Heartbeat):
            await self.look_at_loop_files()
        facts = replace(self._facts, **learnt)
        if (change := change_of(before, fact, answer.supervision, facts.last_commit)) is not None:
            learnt["last_change"] = change
        whom = self._audience(facts, None if isinstance(fact, _OF_THE_RUN) else self.requested_by)
        incident = await self.telling.tell(fact, before, answer, self.policy, whom)
        if not isinstance(answer.supervision.state, model.Starting | model.Stopping | model.Pausing):
            self.requested_by = None
        if incident is not facts.incident:
            learnt["incident"] = incident
        diagnostics.reach("account.before_state")
        async with self._writing:
            if learnt or answer.supervision != self._supervision or self._unsaved:
                await self._save(self._state(answer.supervision, replace(self._facts, **learnt)))
                diagnostics.reach("account.state_saved")
            self._supervision = answer.supervision
            self._facts = replace(self._facts, **learnt)  # others may have learnt something since
            if self.in_force.awaited and not self.is_governed_by_a_run:
                self.take_up()

    async def enter_end(
        self,
        ending: model.ExitFacts,
        meaning: model.Outcome | None = None,
        said: model.RunReports | None = None,
    ) -> dict[str, Any]:
        """Enter the end of a run, once. Return what it changes in ``Facts``, by name.

        Without ``meaning`` the run is long over, and its end is classified without what was known of it.
        """
        said = said or model.RunReports()
        meaning = meaning or outcome(model.Running(ending.run_id), ending, said)
        await self.records.enter_end(ending, meaning, said, self._facts.last_commit)
        await self._mirror()
        await self.look_at_loop_files()
        diagnostics.reach("account.end_entered")
        return {
            "ralph_pid": None,
            "finished_at": ending.at,
            "last_output_at": ending.last_sign_at,
            "last_exit": LastExit(ending.run_id, ending.code, ending.signal, meaning.value, ending.at),
        }

    async def _mirror(self) -> None:
        async with self._writing:
            await asyncio.to_thread(self.files.mirror, self.definition.directory)

    async def look_at_loop_files(self) -> None:
        """Read the built-in loop's checkpoint and pool."""
        if self.definition.runs_own_loop:
            before = self.same()
            await asyncio.to_thread(self._kept.look)
            self._stale = self._stale or self.same() != before

    def destinations(self, configuration: Configuration) -> tuple[Destination, ...]:
        """Return the webhooks of a configuration; those of the user's own file until the daemon read it."""
        return configuration.destinations(without=self._services.news.own_file)

    def _audience(self, facts: Facts, by: "Caller | None") -> Audience:
        return Audience(self.definition, facts, self.destinations(self.configuration), by)

    async def publish(self, kind: str, data: Mapping[str, Any], *, key: str) -> None:
        """Publish an event of this ralph, once for each ``key``."""
        name, run_id, to = self.definition.name, self._facts.run_id, self.destinations(self.configuration)
        key, tell = f"{name}/{kind}/{key}", self._services.news.tell
        await tell(kind, data, ralph=name, run_id=run_id, key=key, destinations=to)

    def told(self) -> Audience:
        """Return the audience of an announcement made now."""
        return self._audience(self._facts, REQUESTED_BY.get())

    async def note_incident(self, incident: Incident | None) -> None:
        """Keep the open incident, on disk when this returns."""
        self._facts = replace(self._facts, incident=incident)
        await self.save()

    async def save(self) -> None:
        async with self._writing:
            await self._save(self._record())

    async def _save(self, record: RegentState) -> None:
        """Write definition and state; ``freshen`` repeats what a full disk did not take (F3)."""
        goal = record.supervision.goal
        save_definition = self._unsaved or self.definition.goal is not goal
        self.definition = replace(self.definition, goal=goal)
        # Before the writes: what changes meanwhile is saved next.
        self._unsaved, self._stale, self._output_since = False, False, None
        try:
            if save_definition:
                await asyncio.to_thread(self.files.save_definition, self.definition)
            await asyncio.to_thread(self.files.save_record, record, self.in_force.definition)
        except OSError as fault:
            self._unsaved = True
            self._state_trouble(fault)
        else:
            self._state_trouble(None)

    def _state_trouble(self, fault: OSError | None) -> None:
        self._services.trouble(f"state of {self.definition.name}", None if fault is None else str(fault))

    def note_output(self, at: Moment | None) -> None:
        """Note when the run last printed something; ``freshen`` saves it."""
        if at is not None and self._facts.started_at is not None:
            at = max(at, self._facts.started_at)  # times of files lag behind the clock by some milliseconds
        if at is not None and at != self._facts.last_output_at:
            self._stale = self._stale or self._facts.last_output_at is None
            self._facts = replace(self._facts, last_output_at=at)
            self._output_since = self._output_since or time.monotonic()

    async def restore_home(self) -> None:
        """Write definition, environment and state again where a run deleted them."""
        if self.files.exists():
            return
        self._unsaved = True
        with suppress(OSError):  # the save finds it, too
            await asyncio.to_thread(self.files.create)
        await self.save()
        if self._unsaved:
            return
        self.notes.append(HOME_DELETED)
        data = {"file": "ralph.json", "kept_as": None, "rebuilt_from": "memory", "message": HOME_DELETED}
        await self._services.news.tell("state.recovered", data, ralph=self.definition.name)

    def has_news(self) -> bool:
        """Return whether ``freshen`` has something to do, as far as the state directory shows."""
        is_at_work = self.definition.runs_own_loop and not isinstance(self._supervision.state, model.SETTLED)
        is_due = self._unsaved or self._stale or self._output_is_due() or self.records.is_behind
        return is_at_work or is_due or not self.files.exists()

    def copies_are_due(self) -> bool:
        """The same as far as the working directory shows. Blocks, in a directory that hangs for ever."""
        home, directory = self.files.home, self.definition.directory
        is_due = self.definition.runs_own_loop and mirror.due(home, directory, at_rest=True)
        return bool(is_due) or not self.files.mirror_is_whole(directory)

    async def freshen(self) -> None:
        """Write what is due: unsaved state, the time of the last output, deleted copies."""
        await self.records.heal()
        if self._unsaved:
            await self.save()
        elif self._stale or self._output_is_due() or await asyncio.to_thread(self.copies_are_due):
            async with self._writing:
                await self._save_counters()
        if self.definition.runs_own_loop:
            at_rest = isinstance(self._supervision.state, model.SETTLED)
            await asyncio.to_thread(mirror.renew, self.files.home, self.definition.directory, at_rest=at_rest)
            await self.look_at_loop_files()

    def _output_is_due(self) -> bool:
        since = self._output_since
        return since is not None and time.monotonic() - since >= OUTPUT_SAVED_WITHIN_S

    async def _save_counters(self) -> None:
        """Save without waiting for the disk: the next transition is saved durably."""
        record = self._record()
        self._stale, self._output_since = False, None
        try:
            await asyncio.to_thread(self.files.save_record, record, self.in_force.definition, durable=False)
        except OSError as fault:
            self._stale = True
            self._state_trouble(fault)
        else:
            self._state_trouble(None)

    async def note_start(self) -> None:
        """Note where the repository is when a run begins."""
        await self.note_head()
        self._facts = replace(self._facts, start_commit=self._facts.last_commit)

    async def note_uncommitted(self) -> None:
        """Note what is not committed when a person starts the ralph: the gate may set it aside."""
        since = self._supervision.tally.began_at
        if since != self._facts.uncommitted_at:
            found = await asyncio.to_thread(uncommitted_digests, self.definition.directory)
            self._facts = replace(self._facts, uncommitted=found, uncommitted_at=since)

    async def has_moved(self) -> bool:
        """Whether HEAD has moved since the run began."""
        if self._facts.branch or self._facts.last_commit:
            await self.note_head()
        return self._facts.last_commit != self._facts.start_commit

    def note_reflog(self, mark: ReflogMark | None) -> None:
        """Note up to where the commits are counted; saved with the next write."""
        self._facts = replace(self._facts, reflog=None if mark is None else (mark.offset, mark.line))

    async def note_head(self) -> None:
        """Note where HEAD is, taking no lock."""
        found = await asyncio.to_thread(head, self.definition.directory)
        known = self._facts.last_commit, self._facts.branch
        if found is not None and (found.commit, found.branch) != known:
            self._facts = replace(self._facts, last_commit=found.commit, branch=found.branch)
            self._stale = True

    async def fail(self, why: str) -> None:
        """Give this ralph up for a bug of ours, until you act."""
        self._supervision = replace(self._supervision, goal=model.Goal.STOPPED, state=model.Failed(why))
        self._facts = replace(self._facts, ralph_pid=None)
        await self.save()
        await self.escalate(of_a_bug(f"Ralph failed: {why}"))

    async def escalate(self, call: Escalation) -> None:
        """Escalate what no step ordered."""
        at = self._services.clock.now()
        key = f"{self.definition.name}/ralph.escalated/{rfc3339(at)}"
        await self.note_incident(await self.telling.call_for(call, key, at, self.told()))
