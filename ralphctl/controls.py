"""What the keys of ``ralphctl build`` do: p pauses, s skips the present wait (L12)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ralphctl import countdown
from ralphctl.client import Client
from ralphctl.tell import clean
from ralphctl.words import asked
from ralphd.errors import RalphdError

PAUSING = "Pausing after current iteration..."
_QUESTION = "Skip the wait, at your own risk: what it waits for may not be over? [y/N] "


class Controls:
    """Keys to requests. Each request has a thread of its own: the main one stays free for signals."""

    def __init__(self, client: Client, name: str, say: Callable[[str], None]) -> None:
        self._client, self._name, self._say = client, name, say
        self._pausing = False
        self.asks = False
        """Whether a question is open: the line it stands on is not to be written over."""

    def press(self, key: int, view: dict[str, Any]) -> str | None:
        """Heed one key; gives a question to be put without a line's end, if there is one."""
        if self.asks:
            self.asks = False
            self._answered(key in b"yY", view)
        elif key == ord("p"):
            self._pause()
        elif key == ord("s"):
            if countdown.line(view, time.time(), has_keys=False):
                self.asks = True
                return _QUESTION
            self._say(f"{self._name} does not wait for a moment now: there is nothing to skip")
        return None

    def _answered(self, yes: bool, view: dict[str, Any]) -> None:
        if not yes:
            self._say("no: it goes on waiting")
        elif countdown.line(view, time.time(), has_keys=False):
            self._say("yes: it waits no longer")
            self._in_background(lambda: self._ask("skip-wait"))
        else:
            self._say("it is over by itself")

    def _pause(self) -> None:
        if self._pausing:
            self._say("it is asked to pause already; Ctrl-C ends it")
            return
        self._pausing = True
        self._in_background(self._ask_to_pause)

    def _ask_to_pause(self) -> None:
        view = self._ask("pause")
        self._pausing = view is not None
        if view is not None and view["state"] == "pausing":
            self._say(pausing_words(view))

    def _ask(self, action: str) -> dict[str, Any] | None:
        try:
            view: dict[str, Any] = self._client.ask(self._name, action).value
        except RalphdError as fault:
            self._say(f"{action}: {clean(fault.what)}" + (f": {clean(fault.why)}" if fault.why else ""))
            return None
        return view

    def _in_background(self, work: Callable[[], object]) -> None:
        threading.Thread(target=work, daemon=True).start()


def pausing_words(view: dict[str, Any]) -> str:
    """What a run that is to pause does first: it finishes its iteration, or is ended at once."""
    what, since = asked(view.get("message"))
    return PAUSING if what and since else "Pausing: its run is asked to end..."
