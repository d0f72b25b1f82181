"""Rebuild a git directory that an agent removed or broke, from the vault (A8).

The new directory is built beside the old one, which is moved into it: ``.git/ralph-left/TIME``, where neither
``git clean`` nor ``git add`` takes it. The work tree is not touched. A daemon that dies in between finds the
complete new directory and finishes; an incomplete one is built again.
"""

import hashlib
import os
import re
import shlex
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final

from ralphd.core.gate import git_config_changes
from ralphd.core.gate.git_config_changes import ChangedCommand
from ralphd.dataclass import dataclass
from ralphd.diagnostics import reach
from ralphd.git import repo
from ralphd.git.repo import FULL_SHA
from ralphd.git.runner import NotDone, ref_name
from ralphd.git.vault import REMOTES, SAFE, TAKE_LIMIT_S, Taken, Vault, hook_names
from ralphd.plain_files import read_plain

LEFT: Final = "refs/ralph/left/"
LEFT_FOLDER: Final = "ralph-left"
MOST_HOOK_BYTES: Final = 1 << 20
_NEW: Final = ".ralph-new"
_COMPLETE: Final = "ralph-complete"
_REF: Final = re.compile(r"([0-9a-f]{40,64}) (refs/\S+)")
_HEAD: Final = re.compile(r"(ref: refs/\S+|[0-9a-f]{40,64})\s*")
_URL: Final = re.compile(r"remote\..*\.url", re.DOTALL)
_FOLDER: Final = ("folder",)
_UPKEEP: Final = ("worktrees", "modules", "lfs", "logs", "rr-cache", "rebase-merge", "rebase-apply",
    "sequencer")  # fmt: skip
