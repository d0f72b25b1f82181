"""What the keys of the live view do (L12): p pauses, s skips the present wait, q leaves or ends, S stops.

What is not easily undone is asked first; the key after a question is its answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ralphctl import countdown
from ralphctl.client import Client
from ralphctl.tell import clean
from ralphd.errors import RalphdError

View: TypeAlias = dict[str, Any]

_SKIP = "Skip the wait, at your own risk: what it waits for may not be over? [y/N]"


@dataclass(frozen=True, slots=True)
class Key:
    """A key, what the help says of it, and what it does when it is pressed at that view."""

    letter: str
    help: str
    act: Callable[[View], None]


@dataclass(frozen=True, slots=True)
class Question:
    """A question that is open; ``yes`` is done for one of the ``letters``, any other key says ``no``."""

    text: str
    letters: str
    yes: Callable[[View], None]
    no: str


class Controls:
    """Keys to requests. Each request has a thread of its own: the main one stays free for signals.

    ``stir`` is called when one is answered. ``quit_`` is what q does, and ``more`` are help's lines for what
    is no key of ours. ``may_stop``: S stops.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        say: Callable[[str], None],
        *,
        stir: Callable[[], None],
        quit_: Key,
        more: tuple[tuple[str, str], ...] = (),
        may_stop: bool = False,
    ) -> None:
        self._client, self._name, self._say, self._stir = client, name, say, stir
        self._asking = ""
        """The request that is under way."""
        self._more = more
        self.question: Question | None = None
        """The one that is open."""
        keys = [
            Key("p", "pause it after the iteration", self._pause),
            Key("s", "skip a wait", self._skip),
            quit_,
            *([Key("S", "stop it", self._stop)] if may_stop else []),
            Key("?", "these keys", self._tell_keys),
        ]
        self._keys: Mapping[int, Key] = {ord(key.letter): key for key in keys}

    def press(self, key: int, view: View) -> None:
        """Heed one key; one that means nothing is passed over."""
        open_, self.question = self.question, None
        if open_ is not None and chr(key) in open_.letters:
            open_.yes(view)
        elif open_ is not None:
            self._say(open_.no)
        elif key in self._keys:
            self._keys[key].act(view)

    def help(self) -> list[str]:
        """What the keys do, a line each."""
        rows = [(key.letter, key.help) for key in self._keys.values()] + list(self._more)
        width = max(len(letter) for letter, _ in rows)
        return [f"{letter:<{width}}  {text}" for letter, text in rows]

    def _tell_keys(self, view: View) -> None:
        self._say("\n".join(f"  {line}" for line in self.help()))

    def _skip(self, view: View) -> None:
        if not countdown.left_of(view, time.time()):
            self._say(f"{self._name} does not wait for a moment now: there is nothing to skip")
            return
        self.question = Question(_SKIP, "yY", self._skip_now, "no: it goes on waiting")

    def _skip_now(self, view: View) -> None:
        if countdown.left_of(view, time.time()):
            self._in_background("skip-wait", said="yes: it waits no longer")
        else:
            self._say("it is over by itself")

    def _stop(self, view: View) -> None:
        if view.get("state") == "stopping":
            self._say(f"it is stopping already; ralphctl stop --now {self._name} does not wait for that")
            return
        text = f"Stop {self._name}? S or y: it is asked to stop; any other key: it goes on [S/N]"
        self.question = Question(text, "SyY", self._stop_now, "no: it goes on")

    def _stop_now(self, view: View) -> None:
        said = f"{self._name} is asked to stop; ralphctl stop --now {self._name} does not wait for that"
        self._in_background("stop", said=said)

    def _pause(self, view: View) -> None:
        if "pause" in (self._asking, self._asked_of(view)):
            self._say("it is asked to pause already")
            return
        self._in_background("pause")  # that it pauses then is a line of its Regent's

    def going(self, view: View) -> str:
        """What becomes of it when nobody watches any more; a request of ours may not show in ``view`` yet."""
        asked = self._asking or self._asked_of(view)
        return {"stop": "is asked to stop", "pause": "is asked to pause"}.get(asked, "goes on as it is")

    def _asked_of(self, view: View) -> str:
        return {"stopping": "stop", "pausing": "pause"}.get(str(view.get("state")), "")

    def _ask(self, action: str, said: str) -> None:
        try:
            self._client.ask(self._name, action)
        except RalphdError as fault:
            why = f": {clean(fault.why.splitlines()[0])}" if fault.why else ""
            self._say(f"{action}: {clean(fault.what)}{why}")
        else:
            if said:
                self._say(said)
        finally:
            self._asking = ""
            self._stir()

    def _in_background(self, action: str, *, said: str = "") -> None:
        """Ask for it; ``said`` is what is said when it is asked, not before."""
        self._asking = action
        threading.Thread(target=self._ask, args=(action, said), daemon=True).start()
