"""Daemons as forks of one interpreter that has loaded ralphd already: the same code, 0.7 s of CPU less each.

The template is a process of its own with one thread and no event loop. It is handed an environment, a
directory and a descriptor for all output, forks, and the child runs ``ralphd.__main__.main`` as ``python -m
ralphd`` would. Failpoints are read when ralphd is imported, so a daemon with some is started anew.
"""

import atexit
import gc
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.helpers import wait_for

_REQUEST_BYTES = 1 << 16
_ANSWER_S = 30.0


class Forked:
    """One forked daemon, with what the tests use of ``subprocess.Popen``."""

    def __init__(self, template: "Template", pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._template = template
        self._pidfd = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Its exit code, a signal as a negative number; None while it lives."""
        if self.returncode is None and (code := self._template.ended(self.pid)) is not None:
            self.returncode = code
            os.close(self._pidfd)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """The same, once it has ended."""
        wait_for(lambda: self.poll() is not None, timeout_s=timeout, what=f"an end of the daemon {self.pid}")
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal; nothing where it has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        """End it as a power cut would."""
        self.send_signal(signal.SIGKILL)


class Template:
    """The loaded interpreter, one for all tests of this process; it ends with it."""

    _present: "Template | None" = None

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(_ANSWER_S)
        self._ends: dict[int, int] = {}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.whole.template", str(theirs.fileno())],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._close)

    @classmethod
    def present(cls) -> "Template":
        """The one that is there, or a new one."""
        if cls._present is None:
            cls._present = cls()
        return cls._present

    def daemon(self, environment: Mapping[str, str], directory: Path, output: int) -> Forked:
        """A new daemon, the child of the template, in the foreground."""
        request = json.dumps({"environment": dict(environment), "directory": str(directory)}).encode()
        socket.send_fds(self._socket, [request], [output])
        while "pid" not in (answer := self._answer()):
            pass
        return Forked(self, answer["pid"])

    def ended(self, pid: int) -> int | None:
        """How a daemon has ended; None: it lives."""
        while pid not in self._ends and select.select([self._socket], [], [], 0)[0]:
            self._answer()
        return self._ends.pop(pid, None)

    def _answer(self) -> dict[str, int]:
        answer: dict[str, int] = json.loads(self._socket.recv(_REQUEST_BYTES))
        if "ended" in answer:
            self._ends[answer["ended"]] = answer["code"]
        return answer

    def _close(self) -> None:
        self._socket.close()
        self._process.wait(_ANSWER_S)


def _serve(requests: socket.socket) -> None:
    """Fork a daemon for each request, tell each end; over when the other side has gone."""
    import ralphd.__main__
    import ralphd.api.app
    import ralphd.api.server  # noqa: F401 - what a daemon imports when it starts to serve

    gc.collect()
    gc.freeze()
    living: dict[int, int] = {}
    while True:
        for fd in select.select([requests.fileno(), *living], [], [])[0]:
            if fd == requests.fileno():
                data, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 1)
                if not data:
                    return
                pid = _forked(requests, living, json.loads(data), descriptors[0])
                living[os.pidfd_open(pid)] = pid
                requests.send(json.dumps({"pid": pid}).encode())
            else:
                pid = living.pop(fd)
                os.close(fd)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                requests.send(json.dumps({"ended": pid, "code": code}).encode())


def _forked(
    requests: socket.socket, living: Mapping[int, int], request: Mapping[str, dict[str, str]], output: int
) -> int:
    pid = os.fork()
    if pid:
        os.close(output)
        return pid
    try:
        requests.close()
        for fd in living:
            os.close(fd)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.chdir(str(request["directory"]))
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv = ["ralphd"]
        random.seed()
        ralphd = sys.modules["ralphd.__main__"]
        ralphd.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    else:
        code = 0
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
