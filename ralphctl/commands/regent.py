"""regent: the daemon itself. Start it, end it, replace it while the runs go on, look at it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any, TypeAlias

import click

from ralphctl import background, link, service, waiting
from ralphctl.changes import change_lines
from ralphctl.client import Client, Reply
from ralphctl.entry import Entry
from ralphctl.grammar import SECONDS, Command, LazyGroup, print_reply, socket_given, the_client, wants_json
from ralphctl.local import units
from ralphctl.tell import clean, message
from ralphctl.words import ago, clock, count, last_exit
from ralphd import wire
from ralphd.errors import DaemonNotRunning

View: TypeAlias = Mapping[str, Any]

_PLACE = "ralphctl.commands.regent"
_LIVING = frozenset({"running", "testing", "pausing", "stopping"})

regent = LazyGroup(
    "regent",
    table={
        "start": Entry(f"{_PLACE}:start", "Start the daemon in the background."),
        "stop": Entry(f"{_PLACE}:stop", "End the daemon, and the runs with it."),
        "restart": Entry(f"{_PLACE}:restart", "Replace the daemon; the runs go on."),
        "reload": Entry(f"{_PLACE}:reload", "Read your own configuration file again."),
        "status": Entry(f"{_PLACE}:status", "How the daemon is, and where it keeps things."),
        "logs": Entry("ralphctl.commands.regentlog:logs", "The daemon's own log."),
        "install": Entry("ralphctl.commands.install:install", "Have systemd keep the daemon running."),
        "uninstall": Entry("ralphctl.commands.install:uninstall", "Undo that; what is written down stays."),
    },
    help="Start, stop, restart and look at the daemon itself.",
    no_args_is_help=True,
)


def _own_client() -> Client:
    """The daemon of this user, whichever directory we are in and whoever supervises there.

    Where nothing says which, the machine's own is meant when this user has none.
    """
    said = any(os.environ.get(name) for name in ("RALPHD_SOCKET", "RALPHD_STATE_DIR"))
    given = socket_given() or (wire.socket_path(os.environ) if said else None)
    return Client(lambda: link.candidates(given, os.environ, "/"))


@click.command(cls=Command)
def start() -> None:
    """Start the daemon in the background, or its service where one is installed; back when it answers.

    What was to be running when the last daemon ended runs again.
    """
    client = _own_client()
    try:
        reply, said = client.status(), "runs already"
    except DaemonNotRunning:
        background.start_daemon(socket_given())
        reply, said = client.status(), "started"
    if wants_json():
        print_reply(reply)
        return
    daemon = reply.value["daemon"]
    click.echo(f"ralphd {said} (pid {daemon['pid']}), {count(len(reply.value['ralphs']), 'ralph')}")
    click.echo("  next: " + ("ralphctl status" if reply.value["ralphs"] else "ralphctl start DIR -- COMMAND"))


@click.command(cls=Command)
@click.option("--now", is_flag=True, help="Kill the trees of all runs at once.")
@click.option("--leave-runs", is_flag=True, help="Let the runs go on; the next daemon adopts them.")
@click.option("--wait-timeout", type=SECONDS, metavar="S", help="Wait S seconds at most.")
def stop(now: bool, leave_runs: bool, wait_timeout: float | None) -> None:
    """End the daemon, after every ralph has been stopped as stop does.

    What was to be running runs again at the next start.
    """
    if now and leave_runs:
        raise click.UsageError("--now and --leave-runs exclude each other")
    client = _own_client()
    try:
        before = client.status()
    except DaemonNotRunning as away:
        message(f"nothing to stop: {away.what}")
        return
    runs = "now" if now else "leave" if leave_runs else "finish"
    reply = _end(client, before.value, runs, wait_timeout)
    if wants_json():
        print_reply(reply)
        return
    living = _living(before.value["ralphs"])
    left = f"; {count(len(living), 'run')} left running: {', '.join(living)}" if leave_runs and living else ""
    click.echo(f"ralphd (pid {before.value['daemon']['pid']}) has ended{left}")
    click.echo("  next: ralphctl regent start")


def _end(client: Client, before: View, runs: str, timeout_s: float | None) -> Reply:
    """Have the daemon end, and wait for it. Raises WaitTimeout."""
    pid, began = before["daemon"]["pid"], time.time()
    ending = background.Ending(pid, client)
    unit = service.hosting(pid)
    if unit is not None:
        unit.check_allowed("stop")
    try:
        reply = client.shutdown(runs)
        if unit is not None:  # or systemd would start the next one; the first word on the runs holds
            unit.ask("stop", "--no-block", units.SERVICE)
        if ending.wait(waiting.QUIET_S if timeout_s is None else min(waiting.QUIET_S, timeout_s)):
            return reply
        living = ", ".join(_living(before["ralphs"])) if runs != "leave" else ""
        what = f"ralphd (pid {pid}) to end" + (f" with {living}" if living else "")
        force = "" if runs == "now" else "ralphctl regent stop --now"
        message(f"waiting for {what}, since {clock(began, time.time())}" + waiting.forced(force))
        left_s = None if timeout_s is None else max(0.0, timeout_s - waiting.QUIET_S)
        if not ending.wait(left_s):
            raise waiting.WaitTimeout(f"after {timeout_s:g} s still waiting for {what}", mend=force)
        return reply
    finally:
        ending.close()


@click.command(cls=Command)
@click.option("--wait-timeout", type=SECONDS, metavar="S", help="Wait S seconds at most.")
def restart(wait_timeout: float | None) -> None:
    """Replace the daemon. The runs go on: the new one adopts them, with their pids and logs."""
    client = _own_client()
    try:
        before: View = client.status().value
        if (unit := service.hosting(before["daemon"]["pid"])) is not None:
            unit.check_allowed("restart")
            unit.work("restart")
        else:
            _end(client, before, "leave", wait_timeout)
            background.start_daemon(socket_given())
    except DaemonNotRunning as away:
        message(f"nothing to replace: {away.what}")
        before = {"ralphs": []}
        background.start_daemon(socket_given())
    reply = client.status()
    if wants_json():
        print_reply(reply)
        return
    for line in _replaced(before["ralphs"], reply.value):
        click.echo(line)


def _replaced(before: list[View], after: View) -> list[str]:
    now = {view["name"]: view for view in after["ralphs"]}
    living = [view for view in before if view["state"] in _LIVING]
    adopted = [view for view in living if _is_same_run(view, now.get(view["name"]))]
    names = ", ".join(view["name"] for view in adopted)
    said = f"{count(len(adopted), 'run')} adopted" + (f": {names}" if names else "")
    lines = [f"ralphd started anew (pid {after['daemon']['pid']}), {said}"]
    for view in living:
        if view not in adopted:
            ending = (now.get(view["name"]) or {}).get("last_exit")
            lines.append(f"  {view['name']} ended meanwhile" + (f": {last_exit(ending)}" if ending else ""))
    return [*lines, "  next: ralphctl status"]


def _is_same_run(before: View, after: View | None) -> bool:
    return after is not None and after["state"] in _LIVING and after.get("run_id") == before.get("run_id")


def _living(views: list[View]) -> list[str]:
    return [view["name"] for view in views if view["state"] in _LIVING]


@click.command(cls=Command)
def reload() -> None:
    """Read your own configuration file (ralph/config.toml) again.

    Its webhooks and logs.total_bytes hold at once. What it says about ralphs holds for each after
    ralphctl reload NAME. With faults nothing changes.
    """
    reply = (_own_client() if socket_given() else the_client()).reload()
    if wants_json():
        print_reply(reply)
        return
    changes, pid = reply.value["changes"], reply.value["daemon"]["pid"]
    if not changes:
        click.echo(f"ralphd (pid {pid}): nothing has changed")
        return
    click.echo(f"ralphd (pid {pid}): {count(len(changes), 'change')}")
    for line in change_lines(changes):
        click.echo(line)
    if not all(change["key"].startswith(("logs.total_bytes", "webhooks[")) for change in changes):
        click.echo("  next: ralphctl reload NAME  (for each ralph that is to follow)")


@click.command(cls=Command)
def status() -> None:
    """How the daemon is. Exits with 3 when none is running."""
    reply = _own_client().status() if socket_given() else the_client().status()
    if wants_json():
        print_reply(reply)
        return
    daemon, now = reply.value["daemon"], time.time()
    click.echo(f"ralphd {daemon['version']}  {daemon['status']} (pid {daemon['pid']})")
    rows = [
        ("started", ago(daemon.get("started_at"), now)),
        ("ralphs", f"{len(reply.value['ralphs'])}, {len(_living(reply.value['ralphs']))} of them running"),
        ("state in", daemon.get("state_directory")),
        ("socket", daemon.get("socket")),
        ("trees by", daemon.get("tree_means")),
        *(("problem", problem) for problem in daemon.get("problems") or ()),
    ]
    for label, text in rows:
        head, *more = str(text or "").splitlines() or [""]
        if head:
            click.echo(f"  {label:<9} {clean(head)}")
        for line in more:
            click.echo(f"  {'':<9} {clean(line)}")
    sys.stdout.flush()
