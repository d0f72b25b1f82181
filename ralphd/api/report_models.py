"""What a run may report: one body for each kind, nothing unknown, every text and number bounded.

The bodies are made from the dataclasses of the core, so that a field is declared once. This module adds what
belongs to the wire: the bounds, the few names that differ, and the discriminator.
"""

import dataclasses
import unicodedata
from functools import reduce
from operator import or_
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args, get_type_hints

from pydantic import AfterValidator, Field, create_model

from ralphd.api.bodies import Strict, without_nul
from ralphd.core.supervision import reports
from ralphd.core.supervision.model import LastWord, ReportedTask
from ralphd.core.time import parse_rfc3339

MOST_ID_CHARS, MOST_LINE_CHARS, MOST_TEXT_CHARS = 100, 500, 4000
MOST_COMMITS = 1000
MOST_COUNT, MOST_USD, MOST_SECONDS = 10**9, 10**6, 10**9


def _one_line(text: str) -> str:
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in text):
        raise ValueError("has to be one line, without control characters")
    return text


def _moment(text: str) -> str:
    try:
        parse_rfc3339(text)
    except ValueError:
        raise ValueError("has to be a moment in RFC 3339 with a zone, as 2026-11-22T03:00:00Z") from None
    return text


Id = Annotated[str, Field(min_length=1, max_length=MOST_ID_CHARS), AfterValidator(_one_line)]
Line = Annotated[str, Field(max_length=MOST_LINE_CHARS), AfterValidator(_one_line)]
Text = Annotated[str, Field(max_length=MOST_TEXT_CHARS), AfterValidator(without_nul)]
MomentText = Annotated[str, Field(max_length=MOST_ID_CHARS), AfterValidator(_moment)]
Number = Annotated[int, Field(ge=0, le=MOST_COUNT)]
Usd = Annotated[float, Field(ge=0, le=MOST_USD, allow_inf_nan=False)]
Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{4,64}$")]


class TaskReport(Strict):
    """A task by its id in the list, and its title."""

    id: Id
    title: Line = ""


MOMENTS = ("ended_at", "reset_at", "resume_at", "until")
BOUNDS = {
    **dict.fromkeys(("complete", "failed", "signals", "wait"), bool),
    **dict.fromkeys(("attempt", "commits", "iteration", "tokens_in", "tokens_out"), Number),
    **dict.fromkeys(("agent", "failure_kind", "outcome", "phase"), Id),
    **dict.fromkeys(("branch", "model", "next", "reason", "rule", "session"), Line),
    **dict.fromkeys(("summary", "why"), Text),
    **dict.fromkeys(("cost_usd", "usd"), Usd),
    **dict.fromkeys(MOMENTS, MomentText),
    "code": Annotated[int, Field(ge=0, le=255)],
    "cost_source": Literal["told", "estimated", "unknown"],
    "duration_s": Annotated[float, Field(ge=0, le=MOST_SECONDS, allow_inf_nan=False)],
    "exit_code": Annotated[int, Field(ge=-64, le=255)],
    "head": Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")],
    "task": TaskReport,
}
"""What a field may hold, by its name on the wire; whether it may be null is the core's to say."""
CORE_NAMES = {
    "iteration-finished": {"iteration": "number", "wait": "waits"},
    "iteration-started": {"iteration": "number"},
    "attempt-finished": {"failure_kind": "kind", "exit_code": "code"},
}
"""Fields that have another name in the core, by the kind of the report."""


class ReportHead(Strict):
    """What all reports hold: the run that reports, and an id of its own for each report."""

    run_id: Id
    id: Id
    if TYPE_CHECKING:
        kind: str


_CORE_TYPES: dict[str, type[reports.Report]] = {}


