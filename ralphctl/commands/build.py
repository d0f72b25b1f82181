"""build: a ralph in the foreground, with a private daemon that ends with the command."""

import os
import shutil
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from ralphctl.cli import completers
from ralphctl.client import discovery
from ralphctl.client.client import Client
from ralphctl.commands import start
from ralphctl.format import checkpoint_text, state_text
from ralphctl.format.humanize import until
from ralphctl.format.output import clean, note
from ralphctl.live.foreground import BuildEnd, Foreground, StopSignals
from ralphctl.live.keys import Keyboard, View, Waker
from ralphctl.live.screen import let_go_of_stderr, say
from ralphctl.offline import checkpoint
from ralphctl.offline import state as offline
from ralphctl.service.daemon import PrivateDaemon, StartFailed, await_earlier, refuse_if_supervised
from ralphd import wire
from ralphd.errors import CommandNotStartable, DaemonNotRunning, DirectoryBusy, RalphdError, UsageError

_BUSY_LIMIT_S = 15.0
"""The shims of a killed build need at most this long to end their trees."""
_BUSY_PAUSE_S = 0.1
_IGNORED = "is ignored: it is for the built-in loop"
_DOES = {"done": "start again", "failed": "try again", "paused": "continue"}
_EPILOG = "Every option with a value except --name can also be set in ralph.toml."
_EXITS = {"done": wire.EXIT_OK, "failed": wire.EXIT_FAILED, "paused": wire.EXIT_PAUSED}


@click.command(cls=start.WithCommand, options_metavar="[OPTIONS] [-- COMMAND...]", epilog=_EPILOG)
@click.argument("more", nargs=-1, metavar="", shell_complete=completers.files)
@click.option("--name", help="The ralph's name (default: the directory's name).")
@start.loop_options
@click.pass_context
def build(
    ctx: click.Context, /, more: tuple[str, ...], name: str | None, resume: bool, no_resume: bool, **keys: Any
) -> int:
    """Run a loop here, in the foreground, without a daemon. Also called run.

    \b
      ralphctl build                  the built-in loop: PROMPT.md, claude; or [ralph] command of ralph.toml
      ralphctl build -- ./loop.sh     a loop of your own; later just ralphctl build

    A checkpoint left in the middle of an iteration is shown first: resume or discard it. Without a terminal
    it is resumed.

    Keys: p pauses after the iteration, s skips a wait, ? lists all keys. Ctrl-C stops the loop after its
    iteration, a second Ctrl-C at once. When this command ends, every process it started has ended.
    From another terminal, in this directory: ralphctl status, logs -f, pause, skip-wait, stop.

    Exits with 0 when it is done or stops because it makes no progress, 5 at a limit of its own, 1 when it
    failed, 75 when it is paused, 130 when it was stopped.
    """
    command = start.command_given(ctx, more, "ralphctl build", mend="ralphctl build -- ./loop.sh")
    wish = checkpoint.wish_of(resume, no_resume, command)
    directory, flags = discovery.here(), start.flags_of(keys)
    name = None if name is None else discovery.check_name(name)
    place = offline.build_state_directory(directory, name, os.environ)
    refuse_if_supervised(directory, str(place / "ralphd.sock"))
    await_earlier(place, lambda: False, say)
    if command is None:
        last, flags = _as_last_time(place, flags)
        command, wish = _settled(directory, place, last, flags, wish)
    if command is None:
        start.offer_init(ctx, Path(directory), flags)
    return _supervised(start.registration(directory, command, name, flags, resume=wish), place)


def _supervised(body: dict[str, object], place: Path) -> int:
    """Run the private daemon until every process it started has ended; return the exit code."""
    daemon = PrivateDaemon(place)
    waker, stops = Waker(), StopSignals(daemon.cut)
    await_earlier(place, lambda: stops.stop, say)  # another build may have started during the question
    try:
        daemon.start()
        daemon.await_ready(lambda: stops.stop)
        began_at, after = datetime.now(UTC).isoformat().replace("+00:00", "Z"), daemon.client.last_event()
        view = _register(daemon.client, body, stops)
        with Keyboard(waker) as keyboard:
            _tell_start(view, has_keys=keyboard.is_usable)
            front = Foreground(daemon, view["name"], began_at, after, stops, keyboard)
            end = front.watch()
        view = front.view or view
    finally:
        if not daemon.end():
            say("error: a process that it started cannot be killed: ps -ef")
    if end is BuildEnd.UNREAD:
        raise BrokenPipeError
    if front.is_cut_short:
        say("the end of the output may be missing here: ralphctl logs")
    lines, code = _closing(end, view, daemon, stops)
    say(front.last_words(lines))
    let_go_of_stderr()
    return code


def _as_last_time(place: Path, flags: dict[str, object]) -> tuple[list[str], dict[str, object]]:
    """Return the last build's command, and its flags with the new ones: agents and limits stay."""
    last, kept = offline.last_build(place)
    given = [f"--{k} {','.join(v) if isinstance(v, list) else v}" for k, v in kept.items() if k not in flags]
    if given:
        say(f"as last time: {clean(' '.join(given))}")
    return last, kept | flags


