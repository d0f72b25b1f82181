"""What the landing queue does next: the decisions, without git, tests or a clock (M1 to M5).

The target moves to a commit only after the tests passed on exactly that commit.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from ralphd.core.gate.verdict import Result
from ralphd.core.gate.weakened import TestCheck, Weakened, is_protected, weakened, weakened_text
from ralphd.core.landing import model
from ralphd.core.landing.model import BatchTested, Doing, LandingBatch, LandingPolicy, LandingQueue, Standing
from ralphd.core.text import first_names, short_sha
from ralphd.core.time import Moment
from ralphd.errors import WrongState

OWN_FILES: Final = (
    *("ralph.toml", "*/ralph.toml", "PROMPT.md", "*/PROMPT.md"),
    *(".github/*", ".gitlab-ci.yml", ".gitlab/*", ".circleci/*", ".buildkite/*", ".woodpecker*"),
    *(".forgejo/*", ".gitea/*", ".travis.yml", "Jenkinsfile", "azure-pipelines.yml"),
    "bitbucket-pipelines.yml",
)
"""What decides how code is tested and supervised: a candidate that changes it needs a person (M2)."""
RED_TARGET: Final = "{fault} on the target itself, at {at}: nothing lands until they pass"
UNANSWERED: Final = "tests or setup were ended from outside, twice: by hand, or for memory"
_OPEN: Final = (Standing.QUEUED, Standing.WAITING)


def needs_person(paths: Iterable[str], protect: tuple[str, ...]) -> str:
    """Return why a candidate that changes these paths may not land by ``auto``; empty if it may (M2)."""
    patterns = (*OWN_FILES, *protect)
    names = sorted(path for path in paths if is_protected(path, patterns))
    return f"it changes {first_names(names)}: land it yourself" if names else ""


def admit(queue: LandingQueue, wanted: model.LandingCandidate, *, waits_for: str = "") -> LandingQueue:
    """Add a candidate, or renew the one of its branch that is open. ``waits_for``: a person has to ask (M2).

    The number of tries continues from the last end of the branch, unless it landed. Raises WrongState for
    a full queue.
    """
    known = [each for each in queue.candidates if each.branch == wanted.branch and not each.undoes]
    known = [] if wanted.undoes else known
    last = known[-1] if known and known[-1].standing is not Standing.LANDED else wanted
    if wanted.publishes and queue.blocked:
        queue = replace(queue, batch=None)  # a push does not need what the batch waits for
    spared = queue.batch.ids if queue.batch else ()
    if waits_for:  # what a person has asked for stays
        spared = (*spared, *(each.id for each in known if each.standing is Standing.QUEUED))
    replaced = {each.id for each in known if each.standing in _OPEN and each.id not in spared}
    kept = [each for each in queue.candidates if each.id not in replaced]
    if sum(each.standing in _OPEN for each in kept) >= model.MOST_OPEN:
        raise WrongState(f"{model.MOST_OPEN} branches wait to land already", mend="ralphctl queue")
    standing = Standing.WAITING if waits_for else Standing.QUEUED
    new = replace(wanted, id=queue.last_id + 1, standing=standing, why=waits_for, tries=last.tries)
    new = replace(new, refused_at=last.refused_at)
    ended = [each.id for each in kept if each.standing not in _OPEN and each.is_told][: -model.MOST_ENDED]
    every = (*(each for each in kept if each.id not in ended), new)
    return unblocked(replace(queue, last_id=new.id, candidates=every))


def unblocked(queue: LandingQueue) -> LandingQueue:
    """Return the queue without the reason that holds it up: try again."""
    return replace(queue, blocked="", blocked_at="", retry_at=None)


def withdrawn(queue: LandingQueue, ralph: str) -> LandingQueue:
    """Return the queue without what waits for a person, of a ralph that was removed."""
    every = (
        each for each in queue.candidates if each.ralph != ralph or each.standing is not Standing.WAITING
    )
    return replace(queue, candidates=tuple(every))


def recalled(queue: LandingQueue, ralph: str) -> LandingQueue:
    """Return the queue without what a ralph has in it; the others of its batch begin again."""
    gone = {each.id for each in queue.candidates if each.ralph == ralph and each.standing in _OPEN}
    every = tuple(each for each in queue.candidates if each.id not in gone)
    is_hit = queue.batch is not None and not gone.isdisjoint(queue.batch.ids)
    return replace(queue, candidates=every, batch=None if is_hit else queue.batch)


def rejoined(queue: LandingQueue) -> LandingQueue:
    """Begin to land again what waits on ``ralph/landed``, since the target went on without it (M3)."""
    return replace(queue, batch=LandingBatch(())) if queue.batch is None and not queue.blocked else queue


def followed(queue: LandingQueue) -> LandingQueue:
    """Return the queue once the target has what landed: no landing waits for its checkout (M3)."""
    every = (replace(each, why="") if each.commit else each for each in queue.candidates)
    return replace(queue, candidates=tuple(every), left="")


def waits_for_checkout(queue: LandingQueue) -> bool:
    """Whether something landed on ``ralph/landed`` and the target has not followed yet (M3)."""
    return not queue.target.url and any(each.commit and each.why for each in queue.candidates)


def is_due(queue: LandingQueue, at: Moment, tip: str) -> bool:
    """Whether a blocked queue is tried again: its target has moved, or the time has come."""
    has_moved = bool(queue.blocked_at) and tip != queue.blocked_at
    return bool(queue.blocked) and (has_moved or (queue.retry_at is not None and at >= queue.retry_at))


def begin(queue: LandingQueue) -> LandingQueue:
    """Begin the next batch if there is one to begin (M1, M5).

    All that wait in one place are tested together; of those that are known to be red together, the first
    half. A branch that is only pushed comes first, since it waits for no tests.
    """
    if queue.batch is not None or queue.blocked:
        return queue
    if pushes := [each.id for each in queue.standing(Standing.QUEUED) if each.publishes]:
        return replace(queue, batch=LandingBatch((pushes[0],), Doing.PUSHING))
    queued = queue.standing(Standing.QUEUED)
    ready = [each.id for each in queued if each.inside == queued[0].inside]  # one configuration
    suspects = [id for id in queue.suspects if id in ready]
    ids = suspects[: max(len(suspects) // 2, 1)] if suspects else ready[: model.MOST_IN_A_BATCH]
    return replace(queue, batch=LandingBatch(tuple(ids)) if ids else None, suspects=tuple(suspects))


def step(queue: LandingQueue, fact: model.LandingFact, policy: LandingPolicy, at: Moment) -> LandingQueue:
    """Return the queue after what came of its batch's step. A fact of another step changes nothing."""
    if (batch := queue.batch) is None:
        return queue
    match batch.doing, fact:
        case _, model.Hindered(why=why, retry_after_s=after_s):
            retry_at = None if after_s is None else at + after_s
            left = batch if batch.doing is Doing.MOVING else None  # it may have moved: ask before a new merge
            return replace(queue, batch=left, blocked=why, blocked_at=batch.tip, retry_at=retry_at)
        case Doing.MERGING, model.MergeDone():
            return _merged(queue, batch, fact, at)
        case ((Doing.TESTING | Doing.CHECKING | Doing.BASELINE), BatchTested()):
            return _tested(queue, batch, fact, policy, at)
        case Doing.MOVING, model.TargetMoved(note=note):
            queue = replace(queue, left=batch.commit) if note else followed(queue)
            return _landed(queue, batch, note, at)
        case Doing.MOVING, model.TargetTaken():
            return replace(queue, batch=LandingBatch(batch.ids))
        case Doing.PUSHING, model.BranchPushed(rejected=why):
            standing = Standing.REFUSED if why else Standing.PUSHED
            done = replace(queue.candidate(batch.ids[0]), standing=standing, why=why)
            return replace(_ended(queue, done, at), batch=None)
        case _:
            return queue


