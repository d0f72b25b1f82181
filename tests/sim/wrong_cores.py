"""Cores that are wrong on purpose, one mistake each: a night has to notice every one of them."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ralphd.core.loop import step as loop_core
from ralphd.core.loop.model import (
    AttemptOver,
    AwaitingVerdict,
    Began,
    Judged,
    Loop,
    LoopEvent,
    LoopPolicy,
    LoopStep,
    ReportAttempt,
    Rest,
    Resting,
    SaveCheckpoint,
    StartAttempt,
    TaskRecord,
    TaskState,
)
from ralphd.core.plan import Plan, Task, TaskStatus
from ralphd.core.supervision import door
from ralphd.core.supervision import step as regent_core
from ralphd.core.supervision.door import Caller, RequestedAction
from ralphd.core.supervision.events import DaemonStarted, Event, RunEnded, StopRequested
from ralphd.core.supervision.model import (
    Escalate,
    Failed,
    Goal,
    KillAfter,
    KillTree,
    Policy,
    Running,
    Spawn,
    Step,
    Stopping,
    Supervision,
    Waiting,
)
from ralphd.core.supervision.reports import IterationStarted, Reported
from tests.sim.cores import Steps
from tests.sim.faults import Script, What, script_of
from tests.sim.wrong_gate import GATE
from tests.sim.wrong_landing import LANDING
from tests.sim.wrong_phases import PHASES
from tests.sim.wrong_shared import SHARED

# the Regent's


def _forgets_an_end(now: Supervision, event: Event, policy: Policy) -> Step:
    return Step(now) if isinstance(event, RunEnded) else regent_core.step(now, event, policy)


def _starts_a_second(now: Supervision, event: Event, policy: Policy) -> Step:
    answer = regent_core.step(now, event, policy)
    if isinstance(event, Reported) and isinstance(event.report, IterationStarted):
        return replace(answer, actions=(*answer.actions, Spawn()))
    return answer


def _takes_lost_for_done(now: Supervision, event: Event, policy: Policy) -> Step:
    if isinstance(event, RunEnded) and event.ending.lost:
        event = RunEnded(replace(event.ending, code=0))
    return regent_core.step(now, event, policy)


def _waits_twice(now: Supervision, event: Event, policy: Policy) -> Step:
    answer = regent_core.step(now, event, policy)
    state = answer.supervision.state
    if isinstance(state, Waiting) and state is not now.state:
        longer = replace(state, until=state.until + (state.until - state.since))
        return replace(answer, supervision=replace(answer.supervision, state=longer))
    return answer


def _forgets_the_goal(now: Supervision, event: Event, policy: Policy) -> Step:
    answer = regent_core.step(now, event, policy)
    if isinstance(event, DaemonStarted):
        return replace(answer, supervision=replace(answer.supervision, goal=Goal.STOPPED))
    return answer


def _calls_twice(now: Supervision, event: Event, policy: Policy) -> Step:
    answer = regent_core.step(now, event, policy)
    if isinstance(now.state, Failed) and isinstance(event, DaemonStarted):
        return replace(answer, actions=(*answer.actions, Escalate(now.state.why)))
    return answer


def _never_gives_up(now: Supervision, event: Event, policy: Policy) -> Step:
    return regent_core.step(now, event, replace(policy, max_retries=10_000))


def _forgets_the_hour(now: Supervision, event: Event, policy: Policy) -> Step:
    return regent_core.step(now, event, replace(policy, max_restarts_per_hour=0))


def _kills_at_work(now: Supervision, event: Event, policy: Policy) -> Step:
    answer = regent_core.step(now, event, policy)
    if isinstance(event, DaemonStarted) and isinstance(answer.supervision.state, Running):
        return replace(answer, actions=(*answer.actions, KillTree(answer.supervision.state.run_id)))
    return answer


def _does_not_go_on(now: Supervision, event: Event, policy: Policy) -> Step:
    return (
        Step(now)
        if isinstance(event, DaemonStarted) and event.living is None
        else regent_core.step(now, event, policy)
    )


def _starts_what_was_stopped(now: Supervision, event: Event, policy: Policy) -> Step:
    """A stop is a restart for it."""
    answer = regent_core.step(now, event, policy)
    if isinstance(event, StopRequested) and isinstance(state := answer.supervision.state, Stopping):
        return replace(answer, supervision=replace(answer.supervision, state=replace(state, again=True)))
    return answer


def _signals_any_command(now: Supervision, event: Event, policy: Policy) -> Step:
    """It sends signals that the command has not announced."""
    return regent_core.step(replace(now, said=replace(now.said, signals=True)), event, policy)


def _waits_for_the_stubborn(now: Supervision, event: Event, policy: Policy) -> Step:
    """It never kills what does not end when it is asked to."""
    answer = regent_core.step(now, event, policy)
    return replace(answer, actions=tuple(each for each in answer.actions if not isinstance(each, KillAfter)))


def _is_done_after_one(now: Supervision, event: Event, policy: Policy) -> Step:
    """In iteration mode, it takes the first end for the last one."""
    if isinstance(event, RunEnded):
        event = RunEnded(replace(event.ending, complete=True))
    return regent_core.step(now, event, policy)


def _believes_last_words(now: Supervision, event: Event, policy: Policy) -> Step:
    """What a run announced of its end outweighs how it ended."""
    word = now.said.last_word
    if isinstance(event, RunEnded) and word is not None and word.code == 0:
        event = RunEnded(replace(event.ending, code=0, signal=None))
    return regent_core.step(now, event, policy)


def _obeys_a_run(asked: RequestedAction, caller: Caller, runs_may: Collection[str]) -> bool:
    return asked.action in ("stop", "pause") or door.is_permitted(asked, caller, runs_may)


# the loop's


def _forgets_notes(loop: Loop, event: LoopEvent, policy: LoopPolicy) -> LoopStep:
    """It does not note what an agent has read."""
    return loop_core.step(
        loop, replace(event, notes_read=0) if isinstance(event, AttemptOver) else event, policy
    )


def _skips_what_is_added(loop: Loop, event: LoopEvent, policy: LoopPolicy) -> LoopStep:
    """It takes what a person added for done, when it ends."""
    after = loop_core.step(loop, event, policy)
    added = () if after.loop.plan is None else after.loop.plan.added
    done = {each.id: TaskRecord(each.id, each.title, TaskState.COMPLETE) for each in added}
    return replace(after, loop=replace(after.loop, ledger={**after.loop.ledger, **done}))


def _begins_twice(loop: Loop, event: LoopEvent, policy: LoopPolicy) -> LoopStep:
    after = loop_core.step(loop, event, policy)
    again = [order for order in after.orders if isinstance(order, StartAttempt)]
    return replace(after, orders=(*after.orders, *again))


def _rests_twice(loop: Loop, event: LoopEvent, policy: LoopPolicy) -> LoopStep:
    after = loop_core.step(loop, event, policy)
    stage = after.loop.stage
    if not isinstance(stage, Resting) or stage is loop.stage:
        return after
    until = stage.until + stage.lasts_s
    orders = tuple(replace(each, until=until) if isinstance(each, Rest) else each for each in after.orders)
    return LoopStep(replace(after.loop, stage=replace(stage, until=until)), orders)


def _plan_with(event: LoopEvent, change: Mapping[str, TaskStatus]) -> LoopEvent:
    """The event, with a list that says something else of some tasks."""
    if not isinstance(event, Began | AttemptOver | Judged) or event.plan is None:
        return event
    tasks = tuple(replace(task, status=change.get(task.id, task.status)) for task in event.plan.tasks)
    return replace(event, plan=replace(event.plan, tasks=tasks))


def _loses_a_task(loop: Loop, event: LoopEvent, policy: LoopPolicy) -> LoopStep:
    return loop_core.step(loop, _plan_with(event, {"T3": TaskStatus.DONE}), policy)


def _does_a_task_twice(loop: Loop, event: LoopEvent, policy: LoopPolicy) -> LoopStep:
    return loop_core.step(loop, _plan_with(event, {"T1": TaskStatus.PENDING}), policy)


def _believes_a_promise(loop: Loop, event: LoopEvent, policy: LoopPolicy) -> LoopStep:
    promised = isinstance(event, AttemptOver) and event.promised
    promised = promised or (isinstance(loop.stage, AwaitingVerdict) and loop.stage.promised)
    if promised and isinstance(event, AttemptOver | Judged) and event.plan is not None:
        event = _plan_with(event, dict.fromkeys((task.id for task in event.plan.tasks), TaskStatus.DONE))
    return loop_core.step(loop, event, policy)


def _tells_nothing(loop: Loop, event: LoopEvent, policy: LoopPolicy) -> LoopStep:
    after = loop_core.step(loop, event, policy)
    return replace(after, orders=tuple(each for each in after.orders if not isinstance(each, ReportAttempt)))


def _forgets_who_is_out(loop: Loop, event: LoopEvent, policy: LoopPolicy) -> LoopStep:
    forgetful = replace(loop, memory=replace(loop.memory, out=()))
    return loop_core.step(forgetful if isinstance(event, Began) else loop, event, policy)


def _never_rests(loop: Loop, event: LoopEvent, policy: LoopPolicy) -> LoopStep:
    eager = replace(policy, outage_max_wait_s=0.1, max_s=0.1, rate_limit_s=0.1, reset_margin_s=-1e6)
    return loop_core.step(loop, event, eager)


def _saves_no_checkpoint(loop: Loop, event: LoopEvent, policy: LoopPolicy) -> LoopStep:
    after = loop_core.step(loop, event, policy)
    return replace(after, orders=tuple(each for each in after.orders if not isinstance(each, SaveCheckpoint)))


def _gives_up_early(loop: Loop, event: LoopEvent, policy: LoopPolicy) -> LoopStep:
    return loop_core.step(loop, event, replace(policy, max_task_failures=1))


def _drops_the_list(loop: Loop, event: LoopEvent, policy: LoopPolicy) -> LoopStep:
    """It reads an empty list as one that is done."""
    if (
        isinstance(event, AttemptOver)
        and event.plan is not None
        and not event.plan.tasks
        and loop.plan is not None
    ):
        done = tuple(Task(task.id, task.title, TaskStatus.DONE) for task in loop.plan.tasks)
        event = replace(event, plan=Plan(event.plan.file, done))
    return loop_core.step(loop, event, policy)


def _never_tries_again(loop: Loop, event: LoopEvent, policy: LoopPolicy) -> LoopStep:
    """A task that failed once is complete for it."""
    after = loop_core.step(loop, event, policy)
    ledger = {
        id_: replace(each, failure_count=99) if each.state is TaskState.FAILED else each
        for id_, each in after.loop.ledger.items()
    }
    return replace(after, loop=replace(after.loop, ledger=ledger))


@dataclass(frozen=True, slots=True)
class Wrong:
    """A wrong core, and the ``rules`` by which a night may say so; ``met``: only such nights can."""

    steps: Steps
    rules: tuple[str, ...]
    met: What | None = None

    def nights(self, most: int) -> Iterator[Script]:
        """The first nights in which the mistake can show."""
        scripts = map(script_of, range(most))
        return (each for each in scripts if self.met in (None, *(fault.what for fault in each.faults)))


WRONG: Final[Mapping[str, Wrong]] = {
    "the Regent forgets an end": Wrong(
        Steps(_forgets_an_end),
        (
            "nothing is forgotten",
            "nothing runs unwatched",
        ),
    ),
    "the Regent starts a second run": Wrong(Steps(_starts_a_second), ("one run",)),
    "the Regent takes a lost run for done": Wrong(
        Steps(_takes_lost_for_done), ("no outcome is invented",), What.RUN_LOST
    ),
    "the Regent waits twice as long": Wrong(Steps(_waits_twice), ("no wait is too long",)),
    "the Regent forgets the goal": Wrong(Steps(_forgets_the_goal), ("the goal is kept",)),
    "the Regent calls a person twice": Wrong(Steps(_calls_twice), ("a person is called once",)),
    "the Regent never gives up": Wrong(Steps(_never_gives_up), ("restarts are bounded",)),
    "the Regent forgets the restarts of an hour": Wrong(
        Steps(_forgets_the_hour), ("restarts are bounded",), What.RUN_LOST
    ),
    "the Regent kills a run at work": Wrong(Steps(_kills_at_work), ("no working agent is killed",)),
    "the Regent does not go on after a daemon's death": Wrong(
        Steps(_does_not_go_on),
        (
            "nothing is forgotten",
            "no task is lost",
            "finishes",
            "continues",
        ),
    ),
    "the Regent starts what was stopped": Wrong(
        Steps(_starts_what_was_stopped), ("the goal is kept",), What.STOP
    ),
    "the Regent signals any command": Wrong(
        Steps(_signals_any_command), ("no working agent is killed",), What.PAUSE
    ),
    "the Regent waits for a stubborn command": Wrong(
        Steps(_waits_for_the_stubborn), ("a stop is carried out",), What.STOP
    ),
    "the Regent is done after one iteration": Wrong(Steps(_is_done_after_one), ("no outcome is invented",)),
    "the Regent believes last words": Wrong(
        Steps(_believes_last_words), ("no outcome is invented",), What.FORGES
    ),
    "the door lets a run stop itself": Wrong(
        Steps(door=_obeys_a_run), ("a run commands nothing",), What.MEDDLES
    ),
    "the loop forgets which notes were read": Wrong(
        Steps(loop=_forgets_notes), ("nothing is done twice",), What.NOTE
    ),
    "the loop takes an added task for done": Wrong(
        Steps(loop=_skips_what_is_added), ("no outcome is invented",), What.ADD_TASK
    ),
    "the loop begins two attempts": Wrong(Steps(loop=_begins_twice), ("one agent",)),
    "the loop waits twice as long as a limit says": Wrong(Steps(loop=_rests_twice), ("no wait is too long",)),
    "the loop loses a task": Wrong(Steps(loop=_loses_a_task), ("no outcome is invented",)),
    "the loop does a task twice": Wrong(Steps(loop=_does_a_task_twice), ("nothing is done twice",)),
    "the loop believes a promise": Wrong(
        Steps(loop=_believes_a_promise), ("no outcome is invented",), What.PROMISE
    ),
    "the loop does not tell an attempt": Wrong(Steps(loop=_tells_nothing), ("recorded once",)),
    "the loop forgets who is out": Wrong(
        Steps(loop=_forgets_who_is_out), ("who is out is not asked",), What.USAGE_LIMIT
    ),
    "the loop never rests": Wrong(
        Steps(loop=_never_rests),
        (
            "restarts are bounded",
            "who is out is not asked",
            "no wait is too long",
        ),
        What.USAGE_LIMIT,
    ),
    "the loop saves no checkpoint": Wrong(Steps(loop=_saves_no_checkpoint), ("a checkpoint comes first",)),
    "the loop gives tasks up early": Wrong(Steps(loop=_gives_up_early), ("no task is lost",)),
    "the loop takes an empty list for a done one": Wrong(
        Steps(loop=_drops_the_list), ("no outcome is invented",), What.EMPTIES_LIST
    ),
    "the loop never tries a task again": Wrong(Steps(loop=_never_tries_again), ("no task is lost",)),
    **{name: Wrong(steps, rules) for name, (steps, rules) in {**SHARED, **GATE, **LANDING, **PHASES}.items()},
}
