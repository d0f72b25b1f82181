"""The phases of an attempt: plan, implement, review, address (L14, L15).

``step`` answers the end of each phase with the position in the attempt and the next order. The loop sees one
attempt, and judges it when the phases are over. The position is saved before any order is carried out, so
that the next attempt at the task resumes there.
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Final, TypeAlias

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop.review import NOTHING, Review, ReviewFinding, counted, dismissed_by, named, shown
from ralphd.core.loop.tasks import TOO_LONG
from ralphd.core.supervision.backoff import grown
from ralphd.core.text import plain_lines
from ralphd.dataclass import dataclass

MOST_PHASE_3_RETRIES: Final = 2
"""A larger ``phase_3_retry_count`` has no effect."""
REVIEW_TRIES: Final = 2
"""A review that runs into its time limit is repeated once."""
MOST_PLAN_CHARS: Final = 16_000
MOST_PLAN_LINES: Final = 2_000

_BROKE_OFF: Final = (FailureKind.AGENT_CRASH, FailureKind.CONTEXT, FailureKind.TRANSIENT, FailureKind.UNKNOWN)
RETRIED: Final = (*TOO_LONG, *_BROKE_OFF)
"""Timeouts and exit codes other than 0. The loop itself handles limits, logins and failed starts."""

UNREVIEWED: Final = "phases: without [phases] review_command an attempt is plan and implement, and no review"


class Phase(StrEnum):
    """A named part of an attempt."""

    PLAN = "plan"
    IMPLEMENT = "implement"
    REVIEW = "review"
    TRIAGE = "triage"
    ADDRESS = "address"


NUMBERS: Final[Mapping[Phase, int]] = {Phase.PLAN: 1, Phase.IMPLEMENT: 2, Phase.TRIAGE: 3, Phase.ADDRESS: 3}
"""The numbers in the log of the phases that have an agent."""


@dataclass(frozen=True, slots=True)
class PhasePolicy:
    """``[phases]``. Without ``has_review`` plan and implement are all there is."""

    phase_retry_count: int = 0
    phase_3_retry_count: int = 0
    has_review: bool = False
    max_address_rounds: int = 5
    findings_fail: bool = True


@dataclass(frozen=True, slots=True)
class Phases:
    """The position in an attempt. ``round`` counts how often findings were addressed.

    ``findings`` are those of the last review without ``dismissed``, which a triage excluded. ``tries`` counts
    the failed ones of the present phase; ``timeout_factor`` multiplies the time limit of the next one.
    """

    task_id: str
    phase: Phase = Phase.PLAN
    plan: str = ""
    round: int = 0
    findings: tuple[ReviewFinding, ...] = ()
    dismissed: tuple[ReviewFinding, ...] = ()
    tries: int = 0
    timeout_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class AgentDone:
    """The agent of a phase has ended; ``kind`` None: with success. ``message`` is its last one."""

    kind: FailureKind | None
    message: str = ""
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
    """The attempt is over.

    ``remaining`` are the findings left after ``rounds`` of addressing: with ``failed`` they make the attempt
    a failure, else they are a warning. ``failed`` without any: the attempt ends as its last agent did.
    """

    remaining: tuple[ReviewFinding, ...] = ()
    failed: bool = False
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class NoReview:
    """Nothing could be reviewed: a warning, or with ``fatal`` the end, since a person has to repair it."""

    why: str
    fatal: bool


PhaseOrder: TypeAlias = AskAgent | RunReview | PhasesOver | NoReview


@dataclass(frozen=True, slots=True)
class PhaseStep:
    """The position after an event, the next order, and a line for the log."""

    phases: Phases
    order: PhaseOrder
    message: str = ""


def tries_of(phase: Phase, policy: PhasePolicy) -> int:
    """Return how often the agent of a phase may be started in one attempt."""
    if NUMBERS[phase] == 3:
        return 1 + min(policy.phase_3_retry_count, MOST_PHASE_3_RETRIES)
    return 1 + policy.phase_retry_count


def phase_limit_s(timeout_s: float, *, left_s: float) -> float:
    """Return the time limit of one phase, given what is left of the attempt's time. 0: no limit."""
    return min(timeout_s or left_s, left_s or timeout_s)