def _body(kind: str, core: type[reports.Report], **bounds: Any) -> type[ReportHead]:
    """Make the fields of one kind. ``bounds`` are used instead of those in BOUNDS."""
    _CORE_TYPES[kind] = core
    wire_names = {inside: outside for outside, inside in CORE_NAMES.get(kind, {}).items()}
    hints = get_type_hints(core)
    fields: dict[str, Any] = {"kind": (Literal[kind], ...)}
    for each in dataclasses.fields(core):
        field = wire_names.get(each.name, each.name)
        bound = bounds.get(field, BOUNDS[field])
        default = ... if each.default is dataclasses.MISSING else each.default
        fields[field] = (
            bound | None if NoneType in get_args(hints[each.name]) else bound,
            Field(default_factory=list) if default == () else default,
        )
    return create_model("Fields", __base__=ReportHead, __module__=__name__, **fields)


class HelloReport(_body("hello", reports.Hello)):  # type: ignore[misc]
    """The first report of a run: whether it handles SIGUSR1 and SIGUSR2, and its agent."""


class IterationStartedReport(_body("iteration-started", reports.IterationStarted)):  # type: ignore[misc]
    """An iteration begins at ``head`` on ``branch``; needed after a pull or rebase just before it."""


class AttemptFinishedReport(_body("attempt-finished", reports.AttemptFinished)):  # type: ignore[misc]
    """One agent process has ended; a success has no ``failure_kind``.

    A ``cost_usd`` whose ``cost_source`` is ``unknown`` is not stored. Without ``ended_at``: now.
    """


_Commits = Annotated[list[Commit], Field(max_length=MOST_COMMITS)]


class IterationFinishedReport(_body("iteration-finished", reports.IterationFinished, commits=_Commits)):  # type: ignore[misc]
    """A boundary: the answer has the next step and the verdict, however long the tests take.

    ``wait`` false: the run does not wait, so the next boundary with ``wait`` judges its commits.
    Without ``ended_at``: now.
    """


class WaitingReport(_body("waiting", reports.WaitingUntil)):  # type: ignore[misc]
    """The run waits until ``until``; null, or a past time: the wait is over."""


class CostReport(_body("cost", reports.Cost)):  # type: ignore[misc]
    """The cost since the last such report."""


class AgentExhaustedReport(_body("agent-exhausted", reports.AgentExhausted)):  # type: ignore[misc]
    """An agent is not used until ``until``; null: until a person acts."""


class AgentReturnedReport(_body("agent-returned", reports.AgentReturned)):  # type: ignore[misc]
    """An agent is available again."""


class EndingReport(_body("ending", LastWord, reason=Annotated[Line, Field(min_length=1)])):  # type: ignore[misc]
    """The last report: the run will end with ``code``, for a ``reason``; ``why`` explains it."""


class HeartbeatReport(_body("heartbeat", reports.Heartbeat)):  # type: ignore[misc]
    """The run is alive."""


_BODIES = tuple(kind for fields in ReportHead.__subclasses__() for kind in fields.__subclasses__())
if TYPE_CHECKING:
    ReportBody: TypeAlias = ReportHead
else:
    ReportBody = Annotated[reduce(or_, _BODIES), Field(discriminator="kind")]

ORIGINS = {
    "run_id": "missing: the run that reports; RALPH_RUN_ID in its environment",
    "id": "missing: a text that is unique among the reports of the run; the same id gets the same answer",
}
"""Where the fields that every report needs come from."""


def in_core(body: ReportBody) -> reports.Report:
    """Return a body as the dataclass of the core that it was made from."""
    names = CORE_NAMES.get(body.kind, {})
    fields = type(body).model_fields.keys() - ReportHead.model_fields.keys() - {"kind"}
    values = {names.get(field, field): _in_core(field, getattr(body, field)) for field in fields}
    return _CORE_TYPES[body.kind](**values)


def _in_core(field: str, value: Any) -> Any:
    match value:
        case TaskReport(id=id, title=title):
            return ReportedTask(id, title)
        case list():
            return tuple(value)
        case str() if field in MOMENTS:
            return parse_rfc3339(value)
        case str() if field == "cost_source":
            return reports.CostSource(value)
        case _:
            return value
