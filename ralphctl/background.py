"""Starting the daemon in the background, and the pid that says it has ended."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ralphctl import service
from ralphctl.client import Client
from ralphctl.patience import telling
from ralphd.errors import DaemonNotRunning, RalphdError, ShuttingDown

_READY_LIMIT_S = 30.0
COOKIES = ("RALPH_RUN_ID", "RALPH_NAME", "RALPH_ATTEMPT_ID")


class StartFailed(RalphdError):
    """The daemon could not be started; what it printed has been shown."""

    slug = "start-failed"

    def __init__(self, what: str, exit_code: int, **more: str) -> None:
        super().__init__(what, **more)
        self.exit_code = exit_code


def start_daemon(socket: str | None) -> None:
    """Start ``ralphd`` in the background, or its service where one is installed (P4); back when it is ready.

    What it prints goes to our stderr. Raises StartFailed with its exit code (75: another daemon owns the
    state directory); for a service NoSystemd and SystemctlFailed.
    """
    if unit := service.meant_by(os.environ, socket):
        unit.check_there()
        unit.work("start")
        return
    # -P: a `ralphd` or `json.py` in the directory we are in must not be taken for ours.
    command = [sys.executable, "-P", "-m", "ralphd", "--background"]
    try:
        with telling("ralphd to be ready", _READY_LIMIT_S):
            code = subprocess.run(
                command, env=_environment(socket), stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(),
                timeout=_READY_LIMIT_S, check=False,
            ).returncode  # fmt: skip
    except subprocess.TimeoutExpired as fault:
        raise StartFailed(
            f"ralphd was not ready after {_READY_LIMIT_S:g} s", 75, mend="ralphctl regent logs"
        ) from fault
    if code:
        raise StartFailed("ralphd could not be started", code if code > 0 else 1, mend="ralphctl regent logs")


def _environment(socket: str | None) -> dict[str, str]:
    # A daemon that carried a run's cookie would be swept with that run.
    environment = {name: value for name, value in os.environ.items() if name not in COOKIES}
    return environment | ({"RALPHD_SOCKET": os.path.abspath(socket)} if socket else {})  # noqa: PTH100


def ensure(client: Client, socket: str | None, *, tell: Callable[[str], None]) -> None:
    """Have a daemon that answers: start one when there is none, and say so."""
    try:
        client.status()
    except DaemonNotRunning:
        start_daemon(socket)
        tell(f"started ralphd (pid {client.status().value['daemon']['pid']})")


def _may_be_ralphd(pid: int) -> bool:
    """Whether the process that has this pid here can be the daemon. Raises OSError when there is none."""
    return b"ralphd" in Path(f"/proc/{pid}/cmdline").read_bytes()


class Ending:
    """Watches a daemon's process from before it is asked to end, so that its pid cannot be mistaken."""

    def __init__(self, pid: int, client: Client) -> None:
        self._client = client
        self._pidfd: int | None = None
        try:
            if _may_be_ralphd(pid):  # else its pid is one of another namespace: then its silence has to do
                self._pidfd = os.pidfd_open(pid)
        except OSError:
            pass

    def wait(self, timeout_s: float | None) -> bool:
        """Whether it has ended within ``timeout_s`` seconds; None waits for ever."""
        if self._pidfd is not None:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self._answers():
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(0.05)
        return True

    def close(self) -> None:
        """Let go of the process."""
        if self._pidfd is not None:
            os.close(self._pidfd)

    def _answers(self) -> bool:
        try:
            self._client.status()
        except DaemonNotRunning:
            return False
        except ShuttingDown:
            return True
        return True
