"""How an agent is started: command line, prompt and environment of a known CLI or of a user's command."""

import os
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Final, TypeAlias

from ralphd.agents.description import Description
from ralphd.agents.parsers import TextParser, described_parser
from ralphd.agents.reading import Sessions, session_id
from ralphd.config.specs import AgentSpec
from ralphd.core.failures.kinds import ExitMeaning, FailureKind
from ralphd.core.failures.patterns import Patterns
from ralphd.dataclass import dataclass

MAX_ARGUMENT_BYTES: Final = 100 << 10
"""The kernel takes 128 KiB in one argument; of a longer prompt only the file is named."""

QUIET: Final[Mapping[str, str]] = {"CI": "1", "TERM": "dumb", "NO_COLOR": "1"}

EXITS: Final[Mapping[int, ExitMeaning]] = {
    126: ExitMeaning(FailureKind.FATAL, "its program may not be executed"),
    127: ExitMeaning(FailureKind.FATAL, "its program was not found"),
}


@dataclass(frozen=True, slots=True)
class Launch:
    """How one attempt is started. ``stdin`` None: from ``/dev/null``; else these bytes, then closed.

    ``environment`` is added to the loop's own.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes | None = None


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """What an attempt works on. ``prompt_file`` holds the prompt as well."""

    prompt: str
    prompt_file: Path
    session: str | None = None


ParserMaker: TypeAlias = Callable[[Description, Sessions], TextParser]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cli:
    """A known CLI with the user's ``[agents.NAME]``. ``outside`` is the loop's own environment."""

    name: str
    description: Description
    patterns: Patterns = field(repr=False)
    spec: AgentSpec = field(default_factory=AgentSpec, repr=False)
    outside: Mapping[str, str] = field(default_factory=dict, repr=False)
    make_parser: ParserMaker = field(default=described_parser, repr=False)
    sessions: Sessions = field(default_factory=dict, repr=False, compare=False)

    @property
    def program(self) -> str:
        return (*self.spec.command, self.description.program)[0]

    @property
    def has_verdict(self) -> bool:
        return self.description.has_verdict

    @property
    def exits(self) -> Mapping[int, ExitMeaning]:
        return {**EXITS, **self.description.exits}

    def parser(self) -> TextParser:
        return self.make_parser(self.description, self.sessions)

    def launch(self, order: LaunchSpec) -> Launch:
        """Return the whole command. A session whose id could be read as a flag is not resumed."""
        start, spec = self.description.start, self.spec
        given = {word.split("=", 1)[0] for word in spec.args}
        bypass = () if given & {*start.bypass, *start.bypass_instead} else start.bypass
        model = (start.model, spec.model) if spec.model else ()
        resume: tuple[str, ...] = ()
        if start.resume and (session := session_id(order.session)):
            *before, last = start.resume
            resume = (*before, last + session) if last.endswith("=") else (*before, last, session)
        first, last_words = (resume, ()) if start.resume_first else ((), resume)
        prompt, stdin = self._prompt(order)
        argv = (*(spec.command or (self.description.program,)), *first, *start.args, *bypass, *model)
        return Launch((*argv, *spec.args, *last_words, *prompt), self._environment(), stdin)

    def _prompt(self, order: LaunchSpec) -> tuple[tuple[str, ...], bytes | None]:
        """Return the last words of the command line, and stdin."""
        start = self.description.start
        via = start.prompt if self.spec.prompt_via == "auto" else self.spec.prompt_via
        if via == "file" and start.file_flag:
            return (start.file_flag, str(order.prompt_file)), None
        words, stdin = prompt_as(via, order)
        if not words:
            return start.stdin_args, stdin
        return ((start.prompt_flag + words[0],) if start.prompt_flag else ("--", *words)), stdin

    def _environment(self) -> dict[str, str]:
        own = {name: each for name, each in self.description.environment.items() if name not in self.outside}
        root = self.description.as_root if os.geteuid() == 0 else {}
        return {**QUIET, **own, **root, **self.spec.env}


@dataclass(frozen=True, slots=True, kw_only=True)
class General:
    """``[agents.NAME]`` with a ``command``: started as it is, by default with the prompt on stdin.

    As an argument or a file's path the prompt is the last word of the command line. No session is resumed.
    """

    name: str
    spec: AgentSpec
    patterns: Patterns = field(repr=False)
    has_verdict: bool = field(default=False, init=False)
    exits: Mapping[int, ExitMeaning] = field(default_factory=lambda: EXITS, init=False, repr=False)

    @property
    def program(self) -> str:
        return self.spec.command[0]

    def launch(self, order: LaunchSpec) -> Launch:
        argv = (*self.spec.command, *self.spec.args)
        environment = {**QUIET, **self.spec.env}
        if self.spec.prompt_via == "file":
            return Launch((*argv, str(order.prompt_file)), environment)
        words, stdin = prompt_as(self.spec.prompt_via, order)
        return Launch((*argv, *words), environment, stdin)

    def parser(self) -> TextParser:
        return TextParser()


Agent: TypeAlias = Cli | General
"""A coding agent. ``program`` is looked for on PATH; ``has_verdict``: it reports its end in an event."""


def prompt_as(via: str, order: LaunchSpec) -> tuple[tuple[str, ...], bytes | None]:
    """Return the prompt as words of the command line and as stdin; by stdin unless ``via`` is ``argument``.

    Where the prompt does not fit, a sentence that points to its file replaces it.
    """
    pointer = f"Read the file {order.prompt_file} and do what it says. It is your prompt."
    data = (pointer if via == "file" else order.prompt.replace("\0", "")).encode("utf-8", "replace")
    if via != "argument":
        return (), data
    return (data.decode() if len(data) <= MAX_ARGUMENT_BYTES else pointer,), None
