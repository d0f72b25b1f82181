"""Hears what an agent says: shows it, keeps what counts of it, and tells life from noise (L6, L7)."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from ralphd.agents.agent import Agent
from ralphd.core.classify import OurDoing
from ralphd.core.model import Moment
from ralphd.core.printed import plain, plain_lines
from ralphd.core.progress import (
    NOT_IDLING,
    Idling,
    Traits,
    explain_stuck,
    idled,
    is_life,
    is_stuck,
    traits_of,
)
from ralphd.core.signs import (
    Limited,
    RetryingItself,
    Sign,
    Spent,
    Started,
    Text,
    ToolUse,
    Verdict,
    Warned,
)
from ralphd.loop.endings import Endings, Order
from ralphd.loop.news import News
from ralphd.process.clock import Clock

logger = logging.getLogger(__name__)

Show: TypeAlias = Callable[[str], None]

LINES_KEPT = 50
MOST_CHARS = 1 << 16
"""How much is kept of a message of the agent's end."""


class Hearing:
    """One attempt, as far as it can be heard.

    ``hang_timeout_s`` 0: nobody asks whether it is stuck. ``at_once``: crash messages are given no grace.
    """

    def __init__(
        self,
        agent: Agent,
        news: News,
        endings: Endings,
        *,
        clock: Clock,
        hang_timeout_s: float,
        at_once: bool = False,
    ) -> None:
        self.parser = agent.parser()
        self.last_life_at: Moment | None = None
        self.lines = deque[str](maxlen=LINES_KEPT)
        self.printed = self.worked = False
        self.session: str | None = None
        self.model: str | None = None
        self.cost_usd: float | None = None
        self.tokens_in = self.tokens_out = 0
        self.verdict: Verdict | None = None
        self.limited: Limited | None = None
        self.retrying: RetryingItself | None = None
        self._agent, self._news, self._endings, self._clock = agent, news, endings, clock
        self._hang_timeout_s = hang_timeout_s
        self._at_once = at_once
        self._is_plain = not agent.has_verdict
        self._idling: Idling = NOT_IDLING
        self._has_failed = False

    def out(self, lines: list[str]) -> None:
        """Whole lines of stdout."""
        self._each(lines, self._out)

    def err(self, lines: list[str]) -> None:
        """Whole lines of stderr."""
        self._each(lines, self._err)

    def _each(self, lines: list[str], hear: Callable[[str, Moment, float], None]) -> None:
        now, awake_s = self._clock.now(), self._clock.awake_s()
        for line in lines:
            try:
                hear(line, now, awake_s)
            except Exception:  # a parser that cannot read a line must not end the watch over its agent
                if not self._has_failed:
                    logger.exception("a line of %s cannot be heard", self._agent.name)
                self._has_failed = True

    def _out(self, line: str, now: Moment, awake_s: float) -> None:
        self.printed = self.printed or bool(line.strip())
        signs = tuple(self.parser.line(line))
        traits = traits_of(signs)
        self._note_life(signs, traits, now, awake_s)
        if traits.judges:
            self._endings.result_told()
        elif traits.works:
            self._endings.went_on()
        elif self._is_plain or traits.is_more_than_empty:
            self._endings.lived()
        for sign in signs:
            self._hear(sign, self._show_and_keep)
        if self._is_plain and not signs:
            self._show_and_keep(plain(line))

    def _err(self, line: str, now: Moment, awake_s: float) -> None:
        signs = tuple(self.parser.error_line(line))
        traits = traits_of(signs)
        alive = self._note_life(signs, traits, now, awake_s)
        shown = plain(line)
        if self._agent.patterns.live(line, at_once=self._at_once):
            self._endings.complained(shown)
        elif alive:
            self._endings.lived()
        for sign in signs:
            self._hear(sign, self._news.show)
        if shown and not traits.is_told:
            self._news.show(shown)

    def _note_life(self, signs: tuple[Sign, ...], traits: Traits, now: Moment, awake_s: float) -> bool:
        """Whether its signs tell of life. Of an agent without events each line is life as well (L6)."""
        if traits.progresses and not traits.idles:
            self._idling, self.last_life_at = NOT_IDLING, now
            return True
        timeout_s = self._hang_timeout_s
        if not (traits.idles or traits.progresses):  # the row of idle steps is as it was
            alive = traits.beats and is_life(signs, self._idling, awake_s, timeout_s)
            if alive or self._is_plain:
                self.last_life_at = now
            return alive
        self._idling = idled(self._idling, signs, awake_s, timeout_s)
        alive = is_life(signs, self._idling, awake_s, timeout_s)
        if alive or (self._is_plain and not traits.idles):
            self.last_life_at = now
        if is_stuck(self._idling, timeout_s):
            why = explain_stuck(self._agent.name, self._idling, timeout_s)
            self._endings.end(Order(OurDoing.STALL, why.title, evidence=why))
        return alive

    def _hear(self, sign: Sign, show: Show) -> None:
        """Keep what counts of a sign, and tell it; of retries the last one, where nothing came after it."""
        match sign:
            case Text(text=text):
                self.worked, self.retrying = True, None
                for line in plain_lines(text):
                    show(line)
            case ToolUse(name=name, about=about):
                self.worked, self.retrying = True, None
                show(plain(f"[{name}] {about.partition(chr(10))[0]}".rstrip()))
            case Spent():
                self._spend(sign)
            case Started(session=session, model=model):
                self.session, self.model = session or self.session, model or self.model
            case Verdict(message=message, body=body):
                self.verdict = replace(sign, message=message[:MOST_CHARS], body=body[:MOST_CHARS])
            case Limited():
                self.limited = sign
            case Warned(text=text):
                self._news.show(plain(f"{self._agent.name}: {text}".replace("\n", " ")))
            case RetryingItself():
                self.retrying = sign
                self._news.retrying(sign)
            case _:
                pass

    def _spend(self, spent: Spent) -> None:
        if spent.cost_usd is not None:
            before = 0.0 if spent.total else self.cost_usd or 0.0
            self.cost_usd = before + spent.cost_usd
        self.tokens_in = spent.tokens_in + (0 if spent.total else self.tokens_in)
        self.tokens_out = spent.tokens_out + (0 if spent.total else self.tokens_out)

    def _show_and_keep(self, line: str) -> None:
        self.lines.append(line)
        self._news.show(line)
