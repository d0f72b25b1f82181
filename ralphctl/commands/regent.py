"""regent: start, stop, replace and inspect the daemon itself; read its log, with or without a daemon."""

import os
import sys
import time
from collections import deque
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import IO

import click

from ralphctl.cli import click_ext
from ralphctl.cli.click_ext import SECONDS, CommonCommand, socket_given, the_client, value_for_text
from ralphctl.client import discovery, waiting
from ralphctl.client.client import Client, Reply
from ralphctl.format.humanize import ago, clock, count, last_exit, moment
from ralphctl.format.output import clean, message, neutralise
from ralphctl.format.state_text import change_lines
from ralphctl.service import systemd, units
from ralphctl.service.daemon import DaemonExit, start_daemon
from ralphd import wire
from ralphd.errors import DaemonNotRunning, NotFound, RalphdError
from ralphd.overview import has_a_run

_APPLIED_AT_ONCE = (
    *("logs.total_bytes", "regent.runs_may", "notify.allow_private", "notify.desktop"),
    *("fleet.", "web.", "webhooks["),
)
"""How keys begin that no ralph has to be reloaded for, as in ``config.keys.is_daemons``."""
_READ_AT_START = ("_seconds", "work_directory")
"""How the keys of ``[fleet]`` end that a daemon reads only at its start."""


@click.group(cls=click_ext.LazyGroup)
def regent() -> None:
    """Manage the ralphd daemon."""


def _own_client() -> Client:
    """Return a client of this user's daemon, whichever daemon supervises the current directory.

    Unless an option or variable names one, the machine's daemon counts if this user has none.
    """
    said = any(os.environ.get(name) for name in ("RALPHD_SOCKET", "RALPHD_STATE_DIR"))
    given = socket_given() or (wire.socket_path(os.environ) if said else None)
    return Client(lambda: discovery.candidates(given, os.environ, "/"))


@click.command(cls=CommonCommand)
def start() -> None:
    """Start the daemon in the background, or its systemd service if one is installed. Wait until it answers.

    Ralphs that were running when the last daemon ended are started again.
    """
    client = _own_client()
    try:
        reply, said = client.status(), "is already running"
    except DaemonNotRunning:
        start_daemon(socket_given())
        reply, said = client.status(), "started"
    known = value_for_text(reply)
    click.echo(f"ralphd {said} (pid {known['daemon']['pid']}), {count(len(known['ralphs']), 'ralph')}")
    click.echo("  next: " + ("ralphctl status" if known["ralphs"] else "ralphctl start DIR -- COMMAND"))


@click.command(cls=CommonCommand)
@click.option("--now", "at_once", is_flag=True, help="Kill all runs at once (SIGKILL).")
@click.option("--leave-runs", is_flag=True, help="Leave the runs alone; the next daemon adopts them.")
@click.option("--wait-timeout", type=SECONDS, metavar="S", help="Wait S seconds at most.")
def stop(at_once: bool, leave_runs: bool, wait_timeout: float | None) -> None:
    """Stop the daemon, after stopping every ralph as stop does.

    Ralphs that were running are started again with the next daemon.
    """
    if at_once and leave_runs:
        raise click.UsageError("--now and --leave-runs exclude each other")
    client = _own_client()
    try:
        before: waiting.View = client.status().value
    except DaemonNotRunning as away:
        message(f"nothing to stop: {away.what}")
        return
    runs = "now" if at_once else "leave" if leave_runs else "finish"
    value_for_text(_end(client, before, runs, wait_timeout))
    living = _living(before["ralphs"])
    left = f"; {count(len(living), 'run')} left running: {', '.join(living)}" if leave_runs and living else ""
    click.echo(f"ralphd (pid {before['daemon']['pid']}) has ended{left}")
    click.echo("  next: ralphctl regent start")


def _end(client: Client, before: waiting.View, runs: str, timeout_s: float | None) -> Reply:
    """Stop the daemon and wait for its end. Raise WaitTimeout."""
    pid, began = before["daemon"]["pid"], time.time()
    with closing(DaemonExit(pid, client)) as ending:
        if (unit := systemd.hosting(pid)) is not None:
            unit.check_allowed("stop")
        reply = client.shutdown(runs)
        if unit is not None:  # or systemd would start it again; the first request decides about the runs
            unit.ask("stop", "--no-block", units.SERVICE)
        if ending.wait(waiting.QUIET_S if timeout_s is None else min(waiting.QUIET_S, timeout_s)):
            return reply
        living = ", ".join(_living(before["ralphs"])) if runs != "leave" else ""
        what = f"ralphd (pid {pid}) to end" + (f" with {living}" if living else "")
        force = "" if runs == "now" else "ralphctl regent stop --now"
        message(f"waiting for {what}, since {clock(began, time.time())}" + waiting.forced(force))
        if not ending.wait(None if timeout_s is None else max(0.0, timeout_s - waiting.QUIET_S)):
            raise waiting.WaitTimeout(f"after {timeout_s:g} s still waiting for {what}", mend=force)
        return reply


