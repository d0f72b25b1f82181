"""Copy a repository to the state directory at each boundary, so that an agent cannot lose it (A7).

One bare repository for each git common directory takes all refs with their objects; ``ralph/ID`` in it holds
HEAD, index, hooks and configuration of one work tree, and its small ignored files. Objects are copied, never
linked. A copy that fails leaves the earlier one whole.
"""

import errno
import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, field, replace
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Final

from ralphd.core.time import Moment
from ralphd.dataclass import dataclass
from ralphd.diagnostics import reach
from ralphd.git import repo
from ralphd.git.locks import take_lock
from ralphd.git.repo import Repository
from ralphd.git.runner import GitRunner, NotDone
from ralphd.plain_files import Descriptor, open_plain, read_plain

TAKE_LIMIT_S: Final = 600.0
CHECK_LIMIT_S: Final = 20.0
LOCK_LIMIT_S: Final = 60.0
KEPT_BYTES: Final = 1 << 20
MOST_KEPT: Final = 100
KEPT_PACKS: Final = 10
REMOTES: Final = "refs/remotes/"
_STASHES: Final = "logs/refs/stash"
_MOST_LOST: Final = 100
STALE_LOCK_S: Final = 3600.0
UNUSED_S: Final = 30 * 86400.0
_UNUSED: Final = "unused-since"
_FILES: Final = ("HEAD", "index", "config", "config.worktree", "info/exclude", "info/attributes",
    "info/sparse-checkout", "shallow", "commondir", "gitdir")  # fmt: skip
