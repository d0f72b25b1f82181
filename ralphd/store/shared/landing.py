"""``landing/HASH/``: the queue of one repository, its environment, its tests and runs of setup (M1).

``queue.json`` is written before each step is taken; a daemon that dies leaves it to the next one.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from ralphd.core.landing.model import LandingQueue
from ralphd.store.codec import Codec, load_file, peek_file
from ralphd.store.files import as_json, make_private_directory, remove_leftovers, write_whole

LANDING_VERSION: Final = 1
QUEUE_FILE: Final = "queue.json"
ENVIRONMENT_FILE: Final = "env"
_QUEUE: Final = Codec[LandingQueue](LandingQueue, moments=("queued_at", "ended_at", "retry_at"))


class LandingFiles:
    """The files of one queue. All methods block."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.queue_file = home / QUEUE_FILE
        self.old_tree = home / "tree"
        """The work tree of earlier versions. At ``write`` and ``box``, tests cannot write it."""
        self.tests = home / "tests"

    @classmethod
    def of(cls, state_directory: Path, repository: Path) -> "LandingFiles":
        """Return the files for a repository, by its common git directory."""
        digest = hashlib.sha256(str(repository).encode(errors="surrogateescape")).hexdigest()
        return cls(state_directory / "landing" / digest[:16])

    def create(self) -> None:
        """Make the directories, without what a killed writer left. Raises DirectoryUnusable."""
        make_private_directory(self.home.parent)
        make_private_directory(self.home)
        remove_leftovers(self.home, of=(QUEUE_FILE, ENVIRONMENT_FILE))

    def save(self, queue: LandingQueue) -> None:
        """Replace ``queue.json``, durably. Raises OSError; then the old file is as it was."""
        write_whole(self.queue_file, as_json({"version": LANDING_VERSION, **_QUEUE.dump(queue)}))

    def save_environment(self, environment: Mapping[str, str]) -> None:
        """Keep the environment of tests and pushes, readable for us alone. Raises OSError."""
        write_whole(self.home / ENVIRONMENT_FILE, as_json(environment))

    def load(self) -> LandingQueue | None:
        """Return what the file holds; None without one. Raises Broken (it is set aside) and NewerState."""
        return load_file(self.queue_file, LANDING_VERSION, _QUEUE.load)

    def peek(self) -> LandingQueue | None:
        """Return the same for somebody who only looks: None for a damaged file, which is left alone."""
        return peek_file(self.queue_file, LANDING_VERSION, _QUEUE.load)


def known_queues(state_directory: Path) -> Iterator[LandingFiles]:
    """Yield the files of every queue."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for home in sorted((state_directory / "landing").iterdir()):
            if (home / QUEUE_FILE).is_file():
                yield LandingFiles(home)


def has_landing_test(state_directory: Path, run_id: str) -> bool:
    """Whether a run is one of a queue's tests, or of its setup."""
    homes = [files.home for files in known_queues(state_directory)]
    return any((home / kind / run_id).is_dir() for home in homes for kind in ("tests", "setup"))
