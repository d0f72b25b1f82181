"""The phases of an attempt: plan, implement, review, address (L14, L15, 004).

``step`` answers the end of each phase with where the attempt is now and what comes next. The loop sees one
attempt, and judges it when the phases are over. What the phases remember is saved before anything is ordered,
so that the next attempt at the task goes on where this one ended.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop.review import NOTHING, Review, ReviewFinding, counted, dismissed_by, named, shown
from ralphd.core.text import plain_lines

MOST_PHASE_3_RETRIES: Final = 2
"""More of ``phase_3_retry_count`` has no effect [004-3]."""
REVIEW_TRIES: Final = 2
"""A review that runs into its time limit is made once more."""
MOST_PLAN_CHARS: Final = 16_000
MOST_PLAN_LINES: Final = 2_000

RETRIED: Final = frozenset(
    {
        FailureKind.TIMEOUT,
        FailureKind.STALL,
        FailureKind.AGENT_CRASH,
        FailureKind.CONTEXT,
        FailureKind.TRANSIENT,
        FailureKind.UNKNOWN,
    }
)
"""A time-out or an exit code other than 0. Limits, logins and what was not started are the loop's [004-4]."""
_TOO_LONG: Final = frozenset({FailureKind.TIMEOUT, FailureKind.STALL})

UNREVIEWED: Final = "phases: without [phases] review_command an attempt is plan and implement, and no review"


class Phase(StrEnum):
    """A named stretch of an attempt."""

    PLAN = "plan"
    IMPLEMENT = "implement"
    REVIEW = "review"
    TRIAGE = "triage"
    ADDRESS = "address"


NUMBERS: Final[Mapping[Phase, int]] = {
    Phase.PLAN: 1,
    Phase.IMPLEMENT: 2,
    Phase.TRIAGE: 3,
    Phase.ADDRESS: 3,
}
"""What the phases with an agent are called in the log [004-4]."""


@dataclass(frozen=True, slots=True)
class PhasePolicy:
    """``[phases]``. ``has_review``: there is a command for it; else plan and implement are all."""

    retry_count: int = 0
    phase_3_retry_count: int = 0
    has_review: bool = False
    max_address_rounds: int = 5
    findings_fail: bool = True


@dataclass(frozen=True, slots=True)
class Phases:
    """Where an attempt is. ``round`` counts the times that findings were addressed.

    ``findings`` are those of the last review without ``dismissed``, which a triage did not want to be
    addressed. ``tries`` counts the failed ones of the present phase.
    """

    task_id: str
    phase: Phase = Phase.PLAN
    plan: str = ""
    round: int = 0
    findings: tuple[ReviewFinding, ...] = ()
    dismissed: tuple[ReviewFinding, ...] = ()
    tries: int = 0


@dataclass(frozen=True, slots=True)
class AgentDone:
    """The agent of a phase has ended: ``kind`` None, well. ``said`` is its last message."""

    kind: FailureKind | None
    said: str = ""
    not_started: bool = False


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The review command has ended."""

    review: Review


PhaseEvent: TypeAlias = AgentDone | Reviewed


@dataclass(frozen=True, slots=True)
class AskAgent:
    """Start the agent of the present phase: the ``attempt``-th of ``most`` tries."""

    phase: Phase
    attempt: int
    most: int


@dataclass(frozen=True, slots=True)
class RunReview:
    """Run the review command."""


@dataclass(frozen=True, slots=True)
class PhasesOver:
    """The attempt is over, with what its last agent's end was.

    ``remaining`` are findings that were left after ``rounds`` of addressing: with ``failed`` they make it a
    failure, else they are told. ``failed`` without any: the last agent's end is the attempt's.
    """

    remaining: tuple[ReviewFinding, ...] = ()
    failed: bool = False
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class NoReview:
    """Nothing could be reviewed: told, and with ``fatal`` the end, since a person has to mend it."""

    why: str
    fatal: bool


PhaseOrder: TypeAlias = AskAgent | RunReview | PhasesOver | NoReview


@dataclass(frozen=True, slots=True)
class PhaseStep:
    """Where the attempt is after an event, what is to be done, and what the log says of it."""

    phases: Phases
    order: PhaseOrder
    said: str = ""


def tries_of(phase: Phase, policy: PhasePolicy) -> int:
    """How often the agent of a phase may be started in one attempt [004-3, 004-4]."""
    if NUMBERS[phase] == 3:
        return 1 + min(policy.phase_3_retry_count, MOST_PHASE_3_RETRIES)
    return 1 + policy.retry_count


def phase_limit_s(timeout_s: float, *, left_s: float) -> float:
    """How long one phase may take, in what is left of the attempt's time. 0: no limit."""
    return min(timeout_s or left_s, left_s or timeout_s)


