"""What the known CLIs have in common: a command line from its parts, the prompt's way in, the environment."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from ralphd.agents.reading import Sessions, session_id
from ralphd.config.specs import AgentSpec
from ralphd.core.failures.agent_events import AgentEvent
from ralphd.core.failures.kinds import ExitMeaning, FailureKind
from ralphd.core.failures.patterns import Patterns

# What the loop knows of an agent: how it is started, how its lines are read, what its exits mean.


@dataclass(frozen=True, slots=True)
class Launch:
    """How one attempt is started. ``stdin`` None: from ``/dev/null``; else these bytes, then closed.

    ``environment`` is what is added to the loop's own.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes | None = None


class Parser(Protocol):
    """Reads the lines of one attempt. Keeps only what is bounded; no line is fatal to it."""

    def line(self, line: str) -> Iterable[AgentEvent]:
        """What a line of stdout says. Lines come without their end, cut to MAX_LINE_CHARS."""
        ...

    def error_line(self, line: str) -> Iterable[AgentEvent]:
        """What a line of stderr says."""
        ...

    def own_lines(self) -> tuple[str, ...]:
        """The agent's own last lines, for patterns: no tool output, no echoed prompt (K2)."""
        ...

    def last_message(self) -> str:
        """The agent's last message: where a promise counts (L10)."""
        ...


MAX_LINE_CHARS = 8 << 20
"""A longer line is cut, and read as far as it goes."""


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """What an attempt is to be started with. ``prompt_file`` holds the prompt as well, for ``file``."""

    prompt: str
    prompt_file: Path
    session: str | None = None


class Agent(Protocol):
    """A coding-agent CLI."""

    @property
    def name(self) -> str:
        """What it is called in ``ralph.toml``."""
        ...

    @property
    def program(self) -> str:
        """What has to be found on PATH."""
        ...

    @property
    def has_verdict(self) -> bool:
        """Whether it ends with a structured final event."""
        ...

    @property
    def exits(self) -> Mapping[int, ExitMeaning]:
        """Its exit table."""
        ...

    @property
    def patterns(self) -> Patterns:
        """Its patterns."""
        ...

    def launch(self, order: LaunchSpec) -> Launch:
        """How an attempt is started."""
        ...

    def parser(self) -> Parser:
        """A reader for the lines of one attempt."""
        ...


MOST_ARGUMENT_BYTES: Final = 100 << 10
"""The kernel takes 128 KiB in one argument; a longer prompt is left in its file and pointed to."""

QUIET: Final[Mapping[str, str]] = {"CI": "1", "TERM": "dumb", "NO_COLOR": "1"}

