"""The commands of ``ralphctl``. Loaded when ``fast`` did not answer; what is not the help is for click."""

from __future__ import annotations

from ralphctl import overview
from ralphctl.entry import Entry
from ralphd import wire

_EVERYDAY, _LOOK, _DAEMON, _MORE = "Everyday", "Look", "Daemon", "More"
_HERE = "ralphctl.commands"

TABLE = {
    "start": Entry(f"{_HERE}.start:start", "Supervise Ralph in DIR, or start a ralph again.", _EVERYDAY),
    "init": Entry(f"{_HERE}.init:init", "Write what a ralph begins with into a directory.", _EVERYDAY),
    "build": Entry(f"{_HERE}.build:build", "The same in the foreground, without a daemon.", _EVERYDAY),
    "stop": Entry(f"{_HERE}.control:stop", "Stop a ralph; nothing of it stays alive.", _EVERYDAY),
    "restart": Entry(f"{_HERE}.control:restart", "Stop a ralph, then start it.", _EVERYDAY),
    "pause": Entry(f"{_HERE}.control:pause", "Pause a ralph until it is resumed.", _EVERYDAY),
    "resume": Entry(f"{_HERE}.control:resume", "Let a paused ralph go on.", _EVERYDAY),
    "skip-wait": Entry(f"{_HERE}.control:skip_wait", "Do not wait any longer; start now.", _EVERYDAY),
    "ack": Entry(f"{_HERE}.ack:ack", "Say that you know what a ralph called you for.", _EVERYDAY),
    "reload": Entry(f"{_HERE}.reload:reload", "Take up a changed configuration.", _EVERYDAY),
    "undo": Entry(f"{_HERE}.guard:undo", "Put back commits that the guard has reverted.", _EVERYDAY),
    "rm": Entry(f"{_HERE}.control:rm", "Forget a ralph that does not run.", _EVERYDAY),
    "status": Entry(f"{_HERE}.status:status", "What is so, and what to do about it.", _LOOK),
    "ps": Entry(f"{_HERE}.status:status", "The same as status.", _LOOK, hidden=True),
    "attach": Entry(f"{_HERE}.attach:attach", "Watch a ralph live, with keys to pause and stop it.", _LOOK),
    "logs": Entry(f"{_HERE}.logs:logs", "What a ralph printed, with the Regent's own lines.", _LOOK),
    "events": Entry(f"{_HERE}.events:events", "What happened, one line an event.", _LOOK),
    "explain": Entry(f"{_HERE}.explain:explain", "Why the last thing was done to a ralph.", _LOOK),
    "verdicts": Entry(f"{_HERE}.guard:verdicts", "What was said of its commits, and why.", _LOOK),
    "report": Entry(f"{_HERE}.report:report", "What it did since last night, and what it cost.", _LOOK),
    "wait": Entry(f"{_HERE}.wait:wait", "Wait until a ralph is done, paused, stopped or idle.", _LOOK),
    "regent": Entry(f"{_HERE}.regent:regent", "Start, stop, restart and look at the daemon itself.", _DAEMON),
    "webhooks": Entry(f"{_HERE}.webhooks:webhooks", "Be told by Slack, ntfy or a receiver.", _DAEMON),
    "config": Entry(f"{_HERE}.config:config", "Show and check the configuration of a directory.", _MORE),
    "doctor": Entry(f"{_HERE}.doctor:doctor", "Look at all that ralphd needs, and say what to do.", _MORE),
    "classify": Entry(f"{_HERE}.classify:classify", "Say what an agent's output means.", _MORE),
    "notify": Entry(f"{_HERE}.notify:notify", "For scripts in a run: tell the Regent what it does.", _MORE),
    "completion": Entry(f"{_HERE}.completion:completion", "Print the completion script of a shell.", _MORE),
    "demo": Entry(f"{_HERE}.demo:demo", "See in half a minute what ralphd does.", _MORE),
}  # fmt: skip


def run(arguments: list[str]) -> int:
    """Carry out the command that ``arguments`` name; gives its exit code. Raises RalphdError."""
    if arguments in overview.ASKED:
        print(overview.text(TABLE))
        return wire.EXIT_OK
    from ralphctl import root

    return root.run(arguments)