def begin(task_id: str, saved: Phases | None, policy: PhasePolicy) -> PhaseStep:
    """The first order of an attempt: where the last one at this task ended, else from the plan on."""
    phases = saved if saved is not None and saved.task_id == task_id else Phases(task_id)
    phases = replace(phases, tries=0)
    if phases.phase in (Phase.REVIEW, Phase.TRIAGE, Phase.ADDRESS) and not policy.has_review:
        phases = replace(phases, phase=Phase.IMPLEMENT)
    return _enter(phases, phases.phase, policy)


def step(phases: Phases, event: PhaseEvent, policy: PhasePolicy) -> PhaseStep:
    """Answer the end of a phase. The event has to be one of the present phase."""
    match event:
        case Reviewed(review=review):
            return _reviewed(phases, review, policy)
        case AgentDone(kind=None):
            return _went_well(phases, event.said, policy)
        case AgentDone():
            return _went_wrong(phases, event, policy)


def _enter(phases: Phases, phase: Phase, policy: PhasePolicy, said: str = "") -> PhaseStep:
    phases = replace(phases, phase=phase)
    if phase is Phase.REVIEW:
        return PhaseStep(phases, RunReview(), said)
    return PhaseStep(phases, AskAgent(phase, phases.tries + 1, tries_of(phase, policy)), said)


def _next(phases: Phases, phase: Phase, policy: PhasePolicy, said: str = "") -> PhaseStep:
    return _enter(replace(phases, tries=0), phase, policy, said)


def _went_well(phases: Phases, said: str, policy: PhasePolicy) -> PhaseStep:
    match phases.phase:
        case Phase.PLAN:
            plan = "\n".join(plain_lines(said, MOST_PLAN_LINES))[:MOST_PLAN_CHARS]
            return _next(replace(phases, plan=plan), Phase.IMPLEMENT, policy)
        case Phase.TRIAGE:
            return _triaged(phases, said, policy)
        case Phase.ADDRESS:
            return _next(replace(phases, round=phases.round + 1), Phase.REVIEW, policy)
        case _ if policy.has_review:
            return _next(phases, Phase.REVIEW, policy)
        case _:
            return _over(phases)


def _went_wrong(phases: Phases, event: AgentDone, policy: PhasePolicy) -> PhaseStep:
    """Again where there are tries left; else the attempt has failed, but for a triage without an answer."""
    number = NUMBERS[phases.phase]
    phases = replace(phases, tries=phases.tries + 1)
    if event.kind not in RETRIED or event.not_started:
        return PhaseStep(phases, PhasesOver(failed=True), f"phase {number} failed")
    if phases.tries < tries_of(phases.phase, policy):
        return _enter(phases, phases.phase, policy, f"phase {number} failed, retrying")
    if phases.phase is Phase.TRIAGE and event.kind not in _TOO_LONG:
        return _triaged(phases, "", policy, f"phase {number} failed, so that nothing is dismissed")
    return PhaseStep(phases, PhasesOver(failed=True), f"phase {number} failed")


def _triaged(phases: Phases, answer: str, policy: PhasePolicy, said: str = "") -> PhaseStep:
    """What the triage dismissed is not addressed; an answer that nobody understands dismisses nothing."""
    ids = dismissed_by(answer, shown(phases.findings))
    gone = tuple(finding for finding in phases.findings if finding.id in ids)
    left = tuple(finding for finding in phases.findings if finding.id not in ids)
    phases = replace(phases, findings=left, dismissed=(*phases.dismissed, *gone))
    said = f"the triage dismisses {counted(len(gone))}: {named(gone)}" if gone else said
    if not left:
        return _over(phases, said=said)
    if phases.round >= policy.max_address_rounds:
        return _over(phases, left, failed=policy.findings_fail, said=said)
    return _next(phases, Phase.ADDRESS, policy, said)


