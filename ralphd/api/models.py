"""What requests carry, and what replies look like to OpenAPI. Replies themselves are bytes, made once."""

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from ralphd.errors import BadName
from ralphd.wire import MAX_NAME_CHARS, is_name


def checked_name(name: str) -> str:
    """The name, when it is one. Raises BadName, which says the allowed form."""
    if not is_name(name):
        raise BadName(
            f"not a ralph's name: {name[:80]!r}",
            why=f"a name is 1 to {MAX_NAME_CHARS} of a-z 0-9 . _ - and begins with a letter or digit",
        )
    return name


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("may not hold a NUL character")
    return text


def _absolute(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError("has to be absolute: the daemon does not share your working directory")
    return text


def _variable_names(environment: dict[str, str]) -> dict[str, str]:
    if any(not name or "=" in name for name in environment):
        raise ValueError("a variable's name may neither be empty nor hold '='")
    return environment


def _finite(flags: dict[str, Any]) -> dict[str, Any]:
    """Flags that can be written down again: Python reads NaN and 1e999, JSON has neither."""
    json.dumps(flags, allow_nan=False)
    return flags


MAX_EVENT_ID = (1 << 63) - 1
Name = Annotated[
    str,
    AfterValidator(checked_name),
    WithJsonSchema({"type": "string", "pattern": r"^[a-z0-9][a-z0-9._-]{0,62}$"}),
]
Text = Annotated[str, AfterValidator(_without_nul)]
Flags = Annotated[dict[Text, Any], AfterValidator(_finite)]
Path = Annotated[Text, AfterValidator(_absolute)]


class Strict(BaseModel):
    """A request body: nothing unknown, nothing converted."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class RegisterRequest(Strict):
    """A ralph to be registered, and started unless ``start`` is false; ``resume`` as in ``StartRequest``."""

    directory: Path
    command: list[Text] = Field(default_factory=list)
    name: Name | None = None
    flags: Flags = Field(default_factory=dict)
    environment: Annotated[dict[Text, Text], AfterValidator(_variable_names)] = Field(default_factory=dict)
    start: bool = True
    resume: bool | None = None


class StartRequest(Strict):
    """Flags for this start, over those of the registration.

    ``resume`` false puts the checkpoint of the built-in loop aside; else it goes on from there.
    """

    flags: Flags = Field(default_factory=dict)
    resume: bool | None = None


class StopRequest(Strict):
    """``now`` kills the tree instead of asking first (G1)."""

    now: bool = False


class UndoRequest(Strict):
    """``iteration`` is that whose commits were reverted; none: what was reverted last, and not put back."""

    iteration: int | None = Field(default=None, ge=0, le=(1 << 53) - 1)


class WebhookRequest(Strict):
    """A webhook to be added; of ``secret_file`` and ``secret_env`` one at most."""

    url: Annotated[Text, Field(max_length=2048)]
    on: list[Text] = Field(default_factory=lambda: ["ralph.escalated"], max_length=100)
    format: Literal["json", "slack", "ntfy"] = "json"
    secret_file: Path | None = None
    secret_env: Text | None = None
    allow_private: bool = False


class NoFields(Strict):
    """A body that may be left out, and holds nothing."""


class ShutdownRequest(Strict):
    """What becomes of the runs: ended as ``stop`` does, left for the next daemon, or killed now."""

    runs: Literal["finish", "leave", "now"] = "finish"


class Query(BaseModel):
    """Query parameters: nothing unknown."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class ViewQuery(Query):
    """``resources=1`` adds CPU and memory of each tree, which costs the daemon a look at every process."""

    resources: bool = False


class RunsQuery(Query):
    """How many runs, iterations or verdicts, newest first."""

    limit: int = Field(default=20, ge=1, le=1000)


class EventsQuery(Query):
    """Where a stream of events begins: after event ``since``, ``replay`` events back, or now."""

    since: int | None = Field(default=None, ge=0, le=MAX_EVENT_ID)
    replay: int | None = Field(default=None, ge=0, le=10_000)
    follow: bool = True


class LogsQuery(Query):
    """Which lines of a ralph's log. ``since`` and ``until`` are RFC 3339 with a zone, ``grep`` fixed text."""

    tail: Annotated[str, Field(pattern=r"^(all|\d{1,9})$")] | None = None
    since: str | None = None
    until: str | None = None
    stream: Literal["stdout", "stderr", "regent"] | None = None
    grep: str | None = None
    cursor: str | None = None
    follow: bool = False
    format: Literal["text", "json"] = "text"


KNOWN_FIELDS = sorted(
    {
        name
        for model in (
            RegisterRequest,
            StopRequest,
            UndoRequest,
            WebhookRequest,
            ShutdownRequest,
            ViewQuery,
            RunsQuery,
            EventsQuery,
            LogsQuery,
        )
        for name in model.model_fields
    }
)
