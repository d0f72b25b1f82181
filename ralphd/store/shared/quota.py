"""``quota/ACCOUNT.json``: the quota clocks, shared by every loop of the host with or without a daemon (Q2).

A change reads, decides and writes under a lock of the account, so that of many ralphs one becomes the probe.
Each loop holds a lock file of its own while it lives: a ralph that was killed frees its slot with it.
"""

import fcntl
import os
import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from ralphd.core.quota.forecast import Forecast, forecast
from ralphd.core.quota.model import QuotaClock
from ralphd.core.time import Moment
from ralphd.errors import RalphdError
from ralphd.plain_files import open_plain, peek
from ralphd.store.codec import Codec, load_file, peek_file
from ralphd.store.files import Broken, Lock, as_json, make_private_directory, remove_leftovers, write_whole
from ralphd.store.history import newest_first
from ralphd.store.shared.claims import load_worktrees

QUOTA_DIRECTORY: Final = "quota"
QUOTA_VERSION: Final = 1
MEMBERS: Final = "ralphs"
MOST_ACCOUNTS: Final = 200
MOST_ENTRIES: Final = 1000
"""So much of the histories is read for a forecast, since a start waits for it."""
TOGETHER_S: Final = 60.0
"""Worktrees that share a task list and were made within this time are of one start: they work in parallel."""
_MEMBER: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,80}")
_FILE: Final = re.compile(r"[a-z0-9][a-z0-9@_-]{0,120}")
_OF_BUILD: Final = re.compile(r".+-[0-9a-f]{8,64}")
_CLOCK: Final = Codec[QuotaClock](
    QuotaClock, moments=("until", "since", "seen_at", "resets_at", "first_at", "opened_at"), most_chars=300
)

T = TypeVar("T")


def quota_directory(state_directory: Path) -> Path:
    """Return the directory of the clocks; a ``ralphctl build`` shares that of the state it lies in."""
    state = state_directory
    if state.parent.name == "build" and _OF_BUILD.fullmatch(state.name):
        state = state.parents[1]
    return state / QUOTA_DIRECTORY


class QuotaFiles:
    """The clocks of all accounts, to read. All methods block and change nothing."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def peek(self, account: str) -> QuotaClock:
        """Return the clock of an account, without ralphs that have died; an open one for a damaged file."""
        stored = peek_file(self._path(account), QUOTA_VERSION, _CLOCK.load)
        clock = QuotaClock(account) if stored is None or stored.account != account else stored
        return clock.without(self.dead(clock.users()))

    def clocks(self) -> list[QuotaClock]:
        """Return all clocks, by name."""
        with suppress(OSError):
            names = sorted(path.stem for path in self.directory.glob("*.json"))
            return [self.peek(name) for name in names[:MOST_ACCOUNTS] if _FILE.fullmatch(name)]
        return []

    def signature(self) -> tuple[tuple[str, int, int], ...]:
        """Return what changes whenever a clock is written."""
        found = []
        with suppress(OSError):
            for entry in os.scandir(self.directory):
                if entry.name.endswith(".json"):
                    about = entry.stat(follow_symlinks=False)
                    found.append((entry.name, about.st_ino, about.st_mtime_ns))
        return tuple(sorted(found))

    def dead(self, users: Iterable[str]) -> frozenset[str]:
        """Return those whose process is gone: the kernel has freed the locks of their files."""
        return frozenset(each for each in users if not self._is_alive(each))

    def _is_alive(self, user: str, *, sweeps: bool = False) -> bool:
        if not _MEMBER.fullmatch(user):
            return False
        try:
            with open_plain(self.directory / MEMBERS / user) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                if sweeps:  # while it is locked: its name may be taken by a loop that starts
                    (self.directory / MEMBERS / user).unlink(missing_ok=True)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def _path(self, account: str) -> Path:
        return self.directory / f"{account}.json"


class QuotaMember(QuotaFiles):
    """One loop among the users of the clocks. ``by`` is its name in them."""

    def __init__(self, directory: Path, by: str) -> None:
        super().__init__(directory)
        self.by = by
        self._lock: Lock | None = None

    def change(self, account: str, decide: Callable[[QuotaClock], tuple[QuotaClock, T]]) -> T:
        """Replace a clock by what ``decide`` makes of it, under the lock of the account.

        Raises FAULTS (a full disk, a lock that is held, a file of a newer version); nothing is changed then.
        """
        self._join()
        with Lock.acquire_soon(self.directory / f"{account}.lock"):
            path = self._path(account)
            remove_leftovers(self.directory, of=(path.name,))
            try:
                stored = load_file(path, QUOTA_VERSION, _CLOCK.load)
            except Broken:  # it was set aside: a lost clock costs one call
                stored = None
            before = QuotaClock(account) if stored is None or stored.account != account else stored
            after, answer = decide(before.without(self.dead(before.users())))
            if after != before:
                write_whole(path, as_json({"version": QUOTA_VERSION, **_CLOCK.dump(after)}))
            return answer

    def leave(self) -> None:
        """Free the slots of this loop."""
        if self._lock is not None:
            with suppress(OSError):
                self._lock.path.unlink()
            self._lock.release()
            self._lock = None

    def _is_alive(self, user: str, *, sweeps: bool = False) -> bool:
        return user == self.by or super()._is_alive(user, sweeps=sweeps)

    def _join(self) -> None:
        if self._lock is not None and self._lock.in_place():
            return
        self._lock = None
        make_private_directory(self.directory / MEMBERS)
        with suppress(OSError):
            for path in (self.directory / MEMBERS).iterdir():
                self._is_alive(path.name, sweeps=True)
        self._lock = Lock.acquire_soon(self.directory / MEMBERS / self.by)


def forecast_for(state: Path, name: str, open_tasks: Collection[str], at: Moment) -> Forecast:
    """Return what those of ``open_tasks`` that the ralph does are likely to take.

    Blocks; reads the state directory alone, since other directories may hang.
    """
    trees = load_worktrees(state)
    mine, sources = trees.get(name), {str(Path(each.source, each.inside)): each for each in trees.values()}

    def repository(home: Path) -> str:
        directory = str((peek(str(home / "ralph.json")) or {}).get("directory"))
        tree = trees.get(home.name) or sources.get(directory)
        return directory if tree is None else tree.repository

    homes = [own := state / "ralphs" / name]
    if trees:
        shared = repository(own)
        homes = [each for each in own.parent.glob("*") if repository(each) == shared]
    open_tasks = {*open_tasks} & {*((mine and mine.tasks) or open_tasks)}
    shares = [each for each in trees.values() if mine and mine.shares and each.shares]
    shares = [each for each in shares if mine and each.repository == mine.repository]
    together = [each for each in shares if mine and abs(each.made_at - mine.made_at) < TOGETHER_S]
    most = MOST_ENTRIES // max(len(homes), 1)
    histories = [[*islice(newest_first(home / "history.jsonl"), most)] for home in homes]
    clocks = QuotaFiles(quota_directory(state)).clocks()
    try:
        return forecast(histories, len(open_tasks), len(together), clocks, at)
    except (ArithmeticError, TypeError, ValueError):  # a damaged history must not prevent a start
        return Forecast(len(open_tasks), 0)


FAULTS: Final = (OSError, RalphdError)
"""What a change may raise; a loop then works without the clock."""
