"""A scene of upgrades: ralphs that work all the time, a daemon that is replaced, operations in flight."""

import os
import random
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any

from tests.helpers import is_alive, wait_for
from tests.soak.cast import FLAGS, GATE, Member
from tests.whole.harness import Daemon, View

END_S, STEADY_S = 180.0, 240.0
Ctl = Callable[..., "subprocess.CompletedProcess[str]"]
"""``ctl(*words)`` runs ``ralphctl`` of one version to its end."""
WAYS = ("restart", "restart", "kill", "kill", "leave", "stop")
"""``restart``: `regent restart`. The others end the daemon, and `regent start` starts the next one."""
OPERATIONS = ("stop", "start", "restart", "pause_resume", "none")
SLOW = {**FLAGS, "regent.stop_timeout_seconds": 10}


def cast() -> tuple[Member, ...]:
    """Return the ralphs of a hundred upgrades."""
    always = {**FLAGS, "ralph.restart": "always", "regent.healthy_after_seconds": 1}
    slow_tests = {**FLAGS, **GATE, "regent.test_command": "sleep 0.4; ! test -e broken"}
    return (
        *(Member(f"print-{n}", (0.02 * (n + 1), "print")) for n in range(5)),
        *(Member(f"crash-{n}", (0.05, "crash", 4 + n)) for n in range(3)),
        Member("tree-0", (0.1, "tree", 7)),
        Member("flood-0", (0.1, "flood", 300_000, 8), always),
        Member("op-0", (0.1, "slow", 1.0), SLOW),
        Member("loop-0", rest_s=2),
        Member("gate-0", flags=slow_tests, rest_s=2),
    )


def small_cast() -> tuple[Member, ...]:
    """Return a few, for a short scene."""
    names = ("print-1", "op-0", "loop-0")
    quick = Member("crash-0", (0.05, "crash", 1.0))
    return (quick, *(each for each in cast() if each.name in names))


