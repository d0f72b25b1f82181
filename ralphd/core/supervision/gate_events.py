"""What the judgement of its commits does to a ralph, while it is under way and when it is over (R1 to R9)."""

from dataclasses import replace

from ralphd.core.gate.verdict import Result, VerdictKind
from ralphd.core.supervision import requests
from ralphd.core.supervision.events import (
    BaselineTested,
    CommitsRestored,
    JudgementBegan,
    JudgementOver,
    LeftBehind,
)
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
    Stopped,
    Stopping,
    Supervision,
    Waiting,
)
from ralphd.core.supervision.reports import task_data
from ralphd.core.supervision.transitions import GUARD, PAUSED_ON_REQUEST, STOPPED, Step, has_boundaries
from ralphd.core.text import normalized

MOST_LINE_CHARS = 160
UNFIT = "the tests cannot be run: test_command is not found or not executable"


def began(now: Supervision, event: JudgementBegan) -> Step:
    """From now on nobody expects a sign of life (H5). Who asked for a start is answered by now."""
    testing = replace(now, said=replace(now.said, testing=True))
    match now.state:
        case Starting(kill=kill) if event.run_id is None:
            return Step(replace(testing, state=Starting(kill=kill)))
        case _ if event.run_id is not None and _lives(now, event.run_id):
            return Step(testing)
        case _:
            return Step(now)


def baseline(now: Supervision, event: BaselineTested) -> Step:
    """R4: the first run starts, whatever the tests say of the tree, unless they cannot be run at all."""
    if not isinstance(now.state, Starting):
        return Step(now)
    now = replace(now, said=replace(now.said, testing=False))
    if now.goal is Goal.PAUSED:
        return Step(replace(now, state=Paused("requested")), (PAUSED_ON_REQUEST,))
    if now.goal is Goal.STOPPED:
        return Step(replace(now, state=Stopped()), (STOPPED,))
    data = (("baseline", True), ("tests", None if event.result is None else event.result.value))
    match event.result:
        case None:
            return Step(now, (Spawn(),))
        case Result.GREEN:
            return Step(now, (Announce("tests.passed", data=data), Spawn()))
        case Result.CANNOT_RUN:
            why = f"Ralph is not started: {UNFIT} ({event.how})"
            return Step(replace(now, state=Failed(why)), (Escalate(why), Announce("ralph.failed")))
        case Result.RED:
            return Step(now, (_not_green("are red", data), Spawn()))
        case Result.TIMED_OUT | Result.ENDED:
            return Step(now, (_not_green(f"say nothing ({event.how})", data), Spawn()))


def _not_green(what: str, data: tuple[tuple[str, object], ...]) -> Announce:
    text = f"The tests {what} before Ralph begins: commits are not judged until they are green"
    return Announce("tests.failed", text, data=data)


def over(now: Supervision, event: JudgementOver, policy: Policy) -> Step:
    """What is said of it, once, and a pause where a person has to look first (R2, R6, R8)."""
    if event.id and now.said.judged == event.id:
        return Step(now)
    verdict, tally = event.verdict, now.tally
    reverted = verdict.kind is VerdictKind.REVERTED
    is_news = verdict.calls and verdict.why != tally.called
    tally = replace(tally, reverts=tally.reverts + reverted, called=verdict.why if verdict.calls else None)
    said = replace(now.said, testing=False, judged=event.id, reverted=reverted)
    now = replace(now, tally=tally, said=said)
    told = _told(event, calls=is_news)
    return _paused(now, event, told, policy) if verdict.pauses else Step(now, told)


def told(event: CommitsRestored | LeftBehind) -> tuple[Announce, ...]:
    """What is news of the repository, and changes nothing for the ralph."""
    return _left_behind(event) if isinstance(event, LeftBehind) else _restored(event)


def _left_behind(event: LeftBehind) -> tuple[Announce, ...]:
    """What is said of a repository in which a run has left something half done."""
    mended = Announce("state.recovered", f"Mended what the run had left: {'; '.join(event.done)}")
    left = Announce("guard.blocked", f"The run has left something half done: {'; '.join(event.told)}")
    return (*((mended,) if event.done else ()), *((left,) if event.told else ()))


