"""Decide which settings of git run a command, and which of them an iteration changed (A2, A7).

Whoever may write ``.git/config`` has the next ``git status`` of its owner run a program. Names, remotes and
branches are honest changes of an iteration; what follows here is restored or reported. A hook file
is restored at every level of the sandbox: one that fails refuses every later commit.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from ralphd.dataclass import dataclass

Settings: TypeAlias = Mapping[str, Sequence[str]]
"""The values of each key, as ``git config --list`` names it: section and name in lower case."""

HOOKS_PATH: Final = "core.hookspath"
ELSEWHERE: Final = ("core.worktree", "core.bare")
"""With these git works in another directory, or in none: no commit could be judged."""
_COMMANDS: Final = re.compile(
    r"core\.(fsmonitor|hookspath|sshcommand|editor|pager|askpass|gitproxy|alternaterefscommand)"
    r"|sequence\.editor|interactive\.difffilter|init\.templatedir|uploadpack\.packobjectshook"
    r"|credential\.(.*\.)?helper|filter\..*\.(clean|smudge|process)|diff\.(external|.*\.(command|textconv))"
    r"|merge\..*\.driver|(diff|merge|gui)tool\..*\.(cmd|path)|(browser|man)\..*\.(cmd|path)"
    r"|gpg\.((.*\.)?program|ssh\.defaultkeycommand)|include(if\..*)?\.path|pager\..*"
    r"|remote\..*\.(uploadpack|receivepack|vcs)|trailer\..*\.(command|cmd)|lfs\.customtransfer\..*\.path"
    r"|lfs\.extension\..*\.(clean|smudge)|sendemail\.((.*\.)?smtpserver|.*cmd)",
    re.DOTALL,
)
_SHELL_AFTER: Final = re.compile(r"alias\..*|submodule\..*\.update", re.DOTALL)
_PLAIN: Final = frozenset({"true", "false", "yes", "no", "on", "off", "0", "1", ""})
_LFS: Final = {
    "filter.lfs.clean": "git-lfs clean -- %f",
    "filter.lfs.smudge": "git-lfs smudge -- %f",
    "filter.lfs.process": "git-lfs filter-process",
}


@dataclass(frozen=True, slots=True)
class ChangedCommand:
    """A hook or a setting that makes git run a command. ``undo`` takes back what is there now."""

    name: str
    undo: str
    restored: bool = False


def runs_command(key: str, value: str) -> bool:
    """Return whether git runs a command because of this setting."""
    if key == "core.fsmonitor" or key.startswith("pager."):
        return value.lower() not in _PLAIN
    if _SHELL_AFTER.fullmatch(key):
        return value.startswith("!")
    if key.startswith("protocol."):
        return value != "never"
    is_ext = "ext::" in key or (key.startswith("remote.") and value.startswith("ext::"))
    return is_ext or (_COMMANDS.fullmatch(key) is not None and _LFS.get(key) != value)


def changed_commands(before: Settings, after: Settings) -> list[str]:
    """Return the keys that differ and run, or ran, a command, or lead git elsewhere."""
    differing = (key for key in {*before, *after} if before.get(key) != after.get(key))
    values = {key: (*before.get(key, ()), *after.get(key, ())) for key in differing}
    return sorted(
        key for key, of in values.items() if key in ELSEWHERE or any(runs_command(key, each) for each in of)
    )


def is_restored(name: str, *, seen: bool, is_protected: bool, is_stuck: bool) -> bool:
    """Return whether the daemon restores a hook or setting that an iteration changed.

    Tools set settings, so they stay where the level of the sandbox does not protect them (``is_protected``);
    ``core.hooksPath`` only until an iteration ``is_stuck``: it changed tracked files and made no commit.
    """
    is_always = name in ELSEWHERE or name.partition("/")[0] == "hooks"
    return seen and (is_protected or is_always or (is_stuck and name == HOOKS_PATH))
