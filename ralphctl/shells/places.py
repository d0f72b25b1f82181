"""What can be typed where: each command with its subcommands, options and arguments, read from click."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

import click

from ralphctl.grammar import LazyGroup, RalphArgument

PROGRAMS = ("ralphctl", "ralph")
_DIRECTORIES, _FILES = ("DIR", "DIRECTORY"), ("FILE", "PATH")


class Offer(enum.Enum):
    """What a shell offers where a word of the user's own is due."""

    NOTHING = enum.auto()
    FILES = enum.auto()
    DIRECTORIES = enum.auto()


@dataclass(frozen=True, slots=True)
class Option:
    """One option. ``value`` is what is offered after it: words, or files; None where it takes no value."""

    names: tuple[str, ...]
    help: str
    value: tuple[str, ...] | Offer | None


@dataclass(frozen=True, slots=True)
class Place:
    """After the words ``path`` of a command: what may come next.

    ``commands`` are offered, by name and help; ``hidden`` ones are understood. ``offer`` and ``choices`` are
    for its arguments, and so are the names of ralphs ``with_ralphs``.
    """

    path: tuple[str, ...]
    commands: tuple[tuple[str, str], ...]
    hidden: tuple[str, ...]
    options: tuple[Option, ...]
    choices: tuple[str, ...]
    offer: Offer
    with_ralphs: bool

    @property
    def typed(self) -> str:
        """The path as one word of a script."""
        return " ".join(self.path)

    @property
    def flags(self) -> list[str]:
        """Every name of every option."""
        return [name for option in self.options for name in option.names]

    @property
    def valued(self) -> list[str]:
        """Every name of the options that take a value."""
        return [name for option in self.options if option.value is not None for name in option.names]


def places(group: LazyGroup) -> list[Place]:
    """``group`` and all that is below it. Imports every command."""
    return list(_below(group, click.Context(group, info_name=PROGRAMS[0]), ()))


def _below(command: click.Command, context: click.Context, path: tuple[str, ...]) -> Iterator[Place]:
    table = command.table if isinstance(command, LazyGroup) else {}
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    yield Place(
        path=path,
        commands=tuple((name, entry.help) for name, entry in table.items() if not entry.hidden),
        hidden=tuple(name for name, entry in table.items() if entry.hidden),
        options=tuple(_options(command, context)),
        choices=tuple(word for each in arguments for word in _choices(each)),
        offer=_offered(arguments),
        with_ralphs=any(isinstance(each, RalphArgument) for each in arguments),
    )
    if not isinstance(command, LazyGroup):
        return
    for name in table:
        below = command.get_command(context, name)
        assert below is not None, name  # it is in the table
        yield from _below(below, click.Context(below, info_name=name, parent=context), (*path, name))


def _options(command: click.Command, context: click.Context) -> Iterator[Option]:
    for each in command.get_params(context):
        if isinstance(each, click.Option) and not each.hidden:
            names = (*each.opts, *each.secondary_opts)
            yield Option(names, " ".join((each.help or "").split()), _value(each))


def _value(option: click.Option) -> tuple[str, ...] | Offer | None:
    if option.is_flag or option.count:
        return None
    return tuple(_choices(option)) or _kind(option)


def _kind(parameter: click.Parameter) -> Offer:
    named = (parameter.metavar or "").strip("[]")
    if named in _DIRECTORIES:
        return Offer.DIRECTORIES
    return Offer.FILES if named in _FILES or isinstance(parameter.type, click.Path) else Offer.NOTHING


def _choices(parameter: click.Parameter) -> list[str]:
    return [str(each) for each in parameter.type.choices] if isinstance(parameter.type, click.Choice) else []


def _offered(arguments: list[click.Argument]) -> Offer:
    """Files, where an argument may be one."""
    kinds = {_argument(each) for each in arguments}
    return next((kind for kind in (Offer.FILES, Offer.DIRECTORIES) if kind in kinds), Offer.NOTHING)


def _argument(argument: click.Argument) -> Offer:
    called = f"{argument.metavar or ''} {argument.name or ''}".upper()
    if any(word in called for word in _DIRECTORIES):
        return Offer.DIRECTORIES
    return Offer.FILES if any(word in called for word in _FILES) else Offer.NOTHING


def quoted(word: str) -> str:
    """One word for bash and zsh, whatever is in it."""
    return "'" + word.replace("'", "'\\''") + "'"
