"""web: the page for a phone: where it is, which devices are paired, pair and revoke them."""

import io
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ralphctl.cli import click_ext
from ralphctl.cli.click_ext import CommonCommand, end_if_json, refuse_within_run, the_client, wants_json
from ralphctl.client import transport
from ralphctl.format.humanize import ago, count
from ralphctl.format.output import clean, has_colour, message, wrapped_table
from ralphctl.offline.checkpoint import can_ask, confirmed
from ralphctl.web.devices import Devices
from ralphd import wire
from ralphd.errors import DaemonNotRunning, NotFound, RalphdError, UsageError
from ralphd.unix_http import short_address

_PACKAGES = ("cryptography>=43", "jinja2>=3.1", "segno>=1.6")
_NO_DAEMON = "no ralphd is running"
_ANSWER_S = 5.0
_START_S = 2.0
_CODE_S = 250.0
"""Longer than the page itself waits: for the code, and then for the answer."""
_TURN_ON = "ralphctl config set --user web.listen 127.0.0.1:8765; ralphctl regent reload"


_Next = Callable[[], dict[str, Any]]


class PageOff(RalphdError, slug="page-off", exit_code=3):
    """The page is not running."""


@click.group(cls=click_ext.LazyGroup, invoke_without_command=True)
@click.pass_context
def web(context: click.Context) -> None:
    """Show where the page for your phone is, or how to turn it on.

    The page shows what `status` and `report` show; a device that is paired with --act may also acknowledge,
    pause, resume, stop, undo and land. It is off until [web] listen is set in your own file.

    \b
      ralphctl config set --user web.listen 127.0.0.1:8765
      ralphctl regent reload
      ralphctl web pair --act
    """
    if context.invoked_subcommand is None:
        _show()


def _show() -> None:
    _check_packages()
    state, problem = _state()
    paired = Devices(state / "web").all()
    about = _about(state)
    deadline = time.monotonic() + _START_S
    while about is None and problem is None and time.monotonic() < deadline:  # after a reload it is starting
        time.sleep(0.1)
        about = _about(state)
    shown = {"running": bool(about), **(about or {"url": "", "watching": 0}), "devices": len(paired)}
    end_if_json(shown | {"problem": problem})
    if not about:
        click.echo("the page is off" if problem is None else clean(problem))
        step = "start" if problem == _NO_DAEMON else "logs"
        click.echo(f"  next: {f'ralphctl regent {step}' if problem else _TURN_ON}")
        return
    click.echo(clean(about["url"]) or f"{state}/web.sock, for a proxy or ssh -L")
    authority = state / "web" / "ca.pem"
    if authority.exists() and about["is_tls"]:
        click.echo(f"  devices have to trust its CA: {clean(authority)}")
    click.echo(f"  {count(len(paired), 'device')} paired, {about['watching']} watching now")
    click.echo("  next: ralphctl web pair")


@click.command(cls=CommonCommand)
@click.option("--look/--act", "look", default=True, help="Let it look only, or act too.  [default: look]")
def pair(look: bool) -> None:
    """Pair a device: it scans the code, and you answer here whether it is yours.

    The code works once, within two minutes. The page and this terminal then show the same number. With --act
    the device makes a key that does not leave it, and signs what it requests.
    """
    refuse_within_run()
    _check_packages()
    if not can_ask():
        raise UsageError("pairing needs a terminal, for your answer", mend="ralphctl web pair, in a terminal")
    state, problem = _state()
    role = "look" if look else "act"
    try:
        with _page(state, {"do": "pair", "role": role}, _CODE_S) as (file, following):
            _show_code(following())
            asks = following()
            message(f"{clean(asks['asks'])!r} wants to {role}; its page shows the number {asks['number']}")
            file.write(json.dumps({"yes": confirmed("Is it yours? [y/N]")}).encode() + b"\n")
            paired = following()
    except (FileNotFoundError, ConnectionRefusedError):
        raise PageOff("the page is not running", why=problem or "", mend=_TURN_ON) from None
    except (OSError, EOFError):
        raise PageOff("the page ended meanwhile; nothing is paired", mend="ralphctl web") from None
    end_if_json(paired)
    click.echo(f"{clean(paired['paired'])} is paired: it may {role}")


