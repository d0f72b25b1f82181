"""What requests carry: bodies and query parameters."""

import json
import os
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from ralphd.core.worktrees.rules import MOST_TREES
from ralphd.errors import BadName
from ralphd.wire import MAX_NAME_CHARS, is_name


def checked_name(name: str) -> str:
    """The name, when it is one. Raises BadName, which says the allowed form."""
    if not is_name(name):
        why = f"a name is 1 to {MAX_NAME_CHARS} of a-z 0-9 . _ - and begins with a letter or digit"
        raise BadName(f"not a ralph's name: {name[:80]!r}", why=why)
    return name


def without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("may not hold a NUL character")
    try:
        os.fsencode(text)  # half of a surrogate pair; one that stands for a byte of a file name is accepted
    except UnicodeEncodeError:
        raise ValueError("may not hold half of a surrogate pair") from None
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
RalphName = Annotated[Name, Path(description="The ralph's name.")]
Text = Annotated[str, AfterValidator(without_nul)]
Word = Annotated[Text, Field(min_length=1, max_length=200)]
Flags = Annotated[dict[Text, Any], AfterValidator(_finite)]
Environment = Annotated[dict[Text, Text], AfterValidator(_variable_names)]
AbsolutePath = Annotated[Text, AfterValidator(_absolute), Field(json_schema_extra={"pattern": "^/"})]


class Strict(BaseModel):
    """A request body: nothing unknown, nothing converted."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True, defer_build=False)


class RegisterRequest(Strict):
    """A ralph to be registered, and started unless ``start`` is false; ``resume`` as in ``StartRequest``."""

    directory: AbsolutePath
    command: list[Text] = Field(default_factory=list)
    name: Name | None = None
    flags: Flags = Field(default_factory=dict)
    environment: Environment = Field(default_factory=dict)
    start: bool = True
    resume: bool | None = None


class WorktreeRequest(RegisterRequest):
    """Ralphs to be registered in worktrees of the repository around ``directory``, and started.

    ``name`` is that of the worktree and its ralph, with a number for several (``count``). ``branch`` is
    ``ralph/NAME`` unless given, ``from_ref`` the revision at which it begins, HEAD unless given. With
    ``tasks``, ids of the task list, only these are done.
    """

    branch: Word | None = None
    from_ref: Annotated[Text, Field(min_length=1, max_length=200, pattern="^[^-]")] | None = None
    tasks: list[Word] = Field(default_factory=list, max_length=1000)
    count: int = Field(default=1, ge=1, le=MOST_TREES)


class NeedRequest(Strict):
    """What a machine must have: labels, a login of one of the agents, free resources. 0, empty: nothing."""

    labels: list[Word] = Field(default_factory=list, max_length=32)
    agents: list[Word] = Field(default_factory=list, max_length=32)
    cpus: int = Field(default=0, ge=0, le=4096)
    memory_bytes: int = Field(default=0, ge=0, le=1 << 50)
    disk_bytes: int = Field(default=0, ge=0, le=1 << 50)


class ItemFlagsRequest(Strict):
    """The closed list of what a submitter may set; 0 and empty: as the repository's file has it."""

    max_cost_usd: float = Field(default=0, ge=0, le=1e6, allow_inf_nan=False)
    max_iterations: int = Field(default=0, ge=0, le=10**6)
    timeout_s: float = Field(default=0, ge=0, le=1e7, allow_inf_nan=False)
    agents: list[Word] = Field(default_factory=list, max_length=32)


class ItemRequest(Strict):
    """An item of a fleet: a repository to work on. ``branch`` is ``ralph/ID`` unless given."""

    repo: Annotated[Text, Field(min_length=1, max_length=1000)]
    base: Word = "main"
    branch: Word | None = None
    priority: int = Field(default=0, ge=-1000, le=1000)
    max_tries: int = Field(default=3, ge=1, le=100)
    need: NeedRequest = Field(default_factory=NeedRequest)
    flags: ItemFlagsRequest = Field(default_factory=ItemFlagsRequest)
    prefer: list[Word] = Field(default_factory=list, max_length=32)


