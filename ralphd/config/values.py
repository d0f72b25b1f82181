"""Values as text for people, their checks beyond type and range, names, and the environment of runs.

Without pydantic: commands that must start fast import this module.
"""

import os
import re
import sys
import unicodedata
from collections.abc import Mapping
from difflib import get_close_matches
from json import dumps
from pathlib import Path
from string import hexdigits
from typing import Any
from urllib.parse import urlsplit

from ralphd.core.delivery import ID_CHARS, Destination
from ralphd.core.limits import size_text, windows_of
from ralphd.wire import EVENT_TYPES, is_name


def in_words(schema: Mapping[str, Any]) -> str:
    """Return what a schema asks for, in words."""
    if "const" in schema:
        return dumps(schema["const"])
    if "enum" in schema:
        return "one of " + ", ".join(dumps(choice) for choice in schema["enum"])
    match schema["type"]:
        case "boolean":
            return "true or false"
        case ["integer", "string"]:
            least, most = size_text(schema["minimum"]), size_text(schema["maximum"])
            return f'a size from {least} to {most}, as "8GiB" or in bytes'
        case "integer":
            return f"a whole number from {schema['minimum']:.0f} to {schema['maximum']:.0f}"
        case "number":
            return f"a number from {schema['minimum']:g} to {schema['maximum']:.0f}"
        case "array":
            return "a list of " + in_words(schema["items"]).removeprefix("a ") + "s"
        case "object":
            return "a table of strings"
        case _:
            return "a non-empty string" if schema.get("minLength") else "a string"


def shown(value: object) -> str:
    """Return a value as it was written, short enough for a line."""
    try:
        text = dumps(value, default=str, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "something else"
    return text if len(text) <= 60 else text[:57] + "..."


def toml_value(value: object) -> str:
    """Return a value as it is written in ``ralph.toml``."""
    match value:
        case None:
            return "not set"
        case bool():
            return "true" if value else "false"
        case float() if value.is_integer():
            return f"{value:.0f}"
        case int() | float():
            return str(value)
        case tuple() | list():
            return "[" + ", ".join(toml_value(part) for part in value) + "]"
        case dict():
            pairs = (f"{_quoted(name)} = {toml_value(part)}" for name, part in value.items())
            return "{" + ", ".join(pairs) + "}"
        case _:
            return _quoted(str(value))


def printable(text: str) -> str:
    """Return the text with control characters escaped: file contents must not reach a terminal raw."""
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text)


def _quoted(text: str) -> str:
    marks = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(marks.get(m) or (m if m.isprintable() else f"\\U{ord(m):08x}") for m in text) + '"'


# What a value has to be beyond its type and range. Each check raises ValueError with the words to show.


def storable(text: str) -> str:
    """Refuse text that no argument, variable or path can hold, or no JSON file."""
    if "\0" in text:
        raise ValueError("cannot hold a NUL character")
    if any("\ud800" <= mark <= "\udfff" for mark in text):
        raise ValueError("has to be UTF-8 text")
    return text


def variables(env: dict[str, str]) -> dict[str, str]:
    """Refuse names that no environment variable can have."""
    for name in env:
        if not name or "=" in name or "\0" in name:
            raise ValueError(f"{name!r} cannot be the name of a variable")
    return env


_NO_BRANCH = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)|^[-./]|[./]$|^@$")


def branch_name(name: str) -> str:
    """Refuse what git does not accept as the name of a branch (git-check-ref-format(1))."""
    if _NO_BRANCH.search(name):
        raise ValueError(f"has to be the name of a branch, such as main, is {dumps(name)}")
    return name


def an_address(url: str) -> str:
    """Refuse all but http and https URLs, and a password in one, since URLs are stored."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as fault:
        raise ValueError(f"is not a URL: {fault}") from fault
    if parts.scheme not in ("http", "https") or not host or any(mark.isspace() for mark in url):
        raise ValueError("has to be an http or https URL")
    if parts.username is not None:
        raise ValueError("must not contain a password, since it is stored; use secret_file")
    return url


def hook_name(name: str) -> str:
    """Refuse a name that a command line or a URL cannot hold, or that looks like an id."""
    if name and (not is_name(name) or (len(name) == ID_CHARS and set(name) <= set(hexdigits))):
        rule = "has to consist of a-z, 0-9, '.', '_' and '-', at most 63, beginning with a letter or digit"
        raise ValueError(f"{rule}, and must not look like an id")
    return name


def a_proxy(url: str) -> str:
    """Refuse what is not the URL of a proxy."""
    return an_address(url) if url else url


def a_schedule(schedule: str) -> str:
    """Refuse what is not a list of times of day."""
    windows_of(schedule)
    return schedule


def rooted(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a path that is relative, or names the whole home directory."""
    for path in paths:
        if not path.startswith(("/", "~/")) or not path.strip("/~"):
            raise ValueError(f"{path!r} has to begin with '/' or '~/' and to name something below")
    return paths


_LISTEN = re.compile(r"(?:unix|(?P<where>\[[0-9a-f:]+\]|[\w.-]+):(?P<port>\d{1,5}))?", re.ASCII)
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?(?::\d{1,5})?")


def a_listener(listen: str) -> str:
    """Refuse what the page cannot listen on, and every address at once."""
    parts = _LISTEN.fullmatch(listen)
    if parts is None or not (parts["port"] is None or 0 < int(parts["port"]) < 65_536):
        raise ValueError(f'has to be "unix", "127.0.0.1:PORT" or "INTERFACE:PORT", is {dumps(listen)}')
    if not (parts["where"] or "1").strip("[]0.:"):
        what = "would listen on every network that this machine is in"
        raise ValueError(f'{what}; name one address or interface, as in "tailscale0:{parts["port"]}"')
    return listen


