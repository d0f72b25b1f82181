"""The program itself, and the daemon: whether one runs, whose lock it holds, and of which version it is."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ralphctl import link
from ralphctl.local import registered
from ralphctl.local.doctor.findings import Finding, Level
from ralphctl.local.doctor.homes import lock_holder
from ralphctl.words import count
from ralphd import __version__, wire
from ralphd.errors import DaemonNotRunning, Forbidden, RalphdError

_LOGS = "ralphctl regent logs"


def program() -> Sequence[Finding]:
    """This installation."""
    where = Path(sys.executable)
    return [Finding("python", Level.OK, f"{platform.python_version()}, ralphctl {__version__}, {where}")]


def daemon(
    socket: str | None, environ: Mapping[str, str], directory: str, limit_s: float
) -> Sequence[Finding]:
    """Whether one answers that a command in ``directory`` would reach."""
    paths = link.candidates(socket, environ, directory)
    try:
        code, body = link.get(paths, f"{wire.API}/status", timeout_s=limit_s)
    except DaemonNotRunning:
        return [_none(environ)]
    except Forbidden as fault:
        return [Finding("daemon", Level.WARNING, fault.what, fault.mend)]
    except RalphdError as fault:
        found = "; ".join([fault.what, *fault.why.splitlines()])
        return [Finding("daemon", Level.FAILED, found, fault.mend or _LOGS)]
    return [_answered(code, body)]


def _none(environ: Mapping[str, str]) -> Finding:
    pid = lock_holder(Path(wire.state_directory(environ), "lock"))
    if pid is not None:
        found = f"pid {pid} has the lock of the state directory, and does not listen"
        return Finding("daemon", Level.FAILED, found, f"{_LOGS}\nps -fp {pid}")
    waiting = [view["name"] for view in registered.views(environ) if view["state"] == "starting"]
    if waiting:
        found = f"none runs, and {count(len(waiting), 'ralph')} should: {', '.join(waiting[:3])}"
        return Finding("daemon", Level.WARNING, found, "ralphctl regent start")
    return Finding("daemon", Level.OK, "none runs; ralphctl start starts one")


def _answered(code: int, body: bytes) -> Finding:
    try:
        said = json.loads(body)
        version, pid = str(said["version"]), int(said["daemon"]["pid"])
    except (ValueError, KeyError, TypeError):
        return Finding("daemon", Level.FAILED, f"what answers on the socket says {code}, and not how it is",
                       "ralphctl regent restart")  # fmt: skip
    if version != __version__:
        found = f"pid {pid} is ralphd {version}, and this is ralphctl {__version__}"
        return Finding("daemon", Level.WARNING, found, "ralphctl regent restart  (the runs go on)")
    if problems := [str(each) for each in said["daemon"].get("problems", ())]:
        found = f"pid {pid} is degraded: {'; '.join(problems)}"
        return Finding("daemon", Level.WARNING, found, "ralphctl regent status")
    means = said["daemon"].get("tree_means")
    return Finding("daemon", Level.OK, f"pid {pid}, ralphd {version}, finds what belongs to a run by {means}")


def lock(state: Path) -> Sequence[Finding]:
    """Who owns the state directory."""
    pid = lock_holder(state / "lock")
    return [Finding("lock", Level.OK, "held by nobody" if pid is None else f"held by pid {pid}")]


def working_directory(directory: Path) -> Sequence[Finding]:
    """Whether a Regent or a run has this directory (S2), and whether a ralph could work in it."""
    if not os.access(directory, os.W_OK | os.X_OK):
        found = f"{directory} cannot be written: no ralph can work here"
        return [Finding("directory", Level.FAILED, found, f"ls -ld {directory}")]
    if not link.is_flocked(directory.stat().st_ino):
        return [Finding("directory", Level.OK, f"{directory}, where no ralph is at work")]
    whose = link.signpost(str(directory))
    found = f"{directory} has a ralph at work" + (f", of the daemon at {whose}" if whose else "")
    return [Finding("directory", Level.OK, found)]
