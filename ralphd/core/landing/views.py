"""The landing queue for people, for programs, and for the ralph of a refused branch (M4, M6)."""

from collections.abc import Container
from typing import Any, Final

from ralphd.core.landing.model import LandingCandidate, LandingPolicy, LandingQueue, Standing, Target
from ralphd.core.text import short_sha, truncate
from ralphd.core.time import rfc3339

TASK_CHARS: Final = 200
WHY_CHARS: Final = 80


def calls_person(candidate: LandingCandidate, policy: LandingPolicy) -> bool:
    """Whether a refused candidate is a person's now: it was tried often enough, or no loop can help (M4)."""
    is_persons = candidate.undoes or candidate.publishes or candidate.tries >= policy.max_tries
    return candidate.standing is Standing.REFUSED and bool(is_persons)


def task_text(candidate: LandingCandidate, target: Target) -> str:
    """Return the task for the ralph of a refused candidate: one line (M4).

    The local target may be behind: with a remote, or while what landed waits for a checkout (M3).
    """
    why = truncate(candidate.why, WHY_CHARS)
    name = target.branch
    remote = f"{target.remote}/{name} (git fetch first)"
    tip = remote if target.remote else f"{name} (ralph/landed, if it exists)"
    text = f"Landing {candidate.id}: {candidate.name} does not land on {name}: {why}; merge {tip} and fix it"
    return truncate(text, TASK_CHARS)


def next_words(queue: LandingQueue, candidate: LandingCandidate, active: Container[str]) -> str:
    """Return what comes next for a candidate, for people (M6).

    ``active`` are the ralphs that run or wait to run.
    """
    ralph, name = candidate.ralph, candidate.name
    asks = f"ralphctl land {ralph}" + " --pr" * candidate.publishes
    match candidate.standing:
        case Standing.QUEUED if queue.batch and candidate.id in queue.batch.ids and not queue.blocked:
            others = len(queue.batch.ids) - 1
            return queue.batch.doing.value + (f", with {others} more" if others else "")
        case Standing.QUEUED:
            return queue.blocked or "waits for its turn"
        case Standing.WAITING:
            return asks
        case Standing.REFUSED if candidate.undoes:
            return "needs you: revert it by hand"
        case Standing.PUSHED | Standing.REFUSED if later := _later(queue, candidate):
            return f"see {later}"
        case Standing.PUSHED:
            return f"ralphctl land {ralph} --pr opens a pull request"
        case Standing.REFUSED if not candidate.has_task:
            return f"needs you: fix {name}, then {asks}" if candidate.is_told else ""
        case Standing.REFUSED if ralph in active:
            return f"{ralph} has the task; once it is done with new commits, {name} is queued again"
        case Standing.REFUSED:
            return f"needs you: ralphctl start {ralph} (it has the task)"
        case _:
            return ""


def _later(queue: LandingQueue, candidate: LandingCandidate) -> int | None:
    """Return the number of the newest candidate of the same branch after this one."""
    same = (each for each in queue.candidates if each.branch == candidate.branch and not each.undoes)
    return max((each.id for each in same if each.id > candidate.id), default=None)


def landing_event(queue: LandingQueue, candidate: LandingCandidate) -> dict[str, Any]:
    """Return the data of an event about a candidate."""
    name, target, why = candidate.name, queue.target.branch, _why(candidate)
    where = f"reach {queue.target.remote}" if candidate.publishes else f"land on {target}"
    words = {
        Standing.QUEUED: f"{name} is queued to {where}",
        Standing.WAITING: f"{name} waits to {where}: {why}",
        Standing.LANDED: f"{name} landed on {target}" + (f": {why}" if why else ""),
        Standing.PUSHED: f"{name} is pushed to {queue.target.remote}",
        Standing.REFUSED: f"{name} does not {where}: {why}",
    }
    return {"message": words[candidate.standing], "target": target, **_shown(candidate)}


def queue_view(queue: LandingQueue, active: Container[str]) -> dict[str, Any]:
    """Return a queue as the API shows it; candidates that have ended come last, newest first."""
    is_open = {each.id: each.standing in (Standing.QUEUED, Standing.WAITING) for each in queue.candidates}
    first = [each for each in queue.candidates if is_open[each.id]]
    last = [each for each in reversed(queue.candidates) if not is_open[each.id]]
    shown = [
        _shown(each) | {"next": next_words(queue, each, active), "copies": each.copies}
        for each in (*first, *last)
    ]
    batch = queue.batch
    return {
        "repository": queue.repository, "target": queue.target.branch,
        "remote": queue.target.remote or None, "blocked": queue.blocked or None,
        "batch": None if batch is None else {"numbers": list(batch.ids), "doing": batch.doing.value},
        "candidates": shown,
    }  # fmt: skip


def _why(candidate: LandingCandidate) -> str:
    return "; ".join(filter(None, (candidate.why, candidate.note)))


def landing_of(queue: LandingQueue, ralph: str, *, is_active: bool) -> dict[str, Any] | None:
    """Return where the last candidate of a ralph stands, for its view; None if it has none."""
    last = next((each for each in reversed(queue.candidates) if each.ralph == ralph), None)
    if last is None:
        return None
    blocked = queue.blocked or None if last.standing is Standing.QUEUED else None
    more = {"target": queue.target.branch, "blocked": blocked}
    return _shown(last) | {"next": next_words(queue, last, {ralph} if is_active else ())} | more


def _shown(candidate: LandingCandidate) -> dict[str, Any]:
    ended_at = candidate.ended_at
    return {
        "number": candidate.id, "ralph": candidate.ralph, "branch": candidate.name,
        "head": short_sha(candidate.head), "state": candidate.standing.value, "why": _why(candidate),
        "tries": candidate.tries, "commit": candidate.commit or None,
        "undoes": None if candidate.is_again else candidate.undoes or None,
        "queued_at": rfc3339(candidate.queued_at),
        "ended_at": None if ended_at is None else rfc3339(ended_at),
    }  # fmt: skip
