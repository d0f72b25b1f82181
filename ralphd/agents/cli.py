"""What the known CLIs have in common: a command line from its parts, the prompt's way in, the environment."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ralphd.agents.agent import Launch, Order, Parser
from ralphd.agents.reading import Sessions, session_id
from ralphd.config.specs import AgentSpec
from ralphd.core.classify import ExitMeaning
from ralphd.core.failure import FailureKind
from ralphd.core.patterns import Patterns

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
    """How one CLI is started and read.

    ``bypass`` is left out where the user's own arguments hold a flag of ``bypass_instead``: then they have
    said themselves what the agent may do. ``resume`` stands before a session's id. ``from_stdin`` comes last
    where the prompt is on stdin; else ``prompt_flag`` and the prompt as one word, or ``--`` and the prompt.
    ``environment`` holds what a user may set otherwise in theirs.
    """

    program: str
    package: str
    start: tuple[str, ...]
    bypass: tuple[str, ...]
    model_flag: str
    resume: tuple[str, ...]
    parser: Callable[[Sessions], Parser]
    bypass_instead: tuple[str, ...] = ()
    from_stdin: tuple[str, ...] = ()
    prompt_flag: str = ""
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
        """All of them tell their end in an event."""
        return True

    @property
    def exits(self) -> Mapping[int, ExitMeaning]:
        """Its exit table."""
        return {**EXITS, **self.ways.exits}

    def parser(self) -> Parser:
        """A reader for the lines of one attempt."""
        return self.ways.parser(self.sessions)

    def launch(self, order: Order) -> Launch:
        """The whole command: program, flags, the user's arguments, the session, the prompt's place.

        A session whose id could be read as a flag is not resumed.
        """
        ways, spec = self.ways, self.spec
        model = (ways.model_flag, spec.model) if spec.model else ()
        session = session_id(order.session)
        resume = (*ways.resume, session) if session else ()
        argv = (*self._command(), *ways.start, *self._bypass(), *model, *spec.args, *resume)
        words, stdin = prompt_as(spec.prompt_via, order)
        return Launch((*argv, *self._ending(words)), self._environment(), stdin)

    def _command(self) -> tuple[str, ...]:
        return self.spec.command or (self.ways.program,)

    def _bypass(self) -> tuple[str, ...]:
        given = {word.split("=", 1)[0] for word in self.spec.args}
        return () if given & {*self.ways.bypass, *self.ways.bypass_instead} else self.ways.bypass

    def _ending(self, words: tuple[str, ...]) -> tuple[str, ...]:
        if not words:
            return self.ways.from_stdin
        return (self.ways.prompt_flag + words[0],) if self.ways.prompt_flag else ("--", *words)

    def _environment(self) -> dict[str, str]:
        ways = {name: held for name, held in self.ways.environment.items() if name not in self.outside}
        root = self.ways.as_root if os.geteuid() == 0 else {}
        return {**QUIET, **ways, **root, **self.spec.env}


def prompt_as(via: str, order: Order) -> tuple[tuple[str, ...], bytes | None]:
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
