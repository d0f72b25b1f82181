"""The landing queue for people, for programs, and for the ralph of a refused branch (M4, M6)."""

from typing import Any, Final

from ralphd.core.landing.model import LandingCandidate, LandingPolicy, LandingQueue, Standing, Target
from ralphd.core.text import short_sha, truncate
from ralphd.core.time import rfc3339

TASK_CHARS: Final = 200
WHY_CHARS: Final = 80


def calls_person(candidate: LandingCandidate, policy: LandingPolicy) -> bool:
    """Whether a refused candidate is a person's now: it was tried often enough (M4)."""
    return candidate.standing is Standing.REFUSED and candidate.tries >= policy.max_tries


def task_text(candidate: LandingCandidate, target: Target) -> str:
    """Return the task for the ralph of a refused candidate: one line (M4).

    The local target may be behind: with a remote, or while what landed waits for a checkout (M3).
    """
    branch = candidate.branch.removeprefix("refs/heads/")
    why = truncate(candidate.why, WHY_CHARS)
    name = target.branch
    remote = f"{target.remote}/{name} (git fetch first)"
    newest = remote if target.remote else f"{name} (ralph/landed, if it exists)"
    text = f"Landing {candidate.id}: {branch} does not land on {name}: {why}; merge {newest} and fix it"
    return truncate(text, TASK_CHARS)


def next_words(queue: LandingQueue, candidate: LandingCandidate, policy: LandingPolicy) -> str:
    """Return what comes next for a candidate, for people (M6)."""
    match candidate.standing:
        case Standing.QUEUED if queue.batch and candidate.id in queue.batch.ids:
            others = len(queue.batch.ids) - 1
            return queue.batch.doing.value + (f", with {others} more" if others else "")
        case Standing.QUEUED:
            return queue.blocked or "waits for its turn"
        case Standing.WAITING:
            return f"ralphctl land {candidate.ralph}"
        case Standing.REFUSED if candidate.undoes or calls_person(candidate, policy):
            return "needs you"
        case Standing.REFUSED:
            return f"fix {candidate.branch.removeprefix('refs/heads/')}, then ralphctl land {candidate.ralph}"
        case _:
            return ""


def landing_event(queue: LandingQueue, candidate: LandingCandidate) -> dict[str, Any]:
    """Return the data of an event about a candidate."""
    name, target = candidate.branch.removeprefix("refs/heads/"), queue.target.branch
    words = {
        Standing.QUEUED: f"{name} is queued to land on {target}",
        Standing.WAITING: f"{name} waits to land on {target}: {candidate.why}",
        Standing.LANDED: f"{name} landed on {target}" + (f": {candidate.why}" if candidate.why else ""),
        Standing.REFUSED: f"{name} does not land on {target}: {candidate.why}",
    }
    return {"message": words[candidate.standing], "target": target, **_shown(candidate)}


def queue_view(queue: LandingQueue, policy: LandingPolicy) -> dict[str, Any]:
    """Return a queue as the API shows it; candidates that have ended come last, newest first."""
    is_open = {each.id: each.standing in (Standing.QUEUED, Standing.WAITING) for each in queue.candidates}
    first = [each for each in queue.candidates if is_open[each.id]]
    last = [each for each in reversed(queue.candidates) if not is_open[each.id]]
    shown = [_shown(each) | {"next": next_words(queue, each, policy)} for each in (*first, *last)]
    batch = queue.batch
    return {
        "repository": queue.repository,
        "target": queue.target.branch,
        "remote": queue.target.remote or None,
        "blocked": queue.blocked or None,
        "batch": None if batch is None else {"numbers": list(batch.ids), "doing": batch.doing.value},
        "candidates": shown,
    }


def _shown(candidate: LandingCandidate) -> dict[str, Any]:
    ended_at = candidate.ended_at
    return {
        "number": candidate.id,
        "ralph": candidate.ralph,
        "branch": candidate.branch.removeprefix("refs/heads/"),
        "head": short_sha(candidate.head),
        "state": candidate.standing.value,
        "why": candidate.why,
        "tries": candidate.tries,
        "commit": candidate.commit or None,
        "undoes": candidate.undoes or None,
        "queued_at": rfc3339(candidate.queued_at),
        "ended_at": None if ended_at is None else rfc3339(ended_at),
    }
