"""regent install and uninstall: ralphd as a service of systemd, which starts it after a reboot."""

import os
import pwd
from contextlib import closing
from pathlib import Path

import click

from ralphctl.cli.click_ext import CommonCommand, end_if_json, refuse_within_run
from ralphctl.client import discovery
from ralphctl.client.client import Client
from ralphctl.format.output import SlowNotice, message, note
from ralphctl.offline.processes import ask
from ralphctl.service import systemd, units
from ralphctl.service.daemon import DaemonExit
from ralphctl.service.systemd import NoSystemd, NotRoot, SystemdService, hosting
from ralphd import wire
from ralphd.errors import DaemonNotRunning, UsageError

_HANDED_ON = ("RALPHD_STATE_DIR", "RALPHD_SOCKET", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
_HAND_OVER_LIMIT_S = 30.0


@click.command(cls=CommonCommand)
@click.option("--system", is_flag=True, help="The machine's service; starts at boot. Needs root and --user.")
@click.option("--user", "account", metavar="NAME", help="With --system: the user of the daemon and its runs.")
@click.option("--print", "only_print", is_flag=True, help="Print the unit; install nothing.")
@click.option("--force", is_flag=True, help="Replace a unit that was edited, and keep a copy.")
def install(system: bool, account: str | None, only_print: bool, force: bool) -> None:
    """Install the daemon as a systemd service of your own, or with --system of the machine.

    Writes, enables and starts the unit. Living runs continue. Installing again is harmless.
    """
    text = _unit(system, account)
    if only_print:
        click.echo(text, nl=False)
        return
    service = SystemdService(is_system=system)
    if system:
        _check_root("install")
    service.check_there()
    path = service.place(os.environ)
    was_current = systemd.is_unit_current(path, text)
    kept = None if was_current else systemd.write_unit(path, text, force=force)
    service.ask("daemon-reload")
    service.ask("enable", units.SERVICE)
    taken_over = None if system else _take_over(service)
    service.work("start" if was_current or service.main_pid() is None else "restart")
    _tell_installed(service, path, account, kept, taken_over)


def _unit(system: bool, account: str | None) -> str:
    where = units.Installation(systemd.daemon_command(), {} if system else _environment())
    if not system:
        if account is not None:
            raise UsageError("--user needs --system", why="without --system the service is yours")
        return units.user_service(where)
    if account is None:
        who = os.environ.get("SUDO_USER", "NAME")
        what, mend = "which user should the daemon run as?", f"ralphctl regent install --system --user {who}"
        raise UsageError(what, why="the daemon and its runs use that user's files and keys", mend=mend)
    try:
        pwd.getpwnam(account)
    except KeyError as fault:
        raise UsageError(f"there is no user {account!r}", mend=f"getent passwd {account}") from fault
    return units.system_service(where, account)


def _environment() -> dict[str, str]:
    """Return the variables that locate this user's daemon; systemd does not know those of a shell."""
    given = {name: os.environ[name] for name in _HANDED_ON if os.environ.get(name)}
    if os.environ.get("RALPH_RUN_ID"):
        given.pop("RALPHD_SOCKET", None)  # set by the daemon for the run that this is typed in
    if given:
        given["RALPHD_STATE_DIR"] = wire.state_directory(os.environ)
    given.pop("XDG_STATE_HOME", None)
    return {name: os.path.abspath(path) for name, path in given.items()}  # noqa: PTH100


def _check_root(word: str) -> None:
    if os.geteuid() != 0:
        mend = f"sudo ralphctl regent {word} --system …, or without --system for your own service"
        raise NotRoot("a service of the machine needs root", mend=mend)


def _take_over(service: SystemdService) -> int | None:
    """End a background daemon, leaving its runs for the service; return its pid."""
    client = Client(lambda: discovery.candidates(wire.socket_path(os.environ), os.environ, "/"))
    try:
        pid = int(client.status().value["daemon"]["pid"])
    except DaemonNotRunning:
        return None
    if hosting(pid) == service or service.main_pid() == pid:
        return None
    with closing(DaemonExit(pid, client)) as ending:
        client.shutdown("leave")
        with SlowNotice(f"ralphd (pid {pid}) to end; its runs continue", _HAND_OVER_LIMIT_S):
            ending.wait(_HAND_OVER_LIMIT_S)
    return pid


def _tell_installed(
    service: SystemdService, path: Path, account: str | None, kept: Path | None, taken_over: int | None
) -> None:
    name = account or pwd.getpwuid(os.getuid()).pw_name
    linger = None if service.is_system else service_lingers(name)
    pid = service.main_pid()
    end_if_json({"unit": str(path), "pid": pid, "linger": linger, "kept": kept and str(kept)})
    click.echo(f"ralphd runs as a service (pid {pid}): {path}")
    if kept is not None:
        click.echo(f"  the earlier unit was renamed to {kept.name}")
    if taken_over is not None:
        click.echo(f"  it replaced ralphd (pid {taken_over}); the runs continue")
    if service.is_system:
        click.echo(f"  it runs as {name} and starts at boot")
    else:
        _tell_linger(name, linger)
    click.echo(f"  next: {service.systemctl} status ralphd; ralphctl start DIR -- COMMAND")


def service_lingers(name: str) -> bool:
    """Return whether that user's systemd starts at boot and outlives the last session."""
    done = ask(["loginctl", "show-user", name, "--property=Linger", "--value"], os.environ, 10.0)
    answer = done.text.strip() if done is not None and done.code == 0 else ""
    # loginctl knows nothing of a user who is not logged in; logind keeps the answer in this file.
    return answer == "yes" if answer else Path("/var/lib/systemd/linger", name).exists()


def _tell_linger(name: str, linger: bool | None) -> None:
    if linger:
        click.echo("  it starts at boot and keeps running after you log out (linger is enabled)")
        return
    click.echo("  it starts when you log in")
    note("your last logout ends the service and every run: linger is disabled")
    message(f"  to keep them running, and start at boot: loginctl enable-linger {name}")


@click.command(cls=CommonCommand)
@click.option("--system", is_flag=True, help="Remove the service of the machine. Needs root.")
@click.option("--force", is_flag=True, help="Remove a unit that was edited, and keep a copy.")
def uninstall(system: bool, force: bool) -> None:
    """Stop the service and its runs, and remove its unit; data is kept."""
    refuse_within_run()
    service = SystemdService(is_system=system)
    path = service.unit_file(os.environ)
    if not os.path.lexists(path):
        message(f"nothing to uninstall: {path} does not exist")
        return
    if system:
        _check_root("uninstall")
    systemd.check_unit_removable(path, force=force)
    try:
        service.check_there()
    except NoSystemd as away:
        raise NoSystemd(away.what, why=away.why, mend=f"rm {path}  (if systemd does not run here)") from away
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    state = service.state_directory(text, os.environ)
    message(f"stopping {units.SERVICE} and its runs")
    service.work("stop")
    service.ask("disable", units.SERVICE)
    kept = systemd.remove_unit(path, force=force)
    service.ask("daemon-reload")
    _tell_removed(path, kept, state, is_system=system)


def _tell_removed(path: Path, kept: Path | None, state: str, *, is_system: bool) -> None:
    end_if_json({"unit": str(path), "kept": kept and str(kept), "state_directory": state})
    click.echo(f"removed the service: {path}")
    if kept is not None:
        click.echo(f"  a copy was kept as {kept.name}")
    click.echo(f"  kept: {state} (ralphs, logs, history) and all ralph.toml files")
    if not is_system:
        click.echo("  next: ralphctl regent start  (runs the daemon in the background)")
