"""The account of one ralph: what was decided and what is known, written down before it is acted upon.

History, then events, then state. A daemon that dies in between tells the same facts again; history and
events know them by their keys, so that each end is entered and told once.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ralphd import config, diagnostics
from ralphd.config.configuration import COMMAND, Configuration
from ralphd.core import incidents
from ralphd.core.incidents import Incident, of_a_bug
from ralphd.core.record import change_of
from ralphd.core.supervision.events import CommitsRestored, Event, JudgementOver, RunEnded
from ralphd.core.supervision.exit_policy import last_word, outcome
from ralphd.core.supervision.model import (
    HAS_A_RUN,
    SETTLED,
    Announce,
    Escalate,
    ExitFacts,
    Failed,
    Goal,
    Outcome,
    Policy,
    RunId,
    Running,
    RunReports,
    Starting,
    Supervision,
)
from ralphd.core.supervision.reports import Heartbeat, Reported, is_known
from ralphd.core.supervision.transitions import Step
from ralphd.core.time import Moment, rfc3339
from ralphd.daemon.ralph.announcer import Announcer, Audience
from ralphd.daemon.ralph.journal import Journal, end_data, news_of_end
from ralphd.daemon.services import Services
from ralphd.git.repo import ReflogMark, head
from ralphd.process.rundir import ExitRecord, RunRecord
from ralphd.store import mirror
from ralphd.store.checkpoint import Summary
from ralphd.store.history import History
from ralphd.store.loop_files import LoopWatch
from ralphd.store.state import Definition, Facts, RalphFiles, RegentState

# What a ralph is pinned to, and what of it is in force.


@dataclass(frozen=True, slots=True)
class ActiveConfiguration:
    """The rules that hold now. ``awaited`` are the words for what holds from the next run on instead."""

    definition: Definition
    configuration: config.Configuration
    policy: Policy
    awaited: tuple[str, ...] = ()

    @classmethod
    def of(cls, definition: Definition) -> "ActiveConfiguration":
        """A definition put in force. Raises ConfigFaults, NewerState for what is none."""
        configuration = config.Configuration.from_pinned(definition.configuration)
        policy = replace(configuration.policy(), own_loop=definition.runs_own_loop)
        return cls(definition, configuration, policy)

    def changed_to(self, definition: Definition, pinned: Definition) -> "ActiveConfiguration":
        """The same for ``definition``, while ``pinned`` is what the next run gets."""
        changed = definition.configuration != self.definition.configuration
        other = definition.runs_own_loop != self.definition.runs_own_loop
        base = (
            ActiveConfiguration.of(definition) if changed or other else replace(self, definition=definition)
        )
        return replace(base, awaited=_awaited(base, pinned))


def _awaited(now: ActiveConfiguration, pinned: Definition) -> tuple[str, ...]:
    if now.definition.configuration == pinned.configuration:
        return ()
    then = config.Configuration.from_pinned(pinned.configuration)
    changes = config.differences(now.configuration, then)
    return tuple(
        f"from the next run on: {change.key} = {change.now or 'not set'} (now {change.pinned or 'not set'})"
        for change in changes
        if change.key != COMMAND or now.definition.command != pinned.command
    )


class RalphRecord:
    """Definition, supervision and facts of a ralph, in memory and on disk alike."""

    def __init__(
        self,
        files: RalphFiles,
        definition: Definition,
        record: RegentState,
        history: History,
        services: Services,
    ) -> None:
        self.files = files
        self.records = Journal(files, history, services, definition.name)
        self.telling = Announcer(files, self.records, services)
        self.definition = definition
        self.in_force = ActiveConfiguration.of(definition)
        self.drift: tuple[Mapping[str, Any], ...] = ()
        self.notes: list[str] = []
        self._supervision = record.supervision
        self._facts = record.facts
        self._services = services
        self._exits: dict[RunId, ExitRecord] = {}
        self._kept = LoopWatch(files.home)
        self._unsaved = False
        self._stale = False
        # What is written last is what is so last: a look round never writes over a newer transition.
        self._writing = asyncio.Lock()

    @property
    def history(self) -> History:
        """What happened."""
        return self.records.history

    @property
    def supervision(self) -> Supervision:
        """What is wanted, what is so, what was counted."""
        return self._supervision

    @property
    def configuration(self) -> Configuration:
        """What is in force: of a run that lives, the configuration that it was started by."""
        return self.in_force.configuration

    @property
    def policy(self) -> Policy:
        """The same as rules for decisions."""
        return self.in_force.policy

    @property
    def facts(self) -> Facts:
        """What is known beside that."""
        return self._facts

    def view(self) -> dict[str, Any]:
        """The ralph as the API shows it, but for what only a living run can tell."""
        held = self.in_force.definition
        shown = self._record().shown(held)
        return shown | {
            "directory": str(self.definition.directory),
            "command": list(held.command),
            "checkpoint": self._summary,
            "drift": list(self.drift),
            "notes": [*self.in_force.awaited, *self.notes],
        }

    def same(self) -> tuple[object, ...]:
        """What a view is made of: as long as it is the same, so is the view."""
        held = (self.definition, self.in_force, self.drift)
        return (self._supervision, self._facts, *held, self._summary, self._pool)

    @property
    def _summary(self) -> Summary | None:
        """What the built-in loop would go on from; a command keeps its own."""
        return self._kept.checkpoint if self.definition.runs_own_loop else None

    @property
    def _pool(self) -> Mapping[str, Any] | None:
        """The agents of the built-in loop, and who is out; a command asks whom it likes."""
        return self._kept.pool(self._services.clock.now()) if self.definition.runs_own_loop else None

    def _record(self) -> RegentState:
        """The state as it is now."""
        return RegentState(self._supervision, self._facts, self._pool)

    def redefine(self, definition: Definition) -> None:
        """Take another definition for the same ralph, from the next run on; saved with the next thing."""
        self.definition = definition
        self.drift = ()
        self._unsaved = True
        if self.is_governed_by_a_run:
            self.govern_by(self.in_force.definition)
        else:
            self.take_up()

    @property
    def is_governed_by_a_run(self) -> bool:
        """Whether a run lives or is being started: its rules hold as long."""
        return isinstance(self._supervision.state, (*HAS_A_RUN, Starting))

    def take_up(self) -> None:
        """Put what is pinned in force: a run begins, or none lives."""
        self.govern_by(self.definition)

    def govern_by(self, definition: Definition) -> None:
        """Follow the rules that a run was started by, as long as it lives, whatever was pinned since."""
        self.in_force = self.in_force.changed_to(definition, self.definition)

    def note_run(self, run: RunRecord) -> None:
        """Know the run that lives now; saved with the next thing that is written down."""
        facts = replace(
            self._facts, run_id=run.run_id, ralph_pid=run.pid, started_at=run.started_at, finished_at=None
        )
        if self._facts.run_id != run.run_id:
            facts = replace(facts, last_output_at=None)
        if facts != self._facts:
            self._facts = facts
            self._unsaved = True

    def note_gone(self) -> None:
        """Know that the run's processes have ended, though its end is not told yet."""
        self._facts = replace(self._facts, ralph_pid=None)
        self._stale = True

    async def write_down(self, fact: Event, answer: Step) -> None:
        """Make ``answer`` the truth: on disk first, and then for whoever asks."""
        news: dict[str, Any] = {}
        if isinstance(fact, RunEnded) and isinstance(self._supervision.state, HAS_A_RUN):
            meant = outcome(self._supervision.state, fact.ending, self._supervision.said)
            await self.enter_end(fact.ending, meant, self._supervision.said)
            news = news_of_end(fact.ending, meant)
        if isinstance(fact, Reported):
            await self._enter_report(fact)
        if isinstance(fact, JudgementOver) and await self.records.enter_verdict(fact):
            await self._mirror()
        if isinstance(fact, CommitsRestored):
            await self.records.enter_undo(fact)
            await self._mirror()
        news |= await self._tell(fact, answer, replace(self._facts, **news))
        diagnostics.reach("account.before_state")
        async with self._writing:
            if news or answer.supervision != self._supervision or self._unsaved:
                await self._save(RegentState(answer.supervision, replace(self._facts, **news), self._pool))
                diagnostics.reach("account.state_saved")
            self._supervision = answer.supervision
            self._facts = replace(self._facts, **news)  # others may have learnt something meanwhile
            if self.in_force.awaited and not self.is_governed_by_a_run:
                self.take_up()

    def note_exit(self, record: ExitRecord) -> None:
        """Keep how a run ended until its end is written down."""
        self._exits[record.run_id] = record

    async def enter_end(
        self, ending: ExitFacts, meant: Outcome | None = None, said: RunReports | None = None
    ) -> None:
        """Enter the end of a run into the record, once. Without ``meant`` it is judged by itself."""
        said = said or RunReports()
        meant = meant or outcome(Running(ending.run_id), ending, said)
        record = self._exits.pop(ending.run_id, None)
        word, commit = last_word(ending, said), self._facts.last_commit
        data = end_data(ending, meant, record=record, commit=commit, word=word)
        await self.records.enter("run", ending.run_id, ending.at, data)
        await self._mirror()
        await self.look_at_loop_files()
        diagnostics.reach("account.end_entered")

    async def _enter_report(self, fact: Reported) -> None:
        """Enter what a run reported, once."""
        if is_known(self._supervision, fact):
            return
        is_entered = await self.records.enter_report(fact)
        if is_entered:
            await self._mirror()
        if is_entered or not isinstance(fact.report, Heartbeat):
            await self.look_at_loop_files()
        if is_entered:
            diagnostics.reach("account.report_entered")

    async def _mirror(self) -> None:
        async with self._writing:
            await asyncio.to_thread(self.files.mirror, self.definition.directory)

    async def look_at_loop_files(self) -> None:
        """Know what the built-in loop keeps now: its checkpoint, its pool of agents."""
        if self.definition.runs_own_loop:
            before = self._pool
            await asyncio.to_thread(self._kept.look)
            self._stale = self._stale or self._pool != before

    async def _tell(self, fact: Event, answer: Step, facts: Facts) -> dict[str, Any]:
        """Tell what is ordered to be told; what becomes known by that, by the names of ``Facts``."""
        before, after, news = self._supervision, answer.supervision, dict[str, Any]()
        if (change := change_of(before, fact, after, facts.last_commit)) is not None:
            news["last_change"] = change
        incident = facts.incident
        if incident is not None and (why := incidents.over(incident, before, fact, after, self.policy)):
            await self.telling.over(incident, why, fact.at, self._told(facts))
            incident = None
        elif incident is not None:
            incident = incidents.heeded(incident, fact)
        for action in answer.actions:
            told = self._told(replace(facts, incident=incident))
            match action:
                case Announce():
                    await self.telling.announce(action, fact, told)
                case Escalate():
                    incident = await self.telling.call(action, fact, before, after, told)
        return news if incident is facts.incident else news | {"incident": incident}

    def _told(self, facts: Facts) -> Audience:
        return Audience(self.definition, facts, self.configuration.destinations())

    def told(self) -> Audience:
        """Of whom something is told, as things are."""
        return self._told(self._facts)

    async def tell_registered(self) -> None:
        """Tell that there is this ralph."""
        await self.telling.registered(self.told())

    async def note_incident(self, incident: Incident | None) -> None:
        """Know what is open for a person to see to; on disk when this returns."""
        self._facts = replace(self._facts, incident=incident)
        await self.save()

    async def save(self) -> None:
        """Write definition and state as they are."""
        async with self._writing:
            await self._save(self._record())

    async def _save(self, record: RegentState) -> None:
        """Write definition and state; ``freshen`` does what a full disk does not take (F3)."""
        goal = record.supervision.goal
        save_definition = self._unsaved or self.definition.goal is not goal
        self.definition = replace(self.definition, goal=goal)
        try:
            if save_definition:
                await asyncio.to_thread(self.files.save_definition, self.definition)
            await asyncio.to_thread(self.files.save_record, record, self.in_force.definition)
        except OSError as fault:
            self._unsaved = True
            self._state_trouble(fault)
        else:
            self._unsaved = self._stale = False
            self._state_trouble(None)

    def _state_trouble(self, fault: OSError | None) -> None:
        self._services.trouble(f"state of {self.definition.name}", None if fault is None else str(fault))

    def note_output(self, at: Moment | None) -> None:
        """Know when the run that lives last printed something; written down by ``freshen``."""
        if at is not None and at != self._facts.last_output_at:
            self._facts = replace(self._facts, last_output_at=at)
            self._stale = True

    async def freshen(self) -> None:
        """Write what is due: what was not saved, the last output's time, deleted copies."""
        await self.records.heal()
        if self._unsaved:
            await self.save()
        elif self._stale or not self.files.mirror_is_whole(self.definition.directory):
            async with self._writing:
                await self._save_counters()
        if self.definition.runs_own_loop:
            await self._freshen_loop_files()

    async def _freshen_loop_files(self) -> None:
        """Look after the copies of what the loop keeps, and know its checkpoint: a few looks, most times."""
        at_rest = isinstance(self._supervision.state, SETTLED)
        home, directory = self.files.home, self.definition.directory
        if not mirror.are_whole(home, directory, at_rest=at_rest):
            await asyncio.to_thread(mirror.renew, home, directory, at_rest=at_rest)
        await self.look_at_loop_files()

    async def _save_counters(self) -> None:
        """Write the state without waiting for the disk: the next transition is saved in earnest."""
        record = self._record()
        self._stale = False
        try:
            await asyncio.to_thread(self.files.save_record, record, self.in_force.definition, durable=False)
        except OSError as fault:
            self._stale = True
            self._state_trouble(fault)
        else:
            self._state_trouble(None)

    async def note_start(self) -> None:
        """Look where the repository stands when a run begins."""
        await self.note_head()
        self._facts = replace(self._facts, start_commit=self._facts.last_commit)

    async def has_moved(self) -> bool:
        """Whether HEAD is another commit than when the run began; outside a repository nobody looks."""
        before = self._facts.start_commit
        if self._facts.branch or self._facts.last_commit:
            await self.note_head()
        return before is not None and self._facts.last_commit != before

    def note_reflog(self, mark: ReflogMark | None) -> None:
        """Know up to where the commits are counted; saved with the next thing that is written down."""
        self._facts = replace(self._facts, reflog=None if mark is None else (mark.offset, mark.line))

    async def note_head(self) -> None:
        """Look where the repository stands, taking no lock."""
        found = await asyncio.to_thread(head, self.definition.directory)
        if found is not None and (found.commit, found.branch) != (
            self._facts.last_commit,
            self._facts.branch,
        ):
            self._facts = replace(self._facts, last_commit=found.commit, branch=found.branch)
            self._stale = True

    async def fail(self, why: str) -> None:
        """Give this ralph up for a bug of ours; nothing else is done with it until a person acts."""
        self._supervision = replace(self._supervision, goal=Goal.STOPPED, state=Failed(why))
        self._facts = replace(self._facts, ralph_pid=None)
        await self.save()
        at = self._services.clock.now()
        key = f"{self.definition.name}/ralph.escalated/{rfc3339(at)}"
        await self.note_incident(
            await self.telling.call_for(of_a_bug(f"Ralph failed: {why}"), key, at, self.told())
        )
