"""Read a repository: its files, and calls of git that take no lock and run none of its programs.

Agents work in the repository at the same moment: a lock of ours would make their commits fail, and a hook or
filter configured there is a command of unknown origin. Files are read because they cost microseconds where a
process costs milliseconds; a reader returns None where only git knows the answer (packed refs, reftables).
"""

import errno
import hashlib
import os
import re
import select
import signal
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from ralphd.dataclass import dataclass
from ralphd.diagnostics import reach
from ralphd.plain_files import Descriptor

FULL_SHA: Final = re.compile(r"[0-9a-f]{40,64}")
READ_BYTES: Final = 4 << 20
TIME_LIMIT_S = 5.0
umask = -1
"""The umask for git, -1 for this process's. The daemon's own is 0077, and others may read a work tree."""
_LINE_BYTES: Final = 1 << 16
_SHORTEST_BYTES: Final = 80  # a reflog line begins with two commit ids
_POINTER_BYTES: Final = 8192
_MOST_WORK_TREES: Final = 1000
_BRANCH: Final = re.compile(r"ref: *(refs/[^\s\x00]+)\s*")
_OTHER_TOP: Final = re.compile(r"worktree|include|bare(?! = false\n)", re.IGNORECASE)
_VALUE: Final = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64})\n")
_READ = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
_MADE: Final = re.compile(
    rb"commit(?: \((?:initial|merge|cherry-pick)\))?: "
    rb"|cherry-pick: (?!fast-forward$)"
    rb"|revert: "
    rb"|am: "
    rb"|(?:merge|pull)\b[^:]*: (?:Merge made by|In-index merge)"
)
"""Reflog messages of commits made in this work tree.

Excluded: commits made elsewhere (fast-forward, checkout, reset), and replacements (amend, rebase).
"""

Trace: TypeAlias = tuple[int, int, int, int]
Signature: TypeAlias = tuple[Trace | None, ...]


@dataclass(frozen=True, slots=True)
class ReflogMark:
    """A position in a reflog: a byte offset, and a digest of the line that ends there.

    Plain values, so that they can be stored. ``offset`` 0 is the beginning of a file that may not exist yet.
    """

    offset: int = 0
    line: str = ""


@dataclass(frozen=True, slots=True)
class Commits:
    """How many commits were made since a mark, and the mark to continue from."""

    made: int
    until: ReflogMark


@dataclass(frozen=True, slots=True)
class Head:
    """HEAD as people read it: a short sha, None before the first commit; a branch, None when detached."""

    commit: str | None
    branch: str | None


