"""What the tests of an attempt share: an agent of their own, and who hears of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from ralphd.agents.agent import Agent, Launch, LaunchSpec
from ralphd.core.failures.agent_events import (
    AgentEvent,
    AgentText,
    Alive,
    Empty,
    Figures,
    FinalEvent,
    Limited,
    RetryingItself,
    Spent,
    Started,
    ToolUse,
    Warned,
)
from ralphd.core.failures.classify import OurDoing
from ralphd.core.failures.kinds import ExitMeaning, FailureKind
from ralphd.core.failures.patterns import Pattern, Patterns
from ralphd.core.stall_detector import SilenceLimits
from ralphd.loop.attempt.agent_run import AgentRun, AgentRunSpec
from tests.players import player

PATIENT = SilenceLimits(hang_timeout_s=60.0)
CRASH = Pattern("gone", FailureKind.AGENT_CRASH, "^Error: No messages returned", live=True)
PATTERNS = Patterns("player", 1, (CRASH,))


class WordsParser:
    """Reads lines like ``text hello``: the first word is the sign."""

    def __init__(self) -> None:
        self._own: list[str] = []
        self._said = ""

    def line(self, line: str) -> Iterable[AgentEvent]:
        """The sign of a line; none for one that begins otherwise."""
        name, _, rest = line.partition(" ")
        self._said = rest if name == "text" else self._said
        return self._signs(name, rest)

    def _signs(self, name: str, rest: str) -> tuple[AgentEvent, ...]:
        match name:
            case "started":
                return (Started(rest, "model-1"),)
            case "text":
                return (AgentText(rest),)
            case "tool":
                return (ToolUse(rest, "src/a.py"),)
            case "alive":
                return (Alive(),)
            case "empty":
                return (Empty(),)
            case "retry":
                return (RetryingItself(rest),)
            case "warned":
                return (Warned(rest),)
            case "limited":
                return (Limited(5.0, rest),)
            case "spent":
                return (Spent(Figures(float(rest), 10, 2), total=False),)
            case "total":
                return (Spent(Figures(float(rest), 100, 20)),)
            case "good" | "bad":
                return (FinalEvent(name == "good", rest),)
            case "broken":
                raise ValueError(rest)
        return ()

    def error_line(self, line: str) -> Iterable[AgentEvent]:
        """The same on stderr."""
        self._own.append(line)
        return self.line(line)

    def own_lines(self) -> tuple[str, ...]:
        """Those of stderr."""
        return tuple(self._own)

    def last_message(self) -> str:
        """The last text."""
        return self._said


class PlainParser(WordsParser):
    """Knows no signs at all."""

    def line(self, line: str) -> Iterable[AgentEvent]:
        """None."""
        return ()


@dataclass(frozen=True)
class Playing:
    """An agent that is one of the players."""

    argv: tuple[str, ...]
    stdin: bytes | None = None
    has_verdict: bool = True
    name: str = "player"
    program: str = "python3"
    exits: Mapping[int, ExitMeaning] = field(default_factory=dict)
    patterns: Patterns = PATTERNS
    environment: Mapping[str, str] = field(default_factory=dict)

    def launch(self, order: LaunchSpec) -> Launch:
        """The player, whatever the order."""
        return Launch(self.argv, self.environment, self.stdin)

    def parser(self) -> WordsParser:
        """A reader of its lines."""
        return WordsParser() if self.has_verdict else PlainParser()


def agent(*words: object, stdin: bytes | None = None, has_verdict: bool = True) -> Playing:
    """An agent that does what the words say."""
    return Playing(player("attempt_agent", *words), stdin, has_verdict)


@dataclass
class Heard:
    """Who hears of an attempt, and remembers."""

    shown: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    retries: list[RetryingItself] = field(default_factory=list)
    kills: list[tuple[OurDoing, str]] = field(default_factory=list)

    def show(self, line: str) -> None:
        """A line was shown."""
        self.shown.append(line)

    def warn(self, text: str) -> None:
        """Something was warned of."""
        self.warnings.append(text)

    def retrying(self, sign: RetryingItself) -> None:
        """It tries again by itself."""
        self.retries.append(sign)

    async def before_kill(self, ours: OurDoing, why: str) -> None:
        """It is about to be ended."""
        self.kills.append((ours, why))


def attempt(
    place: Path,
    playing: Playing,
    heard: Heard | None = None,
    *,
    limits: SilenceLimits = PATIENT,
    timeout_s: float = 60.0,
    exit_grace_s: float = 30.0,
    crash_grace_s: float = 30.0,
    lost_grace_s: float = 60.0,
) -> AgentRun:
    """An attempt in ``place/home``, its output kept in ``place/kept``."""
    home = place / "home"
    home.mkdir(exist_ok=True)
    plan = AgentRunSpec(
        id=f"{place.name}-1",
        agent=cast("Agent", playing),
        order=LaunchSpec("do it", place / "PROMPT-now.md"),
        directory=home,
        keep=place / "kept",
        timeout_s=timeout_s,
        limits=limits,
        exit_grace_s=exit_grace_s,
        crash_grace_s=crash_grace_s,
        lost_grace_s=lost_grace_s,
    )
    return AgentRun(plan, heard or Heard())
