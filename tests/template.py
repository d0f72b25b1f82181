"""Our programs as forks of one interpreter that has loaded them: the same code without seconds of imports.

The template is a process of its own with one thread and no event loop. It is handed words, an environment, a
directory and descriptors for all output, forks, and the child runs what ``python -m PROGRAM WORDS`` would.
/proc shows words and environment of the child as after an exec. What an interpreter itself reads at its start
(its own variables, the locale) is the template's: ``Template.suits`` says who may be forked.
"""

import array
import atexit
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO

_ROOT = Path(__file__).parents[1]
_REQUEST_BYTES = 1 << 16
_ANSWER_S = 60.0
_LOCALE = "C.UTF-8"
EXECUTE = "RALPHD_TESTS_EXECUTE"
"""Set in the environment of the tests, each fork executes a new interpreter: slow, and nothing is shared."""
CLOCK = "RALPHD_TESTS_CLOCK"
"""Set in the environment of a ``ralphctl``, its clock stands there: seconds since 1970."""
_time = time.time
_SHOWN_WORDS, _SHOWN_VARIABLES = 1 << 12, 1 << 15
"""The room that the template has, in bytes, for what /proc shows of its forks."""

PROGRAMS = {
    "ralphd": ("ralphd.__main__", "main"),
    "ralphd.loop": ("ralphd.loop.__main__", "main"),
    "ralphctl": ("ralphctl.main", "main"),
}


class Forked:
    """One forked process, with what the tests use of ``subprocess.Popen``; ``stdout`` where it is piped."""

    def __init__(self, ends: socket.socket) -> None:
        self._ends = ends
        answer, descriptors, _, _ = socket.recv_fds(ends, _REQUEST_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        assert answer, "the template has ended"
        self.pid: int = json.loads(answer)
        self.returncode: int | None = None
        self.stdout: TextIO | None = None
        (self._pidfd,) = descriptors

    def poll(self) -> int | None:
        """Its exit code, a signal as a negative number; None while it lives."""
        if self.returncode is None and select.select([self._ends], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The same, once it has ended. Raises TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._ends], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float) -> tuple[str, None]:
        """What is left in its piped output, once that has been closed, and the process has ended."""
        assert self.stdout is not None
        with self.stdout as pipe:
            text = read_all([pipe.fileno()], timeout)[0].decode(errors="replace")
        self.wait(timeout)
        return text, None

    def send_signal(self, number: int) -> None:
        """Send it a signal; nothing where it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        """End it as a power cut would."""
        self.send_signal(signal.SIGKILL)

    def _end(self) -> None:
        self.returncode = json.loads(self._ends.recv(_REQUEST_BYTES))
        self._ends.close()
        os.close(self._pidfd)


class Template:
    """The loaded interpreter, one for all tests of this process; it ends with it."""

    _present: "Template | None" = None

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        kept = {name: value for name in ("PATH", "PYTHONPATH", EXECUTE) if (value := os.environ.get(name))}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.template", str(theirs.fileno()), " " * _SHOWN_WORDS],
                cwd=_ROOT,
                env=kept | {"LANG": _LOCALE, "ROOM": " " * _SHOWN_VARIABLES},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._close)

    @classmethod
    def present(cls) -> "Template":
        """The one that is there, or a new one."""
        if cls._present is None:
            cls._present = cls()
        return cls._present

    @staticmethod
    def suits(words: Sequence[str], environment: Mapping[str, str]) -> bool:
        """Whether a fork cannot be told from a program that was started anew with these."""
        said = {name for name in environment if name.startswith(("PYTHON", "LC_", "LANG"))}
        return (
            said <= {"LANG", "PYTHONPATH"}
            and environment.get("PYTHONPATH") == os.environ.get("PYTHONPATH")
            and environment.get("LANG", _LOCALE) in (_LOCALE, os.environ.get("LANG"))
            and sum(map(len, words)) < _SHOWN_WORDS // 2
            and len(json.dumps(dict(environment))) < _SHOWN_VARIABLES
        )

    def start(
        self,
        program: str,
        words: Sequence[str],
        environment: Mapping[str, str],
        directory: Path,
        *,
        output: int,
        errors: int,
        new_session: bool = False,
    ) -> Forked:
        """``python -m PROGRAM WORDS``, the child of the template, with nothing to read."""
        request = {
            "program": program,
            "words": list(words),
            "environment": dict(environment),
            "directory": str(directory),
            "new_session": new_session,
        }
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(_ANSWER_S)
        with theirs:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [output, errors, theirs.fileno()])
        return Forked(ours)

    def piped(
        self, program: str, words: Sequence[str], environment: Mapping[str, str], directory: Path
    ) -> Forked:
        """The same in a session of its own, with a pipe for all that it prints."""
        reading, writing = os.pipe()
        with open(writing, "wb") as its:
            forked = self.start(
                program,
                words,
                environment,
                directory,
                output=its.fileno(),
                errors=its.fileno(),
                new_session=True,
            )
        forked.stdout = open(reading, errors="replace", encoding="utf-8")  # noqa: SIM115 - closed by the caller
        return forked

    def run(
        self,
        program: str,
        words: Sequence[str],
        environment: Mapping[str, str],
        directory: Path,
        timeout_s: float,
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end, as ``subprocess.run`` does."""
        (output, its_output), (errors, its_errors) = os.pipe(), os.pipe()
        with open(output, "rb"), open(errors, "rb"):
            with open(its_output, "wb"), open(its_errors, "wb"):
                forked = self.start(
                    program, words, environment, directory, output=its_output, errors=its_errors
                )
            try:
                out, err = read_all([output, errors], timeout_s)
                code = forked.wait(timeout_s)
            finally:
                forked.kill()
                forked.wait(_ANSWER_S)
        return subprocess.CompletedProcess([program, *words], code, _text(out), _text(err))

    def _close(self) -> None:
        self._socket.close()
        self._process.wait(_ANSWER_S)