EXITS: Final[Mapping[int, ExitMeaning]] = {
    126: ExitMeaning(FailureKind.FATAL, "its program may not be executed"),
    127: ExitMeaning(FailureKind.FATAL, "its program was not found"),
}
"""What these mean for every command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How one CLI is started and read. ``install`` is what installs it, ``first_events`` what it begins with.

    ``bypass`` is left out where the user's own arguments hold a flag of ``bypass_instead``: then they have
    said themselves what the agent may do. Without a ``model_flag`` no model can be asked for. ``resume``
    stands before a session's id, or holds it where it ends with ``=``; with ``resume_first`` it is a command
    and stands before all flags. ``prompt_via`` is how the prompt goes in unless the user says otherwise.
    ``from_stdin`` comes last where it is on stdin; else ``prompt_flag`` and the prompt as one word, or ``--``
    and the prompt. With a ``file_flag`` it can read the prompt's file itself. ``environment`` holds what a
    user may set otherwise in theirs.
    """

    program: str
    install: str
    start: tuple[str, ...]
    bypass: tuple[str, ...]
    model_flag: str
    resume: tuple[str, ...]
    parser: Callable[[Sessions], Parser]
    first_events: tuple[str, ...] = ()
    has_verdict: bool = True
    tells_costs: bool = False
    bypass_instead: tuple[str, ...] = ()
    resume_first: bool = False
    prompt_via: str = "stdin"
    from_stdin: tuple[str, ...] = ()
    prompt_flag: str = ""
    file_flag: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    as_root: Mapping[str, str] = field(default_factory=dict)
    exits: Mapping[int, ExitMeaning] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cli:
    """A known CLI, with what ``[agents.NAME]`` says of it. ``outside`` is the loop's own environment."""

    name: str
    ways: Ways
    patterns: Patterns = field(repr=False)
    spec: AgentSpec = field(default_factory=AgentSpec, repr=False)
    outside: Mapping[str, str] = field(default_factory=dict, repr=False)
    sessions: Sessions = field(default_factory=Sessions, repr=False, compare=False)

    @property
    def program(self) -> str:
        """What has to be found on PATH."""
        return self._command()[0]

    @property
    def has_verdict(self) -> bool:
        """Whether it tells its end in an event."""
        return self.ways.has_verdict

    @property
    def exits(self) -> Mapping[int, ExitMeaning]:
        """Its exit table."""
        return {**EXITS, **self.ways.exits}

    def parser(self) -> Parser:
        """A reader for the lines of one attempt."""
        return self.ways.parser(self.sessions)

    def launch(self, order: LaunchSpec) -> Launch:
        """The whole command: program, flags, the user's arguments, the session, the prompt's place.

        A session whose id could be read as a flag is not resumed.
        """
        ways, spec = self.ways, self.spec
        model = (ways.model_flag, spec.model) if spec.model else ()
        resume = self._resume(session_id(order.session))
        first, last = (resume, ()) if ways.resume_first else ((), resume)
        argv = (*self._command(), *first, *ways.start, *self._bypass(), *model, *spec.args, *last)
        words, stdin = self._prompt(order)
        return Launch((*argv, *words), self._environment(), stdin)

    def _command(self) -> tuple[str, ...]:
        return self.spec.command or (self.ways.program,)

    def _bypass(self) -> tuple[str, ...]:
        given = {word.split("=", 1)[0] for word in self.spec.args}
        return () if given & {*self.ways.bypass, *self.ways.bypass_instead} else self.ways.bypass

    def _resume(self, session: str | None) -> tuple[str, ...]:
        if session is None or not self.ways.resume:
            return ()
        *before, last = self.ways.resume
        return (*before, last + session) if last.endswith("=") else (*before, last, session)

    def _prompt(self, order: LaunchSpec) -> tuple[tuple[str, ...], bytes | None]:
        """The last words of the command line, and stdin."""
        ways, asked = self.ways, self.spec.prompt_via
        via = ways.prompt_via if asked == "auto" else asked
        if via == "file" and ways.file_flag:
            return (ways.file_flag, str(order.prompt_file)), None
        words, stdin = prompt_as(via, order)
        if not words:
            return ways.from_stdin, stdin
        return ((ways.prompt_flag + words[0],) if ways.prompt_flag else ("--", *words)), stdin

    def _environment(self) -> dict[str, str]:
        ways = {name: held for name, held in self.ways.environment.items() if name not in self.outside}
        root = self.ways.as_root if os.geteuid() == 0 else {}
        return {**QUIET, **ways, **root, **self.spec.env}


def prompt_as(via: str, order: LaunchSpec) -> tuple[tuple[str, ...], bytes | None]:
    """The prompt as words of the command line and as stdin; by stdin unless ``via`` says otherwise.

    Where it cannot be an argument, a sentence that points to its file is one.
    """
    said = order.prompt.replace("\0", "")
    if via == "file":
        said = pointer(order.prompt_file)
    data = said.encode("utf-8", "replace")
    if via != "argument":
        return (), data
    fits = len(data) <= MOST_ARGUMENT_BYTES
    return (data.decode() if fits else pointer(order.prompt_file),), None


def pointer(prompt_file: Path) -> str:
    """A prompt that says where the prompt is."""
    return f"Read the file {prompt_file} and do what it says. It is your prompt."