def _restored(event: CommitsRestored) -> tuple[Announce, ...]:
    """What is said of commits that a person has put back."""
    of = "" if event.number is None else f" of iteration {event.number}"
    text = f"Put back, as asked — {_commits(event.commits)}{of}; the tests run before the next start"
    return (Announce("commit.restored", text, data=restored_data(event)),)


def restored_data(event: CommitsRestored) -> tuple[tuple[str, object], ...]:
    """What the event and the record keep of it, by their names."""
    return (
        ("iteration", event.number),
        ("task", event.task),
        ("commits", list(event.commits)),
        ("made", list(event.made)),
    )


def _lives(now: Supervision, run_id: RunId) -> bool:
    return isinstance(now.state, HAS_A_RUN) and now.state.run_id == run_id


def _paused(now: Supervision, event: JudgementOver, told: tuple[Action, ...], policy: Policy) -> Step:
    if now.goal is Goal.STOPPED:
        return Step(now, told)
    why = event.verdict.why
    now = replace(now, goal=Goal.PAUSED, said=replace(now.said, guard=why))
    match now.state:
        case Running(run_id=run_id) if has_boundaries(now):  # it hears of it in the answer it waits for
            return Step(replace(now, state=Pausing(run_id, event.at, None, asked=False)), told)
        case Running():
            asked = requests.pause(now, event.at, policy)
            return Step(asked.supervision, (*told, *asked.actions))
        case Stopping(run_id=run_id, since=since, kill_at=kill_at, asked=asked):  # to be followed by another
            return Step(replace(now, state=Pausing(run_id, since, kill_at, asked)), told)
        case Waiting() | Paused():
            return Step(replace(now, state=Paused(GUARD, None, why)), told)
        case _:
            return Step(now, told)


def _told(event: JudgementOver, *, calls: bool) -> tuple[Action, ...]:
    """The lines of C4, and the events behind them; with ``calls`` a person is called."""
    verdict, data = event.verdict, data_of(event)
    head = event.commits[0] if event.commits else ""
    match verdict.kind:
        case VerdictKind.KEPT if not event.tests:
            return ()
        case VerdictKind.KEPT:
            text = f"Tests passed ✅ — {_commits(event.commits)} kept"
            return (Announce("tests.passed", data=data), Announce("commit.kept", text, data=data))
        case VerdictKind.REVERTED:
            text = f"Tests failed ❌ — reverting {_commits(event.reverted)}"
            called = (Escalate(f"{text}; {verdict.why}"),) if calls else ()
            word = last_line(event.tail)
            return (
                Announce("tests.failed", f"The tests end with: {word}" if word else None, data=data),
                Announce("commit.reverted", text, data=data),
                *called,
            )
        case VerdictKind.UNTESTED:
            stays = f"{_commits((head,))} stays" if head else "the iteration stays"
            if event.reverted:  # where a revert could not be taken back, or somebody has moved HEAD since
                stays = f"{_commits(event.reverted)} stay{'s' if len(event.reverted) == 1 else ''} reverted"
            text = f"Not judged — {stays}: {verdict.why}"
            if verdict.pauses or calls:  # the call says it: one line of the log is enough
                return (Announce("guard.blocked", data=(("message", text), *data)), Escalate(text))
            return (Announce("guard.blocked", text, data=data),)


def _commits(shas: tuple[str, ...]) -> str:
    """``commit abc1234``, ``commits abc1234, def5678``."""
    more = f" and {len(shas) - 3} more" if len(shas) > 3 else ""
    return f"commit{'s' if len(shas) > 1 else ''} {', '.join(shas[:3])}{more}"


def last_line(printed: str) -> str:
    """The last line of what the tests printed, for a person to see at once what it was about."""
    lines = [" ".join(line.split()) for line in normalized(printed).splitlines()]
    last = next((line for line in reversed(lines) if line), "")
    return last if len(last) <= MOST_LINE_CHARS else last[: MOST_LINE_CHARS - 1] + "…"


def data_of(event: JudgementOver) -> tuple[tuple[str, object], ...]:
    """What events and the record keep of it, by their names."""
    return (
        ("iteration", event.number),
        ("task", task_data(event.task)),
        ("verdict", event.verdict.kind.value),
        ("why", event.verdict.why),
        ("commits", list(event.commits)),
        ("reverted", list(event.reverted)),
        ("tests", list(event.tests)),
        ("refs", list(event.refs)),
    )
