"""``ralphctl build`` in a process of its own, as a person types it, and what is known of what it started."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.helpers import is_alive, wait_for
from tests.players import player
from tests.template import Forked, Template
from tests.whole.harness import Daemon, View
from tests.whole.person import Person
from tests.whole.witnesses import Witness

START_S = 30.0
END_S = 60.0
TOML = "[regent]\nretry_backoff_seconds = 0.05\nmax_retries = 3\nstop_timeout_seconds = 20\n"


@dataclass
class Build:
    """One ``ralphctl build`` in ``directory``. What it prints goes to files."""

    daemon: Daemon
    directory: Path
    process: subprocess.Popen[bytes] | Forked | None = None
    witness: Witness = field(init=False)

    def __post_init__(self) -> None:
        self.witness = Witness.of(self.daemon, self.directory.name)
        (self.directory / "ralph.toml").write_text(TOML)

    def start(self, *words: str, stdout: int | None = None) -> "Build":
        """Type it; ``stdout`` is where its output goes instead of a file."""
        with self._said("out").open("wb") as out, self._said("err").open("wb") as err:
            self.process = Template.present().start(
                "ralphctl",
                ["build", *words],
                Person(self.daemon).environment,
                self.directory,
                output=out.fileno() if stdout is None else stdout,
                errors=err.fileno(),
            )
        return self

    def witnessed(self, *arguments: object) -> "Build":
        """Have it run the witness, and wait until that has told its start."""
        before = len(self.witness.starts())
        self.start("--", *player("witness", self.witness.record, *arguments))
        wait_for(
            lambda: len(self.witness.starts()) > before or self._is_over(), timeout_s=START_S, what="a start"
        )
        assert not self._is_over(), self.words()
        self.says("Ctrl-C stops it")  # it knows by now that it runs
        return self

    def _is_over(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None

    # --- what it is, and what it says -----------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The command's own pid."""
        assert self.process is not None
        return self.process.pid

    @property
    def place(self) -> Path:
        """The state directory of its private ralphd."""
        (place,) = self.daemon.state.glob(f"build/{self.directory.name}-*")
        return place

    @property
    def ralphd(self) -> int:
        """The pid of its private ralphd."""
        return int((self.place / "lock").read_text())

    def run_record(self) -> View:
        """``run.json`` of the newest run, once it is there."""

        def newest() -> View | None:
            found = sorted(self.place.glob("ralphs/*/runs/r*/run.json"))
            return dict(json.loads(found[-1].read_text())) if found else None

        return wait_for(newest, what="a run.json") or {}

    def exit_record(self) -> View:
        """``exit.json`` of the newest run, once it is there."""

        def newest() -> View | None:
            run = sorted(self.place.glob("ralphs/*/runs/r*"))[-1] / "exit.json"
            return dict(json.loads(run.read_text())) if run.exists() else None

        return wait_for(newest, timeout_s=END_S, what="an exit.json") or {}

    def out(self) -> str:
        """What it has printed as data."""
        return self._said("out").read_text()

    def words(self) -> str:
        """What it has said beside that."""
        return self._said("err").read_text()

    def says(self, text: str) -> None:
        """Wait until it has said ``text`` on either stream."""
        wait_for(
            lambda: text in self.out() + self.words(),
            timeout_s=START_S,
            what=f"{text!r} in {self.out()}{self.words()}",
        )

    def state(self) -> View:
        """What is left to be read in the working directory."""
        return dict(json.loads((self.directory / ".ralph" / "regent-state.json").read_text()))

    def _said(self, stream: str) -> Path:
        return self.daemon.root / f"build.{stream}"

    # --- its end --------------------------------------------------------------------------------------

    def send(self, number: signal.Signals) -> None:
        """Send the command a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def exit_code(self) -> int:
        """Wait for its end."""
        assert self.process is not None
        return self.process.wait(END_S)

    def ends_leaving_nothing(self) -> int:
        """Its exit code; at that very moment nothing of it is alive."""
        code = self.exit_code()
        assert not self.daemon.leftovers(), self.words()
        return code

    def nothing_is_left(self, pids: Sequence[int]) -> None:
        """Wait until all of it is gone, and these processes with it, whoever was killed."""
        wait_for(
            lambda: not self.daemon.leftovers() and all_gone(pids), timeout_s=END_S, what=f"an end of {pids}"
        )

    def clean_up(self) -> None:
        """End the command, if it is still there."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(END_S)


@contextmanager
def build_in(daemon: Daemon, name: str = "demo") -> Iterator[Build]:
    """A build to be started in a directory of that name."""
    build = Build(daemon, Person(daemon).directory(name))
    try:
        yield build
    finally:
        build.clean_up()


def all_gone(pids: Sequence[int]) -> bool:
    """Whether none of these processes lives."""
    return not any(is_alive(pid) for pid in pids)


def kill(pid: int) -> None:
    """End a process as a power cut would."""
    os.kill(pid, signal.SIGKILL)
