"""A ralph that keeps a record of itself: what a daemon may never lose, double or invent."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.helpers import wait_for
from tests.players import player
from tests.whole.harness import Daemon, View


@dataclass(frozen=True, slots=True)
class Witness:
    """A ralph that runs ``tests/players/witness.py``: it tells each start, and whether it was alone."""

    daemon: Daemon
    directory: Path
    record: Path
    name: str = "demo"

    @classmethod
    def of(cls, daemon: Daemon, name: str = "demo") -> "Witness":
        """A working directory for it, and a place outside for what it tells."""
        directory = daemon.home / name
        record = daemon.root / f"{name}-witness"
        for each in (directory, record):
            each.mkdir(parents=True, exist_ok=True)
        return cls(daemon, directory, record, name)

    def registration(self, *arguments: object, start: bool = True, **settings: object) -> View:
        """The body that registers it; ``settings`` are keys of ``[regent]``."""
        flags = {f"regent.{key}": value for key, value in settings.items()}
        return {
            "directory": str(self.directory),
            "command": list(player("witness", self.record, *arguments)),
            "name": self.name,
            "flags": {"regent.retry_backoff_seconds": 0.05, "regent.max_retries": 9} | flags,
            "environment": {"PATH": os.environ.get("PATH", os.defpath)},
            "start": start,
        }

    def register(self, *arguments: object, start: bool = True, **settings: object) -> View:
        """Register it, and wait until it has told its start."""
        before = len(self.starts())
        view = dict(
            self.daemon.ask("POST", "/v1/ralphs", self.registration(*arguments, start=start, **settings))
        )
        if start:
            self.started(before + 1)
        return view

    def starts(self) -> list[tuple[int, str]]:
        """The pid and the run of each start so far. Fails when two were there at a time."""
        try:
            lines = [line.split() for line in (self.record / "starts").read_text().splitlines()]
        except FileNotFoundError:
            return []
        assert all(word == "alone" for word, _, _ in lines), lines
        return [(int(pid), run) for _, pid, run in lines]

    def started(self, count: int) -> int:
        """Wait until it was started ``count`` times; the pid of that start."""
        wait_for(lambda: len(self.starts()) >= count, what=f"start {count} of {self.name}")
        return self.starts()[count - 1][0]

    def end(self, code: int) -> None:
        """Have the run that lives end with a code, or by a signal given as a negative number."""
        temporary = self.record / "end.new"
        temporary.write_text(str(code))
        temporary.rename(self.record / "end")

    def ended(self, count: int) -> list[View]:
        """Wait until the history holds ``count`` ends; all of them."""
        path = self.daemon.files(self.name) / "history.jsonl"
        wait_for(lambda: path.exists() and len(self.daemon.history(self.name)) >= count, what=f"end {count}")
        return self.daemon.history(self.name)

    def written(self, run: Path) -> int:
        """How many bytes of output it has written in this run, as ``--output`` counts them."""
        counter = self.record / f"written.{run.name}"
        return int(counter.read_text() or 0) if counter.exists() else 0

    def account_is_true(self, *codes: int) -> None:
        """Each end was entered and told once, as ``exit.json`` has it; ``codes`` are all of them in order."""
        history, exits = self.daemon.history(self.name), [self._exit(run) for run in self._over()]
        assert [_code(entry) for entry in history] == list(codes)
        assert [_code(entry) for entry in exits] == list(codes)
        assert [entry["run_id"] for entry in history] == [run for _, run in self.starts()][: len(codes)]
        assert [entry["at"] for entry in history] == [each["ended_at"] for each in exits]
        told = [event for event in self.daemon.events("ralph.exited") if event["ralph"] == self.name]
        assert [event["run_id"] for event in told] == [entry["run_id"] for entry in history]
        assert [_code(event["data"]) for event in told] == list(codes)

    def _over(self) -> list[Path]:
        return [run for run in self.daemon.run_directories(self.name) if (run / "exit.json").exists()]

    def _exit(self, run: Path) -> View:
        return dict(json.loads((run / "exit.json").read_text()))


def _code(end: Mapping[str, Any]) -> int | None:
    """A code, or a signal as a negative number; None where nobody saw the end."""
    code, number = end["code"], end["signal"]
    return code if number is None else -int(number)