class StartRequest(Strict):
    """Flags for this start, over those of the registration, and the environment in place of that one.

    ``resume`` false puts the checkpoint of the built-in loop aside; else it continues there.
    """

    flags: Flags = Field(default_factory=dict)
    environment: Environment = Field(default_factory=dict)
    resume: bool | None = None


class StopRequest(Strict):
    """``now`` kills the tree instead of asking first (G1)."""

    now: bool = False


class UndoRequest(Strict):
    """``iteration`` is that whose commits were reverted; none: what was reverted last, and not put back.

    ``repair`` is the number of a repair; 0: the last one.
    """

    iteration: int | None = Field(default=None, ge=0, le=(1 << 53) - 1)
    repair: int | None = Field(default=None, ge=0, le=(1 << 53) - 1)


class SendRequest(Strict):
    """The text of a task (one line, at most 200 characters) or of a note (at most 4000 characters)."""

    text: Text


class WebhookRequest(Strict):
    """A webhook to add. At most one of ``secret_file`` and ``secret_env``."""

    url: Annotated[Text, Field(max_length=1 << 16)]
    name: Text = ""
    on: list[Text] = Field(default_factory=lambda: ["ralph.escalated"], max_length=100)
    format: Literal["json", "slack", "ntfy"] = "json"
    secret_file: AbsolutePath | None = None
    secret_env: Text | None = None
    allow_private: bool = False


class LandRequest(Strict):
    """Whose branch is to land; ``branch`` is another one than that of the ralph's directory.

    ``pr``: it is only pushed, for a pull request.
    """

    ralph: Name
    branch: Annotated[Text, Field(min_length=1, max_length=1000)] | None = None
    pr: bool = False


class UndoLandingRequest(Strict):
    """A ralph of the repository, and the number of the landing; none: the last one."""

    ralph: Name
    number: int | None = Field(default=None, ge=1, le=(1 << 53) - 1)


class NoFields(Strict):
    """A body that may be left out, and holds nothing."""


class ShutdownRequest(Strict):
    """What becomes of the runs: ended as ``stop`` does, left for the next daemon, or killed now."""

    runs: Literal["finish", "leave", "now"] = "finish"


class QueryParameters(BaseModel):
    """Query parameters: nothing unknown."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, defer_build=False)


class KeepQuery(QueryParameters):
    """``keep=1`` saves commits and files under a ref before a worktree is removed."""

    keep: bool = False


class ViewQuery(QueryParameters):
    """``resources=1`` adds CPU and memory of each tree, which costs the daemon a look at every process."""

    resources: bool = False


class RunsQuery(QueryParameters):
    """How many runs, iterations or verdicts, newest first."""

    limit: int = Field(default=20, ge=1, le=1000)


class EventsQuery(QueryParameters):
    """Where a stream of events begins: after event ``since``, ``replay`` events back, or now."""

    since: int | None = Field(default=None, ge=0, le=MAX_EVENT_ID)
    replay: int | None = Field(default=None, ge=0, le=10_000)
    follow: bool = True


class LogsQuery(QueryParameters):
    """Which lines of a ralph's log. ``since`` and ``until`` are RFC 3339 with a zone, ``grep`` fixed text."""

    tail: Annotated[str, Field(pattern=r"^(all|\d{1,9})$")] | None = None
    since: str | None = None
    until: str | None = None
    stream: Literal["stdout", "stderr", "regent"] | None = None
    grep: str | None = None
    cursor: str | None = None
    follow: bool = False
    ends: bool = False
    format: Literal["text", "json"] = "text"
    events: Literal["raw", "text", "verbose"] = "raw"


def known_fields() -> list[str]:
    """Return the names of all fields and parameters that a request may hold."""
    models = (*_all_kinds(Strict), *_all_kinds(QueryParameters))
    return sorted({name for model in models for name in model.model_fields})


def _all_kinds(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for kind in base.__subclasses__():
        yield from (kind, *_all_kinds(kind))
