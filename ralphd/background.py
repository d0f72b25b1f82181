"""Run the daemon detached from a terminal, or as pid 1 of a container."""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

READY = b"ready\n"
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def detach(run: Callable[[Callable[[], None]], int]) -> int:
    """Run in the background; return in the caller when ``run`` has said that it is ready, or has ended.

    The answer is the exit code for the caller: 0 when the daemon is ready, else what ``run`` answered; what
    it prints on stderr until then reaches the caller's. Called before any thread or event loop exists.
    """
    heard, said = os.pipe()
    if (detaching := os.fork()) != 0:
        os.close(said)
        code = _await_word(heard)
        os.waitpid(detaching, 0)  # it has long ended: python-daemon forks once more
        return code
    os.close(heard)
    # python-daemon closes every descriptor it is not told to keep.
    from daemon import DaemonContext

    word = os.dup(2)
    with DaemonContext(
        detach_process=True, umask=0o077, prevent_core=False, files_preserve=[said, word], signal_map={}
    ):
        # python-daemon leaves the terminal's stop signals ignored, and runs inherit what is ignored.
        for number in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(word, 2)
        os.close(word)

        def ready() -> None:
            nonlocal said
            os.write(said, READY)
            os.close(said)
            said = -1
            # From now on nobody reads what is printed; the log has it all.
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(null, stream)
            os.close(null)

        code = run(ready)
        if said >= 0:
            os.write(said, b"%d\n" % code)
    os._exit(code)


def _await_word(heard: int) -> int:
    with os.fdopen(heard, "rb") as pipe:
        word = pipe.read()
    if word == READY:
        return 0
    with suppress(ValueError):
        return int(word)
    sys.stderr.write("ralphd: it ended before it was ready, without a word\n")
    return 1


def as_init_where_needed(run: Callable[[], int]) -> int:
    """Run here; as pid 1 run in a process below, pass signals on and reap strangers, as an init has to.

    A process of its own does it, since reaping every child takes exit statuses away from other code.
    """
    return run() if os.getpid() != 1 else as_init(run)


def as_init(run: Callable[[], int]) -> int:
    """Be an init for ``run``: the answer is its exit code, 128 + n when signal n ended it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        os._exit(run())
    for number in _PASSED_ON:
        signal.signal(number, lambda got, _: os.kill(child, got))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