class Repository:
    """The git directory of a work tree, read as files: takes no lock, starts no process."""

    def __init__(self, git: Path, common: Path, top: Path) -> None:
        self.git = git
        """The git directory of this work tree: HEAD, the index, the state of a merge or rebase."""
        self.common = common
        """The directory that all its work trees share: refs, objects, the configuration."""
        self._top = top
        self._reflog = f"{git}/logs/HEAD"
        self._head_seen: Trace | None = None
        self._others: tuple[str, ...] = ()  # the other files that a move of HEAD changes, as of _head_seen

    @classmethod
    def find(cls, directory: Path) -> "Repository | None":
        """Return the repository whose work tree holds ``directory``; None outside of one, or in a bare one.

        Linked worktrees and submodules have a git directory of their own, with their own HEAD and reflog.
        """
        try:
            start = directory.resolve()
        except (OSError, RuntimeError):
            return None
        for top in (start, *start.parents):
            entry = top / ".git"
            # os.path.isdir, since Path.is_dir raises where reading is forbidden.
            git = entry if os.path.isdir(entry) else _pointed_at(entry, top, prefix="gitdir:")  # noqa: PTH112
            if git is None:
                continue
            pointed = _pointed_at(git / "commondir", git)  # "../..": nothing shared is below ``git``
            common = git if pointed is None else Path(os.path.realpath(pointed))
            # The same signs as git's own: an empty .git does not hide the repository around it.
            folders = (common / "objects", common / "refs")
            if all(map(os.path.isdir, folders)) and trace(f"{git}/HEAD") is not None:
                # Git would block on a FIFO there, in each call.
                return cls(git, common, top) if os.path.isfile(f"{git}/HEAD") else None  # noqa: PTH113
        return None

    @property
    def top(self) -> Path | None:
        """The root of the work tree; None where the configuration may move it and git has to be asked."""
        texts = (_text(f"{self.common}/config"), _text(f"{self.git}/config.worktree", if_gone=""))
        if any(text is None or len(text) >= _POINTER_BYTES or _OTHER_TOP.search(text) for text in texts):
            return None
        return self._top

    def proven(self) -> tuple[Path, ...]:
        """Return those of ``git`` and ``common`` that are this work tree's for certain.

        A run can write ``.git`` and ``commondir`` and so point to a repository elsewhere. That one counts
        only if it points back.
        """
        entry = f"{self._top}/.git"
        if str(self.git) == entry:
            return (self.git,) if self.common == self.git and not self.git.is_symlink() else ()
        git, common = os.path.realpath(self.git), os.path.realpath(self.common)
        if git.startswith(f"{common}/worktrees/"):
            back = (_text(f"{git}/gitdir") or "").strip()
            is_ours = os.path.realpath(os.path.join(git, back)) == entry  # noqa: PTH118
        else:  # a submodule
            found = re.search(r"^\s*worktree *= *(.+?)\s*$", _text(f"{git}/config") or "", re.MULTILINE)
            is_ours = found is not None and os.path.realpath(f"{git}/{found[1]}") == str(self._top)
        return (Path(common), Path(git)) if is_ours else ()

    def branch_and_head(self) -> tuple[str, str] | None:
        """Return the branch of HEAD (a full ref) and its sha; None where git has to be asked.

        That is so for a detached or unborn HEAD, and where refs are packed or in reftables.
        """
        ref = self._head_ref()
        if ref is None or not ref.startswith("refs/heads/"):
            return None
        value = self.value(ref)
        return None if value is None else (ref, value)

    def branch(self) -> str | None:
        """Return the name of HEAD's branch; None where git has to be asked (detached, in reftables)."""
        name = (self._head_ref() or "").removeprefix("refs/heads/")
        return None if name.startswith(("refs/", ".")) else name or None

    def value(self, ref: str) -> str | None:
        """Return the sha of a shared ref; None where git has to be asked (absent, packed or symbolic)."""
        match = _VALUE.fullmatch(_text(f"{self.common}/{ref}") or "")
        return match[1] if match else None

    def work_trees(self) -> tuple[Path, ...]:
        """Return the shared git directory, the main work tree and the linked ones."""
        texts = (_text(str(each)) for each in self.common.glob("worktrees/*/gitdir"))
        linked = (Path(text.strip()).parent for text in texts if text and text.strip())
        return (self.common, self.common.parent, *islice(linked, _MOST_WORK_TREES))

    def signature(self) -> Signature:
        """Return a value that differs once HEAD, its branch or its reflog has changed.

        Costs a few stats. It may differ although no commit was made: then ask ``head``. All None where the
        repository is gone.
        """
        head = trace(f"{self.git}/HEAD")
        if head is None or head != self._head_seen:
            self._head_seen, ref = head, self._head_ref()
            if ref == "refs/heads/.invalid":  # the content of HEAD where refs are stored in reftables
                self._others = (f"{self.git}/reftable/tables.list", f"{self.common}/reftable/tables.list")
            else:
                branch = () if ref is None else (f"{self.common}/{ref}",)
                self._others = (self._reflog, f"{self.common}/packed-refs", *branch)
        return (head, *map(trace, self._others))

    def mark(self) -> ReflogMark | None:
        """Return the present end of HEAD's reflog; offset 0 before the first line.

        None for an unreadable file: counting from its beginning would count its whole past.
        """
        try:
            with _regular_file(self._reflog) as descriptor:
                size = os.fstat(descriptor).st_size
                begin = max(0, size - _LINE_BYTES)
                data = os.pread(descriptor, size - begin, begin)
        except FileNotFoundError:
            return ReflogMark()
        except OSError:
            return None
        end = data.rfind(b"\n") + 1
        return ReflogMark(begin + end, _digest(data[:end])) if begin + end else ReflogMark()

    def commits_made(self, since: ReflogMark) -> Commits | None:
        """Count the commits made in this work tree since a mark.

        A commit, a merge, a cherry-pick, a revert and an applied mail count; an amended or rebased commit, a
        fast-forward, a checkout and a reset do not. None where the reflog is absent or has lost the mark:
        then count the moves of HEAD. Reads 4 MiB at most, about 20,000 commits; the next call continues.
        """
        try:
            with _regular_file(self._reflog) as descriptor:
                if (begin := _offset_after(descriptor, since)) is None:
                    return None
                data = os.pread(descriptor, READ_BYTES, begin)
        except OSError:
            return None
        whole = data[: data.rfind(b"\n") + 1]
        until = ReflogMark(begin + len(whole), _digest(whole)) if whole else ReflogMark(begin, since.line)
        return Commits(sum(map(_is_made_here, whole.split(b"\n"))), until)

    def _head_ref(self) -> str | None:
        match = _BRANCH.fullmatch(_text(f"{self.git}/HEAD") or "")
        return match[1] if match and ".." not in match[1].split("/") else None


def _digest(lines: bytes) -> str:
    """Identify the last of these lines; its two commits and its time make it unique."""
    last = lines[lines.rfind(b"\n", 0, -1) + 1 :]
    return hashlib.sha256(last).hexdigest()[:16]


def _offset_after(descriptor: int, mark: ReflogMark) -> int | None:
    """Return where the lines after the mark begin; ``git reflog expire`` moves them."""
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


def _is_made_here(line: bytes) -> bool:
    """Read a reflog line ``OLD NEW name <mail> time zone<TAB>message``."""
    header, _, message = line.partition(b"\t")
    before, _, rest = header.partition(b" ")
    return _MADE.match(message) is not None and before != rest.partition(b" ")[0]


