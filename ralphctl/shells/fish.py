"""The completion script for fish."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ralphctl.shells.places import PROGRAMS, Offer, Option, Place

_NAMES = """\
# Nothing but the names of ralphs: others have no business in that directory, and are not offered.
function __ralphctl_names
    set -l state $RALPHD_STATE_DIR
    if test -z "$state"
        set state $XDG_STATE_HOME
        test -n "$state"; or set state $HOME/.local/state
        set state $state/ralphd
    end
    for each in $state/ralphs/*/
        string match --regex --entire '^[a-z0-9][a-z0-9._-]{0,62}$' (string split --right --max 1 / (string trim --right --chars / $each))[-1]
    end
end
"""  # noqa: E501 - one command of fish
_WALK = """\
# Whether the words so far lead to the command $argv.
function __ralphctl_at --argument-names wanted
    set -l at ''
    set -l is_value no
    for each in (commandline -opc)[2..-1]
        if test $is_value = yes
            set is_value no
        else if test "$each" = --
            set at --
            break
        else if contains -- $each (__ralphctl_valued "$at")
            set is_value yes
        else if contains -- $each (__ralphctl_commands "$at")
            set at (string trim "$at $each")
        end
    end
    test "$at" = "$wanted"
end
"""
_AFTER = "complete -c ralphctl -n '__ralphctl_at --' -F"


def script(places: Sequence[Place], version: str) -> str:
    """The whole script."""
    first, *others = PROGRAMS
    parts = (
        f"# Completion of ralphctl {version} and ralph for fish; made anew by: ralphctl completion fish",
        _NAMES,
        _words("commands", {place.typed: _commands(place) for place in places}),
        _words("valued", {place.typed: place.valued for place in places}),
        _WALK,
        f"complete -c {first} -f",
        _AFTER,
        *(line for place in places for line in _rules(place)),
        *(f"complete -c {other} -w {first}" for other in others),
    )
    return "\n".join(parts) + "\n"


def _commands(place: Place) -> list[str]:
    return [*(name for name, _ in place.commands), *place.hidden]


def _words(name: str, by_place: dict[str, list[str]]) -> str:
    cases = [
        f"        case {_quoted(typed)}\n            printf '%s\\n' {' '.join(map(_quoted, words))}"
        for typed, words in by_place.items()
        if words
    ]
    return "\n".join([f"function __ralphctl_{name} --argument-names at", '    switch "$at"', *cases,
                      "    end", "end\n"])  # fmt: skip


def _rules(place: Place) -> Iterable[str]:
    begin = f"complete -c ralphctl -n {_quoted(f'__ralphctl_at {_quoted(place.typed)}')}"
    for name, told in place.commands:
        yield f"{begin} -a {_quoted(name)} -d {_quoted(told)}"
    if place.choices:
        yield f"{begin} -a {_quoted(' '.join(place.choices))}"
    if place.with_ralphs:
        yield f"{begin} -a '(__ralphctl_names)' -d ralph"
    if place.offer is Offer.FILES:
        yield f"{begin} -F"
    if place.offer is Offer.DIRECTORIES:
        yield f"{begin} -a '(__fish_complete_directories)'"
    for option in place.options:
        yield f"{begin} {_option(option)}"


def _option(option: Option) -> str:
    names = [
        f"-l {_quoted(name[2:])}" if name.startswith("--") else f"-s {_quoted(name[1:])}"
        for name in option.names
    ]
    match option.value:
        case None:
            value = []
        case Offer.NOTHING:
            value = ["-x"]
        case Offer.FILES:
            value = ["-r", "-F"]
        case Offer.DIRECTORIES:
            value = ["-x", "-a '(__fish_complete_directories)'"]
        case words:
            value = ["-x", f"-a {_quoted(' '.join(words))}"]
    return " ".join([*names, *value, f"-d {_quoted(option.help)}"])


def _quoted(word: str) -> str:
    """One word for fish, whatever is in it."""
    return "'" + word.replace("\\", "\\\\").replace("'", "\\'") + "'"
