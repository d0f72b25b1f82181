"""What is sampled of a daemon and all that it started: processes, memory, descriptors, files, rows."""

import os
import shutil
import sqlite3
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
ROLES = (("loop", b"ralphd.loop\0"), ("shim", b"shim.main("), ("daemon", b"-m\0ralphd\0"))


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the soak; ``life`` tells it from another one with its pid."""

    role: str
    life: str
    rss_mb: float
    descriptors: int
    threads: int


@dataclass(slots=True)
class Sample:
    """The figures of one moment, ``at_s`` seconds after the beginning; ``state`` is that of the files."""

    at_s: float
    processes: list[Process] = field(default_factory=list)
    state: dict[str, float] = field(default_factory=dict)


def processes(state_directory: Path) -> Iterator[Process]:
    """Yield the living processes that have the state directory in their words or environment."""
    mark = str(state_directory).encode()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        place = Path("/proc", entry)
        with suppress(OSError, IndexError):
            words = (place / "cmdline").read_bytes()
            if mark not in words and mark not in (place / "environ").read_bytes():
                continue
            stat = (place / "stat").read_text().rpartition(")")[2].split()
            if stat[0] in "ZX":
                continue
            role = next((name for name, sign in ROLES if sign in words + b"\0"), "other")
            yield Process(
                role,
                f"{entry}-{stat[19]}",
                int(stat[21]) * PAGE / 1e6,
                len(os.listdir(place / "fd")),
                int(stat[17]),
            )


class Files:
    """The state directory, walked again for each sample."""

    def __init__(self, state_directory: Path) -> None:
        self._state = state_directory
        self._lines: dict[Path, tuple[int, int, int]] = {}

    def figures(self) -> dict[str, float]:
        """Return the figures of the files. What vanishes meanwhile is not counted."""
        found, most = Counter[str](), defaultdict[str, int](int)
        for folder, folders, names in os.walk(self._state):
            here = Path(folder).relative_to(self._state)
            kind = _kind(here)
            if here.name in ("runs", "tests") and len(here.parts) == 3:
                most[here.name] = max(most[here.name], len(folders))
                found[f"{here.name}"] += len(folders)
            for name in names:
                with suppress(OSError):
                    status = (self._state / here / name).lstat()
                    found[f"{kind}_files"] += 1
                    found[f"{kind}_bytes"] += status.st_size
                    if name == "history.jsonl" and kind == "other":
                        lines, iterations = self._lines_of(self._state / here / name, status.st_size)
                        found["history_lines"] += lines
                        found["iterations"] += iterations
                        found["history_bytes"] += status.st_size
                    if name == "progress.md":
                        most["progress_bytes"] = max(most["progress_bytes"], status.st_size)
        logs = sum(path.stat().st_size for path in self._state.glob("ralphd.log*") if path.exists())
        return {
            **found,
            **{f"most_{name}": value for name, value in most.items()},
            "log_bytes": logs,
            **self._rows(),
        }

    def _lines_of(self, path: Path, size: int) -> tuple[int, int]:
        """Count the lines, and those of iterations; only what was appended since the last time is read."""
        read, lines, iterations = self._lines.get(path, (0, 0, 0))
        with path.open("rb") as file:
            file.seek(read)
            added = file.read(size - read)
        lines, iterations = lines + added.count(b"\n"), iterations + added.count(b'{"kind":"iteration"')
        self._lines[path] = size, lines, iterations
        return lines, iterations

    def _rows(self) -> dict[str, float]:
        """Count the rows in a copy of ``events.db``, since the daemon locks the file; nothing if it fails."""
        with tempfile.TemporaryDirectory() as copies, suppress(OSError, sqlite3.Error):
            size = 0
            for suffix in ("", "-wal"):
                path = self._state / f"events.db{suffix}"
                if path.exists():
                    shutil.copyfile(path, f"{copies}/events.db{suffix}")
                    size += path.stat().st_size
            with closing(sqlite3.connect(f"{copies}/events.db")) as events:
                counts = [events.execute(f"SELECT count(*) FROM {table}") for table in ("events", "outbox")]
                rows, outbox = (int(count.fetchone()[0]) for count in counts)
            return {"events": rows, "outbox": outbox, "events_bytes": size}
        return {}


def _kind(folder: Path) -> str:
    parts = folder.parts
    if len(parts) > 3 and parts[2] in ("runs", "tests", "setup"):
        return "runs"
    return "vaults" if parts[:1] == ("vaults",) else "other"


def derived(state: dict[str, float]) -> dict[str, float]:
    """Add what the growth of a record is judged by: the record itself grows as long as it is kept."""
    added = dict(state)
    if state.get("events") and state.get("history_lines"):
        added["bytes_per_event"] = state["events_bytes"] / state["events"]
        added["events_per_entry"] = state["events"] / state["history_lines"]
        added["bytes_per_entry"] = state["history_bytes"] / state["history_lines"]
    if state.get("iterations"):
        added["vault_files_per_iteration"] = state.get("vaults_files", 0) / state["iterations"]
    return added
