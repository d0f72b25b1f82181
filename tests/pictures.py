"""`make pictures`: run two short nights for real, and draw what `ralphctl` shows of them.

The agents are those of the tests, which speak as claude and codex do. In the first night, a commit breaks the
tests, claude reaches its usage limit, codex crashes once. In the second, four ralphs work at the same time.
Times and ids differ from run to run; what was done does not.
"""

import asyncio
import html
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from ralphctl.client.client import Client
from ralphctl.demo.sandbox import Sandbox, eventually
from ralphctl.top import model
from ralphctl.top.app import TopApp
from ralphctl.top.feed import TopFeed
from ralphd import overview
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
INIT = "ralphctl init --yes --rollback --test-command '! test -e broken'"
SET_UP = (
    "git init --quiet",
    f"{INIT} --fallback codex",
    "git add . && git commit --quiet -m 'the task list'",
)
SHOWN = (
    "ralphctl start",
    "ralphctl wait --for done",
    "ralphctl logs --stream regent",
    "ralphctl report | head -n 11",
)


AGENTS = {"infra": "codex"}
Steps = Sequence[Mapping[str, Any]]
LONG = {"do": "think", "seconds": 600, "every_s": 1}
"""An iteration that is under way while the picture is made."""
FOUR: Mapping[str, tuple[Sequence[str], Steps]] = {
    "api": (
        (
            "parse the date in the header",
            "write a test for leap seconds",
            "cache the time zone",
            "document it",
        ),
        (
            {"do": "task", "cost_usd": 0.42, "takes_s": 2},
            {"do": "task", "cost_usd": 0.61, "takes_s": 2, "files": {"broken": ""}},
            {"do": "task", "cost_usd": 0.38, "takes_s": 2},
            {"do": "task", "cost_usd": 0.77, "takes_s": 2},
            LONG,
        ),
    ),
    "web": (
        ("show it in local time", "translate the calendar", "test it in two browsers", "remove the old page"),
        (
            {"do": "task", "cost_usd": 0.31, "takes_s": 3},
            {"do": "task", "cost_usd": 0.12, "takes_s": 1},
            LONG,
        ),
    ),
    "infra": (
        ("pin the base image", "rotate the keys", "log to one place"),
        (
            {"do": "task", "agent": "codex", "takes_s": 2},
            {"do": "usage_limit", "agent": "codex", "holds_s": 3 * 3600},
        ),
    ),
    "docs": (("list all errors", "explain each with an example"), ({"do": "fatal"},) * 9),
}


def drawn(console: Console, command: str, output: str) -> None:
    """Print a command and its output as a terminal would show them."""
    console.print(Text.assemble(("$ ", "bold blue"), (command, "bold white")))
    for line in output.splitlines():
        style = "orange1" if "Regent:" in line else "white"
        console.print(Text.from_ansi(line.replace("\ufe0f", ""), style=style))
    console.print()


