"""What happens to a daemon, its shims and its runs in a soak. The order is the seed's; the timing is not."""

import http.client
import os
import random
import select
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.helpers import wait_for
from tests.soak.cast import Member
from tests.whole.harness import Daemon
from tests.whole.person import Person

ENDED_S, READY_S = 20.0, 180.0
CONFIGURATION = "[logs]\nrun_bytes = {run_bytes}\ntotal_bytes = {total_bytes}\n"
RUN_BYTES, TOTAL_BYTES = 1 << 20, 32 << 20
REQUESTS = (
    b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/events?replay=1000 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/ralphs/{name}/logs?follow=true HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/ralphs/{name}/logs?follow=true&tail=all HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/status?resources=true HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /v1/ralphs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{",
    b"GET /v1/st",
    b"",
)
"""What clients send that then vanish: whole requests, halves, nothing."""
OF_THE_DAEMON = ("kill_daemon", "restart_daemon")
MOST = (
    *("kill_shim", "kill_shim", "kill_run", "kill_run", "stop_daemon", "stop_shim", "stop_run", "stop_run"),
    *("reload", "reload_ralph", "vanish", "vanish", "vanish", "follow", "stop_start", "pause_resume"),
)


class Faults:
    """One fault after the other. ``done`` counts them, ``problems`` are what they should not have met.

    ``full`` is a directory on the file system of the state directory that may be filled; None: it is not.
    """

    def __init__(
        self, daemon: Daemon, members: Sequence[Member], seed: int, full: Path | None = None
    ) -> None:
        self.daemon, self.members, self.rng, self.full = daemon, members, random.Random(seed), full
        self.done, self.problems = Counter[str](), list[str]()
        self.starts_at = list[float]()
        self._timers = list[threading.Timer]()

    def one(self, *, spare_daemon: bool, most_s: float = 5.0) -> None:
        """Have one fault happen. ``spare_daemon``: the daemon stays the same process."""
        names = MOST + (() if spare_daemon else OF_THE_DAEMON) + (("fill",) if self.full else ())
        name = self.rng.choice(names)
        lasts_s = self.rng.uniform(0.2, most_s)
        act: Callable[[float], None] = getattr(self, f"_{name}")
        try:
            act(lasts_s)
            self.done[name] += 1
        except (OSError, http.client.HTTPException) as fault:  # the daemon is stopped, or gone at this moment
            self.done[f"{name}: no answer ({type(fault).__name__})"] += 1

    def settle(self) -> None:
        """Wait until everything that was stopped runs again."""
        for timer in self._timers:
            timer.join()
        self._timers.clear()

    # --- the daemon -------------------------------------------------------------------------------------

    @property
    def daemon_pid(self) -> int:
        """The pid that the state directory names: ``ralphctl`` starts daemons too."""
        return int((self.daemon.state / "lock").read_text())

    def _kill_daemon(self, _lasts_s: float) -> None:
        self.settle()
        kill_and_wait(self.daemon_pid)
        self.daemon.start(as_child=True, wait=False)
        self.await_daemon()

    def await_daemon(self) -> None:
        """Wait until the daemon that was started answers; on a machine with other work that takes long."""
        wait_for(self._is_ready, timeout_s=READY_S, what="an answer of the daemon")

    def _is_ready(self) -> bool:
        with suppress(OSError, http.client.HTTPException):
            return self.daemon.api("GET", "/v1/ready").status == 200
        return False

    def _restart_daemon(self, _lasts_s: float) -> None:
        self.settle()
        reply = Person(self.daemon)("regent", "restart", timeout_s=READY_S)
        if reply.returncode:
            self.problems.append(f"regent restart: {reply}")

    def _stop_daemon(self, lasts_s: float) -> None:
        self._stopped(self.daemon_pid, lasts_s)

    # --- shims and runs ---------------------------------------------------------------------------------

    def _pids(self) -> tuple[int, int] | None:
        """Return shim and command of a run that lives; None if that of the chosen ralph does not."""
        name = self.rng.choice(self.members).name
        try:
            record = self.daemon.run_record(name)
        except (OSError, ValueError, IndexError):
            return None
        over = (self.daemon.run_directories(name)[-1] / "exit.json").exists()
        return None if over or not record.get("pid") else (int(record["shim_pid"]), int(record["pid"]))

    def _kill_shim(self, _lasts_s: float) -> None:
        self._signalled(0, signal.SIGKILL)

    def _kill_run(self, _lasts_s: float) -> None:
        self._signalled(1, signal.SIGKILL)

    def _signalled(self, which: int, number: signal.Signals) -> None:
        if pids := self._pids():
            with suppress(ProcessLookupError):
                os.kill(pids[which], number)

    def _stop_shim(self, lasts_s: float) -> None:
        if pids := self._pids():
            self._stopped(pids[0], lasts_s)

    def _stop_run(self, lasts_s: float) -> None:
        if pids := self._pids():
            self._stopped(pids[1], lasts_s)

    def _stopped(self, pid: int, lasts_s: float) -> None:
        with suppress(ProcessLookupError):
            pinned = os.pidfd_open(pid)
            signal.pidfd_send_signal(pinned, signal.SIGSTOP)
            timer = threading.Timer(lasts_s, _continue, (pinned,))
            self._timers.append(timer)
            timer.start()

    # --- requests and clients ---------------------------------------------------------------------------

    def _reload(self, _lasts_s: float) -> None:
        total = TOTAL_BYTES + self.rng.randrange(1 << 20)
        self.daemon.configure(CONFIGURATION.format(run_bytes=RUN_BYTES, total_bytes=total))
        self._expect(self.daemon.api("POST", "/v1/reload"), "reload")

    def _reload_ralph(self, _lasts_s: float) -> None:
        name = self.rng.choice(self.members).name
        self._expect(self.daemon.api("POST", f"/v1/ralphs/{name}/reload"), f"reload {name}")

    def _stop_start(self, _lasts_s: float) -> None:
        name = self.rng.choice(self.members).name
        now = {"now": self.rng.random() < 0.5}
        self._expect(self.daemon.api("POST", f"/v1/ralphs/{name}/stop", now), f"stop {name}")
        self._expect(self.daemon.api("POST", f"/v1/ralphs/{name}/start"), f"start {name}")

    def _pause_resume(self, _lasts_s: float) -> None:
        name = self.rng.choice(self.members).name
        self._expect(self.daemon.api("POST", f"/v1/ralphs/{name}/pause"), f"pause {name}")
        self._expect(self.daemon.api("POST", f"/v1/ralphs/{name}/resume"), f"resume {name}")

    def _expect(self, reply: object, what: str) -> None:
        status = getattr(reply, "status", 0)
        if status >= 500:
            self.problems.append(f"{what}: {reply}")

    def _vanish(self, _lasts_s: float) -> None:
        """Connect some times, send something, and close without reading all, or any."""
        for _ in range(self.rng.randrange(1, 12)):
            name = self.rng.choice(self.members).name
            with self._connected() as client:
                client.sendall(self.rng.choice(REQUESTS).replace(b"{name}", name.encode()))
                if self.rng.random() < 0.5:
                    select.select([client], [], [], 0.2)
                    client.setblocking(False)
                    with suppress(BlockingIOError):
                        client.recv(self.rng.randrange(1, 4096))

    def _connected(self) -> socket.socket:
        directory = os.open(self.daemon.state, os.O_RDONLY | os.O_DIRECTORY)
        try:
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(ENDED_S)
            client.connect(f"/proc/self/fd/{directory}/ralphd.sock")
        finally:
            os.close(directory)
        return client

    def _follow(self, lasts_s: float) -> None:
        """``ralphctl logs -f``, killed while it reads."""
        name = self.rng.choice(self.members).name
        with Person(self.daemon).watching("logs", "-f", name) as reader:
            assert reader.stdout is not None
            select.select([reader.stdout], [], [], lasts_s)

    # --- the disk ---------------------------------------------------------------------------------------

    def _fill(self, lasts_s: float) -> None:
        assert self.full is not None
        path = self.full / "filler"
        with suppress(OSError), path.open("wb", buffering=0) as file:
            free = os.statvfs(self.full)
            os.posix_fallocate(file.fileno(), 0, max(1, (free.f_bavail - 2) * free.f_frsize))
            while file.write(b"x" * 4096):
                pass
        timer = threading.Timer(lasts_s, path.unlink)
        self._timers.append(timer)
        timer.start()
        timer.join()


def kill_and_wait(pid: int) -> None:
    """End a process by SIGKILL, and wait for its end, whoever its parent is."""
    pinned = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(pinned, signal.SIGKILL)
        wait_for(lambda: select.select([pinned], [], [], 0)[0], timeout_s=ENDED_S, what=f"an end of {pid}")
    finally:
        os.close(pinned)


def _continue(pinned: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pinned, signal.SIGCONT)
    os.close(pinned)
