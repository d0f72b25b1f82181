"""What the built-in loop finds in its directory: five tasks, a prompt, two agents that are made up."""

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

AGENTS = ("first", "second")
TITLES = (
    "say what it is for",
    "say how it is installed",
    "show an example",
    "list what it needs",
    "say who made it",
)

PROMPT = "You write the manual of a small program. Do the one task that is named below.\n"
CONFIGURATION = """\
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


def files() -> Mapping[str, str]:
    """The files of the working directory, by name."""
    stories = [
        {"id": f"T-{number}", "title": title, "passes": False} for number, title in enumerate(TITLES, start=1)
    ]
    plan = json.dumps({"userStories": stories}, indent=2) + "\n"
    return {"prd.json": plan, "PROMPT.md": PROMPT, "ralph.toml": CONFIGURATION}


def programs() -> Mapping[str, str]:
    """The agents' programs, by name."""
    agent = Path(__file__).with_name("agent.py")
    words = f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S {shlex.quote(str(agent))}\n"
    return {f"{name}-agent": words for name in AGENTS}
