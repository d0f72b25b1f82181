"""The commands of ``ralphctl`` and its help page, printed without click: 40 ms instead of 100."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from ralphctl.format.output import columns

_WIDEST, _NARROWEST = 80, 20
_PROGRAM = """Usage: ralphctl [OPTIONS] [COMMAND] [ARGS]...

  Run coding agents unattended: restart them, wait out limits, undo what
  breaks the tests.

    ralphctl start ~/project                  start the built-in loop there
    ralphctl start ~/project -- ./loop.sh     or a loop of your own
    ralphctl status                           show state and progress
    ralphctl attach                           watch it live
    ralphctl stop                             stop it and every process it started
"""
EXIT_CODES = (
    "Exit codes: 0 ok, 1 failed, 2 usage, 3 no daemon, 4 no such ralph, 75 paused or try later, "
    "78 configuration, 124 --wait-timeout ran out, 130 interrupted."
)
OPTIONS = {
    "--version": "Print the version.",
    "-C DIR": "Run as if started in DIR.",
    "--socket PATH": "The daemon's socket.",
    "--json": "Output JSON.",
    "-h, --help": "Show this message and exit.",
}


class CommandEntry:
    """Where a command is loaded from (``module:name`` in ``ralphctl.commands``), and its line in the help.

    Commands with the same help text share a line.
    """

    def __init__(self, location: str, help: str, section: str = "Commands") -> None:
        self.location, self.help, self.section = location, help, section


_EVERYDAY, _LOOK, _DAEMON, _MORE = "Everyday", "Inspect", "Daemon", "More"

TABLE = {
    "start": CommandEntry("start:start", "Start a loop in DIR, or restart a known one by name.", _EVERYDAY),
    "init": CommandEntry("init:init", "Create ralph.toml and PROMPT.md in a directory.", _EVERYDAY),
    "build": CommandEntry("build:build", "Run a loop in the foreground (no daemon).", _EVERYDAY),
    "stop": CommandEntry("control:stop", "Stop a ralph and every process it started.", _EVERYDAY),
    "restart": CommandEntry("control:restart", "Stop a ralph, then start it.", _EVERYDAY),
    "pause": CommandEntry("control:pause", "Pause a ralph until it is resumed.", _EVERYDAY),
    "resume": CommandEntry("control:resume", "Resume a paused ralph.", _EVERYDAY),
    "skip-wait": CommandEntry("control:skip_wait", "End the current wait and continue now.", _EVERYDAY),
    "ack": CommandEntry("control:ack", "Acknowledge an alert; no more reminders.", _EVERYDAY),
    "reload": CommandEntry("control:reload", "Apply configuration changes.", _EVERYDAY),
    "note": CommandEntry("tasks:note", "Put a note into the next prompt of a ralph.", _EVERYDAY),
    "undo": CommandEntry("guard:undo", "Re-apply commits that the test guard reverted.", _EVERYDAY),
    "land": CommandEntry("landing:land", "Merge a ralph's branch into main, if the tests pass.", _EVERYDAY),
    "vault": CommandEntry("vault:vault", "List and restore copies of repositories.", _EVERYDAY),
    "trees": CommandEntry("trees:trees", "List and remove the worktrees of ralphs.", _EVERYDAY),
    "rm": CommandEntry("control:rm", "Remove a stopped ralph and its logs (your files stay).", _EVERYDAY),
    "status": CommandEntry("status:status", "Show state, progress, and what to do next.", _LOOK),
    **{name: CommandEntry("status:status", "The same as status.", _LOOK) for name in ("ls", "list", "ps")},
    "attach": CommandEntry("attach:attach", "Watch a ralph live, with keys to pause and stop it.", _LOOK),
    "logs": CommandEntry("logs:logs", "Show a ralph's output and the supervisor's messages.", _LOOK),
    "events": CommandEntry("history:events", "List events, one per line.", _LOOK),
    "explain": CommandEntry("history:explain", "Show why the supervisor last acted, with evidence.", _LOOK),
    "verdicts": CommandEntry("guard:verdicts", "List test verdicts: kept, reverted, untested.", _LOOK),
    "report": CommandEntry("report:report", "Summarize the night: tasks, commits, time, cost.", _LOOK),
    "show": CommandEntry("iteration:show", "Show one iteration on one page.", _LOOK),
    "diff": CommandEntry("iteration:diff", "Show what an iteration changed, with git's own diff.", _LOOK),
    "tasks": CommandEntry("tasks:tasks", "Show the tasks; add one, or remove an added one.", _LOOK),
    "cost": CommandEntry("tasks:cost", "Show costs by ralph, agent and task.", _LOOK),
    "queue": CommandEntry("landing:queue", "Show what waits to land, and what landed.", _LOOK),
    "quota": CommandEntry("quota:quota", "Show the limits of your accounts, and who waits.", _LOOK),
    "wait": CommandEntry("control:wait", "Wait until a ralph is done, paused, stopped or idle.", _LOOK),
    "regent": CommandEntry("regent:regent", "Manage the ralphd daemon.", _DAEMON),
    "webhooks": CommandEntry("webhooks:webhooks", "Manage alerts: Slack, ntfy, your own endpoint.", _DAEMON),
    "config": CommandEntry("config:config", "Show, check and change the configuration.", _MORE),
    "doctor": CommandEntry("doctor:doctor", "Check the installation and suggest fixes.", _MORE),
    "classify": CommandEntry("classify:classify", "Classify an agent's output.", _MORE),
    "notify": CommandEntry("notify:notify", "Report progress from a script in a run.", _MORE),
    "completion": CommandEntry("completion:completion", "Print the completion script of a shell.", _MORE),
    "demo": CommandEntry("demo:demo", "See in half a minute what ralphd does.", _MORE),
    "run": CommandEntry("build:build", "The same as build.", _EVERYDAY),
    "help": CommandEntry("help:help", "Show the help of a command.", _MORE),
    "version": CommandEntry("help:version", "Print the version.", _MORE),
}  # fmt: skip


def page(width: int | None = None) -> str:
    """Return the help page, ``width`` columns wide (those of the terminal, 80 at most)."""
    width = max(_NARROWEST, min(_WIDEST, width or columns(sys.stdout) or _WIDEST))
    blocks = [_PROGRAM]
    for head, rows in (("Options", [*OPTIONS.items()]), *sections(TABLE).items()):
        blocks.append("\n".join([f"{head}:", *_two_columns(rows, width)]) + "\n")
    return "\n".join([*blocks, *(f"  {line}" for line in textwrap.wrap(EXIT_CODES, width - 2))])


def sections(table: Mapping[str, CommandEntry]) -> dict[str, list[tuple[str, str]]]:
    """Return the sections of a help page, each with the names of its commands and their help."""
    names: dict[str, dict[str, list[str]]] = {}
    for name, entry in table.items():
        names.setdefault(entry.section, {}).setdefault(entry.help, []).append(name)
    return {
        section: [(", ".join(those), help) for help, those in rows.items()] for section, rows in names.items()
    }


def _two_columns(rows: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    first = max(len(name) for name, _ in rows) + 4
    for name, text in rows:
        if width - first < _NARROWEST:
            yield f"  {name}"
            yield from (f"    {line}" for line in textwrap.wrap(text, width - 4))
            continue
        head, *more = textwrap.wrap(text, width - first)
        yield f"  {name}".ljust(first) + head
        yield from (" " * first + line for line in more)
