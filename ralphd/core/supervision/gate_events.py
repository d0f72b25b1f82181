"""What a gate run does to a ralph, while it is under way and when its verdict has come (R1 to R9)."""

from dataclasses import replace

from ralphd.core.gate.verdict import Result, Verdict, VerdictKind, short
from ralphd.core.supervision import events, requests
from ralphd.core.supervision.model import (
    HAS_A_RUN,
    Action,
    Announce,
    Escalate,
    Failed,
    Goal,
    Paused,
    Pausing,
    Policy,
    RunId,
    Running,
    Spawn,
    Starting,
    Step,
    Stopped,
    Stopping,
    Supervision,
    Waiting,
)
from ralphd.core.supervision.reports import task_data
from ralphd.core.supervision.transitions import GUARD, PAUSED_ON_REQUEST, STOPPED, has_boundaries
from ralphd.core.text import normalized

MOST_LINE_CHARS = 160
UNFIT = "the tests cannot be run: test_command is not found or not executable"


def began(current: Supervision, event: events.GateRunBegan) -> Step:
    """Expect no sign of life until the tests have ended (H5). A request for a start is answered by now."""
    testing = replace(current, said=replace(current.said, testing=True))
    match current.state:
        case Starting(kill=kill) if event.run_id is None:
            return Step(replace(testing, state=Starting(kill=kill)))
        case _ if event.run_id is not None and _lives(current, event.run_id):
            return Step(testing)
        case _:
            return Step(current)


def baseline(current: Supervision, event: events.BaselineTested) -> Step:
    """R4: the first run starts, whatever the tests say of the tree, unless they cannot be run at all."""
    if not isinstance(current.state, Starting):
        return Step(current)
    current = replace(current, said=replace(current.said, testing=False))
    if current.goal is Goal.PAUSED:
        return Step(replace(current, state=Paused("requested")), (PAUSED_ON_REQUEST,))
    if current.goal is Goal.STOPPED:
        return Step(replace(current, state=Stopped()), (STOPPED,))
    data = (("baseline", True), ("tests", None if event.result is None else event.result.value))
    match event.result:
        case None:
            return Step(current, (Spawn(),))
        case Result.GREEN:
            return Step(current, (Announce("tests.passed", data=data), Spawn()))
        case Result.CANNOT_RUN:
            why = f"Ralph is not started: {UNFIT} ({event.how})"
            return Step(replace(current, state=Failed(why)), (Escalate(why), Announce("ralph.failed")))
        case Result.RED:
            return Step(current, (_not_green("are red", data), Spawn()))
        case Result.TIMED_OUT | Result.ENDED:
            return Step(current, (_not_green(f"say nothing ({event.how})", data), Spawn()))


def _not_green(what: str, data: tuple[tuple[str, object], ...]) -> Announce:
    text = f"The tests {what} before Ralph begins: commits are not judged until they are green"
    return Announce("tests.failed", text, data=data)


def over(current: Supervision, event: events.VerdictReached, policy: Policy) -> Step:
    """Announce a verdict, once, and pause where a person has to look first (R2, R6, R8)."""
    verdict, tally = event.verdict, current.tally
    if verdict.boundary_id and current.said.judged == verdict.boundary_id:
        return Step(current)
    reverted = verdict.kind is VerdictKind.REVERTED
    is_news = verdict.calls and verdict.why != tally.called
    tally = replace(tally, reverts=tally.reverts + reverted, called=verdict.why if verdict.calls else None)
    said = replace(current.said, testing=False, judged=verdict.boundary_id, reverted=reverted)
    current = replace(current, tally=tally, said=said)
    actions = _verdict_actions(verdict, calls=is_news)
    return _paused(current, event, actions, policy) if verdict.pauses else Step(current, actions)


def announced(event: events.CommitsRestored | events.LeftBehind) -> tuple[Announce, ...]:
    """Announce a change of the repository that changes nothing for the ralph."""
    return _left_behind(event) if isinstance(event, events.LeftBehind) else _restored(event)


def _left_behind(event: events.LeftBehind) -> tuple[Announce, ...]:
    repaired = Announce("state.recovered", f"Mended what the run had left: {'; '.join(event.done)}")
    left = Announce("guard.blocked", f"The run has left something half done: {'; '.join(event.told)}")
    return (*((repaired,) if event.done else ()), *((left,) if event.told else ()))


