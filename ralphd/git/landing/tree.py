"""What a queue has in the repository: its own work tree, where the tests run (M2), and refs against gc.

The work tree is a linked one, in the data directory, with a detached HEAD, locked against the clean-up of
other tools (W2). What tests leave in it is removed before the next run, but for ignored files: caches and
installed packages.
"""

# Theory of operation
#
# The tests of a refused branch must not decide about the next one, but they can write the tree, its index and
# the repository's settings. So the index is made again, git reads no setting of the repository (isolated),
# and compares the content of each file with the commit's, byte by byte; what is as in the commit keeps its
# time, for make and the like. Another file stays only if a .gitignore of the commit ignores it. Files with
# rules for git are removed first, also those of the commit: until they are written, it reads the index.

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Final

from ralphd.git.landing.merge import KEPT_REFS
from ralphd.git.rewrite.reapply import REBASED
from ralphd.git.runner import GitRunner, NotDone, isolated, name_list

LIMIT_S: Final = 600.0
REASON: Final = "ralphd: the landing queue"
KEPT_REBASED: Final = 200
MOST_PATH: Final = 1000
"""Longer paths are not even looked at: the kernel refuses them from 4,096 bytes on."""
_RULES: Final = frozenset([b".git", b".gitignore", b".gitattributes", b"ralph.toml"])
"""What changes how the files beside it are read: it is the commit's, or absent."""
_CONVERTED: Final = (b"eol", b"ident", b"working-tree-encoding")
_AS_BYTES: Final = "* -text\n"
"""Without these attributes, git takes a file with other line ends for unchanged."""
_LINK: Final = b"120000"
_MODES: Final = {0o100: b"100755", 0: b"100644"}


class NotTestable(NotDone):
    """A commit has what the queue does not check out."""


def prepare(
    repository: Path, work_tree: Path, tree: Path, commit: str, *,
    old: Path | None = None, is_whole: bool = False, scratch: Path | None = None,
) -> None:  # fmt: skip
    """Have ``tree`` hold exactly ``commit``; make it, and remove ``old``, if it is not there.

    ``is_whole``: without ignored files. ``scratch`` is a directory that no run can write. Blocks. Raises
    NotDone, OSError.
    """
    if not is_ours(tree, repository):
        for each in filter(None, (old, tree)):
            _remove(work_tree, each)
        tree.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        words = ("worktree", "add", "--detach", "--no-checkout", "--lock", "--reason", REASON)
        GitRunner(work_tree, limit_s=LIMIT_S).output(*words, str(tree), commit)
        if not is_ours(tree, repository):
            raise NotDone(f"{tree} is not a work tree of {repository}")
    git = GitRunner(tree, limit_s=LIMIT_S)
    for name in ("index", "index.lock", "HEAD.lock"):  # nobody else works here
        if os.path.lexists(path := git.repository.git / name):
            _delete(os.fsencode(path))
    with isolated(git, scratch) as env:
        git.output("read-tree", commit, env=env)
        others = _clear(os.fsencode(tree), _files(git, env))
        (attributes := Path(env["GIT_COMMON_DIR"], "info", "attributes")).parent.mkdir()
        attributes.write_text(_AS_BYTES)
        git.run("update-index", "-q", "--refresh", env=env)
        attributes.unlink()
        git.output("checkout-index", "--all", "--force", "--index", "--quiet", env=env)
        _sweep(git, env, os.fsencode(tree), others, is_whole=is_whole)
    git.output("update-ref", "--no-deref", "-m", "ralph: tested", "HEAD", commit, env=git.identity)


