"""An agent that turns on its supervision: each life plays the next few of ACTS, in an order given by SEED.

It plays only in a pid namespace other than OUTER (the link of the parent's), and is bounded: in memory, in
processes, in output, in time. A life is an iteration: it commits a good file, plays, waits for the verdict,
and ends with a code or by a signal. RECORD/lives has ``RUN_ID END`` of each, RECORD/acts each act,
RECORD/reached each process of others that it could signal or trace, RECORD/answers what ralphd answered.
After the last life it writes RECORD/over and rests.

hostile.py RECORD SEED OUTER
"""

import ctypes
import http.client
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

ACTS_IN_A_LIFE = 3
BYTES, STORM, REST_S = 256 << 20, 40, 300
REQUESTS = (
    ("POST", "/v1/ralphs/{}/stop"), ("POST", "/v1/ralphs/{}/pause"), ("POST", "/v1/ralphs/{}/reload"),
    ("DELETE", "/v1/ralphs/{}"), ("POST", "/v1/shutdown"),
)  # fmt: skip
HOOK = '#!/bin/sh\necho "$0 ${{RALPH_RUN_ID:-nobody}}" >> {}/hooks\n'
PTRACE_SEIZE = 0x4206

record, seed, outer = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if os.readlink("/proc/self/ns/pid") == outer:
    sys.exit("hostile.py plays only in a pid namespace of its own")
state = Path(os.environ["RALPHD_SOCKET"]).parent
name, run_id, mine = os.environ["RALPH_NAME"], os.environ["RALPH_RUN_ID"], os.getpid()


def wrote(file: str, *words: object) -> None:
    with (record / file).open("a") as out:
        print(*words, file=out)


def git(*words: str) -> int:
    return subprocess.run(["git", *words], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT).returncode


def committed(file: str, text: str = "x\n") -> None:
    Path(file).write_text(text)
    git("add", "--", file)
    git("commit", "-q", "--no-verify", "-m", file)


def others() -> list[int]:
    return [
        int(pid) for pid in os.listdir("/proc") if pid.isdigit() and int(pid) not in (1, mine, os.getpid())
    ]


def sent(number: int, *, word: bytes = b"") -> None:
    """Signal every process, or each with this word in its command line."""
    for pid in others():
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if word in command:
                os.kill(pid, number)
                wrote("reached", pid, command)


def all_at_once(number: int) -> None:
    with suppress(OSError):
        os.kill(-1, number)


def trace() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for pid in others():
        if libc.ptrace(PTRACE_SEIZE, pid, None, None) == 0:
            wrote("reached", pid, "traced")
        with suppress(OSError):
            signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGKILL)
            wrote("reached", pid, "pidfd")
        with suppress(OSError):
            os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))
            wrote("reached", pid, "memory")


def in_a_child(play: Callable[[], None]) -> None:
    if not (pid := os.fork()):
        try:
            play()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def storm() -> None:
    """Leave sleepers, each in a session of its own, half of them with an empty environment."""
    for number in range(STORM):
        command = ["sleep", str(REST_S)]
        subprocess.Popen(
            ["setsid", *(["env", "-i"] if number % 2 else []), *command], stdout=subprocess.DEVNULL
        )