def _settled(
    directory: str, place: Path, last: list[str], flags: dict[str, object], wish: bool | None
) -> tuple[list[str] | None, bool | None]:
    """Choose the command if none is given: ralph.toml's, else the last build's, else the built-in loop.

    ``--agent`` selects the built-in loop. Ask here whether to resume from its checkpoint.
    """
    saved = checkpoint.find(directory, offline.build_homes(place))
    if last or saved is not None:
        if not checkpoint.runs_built_in(directory, flags):
            start.tell_ignored(wish, _IGNORED)
            return None, None
        if last and "agent" not in flags:
            say(f"as last time: {clean(' '.join(last))}  (built-in loop: ralphctl build --agent NAME)")
            start.tell_ignored(wish, _IGNORED)
            return last, None
    return None, checkpoint.settle(saved, wish, command="ralphctl build")


def _register(client: Client, body: dict[str, object], stops: StopSignals) -> View:
    """Register and start the ralph. A run of an earlier build may need a moment to end."""
    directory, until = str(body["directory"]), time.monotonic() + _BUSY_LIMIT_S
    while True:
        try:
            view: View = client.register(body).value
            return view
        except DirectoryBusy:
            refuse_if_supervised(directory, own_socket=client.paths[0])
            if stops.stop or time.monotonic() > until:
                raise
        except (UsageError, CommandNotStartable) as fault:
            raise _of_build(fault, directory) from fault
        except DaemonNotRunning as gone:
            if stops.at_once:
                raise KeyboardInterrupt from gone
            what = "the private ralphd ended unexpectedly"
            raise StartFailed(what, wire.EXIT_FAILED, why=gone.what) from gone
        time.sleep(_BUSY_PAUSE_S)


def _of_build(fault: RalphdError, directory: str) -> RalphdError:
    mend = fault.mend.replace(f"ralphctl start {os.path.realpath(directory)} --", "ralphctl build --")
    mend = mend.replace("ralphctl start --agent", "ralphctl build --agent")
    return type(fault)(fault.what, why=fault.why, mend=mend)


def _tell_start(view: View, *, has_keys: bool) -> None:
    say(f"{view['name']}: {state_text.started_words(view) or state_text.state_words(view, time.time())}")
    for line in view.get("notes") or []:
        if not str(line).startswith(start.REPLACED):  # each build does that
            with suppress(OSError):
                note(str(line))
    keys = "p pauses after the iteration, s skips a wait, " if has_keys else ""
    say(f"{keys}Ctrl-C stops it; from another terminal, here: ralphctl status, logs -f, pause, stop")


def _closing(end: BuildEnd, view: View, daemon: PrivateDaemon, stops: StopSignals) -> tuple[list[str], int]:
    """Return the closing lines, and the exit code."""
    name = view["name"]
    if end is BuildEnd.AT_ONCE or stops.at_once:
        lines, code = [f"{name}: killed, with every process it started"], wire.EXIT_INTERRUPTED
    elif end is BuildEnd.ALONE and daemon.code != 0:
        lines = [f"{name}: killed, because its ralphd ended unexpectedly (log: {daemon.log})"]
        code = wire.EXIT_FAILED
    elif end is BuildEnd.ALONE:  # another command ended it; it stopped the ralph first
        lines, code = [f"{name}: stopped, with its ralphd"], wire.EXIT_INTERRUPTED
    else:
        lines, code = _settled_words(view, time.time()), _settled_code(view)
    return lines + [f"  next: {how}  ({does})" for does, how in _next_steps(view)], code


def _next_steps(view: View) -> list[tuple[str, str]]:
    state, again = view["state"], "ralphctl build"
    steps = [("see why", "ralphctl logs")] if state in ("failed", "paused") else []
    does, how = state_text.build_step(view, view["directory"])
    steps.append((does if state_text.is_spent(view) else _DOES.get(state, "start it again"), how))
    if state == "paused" and state_text.is_built_in(view) and view.get("pause_reason") == "usage_limit":
        listed = [agent["name"] for agent in (view.get("pool") or {}).get("agents", ())]
        others = [name for name in wire.AUTO_AGENTS if name not in listed and shutil.which(name)]
        steps += [("continue with another agent", f"{again} --fallback {name}") for name in others[:1]]
    return steps


def _settled_words(view: View, now: float) -> list[str]:
    # After this command ends nothing continues without a person.
    held = checkpoint_text.fuller(view.get("checkpoint"), offline.checkpoint(str(view["directory"])))
    said = state_text.state_words({**view, "wait": None}, now)
    if view["state"] == "paused":
        resets = until((held or {}).get("resume_at") or state_text.wait_of(view).get("until"), now)
        is_known = "reset not known" not in str((held or {}).get("why"))
        said += f"; {'its limit ends' if is_known else 'next try'} {resets}" if resets else ""
    lines = [f"{view['name']}: {said}"]
    if view["state"] in ("paused", "stopped") and state_text.is_built_in(view) and held:
        rows = [f"  {name:<12} {text}" for name, text in checkpoint_text.rows(held, now) if name != "resumes"]
        return [*lines, *rows, "  the checkpoint is kept: ralphctl build resumes from it"]
    work = state_text.work_words(view)
    return lines + ([f"  {'work':<12} {work}"] if work else [])


def _settled_code(view: View) -> int:
    if view["state"] == "done" and view.get("message"):
        return wire.EXIT_LIMIT
    if view["state"] == "stopped" and view.get("message"):  # the loop stopped itself: no progress
        return wire.EXIT_OK
    return _EXITS.get(view["state"], wire.EXIT_INTERRUPTED)
