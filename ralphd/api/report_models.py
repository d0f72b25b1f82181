"""What a run may report: one body for each kind, nothing unknown, every text and number bounded."""

import unicodedata
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, Field

from ralphd.api.schemas import Strict
from ralphd.core.time import parse_rfc3339

MOST_ID_CHARS, MOST_LINE_CHARS, MOST_TEXT_CHARS = 100, 500, 4000
MOST_COMMITS = 1000
MOST_COUNT, MOST_USD, MOST_SECONDS = 10**9, 10**6, 10**9


def _one_line(text: str) -> str:
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in text):
        raise ValueError("has to be one line, without control characters")
    return text


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("may not hold a NUL character")
    return text


def _moment(text: str) -> str:
    try:
        parse_rfc3339(text)
    except (ValueError, OverflowError):
        raise ValueError("has to be a moment in RFC 3339 with a zone, as 2026-11-22T03:00:00Z") from None
    return text


Id = Annotated[str, Field(min_length=1, max_length=MOST_ID_CHARS), AfterValidator(_one_line)]
Line = Annotated[str, Field(max_length=MOST_LINE_CHARS), AfterValidator(_one_line)]
Text = Annotated[str, Field(max_length=MOST_TEXT_CHARS), AfterValidator(_without_nul)]
MomentText = Annotated[str, Field(max_length=MOST_ID_CHARS), AfterValidator(_moment)]
Number = Annotated[int, Field(ge=0, le=MOST_COUNT)]
Usd = Annotated[float, Field(ge=0, le=MOST_USD, allow_inf_nan=False)]
Sha = Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")]
Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{4,64}$")]
Seconds = Annotated[float, Field(ge=0, le=MOST_SECONDS, allow_inf_nan=False)]


class _Report(Strict):
    """What all reports hold: which run says it, and an id of its own for each report."""

    run_id: Id
    id: Id


class HelloReport(_Report):
    """The first report of a run: which signals it knows (SIGUSR1, SIGUSR2), and which agent it runs."""

    kind: Literal["hello"]
    signals: bool = False
    agent: Id | None = None


class TaskReport(Strict):
    """A task by its id in the list, and its title."""

    id: Id
    title: Line = ""


class IterationStartedReport(_Report):
    """An iteration begins; ``head`` and ``branch`` say where, for who pulls or rebases just before it."""

    kind: Literal["iteration-started"]
    iteration: Number | None = None
    task: TaskReport | None = None
    agent: Id | None = None
    head: Sha | None = None
    branch: Line | None = None


class AttemptFinishedReport(_Report):
    """One agent process has ended; ``failure_kind`` is left out for a success.

    A ``cost_usd`` of which ``cost_source`` says ``unknown`` is not kept. ``ended_at`` left out: just now.
    """

    kind: Literal["attempt-finished"]
    agent: Id
    outcome: Id
    failure_kind: Id | None = None
    exit_code: Annotated[int, Field(ge=-64, le=255)] | None = None
    cost_usd: Usd | None = 0.0
    duration_s: Seconds | None = None
    iteration: Number | None = None
    task: TaskReport | None = None
    attempt: Number | None = None
    phase: Id | None = None
    rule: Line | None = None
    why: Text | None = None
    cost_source: Literal["told", "estimated", "unknown"] | None = None
    tokens_in: Number | None = None
    tokens_out: Number | None = None
    model: Line | None = None
    session: Line | None = None
    reset_at: MomentText | None = None
    commits: Number | None = None
    next: Line | None = None
    ended_at: MomentText | None = None


class IterationFinishedReport(_Report):
    """A boundary: answered with what to do next, and with the verdict, however long the tests take.

    ``wait`` false: nobody waits for the answer, so that nothing is judged before the next one that is waited
    for. ``ended_at`` left out: just now.
    """

    kind: Literal["iteration-finished"]
    iteration: Number | None = None
    failed: bool = False
    summary: Text | None = None
    task: TaskReport | None = None
    complete: bool = False
    commits: Annotated[list[Commit], Field(max_length=MOST_COMMITS)] = Field(default_factory=list)
    ended_at: MomentText | None = None
    wait: bool = True


