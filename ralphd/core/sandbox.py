"""Which sandbox a run gets, and why (A1).

``auto`` never stops a run from starting: where the sandbox cannot work, the run starts without one and the
reason is shown. A level that the user requested is never dropped silently: the start is refused.
"""

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from ralphd.dataclass import dataclass

LEVELS: Final = ("none", "auto", "signals", "write", "box")
"""From the weakest to the strongest; ``ralph.toml`` may only raise the user's own level."""
SIGNALS_ABI: Final = 6
"""The version of Landlock that restricts signals: Linux 6.12."""
MEANS: Final = {"signals": "landlock", "write": "landlock", "box": "bubblewrap"}
WRITE, BOX = "write", "box"
DEVICES: Final = (
    *("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"),
    *("/dev/tty", "/dev/ptmx", "/dev/pts"),
)
"""What a run may write at the level ``write`` below /dev. A disk is not among it: root could write one."""
TEMPORARY: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - nothing is created there
CACHES: Final = (
    *("~/.cache", "$XDG_CACHE_HOME", "~/.npm", "$npm_config_cache", "$PIP_CACHE_DIR", "$UV_CACHE_DIR"),
    *("~/.yarn", "~/.bun/install/cache", "~/.local/share/pnpm", "~/.cargo/registry", "~/.cargo/git"),
    *("~/go/pkg", "$GOMODCACHE", "$GOCACHE", "~/.gradle", "~/.m2/repository", "~/.nuget/packages"),
)
"""The caches of package managers and compilers."""
NEEDS_NONE: Final = "the tests fail inside the sandbox and pass without it"
TITLE: Final = "no sandbox: the run can signal every process of its user"


@dataclass(frozen=True, slots=True)
class SandboxFacts:
    """What the machine allows. ``abi`` is Landlock's version, 0 without Landlock.

    ``has_sudo``: sudo works without a password, and a run may depend on it. ``no_box`` says why bubblewrap
    does not work.
    """

    abi: int = 0
    is_root: bool = False
    has_sudo: bool = False
    no_box: str = ""


@dataclass(frozen=True, slots=True)
class SandboxChoice:
    """The level that a run is started with. ``reason`` says why it has none although ``auto`` was set.

    ``required``: without the sandbox the run must not start. ``fault`` says why it cannot start at all.
    ``writable`` are the paths at and below which the run can change files; empty for all.
    """

    level: str = "none"
    reason: str = ""
    required: bool = False
    fault: str = ""
    writable: tuple[str, ...] = ()


NO_SANDBOX: Final = SandboxChoice()


def choose(requested: str, machine: SandboxFacts) -> SandboxChoice:
    """Return the sandbox for a requested level."""
    if requested == "none":
        return NO_SANDBOX
    if requested == BOX:
        fault = machine.no_box and f'[sandbox] level = "box": {machine.no_box}'
        return SandboxChoice(fault=fault) if fault else SandboxChoice(BOX, required=True)
    if missing := _missing(machine.abi):
        return SandboxChoice(reason=missing) if requested == "auto" else SandboxChoice(fault=missing)
    if requested == "auto" and machine.has_sudo and not machine.is_root:
        return SandboxChoice(reason="sudo works without a password here, and the sandbox would disable it")
    return SandboxChoice("signals" if requested == "auto" else requested, required=requested != "auto")


def restricted(
    choice: SandboxChoice, needed: Iterable[str], optional: Iterable[str], hidden: str
) -> SandboxChoice:
    """Return the choice with what the run may write: absolute paths, without those below others.

    Landlock cannot exclude a path below an allowed one. So a path that holds the state directory ``hidden``
    is left out where it is optional, and a fault where it is needed.
    """
    needed = tuple(needed)
    if faulty := [path for path in needed if _is_within(hidden, path) or _is_within(path, hidden)]:
        text = f"the run has to write {faulty[0]}, and the state directory {hidden} would be writable with it"
        return SandboxChoice(fault=text)
    fitting = [path for path in optional if not _is_within(hidden, path) and not _is_within(path, hidden)]
    return replace(choice, writable=outermost((*needed, *fitting)))


def is_lowered(users_own: str, projects: str) -> bool:
    """Return whether ``ralph.toml`` asks for a weaker level than the user's own."""
    return LEVELS.index(projects) < LEVELS.index(users_own)


def default_writable(home: str, environ: Mapping[str, str], stated: Iterable[str]) -> tuple[str, ...]:
    """Return what a run may write besides its working directory at the levels ``write`` and ``box``.

    ``stated`` are the state paths of agents; ``~/`` and a leading ``$VARIABLE`` are resolved. What is not
    absolute then is left out, and so is the home directory with all that contains it.
    """
    paths = (_resolved(each, home, environ) for each in (*CACHES, *stated))
    # Not only the outermost: of those, ``restricted`` may leave one out that holds the state directory.
    return tuple(each for each in paths if each.startswith("/") and not _is_within(home, each))


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that are below no other: a run could replace such a one by a link elsewhere."""
    every = tuple(dict.fromkeys(map(posixpath.normpath, paths)))
    return tuple(one for one in every if not any(_is_within(one, each) for each in every if each != one))


def _resolved(path: str, home: str, environ: Mapping[str, str]) -> str:
    first, _, rest = path.partition("/")
    start = {"": "/", "~": home}.get(first, environ.get(first[1:], "") if first.startswith("$") else "")
    return posixpath.normpath(posixpath.join(start, rest)) if start else ""


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


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
