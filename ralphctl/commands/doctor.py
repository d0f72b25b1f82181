"""doctor: check everything ralphd depends on, and print what to do about each fault."""

import os
import sys
from pathlib import Path

import click

from ralphctl.cli.click_ext import CommonCommand, Number, socket_given, wants_json
from ralphctl.client.discovery import here
from ralphctl.doctor import runner
from ralphctl.doctor.runner import Check
from ralphctl.format.output import PLAIN_COLUMNS, columns, has_colour, message
from ralphctl.offline import processes
from ralphctl.service.systemd import SystemdService
from ralphd import wire


@click.command(cls=CommonCommand)
@click.option("--fix", is_flag=True, help="Fix what is safe to fix: file modes and a stale socket.")
@click.option("-q", "--quiet", is_flag=True, help="Show only warnings and failures.")
@click.option("--limit", "limit_s", metavar="S", type=Number(9.0), default=8.0, show_default=True,
              help="Abandon checks after S seconds. All run at the same time.")  # fmt: skip
def doctor(fix: bool, quiet: bool, limit_s: float) -> int:
    """Check the installation and suggest fixes. Exits with 1 if a check failed.

    Checks the daemon, its files, this machine, this directory and the agents; no daemon is needed. For a
    login the doctor runs the agent's own command, and shows neither keys nor addresses.
    """

    def report_waiting(names: list[str]) -> None:
        if sys.stderr.isatty():
            message(f"still checking {', '.join(names)} (up to {limit_s:g} s)")

    processes.become_reaper()
    try:
        results = runner.run_checks(_checks(limit_s), limit_s=limit_s, waiting=report_waiting)
    finally:
        processes.end_all(limit_s=1.0)  # what an agent has started to report its login
    if fix:
        results = [runner.repair(each) for each in results]
    width = min(columns(sys.stdout) or PLAIN_COLUMNS, PLAIN_COLUMNS)
    text = runner.as_text(results, columns=width, colour=has_colour(sys.stdout), quiet=quiet)
    if wants_json() or text:
        click.echo(runner.as_json(results) if wants_json() else text)
    return wire.EXIT_FAILED if any(each.level is runner.Level.FAILED for each in results) else wire.EXIT_OK


def _checks(limit_s: float) -> list[Check]:
    """Return the checks for this directory, user and environment, in the order in which they are printed."""
    from ralphctl.doctor import agents, daemon  # the checks load what they inspect, pydantic too

    # A program may take this part of the limit, so that the result names the one that hangs.
    environ, directory, socket, each_s = os.environ, Path(here()), socket_given(), limit_s * 0.8
    state = Path(wire.state_directory(environ))
    socket_path = Path(socket or wire.socket_path(environ)).absolute()
    configuration, checked = agents.configured(directory, environ)
    return [
        Check("python", daemon.python),
        Check("daemon", lambda: daemon.daemon(socket, environ, str(directory), each_s)),
        Check("lock", lambda: daemon.lock(state)),
        Check("state directory", lambda: daemon.state_directory(state)),
        Check("socket", lambda: daemon.socket(socket_path, state / "lock")),
        Check("file system", lambda: daemon.file_system(state)),
        Check("disk of state", lambda: daemon.disk(state)),
        Check("disk of work", lambda: daemon.disk(directory)),
        Check("sqlite", lambda: daemon.sqlite(state)),
        Check("events.db", lambda: daemon.events(state, limit_s=each_s)),
        Check("service", lambda: daemon.service(SystemdService().unit_file(environ))),
        Check("processes", daemon.trees),
        Check("limits", lambda: daemon.limits(configuration)),
        Check("sandbox", lambda: daemon.sandbox(configuration, environ)),
        Check("open files", daemon.open_files),
        Check("clock", lambda: daemon.clock(environ, each_s)),
        Check("git", lambda: agents.git(environ)),
        Check("directory", lambda: daemon.working_directory(directory)),
        Check("repository", lambda: agents.repository(directory, environ, each_s)),
        Check(".ralph", lambda: daemon.ralph_directory(directory)),
        Check("configuration", lambda: checked),
        *agents.agent_checks(configuration, environ, each_s),
    ]
