"""Git as calls and as files: reads of a repository that take no lock and run nothing of its own."""

import errno
import hashlib
import os
import re
import signal
import stat
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

# The commits that were made in a work tree, counted from the reflog of its HEAD without starting git.

READ_BYTES: Final = 4 << 20
_LINE_BYTES: Final = 1 << 16
_SHORTEST_BYTES: Final = 80  # two commits

_MADE: Final = re.compile(
    rb"commit(?: \((?:initial|merge|cherry-pick)\))?: "
    rb"|cherry-pick: (?!fast-forward$)"
    rb"|revert: "
    rb"|am: "
    rb"|(?:merge|pull)\b[^:]*: (?:Merge made by|In-index merge)"
)
"""What a line says of a commit that was made here.

Not of one that came ready-made (fast-forward, checkout, reset), nor of one that takes another's place (amend,
rebase).
"""


@dataclass(frozen=True, slots=True)
class ReflogMark:
    """A place in a reflog: after ``offset`` bytes, where ``line``, a digest, is the last line before it.

    Both are plain values, to be kept in a file. ``offset`` 0 is the beginning, of a file that may yet come.
    """

    offset: int = 0
    line: str = ""


@dataclass(frozen=True, slots=True)
class Commits:
    """How many commits were made since a mark, and the mark up to which they were counted."""

    made: int
    until: ReflogMark


def end_of(path: str) -> ReflogMark | None:
    """The place after the last line that is there now; the beginning of a file that is not there yet.

    None for a file that cannot be read: whoever took its beginning would count all that was ever done.
    """
    try:
        descriptor = _opened(path)
    except FileNotFoundError:
        return ReflogMark()
    except OSError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        begin = max(0, size - _LINE_BYTES)
        data = os.pread(descriptor, size - begin, begin)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    end = data.rfind(b"\n") + 1
    return _mark(begin + end, data[:end])


def commits_since(path: str, mark: ReflogMark) -> Commits | None:
    """What was made since ``mark``; None when that place is not to be found, or there is no reflog.

    Reads 4 MiB at most, some 20 000 commits: what is beyond, the next call with ``until`` counts.
    """
    try:
        descriptor = _opened(path)
    except OSError:
        return None
    try:
        begin = _after(descriptor, mark)
        if begin is None:
            return None
        data = os.pread(descriptor, READ_BYTES, begin)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    whole = data[: data.rfind(b"\n") + 1]
    until = _mark(begin + len(whole), whole) if whole else ReflogMark(begin, mark.line)
    return Commits(sum(map(_is_made_here, whole.split(b"\n"))), until)


