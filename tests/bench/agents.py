"""What the built-in loop is given for agents. Started by path; they end by themselves.

agents.py work RECORD LAST          does the next task of TASKS.md and commits; RECORD gets a line for each
                                    call, with the CPU seconds that the call took. The first and the LAST
                                    call begin when there is a file RECORD.1 or RECORD.LAST
agents.py talk FILE TIMES END       prints FILE so many times, then the line END
"""

import os
import resource
import subprocess
import sys
import time

PATIENCE_S = 60.0


def work(record: str, last: str) -> None:
    sys.stdin.buffer.read()
    number = _lines(record) + 1
    if number in (1, int(last)):
        with open(f"{record}.{number}.here", "w"):
            _await_file(f"{record}.{number}")
    with open("TASKS.md") as file:
        text = file.read()
    with open("TASKS.md", "w") as file:
        file.write(text.replace("- [ ]", "- [x]", 1))
    subprocess.run(["git", "commit", "--quiet", "--all", "--message", f"task {number}"], check=True)
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    with open(record, "a") as file:
        file.write(f"{sum(each.ru_utime + each.ru_stime for each in usages):.6f}\n")
    print(f"Task {number} is done.")


def talk(path: str, times: str, end: str) -> None:
    sys.stdin.buffer.read()
    with open(path, "rb") as file:
        block = file.read()
    for _ in range(int(times)):
        sys.stdout.buffer.write(block)
    sys.stdout.buffer.write(end.encode() + b"\n")


def _lines(path: str) -> int:
    try:
        with open(path) as file:
            return len(file.readlines())
    except FileNotFoundError:
        return 0


def _await_file(path: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.02)


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work(*sys.argv[2:])
    else:
        talk(*sys.argv[2:])
