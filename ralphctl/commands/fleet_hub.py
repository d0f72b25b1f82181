"""fleet: make a hub, let machines join it, leave it, lock one out."""

import os
import socket
from typing import Any

import click

from ralphctl.cli import click_ext
from ralphctl.cli.click_ext import CommonCommand, end_if_json, refuse_within_run
from ralphctl.format.output import clean, message
from ralphctl.setup import fleet as setup
from ralphd import wire


@click.group(cls=click_ext.LazyGroup)
def fleet() -> None:
    """Let several machines share a list of work: one hub, no port open anywhere else.

    Each machine runs its own ralphd. Git decides who may write to a branch, so that no two machines work on
    one, whatever happens to the hub.

    \b
      ralphctl fleet init hub.example.com     on the machine that is to be the hub
      ralphctl fleet token                    there too: let one machine join
      ralphctl fleet join TOKEN               on that machine
      ralphctl fleet submit git@example.com:team/app.git
      ralphctl fleet status
    """


def _own_name() -> str:
    name = socket.gethostname().partition(".")[0].lower()
    return "".join(char if char.isalnum() else "-" for char in name).strip("-")[:63] or "host"


@click.command(cls=CommonCommand)
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@click.option("--name", metavar="HOST", help="This machine's name in the fleet.  [default: its host name]")
@click.option("--servers", type=click.Choice(["1", "3"]), default="1", show_default=True, help="Servers.")
@click.option("--listen", default="0.0.0.0", show_default=True, metavar="IP", help="Listen here.")  # noqa: S104
@click.option("--port", type=click.IntRange(1, 65535), default=4222, show_default=True, help="Listen here.")
@click.option("--websocket-port", type=click.IntRange(0, 65535), default=0, metavar="N",
              help="Listen for WebSockets too, for networks that allow nothing else.")  # fmt: skip
def init(addresses: tuple[str, ...], name: str | None, servers: str, **listens: Any) -> None:
    """Write the files of a hub on this machine: its configuration, keys, authority and unit.

    ADDRESS is a name or an IP by which the other machines reach it. What is there already is never
    overwritten. This machine becomes a member of its fleet.
    """
    refuse_within_run()
    made = setup.make_hub(os.environ, addresses, name=name or _own_name(), servers=int(servers), **listens)
    directory = setup.hub_directory(os.environ)
    end_if_json({"directory": str(directory), "made": made.made, "next": made.next})
    click.echo(f"hub: {clean(directory)}: {', '.join(made.made) or 'nothing was missing'}")
    click.echo("  next: ralphctl fleet hub    (run it in this terminal, to try it)")
    for line in made.next:
        click.echo(f"  next: {clean(line)}")
    click.echo("  next: ralphctl regent restart    (the daemon here takes part; its runs continue)")


@click.command(cls=CommonCommand)
def hub() -> None:
    """Run the hub of `ralphctl fleet init` in this terminal, until Ctrl-C. For a service, use its unit."""
    refuse_within_run()
    command = setup.hub_command(os.environ)
    os.execv(command[0], command)  # noqa: S606  # signals and the end are its own, with nothing in between


@click.command(cls=CommonCommand)
@click.option("--address", "addresses", multiple=True, metavar="URL", help="Reach the hub here. Repeatable.")
@click.option("--role", type=click.Choice(["watch", "run", "own"]),
              help="What people there may do to others.")  # fmt: skip
@click.option("--controls", is_flag=True, help="The same as --role own.")
@click.option("--yes", is_flag=True, help="Let the machine join without a question.")
def token(addresses: tuple[str, ...], role: str | None, controls: bool, yes: bool) -> int:
    """Print a token for one machine, and wait until that machine has joined; 15 minutes at most.

    It works once. Before a machine joins you see its name, its address and its key.

    \b
      without a role   people there see machines and items, and submit work
      --role watch     they also read logs and events of other machines
      --role run       they also stop, pause and resume ralphs of other machines
      --role own       they also drain other machines
    """
    refuse_within_run()
    if controls and role not in (None, "own"):
        raise click.UsageError(f"--controls is --role own, and --role {role} is given.")
    role = "own" if controls else role or ""

    def decide(name: str, address: str, version: str, key: str) -> bool:
        message(f"{clean(name)} ({clean(address)}, ralphd {clean(version)}) wants to join")
        message(f"  key {key}")
        return yes or click.confirm("let it join?", err=True)

    def show(text: str) -> None:
        click.echo(text)
        message("  next: ralphctl fleet join TOKEN    (on that machine, within 15 minutes)")

    joined = setup.invite(os.environ, role=role, addresses=addresses, show=show, decide=decide)
    for name in joined:
        message(f"{clean(name)} has joined")
    if not joined:
        message("nobody has joined")
    return wire.EXIT_OK if joined else wire.EXIT_TIMED_OUT


@click.command(cls=CommonCommand)
@click.argument("token")
@click.option("--name", metavar="HOST", help="This machine's name in the fleet.  [default: its host name]")
def join(token: str, name: str | None) -> None:
    """Join a fleet with the TOKEN of `ralphctl fleet token`, which is open at the hub meanwhile."""
    refuse_within_run()
    joined = setup.join(os.environ, token, name or _own_name())
    end_if_json({"host": joined.host, "servers": joined.servers})
    click.echo(f"{clean(joined.host)} has joined the fleet of {clean(joined.hub_host)}")
    click.echo("  next: ralphctl regent restart    (its runs continue)")
    click.echo("  next: allow repositories: ralphctl config set --user fleet.allow_repos '[\"HOST/TEAM/*\"]'")


@click.command(cls=CommonCommand)
def leave() -> None:
    """Remove this machine's key. What runs continues; the daemon leaves with `ralphctl regent restart`."""
    refuse_within_run()
    step, items = setup.leave(os.environ)
    click.echo("this machine has left its fleet")
    for item in items:
        click.echo(f"  next: ralphctl stop {item}    (its work is pushed; after the restart it is not)")
    click.echo("  next: ralphctl regent restart    (the daemon leaves, too; its runs continue)")
    click.echo(f"  next: {clean(step)}    (on the hub)")


@click.command(cls=CommonCommand)
@click.argument("host")
def forget(host: str) -> None:
    """Lock HOST out of the hub. Type it on the hub; of three servers, copy its hosts.conf to the others."""
    refuse_within_run()
    (is_done, servers), name = setup.forget(os.environ, host), clean(host)
    if not is_done:
        click.echo(f"the hub does not run: {name} is locked out when it starts")
    elif servers > 1:
        click.echo(f"{name} is locked out of this server only: its key still works on the other two")
        hosts = setup.hub_directory(os.environ) / "hosts.conf"
        click.echo(f"  next: copy {clean(hosts)} to them, and reload them")
    else:
        click.echo(f"{name} is locked out; its items are taken over when its leases are silent")


@click.command(cls=CommonCommand)
def doctor() -> int:
    """Check the hub, if it is here, and this machine's way to its hub."""
    problems = setup.problems(os.environ)
    end_if_json({"problems": [{"what": what, "try": mend} for what, mend in problems]})
    for what, mend in problems:
        click.echo(f"{clean(what)}" + (f"\n  try: {clean(mend)}" if mend else ""))
    if not problems:
        click.echo("the hub answers, and has all that this machine needs")
    return wire.EXIT_FAILED if problems else wire.EXIT_OK
