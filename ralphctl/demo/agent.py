"""A stand-in for a coding agent: does the task that its prompt names, ticks it, commits; and fails at times.

It is a program of its own, started by the loop as any agent is: the prompt comes on stdin, what it prints is
its answer, and it knows nothing of the loop. It fails on those calls where the scene wants it to.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

PLAN = Path("prd.json")
CALLS = Path(os.environ["HOME"]) / "calls"  # one line a call, of both agents
RATE_LIMITED, KILLED, USED_UP = 2, 4, 6
WORK_S = 0.1


def main() -> int:
    """One call."""
    prompt, call = sys.stdin.read(), _count_call()
    if call == RATE_LIMITED:
        print("API Error: 429 Too Many Requests. Please try again in 2s.")
        return 1
    if call == USED_UP:
        print("You've hit your usage limit. Try again in 3 hours 10 minutes.")
        return 1
    found = re.search(r"^## Task\n+(\S+): (.*)$", prompt, re.MULTILINE)
    if found is None:
        print("There is no task in my prompt.", file=sys.stderr)
        return 2
    _work(found[1], found[2], half=call == KILLED)
    return 0


def _count_call() -> int:
    with CALLS.open("a+") as calls:
        calls.write("call\n")
        calls.seek(0)
        return len(calls.readlines())


def _work(task: str, title: str, *, half: bool) -> None:
    print(f"I am at work on {task}: {title}.", flush=True)
    time.sleep(WORK_S)
    Path(f"{task}.md").write_text(f"# {title}\n")
    if half:  # as by the kernel when memory is short: nothing is committed, nothing is said
        os.kill(os.getpid(), signal.SIGKILL)
    plan = json.loads(PLAN.read_text())
    for story in plan["userStories"]:
        story["passes"] = story["passes"] or story["id"] == task
    PLAN.write_text(json.dumps(plan, indent=2) + "\n")
    subprocess.run(["git", "add", "--all"], check=True, timeout=20)
    subprocess.run(["git", "commit", "--quiet", "--message", f"{task}: {title}"], check=True, timeout=20)
    print(f"{task} is done, ticked and committed.")


if __name__ == "__main__":
    raise SystemExit(main())
