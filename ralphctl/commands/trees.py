"""trees: list worktrees, remove one; and ``start --worktree``, which makes them."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ralphctl.cli import completers
from ralphctl.cli.click_ext import CommonCommand, printed_as_json, the_client, value_for_text
from ralphctl.client import discovery
from ralphctl.client.client import Client
from ralphctl.commands.control import NamedRalphs
from ralphctl.format import state_text
from ralphctl.format.humanize import count, since_words
from ralphctl.format.output import clean, note, table_here
from ralphd import wire
from ralphd.errors import BadName, UsageError

_MOST_CHARS = 200
_NO_NAME = "\0"
"""Stands for ``--worktree`` without a NAME; nobody can type it."""
_HEADS = ("NAME", "STATE", "COMMITS", "NOT COMMITTED", "SIZE", "LAST USE")


def worktree_options(function: Any) -> Any:
    """Add the options of ``start`` for worktrees."""
    add = (
        click.option("--worktree", is_flag=False, flag_value=_NO_NAME, metavar="[NAME]",
                     help="Work in a new worktree, on branch ralph/NAME."),
        click.option("--from", "from_ref", metavar="REF", help="With --worktree: begin at REF."),
        click.option("--task", "tasks", multiple=True, metavar="ID", help="With --worktree: only this task."),
        click.option("--count", type=click.IntRange(1, 32), metavar="N",
                     help="With --worktree: N ralphs share the task list."),
    )  # fmt: skip
    for option in reversed(add):
        function = option(function)
    return function


def worktree_asked(keys: dict[str, Any], branch: str | None, name: str | None) -> dict[str, Any] | None:
    """Take the options for worktrees out of ``keys``; return them as the API has them, None without any.

    Raise UsageError.
    """
    asked, start, tasks, count = (keys.pop(key) for key in ("worktree", "from_ref", "tasks", "count"))
    if asked is None:
        given = {"--from": start, "--task": tasks, "--count": count}
        if lone := next((option for option, value in given.items() if value not in (None, ())), None):
            raise UsageError(f"{lone} is for a worktree", mend=f"ralphctl start --worktree NAME {lone} …")
        return None
    if asked == _NO_NAME:
        asked = name
    elif name:
        raise UsageError("--worktree names the ralph already", mend="leave out --name")
    else:
        try:
            discovery.check_name(asked)
        except BadName as fault:
            what, why = f"{asked!r} is not a name for a worktree", f"NAME after --worktree: {fault.why}"
            raise UsageError(what, why=why, mend="ralphctl start DIR --worktree NAME") from fault
    if start is not None:
        check_git_name(start, "--from", "a commit, a branch or a tag")
    words = {"name": asked, "branch": branch, "from_ref": start, "tasks": list(tasks), "count": count}
    return {key: value for key, value in words.items() if value}


def check_git_name(text: str, option: str, allowed: str) -> None:
    """Raise UsageError for a value of ``option`` that git cannot take as the name of anything."""
    if text[:1] in ("", "-") or len(text) > _MOST_CHARS:
        what = f"{option} {text[:80]!r} names nothing"
        why = f"allowed: {allowed}, at most {_MOST_CHARS} characters, the first one not -"
        raise UsageError(what, why=why, mend=f"git branch --all, then {option} NAME")


def start_in_worktrees(client: Client, body: Mapping[str, Any], asked: Mapping[str, Any]) -> int:
    """Start ralphs in new worktrees, and print where; return the exit code."""
    views = value_for_text(client.start_in_worktrees({**body, **asked}))["ralphs"]
    others: dict[str, None] = {}
    for view in views:
        text = state_text.started_words(view) or state_text.state_words(view, time.time())
        own = next((each for each in map(str, view["notes"]) if each.startswith("worktree ")), "")
        others |= dict.fromkeys(str(each) for each in view["notes"] if each != own)
        _, comma, more = own.rpartition(", ")
        click.echo(f"{view['name']}: {text}{comma}{clean(more)}")
    for line in others:  # the same for most of them
        note(line)
    click.echo("  next: ralphctl trees  (list the worktrees)")
    return wire.EXIT_FAILED if any(view["state"] == "failed" for view in views) else wire.EXIT_OK


@click.command(cls=CommonCommand)
@click.argument("words", nargs=-1, metavar="[rm NAME...]", shell_complete=completers.ralphs)
@click.option("--keep", is_flag=True, help="With rm: save commits and files under a ref first.")
def trees(words: tuple[str, ...], keep: bool) -> int:
    """List the worktrees that `ralphctl start --worktree` made: branch, commits, files, size, last use.

    `rm` removes a worktree, and its ralph with its logs. It refuses one with files that are not committed, or
    with commits that no other branch and no remote has, and names them. Files that git ignores go with it.
    With --keep all but ignored files is saved first. There is no --force.

    \b
      ralphctl start ~/project --worktree fix   a ralph in a worktree, on the branch ralph/fix
      ralphctl trees                            all worktrees
      ralphctl trees rm fix                     remove it after its branch has landed
    """
    if words[:1] == ("rm",) and words[1:]:
        return _remove([discovery.check_name(name) for name in words[1:]], keep=keep)
    if words or keep:
        raise UsageError("expected: ralphctl trees [rm NAME...]", mend="ralphctl trees rm NAME")
    _list(value_for_text(the_client().trees())["trees"])
    return wire.EXIT_OK


def _remove(names: Sequence[str], *, keep: bool) -> int:
    """Remove each of them, and print what became of it. Return the worst exit code."""
    ralphs = NamedRalphs(names)
    for name in ralphs.names:
        with ralphs.one():
            reply = ralphs.client.remove_tree(name, keep=keep)
            if not printed_as_json(reply):
                removed = reply.value
                click.echo(f"{name}: removed {clean(removed['path'])}")
                if removed["kept_as"]:
                    click.echo(f"  saved as {removed['kept_as']}: git switch -c NAME {removed['kept_as']}")
    return ralphs.code


def _list(trees: Sequence[Mapping[str, Any]]) -> None:
    if not trees:
        click.echo("no worktrees yet: ralphctl start DIR --worktree NAME")
    for folder in sorted({str(Path(tree["path"]).parent) for tree in trees}):
        rows = [_HEADS, *(_row(tree) for tree in trees if str(Path(tree["path"]).parent) == folder)]
        click.echo(f"{state_text.directory_name({'directory': folder})}/NAME, on branch ralph/NAME")
        click.echo(table_here(rows))


def _row(tree: Mapping[str, Any]) -> tuple[str, ...]:
    name, branch = clean(tree["name"]), clean(tree["branch"])
    name += "" if branch == f"ralph/{name}" else f" (branch {branch})"
    commits = f"+{tree['ahead']} -{tree['behind']}"
    commits += f", {tree['unlanded']} only here" if tree["unlanded"] else ""
    stage = tree["stage"].replace("preparing", "setup not done")  # it may have failed
    state = (tree["word"] or "no ralph") + ("" if stage == "ready" else f" ({stage})")
    commits = next((why for why in tree["keeps"] if why.startswith("not known: ")), commits)
    dirty = count(tree["dirty"], "file") if tree["dirty"] else "-"
    size = f"{tree['size_bytes'] / (1 << 20):.1f} MiB"
    return name, state, commits, dirty, size, since_words("", tree["used_at"], time.time(), " ago")
