"""fleet: the machines and items of a fleet, as this machine's daemon sees them."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ralphctl.cli import click_ext
from ralphctl.cli.click_ext import CommonCommand, the_client, value_for_text
from ralphctl.client.client import absent_words
from ralphctl.format.humanize import ago, clock, count, minute, moment
from ralphctl.format.output import PLAIN_COLUMNS, clean, note, table_here
from ralphd import wire
from ralphd.errors import UnknownRalph, UsageError, WrongState

View = Mapping[str, Any]
_HOSTS = ("HOST", "STATE", "ITEMS", "LABELS", "AGENTS", "SEEN")
_LIMITS = ("ACCOUNT", "STATE", "UNTIL", "SEEN BY")
_ITEMS = ("ITEM", "STATE", "HOST", "REPOSITORY", "BASE", "NEXT")
_ENDED = ("done", "failed")
_MOST_ENDED = 5


@click.command(cls=CommonCommand)
def status() -> int:
    """Show the machines of the fleet, its items and limited accounts. Without the hub: as last known.

    \b
      ralphctl fleet status                one pane for all machines
      ralphctl fleet explain i-7f3kq2ab    why nobody takes an item
    """
    fleet = _noted(value_for_text(the_client().fleet()))
    now, held = time.time(), [each for each in fleet["items"] if each["state"] == "held"]
    _print([_HOSTS, *(_host(each, now, own=fleet["host"]) for each in fleet["hosts"])])
    ended = [each for each in fleet["items"] if each["state"] in _ENDED]
    items = [each for each in fleet["items"] if each["state"] not in _ENDED] + ended[:_MOST_ENDED]
    if items:
        click.echo()
        _print([_ITEMS, *map(_item, items)])
    if len(ended) > _MOST_ENDED:
        click.echo(f"and {count(len(ended) - _MOST_ENDED, 'ended item')} more: ralphctl fleet items")
    for each in fleet["limits"]:
        click.echo(" ".join(_limit(each, now)[:3]))
    return wire.EXIT_FAILED if held else wire.EXIT_OK


@click.command(cls=CommonCommand)
def items() -> None:
    """List all items: those that have not ended first, then the ended ones, newest first."""
    every = _noted(value_for_text(the_client().fleet()))["items"]
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
@click.option("--max-cost", type=click.FloatRange(0, 1e6), default=0.0, metavar="USD", help="Stop then.")
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
    if given["branch"] and copies > 1:
        why = "two items cannot work on one branch"
        raise UsageError("--branch and --count exclude each other", why=why, mend="omit --count")
    need = {key: given[key] for key in ("labels", "agents", "cpus")}
    need |= {f"{key}_bytes": given[key] << 30 for key in ("memory", "disk")}
    flags = {key: given[key] for key in ("max_iterations", "agents")} | {"max_cost_usd": given["max_cost"]}
    asked = {key: given[key] for key in ("base", "branch", "priority", "prefer")}
    for _ in range(copies):
        reply = the_client().submit({"repo": repository, **asked, "need": need, "flags": flags})
        if not click_ext.printed_as_json(reply):
            _print_explained(reply.value)


@click.command(cls=CommonCommand)
@click.argument("target", metavar="ITEM|HOST/NAME")
@click.option("-f", "--follow", is_flag=True, help="Print new lines until the ralph has ended.")
@click.option("-n", "--tail", metavar="N", help="The last N lines (100), or all.")
def logs(target: str, **options: Any) -> None:
    """Show the output of a ralph on another machine, or of the ralph of ITEM wherever it is.

    The same as `ralphctl logs HOST/NAME`, which has more options. The machine must allow it with
    `fleet.share_logs`; the log stays there, and goes with its ralph when an item is done.
    """
    from ralphctl.commands.logs import logs as show

    if "/" in target:
        click.get_current_context().invoke(show, names=(target,), **options)
        return
    item = the_client().explain_item(target).value["item"]
    host, state = item["holder"] or (item["last"] or {}).get("host"), item["state"]
    if host is None:
        what = f"{target} is {state}: no machine has worked on it"
        raise WrongState(what, mend=f"ralphctl fleet explain {target}")
    try:
        click.get_current_context().invoke(show, names=(f"{host}/{target}",), **options)
    except UnknownRalph as fault:
        what = f"{target} is {state}: {host} has removed its ralph, and the log with it"
        raise UnknownRalph(what, mend=f"ralphctl fleet events {host}/{target} --since 24h") from fault


@click.command(cls=CommonCommand)
@click.argument("target", metavar="[HOST[/NAME]]", required=False)
@click.option("-f", "--follow", is_flag=True, help="Wait for new events, across restarts of the hub.")
@click.option("-n", "--tail", type=click.IntRange(0, 10_000), metavar="N",
              help="Show the last N events (20; all with --since; 0 with -f).")  # fmt: skip
@click_ext.time_option("--since", "Show events from TIME on: 10m, 07:00, 2026-11-21T20:00Z.")
@click.option("--type", "kind", metavar="TYPE", help="Show only TYPE: ralph.paused, 'item.*'.")
def events(target: str | None, **options: Any) -> None:
    """List events of all machines, or of one, or of one ralph; one per line.

    The hub keeps them for 30 days. What happened on a machine while it was cut off is listed when it is
    back, after what the others did before that.
    """
    from ralphctl.client.client import FLEET_EVENTS
    from ralphctl.commands.history import show_events

    show_events(target, path=FLEET_EVENTS, **options)


@click.command(cls=CommonCommand)
def quota() -> None:
    """List the accounts whose limit is reached, as the machines of the fleet know it."""
    fleet = _noted(the_client().fleet().value)
    click_ext.end_if_json({"limits": fleet["limits"]})
    if not fleet["limits"]:
        click.echo("no account is limited")
        return
    _print([_LIMITS, *(_limit(each, time.time()) for each in fleet["limits"])])


@click.command(cls=CommonCommand)
@click.argument("item")
@click.option("--now", "at_once", is_flag=True, help="You know that the machine which has it is gone.")
def takeover(item: str, *, at_once: bool) -> None:
    """Take ITEM here from a machine that is gone, without waiting until it has been silent for long enough.

    Refused if that machine answers. What it pushed is continued. What it did not push stays on it, and is
    saved under refs/ralph/stale when it comes back.
    """
    if not at_once:
        what = "say that the other machine is gone: --now"
        why = "another machine takes it over without you once its machine is silent for long enough"
        raise UsageError(what, why=why, mend=f"ralphctl fleet explain {item}")
    _print_explained(value_for_text(the_client().act_on_item(item, "takeover")))


def _verb(name: str, purpose: str) -> click.Command:
    @click.argument("item")
    def act(item: str) -> None:
        _print_explained(value_for_text(the_client().act_on_item(item, name)))

    return click.command(name, cls=CommonCommand, help=purpose)(act)


hold = _verb("hold", "Stop ITEM where it runs, and leave it to a person. What is pushed stays.")
release = _verb("release", "Let machines take ITEM again after `hold`, or after it needed a person.")
cancel = _verb("cancel", "End ITEM. Its branch stays on the remote.")
retry = _verb("retry", "Try ITEM again from the start of its count, also after an end at a limit.")


def _order(verb: str) -> click.Command:
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
            click.echo(clean(absent_words(target, verb)))

    purpose = f"{verb.title()} a ralph on another machine, or the ralph of an item."
    return click.command(verb, cls=CommonCommand, help=purpose)(order)


stop, pause, resume = map(_order, ("stop", "pause", "resume"))


def _drain(verb: str, purpose: str) -> click.Command:
    @click.argument("host", required=False)
    def drain(host: str | None) -> None:
        client = the_client()
        reply = value_for_text(client.order(host or str(client.fleet().value["host"]), verb))
        state = "gives back its items, and takes no more" if reply["draining"] else "takes items again"
        click.echo(f"{clean(reply['host'])} {state}")

    return click.command(verb, cls=CommonCommand, help=purpose)(drain)


drain = _drain("drain", "Have HOST (this machine unless given) push, give back its items and take no more.")
undrain = _drain("undrain", "Have HOST (this machine unless given) take items again.")


def _noted(fleet: View) -> View:
    """Return ``fleet``, after a note if the hub is unreachable or something else is wrong."""
    if not fleet["connected"]:
        at = moment(fleet["as_of"])
        since = f"as of {clock(at, time.time())}" if at else "nothing is known yet"
        note(f"the hub is unreachable, {since}; what runs continues. {fleet['problem']}".rstrip())
    elif fleet["problem"]:
        note(clean(fleet["problem"]))
    return fleet


def _limit(limit: View, now: float) -> Sequence[str]:
    ends = moment(limit["until"])
    until = f"until {minute(ends, now)}" if ends else "until it answers again"
    return (clean(_account(limit)), clean(limit["state"]), until, clean(limit["by"] or "-"))


def _account(of: View) -> str:
    return str(of["agent"]) + (f"@{of['account']}" if of["account"] else "")


def _host(host: View, now: float, *, own: str) -> Sequence[str]:
    agents = sorted({_account(each) for each in host["logins"]})
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
    where = item["holder"] or (item["last"]["host"] if item["last"] and item["state"] in _ENDED else "-")
    return (*map(clean, (item["id"], state, where, item["repo"], item["base"])), clean(_next(item)) or "-")


def _next(item: View) -> str:
    """Return why it needs a person, and what comes next; else how it ended, or whose work it continues."""
    last = item["last"] or {}
    if item["next"]:
        why = item["why"] if item["state"] in ("held", "failed") else ""
        return "; ".join(filter(None, (why, item["next"])))
    if item["landed"]:
        return str(item["why"])
    if item["state"] in _ENDED:
        at = f"{item['branch']} is at {last['commit']}" if last.get("commit") else ""
        return "; ".join(filter(None, (item["why"], at)))
    return f"continues the work of {last['host']}: {last['why']}" if last else ""


def _print_explained(explained: View) -> None:
    item = explained["item"]
    where = f" on {clean(item['holder'])}" if item["holder"] else ""
    begins = f"{clean(item['branch'])} from {clean(item['base'])}"
    click.echo(f"{clean(item['id'])}  {clean(item['state'])}{where}  {clean(item['repo'])} {begins}")
    for line in dict.fromkeys(filter(None, (explained["waits_for"], item["next"]))):
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
    click.echo(table_here(rows, otherwise=PLAIN_COLUMNS * 2))
