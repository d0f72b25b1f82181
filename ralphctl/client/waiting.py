"""Wait for a ralph: poll its view, within a bound if one is given, over restarts of the daemon."""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ralphctl.client.client import Client, Reply
from ralphctl.format import state_text
from ralphctl.format.humanize import clock, cut, duration
from ralphctl.format.output import columns, message
from ralphctl.offline import state as offline
from ralphd import wire
from ralphd.errors import DaemonBusy, DaemonNotRunning, RalphdError

View: TypeAlias = Mapping[str, Any]

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.25
QUIET_S = 0.3
"""A wait shorter than this prints no message."""


class WaitTimeout(RalphdError, slug="wait-timeout", exit_code=wire.EXIT_TIMED_OUT):
    """The client's own ``--wait-timeout`` ran out; nothing was changed by that."""


def until(
    client: Client, name: str, reached: Callable[[View], bool], *,
    waiting_for: str, force: str = "", timeout_s: float | None = None, directory: str | None = None,
    since: float | None = None, remark: Callable[[View], str] = lambda view: "",
) -> Reply:  # fmt: skip
    """Return the first reply for which ``reached`` holds.

    While no daemon answers, the state that is last known in the ralph's ``directory`` counts: the daemon of
    ``ralphctl build`` ends as soon as its ralph does.

    A wait that takes a while prints its goal, its start and bound, and ``force`` (the command that forces it)
    once on stderr; on a terminal a line below shows the present state. ``since`` is the time of the request
    if that was earlier. ``remark`` returns what else to print of a view, once as long as it is the same.
    Raise WaitTimeout after ``timeout_s`` seconds, UnknownRalph when the ralph is forgotten.
    """
    progress = _Progress(name, waiting_for, force, timeout_s, since)
    poll = _Poll(client.without_notices(), name, directory, progress.say)
    began, pause_s = time.monotonic(), _FIRST_PAUSE_S
    try:
        while True:
            reply = poll()
            if reply is not None and reached(reply.value):
                return reply
            waited_s = time.monotonic() - began
            if timeout_s is not None and waited_s >= timeout_s:
                raise progress.timeout(reply)
            if waited_s >= QUIET_S:
                progress.show(reply, waited_s, "" if reply is None else remark(reply.value))
            time.sleep(pause_s if timeout_s is None else min(pause_s, max(0.0, timeout_s - waited_s)))
            pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
    except KeyboardInterrupt:
        progress.say("\nNo longer waiting; the request stays in force" + forced(force))
        raise
    finally:
        progress.clear()


class _Progress:
    """Prints the progress of a wait on stderr; the line that is overwritten is gone at the end."""

    def __init__(
        self, name: str, waiting_for: str, force: str, timeout_s: float | None, since: float | None
    ) -> None:
        self._name, self._waiting_for, self._force = name, waiting_for, force
        self._timeout_s, self._since = timeout_s, since
        self._begun, self._remarked, self._line = False, "", ""
        self._moves = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def show(self, reply: Reply | None, waited_s: float, remark: str) -> None:
        """Print what is waited for, the first time; a new remark; and the present state."""
        now = time.time()
        if not self._begun:
            self._begun = True
            most = "" if self._timeout_s is None else f", {self._timeout_s:g} s at most"
            since = clock(self._since or now - waited_s, now)
            self.say(f"waiting for {self._waiting_for}, since {since}{most}" + forced(self._force))
        if remark and remark != self._remarked:
            self.say(remark)
        self._remarked = remark
        if not self._moves:
            return
        state = "unknown: ralphd is away" if reply is None else state_text.state_words(reply.value, now)
        line = cut(f"  {duration(waited_s)}: {self._name} is {state}", (columns(sys.stderr) or 80) - 1)
        if line != self._line:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
            self._line = line

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.clear()
        message(text)

    def clear(self) -> None:
        """Erase the line that is overwritten."""
        if self._line:
            self._line = ""
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def timeout(self, reply: Reply | None) -> WaitTimeout:
        """Return the error for the end of the time limit."""
        state = "unknown, since ralphd is away" if reply is None else reply.value["state"].replace("_", " ")
        what = f"after {self._timeout_s:g} s still waiting for {self._waiting_for}"
        why = f"{self._name} is {state}; only the wait ended, the request stays in force"
        return WaitTimeout(what, why=why, mend=self._force or f"ralphctl status {self._name}")


class _Poll:
    """Returns a ralph's view; None, with one message for each absence, while nobody knows its state."""

    def __init__(self, client: Client, name: str, directory: str | None, say: Callable[[str], None]) -> None:
        self._client, self._name, self._directory, self._say = client, name, directory, say
        self._away = False

    def __call__(self) -> Reply | None:
        try:
            reply = self._client.ralph(self._name)
        except (DaemonNotRunning, DaemonBusy):  # a daemon that starts may not answer yet
            if self._directory and (view := last_settled(self._directory, self._name)) is not None:
                return Reply(json.dumps(view).encode())
            if not self._away:
                self._say("ralphd is away; waiting for it to come back (ralphctl regent start)")
            self._away = True
            return None
        self._away = False
        self._directory = reply.value["directory"]
        return reply


def forced(force: str) -> str:
    """Return how to force it, as the end of a line about waiting."""
    return f"; to force it: {force}" if force else ""


def is_settled(view: View) -> bool:
    """Return whether no run lives and none starts by itself soon."""
    return view["state"] in wire.SETTLED_STATES


def last_settled(directory: str, name: str) -> dict[str, Any] | None:
    """Return the view of the ralph ``name`` in the files of ``directory`` if it was left settled there."""
    view = offline.last_view(directory)
    return view if view is not None and view["name"] == name and is_settled(view) else None
