"""Pull before an iteration, push after its verdict, where the configuration wants it (L9)."""

import asyncio

from ralphd.git.remote import pull_rebase, push
from ralphd.loop.console import Console
from ralphd.loop.settings import Settings


class Remote:
    """The upstream of the working directory's branch, as far as the loop has to do with it."""

    def __init__(self, settings: Settings, console: Console) -> None:
        self._settings = settings
        self._console = console

    async def pull(self) -> None:
        """Bring the upstream's commits, before an iteration."""
        if self._settings.configuration.git.auto_pull_rebase:
            pulled = await asyncio.to_thread(pull_rebase, self._settings.directory)
            self._console.say(f"pull: {pulled.words}")

    async def push(self, *, failed: bool) -> None:
        """Send the iteration's commits to the upstream; those of one that failed wait for the next."""
        if self._settings.configuration.git.auto_push and not failed:
            pushed = await asyncio.to_thread(push, self._settings.directory)
            self._console.say(f"push: {pushed.words}")
