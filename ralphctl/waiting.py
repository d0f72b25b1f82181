"""Waiting for a ralph: ask again and again, with a bound if one is given, over restarts of the daemon."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from ralphctl.client import Client, Reply
from ralphctl.local import lastknown
from ralphctl.tell import message
from ralphctl.words import clock
from ralphd import wire
from ralphd.errors import DaemonNotRunning, RalphdError

View: TypeAlias = Mapping[str, Any]

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.25
QUIET_S = 0.3  # what is over by then needs no word about waiting


class WaitTimeout(RalphdError):
    """The client's own ``--wait-timeout`` ran out; nothing was changed by that."""

    slug, exit_code = "wait-timeout", wire.EXIT_TIMED_OUT


def until(
    client: Client,
    name: str,
    reached: Callable[[View], bool],
    *,
    waiting_for: str,
    force: str = "",
    timeout_s: float | None = None,
    directory: str | None = None,
    since: float | None = None,
) -> Reply:
    """The first reply for which ``reached`` holds.

    While no daemon answers, what is last known in the ralph's ``directory`` counts: that of ``ralphctl
    build`` ends as soon as its ralph does.

    What it waits for, since when and ``force`` (the command that forces it) are printed once, on stderr, if
    it takes a while; ``since`` is when that was asked, where it was not just now. Raises WaitTimeout after
    ``timeout_s`` seconds, UnknownRalph when it is forgotten.
    """
    try:
        return _until(_Look(client, name, directory), name, reached, waiting_for, force, timeout_s, since)
    except KeyboardInterrupt:
        message("\nit was only the waiting that ended" + forced(force))
        raise


def _until(
    look: _Look,
    name: str,
    reached: Callable[[View], bool],
    waiting_for: str,
    force: str,
    timeout_s: float | None,
    since: float | None,
) -> Reply:
    began, pause_s, said = time.monotonic(), _FIRST_PAUSE_S, False
    while True:
        reply = look()
        if reply is not None and reached(reply.value):
            return reply
        waited_s = time.monotonic() - began
        if timeout_s is not None and waited_s >= timeout_s:
            raise _timeout(name, reply, waiting_for, timeout_s, force)
        if not said and waited_s >= QUIET_S:
            said = True
            now = time.time()
            message(f"waiting for {waiting_for}, since {clock(since or now - waited_s, now)}" + forced(force))
        time.sleep(pause_s if timeout_s is None else min(pause_s, max(0.0, timeout_s - waited_s)))
        pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)


class _Look:
    """Looks at a ralph; None while nobody knows how it is, which is said once each time."""

    def __init__(self, client: Client, name: str, directory: str | None) -> None:
        self._client = client
        self._name = name
        self._directory = directory
        self._away = False

    def __call__(self) -> Reply | None:
        try:
            reply = self._client.ralph(self._name)
        except DaemonNotRunning:
            if (known := self._last_known()) is not None:
                return known
            if not self._away:
                message("ralphd is away; waiting for it to come back (ralphctl regent start)")
            self._away = True
            return None
        self._away = False
        self._directory = reply.value["directory"]
        return reply

    def _last_known(self) -> Reply | None:
        """How it was left, where it was left at rest."""
        view = lastknown.state(self._directory) if self._directory else None
        if view is None or view["name"] != self._name or not is_settled(view):
            return None
        return Reply(json.dumps(view).encode())


def forced(force: str) -> str:
    """How to force it, as the end of a line about waiting."""
    return f"; to force it: {force}" if force else ""


def _timeout(name: str, reply: Reply | None, waiting_for: str, timeout_s: float, force: str) -> WaitTimeout:
    state = reply.value["state"] if reply is not None else "unknown, since ralphd is away"
    return WaitTimeout(
        f"after {timeout_s:g} s still waiting for {waiting_for}",
        why=f"{name} is {state}; it was only the waiting that ended",
        mend=force or f"ralphctl status {name}",
    )


def is_settled(view: View) -> bool:
    """Whether no run lives and none starts by itself soon."""
    return view["state"] in wire.SETTLED_STATES


def one_of(states: Collection[str]) -> Callable[[View], bool]:
    """Whether a view's state is among ``states``."""
    return lambda view: view["state"] in states
