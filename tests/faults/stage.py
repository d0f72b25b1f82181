"""A daemon whose calls fail, hang or see other clocks on request, and what has to hold meanwhile.

``faults.c`` is preloaded into the daemon alone: neither its shims nor the machine notice.
"""

import atexit
import mmap
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from tests.helpers import is_alive, wait_for
from tests.whole.harness import Daemon
from tests.whole.witnesses import Witness

SOURCE = Path(__file__).with_name("faults.c")
RULES_BYTES = 4096
HEALED_S = 20.0


@cache
def library() -> Path:
    """Return ``faults.c`` as a library, built once for all tests of this process; skip without a compiler."""
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("no C compiler (cc): the calls of the daemon cannot be made to fail")
    made = Path(tempfile.mkdtemp(prefix="ralphd-faults-"), "faults.so")
    atexit.register(shutil.rmtree, made.parent, ignore_errors=True)
    words = [compiler, "-shared", "-fPIC", "-O1", "-w", "-o", str(made), str(SOURCE), "-ldl", "-lpthread"]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    return made


@dataclass(slots=True)
class FaultyDaemon(Daemon):
    """A daemon with ``faults.c``."""

    rules: Path = field(init=False)

    def __post_init__(self) -> None:
        super(FaultyDaemon, self).__post_init__()
        self.rules = self.root / "faults"
        self.rules.write_bytes(bytes(RULES_BYTES))

    @property
    def environment(self) -> dict[str, str]:
        added = {"LD_PRELOAD": str(library()), "FAULTS": str(self.rules), "PYTHONDONTWRITEBYTECODE": "1"}
        return super(FaultyDaemon, self).environment | added

    def begin(self) -> None:
        """Start it, with the library."""
        self.start(as_child=True)

    def break_(self, *rules: str) -> None:
        """Have these rules hold, and no others."""
        text = "\n".join(rules).encode()
        with self.rules.open("r+b") as file, mmap.mmap(file.fileno(), RULES_BYTES) as page:
            page[:1] = b"\0"
            page[1:] = (text[1:] + bytes(RULES_BYTES))[: RULES_BYTES - 1]
            page[:1] = text[:1] or b"\0"

    def heal(self) -> None:
        """Have no call fail any more."""
        self.break_()

    def problems(self) -> list[str]:
        return list(self.status()["daemon"]["problems"])

    def log(self) -> str:
        path = self.state / "ralphd.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def well(self) -> None:
        """Wait until it has no problem left."""
        wait_for(lambda: not self.problems(), timeout_s=HEALED_S, what=f"no problem: {self.problems()}")

    def told(self, part: str) -> list[str]:
        """The problems with this part that it published, in order."""
        messages = [event["data"]["message"] for event in self.events("daemon.degraded")]
        return [message for message in messages if part in message]


@contextmanager
def nothing_is_lost(daemon: FaultyDaemon, ends: Witness, stays: Witness) -> Iterator[None]:
    """Prove over a fault that ends with the block: the daemon and what works live, an end is handled once.

    ``ends`` is to end with 3 within the block. It is started again, at the latest when the fault is over.
    """
    daemon.begin()
    ends.register(retry_backoff_seconds=0.2)
    worker, ralphd = stays.register()["ralph_pid"], daemon.pid
    yield
    daemon.heal()
    pid = ends.started(2)
    daemon.well()
    assert daemon.becomes("ends", "running")["ralph_pid"] == pid
    ends.end(0)
    daemon.becomes("ends", "done")
    ends.account_is_true(3, 0)
    assert (daemon.view("stays")["ralph_pid"], is_alive(worker), daemon.pid) == (worker, True, ralphd)
    assert len(stays.starts()) == 1
    assert "Traceback" not in daemon.log() + daemon.words()
    told = daemon.told("")
    assert len(told) == len(set(told)), "each problem is published once"


@contextmanager
def leaf(controller: str, limits: dict[str, str]) -> Iterator[Path]:
    """A control group of its own with these limits, by their names in version 2; skip where there is none."""
    old = {"pids.max": "pids.max", "memory.max": "memory.limit_in_bytes"}
    v1 = Path("/sys/fs/cgroup", controller)
    is_v1 = (v1 / "cgroup.procs").exists()
    group = (v1 if is_v1 else Path("/sys/fs/cgroup")) / f"ralphd-fault-{os.getpid()}"
    try:
        group.mkdir()
        for name, value in limits.items():
            (group / (old[name] if is_v1 else name)).write_text(value)
    except OSError as fault:
        with suppress(OSError):
            group.rmdir()
        pytest.skip(f"no control group with a limit of {controller}: {fault}")
    try:
        yield group
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text(), what=f"an empty {group}")
        wait_for(lambda: _is_removed(group), what=f"the end of {group}")


def _is_removed(group: Path) -> bool:
    with suppress(OSError):
        group.rmdir()
    return not group.exists()
