"""What the daemon changes of its own process at its start."""

import subprocess
import sys
from pathlib import Path

import pytest

THREADS = 8
PROGRAM = f"""
import re, sys, threading
from pathlib import Path
from ralphd.process.machine import share_freed_memory
if sys.argv[1] == "shared":
    share_freed_memory()
there, kept = threading.Barrier({THREADS} + 1), []
def allocate():
    kept.append(bytearray(50_000))
    there.wait()
for _ in range({THREADS}):
    threading.Thread(target=allocate).start()
there.wait()
ranges = re.findall("^([0-9a-f]+)-.* 0 *$", Path("/proc/self/maps").read_text(), re.MULTILINE)
print(sum(int(begin, 16) % (1 << 26) == 0 for begin in ranges))
"""
"""Prints how many mappings begin where glibc begins an arena of a thread, at a multiple of 64 MiB."""
PLAIN = "from ralphd.api.schemas import StatusView; print(StatusView.__pydantic_complete__)"


def arenas(how: str) -> int:
    words = [sys.executable, "-c", PROGRAM, how]
    return int(subprocess.run(words, capture_output=True, check=True, timeout=60).stdout)


def test_threads_share_one_arena() -> None:
    assert arenas("shared") == 0
    assert arenas("own") > 0


@pytest.mark.parametrize("module", ["ralphd", "ralphd.loop"])
def test_daemon_and_loop_ask_for_one_arena_before_any_thread(module: str, tmp_path: Path) -> None:
    """Each is ended at this call, and does nothing else."""
    watched = f"""
import runpy, sys
from ralphd.process import machine
machine.share_freed_memory = lambda: sys.exit("asked")
sys.argv = ["x", *sys.argv[1:]]
runpy.run_module("{module}", run_name="__main__")
"""
    environment = {"RALPHD_STATE_DIR": str(tmp_path / "s"), "RALPHD_SOCKET": str(tmp_path / "socket")}
    words = [sys.executable, "-c", watched]
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert done.stderr.endswith(b"asked\n"), done.stderr


def test_a_model_of_the_api_is_built_when_it_is_first_used() -> None:
    words = [sys.executable, "-c", PLAIN]
    assert subprocess.run(words, capture_output=True, check=True, timeout=60).stdout == b"False\n"


def test_freed_memory_is_returned() -> None:
    """A block that stays at the end keeps the C library from returning what is free below it."""
    words = [sys.executable, "-c", FREES]
    kept, returned = map(
        int, subprocess.run(words, capture_output=True, check=True, timeout=60).stdout.split()
    )
    assert kept - returned > 10_000


FREES = """
import ctypes
from pathlib import Path
from ralphd.process.machine import return_freed_memory, share_freed_memory
def resident_kb():
    return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0])
share_freed_memory()
blocks = [b"x" * 20_000 for _ in range(1_000)]
del blocks[:-1]
print(resident_kb())
return_freed_memory()
print(resident_kb())
"""
"""Prints the resident memory in kB before and after."""
