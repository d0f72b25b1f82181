"""Run git for changes to a repository: one deadline for all calls, and no program of the repository's.

Hooks, file watchers, filters, merge drivers, signing programs, editors and fetches are commands of unknown
origin, and a revert at night must not wait for one: they are off. Files that need a filter are refused
(``GitRunner.filtered``), since without it git would write other bytes than the user's own checkout does.
"""

import os
import re
import shutil
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

from ralphd.core.text import first_names
from ralphd.git import repo
from ralphd.git.locks import LOCK_WAIT_S, lock_files, lock_message, remove_own_lock, take_lock
from ralphd.git.repo import Repository
from ralphd.plain_files import Descriptor, open_plain, read_plain

LIMIT_S: Final = 60.0
"""The time for one act in all."""
ROLLBACK_S: Final = 30.0
"""The additional time for rolling an act back."""
SHOWN: Final = 3
"""How many names a sentence lists."""
FSYNC: Final = "core.fsync=committed"
"""Objects are on the disk before the files that they preserve are changed."""
_FULL_BYTES: Final = 64 << 10
_SETTINGS: Final = (
    *("submodule.recurse=false", "merge.renormalize=false", "core.safecrlf=false", "gc.auto=0"),
    *("i18n.commitEncoding=UTF-8", "core.looseCompression=1", "core.fsyncMethod=batch"),
    *("core.checkStat=default", "core.sshCommand=false", "advice.detachedHead=false"),
)
_FIXED: Final = {
    **{"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_LITERAL_PATHSPECS": "1"},
    "GIT_NO_REPLACE_OBJECTS": "1",  # any run can write refs/replace/, and a push does not have them
}
_REF: Final = re.compile(rb"\brefs/[^\s]+")
_CONFIGURED: Final = r"^(filter\..*|merge\..*\.driver|user\.(name|email)|core\.(loose)?compression)$"
OWN_IDENTITY: Final = {
    **{"GIT_AUTHOR_NAME": "ralphd", "GIT_AUTHOR_EMAIL": "ralphd@localhost"},
    **{"GIT_COMMITTER_NAME": "ralphd", "GIT_COMMITTER_EMAIL": "ralphd@localhost"},
}

Given: TypeAlias = bytes | Collection[bytes]
"""Input for git; names are separated as ``-z`` expects."""


class NotDone(Exception):
    """Why an act is not carried out, for people; the repository is unchanged."""


class WasKilled(NotDone):
    """A git of ours was killed in the middle, by our deadline or by the kernel: it may have left a lock."""


class HasMoved(NotDone):
    """HEAD is not where the caller expects it, or files changed under the act: somebody else works here."""


