"""``docs/commands.md``: every command and option of ``ralphctl``, from the table that it runs by."""

import inspect
import textwrap
from collections.abc import Iterator

import click

from ralphctl.cli import overview
from ralphctl.cli.click_ext import LazyGroup
from ralphctl.cli.root import cli

INTRODUCTION = """\
# Commands

Written by `make docs` from the help texts; a test fails when it is stale. Do not edit it.

`ralphctl` is also installed as `ralph`. Inside a ralph's directory NAME may be left out. Data goes to stdout,
messages go to stderr; what a command ends with is in [exit-codes.md](exit-codes.md).
"""
COMMON = """
## Options of all commands

They stand before the command or after it.
"""


def commands_page() -> str:
    """The text of ``docs/commands.md``."""
    context = click.Context(cli, info_name="ralphctl")
    shared = {_names(each) for each in cli.params}
    common = [(f"`{names}`", _cell(told)) for names, told in overview.OPTIONS.items()]
    parts = [INTRODUCTION, _overview(cli), COMMON, _table(common), *_sections(cli, context, shared)]
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def commands(group: LazyGroup, context: click.Context) -> Iterator[tuple[click.Context, click.Command]]:
    """Every command that is shown, those of groups too, each in its context."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        below = click.Context(command, info_name=name, parent=context)
        yield below, command
        if isinstance(command, LazyGroup):
            yield from commands(command, below)


def _overview(group: LazyGroup) -> str:
    sections: dict[str, list[str]] = {}
    for name, each in group.table.items():
        row = f"| [`{name}`](#ralphctl-{name}) | {_cell(each.help)} |"
        sections.setdefault(each.section, []).append(row)
    tables = ["\n".join([f"| {name} | |", "| --- | --- |", *rows]) for name, rows in sections.items()]
    return "\n\n".join(["## All of them", *tables])


def _sections(group: LazyGroup, context: click.Context, shared: set[str]) -> Iterator[str]:
    for below, command in commands(group, context):
        usage = " ".join([below.command_path, *command.collect_usage_pieces(below)]).strip()
        own = [each for each in command.params if _names(each) and _names(each) not in shared]
        blocks = [f"## `{below.command_path}`", f"`{usage}`", *_prose(command.help or "")]
        if isinstance(command, LazyGroup):
            blocks.append(_overview_of(command, below))
        blocks += [table for table in (_options(own),) if own]
        blocks += _prose(command.epilog or "")
        yield "\n\n".join(blocks)


def _overview_of(group: LazyGroup, context: click.Context) -> str:
    prefix = context.command_path.replace(" ", "-")
    rows = [f"| [`{name}`](#{prefix}-{name}) | {_cell(each.help)} |" for name, each in group.table.items()]
    return "\n".join(["| command | does |", "| --- | --- |", *rows])


def _prose(text: str) -> Iterator[str]:
    """The paragraphs of a help text; what click is not to wrap stands as it is."""
    for block in inspect.cleandoc(text).split("\n\n"):
        if block.startswith("\b"):
            yield "```usage\n" + inspect.cleandoc(block.removeprefix("\b\n")) + "\n```"
        elif block:
            yield textwrap.fill(" ".join(block.split()), 110, break_long_words=False, break_on_hyphens=False)


def _options(options: list[click.Parameter]) -> str:
    shown = [each for each in options if isinstance(each, click.Option) and not each.hidden]
    return _table([(_names(each), _help(each)) for each in shown])


def _table(rows: list[tuple[str, str]]) -> str:
    return "\n".join(
        ["| option | does |", "| --- | --- |", *(f"| {names} | {told} |" for names, told in rows)]
    )


def _names(option: click.Parameter) -> str:
    """How an option is written; empty for a word that is none."""
    if not isinstance(option, click.Option):
        return ""
    names = ", ".join(sorted(option.opts, key=len))
    names += "".join(f"/{name}" for name in option.secondary_opts)
    shown = "" if option.is_flag else f" {option.metavar or _choices(option)}"
    return f"`{names}{shown}`".replace("|", "\\|")


def _choices(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return "|".join(map(str, option.type.choices))
    return option.type.name.upper()


def _help(option: click.Option) -> str:
    default = option.default if isinstance(option.default, str) and option.show_default else ""
    return _cell(option.help or "") + (f" Default: `{default}`." if default else "")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