def host_names(hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse what no browser sends as the name of a host."""
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise ValueError(f"{host!r} has to be a name in lower case, with or without :PORT")
    return hosts


def page_address(listen: str, hosts: tuple[str, ...]) -> str:
    """Return the https address of the page under its first configured name; empty without one.

    A page that listens on loopback or a Unix socket has a proxy before it, which listens on 443 unless the
    name has another port.
    """
    if not hosts or ":" in hosts[0]:
        return f"https://{hosts[0].removesuffix(':443')}" if hosts else ""
    where, _, port = listen.rpartition(":")
    is_proxied = where in ("", "127.0.0.1", "[::1]", "lo") or port == "443"
    return f"https://{hosts[0]}" + ("" if is_proxied else f":{port}")


def event_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a pattern that matches no event type."""
    for pattern in patterns:
        one = Destination(url="", on=(pattern,))
        if not any(one.wants(event) for event in EVENT_TYPES):
            raise ValueError(f"{pattern!r} matches no event{did_you_mean(pattern, EVENT_TYPES)}")
    return patterns


def did_you_mean(word: str, known: tuple[str, ...] | list[str], *, cutoff: float = 0.6) -> str:
    """Return ``, did you mean X?`` for the nearest of ``known``; empty when none is near."""
    near = get_close_matches(word, known, n=1, cutoff=cutoff)
    return f", did you mean {near[0]}?" if near else ""


_ROOM_FOR_A_NUMBER = 60


def fit_name(text: str) -> str:
    """Return a name as the API accepts it, near to ``text``: lower case, no accents, ``-`` for the rest.

    A valid name is returned unchanged. Anything else is cut to 60 characters, so that a taken name has room
    for ``-2``. Where nothing is left the name is ``ralph``.
    """
    if is_name(text):
        return text
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    marks = [mark if mark.isalnum() or mark in "._-" else " " for mark in plain]
    name = "-".join("".join(marks).split()).lstrip("._-")
    return name[:_ROOM_FOR_A_NUMBER].rstrip("._-") or "ralph"


GIT_PLACES = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_NAMESPACE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_QUARANTINE_PATH"),
)
"""Variables that lead git to another repository; a hook of that one has them."""
_DENIED = frozenset(
    {
        *GIT_PLACES,
        # the person's terminal
        *("TERM", "TERMCAP", "TERMINFO", "COLORTERM", "COLUMNS", "LINES", "WINDOWID", "GPG_TTY"),
        *("SSH_TTY", "SSH_CONNECTION", "SSH_CLIENT", "STY", "WINDOW"),
        # the shell's own
        *("_", "OLDPWD", "PWD", "SHLVL"),
        # a supervisor's, for the daemon or the shell
        *("NOTIFY_SOCKET", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "MANAGERPID", "FDSTORE"),
        *("RALPH_RUN_ID", "RALPH_NAME", "RALPH_ATTEMPT_ID"),
        "CLAUDECODE",  # of the Claude Code that typed the start: with it, a claude refuses to be nested
    }
)
_DENIED_PREFIXES = ("TERM_", "VTE_", "TMUX", "ZELLIJ", "LD_", "RALPHD_", "LISTEN_", "WATCHDOG_")


def for_runs(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of a person's environment that a run gets.

    Variables of the terminal, the shell, the linker, systemd, a git hook and ralphd itself are left out.
    ``SSH_AUTH_SOCK`` and the like stay: a loop that pushes needs them. Idempotent.
    """
    return {
        name: value
        for name, value in environ.items()
        if name and name not in _DENIED and not name.startswith(_DENIED_PREFIXES)
    }


def run_environment(environ: Mapping[str, str], directory: Path, commands: Path) -> dict[str, str]:
    """Return ``for_runs(environ)`` without ralphd's own Python, and with ``commands`` at the end of PATH.

    ``commands`` holds only ralphctl and ralph, so that reports work in every run. An environment inside
    ``directory``, where the run works, is the project's and stays. Idempotent.
    """
    environment = for_runs(environ)
    own = Path(sys.prefix).resolve()
    if sys.prefix != sys.base_prefix and not own.is_relative_to(directory):
        environment = _without_python(environment, own)
    folders = environment.get("PATH", os.defpath).split(os.pathsep)
    kept = [folder for folder in folders if folder != str(commands)]
    # A path with a colon cannot be on PATH.
    more = [] if os.pathsep in str(commands) else [str(commands)]
    return {**environment, "PATH": os.pathsep.join([*kept, *more])}


def _without_python(environ: Mapping[str, str], own: Path) -> dict[str, str]:
    """Remove what leads into the virtual environment ``own``: an agent would install packages there."""
    environment = dict(environ)
    for name in ("PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
        if name in environ:
            folders = environ[name].split(os.pathsep)
            kept = [each for each in folders if not _is_in(each, own)]
            if kept != folders:
                environment |= {name: os.pathsep.join(kept)}
            if not kept:
                del environment[name]
    return environment


def _is_in(path: str, folder: Path) -> bool:
    # An empty or relative entry is below the working directory of the run, not ours.
    return path.startswith("/") and Path(os.path.realpath(path)).is_relative_to(folder)