def balloon() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    bytearray(BYTES // 2)
    bytearray(BYTES * 2)


def removed(*paths: Path) -> None:
    for path in paths:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def forge() -> None:
    """Rewrite how its runs ended, and what it is, in the files of the state directory."""
    for path in (state / "ralphs" / name / "runs").glob("*/*.json"):
        path.write_text('{"format_version": 1, "code": 0, "signal": null, "dropped_bytes": 1e999}')


def rewrite(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('[regent]\ntest_command = "true"\nrollback_on_test_failure = false\nruns_may = ["all"]\n')


class Connection(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(REST_S)
        self.sock.connect(os.environ["RALPHD_SOCKET"])


def asked(method: str, path: str, body: dict[str, object]) -> int:
    """Return the status of a reply, 0 without one."""
    connection = Connection("ralphd")
    try:
        connection.request(method, path.format(name), json.dumps(body), {"content-type": "application/json"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def report(kind: str, number: int) -> None:
    """Report, again and again while no daemon answers."""
    body = {"run_id": run_id, "id": f"{kind}{number}", "kind": kind, "iteration": number}
    wait_until = time.monotonic() + REST_S
    while asked("POST", "/v1/ralphs/{}/reports", body) in (0, 503) and time.monotonic() < wait_until:
        time.sleep(0.05)


def ask() -> None:
    """Stop, pause, reload, remove: by the socket, and by ralphctl in a disguise."""
    report("heartbeat", 0)  # until the daemon is there: the socket may have been removed
    for method, path in REQUESTS:
        wrote("answers", asked(method, path, {}))
    words = (str(state / "bin" / "ralphctl"), "--socket", os.environ["RALPHD_SOCKET"], "stop", name)
    done = subprocess.run(["env", "-i", *words], capture_output=True, text=True)
    wrote("answers", f"ralphctl {done.returncode} {done.stderr}".partition("\n")[0])


def new_repository() -> None:
    removed(Path(".git"))
    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-q", "-m", "fresh")


def reset() -> None:
    git("reset", "-q", "--hard", "HEAD~2")
    git("reflog", "expire", "--expire=now", "--all")
    git("gc", "-q", "--prune=now")


def weaken() -> None:
    Path("run-tests").write_text("exit 0\n")
    git("add", "run-tests")
    committed("broken")


def plant() -> None:
    for hook in ("post-commit", "post-checkout", "reference-transaction", "pre-push"):
        path = Path(".git/hooks") / hook
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HOOK.format(record))
        path.chmod(0o755)
    git("config", "core.fsmonitor", str(Path(".git/hooks/post-commit").resolve()))


ACTS: dict[str, Callable[[], object]] = {
    "kill -1": lambda: all_at_once(signal.SIGKILL),
    "stop -1": lambda: all_at_once(signal.SIGSTOP),
    "kill each": lambda: sent(signal.SIGKILL),
    "kill ralphd by name": lambda: sent(signal.SIGTERM, word=b"ralphd"),
    "stop each": lambda: sent(signal.SIGSTOP),
    "trace": lambda: in_a_child(trace),
    "storm": storm,
    "balloon": lambda: in_a_child(balloon),
    "flood": lambda: [os.write(1, b"flood " * 10_000) for _ in range(300)],
    "remove .ralph": lambda: removed(Path(".ralph")),
    "remove the state": lambda: removed(state / "ralphs" / name),
    "remove the socket": lambda: removed(Path(os.environ["RALPHD_SOCKET"]), state / "lock"),
    "forge ends": forge,
    "rewrite ralph.toml": lambda: rewrite(Path("ralph.toml")),
    "rewrite the user's file": lambda: rewrite(record.parent / "config" / "ralph" / "config.toml"),
    "rewrite the history": lambda: (state / "ralphs" / name / "history.jsonl").write_text("{}\n"),
    "ask": ask,
    "remove .git": lambda: removed(Path(".git")),
    "git garbage": lambda: [Path(".git", each).write_text("garbage\n") for each in ("HEAD", "index")],
    "new repository": new_repository,
    "reset": reset,
    "weaken": weaken,
    "plant hooks": plant,
    "remove .env.local": lambda: removed(Path(".env.local")),
}  # fmt: skip


def main() -> None:
    order = sorted(ACTS)
    random.Random(seed).shuffle(order)
    lives = len((record / "lives").read_text().splitlines()) if (record / "lives").exists() else 0
    acts = order[lives * ACTS_IN_A_LIFE : (lives + 1) * ACTS_IN_A_LIFE]
    if not acts:
        storm()
        wrote("over", run_id)
        time.sleep(REST_S)
    end = random.Random(f"{seed} {lives}").choice([3, 1, -signal.SIGKILL, -signal.SIGSEGV])
    wrote("lives", run_id, end)
    report("iteration-started", lives + 1)
    if git("ls-files", "--error-unmatch", "broken"):  # left in the work tree, it would make every commit red
        removed(Path("broken"))
        git("checkout", "-q", "HEAD", "--", "run-tests")
    committed(f"good-{lives}")
    for act in acts:
        try:
            ACTS[act]()
            wrote("acts", run_id, act)
        except OSError as error:
            wrote("acts", run_id, act, error)
    report("iteration-finished", lives + 1)
    if end < 0:
        os.kill(os.getpid(), -end)
    sys.exit(end)


if __name__ == "__main__":
    main()