@click.command(cls=CommonCommand)
def devices() -> None:
    """List the paired devices: name, what each may, since when. A year after its pairing a device is out."""
    every = [each.shown() for each in Devices(_state()[0] / "web").all()]
    end_if_json({"devices": every})
    if not every:
        click.echo("no device is paired: ralphctl web pair")
        return
    now = time.time()
    rows = [["NAME", "MAY", "PAIRED"]]
    rows += [[clean(each["name"]), each["role"], ago(each["paired_at"], now)] for each in every]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    click.echo("\n".join(wrapped_table(rows, widths, colour=has_colour(sys.stdout))))


@click.command(cls=CommonCommand)
@click.argument("name", metavar="NAME|all")
def revoke(name: str) -> None:
    """Remove the device NAME, or all. What it shows ends within a second."""
    refuse_within_run()
    gone = Devices(_state()[0] / "web").revoke(None if name == "all" else name)
    if not gone and name != "all":
        raise NotFound(f"no device {clean(name[:40])!r} is paired", mend="ralphctl web devices")
    end_if_json({"revoked": gone})
    click.echo("\n".join(f"{clean(each)} is out" for each in gone) or "no device is paired")


def _check_packages() -> None:
    """Raise ExtraMissing with the commands that install them."""
    try:
        import cryptography  # noqa: F401
        import jinja2  # noqa: F401
        import segno  # noqa: F401
    except ImportError as missing:
        what = "the page needs more packages; install them, then: ralphctl regent restart"
        raise click_ext.ExtraMissing(what, "web", "' '".join(_PACKAGES), missing) from None


def _state() -> tuple[Path, str | None]:
    """Return the daemon's state directory, and what the daemon reports about the page."""
    try:
        daemon = the_client().status().value["daemon"]
    except DaemonNotRunning:
        return Path(wire.state_directory(os.environ)), _NO_DAEMON
    problems = (each for each in daemon["problems"] if each.startswith("web: "))
    return Path(daemon["state_directory"]), next(problems, None)


def _about(state: Path) -> dict[str, Any] | None:
    """Return what the page tells about itself; None where it does not run."""
    try:
        with _page(state, {"do": "status"}, _ANSWER_S) as (_, following):
            return following()
    except (OSError, EOFError):
        return None


@contextmanager
def _page(state: Path, asked: dict[str, Any], limit_s: float) -> Iterator[tuple[socket.SocketIO, _Next]]:
    """Connect to the page; yield what to write to, and what returns its next message.

    Raise OSError without a page, EOFError where it has ended, and the RalphdError that it replies with.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(limit_s)
        with short_address(str(state / "web" / "control.sock")) as address:
            connection.connect(address)
        with connection.makefile("rwb", buffering=0) as file:

            def following() -> dict[str, Any]:
                if not (line := file.readline(1 << 16)):
                    raise EOFError
                content: dict[str, Any] = json.loads(line)
                if "detail" in content:
                    raise transport.error_of(500, line)
                return content

            file.write(json.dumps(asked).encode() + b"\n")
            yield file, following


def _show_code(offer: dict[str, Any]) -> None:
    import segno

    code, url = str(offer["code"]), str(offer["url"])
    drawn = io.StringIO()
    if url and not wants_json():
        segno.make(f"{url}/pair#{code}", error="l").terminal(drawn, compact=True)
    where = f"open {clean(url or 'the page')}/pair and type the code"
    message(f"{drawn.getvalue()}\n{'Scan this, or ' if drawn.getvalue() else ''}{where}:")
    message(f"  {'-'.join(code[each : each + 4] for each in range(0, len(code), 4))}")
    message("It works once, within two minutes. Ctrl-C ends it.")
