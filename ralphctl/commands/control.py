"""Requests to ralphs: stop, restart, pause, resume, rm; to one: skip-wait, ack, reload, wait.

A command that waits prints the outcome and the next useful command.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from ralphctl.cli import click_ext, completers
from ralphctl.cli.click_ext import SECONDS, CommonCommand, printed_as_json, ralph_command, the_ralph
from ralphctl.client import discovery, waiting
from ralphctl.client.client import Reply
from ralphctl.format import state_text
from ralphctl.format.humanize import asked, count, duration, last_exit, moment, part
from ralphctl.format.incident_text import held_back
from ralphctl.format.output import clean, error, message
from ralphctl.offline import state as offline
from ralphctl.offline.checkpoint import can_ask, confirmed
from ralphd import wire
from ralphd.errors import DaemonNotRunning, RalphdError, UsageError

_FINAL = frozenset({"idle", "stopped", "failed", "done"})
"""States that a ralph does not leave without a command."""

_GOALS = {goal: frozenset({goal}) for goal in ("done", "paused", "stopped")} | {"idle": wire.SETTLED_STATES}


def tell_view(reply: Reply, *, text: str = "", more: Sequence[str] = ()) -> None:
    """Print what happened (``text``, else the state), ``more`` lines, and the next useful command."""
    if printed_as_json(reply):
        return
    click.echo("\n".join([_line(reply.value, text), *more]))
    does, how = next_step(reply.value)
    click.echo(f"  next: {how}  ({does})")


def next_step(view: waiting.View) -> tuple[str, str]:
    """Return the next useful command. The daemon of a build ends with its ralph, and no other knows it."""
    if waiting.is_settled(view) and view["state"] != "done" and offline.build_home({**view}, os.environ):
        return state_text.build_step(view, os.path.realpath(discovery.here()))
    return state_text.next_steps(view)[0]


def _line(view: waiting.View, text: str = "") -> str:
    ending = view.get("last_exit")
    if not text:
        text = state_text.state_words(view, time.time())
        text += f"; last run: {clean(last_exit(ending))}" if view["state"] == "stopped" and ending else ""
    return f"{view['name']}: {text}"


# --- several ralphs -------------------------------------------------------------------------------------


def ralphs_command(function: Callable[..., Any]) -> click.Command:
    """Make a command of ``function`` that takes NAMEs, and ``--all`` as ``every``."""
    add_names = click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=completers.ralphs)
    add_all = click.option("--all", "every", is_flag=True, help="Every ralph to which this applies.")
    return click.command(cls=CommonCommand)(add_names(add_all(function)))


def waiting_options(function: Any) -> Any:
    """Add ``--no-wait`` and ``--wait-timeout``."""
    function = click.option("--no-wait", is_flag=True, help="Return immediately.")(function)
    limit = "Wait at most S seconds (then exit 124)."
    return click.option("--wait-timeout", type=SECONDS, metavar="S", help=limit)(function)


class NamedRalphs:
    """The ralphs that a command is for. Of several, a fault of one leaves the others alone.

    ``code`` is the worst exit code so far. Raise UsageError for names with ``--all``, UnknownRalph where no
    name is given and none can be meant.
    """

    def __init__(
        self, names: Sequence[str], every: bool = False,
        applies: Callable[[waiting.View], bool] = lambda view: not waiting.is_settled(view),
        *, in_fleet: bool = False,
    ) -> None:  # fmt: skip
        if every and names:
            raise UsageError("names and --all are both given", mend="one of them")
        self.client, self.code = click_ext.the_client(), wire.EXIT_OK
        if every:
            self.names = [view["name"] for view in self.client.views() if applies(view)]
        else:
            given = dict.fromkeys(names or (None,))
            self.names = [click_ext.the_name(self.client, name, in_fleet=in_fleet) for name in given]
        self.are_several = every or len(self.names) > 1
        if not self.names:
            message("no ralph to which this applies: ralphctl status --all")

    @contextmanager
    def one(self) -> Iterator[None]:
        """Report a fault with one of several, and continue."""
        try:
            yield
        except RalphdError as fault:
            if not self.are_several or isinstance(fault, DaemonNotRunning):
                raise
            error(fault)
            self.code = max(self.code, fault.exit_code)

    def tell(self, reply: Reply) -> None:
        """Print the outcome for one: in one line if there are several."""
        if not self.are_several:
            tell_view(reply)
        elif not printed_as_json(reply):
            click.echo(_line(reply.value))


def _ask_and_wait(
    ralphs: NamedRalphs, action: str, *, no_wait: bool, wait_timeout: float | None, at_once: bool = False
) -> int:
    """Send the request to all, then wait for one after the other. Return the exit code."""
    client, restarts = ralphs.client, action == "restart"
    began, sent, left_s = time.monotonic(), [], wait_timeout
    for name in ralphs.names:
        with ralphs.one():
            before = client.ralph(name).value.get("run_id") if restarts else None
            sent.append((name, before, client.ask(name, action, {"now": True} if at_once else {})))
    for name, run_id, reply in sent:

        def reached(view: waiting.View, run_id: str | None = run_id) -> bool:
            has_begun = view["state"] != "starting" and view.get("run_id") != run_id
            is_new = restarts and (has_begun or view["state"] == "waiting_for_retry")
            return waiting.is_settled(view) or is_new

        with ralphs.one():
            state, (what, since) = str(reply.value["state"]), asked(reply.value.get("message"))
            is_at_boundary = bool(what and since)  # a loop that reports finishes its iteration first
            if is_at_boundary and state in ("pausing", "stopping"):
                head = f"{name}: " if ralphs.are_several else ""
                message(f"{head}{state.capitalize()} after current iteration...")
            if not (no_wait or reached(reply.value)):
                goal = "finish its iteration" if is_at_boundary else "end its run"
                reply = waiting.until(
                    client, name, reached, directory=reply.value["directory"], timeout_s=left_s,
                    waiting_for=f"{name} to {goal}{' and start again' if restarts else ''}",
                    force="" if at_once else f"ralphctl stop --now {name}",
                    since=since if is_at_boundary else None,
                )  # fmt: skip
            ralphs.tell(reply)
            if wait_timeout is not None:
                left_s = max(0.0, round(began + wait_timeout - time.monotonic(), 1))
            if restarts and reply.value["state"] == "failed":
                ralphs.code = max(ralphs.code, wire.EXIT_FAILED)
    return ralphs.code


@ralphs_command
@click.option("--now", "at_once", is_flag=True, help="Kill all processes at once (SIGKILL).")
@waiting_options
def stop(names: tuple[str, ...], every: bool, at_once: bool, **wait: Any) -> int:
    """Stop each NAME and every process it started, and wait for the end.

    The built-in loop, and a loop that reports, finishes its iteration first. Any other command receives
    SIGTERM, and is killed with all its processes when its grace period is over. HOST/NAME is a ralph on
    another machine of the fleet; pause and resume take it too.
    """
    return _ask_and_wait(NamedRalphs(names, every, in_fleet=True), "stop", at_once=at_once, **wait)


@ralphs_command
@waiting_options
def restart(names: tuple[str, ...], every: bool, **wait: Any) -> int:
    """Stop each NAME, then start it again; wait until the new run is up."""
    return _ask_and_wait(NamedRalphs(names, every), "restart", **wait)


@ralphs_command
@waiting_options
def pause(names: tuple[str, ...], every: bool, **wait: Any) -> int:
    """Pause each NAME: its run ends as with stop, and it stays paused until it is resumed.

    The built-in loop, and a loop that reports, finishes its iteration first; the built-in one saves a
    checkpoint and resumes from it. To stop without waiting for the iteration: ralphctl stop --now.
    """
    return _ask_and_wait(NamedRalphs(names, every, in_fleet=True), "pause", **wait)


@ralphs_command
def resume(names: tuple[str, ...], every: bool) -> int:
    """Resume each paused NAME; the built-in loop continues from its checkpoint."""
    ralphs = NamedRalphs(names, every, applies=lambda view: view["state"] == "paused", in_fleet=True)
    for name in ralphs.names:
        with ralphs.one():
            ralphs.tell(ralphs.client.ask(name, "resume"))
    return ralphs.code


@ralphs_command
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def rm(names: tuple[str, ...], every: bool, yes: bool) -> int:
    """Remove each NAME, which must not be running, with its logs.

    At a terminal it asks first. The files in its directory stay as they are, with .ralph and its copies of
    history and checkpoint: the next start there resumes, or starts afresh with --no-resume. The copies of the
    repository and of ignored files such as .env stay for 30 days: ralphctl vault list.
    """
    ralphs = NamedRalphs(names, every, applies=waiting.is_settled)
    if ralphs.names and not yes and not click_ext.wants_json() and can_ask():
        message("The logs go. The working directory stays, with history and checkpoint in .ralph.")
        if not confirmed(f"Remove {', '.join(ralphs.names)}? [y/N]"):
            message("nothing was removed")
            return wire.EXIT_FAILED
    for name in ralphs.names:
        with ralphs.one():
            where = state_text.directory_name(ralphs.client.ralph(name).value)
            if not printed_as_json(ralphs.client.forget(name)):
                click.echo(f"{name}: removed, with its logs; not touched: {where}, its .ralph included")
    return ralphs.code


# --- one ralph ------------------------------------------------------------------------------------------


@ralph_command("skip-wait")
def skip_wait(name: str | None) -> None:
    """End the current wait of NAME and continue now.

    If it waits for a limit, the limit may still apply: then the agent reports it again.
    """
    client, name = the_ralph(name)
    reply = client.ask(name, "skip-wait")
    # The run receives it in a moment; until then its view still shows the wait.
    waits = reply.value.get("ralph_pid") and state_text.wait_of(reply.value)
    tell_view(reply, text="continues now" if waits else "")


@ralph_command()
def ack(name: str | None) -> None:
    """Acknowledge the alert of NAME: no more reminders.

    Prints what is still to do. The alert is over when NAME works again; status shows it until then. Without
    an alert this changes nothing and exits with 0.
    """
    client, name = the_ralph(name)
    before = part(client.ralph(name).value, "incident")
    view = click_ext.value_for_text(client.ask(name, "ack"))
    now, after = time.time(), part(view, "incident")
    if not before:
        click.echo(f"{name}: nothing to acknowledge; it is {state_text.state_words(view, now)}")
        return
    known = moment(before.get("acknowledged_at"))
    done = "acknowledged" if known is None else f"acknowledged already, {duration(now - known)} ago"
    what = [clean(str(before.get("message") or "?"))] if known is None else []
    click.echo(": ".join(filter(None, (name, done, ", ".join([*what, *held_back(before)])))))
    if not after:
        click.echo("  nothing is left to do: it is running, and the next alert is sent at once")
        return
    click.echo(f"  still to do: {clean(str(after.get('needs') or ''))}")
    does, how = state_text.next_steps(view)[0]
    click.echo(f"  next: {how}  ({does})")


@ralph_command()
def reload(name: str | None) -> None:
    """Apply the changes in ralph.toml and in your own configuration file.

    Flags and environment stay those of the start. A run that is under way keeps its configuration; the next
    one gets the new one. If a file has faults, nothing changes.
    """
    client, name = the_ralph(name)
    done = click_ext.value_for_text(client.ask(name, "reload"))
    changes, when = done["changes"], done["when"]
    if not changes:
        click.echo(f"{name}: nothing has changed")
        return
    applies = "from the next run on" if when == "next_run" else "in force now"
    click.echo(f"{name}: {count(len(changes), 'change')}, {applies}")
    for line in state_text.change_lines(changes):
        click.echo(line)
    if when == "next_run":
        click.echo(f"  next: ralphctl restart {name}  (start the next run now)")
    elif done["ralph"]["state"] == "waiting_for_retry":
        click.echo(f"  next: ralphctl skip-wait {name}  (ends the current wait, which keeps its length)")


@ralph_command()
@click.option("--for", "goal", type=click.Choice(list(_GOALS)), default="idle", show_default=True,
              help="idle: nothing of it is running, for whatever reason.")  # fmt: skip
@click.option("--wait-timeout", type=SECONDS, metavar="S", help="Wait S seconds at most.")
def wait(name: str | None, goal: str, wait_timeout: float | None) -> int:
    """Wait until NAME is done, paused, stopped, or nothing of it is running.

    Exits as status does: 0, 1 failed, 75 paused. It also ends when the goal can no longer be reached, with 1
    where status would exit with 0. 124 when --wait-timeout runs out, 3 if no daemon is running at the
    start; a restart of the daemon does not end the wait.
    """
    client, name = the_ralph(name)
    client.ralph(name)  # fail at once without a daemon or such a ralph
    wanted = _GOALS[goal]
    reply = waiting.until(
        client, name, lambda view: view["state"] in wanted | _FINAL, waiting_for=f"{name} to be {goal}",
        timeout_s=wait_timeout, remark=_who_it_waits_for,
    )  # fmt: skip
    view = reply.value
    if not printed_as_json(reply):
        click.echo(f"{name}: {state_text.state_words(view, time.time())}")
    code = wire.status_exit_code([view["state"]])
    if view["state"] not in wanted:
        message(f"{name} will not be {goal} unless you act")
        return code or wire.EXIT_FAILED
    return code


def _who_it_waits_for(view: waiting.View) -> str:
    """Return that a person has to act; empty while something is running, or will be."""
    if view["state"] != "paused" or state_text.wait_of(view).get("until"):
        return ""
    does, how = state_text.next_steps(view)[0]
    return f"{view['name']} is {state_text.state_words(view, time.time())}; next: {how}  ({does})"