def ralphctl(
    words: Sequence[str], environment: Mapping[str, str], directory: Path, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """``ralphctl WORDS``, run to its end: a fork of the template, where it could not be told from another."""
    if Template.suits(words, environment):
        return Template.present().run("ralphctl", words, environment, directory, timeout_s)
    return subprocess.run(
        command("ralphctl", words, environment),
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


def command(program: str, words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """What executes it in a new interpreter."""
    if program == "ralphctl" and CLOCK in environment:
        clock = f"import sys, time; time.time = lambda: {float(environment[CLOCK])}"
        main = "from ralphctl.main import main; sys.exit(main())"
        return [sys.executable, "-P", "-c", f"{clock}; {main}", *words]
    return [sys.executable, "-P", "-m", program, *words]


def read_all(ends: Sequence[int], timeout_s: float) -> list[bytes]:
    """What comes from pipes until all of them are closed. Raises TimeoutExpired."""
    found: dict[int, list[bytes]] = {end: [] for end in ends}
    deadline, open_ends = time.monotonic() + timeout_s, set(ends)
    while open_ends:
        ready = select.select(open_ends, [], [], max(0.0, deadline - time.monotonic()))[0]
        if not ready:
            raise subprocess.TimeoutExpired("what was started", timeout_s)
        for end in ready:
            if data := os.read(end, 1 << 16):
                found[end].append(data)
            else:
                open_ends.remove(end)
    return [b"".join(found[end]) for end in ends]


def _text(data: bytes) -> str:
    return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


# --- in the template ------------------------------------------------------------------------------------


def _serve(requests: socket.socket) -> None:
    """Fork for each request, tell each end; over when the other side has gone."""
    loaded: set[str] = set()
    living: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for fd in select.select([requests.fileno(), *living], [], [])[0]:
            if fd != requests.fileno():
                pid, ends = living.pop(fd)
                os.close(fd)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                _tell(ends, code)
                ends.close()
                continue
            data, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 3)
            if not data:
                return
            request = json.loads(data)
            for program in set() if EXECUTE in os.environ else _needed(request) - loaded:
                _load(program)
                loaded.add(program)
            *outputs, answers = descriptors
            if not (pid := os.fork()):
                requests.close()
                for pidfd, (_, ends) in living.items():
                    os.close(pidfd)
                    ends.close()
                os.close(answers)
                _be(request, outputs)
            for output in outputs:
                os.close(output)
            ends, pidfd = socket.socket(fileno=answers), os.pidfd_open(pid)
            living[pidfd] = pid, ends
            _tell(ends, pid, pidfd)


def _tell(ends: socket.socket, number: int, *descriptors: int) -> None:
    with suppress(OSError):  # whoever asked does not listen any more
        message = [json.dumps(number).encode()]
        ends.sendmsg(message, [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))])