def _pointed_at(file: Path, base: Path, *, prefix: str = "") -> Path | None:
    """Return the directory that a file names, relative to ``base``."""
    text = _text(str(file))
    if text is None or not text.startswith(prefix) or "\0" in text:
        return None
    name = text.removeprefix(prefix).strip()
    return base / name if name else None


def trace(path: str | Path) -> Trace | None:
    """Return what changes about a file when it is written or replaced; None when it is absent."""
    try:
        status = os.stat(path)  # noqa: PTH116 - ten times as fast as Path.stat, on a path taken all day
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@contextmanager
def _regular_file(path: str) -> Iterator[int]:
    """Open a regular file; never block on a pipe in its place. Raises OSError, and ValueError for NULs."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        yield descriptor
    finally:
        os.close(descriptor)


def _text(path: str, *, if_gone: str | None = None) -> str | None:
    """Return the first 8 KiB of a file; None where it cannot be read."""
    try:
        with _regular_file(path) as descriptor:
            return os.read(descriptor, _POINTER_BYTES).decode(errors="surrogateescape")
    except FileNotFoundError:
        return if_gone
    except (OSError, ValueError):
        return None


# Calls of git.


def head(directory: Path) -> Head | None:
    """Return the HEAD of the repository around ``directory``; None without one, or when git is too slow."""
    if (repository := Repository.find(directory)) is None:
        return None
    # Before the first commit only the branch is known, of a detached HEAD only the commit.
    branch = repository.branch() or line(directory, "symbolic-ref", "--short", "--quiet", "HEAD")
    commit = line(directory, "rev-parse", "--short", "--verify", "--quiet", "HEAD")
    return None if branch is None and commit is None else Head(commit, branch and printable(branch))


def line(directory: Path, *words: str) -> str | None:
    """Return the first line that git prints; None where it fails or prints nothing."""
    code, output = answer(directory, *words) or (1, b"")
    return output.decode(errors="surrogateescape").partition("\n")[0] or None if code == 0 else None


def printable(text: str) -> str:
    """Replace what is not UTF-8 in text that git printed, for JSON and for people."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def started(
    directory: Path, *words: str, stdin: int, stdout: int, stderr: int = subprocess.DEVNULL,
    env: Mapping[str, str] | None = None,
) -> "subprocess.Popen[bytes]":  # fmt: skip
    """Start git in a process group of its own, for ``ended`` to end. Raises OSError."""
    argv, environment = call(directory, *words, env=env)
    return _Git(
        argv, env=environment, process_group=0, umask=umask, stdin=stdin, stdout=stdout, stderr=stderr
    )


class _Git(subprocess.Popen[bytes]):
    """A call of git. Popen looks for its end after pauses of 1 ms and more; most calls take 2 to 4 ms."""

    def wait(self, timeout: float | None = None) -> int:
        if timeout is not None and self.returncode is None:
            with suppress(OSError), os.fdopen(os.pidfd_open(self.pid), "rb", buffering=0) as pidfd:
                poll = select.poll()
                poll.register(pidfd, select.POLLIN)
                timeout = timeout if poll.poll(max(timeout, 0.0) * 1000) else 0.0
        return super().wait(timeout)


def make_folders(folder: Path) -> None:
    """Make a folder and those above it, as git would. Raises OSError."""
    for each in reversed((folder, *folder.parents)):
        if not each.is_dir():
            each.mkdir(exist_ok=True)
            give_mode(each, 0o777 & ~umask)


def give_mode(path: Path, mode: int) -> None:
    """Give what was made here the mode that git would. A link, which a run may have put there, gets none."""
    if umask >= 0:
        with suppress(OSError), Descriptor(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK) as made:
            os.fchmod(made, mode)


def call(
    directory: Path, *words: str, env: Mapping[str, str] | None = None
) -> tuple[list[str], dict[str, str]]:
    """Return the command line and the environment of a call of git that only reads.

    No variable of ours may lead it to another repository or make it prompt; ``env`` is added to the rest.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    settings = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", **(env or {})}
    return [*_READ, "-C", str(directory), *words], inherited | settings


def ended(git: "subprocess.Popen[bytes]") -> None:
    """Kill a call of git that may still be running, with its children: ``git`` may be a wrapper script."""
    if git.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(git.pid, signal.SIGKILL)
    git.wait()


def answer(
    directory: Path, *words: str, limit_s: float | None = None, given: bytes = b"",
    env: Mapping[str, str] | None = None, stderr: int = subprocess.DEVNULL,
) -> tuple[int, bytes] | None:  # fmt: skip
    """Return git's exit code and output, with ``given`` on its input; None when it is too slow or absent."""
    try:
        pipe = subprocess.PIPE
        git = started(directory, *words, stdin=pipe, stdout=pipe, stderr=stderr, env=env)
    except OSError:
        return None
    reach(f"git.{words[0]}.begun")
    with git:
        try:
            output, _ = git.communicate(given, TIME_LIMIT_S if limit_s is None else limit_s)
        except (OSError, subprocess.TimeoutExpired):
            return None
        finally:
            ended(git)
    reach(f"git.{words[0]}.done")
    return git.returncode, output
