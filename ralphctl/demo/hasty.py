"""A stand-in for an agent in a hurry: its first try breaks the tests, and it commits that and calls it done.

Told by its prompt that this was reverted, it does it right. A program of its own, like ``agent.py``.
"""

import subprocess
import sys
from pathlib import Path

HASTY = "echo $(($1 + $2 + $3 + $4))  # four numbers\n"  # no number at all is an error in sh
RIGHT = "echo $((${1:-0} + ${2:-0} + ${3:-0} + ${4:-0}))  # up to four numbers\n"
SUBJECTS = {HASTY: "add.sh adds four numbers", RIGHT: "add.sh adds up to four numbers"}
TASKS = Path("TASKS.md")


def main() -> int:
    """One call."""
    script = RIGHT if "Reverted" in sys.stdin.read() else HASTY
    Path("add.sh").write_text(script)
    TASKS.write_text(TASKS.read_text().replace("[ ]", "[x]"))
    # Its own files only: what a person has not committed stays a person's.
    commit = ["git", "commit", "--quiet", "--message", SUBJECTS[script], "add.sh", "TASKS.md"]
    subprocess.run(commit, check=True, timeout=20)
    print("Done and committed.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
