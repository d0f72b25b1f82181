"""What ``ralphctl attach`` does: shows a ralph of a daemon, and leaves it as it is when somebody leaves."""

from __future__ import annotations

import signal
import threading
from enum import Enum
from types import FrameType
from typing import Any, TypeAlias

from ralphctl.client import Client
from ralphctl.controls import Controls, Key
from ralphctl.keys import Keyboard
from ralphctl.offline import state as offline
from ralphctl.view.bell import Bell
from ralphctl.view.live import LiveView, Over, Source
from ralphctl.waiting import is_settled
from ralphd.errors import DaemonNotRunning, RalphdError, UnknownRalph

View: TypeAlias = dict[str, Any]

_LOOK_S = 0.05
_LEAVING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)


class End(Enum):
    """Why the watching is over."""

    SETTLED = "nothing of it runs any more"
    LEFT = "a key asked for it"
    INTERRUPTED = "a signal asked for it"
    UNHEARD = "nobody reads what is printed"
    FORGOTTEN = "the daemon knows it no more"


class Attached:
    """One ralph of a daemon in front of a person. ``view`` is how it is at the beginning."""

    def __init__(
        self, client: Client, view: View, tail: str, after: int, bell: Bell, keyboard: Keyboard
    ) -> None:
        self._client = client = client.untelling()  # a word of its own would tear the region
        self._name, self._directory = str(view["name"]), str(view["directory"])
        self._left: End | None = None
        self._bell = bell
        source = Source(client, self._name, {"tail": tail}, after, look=self._look, is_over=self._is_left)
        self._live = LiveView(source, bell, keyboard)
        self._live.view = view
        self._live.controls = Controls(
            client, self._name, self._live.say, stir=self._live.stir, may_stop=True,
            quit_=Key("q", "leave; it goes on. So does Ctrl-C", self._quit),
        )  # fmt: skip
        for number in _LEAVING:
            signal.signal(number, self._heard)

    @property
    def view(self) -> View:
        """How it was when it was looked at last."""
        return self._live.view

    def watch(self) -> End:
        """Show it until it is over, or somebody leaves; says which."""
        self._live.begin()
        end = self._live.wait(self._end)
        if end is End.SETTLED:
            self._print_the_rest()
        self._live.close()
        return end

    def _print_the_rest(self) -> None:
        """As long as its reader takes, unless somebody leaves."""
        printing = threading.Thread(target=self._live.finish, daemon=True)
        printing.start()
        while printing.is_alive() and self._left is None:
            printing.join(_LOOK_S)

    @property
    def going(self) -> str:
        """What becomes of it when nobody watches any more."""
        assert self._live.controls is not None
        return self._live.controls.going(self.view)

    def last_words(self, lines: list[str]) -> str:
        """What to say of its end, in the form of the view."""
        return self._live.last_words(lines)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self._left = End.INTERRUPTED

    def _quit(self, view: View) -> None:
        self._left = End.LEFT
        self._bell.ring()

    def _is_left(self) -> bool:
        return self._left is not None

    def _end(self) -> End | None:
        if self._left is not None:
            return self._left
        if self._live.screen.is_broken:
            return End.UNHEARD
        if self._live.is_gone:
            return End.FORGOTTEN
        return End.SETTLED if is_settled(self.view) else None

    def _look(self) -> View | None:
        """How it is; where no daemon answers, how it was left, if at rest: that of ``build`` ends with it."""
        try:
            view: View = self._client.ralph(self._name).value
            return view
        except UnknownRalph as forgotten:
            raise Over from forgotten
        except DaemonNotRunning:
            known = offline.last_view(self._directory)
            is_its = known is not None and known["name"] == self._name and is_settled(known)
            return known if is_its else None
        except RalphdError:
            return None
