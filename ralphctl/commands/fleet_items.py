"""fleet: the machines and items of a fleet, as this machine's daemon sees them."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ralphctl.cli.click_ext import CommonCommand, printed_as_json, the_client, value_for_text
from ralphctl.format.humanize import ago, clock, count, minute, moment
from ralphctl.format.output import PLAIN_COLUMNS, clean, columns, fitted, has_colour, note, wrapped_table
from ralphd import wire

View = Mapping[str, Any]
_HOSTS = ("HOST", "STATE", "ITEMS", "LABELS", "AGENTS", "SEEN")
_ITEMS = ("ITEM", "STATE", "HOST", "REPOSITORY", "NEXT")
_ENDED = ("done", "failed")
_MOST_ENDED = 5


@click.command(cls=CommonCommand)
def status() -> int:
    """Show the machines of the fleet, its items and limited accounts. Without the hub: as last known.

    \b
      ralphctl fleet status                one pane for all machines
      ralphctl fleet explain i-7f3kq2ab    why nobody takes an item
    """
    fleet = value_for_text(the_client().fleet())
    now, held = time.time(), [each for each in fleet["items"] if each["state"] == "held"]
    if not fleet["connected"]:
        at = moment(fleet["as_of"])
        since = f"as of {clock(at, now)}" if at else "nothing is known yet"
        note(f"the hub is unreachable, {since}; what runs continues. {fleet['problem']}".rstrip())
    _print([_HOSTS, *(_host(each, now, own=fleet["host"]) for each in fleet["hosts"])])
    ended = [each for each in fleet["items"] if each["state"] in _ENDED]
    items = [each for each in fleet["items"] if each["state"] not in _ENDED] + ended[:_MOST_ENDED]
    if items:
        click.echo()
        _print([_ITEMS, *map(_item, items)])
    if len(ended) > _MOST_ENDED:
        click.echo(f"and {count(len(ended) - _MOST_ENDED, 'ended item')} more: ralphctl fleet items")
    for each in fleet["limits"]:
        ends = moment(each["until"])
        until = f" until {minute(ends, now)}" if ends else ""
        click.echo(f"{clean(each['agent'])} {clean(each['account'])}: {clean(each['state'])}{until}")
    return wire.EXIT_FAILED if held else wire.EXIT_OK


@click.command(cls=CommonCommand)
def items() -> None:
    """List all items: those that have not ended first, then the ended ones, newest first."""
    fleet = value_for_text(the_client().fleet())
    every = fleet["items"]
    if not every:
        click.echo("No item yet: ralphctl fleet submit REPOSITORY")
        return
    _print([_ITEMS, *map(_item, every)])


@click.command(cls=CommonCommand)
@click.argument("item")
def explain(item: str) -> None:
    """Say what ITEM waits for, and why each machine that does not take it does not fit."""
    _print_explained(value_for_text(the_client().explain_item(item)))


@click.command(cls=CommonCommand)
@click.argument("repository")
@click.option("--base", default="main", show_default=True, metavar="BRANCH", help="Begin at this branch.")
@click.option("--branch", metavar="NAME", help="Work on this branch.  [default: ralph/ITEM]")
@click.option("--label", "labels", multiple=True, metavar="LABEL", help="Need a machine with it. Repeatable.")
@click.option("--agent", "agents", multiple=True, metavar="AGENT", help="Use one of these. Repeatable.")
@click.option("--prefer", multiple=True, metavar="HOST", help="Rather this machine. Repeatable.")
@click.option("--cpus", type=click.IntRange(0, 4096), default=0, metavar="N", help="Need so many CPUs.")
@click.option("--memory", type=click.IntRange(0, 1 << 20), default=0, metavar="GIB", help="Need free memory.")
@click.option("--disk", type=click.IntRange(0, 1 << 20), default=0, metavar="GIB", help="Need free disk.")
@click.option("--priority", type=click.IntRange(-1000, 1000), default=0, help="Higher goes first.")
@click.option("--max-cost", type=click.FloatRange(0, 1e6), default=0.0, metavar="USD", help="Pause then.")
@click.option("--max-iterations", type=click.IntRange(0, 10**6), default=0, metavar="N", help="Stop then.")
@click.option("--count", "copies", type=click.IntRange(1, 100), default=1, metavar="N", help="N items.")
def submit(repository: str, copies: int, **given: Any) -> None:
    """Add an item: REPOSITORY, the address of a git remote that the machines can push to.

    A machine runs what the repository's own ralph.toml says, and only if its `fleet.allow_repos` has the
    repository. Each item works on a branch of its own.

    \b
      ralphctl fleet submit git@example.com:team/app.git
      ralphctl fleet submit https://example.com/team/app.git --label docker --agent claude --memory 6
    """
    need = {
        "labels": list(given["labels"]),
        "agents": list(given["agents"]),
        "cpus": given["cpus"],
        "memory_bytes": given["memory"] << 30,
        "disk_bytes": given["disk"] << 30,
    }
    flags = {
        "max_cost_usd": given["max_cost"],
        "max_iterations": given["max_iterations"],
        "agents": need["agents"],
    }
    asked = {key: given[key] for key in ("base", "branch", "priority")} | {"prefer": list(given["prefer"])}
    for _ in range(copies):
        reply = the_client().submit({"repo": repository, **asked, "need": need, "flags": flags})
        if not printed_as_json(reply):
            _print_explained(reply.value)


def _verb(name: str, purpose: str) -> click.Command:
    @click.argument("item")
    def act(item: str) -> None:
        _print_explained(value_for_text(the_client().act_on_item(item, name)))

    act.__doc__ = purpose
    return click.command(name, cls=CommonCommand)(act)


hold = _verb("hold", "Stop ITEM where it runs, and leave it to a person. What is pushed stays.")
release = _verb("release", "Let machines take ITEM again after `hold`, or after it needed a person.")
cancel = _verb("cancel", "End ITEM. Its branch stays on the remote.")
retry = _verb("retry", "Try ITEM again from the start of its count, on any machine.")


def _order(verb: str, purpose: str) -> click.Command:
    @click.argument("target", metavar="HOST/NAME|ITEM")
    def order(target: str) -> None:
        machine, slash, name = target.partition("/")
        if not slash:
            _print_explained(value_for_text(the_client().act_on_item(target, verb)))
            return
        reply = value_for_text(the_client().order(machine, verb, name))
        if reply["done"]:
            click.echo(f"{clean(target)}: {verb} requested; it is {clean(reply['ralph']['state'])}")
        else:
            click.echo(
                f"{clean(machine)} is absent: {clean(name)} gets `{verb}` when it is back, within a day"
            )

    order.__doc__ = purpose
    return click.command(verb, cls=CommonCommand)(order)


stop = _order("stop", "Stop a ralph on another machine, or the ralph of an item.")
pause = _order("pause", "Pause a ralph on another machine, or the ralph of an item.")
resume = _order("resume", "Resume a ralph on another machine, or the ralph of an item.")


def _drain(verb: str, purpose: str) -> click.Command:
    @click.argument("host", required=False)
    def drain(host: str | None) -> None:
        client = the_client()
        reply = value_for_text(client.order(host or str(client.fleet().value["host"]), verb))
        state = "gives back its items, and takes no more" if reply["draining"] else "takes items again"
        click.echo(f"{clean(reply['host'])} {state}")

    drain.__doc__ = purpose
    return click.command(verb, cls=CommonCommand)(drain)


drain = _drain("drain", "Have HOST (this machine unless given) push, give back its items and take no more.")
undrain = _drain("undrain", "Have HOST (this machine unless given) take items again.")


def _host(host: View, now: float, *, own: str) -> Sequence[str]:
    agents = sorted(
        {each["agent"] + (f"@{each['account']}" if each["account"] else "") for each in host["logins"]}
    )
    return (
        clean(host["host"]) + " (here)" * (host["host"] == own),
        clean(host["state"]),
        f"{host['used']}/{host['slots']}",
        clean(", ".join(host["labels"])) or "-",
        clean(", ".join(agents)) or "-",
        ago(host["seen_at"], now) or "now",
    )


def _item(item: View) -> Sequence[str]:
    state = item["state"] + (f" ({item['goal']})" if item["goal"] != "running" else "")
    where = clean(item["holder"] or "-")
    return (clean(item["id"]), clean(state), where, clean(item["repo"]), clean(_next(item)) or "-")


def _next(item: View) -> str:
    """Return what comes next; else how it ended, or whose work it continues."""
    last = item["last"] or {}
    if item["next"]:
        return str(item["next"])
    if item["landed"]:
        return str(item["why"])
    if item["state"] in _ENDED:
        return f"{item['branch']} is at {last['commit']}" if last.get("commit") else str(item["why"])
    return f"continues the work of {last['host']}: {last['why']}" if last else ""


def _print_explained(explained: View) -> None:
    item = explained["item"]
    where = f" on {clean(item['holder'])}" if item["holder"] else ""
    click.echo(
        f"{clean(item['id'])}  {clean(item['state'])}{where}  {clean(item['repo'])} {clean(item['branch'])}"
    )
    for line in filter(None, (explained["waits_for"], item["next"])):
        click.echo(f"  {clean(line)}")
    if item["state"] == "open":
        for each in explained["hosts"]:
            words = "; ".join(map(clean, each["misfits"])) or "fits"
            click.echo(f"  {clean(each['host'])}: {words}")
        if not explained["hosts"]:
            click.echo("  no machine is known: ralphctl fleet status")
    if (last := item["last"]) is not None:
        click.echo(f"  last on {clean(last['host'])}: {clean(last['why'])} {clean(last['commit'])}".rstrip())


def _print(rows: Sequence[Sequence[str]]) -> None:
    room = columns(sys.stdout) or PLAIN_COLUMNS * 2
    for line in wrapped_table(rows, fitted(rows, room), colour=has_colour(sys.stdout)):
        click.echo(line)