def _merged(queue: LandingQueue, batch: LandingBatch, fact: model.MergeDone, at: Moment) -> LandingQueue:
    for id, why in fact.conflicts.items():
        queue = _refused(queue, id, why, "", at)
        refused = queue.candidate(id)
        tries = refused.tries - (id in fact.resolved)  # that others land is not its fault
        queue = queue.with_candidate(replace(refused, tries=tries, refused_at=fact.base))
    for id in fact.present:
        queue = _ended(queue, replace(queue.candidate(id), standing=Standing.LANDED, why="it is there"), at)
    for id, why in fact.waits.items():
        waiting = replace(queue.candidate(id), standing=Standing.WAITING, why=why, is_told=False)
        queue = queue.with_candidate(waiting)
    ids = tuple(each.id for each in fact.merged)
    if not ids and (batch.ids or fact.base == fact.tip):
        return replace(queue, batch=None)
    ready = LandingBatch(ids, Doing.TESTING, fact.tip, fact.base, fact.merged)
    doing = Doing.MOVING if ready.commit == queue.green else Doing.TESTING
    return replace(queue, batch=replace(ready, doing=doing))


def _tested(
    queue: LandingQueue, batch: LandingBatch, fact: BatchTested, policy: LandingPolicy, at: Moment
) -> LandingQueue:
    """Red counts if every run is red (R3); blame needs a green base (R4).

    What was ended from outside proves nothing, and is repeated once.
    """
    is_green, runs = fact.result is Result.GREEN, (*batch.runs, fact.result)
    batch = replace(batch, runs=runs, setup_run=None, test_run=None)
    if not is_green:
        ended, is_ended = runs.count(Result.ENDED), fact.result is Result.ENDED
        answers = max(policy.test_retries, Result.TIMED_OUT in runs)
        if ended < 2 and (is_ended or len(runs) - ended <= answers):
            return replace(queue, batch=replace(batch, tail=batch.tail or fact.tail))
        if is_ended:
            return _blocked(queue, batch, UNANSWERED)
    how = "do not end in time" if fact.result is Result.TIMED_OUT else "fail"
    batch, fault = replace(batch, runs=()), fact.fault or f"the tests {how}"
    match batch.doing:
        case Doing.CHECKING:
            unknown = batch.check.unknown or fact.fault
            check = replace(batch.check, is_red=fact.result is Result.RED and not unknown, unknown=unknown)
            batch = replace(batch, check=check.done(), tail=fact.tail or batch.tail)
            return _checked(queue, batch, policy, at)
        case Doing.BASELINE if is_green:
            queue = replace(queue, green=batch.base, counts=fact.counts, counts_at=batch.base)
            is_done = batch.check.is_done
            return _checked(queue, batch, policy, at) if is_done else _red(queue, batch, at)
        case Doing.BASELINE if batch.check.is_done:  # the batch repairs the target: none of it is refused
            return _checked(queue, batch, replace(policy, protect_tests="report"), at)
        case Doing.BASELINE:
            return _blocked(queue, batch, RED_TARGET.format(fault=fault, at=short_sha(batch.base)))
        case _ if is_green:
            note = "the tests passed at a second run" if len(runs) > 1 else ""
            batch = replace(batch, tail="", note=note, check=TestCheck(after=fact.counts))
            asked = all(queue.candidate(id).undoes for id in batch.ids)  # a revert removes its tests
            if policy.protect_tests == "off" or asked:
                return _moving(queue, batch)
            return replace(queue, batch=replace(batch, doing=Doing.CHECKING))
    batch = replace(batch, tail=fact.tail or batch.tail, fault=fault)
    if not batch.ids:  # what landed, and a person's commits
        return _blocked(queue, batch, RED_TARGET.format(fault=fault, at=short_sha(batch.base)))
    if queue.green == batch.base:
        return _red(queue, batch, at)
    return replace(queue, batch=replace(batch, doing=Doing.BASELINE))