@click.command(cls=CommonCommand)
@click.option("--wait-timeout", type=SECONDS, metavar="S", help="Wait S seconds at most.")
def restart(wait_timeout: float | None) -> None:
    """Restart the daemon. Running loops are not interrupted: the new daemon adopts them."""
    click_ext.refuse_within_run()
    client = _own_client()
    try:
        before: waiting.View = client.status().value
        if (unit := systemd.hosting(before["daemon"]["pid"])) is not None:
            unit.check_allowed("restart")
            unit.work("restart")
        else:
            _end(client, before, "leave", wait_timeout)
            start_daemon(socket_given())
    except DaemonNotRunning as away:
        message(f"no daemon to replace: {away.what}")
        before = {"ralphs": []}
        start_daemon(socket_given())
    click.echo("\n".join(_replaced(before["ralphs"], value_for_text(client.status()))))


def _replaced(before: list[waiting.View], after: waiting.View) -> list[str]:
    living = {view["name"]: view.get("run_id") for view in before if _runs(view)}
    now_living = [(view["name"], view.get("run_id")) for view in after["ralphs"] if _runs(view)]
    adopted = [name for name, run_id in living.items() if (name, run_id) in now_living]
    endings = {view["name"]: view.get("last_exit") for view in after["ralphs"]}
    ended = [
        f"  {name} ended during the restart" + (f": {last_exit(endings[name])}" if endings.get(name) else "")
        for name in living if name not in adopted
    ]  # fmt: skip
    said = f"{count(len(adopted), 'run')} adopted" + (f": {', '.join(adopted)}" if adopted else "")
    return [f"ralphd restarted (pid {after['daemon']['pid']}), {said}", *ended, "  next: ralphctl status"]


def _living(views: list[waiting.View]) -> list[str]:
    return [view["name"] for view in views if _runs(view)]


def _runs(view: waiting.View) -> bool:
    return view.get("state") != "starting" and has_a_run(view)


@click.command(cls=CommonCommand)
def reload() -> None:
    """Read your own configuration file (ralph/config.toml) again.

    Its webhooks apply at once, and so do web.*, logs.total_bytes, regent.runs_may, notify.desktop,
    notify.allow_private and fleet.* (its times and work_directory after ralphctl regent restart); the rest
    applies to each ralph after ralphctl reload NAME. If the file has faults, nothing changes.
    """
    done = value_for_text((_own_client() if socket_given() else the_client()).reload())
    changes, pid = done["changes"], done["daemon"]["pid"]
    if not changes:
        click.echo(f"ralphd (pid {pid}): nothing has changed")
        return
    click.echo("\n".join([f"ralphd (pid {pid}): {count(len(changes), 'change')}", *change_lines(changes)]))
    keys = [str(change["key"]) for change in changes]
    if late := [clean(key) for key in keys if key.startswith("fleet.") and key.endswith(_READ_AT_START)]:
        click.echo(f"  next: ralphctl regent restart  (for {', '.join(late)}; the runs continue)")
    if not all(key.startswith(_APPLIED_AT_ONCE) for key in keys):
        click.echo("  next: ralphctl reload NAME  (for each ralph that should use it)")


@click.command(cls=CommonCommand)
def status() -> None:
    """Show the daemon's state. Exits with 3 if none is running."""
    known = value_for_text((_own_client() if socket_given() else the_client()).status())
    daemon, ralphs, now = known["daemon"], known["ralphs"], time.time()
    click.echo(f"ralphd {daemon['version']}  {daemon['status']} (pid {daemon['pid']})")
    rows = [
        ("started", ago(daemon.get("started_at"), now)),
        ("ralphs", f"{len(ralphs)}, {len(_living(ralphs))} of them running"),
        ("files in", daemon.get("state_directory")),
        ("socket", daemon.get("socket")),
        ("tracking", daemon.get("tree_means")),
        *(("problem", problem) for problem in daemon.get("problems") or ()),
    ]
    for label, text in rows:
        for i, line in enumerate(str(text or "").splitlines()):
            click.echo(f"  {'' if i else label:<9} {clean(line)}")


@click.command(cls=CommonCommand)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new lines.")
@click.option("-n", "--tail", type=click.IntRange(0), metavar="N", default=50, help="The last N lines (50).")
def logs(follow: bool, tail: int) -> None:
    """Show the daemon's log: what it did, and why it did not start."""
    path = _state_directory() / "ralphd.log"
    try:
        log = path.open("rb")
    except FileNotFoundError as fault:
        raise NotFound("the daemon has no log yet", why=str(path), mend="ralphctl regent start") from fault
    with log:
        _print(deque(log, maxlen=tail))
        if follow:
            _follow(path, log)


def _state_directory() -> Path:
    with suppress(RalphdError):  # people read this log because the daemon does not answer
        return Path(the_client().status().value["daemon"]["state_directory"])
    return Path(wire.state_directory(os.environ))


def _print(lines: Iterable[bytes]) -> None:
    for line in lines:
        if not sys.stdout.isatty():
            sys.stdout.buffer.write(line)
        else:
            first, space, rest = line.decode("utf-8", "replace").rstrip("\n").partition(" ")
            if (at := moment(first)) is not None:  # the file has UTC, the screen the reader's zone
                first = time.strftime("%F %T", time.localtime(at))
            sys.stdout.write(neutralise(first + space + rest) + "\n")
        sys.stdout.flush()


def _follow(path: Path, log: IO[bytes]) -> None:
    while True:
        is_replaced = False
        with suppress(FileNotFoundError):  # between the two steps of a rotation
            is_replaced = not os.path.samestat(path.stat(), os.fstat(log.fileno()))
        _print(log)  # only now, so that nothing is left of a log that was rotated
        if is_replaced:
            log.close()
            log = path.open("rb")
        else:
            time.sleep(0.1)