def picture_of(sandbox: Sandbox, name: str, title: str, shown: Mapping[str, str], columns: int) -> str:
    """Return the drawing of what these commands print now, each below the words that a person would type."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=columns, file=nowhere, color_system="truecolor")
        for typed, command in shown.items():
            drawn(console, typed, sandbox.run(command))
        return plain(console.export_svg(title=title, theme=MONOKAI, unique_id=name))


_BEGIN = re.compile(r'x="([\d.]+)"([^>]*) textLength="([\d.]+)"([^>]*)>((?:&#160;)+)([^<]+)<')


def plain(svg: str) -> str:
    """Return a drawing that refers to nothing outside of itself, and begins each text after its spaces.

    Some programs that draw SVG leave out the spaces at the beginning of a text.
    """

    def moved(text: re.Match[str]) -> str:
        spaces, cells = text[5].count("&#160;"), len(html.unescape(text[5] + text[6]))
        x, width = float(text[1]), float(text[3])
        by = width * spaces / cells
        return f'x="{x + by:g}"{text[2]} textLength="{width - by:g}"{text[4]}>{text[6]}<'

    return _BEGIN.sub(moved, re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", svg, flags=re.S))


def night(sandbox: Sandbox) -> dict[str, str]:
    """Play the first night; return its picture."""
    place = sandbox.home / "night"
    place.mkdir()
    (place / "TASKS.md").write_text("".join(f"- [ ] {task}\n" for task in TASKS))
    script = agents.write_script(sandbox.home / "script.json", STEPS)
    before = f"cd ~/night && export COLUMNS=76 PLAYED_SCRIPT={script} && "
    for command in SET_UP:
        sandbox.run(before + command)
    picture = picture_of(
        sandbox, "night", "a night with ralphd", {each: before + each for each in SHOWN}, COLUMNS
    )
    return {"night": picture}


def four(sandbox: Sandbox) -> dict[str, str]:
    """Have four ralphs work; return the pictures of what shows all of them."""
    since = time.time()
    for name, (tasks, steps) in FOUR.items():
        (sandbox.home / name).mkdir()
        (sandbox.home / name / "TASKS.md").write_text("".join(f"- [ ] {task}\n" for task in tasks))
        script = agents.write_script(sandbox.home / f"{name}.json", steps)
        before = f"cd ~/{name} && export PLAYED_SCRIPT={script} && "
        for command in (
            SET_UP[0],
            f"{INIT} --agent {AGENTS.get(name, 'claude')}",
            SET_UP[2],
        ):
            sandbox.run(before + command)
        budget = " --max-cost 5" if name != "docs" else ""
        sandbox.run(f"{before}ralphctl start{budget}")
    eventually(lambda: _states(sandbox.client) == STATES, "the four states")
    colours = "COLUMNS=100 TERM=xterm-256color script -qc {} /dev/null"
    shown = {command: colours.format(repr(command)) for command in ("ralphctl status", "ralphctl report api")}
    shown["ralphctl report api"] += " | head -n 30"
    pictures = {
        each.split()[1]: picture_of(sandbox, each.split()[1], each, {each: command}, 100)
        for each, command in shown.items()
    }
    return pictures | {"top": asyncio.run(top(sandbox.client, since))}


STATES = {"api": ("working", 3), "web": ("working", 2), "infra": ("limited", 1), "docs": ("failed", 0)}
"""The state in which the pictures are made, and how many tasks are done."""


def _states(client: Client) -> dict[str, tuple[str, int]]:
    rows = [overview.Row(view) for view in client.views()]
    done = {row.name: (row.word, row.tasks[0] if row.tasks else 0) for row in rows}
    return done if all(row.task == "document it" for row in rows if row.name == "api") else {}


async def top(client: Client, since: float) -> str:
    """Return the picture of `ralphctl top` with a night that began at ``since``; ``api`` is selected."""
    feed = TopFeed(client, model.gathered(client, since), 0, colour=True)
    app = TopApp(feed, colour=True, utf8=True)
    app.title = "ralphctl top"
    async with app.run_test(size=(100, 23)) as pilot:
        while feed.selected != "api" or not (feed.model.nights and feed.log.lines):
            await pilot.press("down" if feed.selected != "api" else "k")
            await pilot.pause(0.1)
        await pilot.pause(1)
        svg = app.export_screenshot(title="ralphctl top", simplify=True)
    return plain(re.sub(r"terminal-\d+", "top", svg))


def pictures() -> dict[str, str]:
    """Return all pictures, by name."""
    made: dict[str, str] = {}
    plays: Sequence[Callable[[Sandbox], dict[str, str]]] = (night, four)
    for play in plays:
        with Sandbox.open() as sandbox:
            agents.install(sandbox.home / "bin", ("claude", "codex"))
            made |= play(sandbox)
            sandbox.run("ralphctl regent stop --now")
    return made


if __name__ == "__main__":
    for name, svg in pictures().items():
        target = DOCS / "pictures" / f"{name}.svg"
        target.parent.mkdir(exist_ok=True)
        target.write_text(svg)
        sys.stdout.write(f"{target}: {len(svg.encode()):,} bytes\n")