def _files(git: GitRunner, env: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return the mode of each file of the index. Raises NotTestable for what is not checked out."""
    entries = (entry.partition(b"\t") for entry in git.output("ls-files", "-s", "-z", env=env).split(b"\0"))
    files = {name: about[:6] for about, _, name in entries if name}
    if b"160000" in files.values():
        raise NotTestable("the repository has submodules, which the landing queue does not check out")
    if any(name.rpartition(b"/")[2] == b".gitattributes" for name in files):
        words = ("check-attr", "-z", "--stdin", "--cached", "filter", *map(os.fsdecode, _CONVERTED))
        values = git.output(*words, given=files, env=env).split(b"\0")
        filtered = list[bytes]()
        for name, key, value in zip(values[::3], values[1::3], values[2::3], strict=False):
            if key in _CONVERTED and value not in (b"unspecified", b"unset", b"lf"):
                files[name] = b""  # written each time
            elif key == b"filter" and os.fsdecode(value) in git.filters:
                filtered.append(name)
        if filtered:
            shown = name_list(filtered)
            raise NotTestable(f"files go through a filter (LFS or the like), which is not run: {shown}")
    return files


def _clear(top: bytes, files: Mapping[bytes, bytes]) -> list[bytes]:
    """Remove what must not stay in the folders of the commit. Return the names that the commit lacks."""
    folders, others = {b""}, list[bytes]()
    for name in files:
        while (name := name.rpartition(b"/")[0]) not in folders:
            folders.add(name)
    for folder in sorted(folders):  # those above first
        for name in _listed(top, folder):
            path, rule = _path(top, name), name.rpartition(b"/")[2] in _RULES
            if name in folders:
                is_wrong = not stat.S_ISDIR(os.lstat(path).st_mode)
            elif name in files:
                is_wrong = rule or not _is_plain(path, files[name])
            else:
                is_wrong = rule and name != b".git"
                others += [] if rule else [name]
            if is_wrong:
                _delete(path)
    return others


def _sweep(
    git: GitRunner, env: Mapping[str, str], top: bytes, others: list[bytes], *, is_whole: bool
) -> None:
    """Remove what the commit does not have and does not ignore, level by level."""
    folders, ignored = list[bytes](), set[bytes]()
    env = {**env, "GIT_LITERAL_PATHSPECS": "0"}  # check-ignore refuses it; "./" hides a colon in front
    while others:
        if not is_whole:
            given = [b"./" + name for name in others]
            _, listed = git.run("check-ignore", "-z", "--stdin", given=given, env=env)
            ignored = {name[2:] for name in listed.split(b"\0")}
        left, others = [name for name in others if name not in ignored], []
        for name in left:
            if is_whole or len(name) > MOST_PATH or not stat.S_ISDIR(os.lstat(_path(top, name)).st_mode):
                _delete(_path(top, name))
                continue
            folders.append(name)
            for each in _listed(top, name):
                if each.rpartition(b"/")[2] in _RULES:
                    _delete(_path(top, each))
                else:
                    others.append(each)
    for name in reversed(folders):
        with suppress(OSError):  # ignored files are in it
            os.rmdir(_path(top, name))  # noqa: PTH106 - names are bytes


def _path(top: bytes, name: bytes) -> bytes:
    return top + b"/" + name


def _listed(top: bytes, folder: bytes) -> Iterator[bytes]:
    """Yield the names in a folder, which is made readable."""
    path = _path(top, folder)
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
        if (mode := os.lstat(path).st_mode) & 0o700 != 0o700:
            os.chmod(path, stat.S_IMODE(mode) | 0o700)  # noqa: PTH101
        for name in sorted(os.listdir(path)):  # noqa: PTH208
            yield folder + b"/" + name if folder else name


def _is_plain(path: bytes, mode: bytes) -> bool:
    """Whether a file has this mode, no other name, and can be read and written."""
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        return stat.S_ISLNK(status.st_mode) and mode == _LINK
    is_own = status.st_nlink == 1 and status.st_mode & 0o7600 == 0o600
    return is_own and _MODES[status.st_mode & 0o100] == mode


def _delete(path: bytes) -> None:
    """Remove a file or a folder, also one that is protected from us, and of any depth."""
    left = [path]
    while left:
        if not stat.S_ISDIR(os.lstat(each := left.pop()).st_mode):
            os.unlink(each)  # noqa: PTH108
            continue
        for name in _listed(each, b""):
            inner = _path(each, name)
            if stat.S_ISDIR(os.lstat(inner).st_mode):
                os.chmod(inner, 0o700)  # noqa: PTH101
                left.append(path + b"." + token_hex(8).encode())
                os.rename(inner, left[-1])  # noqa: PTH104 - so no path gets too long
            else:
                os.unlink(inner)  # noqa: PTH108
        os.rmdir(each)  # noqa: PTH106


def is_ours(tree: Path, repository: Path) -> bool:
    """Whether ``tree`` itself is a linked work tree of this repository, and not a directory below another."""
    try:
        git = GitRunner(tree)
        is_whole = (tree / ".git").is_file() and git.top == tree.resolve() and not tree.is_symlink()
        # tests can write .git: the git directory of another work tree does not point back
        is_own = is_whole and bool(git.repository.proven())
        return is_own and git.repository.common.resolve() == repository.resolve()
    except NotDone:
        return False


def _remove(work_tree: Path, tree: Path) -> None:
    git = GitRunner(work_tree, limit_s=LIMIT_S)
    if os.path.lexists(tree):
        _delete(os.fsencode(tree))  # only this module and tests write there
    git.run("worktree", "unlock", str(tree))
    git.run("worktree", "prune")


def discard(work_tree: Path, tree: Path) -> None:
    """Remove a queue's work tree and what it kept from gc; all of it can be made again. Raises NotDone."""
    git = GitRunner(work_tree)
    _remove(work_tree, tree)
    refs = git.text("for-each-ref", "--format=%(refname)", KEPT_REFS).split()
    own = [ref for ref in refs if ref.count("/") == KEPT_REFS.count("/") or f"/{tree.name}/" in ref]
    if own:
        git.update_refs(*(f"delete {ref}" for ref in own))


def write_rules(git: GitRunner, commit: str, inside: str, top: Path) -> Path:
    """Write each ``ralph.toml`` that counts for a directory of a commit below ``top``; return that directory.

    They are read from the commit: tests can write the queue's work tree. Raises NotDone, OSError.
    """
    (top / ".git").mkdir()  # where the search for the file ends
    place = top / inside
    place.mkdir(parents=True, exist_ok=True)
    folders = [each for each in (place, *place.parents) if each.is_relative_to(top)]
    names = [str((each / "ralph.toml").relative_to(top)) for each in folders]
    for entry in filter(None, git.output("ls-tree", "-z", commit, "--", *names).split(b"\0")):
        about, _, name = entry.partition(b"\t")
        mode, _, sha = about.decode().split(" ")
        if mode.startswith("100"):
            (top / os.fsdecode(name)).write_bytes(git.output("cat-file", "blob", sha))
    return place


def keep_rebased(git: GitRunner, heads: Iterable[str]) -> None:
    """Keep branches that landed as copies, and no longer the oldest of them. Raises NotDone."""
    if new := {f"{REBASED}{head}": head for head in heads}:
        words = ("for-each-ref", "--sort=-committerdate", "--format=%(refname)")
        others = [ref for ref in git.text(*words, REBASED).split() if ref not in new]
        old = others[max(KEPT_REBASED - len(new), 0) :]
        git.update_refs(
            *(f"update {ref} {head}" for ref, head in new.items()), *(f"delete {ref}" for ref in old)
        )


def keep(work_tree: Path, tree: Path, id: int, head: str, known: Collection[int]) -> None:
    """Keep a candidate's commit from gc, and no longer those that the queue has forgotten. Raises NotDone.

    Another daemon's queue has refs of its own: their folder is named as the queue's ``tree``.
    """
    git, folder = GitRunner(work_tree), f"{KEPT_REFS}{tree.name}/"
    refs = git.text("for-each-ref", "--format=%(refname)", folder).split()
    old = [ref for ref in refs if ref.removeprefix(folder) not in map(str, known)]
    git.update_refs(f"update {folder}{id} {head}", *(f"delete {ref}" for ref in old))