def _opened(path: str) -> int:
    """A descriptor of a regular file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "no regular file", path)


def _after(descriptor: int, mark: ReflogMark) -> int | None:
    """Where the lines after the mark begin: where they did or, in a file written anew, after its line."""
    if mark.offset <= 0:
        return 0
    begin = max(0, mark.offset - _LINE_BYTES)
    before = os.pread(descriptor, mark.offset - begin, begin)
    if len(before) == mark.offset - begin and _digest(before) == mark.line:
        return mark.offset
    begin = max(0, os.fstat(descriptor).st_size - READ_BYTES)
    data = os.pread(descriptor, READ_BYTES, begin)
    end = data.rfind(b"\n") + 1
    while end:
        start = data.rfind(b"\n", 0, end - 1) + 1
        if end - start > _SHORTEST_BYTES and _digest(data[start:end]) == mark.line:
            return begin + end
        end = start
    return None


def _mark(offset: int, lines: bytes) -> ReflogMark:
    return ReflogMark(offset, _digest(lines)) if offset else ReflogMark()


def _digest(lines: bytes) -> str:
    """What tells the last of these lines from others; the two commits and the time in it make it unique."""
    last = lines[lines.rfind(b"\n", 0, -1) + 1 :]
    return hashlib.sha256(last).hexdigest()[:16]


def _is_made_here(line: bytes) -> bool:
    """Whether a line ``OLD NEW name <mail> time zone<TAB>message`` tells of a commit that was made here."""
    head, _, message = line.partition(b"\t")
    before, _, rest = head.partition(b" ")
    return _MADE.match(message) is not None and before != rest.partition(b" ")[0]


TIME_LIMIT_S = 5.0
_POINTER_BYTES: Final = 8192
_MOST_WORK_TREES: Final = 1000
_BRANCH: Final = re.compile(r"ref: *(refs/[^\s\x00]+)\s*")
_OTHER_TOP: Final = re.compile(r"worktree|include|bare(?! = false\n)", re.IGNORECASE)
_VALUE: Final = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64})\n")
_NO_BRANCH: Final = "refs/heads/.invalid"  # what HEAD says where refs are kept in tables

Trace: TypeAlias = tuple[int, int, int, int]
Signature: TypeAlias = tuple[Trace | None, ...]
_READ = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")


@dataclass(frozen=True, slots=True)
class Head:
    """Where a repository stands: a short sha, None before the first; a branch, None when detached."""

    commit: str | None
    branch: str | None


def head(directory: Path) -> Head | None:
    """The HEAD of the repository around ``directory``; None without one, or when git cannot tell in time."""
    # Of a repository without a commit only the branch is known, of a detached HEAD only the commit.
    branch = _read(directory, "symbolic-ref", "--short", "--quiet", "HEAD")
    commit = _read(directory, "rev-parse", "--short", "--verify", "--quiet", "HEAD")
    return None if branch is None and commit is None else Head(commit, branch)


class Repository:
    """The git directory of a work tree, looked at as files: no lock is taken and no process is started."""

    __slots__ = ("_common", "_git", "_head_seen", "_others", "_top")

    def __init__(self, git: Path, common: Path, top: Path) -> None:
        self._top = top
        self._git = str(git)
        self._common = str(common)
        self._head_seen: Trace | None = None
        self._others: tuple[str, ...] = ()  # what tells a move of HEAD besides itself, as of ``_head_seen``

    @classmethod
    def find(cls, directory: Path) -> "Repository | None":
        """The repository whose work tree ``directory`` lies in; None outside of one, or in a bare one.

        In a linked worktree and in a submodule it is their own, with a HEAD and a reflog of its own.
        """
        try:
            start = directory.resolve()
        except (OSError, RuntimeError):
            return None
        for place in (start, *start.parents):
            git = _git_directory(place / ".git")
            if git is not None:
                common = _pointed_at(git / "commondir", git) or git
                if _is_repository(git, common):
                    return cls(git, common, place)
        return None

    @property
    def git(self) -> Path:
        """The git directory: HEAD, the index, and what is under way lie in it."""
        return Path(self._git)

    @property
    def common(self) -> Path:
        """What all its work trees share: refs, objects, the configuration."""
        return Path(self._common)

    @property
    def top(self) -> Path | None:
        """The root of the work tree, told without git; None where a configuration may say otherwise."""
        texts = (_text(f"{self._common}/config"), _text(f"{self._git}/config.worktree", if_gone=""))
        plain = all(
            text is not None and len(text) < _POINTER_BYTES and not _OTHER_TOP.search(text) for text in texts
        )
        return self._top if plain else None

    def standing(self) -> tuple[str, str] | None:
        """The branch that HEAD is on, a ref in full, and its commit; None where git has to be asked.

        Read as git does. Not told of a detached or unborn HEAD, nor where refs are packed or in tables.
        """
        named = _BRANCH.fullmatch(_text(f"{self._git}/HEAD") or "")
        if named is None or not named[1].startswith("refs/heads/") or ".." in named[1].split("/"):
            return None
        value = self.value(named[1])
        return None if value is None else (named[1], value)

    def value(self, ref: str) -> str | None:
        """What a shared ref has; None where git has to be asked: it is not there, packed, or symbolic."""
        found = _VALUE.fullmatch(_text(f"{self._common}/{ref}") or "")
        return found[1] if found else None

    @property
    def is_linked(self) -> bool:
        """Whether it is that of a linked worktree, which shares its refs with others."""
        return self._git != self._common

    def work_trees(self) -> tuple[Path, ...]:
        """The shared git directory and where the linked work trees are; the main one's place too."""
        named = (_text(str(each)) for each in self.common.glob("worktrees/*/gitdir"))
        linked = (Path(text.strip()).parent for text in named if text and text.strip())
        return (self.common, self.common.parent, *islice(linked, _MOST_WORK_TREES))

    def signature(self) -> Signature:
        """What differs once HEAD, its branch or its reflog has changed; equal signatures: nothing has.

        A few stats, some microseconds. It may differ though no commit was made; then ask git (``head``). Of a
        repository that is gone it is all None. Raises nothing.
        """
        head = _trace(f"{self._git}/HEAD")
        if head is None or head != self._head_seen:
            self._head_seen = head
            self._others = self._files_beside_head()
        return (head, *map(_trace, self._others))

    def mark(self) -> ReflogMark | None:
        """The end of the reflog of HEAD, after which the commits made from now on come; None: unreadable."""
        return end_of(f"{self._git}/logs/HEAD")

    def commits_made(self, since: ReflogMark) -> Commits | None:
        """How many commits were made in this work tree since a mark, and the mark to count on from.

        A commit, a merge, a cherry-pick, a revert and an applied mail count; an amended or rebased one, a
        fast-forward, a checkout and a reset do not. None when the reflog does not tell (there is none, or the
        place is gone from it): count the moves of HEAD instead. Blocks for one bounded read.
        """
        return commits_since(f"{self._git}/logs/HEAD", since)

    def _files_beside_head(self) -> tuple[str, ...]:
        reflog, packed = f"{self._git}/logs/HEAD", f"{self._common}/packed-refs"
        named = _BRANCH.fullmatch(_text(f"{self._git}/HEAD") or "")
        if named is None or ".." in named[1].split("/"):
            return reflog, packed
        if named[1] == _NO_BRANCH:
            return f"{self._git}/reftable/tables.list", f"{self._common}/reftable/tables.list"
        return reflog, packed, f"{self._common}/{named[1]}"


