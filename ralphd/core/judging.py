"""What the judgement of its commits does to a ralph, while it is under way and when it is over (R1 to R9)."""

from dataclasses import replace

from ralphd.core import requests
from ralphd.core.actions import Action, Announce, Escalate
from ralphd.core.events import JudgementBegan, JudgementOver
from ralphd.core.model import HAS_A_RUN, Goal, Paused, Pausing, Policy, RunId, Running, Supervision, Waiting
from ralphd.core.reported import task_data
from ralphd.core.steps import GUARD, Step, has_boundaries
from ralphd.core.verdict import VerdictKind


def began(now: Supervision, event: JudgementBegan) -> Step:
    """From now on nobody expects a sign of life (H5)."""
    if event.run_id is not None and not _lives(now, event.run_id):
        return Step(now)
    return Step(replace(now, said=replace(now.said, testing=True)))


def over(now: Supervision, event: JudgementOver, policy: Policy) -> Step:
    """What is said of it, and a pause where a person has to look first (R2, R6, R8)."""
    verdict = event.verdict
    tally = now.tally
    if verdict.kind is VerdictKind.REVERTED:
        tally = replace(tally, reverts=tally.reverts + 1)
    now = replace(now, tally=tally, said=replace(now.said, testing=False))
    told = _told(event)
    return _paused(now, event, told, policy) if verdict.pauses else Step(now, told)


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
        case Waiting() | Paused():
            return Step(replace(now, state=Paused(GUARD, None, why)), told)
        case _:
            return Step(now, told)


def _told(event: JudgementOver) -> tuple[Action, ...]:
    """The lines of C4, and the events behind them."""
    verdict, data = event.verdict, _data(event)
    head = event.commits[0] if event.commits else ""
    match verdict.kind:
        case VerdictKind.KEPT if not event.tests:
            return ()
        case VerdictKind.KEPT:
            text = f"Tests passed ✅ — {_commits(event.commits)} kept"
            return (Announce("tests.passed", data=data), Announce("commit.kept", text, data=data))
        case VerdictKind.REVERTED:
            text = f"Tests failed ❌ — reverting {_commits(event.reverted)}"
            calls = (Escalate(f"{text}; {verdict.why}"),) if verdict.calls else ()
            return (
                Announce("tests.failed", data=data),
                Announce("commit.reverted", text, data=data),
                *calls,
            )
        case VerdictKind.UNTESTED:
            text = f"Not judged — {_commits((head,)) if head else 'the iteration'} stays: {verdict.why}"
            told = Announce("guard.blocked", text, data=data)
            return (told, Escalate(text)) if verdict.pauses or verdict.calls else (told,)


def _commits(shas: tuple[str, ...]) -> str:
    """``commit abc1234``, ``commits abc1234, def5678``."""
    more = f" and {len(shas) - 3} more" if len(shas) > 3 else ""
    return f"commit{'s' if len(shas) > 1 else ''} {', '.join(shas[:3])}{more}"


def _data(event: JudgementOver) -> tuple[tuple[str, object], ...]:
    return (
        ("iteration", event.number),
        ("task", task_data(event.task)),
        ("verdict", event.verdict.kind.value),
        ("why", event.verdict.why),
        ("commits", list(event.commits)),
        ("reverted", list(event.reverted)),
        ("tests", list(event.tests)),
    )
