"""What this machine can do at best, in the same run as the rows: the bare work without a supervisor."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.bench.measure import median, pss_mb, rss_mb, wait_until, whole_process
from tests.bench.unix_http import ask_often

_READ_BYTES = 1 << 16
_ANSWER_S = 20.0
BARE = [sys.executable, "-I", "-S", "-E", "-c"]
ROUTE = """
import sys, fastapi, uvicorn
app, body = fastapi.FastAPI(), b"x" * int(sys.argv[2])
@app.get("/")
async def route() -> fastapi.Response:
    return fastapi.Response(body)
uvicorn.run(app, uds=sys.argv[1], log_level="warning", access_log=False)
"""
LOADED = [sys.executable, "-c", "import fastapi, uvicorn, sys; print(1, flush=True); sys.stdin.read()"]


def respawn_s(command: Sequence[str], heard: Callable[[], float]) -> float:
    """The time between two lives of a command, as ``heard``, in a loop that only starts it and waits."""
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        while True:
            os.waitpid(os.posix_spawn(command[0], list(command), {"PATH": os.environ["PATH"]}), 0)
    try:
        return heard()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # with what it has just started
        _end(pid)


def pumped_s(command: Sequence[str], go: Callable[[], object], into: Path) -> float:
    """The CPU that it takes to read a command's output, 64 KiB at a time, and write it to a file."""
    descriptor = os.open(into, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        go()
        before = time.thread_time()
        while select.select([process.stdout], [], [], 2.0)[0]:
            data = os.read(process.stdout.fileno(), _READ_BYTES)
            if not data:
                break
            os.write(descriptor, data)
        return time.thread_time() - before
    finally:
        process.kill()
        process.communicate()
        os.close(descriptor)
        into.unlink()


def canned_s(path: Path, body_bytes: int, count: int) -> Sequence[float]:
    """The seconds that answers of this size take from a server that has them ready."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                _serve(listener, body_bytes)
            os._exit(0)
    try:
        return ask_often(str(path), "GET", "/", b"", count)
    finally:
        _end(pid)
        path.unlink()


def route_s(path: Path, body_bytes: int, count: int) -> Sequence[float]:
    """The same from a FastAPI route that has them ready, on uvicorn."""
    process = subprocess.Popen([sys.executable, "-c", ROUTE, str(path), str(body_bytes)])
    try:
        wait_until(lambda: _listens(path), limit_s=_ANSWER_S, what="FastAPI alone")
        return ask_often(str(path), "GET", "/", b"", count)
    finally:
        process.kill()
        process.wait()
        path.unlink(missing_ok=True)


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as link:
        return link.connect_ex(str(path)) == 0


def _serve(listener: socket.socket, body_bytes: int) -> None:
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % body_bytes + b"x" * body_bytes
    link, _ = listener.accept()
    link.settimeout(_ANSWER_S)
    while link.recv(65536):
        link.sendall(reply)


def interpreter_s() -> float:
    """A Python that does nothing, from its start to its end."""
    return whole_process([*BARE, "pass"], {}).wall_s


@contextlib.contextmanager
def _said(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has said something, and waits."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            if not select.select([process.stdout], [], [], _ANSWER_S)[0]:
                raise TimeoutError(f"{command[-1]}: said nothing")
            yield process
        finally:
            process.kill()


def loaded_s() -> float:
    """A Python until it has FastAPI and uvicorn loaded."""
    begun = time.perf_counter()
    with _said(LOADED):
        return time.perf_counter() - begun


def loaded_mb() -> float:
    """Its RSS."""
    with _said(LOADED) as process:
        return rss_mb(process.pid)


def interpreter_mb() -> float:
    """The PSS of a Python that waits, beside others of its kind."""
    command = [*BARE, "import sys; print(1, flush=True); sys.stdin.read()"]
    with _said(command), _said(command), _said(command) as process:
        return pss_mb(process.pid)


def middle(measure: Callable[[], float], rounds: int = 3) -> float:
    """The median of some rounds."""
    return median([measure() for _ in range(rounds)])


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
