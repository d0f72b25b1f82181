"""`make pictures`: run a short night for real, and draw what `ralphctl` prints of it.

The agents are those of the tests, which speak as claude and codex do: a commit breaks the tests, claude
reaches its usage limit, codex crashes once.
"""

import os
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from ralphctl.demo.sandbox import Sandbox
from tests.pages import DOCS
from tests.players import agents

COLUMNS = 92
TASKS = (
    "parse the date in the header",
    "show it in local time",
    "cache the time zone",
    "document the header",
)
STEPS = (
    {"do": "task", "cost_usd": 0.42, "takes_s": 1},
    {"do": "task", "cost_usd": 0.61, "takes_s": 1, "files": {"broken": ""}},
    {"do": "task", "cost_usd": 0.38, "takes_s": 1},
    {"do": "usage_limit", "agent": "claude", "holds_s": 3 * 3600},
    {"do": "crash", "agent": "codex", "signal": 9},
    {"do": "task", "agent": "codex", "takes_s": 1},
    {"do": "task", "agent": "codex", "takes_s": 1},
)
SET_UP = (
    "git init --quiet",
    "ralphctl init --yes --rollback --test-command '! test -e broken' --fallback codex",
    "git add . && git commit --quiet -m 'the task list'",
)
SHOWN = (
    "ralphctl start",
    "ralphctl wait --for done",
    "ralphctl logs --stream regent",
    "ralphctl report | head -n 11",
)


def drawn(console: Console, command: str, output: str) -> None:
    """Print a command and its output as a terminal would show them."""
    console.print(Text.assemble(("$ ", "bold blue"), (command, "bold white")))
    for line in output.splitlines():
        style = "orange1" if "Regent:" in line else "white"
        console.print(Text(line.replace("\ufe0f", ""), style))
    console.print()


def picture() -> str:
    """Play the night; return the drawing, which refers to nothing outside of itself."""
    with Path(os.devnull).open("w") as nowhere, Sandbox.open() as sandbox:
        console = Console(record=True, width=COLUMNS, file=nowhere, color_system="truecolor")
        place = sandbox.home / "night"
        place.mkdir()
        (place / "TASKS.md").write_text("".join(f"- [ ] {task}\n" for task in TASKS))
        agents.install(sandbox.home / "bin", ("claude", "codex"))
        script = agents.write_script(sandbox.home / "script.json", STEPS)
        before = f"cd ~/night && export PLAYED_SCRIPT={script} && "
        for command in SET_UP:
            sandbox.run(before + command)
        for command in SHOWN:
            drawn(console, command, sandbox.run(before + command))
        sandbox.run("ralphctl regent stop")
    svg = console.export_svg(title="a night with ralphd", theme=MONOKAI, unique_id="night")
    return re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", svg, flags=re.S)


if __name__ == "__main__":
    target = DOCS / "pictures" / "night.svg"
    target.parent.mkdir(exist_ok=True)
    target.write_text(picture())
    sys.stdout.write(f"{target}\n")
