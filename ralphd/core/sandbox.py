"""Which sandbox a run gets, and why (A1).

``auto`` never stops a run from starting: where the sandbox cannot work, the run starts without one and the
reason is shown. A level that the user requested is never dropped silently: the start is refused.
"""

from dataclasses import dataclass
from typing import Final

LEVELS: Final = ("none", "auto", "signals", "write", "box")
"""From the weakest to the strongest; ``ralph.toml`` may only raise the user's own level."""
SIGNALS_ABI: Final = 6
"""The version of Landlock that restricts signals: Linux 6.12."""
MEANS: Final = {"signals": "landlock"}
TITLE: Final = "no sandbox: the run can signal every process of its user"


@dataclass(frozen=True, slots=True)
class SandboxFacts:
    """What the machine allows. ``abi`` is Landlock's version, 0 without Landlock.

    ``has_sudo``: sudo works without a password, and a run may depend on it.
    """

    abi: int = 0
    is_root: bool = False
    has_sudo: bool = False


@dataclass(frozen=True, slots=True)
class SandboxChoice:
    """The level that a run is started with. ``reason`` says why it has none although ``auto`` was set.

    ``required``: without the sandbox the run must not start. ``fault`` says why it cannot start at all.
    """

    level: str = "none"
    reason: str = ""
    required: bool = False
    fault: str = ""


NO_SANDBOX: Final = SandboxChoice()


def choose(requested: str, machine: SandboxFacts) -> SandboxChoice:
    """Return the sandbox for a requested level."""
    if requested == "none":
        return NO_SANDBOX
    if requested not in ("auto", "signals"):
        return SandboxChoice(fault=f'level = "{requested}" is not part of this version')
    if missing := _missing(machine.abi):
        return SandboxChoice(reason=missing) if requested == "auto" else SandboxChoice(fault=missing)
    if requested == "auto" and machine.has_sudo and not machine.is_root:
        return SandboxChoice(reason="sudo works without a password here, and the sandbox would disable it")
    return SandboxChoice("signals", required=requested == "signals")


def is_lowered(users_own: str, projects: str) -> bool:
    """Return whether ``ralph.toml`` asks for a weaker level than the user's own."""
    return LEVELS.index(projects) < LEVELS.index(users_own)


def view_of(level: str, reason: str) -> dict[str, str | None]:
    """Return the ``sandbox`` field of a ralph's view."""
    return {"level": level, "means": MEANS.get(level), "reason": reason or None}


def note_on(level: str, reason: str) -> str | None:
    """Return the warning about a run that has no sandbox although ``auto`` was set."""
    return f"{TITLE} ({reason})" if level == "none" and reason else None


def _missing(abi: int) -> str:
    if not abi:
        return "the kernel has no Landlock, or it is disabled"
    if abi < SIGNALS_ABI:
        return f"Landlock ABI {abi} cannot restrict signals; ABI {SIGNALS_ABI} can (Linux 6.12)"
    return ""
