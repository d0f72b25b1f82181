"""The text of the systemd units from their templates: those that are installed, and those in ``systemd/``.

The last line of a unit is the checksum of the others. It distinguishes a unit that was edited by hand from
one of an earlier version.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from ralphd.dataclass import dataclass
from ralphd.errors import UsageError

SERVICE = "ralphd.service"
WATCHDOG_S = 60
"""The daemon notifies systemd every 8 s, or three times in this time if that is more often."""
ABORT_LIMIT_S = 10
STOP_LIMIT_S = 95
"""Above the default ``stop_deadline_seconds`` (60), the kill after it (20) and the daemon's own end (10).

Where a ralph's deadline is longer the daemon asks systemd for that time itself.
"""
_SUM = "# sum: "


@dataclass(frozen=True, slots=True)
class Installation:
    """The parts of a unit that depend on the installation."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def user_service(where: Installation) -> str:
    """Return the unit of one user's daemon, for that user's own systemd.

    It has no sandbox: the daemon and its runs can do what the user can, as with ``ralphctl regent start``.
    """
    return _service(
        where, {}, {"RALPHD_STATE_DIR": "%h/.local/state/ralphd"},
        title="ralphd, for one user", writer="ralphctl regent install", edit="systemctl --user edit ralphd",
        more="", target="default.target",
    )  # fmt: skip


def system_service(where: Installation, user: str) -> str:
    """Return the unit of a daemon that the machine runs for ``user``."""
    environment = {"RALPHD_STATE_DIR": "%S/ralphd", "RALPHD_SOCKET": "%t/ralphd/ralphd.sock"}
    return _service(
        where, {"User": user}, environment,
        title="ralphd, for the machine", writer="ralphctl regent install --system",
        edit="systemctl edit ralphd", more=_template("system.in"), target="multi-user.target",
    )  # fmt: skip


def system_socket(user: str) -> str:
    """Return the socket unit of the machine's daemon, for systemd to listen."""
    return _summed(_template("ralphd.socket.in").format(user=user))


def is_as_written(text: str) -> bool:
    """Return whether a unit is as some version of ralphd wrote it."""
    *lines, last = text.splitlines(keepends=True) or [""]
    return last.startswith(_SUM) and last.strip() == _SUM + _digest("".join(lines))


def value_of(text: str, variable: str) -> str | None:
    """Return what a unit of ours sets ``variable`` of the daemon's environment to."""
    for line in text.splitlines():
        if line.startswith(f'Environment="{variable}='):
            quoted = line.removeprefix(f'Environment="{variable}=').removesuffix('"')
            return quoted.replace('\\"', '"').replace("\\\\", "\\").replace("%%", "%")
    return None


def _template(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _service(
    where: Installation, account: Mapping[str, str], environment: Mapping[str, str], **words: str
) -> str:
    escaped = {name: _quotable(value) for name, value in where.environment.items()}
    lines = [f"{key}={value}" for key, value in account.items()]
    lines += [f'Environment="{name}={value}"' for name, value in {**environment, **escaped}.items()]
    text = _template("ralphd.service.in").format(
        command=" ".join(_word(word) for word in _startable(where.command)), settings="\n".join(lines),
        stop_s=STOP_LIMIT_S, watchdog_s=WATCHDOG_S, abort_s=ABORT_LIMIT_S, **words,
    )  # fmt: skip
    return _summed(text)


def _startable(command: Sequence[str]) -> Sequence[str]:
    """Start a program with a quote or a backslash in its path by ``env``, since systemd refuses to."""
    if not set("'\"\\") & set(command[0]):
        return command
    if "=" in command[0]:
        why = "it contains a quote or backslash and an equals sign"
        raise UsageError(f"a unit cannot start {command[0]!r}", why=why)
    return ("/usr/bin/env", *command)


def _word(word: str) -> str:
    quoted = _quotable(word)
    return quoted if quoted == word and not set(" '") & set(word) else f'"{quoted}"'


def _quotable(text: str) -> str:
    """Escape text for double quotes (systemd.syntax(7)), with systemd's own specifiers taken literally."""
    if not text.isprintable() or "$" in text:
        raise UsageError(f"a unit cannot hold {text!r}", why="it contains a control character or dollar sign")
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def _summed(text: str) -> str:
    return f"{text}{_SUM}{_digest(text)}\n"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