class GitRunner:
    """Git in one work tree. Names of files are bytes, relative to its root.

    ``settings`` are added to git's configuration. Raises NotDone outside of a repository.
    """

    def __init__(self, directory: Path, *, limit_s: float = LIMIT_S, settings: tuple[str, ...] = ()) -> None:
        self.directory = directory
        self._deadline = time.monotonic() + limit_s
        self._extra_settings = settings
        if (repository := Repository.find(directory)) is None:
            what = "this is not a git repository" if directory.is_dir() else f"{directory} is missing"
            raise NotDone(what)
        self.repository = repository
        self.work = repository.git / "ralph-guard"
        """A directory for temporary files; exists only within ``exclusive``."""

    @cached_property
    def top(self) -> Path:
        """The root of the work tree; ``directory`` may lie below it."""
        if (top := self.repository.top) is not None:
            return top
        answer = repo.answer(self.directory, "rev-parse", "--show-toplevel", limit_s=self.remaining_s)
        if answer is None or answer[0] != 0:
            raise NotDone(f"git rev-parse found no work tree; {self._hint()}")
        top = Path(os.fsdecode(answer[1].removesuffix(b"\n")))
        here = self.directory.resolve()
        if not (here.is_relative_to(top) or top.is_relative_to(here)):
            raise NotDone(f"core.worktree of git names {top}, outside of {self.directory}")
        return top

    def path(self, name: bytes) -> bytes:
        """Return the absolute path of a name in the work tree."""
        return os.fsencode(self.top) + b"/" + name

    def remove(self, name: bytes) -> None:
        """Remove a file and the folders that it leaves empty, as git does."""
        Path(os.fsdecode(self.path(name))).unlink()
        self.prune(name)

    def prune(self, name: bytes) -> None:
        """Remove the folders that a removed file has left empty."""
        with suppress(OSError):
            while name := name.rpartition(b"/")[0]:
                Path(os.fsdecode(self.path(name))).rmdir()

    @cached_property
    def _configured(self) -> dict[str, str]:
        """The configured filters, merge drivers, user name and compression, by key."""
        words = ("config", "-z", "--get-regexp", _CONFIGURED)
        answer = repo.answer(self.directory, *words, limit_s=self.remaining_s)
        if answer is None:
            raise NotDone("git config did not end in time, or could not be started")
        entries = answer[1].decode(errors="surrogateescape").split("\0")
        return {key: value for key, _, value in (entry.partition("\n") for entry in entries if entry)}

    @cached_property
    def filters(self) -> frozenset[str]:
        """The names of the configured filters (LFS is one)."""
        keys = (key for key in self._configured if key.startswith("filter."))
        return frozenset(key[len("filter.") : key.rfind(".")] for key in keys)

    @property
    def compression(self) -> frozenset[str]:
        """The configured zlib levels of objects."""
        keys = ("core.compression", "core.loosecompression")
        return frozenset(self._configured[key].strip() for key in keys if key in self._configured)

    def filtered(self, names: Collection[bytes]) -> dict[bytes, bytes]:
        """Return those of these files that go through a configured filter, with its name."""
        if not self.filters or not names:
            return {}
        drivers = {name.encode(errors="surrogateescape") for name in self.filters}
        fields = self.output("check-attr", "-z", "--stdin", "filter", given=names).split(b"\0")
        pairs = zip(fields[::3], fields[2::3], strict=False)
        return {path: driver for path, driver in pairs if driver in drivers}

    @cached_property
    def _environment(self) -> dict[str, str]:
        """Environment variables with our settings, which switch the configured programs off."""
        settings = [each.split("=") for each in (*_SETTINGS, FSYNC, *self._extra_settings)]
        for each in self.filters:
            settings += [[f"filter.{each}.{key}", ""] for key in ("clean", "smudge", "process")]
            settings.append([f"filter.{each}.required", "false"])
        # "false" leaves a conflict; with an empty driver git would take anything as merged.
        settings += [[key, "false"] for key in self._configured if key.startswith("merge.")]
        variables = {"GIT_CONFIG_COUNT": str(len(settings)), **_FIXED}
        for number, (key, value) in enumerate(settings):
            variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return variables

    @cached_property
    def identity(self) -> Mapping[str, str]:
        """Variables with the name for new commits: the user's, as configured, else ralphd's."""
        variables = dict(OWN_IDENTITY)
        for who in ("AUTHOR", "COMMITTER"):
            user = {
                name: os.environ.get(name, "").strip() or self._configured.get(key, "").strip()
                for name, key in ((f"GIT_{who}_NAME", "user.name"), (f"GIT_{who}_EMAIL", "user.email"))
            }
            variables |= user if all(user.values()) else {}
        return variables

    def run(self, *words: str, given: Given = b"", env: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        """Return the exit code and output of git at the root of the work tree. Raises WasKilled."""
        data = given if isinstance(given, bytes) else b"".join(name + b"\0" for name in given)
        if words[0] == "update-ref":
            self._refuse_links(os.fsencode("\n".join(words)) + b"\n" + data)
        variables = {**self._environment, **(env or {})}
        answer = repo.answer(self.top, *words, limit_s=self.remaining_s, given=data, env=variables)
        if answer is None:
            raise WasKilled(f"git {words[0]} did not end in time, or could not be started")
        if answer[0] < 0:
            raise WasKilled(f"git {words[0]} was killed by signal {-answer[0]}")
        return answer

    def output(self, *words: str, given: Given = b"", env: Mapping[str, str] | None = None) -> bytes:
        """Return git's output. Raises NotDone when git fails."""
        code, output = self.run(*words, given=given, env=env)
        if code != 0:
            raise NotDone(f"git {words[0]} ended with {code}; {self._hint()}")
        return output

    def text(self, *words: str, given: Given = b"", env: Mapping[str, str] | None = None) -> str:
        """Return git's output without its last line end. Raises NotDone when git fails."""
        return os.fsdecode(self.output(*words, given=given, env=env)).removesuffix("\n")

    def line(self, *words: str) -> str | None:
        """Return the one line that git prints; None where it fails or prints nothing."""
        code, output = self.run(*words)
        return os.fsdecode(output).removesuffix("\n") if code == 0 and output else None

    def status(self, *options: str, env: Mapping[str, str] | None = None) -> list[bytes]:
        """Return ``XY PATH`` for each path that git's status lists. Raises NotDone."""
        words = ("status", "--porcelain=v1", "-z", "-uall", "--no-renames", *options)
        return [entry for entry in self.output(*words, env=env).split(b"\0") if len(entry) > 3]

    def branch(self) -> str | None:
        """Return the branch of HEAD, a full ref; None when HEAD is detached."""
        known = self.repository.branch_and_head()
        return known[0] if known is not None else self.line("symbolic-ref", "--quiet", "HEAD")

    def commit(self, revision: str) -> str | None:
        """Return the full sha of a revision; None where it is not a commit, or absent."""
        return self.line("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")

    def ref(self, name: str) -> str | None:
        """Return the sha of a ref."""
        return self.repository.value(name) or self.line("rev-parse", "--verify", "--quiet", name)

    def update_refs(self, *commands: str, reason: str = "") -> None:
        """Carry out commands for ``git update-ref --stdin``, all or none. Raises NotDone."""
        given = "".join(f"{command}\n" for command in commands).encode(errors="surrogateescape")
        words = ("-m", reason) if reason else ()
        self.output("update-ref", *words, "--stdin", given=given, env=self.identity)

    def _refuse_links(self, commands: bytes) -> None:
        """Raise NotDone where a link would lead git out of the repository with a ref or with its log."""
        refs = {PurePosixPath(os.fsdecode(ref)) for ref in _REF.findall(commands)}
        folders = {folder for ref in refs for folder in ref.parents[:-2]}  # not ref.parents[-2]: "refs"
        for each in (*folders, *("logs" / each for each in folders | refs)):
            path = self.repository.common / each
            if os.path.islink(path):  # noqa: PTH114 - a name that is too long is git's to refuse
                raise NotDone(f"{path} is a symbolic link: ralphd writes no ref through it (rm {path})")

    def commit_tree(
        self, tree: str, message: str, *parents: str, identity: Mapping[str, str] | None = None
    ) -> str:
        """Create a commit object and return its sha. Raises NotDone."""
        words = [word for parent in parents for word in ("-p", parent)]
        given, env = message.encode(errors="surrogateescape"), identity or self.identity
        return self.text("commit-tree", tree, *words, "--no-gpg-sign", "-F", "-", given=given, env=env)

    def copy_index(self, copy: Path) -> None:
        """Copy the index with its time: git trusts no entry as young as the index itself."""
        with suppress(FileNotFoundError), open_plain(self.repository.git / "index") as index:
            status = os.fstat(index.fileno())  # of the file that is read: git may replace it meanwhile
            copy.write_bytes(index.read())
            os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _hint(self) -> str:
        with suppress(OSError):
            disk = os.statvfs(self.repository.git)
            if disk.f_bavail * disk.f_frsize < _FULL_BYTES:
                return "the disk is full"
        if locks := lock_files(self.repository):
            return lock_message(locks[0])
        return f"try it: git -C {self.directory} status"

    def allow_rollback(self, why: Exception) -> None:
        """Extend the deadline: an act that failed, perhaps by its deadline, has to be rolled back.

        Removes the lock of the index that a killed git of ours has left.
        """
        self._deadline = max(self._deadline, time.monotonic() + ROLLBACK_S)
        if isinstance(why, WasKilled):
            remove_own_lock(self.repository, self.top)

    @property
    def remaining_s(self) -> float:
        """The seconds until the deadline."""
        return max(0.0, self._deadline - time.monotonic())

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock against other acts of ralphd in this repository, and provide ``work``.

        Removes the temporary files of a killed one. Raises NotDone while another act is running, for
        LOCK_WAIT_S: the gate, the landing queue and an earlier daemon that is ending may meet here.
        """
        # flock ends with its process, so a killed ralphd leaves no lock behind, only files.
        with Descriptor(self.repository.git, os.O_RDONLY) as descriptor:
            if not take_lock(descriptor, LOCK_WAIT_S):
                raise NotDone("another ralphd reverts or sets aside in this repository")
            with suppress(FileExistsError):
                self.work.mkdir()
            with self._opened() as work:
                try:  # only who has the lock removes files: others are in use
                    _clean_up(work)
                    yield
                finally:
                    _clean_up(work)
                    with suppress(OSError):
                        self.work.rmdir()  # fails while a journal is needed: see rewrite/move_branch

    def _opened(self) -> Descriptor:
        """Open ``work``. Raise NotDone where something else is in its place, such as a link to elsewhere."""
        try:
            return Descriptor(self.work, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except NotADirectoryError as error:
            what = "a symbolic link" if self.work.is_symlink() else "a file"
            raise NotDone(f"{self.work} is {what}, not a folder of ralphd: rm {self.work}") from error


def _clean_up(work: int) -> None:
    with suppress(OSError):
        for name in os.listdir(work):
            if name.startswith("tmp-"):
                is_folder = stat.S_ISDIR(os.stat(name, dir_fd=work, follow_symlinks=False).st_mode)
                shutil.rmtree(name, dir_fd=work) if is_folder else os.unlink(name, dir_fd=work)


def ref_name(label: str) -> str:
    """Return a label as the end of a ref: ASCII letters, digits, dashes and single slashes stay."""
    quoted = re.sub(r"[^A-Za-z0-9_/-]", lambda match: f"%{ord(match[0]):X}", label)
    return "/".join(part if part[0] != "-" else f"_{part}" for part in quoted.split("/") if part) or "_"


def error_text(error: Exception) -> str:
    """Return why an act failed, for people: for an OSError the kernel's reason and the path."""
    if not isinstance(error, OSError):
        return str(error)
    name = error.filename
    return f"{error.strerror}: {readable(name) if isinstance(name, bytes) else name or 'in the repository'}"


def name_list(names: Iterable[bytes], most: int = SHOWN) -> str:
    """Return the first names and the number of the others, on one line."""
    return first_names([readable(name) for name in sorted(names)], most)


def readable(name: bytes) -> str:
    """Return a name for people, with a question mark for each character that cannot be printed."""
    return "".join(char if char.isprintable() else "?" for char in name.decode(errors="replace"))


# A repository's own settings do not count where a run could have written them (M2, M3).

_PREFIX: Final = "git."
_SHALLOW_BYTES: Final = 16 << 20
_CONFIG: Final = """\
[core]
repositoryformatversion = {version}
bare = false
excludesFile = /dev/null
attributesFile = /dev/null
sparseCheckout = false
splitIndex = false
untrackedCache = false
autocrlf = false
eol = lf
fileMode = true
symlinks = true
ignoreCase = false
"""


@contextmanager
def isolated(git: GitRunner, scratch: Path | None = None) -> Iterator[dict[str, str]]:
    """Provide variables that hide a repository's own settings from git: any run can write them.

    ``.git/config`` can send a push elsewhere and start programs, ``info/`` can hide files, and all work trees
    share both. So git gets a temporary common directory: no setting, exclude, attribute, hook or ref of the
    repository counts, only its objects and the index of the work tree. The user's own configuration counts,
    its ``includeIf`` as well: git still knows the real git directory.

    ``scratch`` is a directory that no run can write. Refs are copies: new ones are gone at the end.
    """
    for each in () if scratch is None else scratch.glob(f"{_PREFIX}*"):  # of daemons that were killed
        if not Path("/proc", each.name.split(".")[1]).exists():
            shutil.rmtree(each, ignore_errors=True)
    with TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}.", dir=scratch) as name:
        common, real = Path(name), git.repository.common
        refs = git.output("for-each-ref", "--format=%(objectname) %(refname)")  # what a fetch need not bring
        is_sha256 = len((refs or git.output("hash-object", "--stdin")).split()[0]) == 64
        extension = "[extensions]\nobjectFormat = sha256\n" if is_sha256 else ""
        (common / "config").write_text(_CONFIG.format(version=int(is_sha256)) + extension)
        (common / "refs").mkdir()
        (common / "packed-refs").write_bytes(refs)
        with suppress(OSError):
            (common / "shallow").write_bytes(read_plain(real / "shallow", _SHALLOW_BYTES))
        yield {
            "GIT_DIR": str(git.repository.git),
            "GIT_COMMON_DIR": name,
            "GIT_WORK_TREE": str(git.top),
            "GIT_OBJECT_DIRECTORY": str(real / "objects"),
        }