def _reviewed(phases: Phases, review: Review, policy: PhasePolicy) -> PhaseStep:
    if review.trouble:
        return _not_reviewed(phases, review, policy)
    dismissed = tuple(each for each in phases.dismissed if any(map(each.is_like, review.findings)))
    left = tuple(each for each in review.findings if not any(map(each.is_like, dismissed)))
    phases = replace(phases, findings=left, dismissed=dismissed, tries=0)
    gone = len(review.findings) - len(left)
    besides = f", besides {gone} dismissed" if gone else ""
    if not left:
        return _over(phases, said=f"the review has no findings{besides}")
    said = f"the review has {counted(len(left))}{besides}: {named(left)}"
    if phases.round:  # they were addressed, and some are there still: is it the review that is wrong?
        return _enter(phases, Phase.TRIAGE, policy, said)
    if policy.max_address_rounds == 0:
        return _over(phases, left, failed=policy.findings_fail, said=said)
    return _enter(phases, Phase.ADDRESS, policy, said)


def _not_reviewed(phases: Phases, review: Review, policy: PhasePolicy) -> PhaseStep:
    phases = replace(phases, tries=phases.tries + 1)
    if review.timed_out and phases.tries < REVIEW_TRIES:
        return _enter(phases, Phase.REVIEW, policy, f"no review: {review.trouble}; once more")
    order = NoReview(review.trouble, fatal=policy.findings_fail)
    return PhaseStep(replace(phases, tries=0) if order.fatal else _worked_on(phases), order)


def _over(
    phases: Phases, remaining: tuple[ReviewFinding, ...] = (), *, failed: bool = False, said: str = ""
) -> PhaseStep:
    """The phases are over, and the attempt with them."""
    return PhaseStep(_worked_on(phases), PhasesOver(remaining, failed, phases.round), said)


def _worked_on(phases: Phases) -> Phases:
    """Where an attempt begins that finds the task open after all: with the work, by the same plan."""
    return Phases(phases.task_id, Phase.IMPLEMENT, phases.plan)


def invoking(order: AskAgent) -> str:
    """The line of the log before the agent of a phase is started [004-4.4]."""
    return f"invoking phase {NUMBERS[order.phase]} (attempt {order.attempt}/{order.most}): {order.phase}"


def in_words(phase: Phase) -> str:
    """A phase as people are told of it."""
    return f"phase {NUMBERS[phase]} ({phase})" if phase in NUMBERS else f"the {phase}"


def left_words(order: PhasesOver) -> str:
    """What is left after the last round."""
    rounds = f"{order.rounds} round{'' if order.rounds == 1 else 's'}"
    verb = "is" if len(order.remaining) == 1 else "are"
    return f"{counted(len(order.remaining))} {verb} left after {rounds}: {named(order.remaining)}"


# The prompts of the phases: what each asks of the agent, after the user's own prompt and the task (L14).


def phase_prompt(prompt: str, phases: Phases) -> str:
    """The prompt of the present phase; ``prompt`` is the one of an attempt without phases."""
    match phases.phase:
        case Phase.PLAN:
            section = _plan()
        case Phase.TRIAGE:
            section = _triage(phases)
        case Phase.ADDRESS:
            section = _address(phases)
        case _:
            section = _implement(phases)
    return f"{prompt.rstrip()}\n\n{section}\n" if section else prompt


def findings_text(findings: tuple[ReviewFinding, ...]) -> str:
    """Findings as a list for an agent."""
    first = shown(findings)
    more = [f"(and {len(findings) - len(first)} more, for later)"] if len(first) < len(findings) else []
    return "\n".join([*(each.whole for each in first), *more])


def _plan() -> str:
    return "\n".join(
        (
            "## This phase: plan",
            "",
            "Only plan now: read what you need, change no file, commit nothing, mark nothing as done.",
            "End with the plan: what is to be changed, where, and how it will be tested. It is given to the",
            "agent that does the work.",
        )
    )


def _implement(phases: Phases) -> str:
    if not phases.plan.strip():
        return ""
    return f"## This phase: implement\n\nThis is the plan that was made for it:\n\n{phases.plan.strip()}"


def _address(phases: Phases) -> str:
    return "\n".join(
        (
            "## This phase: address the findings of a review",
            "",
            "The work on the task is done and was reviewed. Address these findings, and nothing else:",
            "",
            findings_text(phases.findings),
        )
    )


def _triage(phases: Phases) -> str:
    return "\n".join(
        (
            "## This phase: triage",
            "",
            "A review of the work on the task has these findings, after they were addressed:",
            "",
            findings_text(phases.findings),
            "",
            "Is there anything to address? Change no file. End your answer with a JSON object that lists the",
            "ids of the findings that need no work, and says why:",
            '{"dismiss": ["id", …], "why": "…"}. All others are addressed next. If every finding needs',
            "work, leave the list empty. If no finding needs any, you may answer",
            f"{NOTHING} instead, on a line of its own.",
        )
    )
