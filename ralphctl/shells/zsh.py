"""The completion script for zsh."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ralphctl.shells.places import PROGRAMS, Offer, Place, quoted

_NAMES = """\
# Nothing but the names of ralphs: others have no business in that directory, and are not offered.
__ralphctl_names() {
    setopt local_options extended_glob null_glob
    local LC_ALL=C place=${RALPHD_STATE_DIR:-${XDG_STATE_HOME:-$HOME/.local/state}/ralphd}
    local -a found
    found=("$place"/ralphs/[a-z0-9][a-z0-9._-]#(/:t))
    compadd -a found
}
"""
_WALK = """\
_ralphctl() {
    local at='' option='' each
    local -a commands hidden flags valued
    local -i next=2
    __ralphctl_at ''
    while ((next < CURRENT)); do
        each=$words[next]
        option=''
        if [[ $each == -- ]]; then
            _default
            return
        elif ((${valued[(Ie)$each]})); then
            option=$each
            next+=1
        elif ((${commands[(I)${(b)each}:*]} || ${hidden[(Ie)$each]})); then
            at="${at:+$at }$each"
            __ralphctl_at "$at"
        fi
        next+=1
    done
    if [[ -n $option ]] && ((next > CURRENT)); then
        __ralphctl_value "$at" "$option"
    elif [[ $PREFIX == --*=* ]]; then
        option=${PREFIX%%=*}
        compset -P '*='
        __ralphctl_value "$at" "$option"
    elif [[ $PREFIX == -* ]]; then
        _describe -o option flags
    else
        ((${#commands})) && _describe command commands
        __ralphctl_argument "$at"
    fi
}
"""
_LOAD = """\
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _ralphctl "$@"
else
    whence compdef >/dev/null || { autoload -Uz compinit && compinit }
    compdef _ralphctl %s
fi
"""
_FILES = {Offer.FILES: "_files", Offer.DIRECTORIES: "_files -/"}


def script(places: Sequence[Place], version: str) -> str:
    """The whole script: to be evaluated, or as the file ``_ralphctl`` in a directory of ``fpath``."""
    programs = " ".join(PROGRAMS)
    parts = (
        f"#compdef {programs}",
        f"# Completion of ralphctl {version} and ralph for zsh; made anew by: ralphctl completion zsh",
        _NAMES,
        _function("at", "What is understood after a command.", "$1", _understood(places)),
        _function("value", "What is offered as the value of an option.", "$1 $2", _values(places)),
        _function("argument", "What is offered as a word.", "$1", _arguments(places)),
        _WALK,
        _LOAD % programs,
    )
    return "\n".join(parts)


def _function(name: str, told: str, of: str, cases: Iterable[str]) -> str:
    lines = "\n".join(f"        {case}" for case in cases)
    return f'# {told}\n__ralphctl_{name}() {{\n    case "{of}" in\n{lines}\n    esac\n}}\n'


def _understood(places: Sequence[Place]) -> Iterable[str]:
    for place in places:
        flags = [(name, option.help) for option in place.options for name in option.names]
        yield f"{quoted(place.typed)})"
        yield f"    commands=({_described(place.commands)})"
        yield f"    hidden=({' '.join(map(quoted, place.hidden))})"
        yield f"    flags=({_described(flags)})"
        yield f"    valued=({' '.join(map(quoted, place.valued))}) ;;"


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
                    yield f"{case}) compadd -- {' '.join(map(quoted, words))} ;;"


def _arguments(places: Sequence[Place]) -> Iterable[str]:
    for place in places:
        acts = [f"compadd -- {' '.join(map(quoted, place.choices))}"] if place.choices else []
        acts += ["__ralphctl_names"] if place.with_ralphs else []
        acts += [_FILES[place.offer]] if place.offer in _FILES else []
        if acts:
            yield f"{quoted(place.typed)}) {'; '.join(acts)} ;;"


def _described(words: Iterable[tuple[str, str]]) -> str:
    """``'name:help'`` for each, as ``_describe`` takes them."""
    return " ".join(quoted(f"{name.replace(':', chr(92) + ':')}:{told}") for name, told in words)