@dataclass(slots=True)
class Scene:
    """One state directory. ``took_s`` are the seconds until each next daemon answered."""

    daemon: Daemon
    members: Sequence[Member]
    rng: random.Random
    problems: list[str] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    ways: list[str] = field(default_factory=list)
    asked: set[str] = field(default_factory=lambda: {"running"})

    def begin(self, ctl: Ctl) -> None:
        """Start the first daemon, and the ralphs."""
        self._done(ctl("regent", "start"))
        wait_for(self.is_ready, timeout_s=END_S, what="an answer of the first daemon")
        for member in self.members:
            self.daemon.ask("POST", "/v1/ralphs", member.prepared(self.daemon))
        self.is_steady()

    def upgrade(self, ctl: Ctl, way: str = "") -> None:
        """Replace the daemon by that of ``ctl`` while something is being done, and compare the runs."""
        way = way or self.rng.choice(WAYS)
        before = self._lasting()
        with self._in_flight():
            time.sleep(self.rng.uniform(0, 0.15))
            began = time.monotonic()
            if way == "restart":
                self._done(ctl("regent", "restart"))
            else:
                self._end(ctl, way)
                began = time.monotonic()
                self._done(ctl("regent", "start"))
            wait_for(self.is_ready, timeout_s=END_S, what="an answer of the next daemon")
            self.took_s.append(time.monotonic() - began)
            self.ways.append(way)
        after = self._lasting()
        if before != after:
            self.problems.append(f"upgrade {len(self.ways)} ({way}): runs {before} became {after}")
        if gone := [name for name, (_, pid) in after.items() if not is_alive(pid)]:
            self.problems.append(f"upgrade {len(self.ways)} ({way}): {gone} are no longer alive")
        self._operation_holds()

    # --- the daemons ------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return int((self.daemon.state / "lock").read_text())

    def _end(self, ctl: Ctl, way: str) -> None:
        if way == "stop":
            self._done(ctl("regent", "stop", "--leave-runs"))
            return
        pinned = os.pidfd_open(self.pid)
        try:
            signal.pidfd_send_signal(pinned, signal.SIGKILL if way == "kill" else signal.SIGUSR2)
            wait_for(lambda: select.select([pinned], [], [], 0)[0], timeout_s=END_S, what="the daemon's end")
        finally:
            os.close(pinned)

    def _done(self, said: "subprocess.CompletedProcess[str]") -> None:
        # On a machine with other work a daemon starts in more than the 30 s that ralphctl waits.
        assert said.returncode == 0 or "was not ready after" in said.stderr, said

    def is_ready(self) -> bool:
        with suppress(OSError, HTTPException):
            return self.daemon.api("GET", "/v1/ready").status == 200
        return False

    # --- the ralphs -------------------------------------------------------------------------------------

    def _views(self) -> dict[str, View]:
        return {view["name"]: view for view in self.daemon.status()["ralphs"]}

    def _lasting(self) -> dict[str, tuple[str, int]]:
        """Return run and process of the ralphs that nothing ends."""
        return {
            name: (view["run_id"], view["ralph_pid"])
            for name, view in self._views().items()
            if name.startswith(("print-", "loop-"))
        }

    def is_steady(self) -> None:
        """Wait until each ralph that should run does."""
        names = {member.name for member in self.members} - ({"op-0"} if "stopped" in self.asked else set())
        steady = {"running", "waiting_for_retry", "testing"}

        def others() -> list[str]:
            views = self._views()
            return [name for name in names if views[name]["state"] not in steady]

        wait_for(lambda: not others(), timeout_s=STEADY_S, what=f"running ralphs, not {others()}")

    def rest(self) -> None:
        """Stop all ralphs, so that their records no longer change."""
        self.is_steady()
        for member in self.members:
            self.daemon.ask("POST", f"/v1/ralphs/{member.name}/stop", {})

        def busy() -> list[str]:
            return [name for name, view in self._views().items() if view["state"] != "stopped"]

        wait_for(lambda: not busy(), timeout_s=STEADY_S, what=f"an end of {busy()}")

    # --- operations -------------------------------------------------------------------------------------

    def _in_flight(self) -> "_Threads":
        """Send one request, about as the daemon is replaced; what was answered has to hold."""
        name = self.rng.choice(OPERATIONS)
        return _Threads(lambda: self._operate(name))

    def _operate(self, name: str) -> None:
        with suppress(
            OSError, HTTPException, ValueError
        ):  # no daemon at this moment: then nothing was promised
            if name == "pause_resume":
                self.daemon.api("POST", "/v1/ralphs/op-0/pause")
                self.daemon.api("POST", "/v1/ralphs/op-0/resume")
            elif name == "restart":
                self._asks("stop", "stopped")
                self._asks("start", "running")
            elif name != "none":
                self._asks(name, "stopped" if name == "stop" else "running")

    def _asks(self, verb: str, goal: str) -> None:
        self.asked.add(goal)  # without an answer, both are true
        if self.daemon.api("POST", f"/v1/ralphs/op-0/{verb}", {} if verb == "stop" else None).status < 300:
            self.asked = {goal}

    def _operation_holds(self) -> None:
        goal = self._views()["op-0"]["goal"]
        if goal not in self.asked and goal != "paused":
            self.problems.append(
                f"upgrade {len(self.ways)}: op-0 was asked to be {self.asked}, its goal is {goal}"
            )
        self.asked = {goal}
        if goal == "paused":
            self.daemon.ask("POST", "/v1/ralphs/op-0/resume")
            self.asked = {"running"}


class _Threads:
    """A thread that does one thing during a block."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._thread = threading.Thread(target=work)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join()


def rotation(ctls: Sequence[Ctl]) -> Iterator[Ctl]:
    """Yield them in turn, without end."""
    while True:
        yield from ctls
