"""Git for what the guard does: a deadline for all calls together, and nothing of the repository's is run.

Hooks, file watchers, filters, merge drivers, signing programs, editors and fetches are anybody's commands:
for these calls they are off. What would need a filter is refused (``Calls.filters``).
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Final

from ralphd.git import repo
from ralphd.git.diagnostics import lock_files, locked
from ralphd.git.repo import Repository

LIMIT_S: Final = 60.0
"""What one act may take in all."""
WAY_BACK_S: Final = 30.0
"""How long it may take besides to put all as it was."""
SHOWN: Final = 3
"""How many names a sentence has."""
_FULL_BYTES: Final = 64 << 10
FSYNC: Final = "core.fsync=committed"
"""What is kept is on the disk before files are changed."""
_SETTINGS: Final = (
    *("submodule.recurse=false", "merge.renormalize=false", "core.safecrlf=false", "gc.auto=0"),
    *("i18n.commitEncoding=UTF-8", "core.looseCompression=1", "core.fsyncMethod=batch"),
    *("core.checkStat=default", "core.sshCommand=false", "advice.detachedHead=false"),
)
_NO_FETCH: Final = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_LITERAL_PATHSPECS": "1"}
_ASKED: Final = r"^(filter\..*|merge\..*\.driver|user\.(name|email))$"
_WORK: Final = "ralph-guard"
_NAMING: Final = ("NAME", "EMAIL")
_OWN_NAME: Final = ("ralphd", "ralphd@localhost")


class NotDone(Exception):
    """Why an act is not carried out, in words; the repository is as it was."""


class WasKilled(NotDone):
    """A git of ours was ended in the middle, by us for its time or by the kernel: it may have left a lock."""


class HasMoved(NotDone):
    """HEAD is not where it was left."""


class GitRunner:
    """Git in one work tree. Names are bytes, relative to its root."""

    def __init__(self, directory: Path, *, limit_s: float = LIMIT_S) -> None:
        """Raises NotDone outside of a repository."""
        self._directory = directory
        self._deadline = time.monotonic() + limit_s
        found = Repository.find(directory)
        if found is None:
            raise NotDone("there is no git repository here")
        self.repository = found

    @property
    def directory(self) -> Path:
        """Where it was called for: the root of the work tree, or a directory below it."""
        return self._directory

    @cached_property
    def top(self) -> Path:
        """The root of the work tree."""
        if (told := self.repository.top) is not None:
            return told
        printed = self._run(self._directory, "rev-parse", "--show-toplevel")
        return Path(os.fsdecode(printed.removesuffix(b"\n")))

    def path(self, name: bytes) -> bytes:
        """The whole path of a name in the work tree."""
        return os.fsencode(self.top) + b"/" + name

    def remove(self, name: bytes) -> None:
        """Remove a file, and the folders that it leaves empty, as git does."""
        Path(os.fsdecode(self.path(name))).unlink()
        self.prune(name)

    def prune(self, name: bytes) -> None:
        """Remove the folders that a file which is gone has left empty."""
        while name := name.rpartition(b"/")[0]:
            try:
                Path(os.fsdecode(self.path(name))).rmdir()
            except OSError:
                return

    @property
    def work(self) -> Path:
        """A directory of the guard's own in the git directory; there within ``alone`` only."""
        return self.repository.git / _WORK

    @cached_property
    def _settings(self) -> dict[str, str]:
        """What is configured of programs and of the user's name, by key."""
        printed = repo.answer(self._directory, "config", "-z", "--get-regexp", _ASKED, limit_s=self.left_s)
        if printed is None:
            raise NotDone("git config did not end in time, or git is not there")
        entries = printed[1].decode(errors="surrogateescape").split("\0")
        return {key: value for key, _, value in (entry.partition("\n") for entry in entries if entry)}

    @cached_property
    def filters(self) -> frozenset[str]:
        """The filters that are configured (LFS is one), by name."""
        return frozenset(
            key[len("filter.") : key.rfind(".")] for key in self._settings if key.startswith("filter.")
        )

    @cached_property
    def _variables(self) -> dict[str, str]:
        """Variables of git's environment by which the configured programs are off."""
        off = [
            (f"filter.{each}.{key}", "") for each in self.filters for key in ("clean", "smudge", "process")
        ]
        off += [(f"filter.{each}.required", "false") for each in self.filters]
        # One that fails leaves a conflict; an empty one would pass off anything as merged.
        off += [(key, "false") for key in self._settings if key.startswith("merge.")]
        variables = {"GIT_CONFIG_COUNT": str(len(off)), **_NO_FETCH}
        for number, (key, value) in enumerate(off):
            variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return variables

    @cached_property
    def identity(self) -> Mapping[str, str]:
        """In whose name commits are made: the user's, as configured, or our own."""
        variables = {}
        for who in ("AUTHOR", "COMMITTER"):
            known = tuple(self._known_as(f"GIT_{who}_{what}", f"user.{what.lower()}") for what in _NAMING)
            for what, value in zip(_NAMING, known if all(known) else _OWN_NAME, strict=True):
                variables[f"GIT_{who}_{what}"] = value
        return variables

    def _known_as(self, variable: str, key: str) -> str:
        return os.environ.get(variable, "").strip() or self._settings.get(key, "").strip()

    def call(
        self, *words: str, given: bytes = b"", also: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """The code and the output of git at the root of the work tree. Raises NotDone when the time is up."""
        return self._call(self.top, *words, given=given, also=also)

    def printed(self, *words: str, given: bytes = b"", also: Mapping[str, str] | None = None) -> bytes:
        """What git prints. Raises NotDone when it does not go well."""
        return self._run(self.top, *words, given=given, also=also)

    def text(self, *words: str, given: bytes = b"", also: Mapping[str, str] | None = None) -> str:
        """What git prints, without the end of its last line. Raises NotDone when it does not go well."""
        return os.fsdecode(self._run(self.top, *words, given=given, also=also)).removesuffix("\n")

    def ref(self, name: str) -> str | None:
        """What a ref of ours has; None where there is none."""
        return self.repository.value(name) or self.looked_up("rev-parse", "--verify", "--quiet", name)

    def looked_up(self, *words: str) -> str | None:
        """The one line that git prints; None where it finds nothing."""
        code, printed = self.call(*words)
        return os.fsdecode(printed).removesuffix("\n") if code == 0 and printed else None

    def _run(
        self, place: Path, *words: str, given: bytes = b"", also: Mapping[str, str] | None = None
    ) -> bytes:
        code, printed = self._call(place, *words, given=given, also=also)
        if code != 0:
            raise NotDone(f"git {words[0]} ended with {code}; {self._hint()}")
        return printed

    def _hint(self) -> str:
        """What to look at where git fails."""
        with suppress(OSError):
            disk = os.statvfs(self.repository.git)
            if disk.f_bavail * disk.f_frsize < _FULL_BYTES:
                return "the disk is full"
        if locks := lock_files(self.repository):
            return locked(locks[0])
        return f"try it: git -C {self._directory} status"

    def _call(
        self, place: Path, *words: str, given: bytes = b"", also: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        settings = (word for setting in (*_SETTINGS, FSYNC) for word in ("-c", setting))
        variables = {**self._variables, **(also or {})}
        answer = repo.answer(place, *settings, *words, limit_s=self.left_s, given=given, also=variables)
        if answer is None:
            raise WasKilled(f"git {words[0]} did not end in time, or could not be started")
        if answer[0] < 0:
            raise WasKilled(f"git {words[0]} was killed by signal {-answer[0]}")
        return answer

    def allow_way_back(self) -> None:
        """An act failed, maybe since its time was up: there is time to put all as it was."""
        self._deadline = max(self._deadline, time.monotonic() + WAY_BACK_S)

    @property
    def left_s(self) -> float:
        """How much time is left."""
        return max(0.0, self._deadline - time.monotonic())

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other act of ours at the same time, here; what a killed one has left is cleaned up.

        Raises NotDone while another is at work.
        """
        descriptor = os.open(self.repository.git, os.O_RDONLY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise NotDone("another ralphd reverts or sets aside in this repository") from error
            self.work.mkdir(exist_ok=True)
            self._clean_up()
            yield
        finally:
            self._clean_up()
            with suppress(OSError):
                self.work.rmdir()  # a journal that is still needed keeps it
            os.close(descriptor)

    def _clean_up(self) -> None:
        with suppress(OSError):
            for entry in self.work.iterdir():
                if entry.name.startswith("tmp-"):
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def said_of(error: OSError) -> str:
    """What the kernel has against it, and where, for people."""
    name = error.filename
    place = readable(name) if isinstance(name, bytes) else name or "in the repository"
    return f"{error.strerror}: {place}"


def shown(names: "list[bytes] | set[bytes] | tuple[bytes, ...]") -> str:
    """Some names for people, on one line whatever is in them."""
    ordered = sorted(names)
    more = f" and {len(ordered) - SHOWN} more" if len(ordered) > SHOWN else ""
    return ", ".join(readable(name) for name in ordered[:SHOWN]) + more


def readable(name: bytes) -> str:
    """A name for people: what cannot be printed is a question mark."""
    text = name.decode(errors="replace")
    return "".join(char if char.isprintable() else "?" for char in text)
