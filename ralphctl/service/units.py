"""The text of the systemd units: those that are installed, and the files below ``systemd/``.

The last line of a unit is the checksum of the others. It distinguishes a unit that was edited by hand from
one of an earlier version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ralphd.errors import UsageError

SERVICE = "ralphd.service"
SOCKET = "ralphd.socket"
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


PACKAGED = Installation(command=("/usr/bin/ralphd",))
"""As in the files below ``systemd/``, for packagers."""

_HEAD = """\
# {title}
# Written by `{writer}`, which overwrites changes. Make yours with
#   {edit}
"""
_UNIT = """
[Unit]
Description=ralphd, the Regent: supervises coding-agent loops
# A supervisor does not give up.
StartLimitIntervalSec=0
"""
_SERVICE = """
[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID

# The runs continue while the daemon is replaced: each has its own shim, and the next daemon adopts them.
# A stop is different: at SIGTERM the daemon stops every run, and ends when none is left.
KillMode=process
RestartKillSignal=SIGUSR2
Restart=always
RestartSec=1
# 75: another ralphd owns the state directory. 78: a unit is wrong. A retry helps with neither.
RestartPreventExitStatus=75 78
TimeoutStopSec={stop_s}
# A daemon that hangs is aborted, logs where it hung, and the next one adopts the runs.
WatchdogSec={watchdog_s}
TimeoutAbortSec={abort_s}
LimitCORE=0:infinity

# Every run gets its own control group below this one, so that a stop finds all its processes.
Delegate=yes
# A run that is out of memory ends; the daemon continues.
OOMPolicy=continue
TasksMax=infinity

# For the files of the runs. The daemon's own files are private under any mask.
UMask=0022
"""
_SYSTEM = """
# /var/lib/ralphd and /run/ralphd, private to its user. The second is kept: systemd may own its socket.
StateDirectory=ralphd
StateDirectoryMode=0700
RuntimeDirectory=ralphd
RuntimeDirectoryMode=0700
RuntimeDirectoryPreserve=yes

# Agents can still use compilers, package managers, debuggers, dev servers and sandboxes.
# No run can become root: sudo does not work.
NoNewPrivileges=yes
CapabilityBoundingSet=
RestrictRealtime=yes
ProtectKernelModules=yes
SystemCallFilter=~@clock @module @obsolete @raw-io @reboot @swap syslog
SystemCallErrorNumber=EPERM
"""
_SOCKET = """
[Unit]
Description=The socket of ralphd, the Regent

[Socket]
# Where ralphctl looks; the unit of the daemon has the same path.
ListenStream=/run/ralphd/ralphd.sock
SocketUser={user}
SocketMode=0600
DirectoryMode=0755
# systemd keeps listening while the daemon is replaced or stopped, and starts it on a connection.
RemoveOnStop=yes

[Install]
WantedBy=sockets.target
"""


def user_service(where: Installation) -> str:
    """Return the unit of one user's daemon, for that user's own systemd.

    It has no sandbox: the daemon and its runs can do what the user can, as with ``ralphctl regent start``.
    """
    environment = {"RALPHD_STATE_DIR": "%h/.local/state/ralphd"}
    return _summed(
        _head("ralphd, for one user", "ralphctl regent install", "systemctl --user edit ralphd")
        + _UNIT
        + _service(where, {}, environment)
        + "\n[Install]\nWantedBy=default.target\n"
    )


def system_service(where: Installation, user: str) -> str:
    """Return the unit of a daemon that the machine runs for ``user``."""
    environment = {"RALPHD_STATE_DIR": "%S/ralphd", "RALPHD_SOCKET": "%t/ralphd/ralphd.sock"}
    return _summed(
        _head("ralphd, for the machine", "ralphctl regent install --system", "systemctl edit ralphd")
        + _UNIT
        + _service(where, {"User": user}, environment)
        + _SYSTEM
        + "\n[Install]\nWantedBy=multi-user.target\n"
    )


def system_socket(user: str) -> str:
    """Return the socket unit of the machine's daemon, for systemd to listen."""
    head = _head("The socket of ralphd, for the machine", "make docs", "systemctl edit ralphd.socket")
    return _summed(head + _SOCKET.format(user=user))


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


def _head(title: str, writer: str, edit: str) -> str:
    return _HEAD.format(title=title, writer=writer, edit=edit)


def _service(where: Installation, account: Mapping[str, str], environment: Mapping[str, str]) -> str:
    text = _SERVICE.format(
        command=" ".join(_word(word) for word in _startable(where.command)),
        stop_s=STOP_LIMIT_S, watchdog_s=WATCHDOG_S, abort_s=ABORT_LIMIT_S,
    )  # fmt: skip
    escaped = {name: _quotable(value) for name, value in where.environment.items()}
    lines = [f"{key}={value}" for key, value in account.items()]
    lines += [f'Environment="{name}={value}"' for name, value in {**environment, **escaped}.items()]
    return text + "\n" + "\n".join(lines) + "\n"


def _startable(command: Sequence[str]) -> Sequence[str]:
    """Start a program with a quote or a backslash in its path by ``env``, since systemd refuses to."""
    if not set("'\"\\") & set(command[0]):
        return command
    if "=" in command[0]:
        raise UsageError(
            f"a unit cannot start {command[0]!r}",
            why="it contains a quote or backslash and an equals sign",
        )
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
