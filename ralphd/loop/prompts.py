"""Puts prompts together: the user's own, as it is now, and what is known beside it (L4)."""

import asyncio

from ralphd.core.loop_model import Iteration
from ralphd.core.plan import Plan
from ralphd.core.prompt import prompt
from ralphd.errors import RalphdError, in_one_line
from ralphd.git.trouble import present_trouble
from ralphd.loop.console import Console
from ralphd.loop.desk import Desk
from ralphd.loop.prompt_file import read_prompt
from ralphd.loop.settings import Settings


class Prompts:
    """The prompts of one loop. Where the user's file cannot be read any more, its last text is used."""

    def __init__(self, settings: Settings, console: Console, desk: Desk) -> None:
        self._settings = settings
        self._console = console
        self._desk = desk
        self._own = ""

    async def load(self) -> None:
        """Read the user's prompt. Raises ConfigFaults for one that cannot be used."""
        settings = self._settings
        self._own = await asyncio.to_thread(read_prompt, settings.directory, settings.prompt_file)

    async def of(self, iteration: Iteration, plan: Plan | None, previous: str) -> str:
        """The prompt of an attempt; ``previous`` is the section on the one before it."""
        try:
            await self.load()
        except RalphdError as fault:
            self._console.say(f"the last known prompt is used: {in_one_line(fault)}")
        return prompt(
            self._own,
            task=iteration.task,
            plan=plan,
            handoff=await asyncio.to_thread(self._desk.handoff),
            trouble=await asyncio.to_thread(present_trouble, self._settings.directory),
            previous_attempt_context=previous,
            reverted=iteration.reverted,
        )
