"""What a command and the daemon that answers it take together."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Final

from tests.bench.measure import cpu_s, wait_until
from tests.bench.ours import RALPHCTL, Daemon
from tests.bench.unix_http import ask

ROUNDS: Final = 5
UP_S: Final = 60.0
START_S: Final = 300.0


def ctl_ms(daemon: Daemon, *words: str, rounds: int = ROUNDS, alone: bool = False) -> list[float]:
    """Return the CPU milliseconds of ``ralphctl`` and, unless ``alone``, of the daemon, once per round.

    Raise RuntimeError where it fails.
    """
    return [spent[0] * 1e3 for spent in (_ctl(daemon, words, alone=alone) for _ in range(rounds))]


def ctl_mb(daemon: Daemon, *words: str) -> float:
    """Return the resident memory of ``ralphctl`` at its most, in megabytes."""
    return _ctl(daemon, words, alone=True)[1]


def _ctl(daemon: Daemon, words: Sequence[str], *, alone: bool) -> tuple[float, float]:
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1)]
    before = 0.0 if alone else cpu_s(daemon.pid)
    pid = os.posix_spawn(RALPHCTL, [str(RALPHCTL), *words], daemon.environment, file_actions=null)
    _, status, usage = os.wait4(pid, 0)
    after = 0.0 if alone else cpu_s(daemon.pid)
    if (code := os.waitstatus_to_exitcode(status)) != 0:
        raise RuntimeError(f"ralphctl {' '.join(words)}: exit {code}")
    return usage.ru_utime + usage.ru_stime + after - before, usage.ru_maxrss * 1024 / 1e6


def api_ms(daemon: Daemon, target: str, *, rounds: int = ROUNDS, each: int = 20) -> list[float]:
    """Return the daemon's CPU milliseconds for one request, once per round of ``each`` requests."""

    def batch() -> None:
        for _ in range(each):
            ask(daemon.socket, "GET", target, None, "")

    return [daemon_ms(daemon, batch) / each for _ in range(rounds)]


def daemon_ms(daemon: Daemon, act: Callable[[], object]) -> float:
    """Return the daemon's CPU milliseconds while ``act`` runs."""
    before = cpu_s(daemon.pid)
    act()
    return (cpu_s(daemon.pid) - before) * 1e3


def idle_ms(daemon: Daemon, window_s: float, also: Sequence[int] = ()) -> float:
    """Return the CPU milliseconds per minute of the daemon, and of others, while nothing is asked."""
    pids = (daemon.pid, *also)
    begun, before = time.monotonic(), sum(map(cpu_s, pids))
    time.sleep(window_s)
    return (sum(map(cpu_s, pids)) - before) * 60_000 / (time.monotonic() - begun)


def start_ms(daemon: Daemon, is_ready: Callable[[], bool] = lambda: True) -> float:
    """Start a daemon and wait until ``is_ready``; return its CPU milliseconds until then."""
    daemon.start(limit_s=START_S)
    while not is_ready():
        time.sleep(0.05)
    return cpu_s(daemon.pid) * 1e3


def await_state(daemon: Daemon, name: str, state: str) -> None:
    """Wait until a ralph is in that state."""

    def is_there() -> bool:
        return str(daemon.ask("GET", f"/v1/ralphs/{name}")["state"]) == state

    wait_until(is_there, limit_s=UP_S, what=f"{name} {state}", pause_s=0.05)