def begin(task_id: str, saved: Phases | None, policy: PhasePolicy) -> PhaseStep:
    """Return the first order of an attempt: where the last one at this task ended, else the plan."""
    phases = saved if saved is not None and saved.task_id == task_id else Phases(task_id)
    phases = replace(phases, tries=0, timeout_factor=1.0)
    if phases.phase in (Phase.REVIEW, Phase.TRIAGE, Phase.ADDRESS) and not policy.has_review:
        phases = replace(phases, phase=Phase.IMPLEMENT)
    return _enter(phases, phases.phase, policy)


def step(phases: Phases, event: PhaseEvent, policy: PhasePolicy) -> PhaseStep:
    """Answer the end of a phase. The event has to be one of the present phase."""
    match event:
        case Reviewed(review=review):
            return _reviewed(phases, review, policy)
        case AgentDone(kind=None):
            return _succeeded(phases, event.message, policy)
        case AgentDone():
            return _failed(phases, event, policy)


def _enter(phases: Phases, phase: Phase, policy: PhasePolicy, message: str = "") -> PhaseStep:
    phases = replace(phases, phase=phase)
    if phase is Phase.REVIEW:
        return PhaseStep(phases, RunReview(), message)
    return PhaseStep(phases, AskAgent(phase, phases.tries + 1, tries_of(phase, policy)), message)


def _next(phases: Phases, phase: Phase, policy: PhasePolicy, message: str = "") -> PhaseStep:
    return _enter(replace(phases, tries=0, timeout_factor=1.0), phase, policy, message)


def _with_more_time(phases: Phases) -> Phases:
    return replace(phases, timeout_factor=grown(phases.timeout_factor))


def _succeeded(phases: Phases, answer: str, policy: PhasePolicy) -> PhaseStep:
    match phases.phase:
        case Phase.PLAN:
            plan = "\n".join(plain_lines(answer, MOST_PLAN_LINES))[:MOST_PLAN_CHARS]
            return _next(replace(phases, plan=plan), Phase.IMPLEMENT, policy)
        case Phase.TRIAGE:
            return _triaged(phases, answer, policy)
        case Phase.ADDRESS:
            return _next(replace(phases, round=phases.round + 1), Phase.REVIEW, policy)
        case _ if policy.has_review:
            return _next(phases, Phase.REVIEW, policy)
        case _:
            return _over(phases)


def _failed(phases: Phases, event: AgentDone, policy: PhasePolicy) -> PhaseStep:
    number = NUMBERS[phases.phase]
    phases = replace(phases, tries=phases.tries + 1)
    if event.kind in RETRIED and not event.not_started:
        if phases.tries < tries_of(phases.phase, policy):
            phases = _with_more_time(phases) if event.kind in TOO_LONG else phases
            return _enter(phases, phases.phase, policy, f"phase {number} failed, retrying")
        if phases.phase is Phase.TRIAGE and event.kind not in TOO_LONG:
            return _triaged(phases, "", policy, f"phase {number} failed, so that nothing is dismissed")
    return PhaseStep(phases, PhasesOver(failed=True), f"phase {number} failed")


def _triaged(phases: Phases, answer: str, policy: PhasePolicy, message: str = "") -> PhaseStep:
    """Drop the findings that the triage dismissed; an answer that cannot be parsed dismisses nothing."""
    ids = dismissed_by(answer, shown(phases.findings))
    dismissed = tuple(finding for finding in phases.findings if finding.id in ids)
    left = tuple(finding for finding in phases.findings if finding.id not in ids)
    phases = replace(phases, findings=left, dismissed=(*phases.dismissed, *dismissed))
    if dismissed:
        message = f"the triage dismisses {counted(len(dismissed))}: {named(dismissed)}"
    if not left:
        return _over(phases, message=message)
    if phases.round >= policy.max_address_rounds:
        return _over(phases, left, failed=policy.findings_fail, message=message)
    return _next(phases, Phase.ADDRESS, policy, message)