class WaitingReport(_Report):
    """The run waits ``until`` then; null, or a moment in the past: no longer."""

    kind: Literal["waiting"]
    until: MomentText | None
    reason: Line = "waiting"


class CostReport(_Report):
    """What was spent since the last such report."""

    kind: Literal["cost"]
    usd: Usd


class AgentExhaustedReport(_Report):
    """An agent is not asked any more before ``until``; null: before a person acts."""

    kind: Literal["agent-exhausted"]
    agent: Id
    reason: Line
    until: MomentText | None = None


class AgentReturnedReport(_Report):
    """An agent may be asked again."""

    kind: Literal["agent-returned"]
    agent: Id


class EndingReport(_Report):
    """The run's last word: it is about to end with ``code``, for a ``reason``; ``why`` says it in words."""

    kind: Literal["ending"]
    code: Annotated[int, Field(ge=0, le=255)]
    reason: Annotated[Line, Field(min_length=1)]
    why: Text = ""
    resume_at: MomentText | None = None


class HeartbeatReport(_Report):
    """The run lives."""

    kind: Literal["heartbeat"]


ReportBody: TypeAlias = Annotated[
    HelloReport
    | IterationStartedReport
    | AttemptFinishedReport
    | IterationFinishedReport
    | WaitingReport
    | CostReport
    | AgentExhaustedReport
    | AgentReturnedReport
    | EndingReport
    | HeartbeatReport,
    Field(discriminator="kind"),
]

REPORT_FIELDS = sorted(
    {
        name
        for model in (
            HelloReport,
            IterationStartedReport,
            AttemptFinishedReport,
            IterationFinishedReport,
            WaitingReport,
            CostReport,
            AgentExhaustedReport,
            EndingReport,
        )
        for name in model.model_fields
    }
)
ORIGINS = {
    "run_id": "missing: the run that reports; its environment holds it as RALPH_RUN_ID",
    "id": "missing: any text that no other report of the run has; sent again, the answer is the same",
}
"""Where the fields that every report needs come from."""


class VerdictReply(BaseModel):
    """What became of an iteration's commits, and why.

    ``commits`` and ``reverted`` are full shas, newest first. ``task`` is the one whose work was judged,
    ``tail`` the end of what the tests printed that failed.
    """

    kind: Literal["kept", "reverted", "untested"]
    why: str
    commits: list[str]
    reverted: list[str]
    task: TaskReport | None
    tail: str


class ReportAnswerView(BaseModel):
    """What to do next, and the verdict on the iteration, where there is one."""

    id: str
    next: Literal["continue", "stop", "pause"]
    verdict: VerdictReply | None


class FigureView(BaseModel):
    """One thing that was looked at: what was seen, and what it is held against."""

    name: str
    seen: str
    limit: str


class SilenceView(BaseModel):
    """The patience with a run that said nothing: the same as an explanation, without another one inside."""

    rule: str
    title: str
    because: str
    figures: list[FigureView]
    missing: list[str]
    done: str


class ExplanationView(BaseModel):
    """Why the last thing was done to a ralph; of a run that lives, what is thought of it now.

    ``rule`` is the mark of a rule, ``because`` its words. ``evidence`` is what was saved of a silent run,
    ``verdict`` why the commits of the last iteration that was judged were kept, reverted or neither.
    """

    at: str | None = None
    rule: str
    title: str
    because: str
    figures: list[FigureView]
    missing: list[str]
    done: str
    silence: SilenceView | None
    run_id: str | None
    living: bool
    evidence: dict[str, Any] | None
    verdict: SilenceView | None = None


ANSWER: dict[str, Any] = {"model": ReportAnswerView, "description": "What to do next."}
EXPLANATION: dict[str, Any] = {"model": ExplanationView, "description": "Why."}
