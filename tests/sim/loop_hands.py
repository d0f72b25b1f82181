"""The hands of the loop: carries out what ``core/loop/step`` orders, in the order of ``loop/runner``.

Real are every decision, what a resumed loop goes on from (``desk``) and what is said (``Scribe``). Made up,
as small as it goes: agents, files, signals, and how long the end of an iteration waits for an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from ralphd.core.failures.agent_events import Figures
from ralphd.core.failures.classify import Classification, Evidence
from ralphd.core.failures.kinds import FailureKind
from ralphd.core.gate.range import news_for
from ralphd.core.loop.inbox import plan_tasks
from ralphd.core.loop.model import (
    AccountFreed,
    Attempting,
    AttemptOver,
    AwaitingVerdict,
    Began,
    Begin,
    Checkpoint,
    CheckpointTask,
    ClearCheckpoint,
    EndLoop,
    EndRest,
    Finished,
    FinishIteration,
    Handoff,
    HeldBack,
    Iteration,
    Judged,
    Loop,
    LoopEvent,
    LoopOrder,
    LoopPolicy,
    LoopStep,
    LoopWoke,
    PauseAsked,
    PauseReason,
    ReportAgentBack,
    ReportAgentOut,
    ReportAttempt,
    ReportLost,
    Rest,
    Resting,
    SaveCheckpoint,
    Skipped,
    StartAttempt,
    StartIteration,
    StopAsked,
)
from ralphd.core.loop.step import SET_BACK_S
from ralphd.core.plan import Plan
from ralphd.core.quota.clock import Force
from ralphd.core.quota.model import Hold, HoldKind, QuotaLimit
from ralphd.core.supervision.model import Next, Starting
from ralphd.core.time import Moment, rfc3339
from ralphd.loop.attempt.agent_run import AgentResult
from ralphd.loop.report_client import RegentReply
from ralphd.loop.reporter import Reporter
from ralphd.loop.runner import (
    ANSWER_PATIENCE_S,
    AWAY_PATIENCE_S,
    FOR_ACCOUNT,
    LAST_WORDS_S,
    LONGEST_SLEEP_S,
    LOOK_S,
)
from ralphd.loop.settings import LoopSettings
from ralphd.loop.store import continued
from ralphd.store.loop_files import MEMORY
from tests.sim.agents import COST_USD, Attempt
from tests.sim.mail import Mail
from tests.sim.world import Checkpointed, Due, RunRecord

if TYPE_CHECKING:
    from tests.sim.night import Night

IMPORTS_S: Final = 0.8
HEARTBEAT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Given:
    """Of a loop's settings what is looked at."""

    policy: LoopPolicy
    environment: Mapping[str, str]
    has_gate: bool = False