_MOST_FILE_BYTES: Final = 256 << 20
_RECORD: Final = "taken.json"
_REFS: Final = "refs/taken/"
SAFE: Final = {
    **{"GIT_ALLOW_PROTOCOL": "file", "GIT_NO_LAZY_FETCH": "1", "GIT_CONFIG_COUNT": "3"},
    # A vault is bare: the user's own setting may forbid git to use such a repository.
    **{"GIT_CONFIG_KEY_0": "safe.bareRepository", "GIT_CONFIG_VALUE_0": "all"},
    # Older versions fetch only what a ref leads to: not what is staged, nor all stashes.
    **{"GIT_CONFIG_KEY_1": "protocol.version", "GIT_CONFIG_VALUE_1": "2"},
    # A flaw of an old commit, which git itself tolerates, is no reason to have no copy.
    **{"GIT_CONFIG_KEY_2": "fetch.fsckObjects", "GIT_CONFIG_VALUE_2": "false"},
}


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A copy of an ignored file. ``restored``: this content was restored once, and is not again."""

    digest: str
    mode: int
    restored: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """What a vault holds of one work tree. ``refs`` maps each ref to its sha, or to ``ref: TARGET``.

    ``is_whole`` is False where the repository is larger than allowed: then only files, refs and, if it has
    remotes, the commits that no remote has (``has_unpushed``) are recorded.
    ``is_current`` is False where the owner has removed or broken the repository since: nothing is restored
    by itself then.
    """

    top: str
    git: str
    common: str
    head: str | None
    pointer: str | None
    mark: str
    at: float
    is_whole: bool = True
    is_current: bool = True
    has_unpushed: bool = False
    refs: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, KeptFile] = field(default_factory=dict)


class Vault:
    """The copy of one work tree's repository. All methods block."""

    def __init__(self, path: Path, top: Path) -> None:
        self.path, self.top = path, top
        self.folder = path / "ralph" / _digest(top)
        self._new, self._old = self.folder.with_suffix(".new"), self.folder.with_suffix(".old")

    @classmethod
    def of(cls, home: Path, directory: Path) -> "Vault | None":
        """Return the vault of the repository around ``directory``, or the one that was taken of it before."""
        for top in [directory.resolve(), *directory.resolve().parents]:
            if known := sorted(home.glob(f"*.git/ralph/{_digest(top)}*/{_RECORD}")):
                return cls(known[-1].parents[2], top)
            if os.path.lexists(top / ".git"):  # a repository of its own
                break
        if (repository := Repository.find(directory)) is None:
            return None
        with suppress(NotDone):
            top = GitRunner(directory, limit_s=CHECK_LIMIT_S).top.resolve()
            return cls(home / f"{_digest(repository.common.resolve())}.git", top)
        return None

    @classmethod
    def every(cls, home: Path) -> "Iterator[tuple[Vault, Taken]]":
        """Yield the vault of each work tree, with what it holds."""
        for record in sorted(home.glob(f"*.git/ralph/*[0-9a-f]/{_RECORD}")):
            if (taken := _recorded(record)) and record.parent.name == _digest(Path(taken.top)):
                yield cls(record.parents[2], Path(taken.top)), taken

    def taken(self) -> Taken | None:
        """Return what was taken last; None before the first copy is complete."""
        return _recorded(self.folder / _RECORD) or _recorded(self._old / _RECORD)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock of the vault: ralphs in several work trees share it. Creates it.

        Raises TimeoutError where another process holds it for LOCK_LIMIT_S, and OSError.
        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.mkdir(mode=0o700, exist_ok=True)
        with Descriptor(self.path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
            if not take_lock(descriptor, LOCK_LIMIT_S):
                text = "another process does not release the lock"
                raise TimeoutError(errno.ETIMEDOUT, text, str(self.path))
            if not self.folder.exists() and self._old.exists():
                self._old.rename(self.folder)
            yield

    # --- take -------------------------------------------------------------------------------------------

    def shared(self) -> Path | None:
        """Return the newest copy of what all work trees share, hooks and configuration; None without one."""
        folders = self.path.glob(f"ralph/{'[0-9a-f]' * 16}")
        copies = [each / ("common" if (each / "common").is_dir() else "git") for each in folders]
        known = (each for each in copies if (each / "config").is_file())
        return max(known, key=os.path.getmtime, default=None)

    def take(self, patterns: Iterable[str] = (), *, most_bytes: int, others_run: bool = False) -> Taken:
        """Copy what is new. A kept file that was restored stays marked. Raises NotDone, OSError.

        ``others_run`` in other work trees: hooks and configuration may be changed by them, so the last copy
        of these stays what the next boundary compares with.
        """
        git = GitRunner(self.top, limit_s=TAKE_LIMIT_S)
        repository = git.repository
        before = self.taken()
        refs = _refs_of(git)
        head = (repository.branch_and_head() or ("", git.commit("HEAD")))[1]
        names = kept_names(_ignored(git), patterns)
        files = [path for path in _copied(repository) if path.is_symlink() or path.is_file() or path.is_dir()]
        mark = _mark(repository, refs, head, files, [self.top / name for name in names])
        shared = self.shared() if others_run else None
        if before is not None and before.mark == mark and before.is_current:
            return before
        is_whole = size_of(repository.common / "objects") <= most_bytes
        reach("vault.take.begin")
        tree, stashes = self._staged_tree(git), _stashes(git)
        if is_whole:
            self._fetch(repository, head, tree, stashes)
        has_unpushed = not is_whole and self._pack_unpushed(git, refs, {head, tree, *stashes}, most_bytes)
        reach("vault.take.fetched")
        link, own = self.top / ".git", str(repository.git.resolve())
        common = str(repository.common.resolve())
        # An agent may have removed that of a linked work tree meanwhile; the main one has none.
        pointer = link.read_text() if link.is_file() else f"gitdir: {own}\n" if own != common else None
        kept = self._stage(repository, files, names, before)
        if shared is not None:
            part, mark = self._new / ("git" if own == common else "common"), ""
            shutil.rmtree(part / "hooks", ignore_errors=True)
            if (shared / "hooks").is_dir():
                shutil.copytree(shared / "hooks", part / "hooks", symlinks=True)
            shutil.copy2(shared / "config", part / "config")
        taken = Taken(str(self.top), own, common, head, pointer, mark, time.time(), is_whole,
            has_unpushed=has_unpushed, refs=refs, kept=kept)  # fmt: skip
        (self._new / _RECORD).write_text(json.dumps(asdict(taken)))
        reach("vault.take.staged")
        self._swap()
        return taken

    def _staged_tree(self, git: GitRunner) -> str | None:
        """Write a tree of the index, since no ref leads to what is only staged. None during a merge."""
        copy = self.path / f"index-{self.folder.name}"
        git.copy_index(copy)
        try:
            index = {"GIT_INDEX_FILE": str(copy)}
            code, tree = git.run("write-tree", env=index) if copy.exists() else (1, b"")
            return tree.decode().strip() if code == 0 else None
        finally:
            copy.unlink(missing_ok=True)

    def _fetch(self, repository: Repository, head: str | None, tree: str | None, stashes: list[str]) -> None:
        if not (self.path / "HEAD").exists():
            is_sha256 = repo.line(self.top, "rev-parse", "--show-object-format") == "sha256"
            form = ("--object-format=sha256",) if is_sha256 else ()  # git before 2.28 has no such option
            self._git("init", "--bare", "--quiet", "--template=", *form, ".")
        for lock in (*self.path.glob("*.lock"), *(self.path / "refs").glob("**/*.lock")):
            if time.time() - lock.lstat().st_mtime > STALE_LOCK_S:
                lock.unlink(missing_ok=True)
        words = ("--quiet", "--atomic", "--prune", "--no-tags", "--update-shallow", "--no-write-fetch-head")
        specs = [f"+refs/*:{_REFS}*", *(f"+{sha}:refs/stashes/{i}" for i, sha in enumerate(stashes))]
        for kind, sha in (("head", head), ("index", tree)):
            specs += [f"+{sha}:refs/{kind}/{self.folder.name}"] if sha else []
        self._git("fetch", "--no-auto-maintenance", *words, "--", str(repository.common), *specs)

    def _pack_unpushed(
        self, git: GitRunner, refs: Mapping[str, str], more: set[str | None], most_bytes: int
    ) -> bool:
        """Copy the objects that no remote-tracking ref leads to; False without one, or for too many."""
        pushed = {sha for name, sha in refs.items() if name.startswith(REMOTES) and " " not in sha}
        wanted = {sha for sha in (*refs.values(), *more) if sha and " " not in sha} - pushed
        revisions = "".join(f"{sha}\n" for sha in (*wanted, *(f"^{sha}" for sha in pushed))).encode()
        size = ("rev-list", "--objects", "--disk-usage", "--stdin")
        if not pushed or int(git.text(*size, given=revisions)) > most_bytes:
            return False
        packs = self.path / "objects" / "pack"
        packs.mkdir(parents=True, exist_ok=True)
        source = json.dumps(str(git.repository.common / "objects"), ensure_ascii=False)  # git's own quoting
        objects = {"GIT_OBJECT_DIRECTORY": str(packs.parent), "GIT_ALTERNATE_OBJECT_DIRECTORIES": source}
        git.output("pack-objects", "--revs", "-q", str(packs / "unpushed"), given=revisions, env=objects)
        for old in sorted(packs.glob("unpushed-*.pack"), key=os.path.getmtime)[:-KEPT_PACKS]:
            for path in packs.glob(f"{old.stem}.*"):
                path.unlink()
        return True

    def _git(self, *words: str) -> bytes:
        answer = repo.answer(self.path, *words, limit_s=TAKE_LIMIT_S, env=SAFE)
        if answer is None or answer[0] != 0:
            raise NotDone(f"git {words[0]} in {self.path} {'did not end' if answer is None else 'failed'}")
        return answer[1]

    def _stage(
        self, repository: Repository, files: list[Path], names: list[str], before: Taken | None
    ) -> dict[str, KeptFile]:
        shutil.rmtree(self._new, ignore_errors=True)
        (self._new / "kept").mkdir(parents=True, mode=0o700)
        for path in files:
            base = repository.git if path.is_relative_to(repository.git) else repository.common
            part = "git" if base == repository.git else "common"
            copy = self._new / part / path.relative_to(base)
            copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if path.is_dir() and not path.is_symlink():
                copy.mkdir()  # a folder of hooks: only its name counts
            else:
                shutil.copy2(path, copy, follow_symlinks=False)
        kept: dict[str, KeptFile] = {}
        for name in names[:MOST_KEPT]:
            with suppress(OSError):
                data, mode = _read_small(self.top / name)
                digest = hashlib.sha256(data).hexdigest()
                (self._new / "kept" / digest).write_bytes(data)
                known = before.kept.get(name) if before else None
                is_restored = known is not None and known.restored and known.digest == digest
                kept[name] = KeptFile(digest, mode, is_restored)
        return kept

    def _swap(self) -> None:
        shutil.rmtree(self._old, ignore_errors=True)
        if self.folder.exists():
            self.folder.rename(self._old)
        reach("vault.take.swapping")
        self._new.rename(self.folder)
        shutil.rmtree(self._old, ignore_errors=True)

    # --- check and restore files ------------------------------------------------------------------------

    def fault(self, taken: Taken, *, is_thorough: bool = True) -> str:
        """Return why the repository is unusable, in words; empty where it is sound or git is too slow.

        Unless ``is_thorough``, of the history only the commits since the last copy are checked.
        """
        git, repository = Path(taken.git), Repository.find(self.top)
        if repository is None or repository.git.resolve() != git:
            return "the git directory is missing or incomplete"
        answer = self._ask(git, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        if answer is None or taken.head is None:
            return ""
        if answer[0] != 0:
            branch = self._ask(git, "symbolic-ref", "--quiet", "HEAD")
            name = branch[1].decode(errors="replace").strip() if branch and branch[0] == 0 else ""
            is_orphan = name and name not in taken.refs and self._has(git, taken.head)
            return "" if is_orphan else "HEAD is unreadable, or its branch is gone"
        if not self._has(git, taken.head):
            return f"commit {taken.head[:7]}, the last known HEAD, is gone"
        heads = ("HEAD",) if is_thorough else ("HEAD", f"^{taken.head}")
        for words in (("--objects", "--no-walk", "HEAD"), heads):
            answer = self._ask(git, "rev-list", "--quiet", *words)
            if answer is not None and answer[0] != 0:
                return "objects of HEAD are missing"
        # Without --git-dir: as git finds it, with its configuration (core.bare, core.worktree) and its index.
        answer = repo.answer(self.top, "diff-files", "--", ".git", limit_s=CHECK_LIMIT_S, env=SAFE)
        # Git refuses what belongs to another user, however sound it is.
        is_others = any(path.stat().st_uid != os.geteuid() for path in (self.top, git))
        is_usable = answer is None or answer[0] == 0 or is_others
        return "" if is_usable else "its index or its configuration is unusable"

    def _has(self, git: Path, sha: str) -> bool:
        answer = self._ask(git, "cat-file", "-e", f"{sha}^{{tree}}")
        return answer is None or answer[0] == 0  # a slow disk is no evidence that it is gone

    def _ask(self, git: Path, *words: str) -> tuple[int, bytes] | None:
        return repo.answer(self.top, f"--git-dir={git}", *words, limit_s=CHECK_LIMIT_S, env=SAFE)

    def restore_kept(self, taken: Taken) -> list[str]:
        """Restore kept files that are gone, each content once. Return their names. Raises OSError."""
        restored = []
        for name, each in taken.kept.items():
            if not each.restored and not os.path.lexists(self.top / name) and self.write_kept(name, each):
                restored.append(name)
        if restored:
            marked = {name: replace(taken.kept[name], restored=True) for name in restored}
            self._save(replace(taken, kept={**taken.kept, **marked}))
        return restored

    def give_up(self, taken: Taken) -> None:
        """Keep the copy for a person, and restore nothing from it by itself. Raises OSError."""
        self._save(replace(taken, is_current=False))

    def _save(self, taken: Taken) -> None:
        copy = self.folder / f"{_RECORD}.new"
        copy.write_text(json.dumps(asdict(taken)))
        copy.replace(self.folder / _RECORD)

    def write_kept(self, name: str, each: KeptFile, top: Path | None = None) -> bool:
        """Write the copy of a kept file where there is none. Return whether it was written."""
        path = (top := top or self.top) / name
        repo.make_folders(path.parent)
        if not path.parent.resolve().is_relative_to(top):
            return False
        data = (self.folder / "kept" / each.digest).read_bytes()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with suppress(FileExistsError), os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            os.fchmod(file.fileno(), each.mode)
            file.write(data)
            return True
        return False


@dataclass(frozen=True, slots=True)
class RewoundUpstream:
    """A remote-tracking ref that no longer has ``lost`` commits (100 at most) it had at ``sha``."""

    ref: str
    sha: str
    lost: int


def rewound_upstreams(before: Taken, after: Taken) -> Iterator[RewoundUpstream]:
    """Yield the remote-tracking refs that lost commits between two copies. Raises NotDone.

    A commit counts as lost unless the ref has its change (patch-id), or, where the ref is gone, another
    ref has it.
    """
    git = GitRunner(Path(after.top), limit_s=CHECK_LIMIT_S)
    moved = (name for name, sha in before.refs.items() if after.refs.get(name) != sha)
    for name in islice((name for name in moved if name.startswith(REMOTES)), _MOST_LOST):
        old, new = before.refs[name], after.refs.get(name)
        words = ("--cherry-pick", "--right-only", f"{new}...{old}") if new else (old, "--not", "--remotes")
        code, lost = git.run("rev-list", "--no-merges", f"--max-count={_MOST_LOST}", *words)
        if code == 0 and lost:
            yield RewoundUpstream(name, old, len(lost.split()))


def remove_unused(home: Path, directories: Iterable[Path], now: Moment) -> None:
    """Remove the vaults that no ralph of ``directories`` has used for 30 days; pack the others.

    Each copy adds loose objects, and its fetch packs none. Like ``git gc --auto``, this counts one folder of
    256 to see whether there are 6700; unlike it, it keeps what no ref leads to. Raises OSError.
    """
    used = {vault.path for each in directories if (vault := Vault.of(home, each)) is not None}
    for path in sorted(home.glob("*.git")):
        mark, since = path / _UNUSED, now
        if path in used:
            mark.unlink(missing_ok=True)
            if sum(1 for _ in (path / "objects" / "17").glob("*")) > 27:
                repo.answer(path, "repack", "-a", "-d", "-k", "-q", limit_s=LOCK_LIMIT_S, env=SAFE)
            continue
        with suppress(OSError, ValueError):
            since = float(read_plain(mark, KEPT_BYTES))
        if since >= now:
            mark.write_text(str(now))
        elif now - since > UNUSED_S:
            with Vault(path, path).exclusive():
                path.rename(path.with_suffix(".gone"))
    for gone in home.glob("*.gone"):
        shutil.rmtree(gone)


def kept_names(ignored: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """Return the ignored files that a pattern of ``[git] keep`` matches, by name or by path."""
    wanted, files = tuple(patterns), sorted(name for name in ignored if not name.endswith("/"))
    ways = {name: (name, name.rpartition("/")[2]) for name in files}
    kept = (name for name in files if any(fnmatchcase(way, each) for way in ways[name] for each in wanted))
    return [*islice(kept, MOST_KEPT)]


def _recorded(path: Path) -> Taken | None:
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        plain = json.loads(read_plain(path, _MOST_FILE_BYTES))
        plain["kept"] = {name: KeptFile(**each) for name, each in plain["kept"].items()}
        return Taken(**plain)
    return None


def _ignored(git: GitRunner) -> list[str]:
    words = ("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")
    return [os.fsdecode(name) for name in git.output(*words).split(b"\0") if name]


def _stashes(git: GitRunner) -> list[str]:
    """Return the stashes: a ref leads to the newest alone, and its reflog to those below."""
    shas: list[bytes] = []
    with suppress(OSError):
        lines = read_plain(git.repository.common / _STASHES, _MOST_FILE_BYTES).splitlines()
        shas = [line.split(b" ")[1] for line in lines[-MOST_KEPT:] if line.count(b" ") > 1]
    listed = git.output("cat-file", "--batch-check", given=b"\n".join(shas)) if shas else b""
    return [line.split()[0] for line in listed.decode().splitlines() if " commit " in line]


def _refs_of(git: GitRunner) -> dict[str, str]:
    # Not splitlines: a name may hold U+2028, which ends a line for it.
    lines = filter(None, git.text("for-each-ref", "--format=%(refname) %(objectname) %(symref)").split("\n"))
    return {name: f"ref: {to}" if to else sha for name, sha, to in (line.split(" ") for line in lines)}


def hook_names(*folders: Path) -> list[str]:
    """Return the names of the hooks in these folders, or the one of ``hooks`` if it is a link or a file."""
    if any((each / "hooks").is_symlink() or (each / "hooks").is_file() for each in folders):
        return ["hooks"]
    files = (path for each in folders for path in (each / "hooks").glob("*") if path.suffix != ".sample")
    return sorted({f"hooks/{path.name}" for path in files})


def _copied(repository: Repository) -> list[Path]:
    found = [repository.common / name for name in (*hook_names(repository.common), _STASHES)]
    found += [repository.git / name for name in (*_FILES, "logs/HEAD")]
    found += repository.git.glob("sharedindex.*")  # the rest of a split index
    if repository.git != repository.common:
        found += [repository.common / name for name in _FILES if name != "index"]
    return [path for path in found if os.path.lexists(path) and path.lstat().st_size <= _MOST_FILE_BYTES]


def _mark(
    repository: Repository, refs: Mapping[str, str], head: str | None, files: list[Path], kept: list[Path]
) -> str:
    status = [(str(path), path.lstat()) for path in (*files, *kept)]
    traces = [(name, each.st_ino, each.st_size, each.st_ctime_ns) for name, each in status]
    return hashlib.sha256(json.dumps([str(repository.git), refs, head, traces]).encode()).hexdigest()


def _read_small(path: Path) -> tuple[bytes, int]:
    """Return the content and mode of a small regular file with one link. Raises OSError."""
    with open_plain(path) as file:
        status = os.fstat(file.fileno())
        if status.st_nlink > 1 or status.st_size > KEPT_BYTES:
            raise OSError(f"{path} is not a small file of one name")
        return file.read(KEPT_BYTES), stat.S_IMODE(status.st_mode)


def size_of(folder: Path) -> int:
    """Return the bytes of the files below ``folder``."""
    total = 0
    for where, _, names in os.walk(folder):
        with suppress(OSError):
            total += sum(os.lstat(f"{where}/{name}").st_size for name in names)
    return total


def _digest(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