def _restored(event: events.CommitsRestored) -> tuple[Announce, ...]:
    of = "" if event.number is None else f" of iteration {event.number}"
    text = f"Put back, as asked — {_commits(event.commits)}{of}; the tests run before the next start"
    return (Announce("commit.restored", text, data=restored_data(event)),)


def restored_data(event: events.CommitsRestored) -> tuple[tuple[str, object], ...]:
    """Return what events and the history keep of it, by their names."""
    return (
        ("iteration", event.number),
        ("task", event.task),
        ("commits", list(event.commits)),
        ("made", list(event.made)),
    )


def _lives(current: Supervision, run_id: RunId) -> bool:
    return isinstance(current.state, HAS_A_RUN) and current.state.run_id == run_id


def _paused(
    current: Supervision, event: events.VerdictReached, actions: tuple[Action, ...], policy: Policy
) -> Step:
    if current.goal is Goal.STOPPED:
        return Step(current, actions)
    why = event.verdict.why
    current = replace(current, goal=Goal.PAUSED, said=replace(current.said, guard=why))
    match current.state:
        case Running(run_id=run_id) if has_boundaries(current):  # it hears of it in the answer it waits for
            return Step(replace(current, state=Pausing(run_id, event.at, None, asked=False)), actions)
        case Running():
            asked = requests.pause(current, event.at, policy)
            return Step(asked.supervision, (*actions, *asked.actions))
        case Stopping(run_id=run_id, since=since, kill_at=kill_at, asked=asked):  # to be followed by another
            return Step(replace(current, state=Pausing(run_id, since, kill_at, asked)), actions)
        case Waiting() | Paused():
            return Step(replace(current, state=Paused(GUARD, None, why)), actions)
        case _:
            return Step(current, actions)


def _verdict_actions(verdict: Verdict, *, calls: bool) -> tuple[Action, ...]:
    """Return the lines of C4 and their events; with ``calls`` a person is called."""
    data, commits, reverted = data_of(verdict), short(verdict.commits), short(verdict.reverted)
    match verdict.kind:
        case VerdictKind.KEPT if not verdict.tests:
            return ()
        case VerdictKind.KEPT:
            text = f"Tests passed ✅ — {_commits(commits)} kept"
            return (Announce("tests.passed", data=data), Announce("commit.kept", text, data=data))
        case VerdictKind.REVERTED:
            text = f"Tests failed ❌ — reverting {_commits(reverted)}"
            called = (Escalate(f"{text}; {verdict.why}"),) if calls else ()
            word = last_line(verdict.tail)
            return (
                Announce("tests.failed", f"The tests end with: {word}" if word else None, data=data),
                Announce("commit.reverted", text, data=data),
                *called,
            )
        case VerdictKind.UNTESTED:
            stays = f"{_commits(commits[:1])} stays" if commits else "the iteration stays"
            if reverted:  # where a revert could not be taken back, or somebody has moved HEAD since
                stays = f"{_commits(reverted)} stay{'s' if len(reverted) == 1 else ''} reverted"
            text = f"Not judged — {stays}: {verdict.why}"
            if verdict.pauses or calls:  # the call says it: one line of the log is enough
                return (Announce("guard.blocked", data=(("message", text), *data)), Escalate(text))
            return (Announce("guard.blocked", text, data=data),)


def _commits(shas: tuple[str, ...]) -> str:
    """``commit abc1234``, ``commits abc1234, def5678``."""
    more = f" and {len(shas) - 3} more" if len(shas) > 3 else ""
    return f"commit{'s' if len(shas) > 1 else ''} {', '.join(shas[:3])}{more}"


def last_line(printed: str) -> str:
    """Return the last line that the tests printed, shortened."""
    lines = [" ".join(line.split()) for line in normalized(printed).splitlines()]
    last = next((line for line in reversed(lines) if line), "")
    return last if len(last) <= MOST_LINE_CHARS else last[: MOST_LINE_CHARS - 1] + "…"


def data_of(verdict: Verdict) -> tuple[tuple[str, object], ...]:
    """Return what events and the history keep of a verdict, by their names."""
    return (
        ("iteration", verdict.number),
        ("task", task_data(verdict.task)),
        ("verdict", verdict.kind.value),
        ("why", verdict.why),
        ("commits", list(short(verdict.commits))),
        ("reverted", list(short(verdict.reverted))),
        ("tests", list(verdict.tests)),
        ("refs", list(verdict.refs)),
    )
