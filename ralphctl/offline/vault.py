"""List the vaults of the state directory and restore from them for a person, with or without a daemon (A7).

Nothing is overwritten. A git directory is only rebuilt while no run holds the lock of its directory (S2).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from ralphctl.offline import state
from ralphd import wire
from ralphd.core.time import rfc3339
from ralphd.dataclass import dataclass
from ralphd.errors import NotFound, RalphdError
from ralphd.git import restore, runner
from ralphd.git.vault import Taken, Vault, size_of
from ralphd.process import lock

LABEL = "vault-restore"


@dataclass(frozen=True, slots=True)
class Restoration:
    """What a restore would do. ``fault`` is why the git directory is rebuilt; None: it is not."""

    vault: Vault
    taken: Taken
    top: Path
    fault: str | None
    files: tuple[str, ...]


def listed(environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return what each vault holds, by directory."""
    works_in = _ralphs(environ)
    return [
        {
            "directory": taken.top,
            "git": taken.common,
            "ralphs": sorted({name for name, each in works_in if each.is_relative_to(taken.top)}),
            "taken_at": rfc3339(taken.at),
            "bytes": size_of(vault.path),
            "commits": "all" if taken.is_whole else "unpushed" if taken.has_unpushed else "none",
            "files": sorted(taken.kept),
            "vault": str(vault.path),
        }
        for home in _homes(environ)
        for vault, taken in Vault.every(home)
    ]


def copy_of(directory: Path, environ: Mapping[str, str]) -> tuple[Vault, Taken] | None:
    """Return the newest copy of the repository around ``directory``; None without one."""
    vaults = (Vault.of(home, directory) for home in _homes(environ))
    known = [(vault, taken) for vault in vaults if vault and (taken := vault.taken())]
    return max(known, key=lambda each: each[1].at, default=None)


def planned(directory: Path, environ: Mapping[str, str], to: Path | None, name: str | None) -> Restoration:
    """Return what to restore of the repository around ``directory``. Raise NotFound, RalphdError."""
    if (known := copy_of(directory, environ)) is None:
        raise NotFound(f"there is no copy of {directory}", mend="ralphctl vault list")
    vault, taken = known
    if name is not None and name not in taken.kept:
        kept = ", ".join(sorted(taken.kept)) or "no files"
        raise NotFound(f"the vault has no file {name!r}", why=f"it keeps {kept}", mend="ralphctl vault list")
    top, fault = vault.top, None
    if to is not None:
        top = to.resolve()
        git = str(top / ".git")
        taken = replace(taken, top=str(top), git=git, common=git, pointer=None)
    if name is None:
        if to is not None and os.path.lexists(to) and not (to.is_dir() and not any(to.iterdir())):
            raise RalphdError(f"{to} is not an empty directory", mend="give a directory that does not exist")
        fault = ("" if to is None else "a copy was requested") or vault.fault(taken) or None
    elif os.path.lexists(top / name):
        raise RalphdError(f"{top / name} exists, and is not overwritten", mend="give a directory with --to")
    names = [name] if name else sorted(taken.kept)
    return Restoration(vault, taken, top, fault, tuple(n for n in names if not os.path.lexists(top / n)))


def carry_out(plan: Restoration, environ: Mapping[str, str]) -> dict[str, Any]:
    """Restore what was planned and return what was done. Raise DirectoryBusy, RalphdError."""
    left, refs = None, tuple[str, ...]()
    try:
        plan.top.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            for directory in {each for _, each in _ralphs(environ) if each.is_relative_to(plan.top)}:
                if plan.fault is not None and directory.is_dir():
                    held.callback(lock.DirectoryLock.acquire(directory).release)
            held.enter_context(plan.vault.exclusive())
            is_elsewhere = plan.top != plan.vault.top
            if plan.fault is not None and (is_elsewhere or plan.vault.fault(plan.taken)):
                done = restore.rebuild(plan.vault, plan.taken, LABEL)
                left, refs = done.left, done.refs
            kept = [(name, plan.taken.kept[name]) for name in plan.files]
            written = [name for name, each in kept if plan.vault.write_kept(name, each, plan.top)]
    except (runner.NotDone, OSError) as fault:
        raise RalphdError(f"{plan.top} was not restored", why=runner.error_text(fault)) from fault
    git = None if plan.fault is None else plan.taken.common
    aside = {"left": None if left is None else str(left), "refs": list(refs)}
    return {"directory": str(plan.top), "git": git, "why": plan.fault, **aside, "files": written}


def _homes(environ: Mapping[str, str]) -> list[Path]:
    states = (wire.state_directory(environ), *state.build_directories(environ))
    return [Path(each, "vaults") for each in states]


def _ralphs(environ: Mapping[str, str]) -> list[tuple[str, Path]]:
    return [(view["name"], Path(view["directory"])) for _, view in state.stored_views(environ)]
