"""An agent that tries to reach its supervision: ``escapist.py JSON``; that names escapes, victims and paths.

Each escape is a function of its name. It runs in a process of its own and raises OSError where the kernel
refuses; then ``NAME reached`` is printed, or ``NAME`` with the error. The test looks at the victims itself.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

at: dict[str, Any] = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
KILLER = "import os,sys; os.kill(int(sys.argv[1]), 9)"


def checked(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def victim(name: str) -> int:
    return int(at["victims"][name])


def stack(pid: int) -> int:
    with open(f"/proc/{pid}/maps") as maps:
        line = next(line for line in maps if line.rstrip().endswith("[stack]"))
    return int(line.partition("-")[2].split()[0], 16) - 64


def kill_daemon() -> None:
    os.kill(victim("kill_daemon"), signal.SIGKILL)


def kill_sibling() -> None:
    os.kill(at["sibling"], signal.SIGKILL)


def kill_loop() -> None:
    loop = os.fork()
    if loop == 0:
        time.sleep(30)
        os._exit(0)
    level, code = os.environ.get("RALPH_SANDBOX", ""), at["become"]
    words = [str(os.getpid()), "2", "", level, "", sys.executable, "-c", KILLER, str(loop)]
    agent = subprocess.run(
        [sys.executable, "-I", "-S", "-E", "-c", code, at["shim"], *words], stderr=subprocess.DEVNULL
    )
    if agent.returncode != 0:
        os.kill(loop, signal.SIGKILL)
        raise PermissionError
    status = os.waitpid(loop, 0)[1]
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def signal_by_pidfd() -> None:
    signal.pidfd_send_signal(os.pidfd_open(victim("signal_by_pidfd")), signal.SIGKILL)


def signal_a_thread() -> None:
    pid = victim("signal_a_thread")
    checked(libc.tgkill(pid, pid, signal.SIGKILL))


def signal_from_a_new_session() -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-c", KILLER, str(victim("signal_from_a_new_session"))])
        os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
    os.wait()


def signal_from_a_memory_file() -> None:
    with open(sys.executable, "rb") as program:
        memory = os.memfd_create("copy")
        os.sendfile(memory, program.fileno(), 0, os.fstat(program.fileno()).st_size)
    os.execv(
        f"/proc/self/fd/{memory}", [sys.executable, "-c", KILLER, str(victim("signal_from_a_memory_file"))]
    )


def trace() -> None:
    checked(libc.ptrace(0x4206, victim("trace"), None, None))


def write_memory_file() -> None:
    pid = victim("write_memory_file")
    with open(f"/proc/{pid}/mem", "rb+", buffering=0) as memory:
        memory.seek(stack(pid))
        memory.write(b"\0")


def write_memory_by_call() -> None:
    class Piece(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))

    pid, text = victim("write_memory_by_call"), ctypes.create_string_buffer(1)
    here, there = Piece(ctypes.addressof(text), 1), Piece(stack(pid), 1)
    checked(libc.process_vm_writev(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0))


def connect_to_an_abstract_socket() -> None:
    socket.socket(socket.AF_UNIX).connect("\0" + at["abstract"])


def connect_to_the_users_bus() -> None:
    socket.socket(socket.AF_UNIX).connect(at["sockets"]["connect_to_the_users_bus"])


def connect_to_docker() -> None:
    socket.socket(socket.AF_UNIX).connect(at["sockets"]["connect_to_docker"])


def connect_to_tmux() -> None:
    socket.socket(socket.AF_UNIX).connect(at["sockets"]["connect_to_tmux"])


def state(name: str) -> str:
    return os.path.join(at["state"], name)


def write_state() -> None:
    with open(state("new"), "w"):
        pass


def rename_into_state() -> None:
    with open("renamed", "w"):
        pass
    os.rename("renamed", state("renamed"))


def link_into_state() -> None:
    with open("linked", "w"):
        pass
    os.link("linked", state("linked"))


def symlink_into_state() -> None:
    os.symlink("/etc/passwd", state("symlink"))


def truncate_state() -> None:
    os.truncate(state("truncated"), 0)


def remove_the_socket() -> None:
    os.unlink(state("d.sock"))


def replace_a_definition() -> None:
    with open("ralph.json", "w"):
        pass
    os.replace("ralph.json", state("ralph.json"))


def change_the_mode_of_state() -> None:
    os.chmod(state("mode"), 0o777)


def change_the_times_of_state() -> None:
    os.utime(state("times"), (1, 1))


def write_bashrc() -> None:
    with open(os.path.join(at["home"], ".bashrc"), "a") as file:
        file.write("echo owned\n")


def write_outside() -> None:
    with open(os.path.join(at["outside"], "new"), "w"):
        pass


def make_a_disk() -> None:
    os.mknod("null", 0o20600, os.makedev(1, 3))
    with open("null", "w") as disk:
        disk.write("x")


def mount_the_state() -> None:
    os.makedirs("mounted", exist_ok=True)
    script = 'mount --bind "$1" mounted && touch mounted/bound'
    subprocess.run(["unshare", "-rm", "sh", "-c", script, "sh", at["state"]], stderr=subprocess.DEVNULL)


def plant_a_hook() -> None:
    os.makedirs(".git/hooks", exist_ok=True)
    with open(".git/hooks/pre-commit", "w") as hook:
        hook.write("#!/bin/sh\n")


def plant_a_file_watcher() -> None:
    with open(".git/config", "a") as config:
        config.write("[core]\n\tfsmonitor = /bin/false\n")


def plant_a_link() -> None:
    os.symlink(at["secret"], "planted")


def forge_the_signpost() -> None:
    os.makedirs(".ralph", exist_ok=True)
    with open(".ralph/lock", "w") as lock:
        json.dump({"socket": at["sockets"]["connect_to_docker"], "pid": os.getppid()}, lock)


def kill_shim() -> None:
    os.kill(at["shim_pid"], signal.SIGKILL)
    time.sleep(5)


def attempt(name: str) -> None:
    pid = os.fork()
    if pid == 0:
        signal.alarm(5)
        code = 1
        try:
            globals()[name]()
            print(name, "reached", flush=True)
            code = 0
        except OSError as fault:
            print(name, os.strerror(fault.errno or 1), flush=True)
        os._exit(code)
    os.waitpid(pid, 0)


if __name__ == "__main__":
    until = time.monotonic() + 10
    while not os.path.exists("shim") and time.monotonic() < until:
        time.sleep(0.005)
    with open("shim") as file:
        at["shim_pid"] = int(file.read())
    for each in at["escapes"]:
        attempt(each)
