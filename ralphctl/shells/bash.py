"""The completion script for bash 4 and newer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ralphctl.shells.places import PROGRAMS, Offer, Place, quoted

_NAMES = """\
# Nothing but the names of ralphs: others have no business in that directory, and are not offered.
__ralphctl_names() {
    local LC_ALL=C each place=${RALPHD_STATE_DIR:-${XDG_STATE_HOME:-$HOME/.local/state}/ralphd}
    for each in "$place"/ralphs/*/; do
        each=${each%/}
        each=${each##*/}
        [[ $each =~ ^[a-z0-9][a-z0-9._-]{0,62}$ ]] && __ralphctl_offer "$each"
    done
}

__ralphctl_offer() {
    local each
    for each; do
        [[ $each == "$cur"* ]] && COMPREPLY+=("$each")
    done
}
"""
_WALK = """\
_ralphctl() {
    local cur=${COMP_WORDS[COMP_CWORD]} at='' option='' each commands flags valued
    local -i next=1
    COMPREPLY=()
    __ralphctl_at ''
    while ((next < COMP_CWORD)); do
        each=${COMP_WORDS[next]}
        option=''
        if [[ $each == -- ]]; then
            compopt -o default 2>/dev/null
            return
        elif [[ " $valued " == *" $each "* ]]; then
            option=$each
            [[ ${COMP_WORDS[next + 1]} == = ]] && ((next + 1 < COMP_CWORD)) && next+=1
            next+=1
        elif [[ " $commands " == *" $each "* ]]; then
            at="${at:+$at }$each"
            __ralphctl_at "$at"
        fi
        next+=1
    done
    if [[ -n $option ]] && ((next > COMP_CWORD)); then
        [[ $cur == = ]] && cur=''
        __ralphctl_value "$at" "$option"
    elif [[ $cur == -* ]]; then
        __ralphctl_offer $flags
    else
        __ralphctl_argument "$at"
    fi
}
"""
_FILES = {Offer.FILES: "compopt -o default 2>/dev/null", Offer.DIRECTORIES: "compopt -o dirnames 2>/dev/null"}


def script(places: Sequence[Place], version: str) -> str:
    """The whole script."""
    parts = (
        f"# Completion of ralphctl {version} and ralph for bash; made anew by: ralphctl completion bash",
        _NAMES,
        _function("at", "What is understood after a command.", "$1", _understood(places)),
        _function("value", "What is offered as the value of an option.", "$1 $2", _values(places)),
        _function("argument", "What is offered as a word.", "$1", _arguments(places)),
        _WALK,
        f"complete -F _ralphctl {' '.join(PROGRAMS)}",
    )
    return "\n".join(parts) + "\n"


def _function(name: str, told: str, of: str, cases: Iterable[str]) -> str:
    lines = "\n".join(f"        {case}" for case in cases)
    return f'# {told}\n__ralphctl_{name}() {{\n    case "{of}" in\n{lines}\n    esac\n}}\n'


def _understood(places: Sequence[Place]) -> Iterable[str]:
    for place in places:
        commands = " ".join([*(name for name, _ in place.commands), *place.hidden])
        said = f"commands={quoted(commands)} flags={quoted(' '.join(place.flags))}"
        yield f"{quoted(place.typed)}) {said} valued={quoted(' '.join(place.valued))} ;;"


def _values(places: Sequence[Place]) -> Iterable[str]:
    for place in places:
        for option in place.options:
            case = "|".join(quoted(f"{place.typed} {name}") for name in option.names)
            match option.value:
                case Offer.NOTHING | None:
                    pass
                case Offer() as offer:
                    yield f"{case}) {_FILES[offer]} ;;"
                case words:
                    yield f"{case}) __ralphctl_offer {' '.join(map(quoted, words))} ;;"


def _arguments(places: Sequence[Place]) -> Iterable[str]:
    for place in places:
        offered = [quoted(word) for word in (*(name for name, _ in place.commands), *place.choices)]
        acts = [f"__ralphctl_offer {' '.join(offered)}"] if offered else []
        acts += ["__ralphctl_names"] if place.with_ralphs else []
        acts += [_FILES[place.offer]] if place.offer in _FILES else []
        if acts:
            yield f"{quoted(place.typed)}) {'; '.join(acts)} ;;"
