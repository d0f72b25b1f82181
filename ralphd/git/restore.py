"""Rebuild a git directory that an agent removed or broke, from the vault (A8).

The new directory is built beside the old one, which is moved into it: ``.git/ralph-left/TIME``, where neither
``git clean`` nor ``git add`` takes it. The work tree is not touched. A daemon that dies in between finds the
complete new directory and finishes; an incomplete one is built again.
"""

import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ralphd.diagnostics import reach
from ralphd.git import repo
from ralphd.git.runner import NotDone, ref_name
from ralphd.git.vault import CHECK_LIMIT_S, Taken, Vault

LEFT: Final = "refs/ralph/left/"
LEFT_FOLDER: Final = "ralph-left"
_NEW: Final = ".ralph-new"
_COMPLETE: Final = "ralph-complete"
_SAFE: Final = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}
_REF: Final = re.compile(r"([0-9a-f]{40,64}) (refs/\S+)")
_SHA: Final = re.compile(r"[0-9a-f]{40,64}")
_UPKEEP: Final = ("worktrees", "modules", "lfs", "logs", "rr-cache")


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """``left``: where the broken git directory is now, if there was one. ``refs`` keep the commits in it."""

    left: Path | None
    refs: tuple[str, ...] = ()


def rebuild(vault: Vault, taken: Taken, label: str) -> Rebuilt:
    """Replace the repository's git directory by the copy in the vault. Raises NotDone, OSError."""
    if not taken.is_whole:
        raise NotDone("the vault has no objects of this repository: it is larger than vault_max_bytes")
    common = Path(taken.common)
    new = common.with_name(common.name + _NEW)
    is_whole = (new / _COMPLETE).is_file()
    if not is_whole:
        shutil.rmtree(new, ignore_errors=True)
        _build(vault, taken, new, common, label)
        (new / _COMPLETE).touch()
    reach("vault.rebuild.built")
    old: Path | None = None
    if os.path.lexists(common):
        old = new / LEFT_FOLDER / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        old.parent.mkdir(exist_ok=True)
        common.rename(old)
    reach("vault.rebuild.moved_aside")
    new.rename(common)
    (common / _COMPLETE).unlink()
    if taken.pointer is not None and not os.path.lexists(link := Path(taken.top) / ".git"):
        link.write_text(taken.pointer)
    listed = _git(common, "for-each-ref", "--format=%(refname)", f"{LEFT}{ref_name(label)}") or b""
    left = sorted((common / LEFT_FOLDER).glob("*")) if old or is_whole else []
    return Rebuilt(left[-1] if left else None, tuple(listed.decode().split()))


def _build(vault: Vault, taken: Taken, new: Path, old: Path, label: str) -> None:
    new.mkdir(mode=0o755)
    for name in ("objects/pack", "objects/info", "refs/heads", "refs/tags"):
        (new / name).mkdir(parents=True)
    _copy_objects(vault.path / "objects", new / "objects", shutil.copyfile)
    reach("vault.rebuild.objects")
    if (old / "objects").is_dir():
        _copy_objects(old / "objects", new / "objects", _linked)
    for name in _UPKEEP:
        if (old / name).is_dir():
            shutil.copytree(old / name, new / name, symlinks=True, dirs_exist_ok=True)
    if (vault.folder / "common").is_dir():
        shutil.copytree(vault.folder / "common", new, dirs_exist_ok=True)
    place = new / Path(taken.git).relative_to(taken.common)
    shutil.copytree(vault.folder / "git", place, dirs_exist_ok=True)
    if not (new / "HEAD").exists():
        (new / "HEAD").write_text("ref: refs/heads/main\n")
    _write_refs(new, taken.refs)
    forward = _merge_refs(new, taken, dict(_refs_in(old)), label)
    head = (place / "HEAD").read_text().strip().removeprefix("ref: ")
    index = old / (place / "index").relative_to(new)
    if head in forward and index.is_file():
        shutil.copyfile(index, place / "index")
        if _git(new, "ls-files", index=place / "index") is None:
            # Garbage. The vault's index may belong to an older HEAD.
            (place / "index").unlink()
            _git(new, "read-tree", "HEAD", index=place / "index")
    if _git(new, "rev-list", "--objects", "--quiet", "--all") is None:
        raise NotDone("the copy in the vault is incomplete")


def _copy_objects(source: Path, target: Path, copy: object) -> None:
    for folder, _, names in os.walk(source):
        for name in names:
            path = Path(folder) / name
            place = target / path.relative_to(source)
            if name.startswith("tmp_") or place.exists() or path.is_symlink() or not path.stat().st_size:
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            copy(path, place)  # type: ignore[operator]
            place.chmod(0o444)


def _linked(path: Path, place: Path) -> None:
    try:
        os.link(path, place, follow_symlinks=False)
    except OSError:
        shutil.copyfile(path, place)


def _refs_in(git: Path) -> Iterator[tuple[str, str]]:
    """Yield the refs of a git directory that git itself may not be able to read."""
    with suppress(OSError):
        for line in (git / "packed-refs").read_text(errors="replace").splitlines():
            if match := _REF.fullmatch(line):
                yield match[2], match[1]
    for folder, _, names in os.walk(git / "refs"):
        for name in names:
            path = Path(folder) / name
            with suppress(OSError):
                if not path.is_symlink() and _SHA.fullmatch(text := path.read_text(errors="replace").strip()):
                    yield str(path.relative_to(git)), text


def _write_refs(git: Path, refs: Mapping[str, str]) -> None:
    lines = [f"{value} {name}\n" for name, value in sorted(refs.items()) if _SHA.fullmatch(value)]
    (git / "packed-refs").write_text("# pack-refs with: sorted \n" + "".join(lines))
    for name, value in refs.items():
        if value.startswith("ref: "):
            (git / name).parent.mkdir(parents=True, exist_ok=True)
            (git / name).write_text(value + "\n")


def _merge_refs(git: Path, taken: Taken, found: Mapping[str, str], label: str) -> set[str]:
    """Add the commits of the old directory. Return the refs that have the values of the old directory.

    A ref that only moved forward keeps its value; anything else is kept below ``refs/ralph/left``.
    """
    same = {name for name, sha in found.items() if taken.refs.get(name) == sha}
    for name, sha in found.items():
        if name in same or _git(git, "rev-list", "--objects", "--quiet", sha) is None:
            continue
        base, target = taken.refs.get(name) or taken.head or sha, name
        # A ref that is new only has to share history with what was there.
        related = ("merge-base", "--is-ancestor") if name in taken.refs else ("merge-base",)
        if _git(git, *related, base, sha) is not None:
            same.add(name)
        else:
            target = f"{LEFT}{ref_name(label)}/{name.removeprefix('refs/').removeprefix('heads/')}"
        if _git(git, "update-ref", target, sha) is None:
            raise NotDone(f"{target} cannot be written")
    return same


def _git(git: Path, *words: str, index: Path | None = None) -> bytes | None:
    env = {**_SAFE, "GIT_INDEX_FILE": str(index)} if index else _SAFE
    answer = repo.answer(git.parent, f"--git-dir={git}", *words, limit_s=CHECK_LIMIT_S, env=env)
    return answer[1] if answer is not None and answer[0] == 0 else None
