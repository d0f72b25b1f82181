"""What an exit status or a signal says by itself: by the CLI's own table, then by what all programs share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ralphd.core.failure import FailureKind


@dataclass(frozen=True, slots=True)
class ExitMeaning:
    """What an exit status means for one CLI, by its exit table."""

    kind: FailureKind
    why: str


_SHARED: Final[Mapping[int, ExitMeaning]] = {
    124: ExitMeaning(FailureKind.TIMEOUT, "a time limit around it ran out"),
    126: ExitMeaning(FailureKind.FATAL, "the command was found, and cannot be executed"),
    127: ExitMeaning(FailureKind.FATAL, "the command was not found: it is not installed"),
}
_SIGNALS: Final[Mapping[int, str]] = {
    2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
    11: "SIGSEGV", 13: "SIGPIPE", 15: "SIGTERM", 24: "SIGXCPU", 31: "SIGSYS",
}  # fmt: skip
_OFTEN: Final[Mapping[int, str]] = {
    6: ": it gave up",
    9: "; often memory ran out",
    11: ": a crash of the program",
}
_BY_SIGNAL: Final = range(129, 160)
"""A shell's exit statuses for what a signal ended; a CLI's own table comes before them (gemini's 173)."""


def meaning_of_exit(
    code: int | None, signal: int | None, table: Mapping[int, ExitMeaning]
) -> tuple[str, ExitMeaning] | None:
    """Rule and meaning of an end; None where it says no more than that something failed, or nothing."""
    if signal is not None:
        return _signalled(signal)
    if code is None or code == 0:
        return None
    if (known := table.get(code) or _SHARED.get(code)) is not None:
        return f"exit status {code}", known
    return _signalled(code - 128) if code in _BY_SIGNAL else None


def ended_with(code: int | None, signal: int | None) -> str:
    """An end in words: ``exit status 1``, ``SIGTERM``."""
    if signal is not None:
        return _SIGNALS.get(signal, f"signal {signal}")
    return "an unknown exit status" if code is None else f"exit status {code}"


def _signalled(number: int) -> tuple[str, ExitMeaning]:
    name = ended_with(None, number)
    why = f"it was ended by {name}, and not by us{_OFTEN.get(number, '')}"
    return name, ExitMeaning(FailureKind.AGENT_CRASH, why)