class LoopHands:
    """The loop's process of one run."""

    def __init__(
        self, night: Night, run: RunRecord, began_at: Moment | None, starting: Starting | None
    ) -> None:
        self._night, self.run = night, run
        environment = {} if began_at is None else {"RALPH_BEGAN_AT": rfc3339(began_at)}
        given = Given(night.loop_policy, environment, night.script.setting.gate)
        self._given = cast(LoopSettings, given)
        self.mail = Mail(night, run.run_id)
        self._scribe = Reporter(self.mail, self._given)
        self.loop = Loop()
        self.attempt: Attempt | None = None
        self.is_hung = False
        self._knows_list = False
        self._stop_asked = False
        self._look: Due | None = None
        self._rest, self._rest_ends_s = self.loop.stage, 0.0
        self._latest: tuple[AgentResult, Classification] | None = None
        self.by = f"me.{run.run_id}"
        night.accounts.members.add(self.by)
        self._holds: dict[str, Hold] = {}
        self._waits_at: set[str] = set()
        self._queued_at = None if starting is None else starting.queued_at
        self._force = Force.ALL if starting is not None and starting.skips else Force.NOTHING
        self._after(IMPORTS_S, self._begin)
        self._after(HEARTBEAT_S, self._beat)

    @property
    def is_stuck(self) -> bool:
        """Whether nothing happens in this process any more."""
        return self.is_hung or not self.run.lives

    def _after(self, delay_s: float, act: Callable[[], None]) -> Due:
        return self._night.agenda.after(delay_s, lambda: None if self.is_stuck else act())

    # from its start to its end

    def _begin(self) -> None:
        disk, now = self._night.disk, self._night.clock.wall()
        self._scribe.working(self._given.policy.agents[0])
        plan = self._night.list.plan(known=False)
        remembered = MEMORY.load(MEMORY.dump(disk.memory))
        checkpoint = None if disk.checkpoint is None else _as_saved(disk.checkpoint)
        memory, ledger = continued(self._given, remembered, disk.ledger, checkpoint, now)
        self._knows_list = plan is not None or memory.list_file is not None
        self._night.checks.loop_reads_the_list(knows=self._knows_list)
        self.loop = Loop(memory, ledger)
        self._remember(Loop(disk.memory, disk.ledger), self.loop)
        news = news_for(disk.gate, memory.judged, ledger)
        self._feed(Began(now, self._with_added(plan), checkpoint, news))

    def _beat(self) -> None:
        """Until the Regent knows that it beats: then nothing changes by one more."""
        if not self._night.knows_heartbeats:
            self._scribe.heartbeat()
            self._after(HEARTBEAT_S, self._beat)

    def _feed(self, event: LoopEvent) -> None:
        if isinstance(self.loop.stage, Finished):
            return
        self._stop_looking()
        night, before = self._night, self.loop
        after = night.steps.loop(before, event, night.loop_policy)
        night.checks.loop_stepped(before, event, after)
        if night.accounts.is_shared:
            self._tell_accounts(before, event, after)
        self.loop = after.loop
        self._remember(before, after.loop)
        for order in after.orders:
            self._carry_out(order)
            night.loop_may_die("after " + type(order).__name__)
        if isinstance(after.loop.stage, Finished):
            self._ends(after.loop.stage.code, night.clock.awake_s + LAST_WORDS_S)
        elif isinstance(after.loop.stage, Resting):
            self._look_at_clock()

    def _remember(self, before: Loop, after: Loop) -> None:
        disk, night = self._night.disk, self._night
        if after.ledger != before.ledger:
            disk.ledger = after.ledger
            night.loop_may_die("after tasks.json")
        if after.memory != before.memory:
            disk.memory = after.memory
            night.loop_may_die("after loop.json")

    def _ends(self, code: int, until_s: float) -> None:
        """The last words are sent, if somebody hears them in time."""
        if self.mail.is_empty or self._night.clock.awake_s >= until_s:
            self._night.run_exits(self.run, code=code)
        else:
            self._after(0.1 if not self.mail.is_away else LOOK_S, lambda: self._ends(code, until_s))

    # the clock

    def _look_at_clock(self) -> None:
        """As ``_next``: at the end of the wait, by the clock on the wall."""
        rest = self.loop.stage
        if isinstance(rest, Resting):
            self._stop_looking()
            clock = self._night.clock
            if rest is not self._rest:
                self._rest, self._rest_ends_s = rest, clock.awake_s + rest.lasts_s
            now = clock.wall()
            left_s = rest.until - now
            if not rest.for_an_agent:
                left_s = min(left_s, self._rest_ends_s - clock.awake_s)
            if now < rest.since - SET_BACK_S:
                self._feed(LoopWoke(now))
            elif left_s <= 0:
                self._feed(LoopWoke(rest.until))
            else:
                self._look = self._after(left_s, self._look_at_clock)

    def clock_jumped(self) -> None:
        """A wait looks at the clock every 30 s, so it is found out by then, however often it jumps."""
        if self._look is not None:
            self._after(LONGEST_SLEEP_S, self._look_at_clock)

    def _stop_looking(self) -> None:
        if self._look is not None:
            self._look.call_off()
            self._look = None

    # signals

    def asked_to_pause(self) -> None:
        """SIGUSR1."""
        if not self.is_stuck:
            self._feed(PauseAsked(self._night.clock.wall()))

    def asked_to_skip(self) -> None:
        """SIGUSR2."""
        if not self.is_stuck:
            self._feed(Skipped(self._night.clock.wall()))

    def asked_to_end(self) -> None:
        """SIGTERM: after this iteration; the second time now."""
        if self.is_stuck:
            return
        again, self._stop_asked = self._stop_asked, True
        self._feed(StopAsked(self._night.clock.wall()))
        if again and self.attempt is not None:
            self._night.checks.agent_is_stopped()
            self.attempt.end_as_asked()
        elif again and self._given.has_gate and isinstance(self.loop.stage, AwaitingVerdict):
            self._feed(Judged(self._night.clock.wall(), Next.CONTINUE, self._read_plan(), unheard=True))

    # orders

    def _carry_out(self, order: LoopOrder) -> None:
        night = self._night
        match order:
            case SaveCheckpoint():
                self._save_checkpoint(order)
            case ClearCheckpoint():
                night.disk.checkpoint = None
            case StartIteration(iteration=iteration):
                night.tell("the loop", f"iteration {iteration.number}: {iteration.task.id}")
                self._scribe.iteration_started(iteration, night.repository.position)
            case StartAttempt(iteration=iteration):
                if night.accounts.is_shared and (hold := self._asks_account(iteration.agent)) is not None:
                    night.tell("the loop", f"{iteration.agent} has to wait: {hold.why}")
                    self._after(0.0, lambda: self._held_back(hold))
                    return
                night.tell("the loop", f"attempt {iteration.attempt} by {iteration.agent}")
                self._scribe.working(iteration.agent)
                self.attempt = Attempt(night, self, order)
                self.attempt.starts()
            case FinishIteration():
                if not order.failed:
                    night.disk.phases = None
                    night.checks.plan_is_used_up()
                answer = self._scribe.iteration_finished(order)
                if self._given.has_gate:  # however long it takes
                    answer.add_done_callback(lambda done: self._after(LOOK_S / 2, lambda: self._hears(done)))
                    return
                self._await_verdict(answer, 0.0)
            case ReportAttempt():
                night.tell("the loop", f"next: {order.next}")
                assert self._latest is not None
                self._scribe.attempt_finished(order, *self._latest)
            case ReportLost(lost=lost):
                self._scribe.attempt_lost(lost, night.clock.wall())
            case ReportAgentOut(agent=agent, reason=reason, until=until):
                when = "a person acts" if until is None else night.local(until)
                night.tell("the loop", f"{agent} is out until {when}")
                night.checks.agent_is_out(agent, until)
                self._scribe.agent_out(agent, reason, until)
            case ReportAgentBack(agent=agent):
                night.tell("the loop", f"{agent} is back")
                self._scribe.agent_back(agent)
            case Rest(until=until, why=why):
                night.tell("the loop", f"waits until {night.local(until)}: {why}")
                self._scribe.waiting(until, why)
            case EndRest():
                self._scribe.waiting(None, "")
            case Handoff():
                pass
            case EndLoop():
                night.tell("the loop", f"ends with {order.code}: {order.why}")
                night.checks.loop_ends(order)
                self._scribe.ending(order)

    # accounts, as ``LoopAccounts``

    def _asks_account(self, agent: str) -> Hold | None:
        accounts, (force, self._force) = self._night.accounts, (self._force, Force.NOTHING)
        at, queued_at = self._night.clock.wall(), self._queued_at
        hold = accounts.ask(agent, self.by, at, force=force, queued_at=queued_at)
        if hold is not None:
            self._waits_for(agent, hold)
            return hold
        self._queued_at = None
        self._holds.pop(agent, None)
        self._waits_at.discard(agent)
        for account in sorted(self._waits_at):
            accounts.withdraws(account, self.by)
        self._waits_at.clear()
        return None

    def _waits_for(self, agent: str, hold: Hold) -> None:
        self._holds[agent] = hold
        self._waits_at.add(agent)

    def _held_back(self, hold: Hold) -> None:
        now, for_slot = self._night.clock.wall(), hold.kind is HoldKind.SLOTS
        self._feed(HeldBack(now, hold.until, hold.why, hold.brief, for_slot))

    def look_at_accounts(self) -> None:
        """While it rests for an account, it looks whether what holds it back has changed."""
        now, rest = self._night.clock.wall(), self.loop.stage
        if self.is_stuck or not isinstance(rest, Resting) or rest.reason not in FOR_ACCOUNT:
            return
        for agent, hold in self._holds.items():
            if not hold.is_same(self._night.accounts.holds(agent, self.by, now)):
                del self._holds[agent]
                self._feed(AccountFreed(now, agent))
                return

    def _tell_accounts(self, before: Loop, event: LoopEvent, after: LoopStep) -> None:
        match before.stage, event:
            case Attempting(iteration=iteration), AttemptOver():
                self._tell_end(iteration.agent, event, after)
            case Resting(reason=reason), Skipped() if reason in FOR_ACCOUNT:
                self._force = Force.ALL
            case Begin(), Began(resumed=Checkpoint() as resumed):
                if self._given.policy.pause_when_exhausted and resumed.waits_for_limit:
                    self._force = Force.GUESSES

    def _tell_end(self, agent: str, event: AttemptOver, after: LoopStep) -> None:
        accounts, finding, policy = self._night.accounts, event.finding, self._given.policy
        if finding.kind not in (FailureKind.RATE_LIMIT, FailureKind.USAGE_LIMIT):
            answered = event.worked or (finding.kind is None and not finding.asked)
            accounts.ends(agent, self.by, answered=answered)
            return
        reset = finding.reset
        until = next((each.until for each in after.orders if isinstance(each, ReportAttempt)), None)
        guessed = reset is None or reset.until <= event.at
        if until is None:
            guess = event.at + policy.rate_limit_s
            until = guess if reset is None or guessed else reset.until + policy.reset_margin_s
        if until <= event.at:
            accounts.ends(agent, self.by, answered=False)
            return
        brief = finding.kind is FailureKind.RATE_LIMIT
        limit = QuotaLimit(until, event.at, "simulated", self.by, guessed, brief)
        if (hold := accounts.meets(agent, self.by, limit)) is not None:
            self._waits_for(agent, hold)

    def _save_checkpoint(self, order: SaveCheckpoint) -> None:
        iteration, memory = order.iteration, self.loop.memory
        self._night.disk.checkpoint = Checkpointed(
            iteration=memory.iteration + 1 if iteration is None else iteration.number,
            reason=order.reason,
            task_id=None if iteration is None else iteration.task.id,
            attempt=0 if iteration is None else iteration.attempt,
            agent=None if iteration is None else iteration.agent,
            session=None if iteration is None else iteration.session,
            resume_at=order.resume_at,
            why=order.why,
            cost_usd=memory.cost_usd,
            saved_at=self._night.clock.wall(),
        )

    def save_before_kill(self, iteration: Iteration, kind: FailureKind, why: str) -> None:
        """An agent is ended for time or silence: the checkpoint comes first."""
        self._save_checkpoint(SaveCheckpoint(PauseReason(kind.value), iteration, None, why))

    def attempt_is_over(
        self, attempt: Attempt, finding: Classification, commits: int, *, promised: bool, halted: str = ""
    ) -> None:
        """The agent's process has ended and its tree is gone."""
        self.attempt = None
        now = self._night.clock.wall()
        result = AgentResult(Evidence(code=0 if finding.kind is None else 1), now, now, Figures(COST_USD))
        self._latest = result, finding
        over = AttemptOver(
            at=now,
            finding=finding,
            plan=self._read_plan(),
            commits=commits,
            cost_usd=COST_USD,
            session=f"{attempt.agent}-{attempt.task}",
            worked=bool(commits),
            promised=promised,
            chance=self._night.noise(),
            notes_read=max(attempt.notes, default=0),
            halted=halted,
        )
        self._feed(over)
        if finding.kind is None and not finding.asked:
            self._night.checks.notes_are_read(attempt.notes)

    def _read_plan(self) -> Plan | None:
        plan = self._night.list.plan(known=self._knows_list)
        self._knows_list = self._knows_list or plan is not None
        return self._with_added(plan)

    def _with_added(self, plan: Plan | None) -> Plan | None:
        added = plan_tasks(self._night.disk.inbox)
        return replace(plan or Plan(""), added=added) if added else plan

    # a boundary

    def _await_verdict(self, answer: Future[RegentReply], waited_s: float) -> None:
        """As ``Boundary``: without a gate nobody waits long for a daemon that is away."""
        if not isinstance(self.loop.stage, AwaitingVerdict):
            return
        patience_s = AWAY_PATIENCE_S if self.mail.is_away else ANSWER_PATIENCE_S
        now = self._night.clock.wall
        if answer.done():
            self._feed(Judged(now(), answer.result().next, self._read_plan()))
        elif waited_s >= patience_s:
            answer.add_done_callback(lambda done: self._late(done.result().next))
            self._feed(Judged(now(), Next.CONTINUE, self._read_plan()))
        else:
            step_s = LOOK_S if waited_s or self.mail.is_away else 0.05
            self._after(step_s, lambda: self._await_verdict(answer, waited_s + step_s))

    def _hears(self, answer: Future[RegentReply]) -> None:
        if isinstance(self.loop.stage, AwaitingVerdict):
            reply = answer.result()
            self._feed(Judged(self._night.clock.wall(), reply.next, self._read_plan(), reply.verdict))

    def _late(self, answer: Next) -> None:
        wishes: dict[Next, type[PauseAsked | StopAsked]] = {Next.STOP: StopAsked, Next.PAUSE: PauseAsked}
        if (wish := wishes.get(answer)) is not None and not self.is_stuck:
            at = self._night.clock.wall()
            self._after(0.0, lambda: self._feed(wish(at)))


def _as_saved(kept: Checkpointed) -> Checkpoint:
    task = None if kept.task_id is None else CheckpointTask(kept.task_id, "", kept.attempt)
    return Checkpoint(
        created_at=kept.saved_at,
        iteration=kept.iteration,
        pause_reason=kept.reason,
        task=task,
        agent=kept.agent,
        resume_at=kept.resume_at,
        session_id=kept.session,
        total_cost_usd=kept.cost_usd,
        why=kept.why,
    )
