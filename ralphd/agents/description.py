"""The description of a CLI: ``clis/NAME.toml`` holds its command line, its exit statuses and its events.

Files are read strictly: an unknown key is a fault. docs/add-an-agent.md explains the keys.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ConfigDict, StrictBool, TypeAdapter, ValidationError

from ralphd.config.specs import FilledText, FilledTexts, Text, Texts
from ralphd.config.values import variables
from ralphd.core.failures.kinds import ExitMeaning
from ralphd.dataclass import dataclass
from ralphd.errors import ConfigFaults

_FILES: Final = Path(__file__).parent / "clis"
_MAX_BYTES: Final = 1 << 20
_STRICT: Final = ConfigDict(extra="forbid")

Place: TypeAlias = tuple[tuple[str, ...], ...]
"""Where a value lies in an event: alternatives, each a path of names; ``*`` is an object's first member."""


def _place(value: object) -> object:
    if not isinstance(value, str) or not value:
        return value
    return tuple(tuple(path.split(".")) for path in value.split("|"))


def _compiled(value: object) -> object:
    if not isinstance(value, str) or not value:
        return value
    try:
        return re.compile(value)
    except re.error as fault:
        raise ValueError(f"is not a regular expression: {fault}") from fault


OnePlace: TypeAlias = Annotated[Place, BeforeValidator(_place)]
Places: TypeAlias = tuple[OnePlace, ...]
Expression: TypeAlias = Annotated[re.Pattern[str], BeforeValidator(_compiled)]
Wanted: TypeAlias = Mapping[OnePlace, str | bool | int]
EventKind: TypeAlias = Literal[
    "start", "step", "message", "piece", "tool", "retry", "warning", "failure", "end", "spent", "empty", "own"
]  # fmt: skip
Variables: TypeAlias = Annotated[dict[str, Text], AfterValidator(variables)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSpec:
    """``[start]``: the command line.

    ``bypass`` is left out where the user's own arguments hold a flag of ``bypass_instead``: they then decide
    themselves what the agent may do. Without a ``model`` flag no model can be requested. ``resume`` precedes
    the session's id, or ends with ``=`` to form one word with it; with ``resume_first`` it is a subcommand
    and precedes all flags. ``stdin_args`` come last where the prompt is on stdin.
    """

    __pydantic_config__ = _STRICT

    args: Texts = ()
    bypass: Texts = ()
    bypass_instead: FilledTexts = ()
    model: Text = ""
    resume: FilledTexts = ()
    resume_first: StrictBool = False
    prompt: Literal["stdin", "argument", "file"] = "stdin"
    prompt_flag: Text = ""
    file_flag: Text = ""
    stdin_args: FilledTexts = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityRule:
    """``[identity]``: where the account of a login is found (Q1).

    ``files`` are as in ``state``: the first whose variable is set counts, else the first below the home.
    ``id`` is the path of the account's id in it; ``keys`` are variables with an API key, which go before it.
    """

    __pydantic_config__ = _STRICT

    files: FilledTexts = ()
    id: Text = ""
    keys: FilledTexts = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRule:
    """``[[event]]``: one kind of JSON line; most values are places in it.

    ``where`` narrows the type down. An end is good if it has all of ``good`` and nothing at ``good_without``.
    ``inside`` finds, as its group, the vendor's error in a longer text. ``why`` describes a bad end that has
    no text of its own; ``{code}`` stands for its code.
    """

    __pydantic_config__ = _STRICT

    type: FilledText
    tells: EventKind
    where: Wanted = field(default_factory=dict)
    session: OnePlace = ()
    model: OnePlace = ()
    text: OnePlace = ()
    inside: Expression | None = None
    aside: OnePlace = ()
    name: OnePlace = ()
    named: OnePlace = ()
    input: OnePlace = ()
    about: OnePlace = ()
    reason: OnePlace = ()
    status: OnePlace = ()
    code: OnePlace = ()
    headers: OnePlace = ()
    body: OnePlace = ()
    attempt: OnePlace = ()
    most: OnePlace = ()
    delay_ms: OnePlace = ()
    good: Wanted = field(default_factory=dict)
    good_without: Places = ()
    answer: OnePlace = ()
    why: Text = ""
    cost_usd: OnePlace = ()
    tokens_in: Places = ()
    tokens_out: Places = ()
    spends: Literal["total", "more"] = "total"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRule:
    """``[[line]]``: one kind of plain line; its named groups hold the values.

    ``noise`` is neither shown nor read, ``quoted`` is shown and never read for failures, ``evidence`` is read
    and not shown.
    """

    __pydantic_config__ = _STRICT

    match: Expression
    tells: Literal["noise", "quoted", "evidence", "retry", "tool", "spent"]
    examples: FilledTexts = ()
    stream: Literal["both", "stderr"] = "both"
    spends: Literal["total", "more"] = "more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A whole file.

    ``run_with`` is the version it was tried with; empty: known from documents alone. ``known_by`` matches a
    line that only this CLI prints. ``tells_costs``: its attempts have prices. ``login`` is the command a
    person types. ``environment`` yields to the user's own variables; ``as_root`` is added for root alone.
    ``state`` are the files and directories that it writes, as ``~/PATH`` or ``$VARIABLE/PATH``.
    """

    __pydantic_config__ = _STRICT

    version: Literal[1]
    program: FilledText
    install: FilledText
    login: Text = ""
    other_names: FilledTexts = ()
    run_with: Text = ""
    known_by: Expression | None = None
    tells_costs: StrictBool = False
    format: Literal["text", "json"] = "text"
    state: FilledTexts = ()
    start: StartSpec
    identity: IdentityRule = field(default_factory=IdentityRule)
    environment: Variables = field(default_factory=dict)
    as_root: Variables = field(default_factory=dict)
    exits: dict[int, ExitMeaning] = field(default_factory=dict)
    event: tuple[EventRule, ...] = ()
    line: tuple[LineRule, ...] = ()

    @property
    def has_verdict(self) -> bool:
        """Whether the CLI reports its end in an event."""
        return any(event.tells == "end" for event in self.event)

    @property
    def first_events(self) -> tuple[str, ...]:
        """The types of the events that its output begins with."""
        return tuple(event.type for event in self.event if event.tells in ("start", "step"))


DESCRIBED: Final = tuple(sorted(path.stem for path in _FILES.glob("*.toml")))


@cache
def description_of(name: str) -> Description:
    """Return the description of one of DESCRIBED. Raise ConfigFaults."""
    return read_description(_FILES / f"{name}.toml")


def read_description(path: Path) -> Description:
    """Read a description. Raise ConfigFaults with all its faults."""
    try:
        with path.open("rb") as file:
            description = _adapter().validate_python(tomllib.loads(file.read(_MAX_BYTES).decode("utf-8-sig")))
        faults = _beyond_types(description)
    except ValidationError as fault:
        faults = [_in_words(error) for error in fault.errors()]
    except (OSError, ValueError) as fault:  # not UTF-8 and not TOML are ValueErrors
        faults = [str(fault)]
    if not faults:
        return description
    mend = "correct the file; docs/add-an-agent.md describes its keys"
    raise ConfigFaults(f"the description of a CLI in {path} cannot be used", why="\n".join(faults), mend=mend)


# Made with the first file: building it takes as long as importing all the rest of this module.
_adapter = cache(lambda: TypeAdapter(Description))


def _beyond_types(given: Description) -> list[str]:
    """Return the faults that no single key shows."""
    faults = []
    if given.event and given.format == "text":
        faults.append('event: is for format = "json"')
    if given.format == "json" and not given.has_verdict:
        faults.append('event: none tells = "end", so a success cannot be recognised')
    if any(event.tells == "end" and not (event.good or event.good_without) for event in given.event):
        faults.append("event: an end without `good` would always be a success")
    groups = {name for line in given.line for name in line.match.groupindex}
    faults += [f"line: unknown group {name}" for name in sorted(groups - {*EventRule.__slots__, "delay_s"})]
    if given.start.prompt == "file" and not given.start.file_flag:
        faults.append('start.file_flag: is missing, and prompt = "file" needs it')
    return faults


def _in_words(error: Any) -> str:
    words = [str(each + 1) if isinstance(each, int) else str(each) for each in error["loc"]]
    return f"{': '.join(words)}: {error['msg']}"