def _git_directory(entry: Path) -> Path | None:
    """What ``.git`` is or, in a linked worktree or a submodule, names."""
    if _is_directory(entry):
        return entry
    return _pointed_at(entry, entry.parent, prefix="gitdir:")


def _pointed_at(file: Path, base: Path, *, prefix: str = "") -> Path | None:
    """The directory that a file names, relative to ``base``; None without one."""
    text = _text(str(file))
    if text is None or not text.startswith(prefix) or "\0" in text:
        return None
    named = text.removeprefix(prefix).strip()
    return base / named if named else None


def _is_repository(git: Path, common: Path) -> bool:
    """By the same signs as git: an empty ``.git`` does not hide the repository around it."""
    has_head = _trace(f"{git}/HEAD") is not None
    return has_head and _is_directory(common / "objects") and _is_directory(common / "refs")


def _is_directory(path: Path) -> bool:
    """Whether it is one that we may look into; a Path's own ``is_dir`` raises where that is forbidden."""
    return os.path.isdir(path)  # noqa: PTH112


def _trace(path: str) -> Trace | None:
    """What changes about a file when it is written or replaced; None when it is not there."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a tenth of the time of a Path's, and this is asked all day
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _text(path: str, *, if_gone: str | None = None) -> str | None:
    """The text of a small regular file, or its first part; None where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        return if_gone
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return os.read(descriptor, _POINTER_BYTES).decode(errors="surrogateescape")
    except OSError:
        return None
    finally:
        os.close(descriptor)


def command(directory: Path, *words: str) -> list[str]:
    """The argv of a call of git that takes no lock and runs nothing of the repository's own."""
    return [*_READ, "-C", str(directory), *words]


def environment() -> dict[str, str]:
    """Its environment: nothing in ours may lead it to another repository, or make it ask a person."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}


def started(
    directory: Path, *words: str, stdin: int, stdout: int, also: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start such a call, in a process group of its own, for ``ended`` to end. Raises OSError.

    ``also`` are variables of its environment beside the usual ones.
    """
    return subprocess.Popen(
        command(directory, *words),
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        env=environment() | dict(also or {}),
        process_group=0,
    )


def ended(git: "subprocess.Popen[bytes]") -> None:
    """End a call of git that may still be at work, and all that it has started.

    What is found as ``git`` may be a script that starts the real one, which would go on without it.
    """
    if git.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(git.pid, signal.SIGKILL)
    git.wait()


def answer(
    directory: Path,
    *words: str,
    limit_s: float = TIME_LIMIT_S,
    given: bytes = b"",
    also: Mapping[str, str] | None = None,
) -> tuple[int, bytes] | None:
    """The code that git ends with and what it prints, ``given`` this; None when ``limit_s`` does not do."""
    try:
        git = started(directory, *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, also=also)
    except OSError:
        return None
    with git:
        try:
            printed, _ = git.communicate(given, limit_s)
        except (OSError, subprocess.TimeoutExpired):
            return None
        finally:
            ended(git)
    return git.returncode, printed


def _read(directory: Path, *words: str) -> str | None:
    code, printed = answer(directory, *words) or (1, b"")
    text = printed.decode(errors="replace").strip()
    return text if code == 0 and text else None
