"""What the built-in loop finds in its directories: tasks, a prompt, tests, agents that are made up."""

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

TITLES = (
    "say what it is for",
    "say how it is installed",
    "show an example",
    "list what it needs",
    "say who made it",
)
NOTES, NOT_COMMITTED = "notes.txt", "Buy milk.\n"
HASTY_SUBJECT, RIGHT_SUBJECT = "add.sh adds four numbers", "add.sh adds up to four numbers"

_PROMPT = "You write the manual of a small program. Do the one task that is named below.\n"
_CONFIGURATION = """\
[agents]
primary = "first"
fallback = ["second"]

[agents.first]
command = ["first-agent"]   # yours: claude, codex, gemini, opencode, or a command

[agents.second]
command = ["second-agent"]

[retry]
same_agent_base_seconds = 0.5   # until the next try after a crash; 2 unless you say
"""

_GUARDED_PROMPT = "You work on a small calculator. Do the one task that is named below.\n"
_GUARDED_CONFIGURATION = """\
[regent]
rollback_on_test_failure = true
test_command = "sh test.sh"

[agents]
primary = "hasty"

[agents.hasty]
command = ["hasty-agent"]
"""
_TESTS = """\
test "$(sh add.sh 2 3 2>/dev/null)" = 5 || { echo "add.sh 2 3 is not 5"; exit 1; }
echo "2 and 3 are 5"
"""

_PROGRAMS = {"first-agent": "agent.py", "second-agent": "agent.py", "hasty-agent": "hasty.py"}


def tasks() -> Mapping[str, str]:
    """The files of the directory with five tasks, by name."""
    stories = [
        {"id": f"T-{number}", "title": title, "passes": False} for number, title in enumerate(TITLES, start=1)
    ]
    plan = json.dumps({"userStories": stories}, indent=2) + "\n"
    return {"prd.json": plan, "PROMPT.md": _PROMPT, "ralph.toml": _CONFIGURATION}


def guarded() -> Mapping[str, str]:
    """The files of the directory with a guard, by name."""
    return {
        "TASKS.md": "- [ ] have add.sh add up to four numbers\n",
        "PROMPT.md": _GUARDED_PROMPT,
        "ralph.toml": _GUARDED_CONFIGURATION,
        "test.sh": _TESTS,
        "add.sh": "echo $(($1 + $2))\n",
        NOTES: "",
    }


def programs() -> Mapping[str, str]:
    """The agents' programs, by name."""
    here = Path(__file__).parent
    return {
        name: f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S {shlex.quote(str(here / program))}\n"
        for name, program in _PROGRAMS.items()
    }