def _blocked(queue: LandingQueue, batch: LandingBatch, why: str) -> LandingQueue:
    return replace(queue, batch=None, blocked=why, blocked_at=batch.tip, retry_at=None)


def _moving(queue: LandingQueue, batch: LandingBatch) -> LandingQueue:
    moving = replace(batch, doing=Doing.MOVING)
    return replace(queue, green=batch.commit, counts=batch.check.after, counts_at=batch.commit, batch=moving)


def _checked(queue: LandingQueue, batch: LandingBatch, policy: LandingPolicy, at: Moment) -> LandingQueue:
    """Decide on a green batch whose check is done (A9). One that weakens tests is halved like a red one.

    Where tests vanished, nothing lands that nobody asked for.
    """
    check = replace(batch.check, before=queue.counts if queue.counts_at == batch.base else None)
    kind, text = weakened(check), weakened_text(check)
    if kind and queue.green != batch.base and batch.doing is Doing.CHECKING:
        return replace(queue, batch=replace(batch, doing=Doing.BASELINE))
    if kind and len(batch.ids) > 1:
        return replace(queue, batch=None, suspects=batch.ids)
    text = f"weakens tests: {text}" if kind else text
    candidate = queue.candidate(batch.ids[0])
    if kind and policy.protect_tests == "revert":
        queue = _refused(queue, candidate.id, text, batch.tail, at)
    elif kind is Weakened.VANISHED and candidate.is_auto:
        why = f"{text}: land it yourself"
        queue = queue.with_candidate(replace(candidate, standing=Standing.WAITING, why=why, is_told=False))
    else:
        return _moving(queue, replace(batch, note="; ".join(filter(None, (batch.note, text)))))
    return replace(queue, batch=None, suspects=())


def _red(queue: LandingQueue, batch: LandingBatch, at: Moment) -> LandingQueue:
    """Halve a red batch (M5); refuse the one that is red alone (M4)."""
    if len(batch.ids) > 1:
        return replace(queue, batch=None, suspects=batch.ids)
    why = f"{batch.fault} on top of {short_sha(batch.base)}"
    return replace(_refused(queue, batch.ids[0], why, batch.tail, at), batch=None, suspects=())


def _refused(queue: LandingQueue, id: int, why: str, tail: str, at: Moment) -> LandingQueue:
    """Take a candidate out, the target as it was (M4)."""
    candidate = queue.candidate(id)
    changed = replace(candidate, standing=Standing.REFUSED, why=why, tail=tail, tries=candidate.tries + 1)
    return _ended(queue, changed, at)


def _landed(queue: LandingQueue, batch: LandingBatch, note: str, at: Moment) -> LandingQueue:
    for each in batch.merged:
        done = replace(
            queue.candidate(each.id), standing=Standing.LANDED, commit=each.commit, why=note, tries=0,
            note=batch.note, copies=each.copies,
        )  # fmt: skip
        queue = _ended(queue, done, at)
    return replace(queue, batch=None, suspects=tuple(id for id in queue.suspects if id not in batch.ids))


def _ended(queue: LandingQueue, changed: model.LandingCandidate, at: Moment) -> LandingQueue:
    return queue.with_candidate(replace(changed, ended_at=at, is_told=False))
