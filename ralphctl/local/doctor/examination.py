"""All that the doctor looks at, in the order in which it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ralphctl import service as services
from ralphctl.local.doctor import agents, daemon, database, homes, machine, repository
from ralphctl.local.doctor.findings import Finding
from ralphctl.local.doctor.rounds import Check
from ralphd import wire
from ralphd.config.configuration import Configuration, load
from ralphd.errors import RalphdError

_SHARE = 0.8
"""Of the limit: what a single program may take, so that its own answer is told and not that of the round."""


def checks(
    directory: Path, environ: Mapping[str, str], *, socket: str | None, limit_s: float
) -> Sequence[Check]:
    """The checks for this directory, this user and this environment."""
    state = Path(wire.state_directory(environ))
    path, lock = Path(socket or wire.socket_path(environ)).absolute(), state / "lock"
    each_s = limit_s * _SHARE
    unit = services.Service().unit_file(environ)
    loaded = _configuration(directory, environ)
    return [
        Check("python", daemon.program),
        Check("daemon", lambda: daemon.daemon(socket, environ, str(directory), each_s)),
        Check("lock", lambda: daemon.lock(state)),
        Check("state directory", lambda: homes.state_directory(state)),
        Check("socket", lambda: homes.socket(path, lock)),
        Check("file system", lambda: machine.file_system(state)),
        Check("disk of state", lambda: machine.room("disk of state", state)),
        Check("disk of work", lambda: machine.room("disk of work", directory)),
        Check("sqlite", lambda: database.sqlite(state)),
        Check("events.db", lambda: database.events(state, limit_s=each_s)),
        Check("service", lambda: machine.service(environ, unit, each_s)),
        Check("trees", machine.trees),
        Check("open files", machine.open_files),
        Check("clock", lambda: machine.clock(state, environ, each_s)),
        Check("git", lambda: repository.git(environ, each_s)),
        Check("directory", lambda: daemon.working_directory(directory)),
        Check("repository", lambda: repository.repository(directory, environ, each_s)),
        Check(".ralph", lambda: homes.mirror(directory)),
        Check("configuration", lambda: _told(loaded)),
        *agents.checks(loaded, environ, each_s),
    ]


def _configuration(directory: Path, environ: Mapping[str, str]) -> Configuration | RalphdError:
    try:
        return load(directory, environ=environ)
    except RalphdError as fault:
        return fault


def _told(loaded: Configuration | RalphdError) -> Sequence[Finding]:
    return [repository.configuration(loaded)]
