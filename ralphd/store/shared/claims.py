"""The records of worktrees, and who does which task of a list that several ralphs share.

``STATE/trees/NAME.json`` is written before a worktree is made (W1). ``STATE/claims/HASH.json`` has the claims
of one list in one repository, since every worktree has its own copy of the list; loops and the daemon change
it under a lock. A damaged file is set aside (F2): without its claims two ralphs may do the same task.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ralphd.core.worktrees.rules import Claim, Claims, Worktree, Worktrees, released
from ralphd.store.codec import Codec, load_file, peek_file
from ralphd.store.files import Broken, Lock, as_json, make_private_directory, write_whole

VERSION: Final = 1
_WORKTREE: Final = Codec[Worktree](Worktree, moments=("made_at",))
_CLAIM: Final = Codec[Claim](Claim)


def load_worktrees(state: Path) -> Worktrees:
    """Return the records, by name; one that cannot be read is left out. Changes nothing."""
    found = (worktree_of(state, path.stem) for path in sorted((state / "trees").glob("*.json")))
    return {tree.name: tree for tree in found if tree is not None}


def worktree_of(state: Path, name: str) -> Worktree | None:
    """Return the record of the worktree of that name; None without one. Changes nothing."""
    return peek_file(state / "trees" / f"{name}.json", VERSION, _WORKTREE.load)


def save_worktree(state: Path, tree: Worktree) -> None:
    """Write a record, durably. Raise OSError."""
    make_private_directory(state / "trees")
    write_whole(state / "trees" / f"{tree.name}.json", as_json({"version": VERSION, **_WORKTREE.dump(tree)}))


def drop_worktree(state: Path, name: str) -> None:
    """Forget a worktree. Raise OSError."""
    (state / "trees" / f"{name}.json").unlink(missing_ok=True)


def change_claims(state: Path, repository: str, task_list: str, change: Callable[[Claims], Claims]) -> Claims:
    """Change the claims of a list, under their lock, and return them. Blocks; raise OSError."""
    make_private_directory(state / "claims")
    about = {"repository": repository, "list": task_list}
    return _change(claims_path(state, repository, task_list), about, change)


def claims_path(state: Path, repository: str, task_list: str) -> Path:
    """Return the file with the claims of a list."""
    digest = hashlib.sha256(os.fsencode(f"{repository}\0{task_list}")).hexdigest()[:16]
    return state / "claims" / f"{digest}.json"


def release_claims(state: Path, ralph: str, *, landed: bool = False) -> None:
    """Free the tasks of a ralph that is removed, in all lists. Blocks; raise OSError."""
    for path in sorted((state / "claims").glob("*.json")):
        _change(path, {}, lambda claims: released(claims, ralph, landed=landed))


def _change(path: Path, about: Mapping[str, str], change: Callable[[Claims], Claims]) -> Claims:
    with Lock.acquire_soon(path.with_suffix(".lock")):  # held for the time of one small write
        stored: dict[str, Any] = {}
        with suppress(Broken):
            stored = load_file(path, VERSION, dict) or {}
        before = {}
        with suppress(ValueError, AttributeError):
            before = {id_: _CLAIM.load(each) for id_, each in stored.get("claims", {}).items()}
        after = change(before)
        if after != before:
            plain = {id_: _CLAIM.dump(each) for id_, each in after.items()}
            about = about or {key: str(stored.get(key, "")) for key in ("repository", "list")}
            write_whole(path, as_json({"version": VERSION, **about, "claims": plain}))
    return after