_OF_WORK_TREE: Final = ("[A-Z]*", "index", "commondir", "gitdir")
"""HEAD and its like: MERGE_HEAD, ORIG_HEAD, BISECT_LOG."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """``path`` was restored. ``left``: where what was broken is now, if there was anything; ``refs`` keep the
    commits in it.
    """

    path: Path
    left: Path | None
    refs: tuple[str, ...] = ()


def rebuild(vault: Vault, taken: Taken, label: str) -> Rebuilt:
    """Replace the repository's git directory by the copy in the vault. Raises NotDone, OSError.

    If a linked work tree only lacks its ``.git`` file, that file is written: others work in the repository.
    """
    common, link = Path(taken.common), Path(taken.top) / ".git"
    if taken.pointer is not None:
        aside = _point(link, taken.pointer, common)
        if not vault.fault(taken):
            return Rebuilt(link, aside)
    new = common.with_name(common.name + _NEW)
    is_whole = (new / _COMPLETE).is_file()
    if not is_whole:
        shutil.rmtree(new, ignore_errors=True)
        _build(vault, taken, new, common, label)
        _give_modes(new, common)
        (new / _COMPLETE).touch()
    reach("vault.rebuild.built")
    old: Path | None = None
    if os.path.lexists(common):
        old = _aside(new)
        old.parent.mkdir(exist_ok=True)
        common.rename(old)
    reach("vault.rebuild.moved_aside")
    new.rename(common)
    (common / _COMPLETE).unlink()
    listed = _git(common, "for-each-ref", "--format=%(refname)", f"{LEFT}{ref_name(label)}") or b""
    left = sorted((common / LEFT_FOLDER).glob("*")) if old or is_whole else []
    return Rebuilt(common, left[-1] if left else None, tuple(os.fsdecode(listed).split()))


def _point(link: Path, pointer: str, common: Path) -> Path | None:
    """Let a linked work tree name its git directory. Return where what was there instead is now."""
    aside = None
    with suppress(OSError):
        if _text(link) == pointer:
            return None
    if os.path.lexists(link):
        (aside := _aside(common)).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(link, aside)
    link.write_text(pointer)
    repo.give_mode(link, 0o666 & ~repo.umask)
    return aside


def _give_modes(new: Path, old: Path) -> None:
    """Give what was made here the modes of the old directory's folders, or those that git gives.

    A run could have opened the old ones to every user: that is not taken over.
    """
    for folder, _, names in os.walk(new):
        known = old / Path(folder).relative_to(new)
        mode = stat.S_IMODE(known.stat().st_mode) & ~0o002 if known.is_dir() else 0o777 & ~repo.umask
        repo.give_mode(Path(folder), mode | 0o700)
        for name in {"HEAD", "index", "packed-refs"}.intersection(names):
            repo.give_mode(Path(folder, name), 0o666 & ~repo.umask)


def changed_commands(vault: Vault, taken: Taken, restores: Callable[[str], bool]) -> list[ChangedCommand]:
    """Return the hooks and settings that differ from the vault's last copy of any work tree.

    Those that ``restores`` names are replaced by the vault's, and kept in ``ralph-left``. Of the others the
    vault's are copied there. Raises NotDone, OSError.
    """
    common, shared = Path(taken.common), vault.shared()
    if shared is None:
        return []
    aside = _aside(common)
    pairs = [(common / name, shared / name) for name in hook_names(shared, common)]
    pairs.append((common / "config", shared / "config"))
    pairs.append((Path(taken.git, "config.worktree"), vault.folder / "git" / "config.worktree"))
    changed: list[ChangedCommand] = []
    for path, copy in pairs:
        traits = _trait(copy), _trait(path)
        if traits[0] == traits[1]:
            continue
        if path.parent.name != "hooks" and path.name != "hooks" and "link" not in (*traits[0], *traits[1]):
            changed += _changed_settings(path, copy, aside, restores)
            continue
        name = str(path.relative_to(common))
        kept, is_restored = aside / name, restores(name)
        if is_kept := os.path.lexists(path if is_restored else copy):
            kept.parent.mkdir(parents=True, exist_ok=True)
        if is_restored and is_kept:
            path.rename(kept)
        _copy(copy, path if is_restored else kept)
        remove = ["rm", "-r"] if _trait(path) == _FOLDER else ["rm"]
        undo = ["mv", str(kept), str(path)] if is_kept else [*remove, str(path)]
        changed.append(ChangedCommand(name, shlex.join(undo), is_restored))
    return changed


def _copy(source: Path, target: Path) -> None:
    if os.path.lexists(source):
        target.parent.mkdir(exist_ok=True)
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copy2(source, target, follow_symlinks=False)


def _trait(path: Path) -> tuple[str, ...]:
    """Return what makes two hooks equal; empty where there is nothing.

    A folder counts: git cannot run one that has the name of a hook, and refuses the commit.
    """
    if path.is_symlink():
        return "link", str(path.readlink())
    if path.is_dir():
        return _FOLDER
    try:
        data = read_plain(path, MOST_HOOK_BYTES)
    except OSError:
        return ("unreadable",) if path.exists() else ()
    return "file", hashlib.sha256(data).hexdigest(), str(os.access(path, os.X_OK))


def _changed_settings(
    path: Path, copy: Path, aside: Path, restores: Callable[[str], bool]
) -> Iterator[ChangedCommand]:
    before, after = _settings(copy), _settings(path)
    keys = () if before is None or after is None else git_config_changes.changed_commands(before, after)
    restored = {key for key in keys if restores(key)}
    if restored and path.exists():
        aside.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, aside / path.name)
    for key in keys:
        known = (before or {}).get(key, [])
        if key in restored:
            if key in (after or {}):
                _git(path.parent, *_change(path, key, [])[1:])
            for value in known:
                if _git(path.parent, "config", "--file", str(path), "--add", key, value) is None:
                    raise NotDone(f"{path} cannot be written")
        undo = ["diff", str(aside / path.name), str(path)] if key in restored else _change(path, key, known)
        yield ChangedCommand(key, shlex.join(undo), key in restored)


def restore_setting(left: ChangedCommand) -> ChangedCommand | None:
    """Carry out the undo of a setting that was left. Return None if it is restored already."""
    words = shlex.split(left.undo)
    path = Path(words[words.index("--file") + 1])
    known = (_settings(path) or {}).get(left.name, [])
    if path.is_symlink() or _git(path.parent, *words[1:]) is None:
        return None
    if (_settings(path) or {}).get(left.name, []) == known:
        return None
    return ChangedCommand(left.name, shlex.join(_change(path, left.name, known)), True)


def _change(path: Path, key: str, values: list[str]) -> list[str]:
    """Return the command that gives a setting its last value, or removes it."""
    words = ["--replace-all", key, values[-1]] if values else ["--unset-all", key]
    return ["git", "config", "--file", str(path), *words]


def _settings(path: Path) -> dict[str, list[str]] | None:
    """Return the settings of a file; None where git cannot read it."""
    if not path.exists():
        return {}
    listed = _git(path.parent, "config", "--file", str(path), "--no-includes", "--null", "--list")
    settings: dict[str, list[str]] = {}
    for line in os.fsdecode(listed or b"").split("\0")[:-1]:
        key, _, value = line.partition("\n")
        settings.setdefault(key, []).append(value)
    return None if listed is None else settings


def _build(vault: Vault, taken: Taken, new: Path, old: Path, label: str) -> None:
    new.mkdir(mode=0o755)
    for name in ("objects/pack", "objects/info", "refs/heads", "refs/tags"):
        (new / name).mkdir(parents=True)
    _copy_objects(vault.path / "objects", new / "objects", shutil.copyfile)
    reach("vault.rebuild.objects")
    if (old / "objects").is_dir():
        _copy_objects(old / "objects", new / "objects", _linked)
    config = vault.folder / ("git" if (vault.folder / "git" / "config").exists() else "common") / "config"
    urls = {key: values for key, values in (_settings(config) or {}).items() if _URL.fullmatch(key)}
    refs = taken.refs if taken.is_whole else _completed(new, taken, chain(*urls.values()))
    for name in _UPKEEP:
        if (old / name).is_dir():
            shutil.copytree(old / name, new / name, symlinks=True, dirs_exist_ok=True)
    if (vault.folder / "common").is_dir():
        shutil.copytree(vault.folder / "common", new, symlinks=True, dirs_exist_ok=True)
    if taken.git != taken.common:  # a person may work in the main work tree, without any ralph
        _add_work_tree(new, old, Path(), vault.folder / "common")
    for other, known in Vault.every(vault.path.parent):
        if known.common == taken.common and known.git != taken.git and Path(known.top).is_dir():
            _add_work_tree(new, old, Path(known.git).relative_to(taken.common), other.folder / "git")
    place = new / Path(taken.git).relative_to(taken.common)
    shutil.copytree(vault.folder / "git", place, symlinks=True, dirs_exist_ok=True)
    # A linked work tree is restored elsewhere as a repository of its own.
    for name in ("commondir", "gitdir") if place == new else ():
        (new / name).unlink(missing_ok=True)
    if not (new / "HEAD").exists():
        (new / "HEAD").write_text("ref: refs/heads/main\n")
    _write_refs(new, refs)
    forward = _merge_refs(new, taken, dict(_refs_in(old)), label)
    head = os.fsdecode((place / "HEAD").read_bytes()).strip().removeprefix("ref: ")
    index = old / (place / "index").relative_to(new)
    if head in forward and index.is_file():
        shutil.copyfile(index, place / "index")
        if _git(new, "ls-files", index=place / "index") is None:
            # Garbage. The vault's index may belong to an older HEAD.
            (place / "index").unlink()
            _git(new, "read-tree", head, index=place / "index")
    if _git(new, "rev-list", "--objects", "--quiet", "--all") is None:
        names = ", ".join(sorted(key.split(".", 1)[1].rpartition(".")[0] for key in urls)) or "none"
        rest = "" if taken.is_whole else f": it lacks the commits that remotes had (remotes: {names})"
        raise NotDone(f"the copy in {vault.path} is incomplete{rest}")


def _add_work_tree(new: Path, old: Path, name: Path, copy: Path) -> None:
    """Keep HEAD and index of another work tree of the repository, or take them from its own copy."""
    source = copy
    with suppress(OSError):
        if _HEAD.fullmatch(read_plain(old / name / "HEAD", MOST_HOOK_BYTES).decode(errors="replace")):
            source = old / name
    (new / name).mkdir(parents=True, exist_ok=True)
    for path in chain.from_iterable(map(source.glob, _OF_WORK_TREE)):
        with suppress(OSError):
            shutil.copyfile(path, new / name / path.name)


def _completed(new: Path, taken: Taken, urls: Iterable[str]) -> Mapping[str, str]:
    """Fetch from local remotes what the vault lacks. Return the refs, without lost ones of remotes."""
    (new / "HEAD").write_text("ref: refs/heads/main\n")  # without the configuration, which may name commands
    shas = "".join(f"{sha}\n" for sha in taken.refs.values() if FULL_SHA.fullmatch(sha)).encode()
    options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
    for url in urls:
        if _git(new, "rev-list", "--objects", "--quiet", "--stdin", given=shas) is None:
            _git(new, "fetch", *options, "--upload-pack=git-upload-pack", "--", url, "+refs/*:refs/fetched/*")
    listed = (_git(new, "cat-file", "--batch-check", given=shas) or b"").decode().splitlines()
    gone = {line.partition(" ")[0] for line in listed if line.endswith(" missing")}
    shutil.rmtree(new / "refs" / "fetched", ignore_errors=True)
    (new / "HEAD").unlink()
    return {name: sha for name, sha in taken.refs.items() if sha not in gone or not name.startswith(REMOTES)}


def _copy_objects(source: Path, target: Path, copy: Callable[[Path, Path], object]) -> None:
    for folder, _, names in os.walk(source):
        for name in names:
            path = Path(folder) / name
            place = target / path.relative_to(source)
            if name.startswith("tmp_") or place.exists() or path.is_symlink() or not path.stat().st_size:
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            copy(path, place)
            place.chmod(0o444)


def _linked(path: Path, place: Path) -> None:
    try:
        os.link(path, place, follow_symlinks=False)
    except OSError:
        shutil.copyfile(path, place)


def _refs_in(git: Path) -> Iterator[tuple[str, str]]:
    """Yield the refs of a git directory that git itself may not be able to read."""
    with suppress(OSError):
        for line in _text(git / "packed-refs").split("\n"):
            if match := _REF.fullmatch(line):
                yield match[2], match[1]
    for folder, _, names in os.walk(git / "refs"):
        for name in names:
            path = Path(folder) / name
            with suppress(OSError):
                if FULL_SHA.fullmatch(text := _text(path).strip()):
                    yield str(path.relative_to(git)), text


def _text(path: Path) -> str:
    return os.fsdecode(read_plain(path, 64 << 20))


def _write_refs(git: Path, refs: Mapping[str, str]) -> None:
    lines = [f"{value} {name}\n" for name, value in sorted(refs.items()) if FULL_SHA.fullmatch(value)]
    (git / "packed-refs").write_bytes(os.fsencode("# pack-refs with: sorted \n" + "".join(lines)))
    for name, value in refs.items():
        if value.startswith("ref: "):
            (git / name).parent.mkdir(parents=True, exist_ok=True)
            (git / name).write_bytes(os.fsencode(value + "\n"))


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


def _aside(git: Path) -> Path:
    """Return a path below ``ralph-left`` that does not exist; its name is the time."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    paths = (git / LEFT_FOLDER / f"{stamp}{more}" for more in ("", *(f".{i}" for i in range(1, 1000))))
    return next(path for path in paths if not os.path.lexists(path))


def _git(git: Path, *words: str, given: bytes = b"", index: Path | None = None) -> bytes | None:
    env = {**SAFE, "GIT_INDEX_FILE": str(index)} if index else SAFE
    answer = repo.answer(git.parent, f"--git-dir={git}", *words, limit_s=TAKE_LIMIT_S, given=given, env=env)
    return answer[1] if answer is not None and answer[0] == 0 else None