def _reviewed(phases: Phases, review: Review, policy: PhasePolicy) -> PhaseStep:
    if review.trouble:
        return _not_reviewed(phases, review, policy)
    dismissed = tuple(each for each in phases.dismissed if any(map(each.is_like, review.findings)))
    left = tuple(each for each in review.findings if not any(map(each.is_like, dismissed)))
    phases = replace(phases, findings=left, dismissed=dismissed, tries=0, timeout_factor=1.0)
    gone = len(review.findings) - len(left)
    besides = f", besides {gone} dismissed" if gone else ""
    if not left:
        return _over(phases, message=f"the review has no findings{besides}")
    message = f"the review has {counted(len(left))}{besides}: {named(left)}"
    if phases.round:  # some are still there after they were addressed: perhaps the review is wrong
        return _enter(phases, Phase.TRIAGE, policy, message)
    if policy.max_address_rounds == 0:
        return _over(phases, left, failed=policy.findings_fail, message=message)
    return _enter(phases, Phase.ADDRESS, policy, message)


def _not_reviewed(phases: Phases, review: Review, policy: PhasePolicy) -> PhaseStep:
    phases = replace(phases, tries=phases.tries + 1)
    if review.timed_out and phases.tries < REVIEW_TRIES:
        message = f"no review: {review.trouble}; once more"
        return _enter(_with_more_time(phases), Phase.REVIEW, policy, message)
    order = NoReview(review.trouble, fatal=policy.findings_fail)
    return PhaseStep(replace(phases, tries=0) if order.fatal else _worked_on(phases), order)


def _over(
    phases: Phases, remaining: tuple[ReviewFinding, ...] = (), *, failed: bool = False, message: str = ""
) -> PhaseStep:
    return PhaseStep(_worked_on(phases), PhasesOver(remaining, failed, phases.round), message)


def _worked_on(phases: Phases) -> Phases:
    # If the task turns out to be open after all, the next attempt starts with the work, by the same plan.
    return Phases(phases.task_id, Phase.IMPLEMENT, phases.plan)


def invoking(order: AskAgent) -> str:
    """Return the log line before the agent of a phase is started."""
    return f"invoking phase {NUMBERS[order.phase]} (attempt {order.attempt}/{order.most}): {order.phase}"


def in_words(phase: Phase) -> str:
    """Return a phase as people read it."""
    return f"phase {NUMBERS[phase]} ({phase})" if phase in NUMBERS else f"the {phase}"


def left_words(order: PhasesOver) -> str:
    """Return what is left after the last round, in words."""
    rounds = f"{order.rounds} round{'' if order.rounds == 1 else 's'}"
    verb = "is" if len(order.remaining) == 1 else "are"
    return f"{counted(len(order.remaining))} {verb} left after {rounds}: {named(order.remaining)}"


# The prompts of the phases: what each asks of the agent, after the user's own prompt and the task (L14).

_PLAN: Final = """\
## This phase: plan

Only plan now: read what you need, change no file, commit nothing, mark nothing as done.
End with the plan: what is to be changed, where, and how it will be tested. It is given to the
agent that does the work."""

_ADDRESS: Final = """\
## This phase: address the findings of a review

The work on the task is done and was reviewed. Address these findings, and nothing else:

{findings}"""

_TRIAGE: Final = f"""\
## This phase: triage

A review of the work on the task has these findings, after they were addressed:

{{findings}}

Is there anything to address? Change no file. End your answer with a JSON object that lists the
ids of the findings that need no work, and says why:
{{{{"dismiss": ["id", …], "why": "…"}}}}. All others are addressed next. If every finding needs
work, leave the list empty. If no finding needs any, you may answer
{NOTHING} instead, on a line of its own."""


def phase_prompt(prompt: str, phases: Phases) -> str:
    """Return the prompt of the present phase; ``prompt`` is that of an attempt without phases."""
    match phases.phase:
        case Phase.PLAN:
            section = _PLAN
        case Phase.TRIAGE:
            section = _TRIAGE.format(findings=findings_text(phases.findings))
        case Phase.ADDRESS:
            section = _ADDRESS.format(findings=findings_text(phases.findings))
        case _ if plan := phases.plan.strip():
            section = f"## This phase: implement\n\nThis is the plan that was made for it:\n\n{plan}"
        case _:
            return prompt
    return f"{prompt.rstrip()}\n\n{section}\n"


def findings_text(findings: tuple[ReviewFinding, ...]) -> str:
    """Return findings as a list for an agent."""
    first = shown(findings)
    more = [f"(and {len(findings) - len(first)} more, for later)"] if len(first) < len(findings) else []
    return "\n".join([*(each.whole for each in first), *more])
