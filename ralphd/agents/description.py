"""A CLI as data: ``clis/NAME.toml`` says how it is started, what its exits mean, how its lines are read.

Such a file is read strictly: a key that nobody knows is a fault. docs/add-an-agent.md says what they mean.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ConfigDict, StrictBool, TypeAdapter, ValidationError

from ralphd.config.specs import FilledText, FilledTexts, Text, Texts
from ralphd.config.values import variables
from ralphd.core.failures.kinds import FailureKind
from ralphd.errors import ConfigFaults

VERSION: Final = 1
"""The version of the files that this program understands."""

_HERE: Final = Path(__file__).parent / "clis"
_MOST_BYTES: Final = 1 << 20
_STRICT: Final = ConfigDict(extra="forbid")

Place: TypeAlias = tuple[str, ...]
"""Where in an event something lies: names from the outside in; ``*`` is an object's first member."""


def _place(value: object) -> object:
    return tuple(value.split(".")) if isinstance(value, str) and value else value


def _places(value: object) -> object:
    return tuple(_place(each) for each in value) if isinstance(value, list) else value


def _by_place(value: object) -> object:
    return {_place(name): held for name, held in value.items()} if isinstance(value, dict) else value


def _compiled(value: object) -> object:
    if not isinstance(value, str) or not value:
        return value
    try:
        return re.compile(value)
    except re.error as fault:
        raise ValueError(f"is no regular expression: {fault}") from fault


OnePlace: TypeAlias = Annotated[Place, BeforeValidator(_place)]
Places: TypeAlias = Annotated[tuple[Place, ...], BeforeValidator(_places)]
Expression: TypeAlias = Annotated[re.Pattern[str], BeforeValidator(_compiled)]
Scalar: TypeAlias = str | bool | int
Held: TypeAlias = Annotated[Mapping[Place, Scalar], BeforeValidator(_by_place)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSpec:
    """``[start]``: the command line. ``resume`` that ends with ``=`` takes the session's id into one word."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRule:
    """``[exits.N]``: what an exit status means."""

    __pydantic_config__ = _STRICT

    kind: FailureKind
    why: FilledText


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRule:
    """``[[event]]``: one kind of JSON line. All but ``type`` and ``tells`` are places in it.

    ``where`` tells it from others of its type. ``good`` are the values that an end has to have to be a good
    one, ``good_without`` what it may not have then.
    """

    __pydantic_config__ = _STRICT

    type: FilledText
    tells: Literal["start", "message", "tool", "retry", "warning", "failure", "end", "spent"]
    where: Held = field(default_factory=dict)
    session: OnePlace = ()
    model: OnePlace = ()
    text: OnePlace = ()
    aside: OnePlace = ()
    name: OnePlace = ()
    named: OnePlace = ()
    input: OnePlace = ()
    reason: OnePlace = ()
    status: OnePlace = ()
    code: OnePlace = ()
    attempt: OnePlace = ()
    most: OnePlace = ()
    delay_ms: OnePlace = ()
    good: Held = field(default_factory=dict)
    good_without: Places = ()
    answer: OnePlace = ()
    cost_usd: OnePlace = ()
    tokens_in: Places = ()
    tokens_out: Places = ()
    spends: Literal["total", "more"] = "total"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRule:
    """``[[line]]``: one kind of plain line, on stdout or stderr; its named groups say more.

    ``noise`` is neither shown nor read, ``quoted`` is shown, and never read for failures.
    """

    __pydantic_config__ = _STRICT

    match: Expression
    tells: Literal["noise", "quoted", "retry", "tool", "spent"]
    examples: FilledTexts = ()
    spends: Literal["total", "more"] = "more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A whole file. ``run_with`` is the version that it was tried with; empty: known from documents alone.

    ``known_by`` finds a line that only this CLI prints. ``tells_costs`` is whether its attempts have prices.
    """

    __pydantic_config__ = _STRICT

    version: Literal[1]
    program: FilledText
    install: FilledText
    other_names: FilledTexts = ()
    run_with: Text = ""
    known_by: Expression | None = None
    tells_costs: StrictBool = False
    format: Literal["text", "json"] = "text"
    start: StartSpec
    environment: Annotated[dict[str, Text], AfterValidator(variables)] = field(default_factory=dict)
    exits: dict[int, ExitRule] = field(default_factory=dict)
    event: tuple[EventRule, ...] = ()
    line: tuple[LineRule, ...] = ()

    @property
    def has_verdict(self) -> bool:
        """Whether it tells its end in an event."""
        return any(event.tells == "end" for event in self.event)


DESCRIBED: Final = tuple(sorted(path.stem for path in _HERE.glob("*.toml")))
"""The CLIs that there is a file of."""


@cache
def description_of(name: str) -> Description:
    """The description of one of DESCRIBED. Raises ConfigFaults."""
    return read_description(_HERE / f"{name}.toml")


def read_description(path: Path) -> Description:
    """A file of a CLI. Raises ConfigFaults with all that is wrong."""
    try:
        with path.open("rb") as file:
            data = tomllib.loads(file.read(_MOST_BYTES).decode())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as fault:
        raise _unusable(path, [str(fault)]) from fault
    try:
        description = _adapter().validate_python(data)
    except ValidationError as fault:
        raise _unusable(path, [_in_words(error) for error in fault.errors()]) from fault
    if faults := _beyond_types(description):
        raise _unusable(path, faults)
    return description


@cache
def _adapter() -> TypeAdapter[Description]:
    """Made when the first file is read: it takes as long as all the rest of this module."""
    return TypeAdapter(Description)


def _beyond_types(given: Description) -> list[str]:
    """What no single key shows."""
    faults = []
    if given.event and given.format == "text":
        faults.append('event: is for format = "json"')
    if given.format == "json" and not given.has_verdict:
        faults.append('event: none tells = "end", so nothing could tell a good end')
    if any(event.tells == "end" and not event.good for event in given.event):
        faults.append("event: an end without `good` would be good whatever it says")
    if given.start.prompt == "file" and not given.start.file_flag:
        faults.append('start.file_flag: is missing, and prompt = "file" needs it')
    return faults


def _in_words(error: Any) -> str:
    """``event 2: tells: Input should be …``"""
    words = [str(each + 1) if isinstance(each, int) else str(each) for each in error["loc"]]
    return f"{': '.join(words)}: {error['msg']}"


def _unusable(path: Path, faults: list[str]) -> ConfigFaults:
    return ConfigFaults(
        f"the description of a CLI in {path} cannot be used",
        why="\n".join(faults),
        mend="correct the file; docs/add-an-agent.md says what its keys mean",
    )