def _needed(request: Mapping[str, Any]) -> set[str]:
    """The program, and what it will start itself."""
    starts = request["program"] == "ralphctl" and not {"build", "start", "regent"}.isdisjoint(
        request["words"]
    )
    return {request["program"], *(("ralphd",) if starts else ())}


def _load(program: str) -> None:
    """Import what the program will, at its start and in the course of it."""
    importlib.import_module(PROGRAMS[program][0])
    if program == "ralphd":
        importlib.import_module("ralphd.app")
        importlib.import_module("ralphd.api.app")
        importlib.import_module("ralphd.api.server")
        _make_adapters()
    if program == "ralphctl":
        package = importlib.import_module("ralphctl")
        for module in pkgutil.walk_packages(package.__path__, "ralphctl."):
            if not module.name.endswith("__main__") and not module.name.startswith("ralphctl.demo."):
                importlib.import_module(module.name)
    gc.collect()
    gc.freeze()


def _make_adapters() -> None:
    """Make what a daemon makes with the first file of each kind: a tenth of its time in a test."""
    from ralphd.agents import description
    from ralphd.config import keys
    from ralphd.store.codec import Codec

    description._adapter()
    for section in keys.SPECS:
        for name in keys.keys_of(section):
            keys._adapter(section, name)
    for each in gc.get_objects():
        if isinstance(each, Codec):
            _ = each._adapter


def _be(request: Mapping[str, Any], outputs: Sequence[int]) -> NoReturn:
    """In the fork: become the process that was asked for."""
    for number, output in enumerate(outputs, start=1):
        os.dup2(output, number)
        os.close(output)
    if request["new_session"]:
        os.setsid()
    os.chdir(request["directory"])
    if EXECUTE in os.environ:
        its = command(request["program"], request["words"], request["environment"])
        os.execve(sys.executable, its, request["environment"])
    if request["program"] == "ralphctl":
        subprocess.Popen = _Forking  # type: ignore[assignment, misc]
    _run(request["program"], request["words"], request["environment"])


def _run(program: str, words: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Run a program to the end of this process, as an interpreter would that has just started."""
    code: object = 1
    try:
        _prepare(program, words, environment)
        module, main = PROGRAMS[program]
        sys.exit(getattr(sys.modules[module], main)())
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    threading._shutdown()  # type: ignore[attr-defined]  # as the end of an interpreter does
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _prepare(program: str, words: Sequence[str], environment: Mapping[str, str]) -> None:
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    stands = program == "ralphctl" and CLOCK in environment
    time.time = (lambda: float(environment[CLOCK])) if stands else _time
    _show([sys.executable, "-P", "-m", program, *words], environment)
    sys.argv = [str(sys.modules[PROGRAMS[program][0]].__file__), *words]
    random.seed()
    if failpoint := sys.modules.get("ralphd.diagnostics"):
        importlib.reload(failpoint)  # it reads the environment as it is imported


class _Forking(subprocess.Popen[Any]):
    """In ralphctl, a ralphd that it starts is a fork as well; what else is started is as ever."""

    def __init__(self, args: Any, **options: Any) -> None:
        start = [sys.executable, "-P", "-m", "ralphd"]
        if isinstance(args, list) and args[:4] == start and "ralphd.api.app" in sys.modules:
            kept, environment = set(options.get("pass_fds", ())), dict(options.get("env") or os.environ)
            options["preexec_fn"] = lambda: _instead_of_exec(args[4:], environment, kept)
        super().__init__(args, **options)


def _instead_of_exec(words: Sequence[str], environment: Mapping[str, str], kept: set[int]) -> NoReturn:
    """In the child that would execute ralphd now: have what an exec leaves of a process, and no more."""
    gc.freeze()  # nothing of the parent's is collected, with a descriptor that is somebody else's by then
    atexit._clear()
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.set_wakeup_fd(-1)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            with suppress(OSError):
                os.close(int(name))
    _run("ralphd", words, environment)


def _show(argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Have /proc/PID/cmdline and /proc/PID/environ say these, as they would after an exec."""
    about = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    words_at, words_end, variables_at, variables_end = map(int, about[45:49])  # proc(5), from field 48 on
    variables = [f"{name}={value}" for name, value in environment.items()]
    for texts, at, end in ((argv, words_at, words_end), (variables, variables_at, variables_end)):
        data = "".join(f"{text}\0" for text in texts).encode(errors="surrogateescape")[: end - at - 1]
        ctypes.memset(at, 0, end - at)
        ctypes.memmove(at, data, len(data))


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
