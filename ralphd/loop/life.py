"""The life of a process that this loop has started: until it ends by itself, or is asked to."""

import asyncio
from contextlib import suppress
from typing import Final

from ralphd.loop.endings import Endings, Order
from ralphd.process.attempt import AgentProcess

REAP_S: Final = 1.0
"""How often the orphans of a living process are reaped."""


async def over(process: AgentProcess, endings: Endings) -> Order | None:
    """Wait for its end (None), or for an order to end it."""
    exited = asyncio.create_task(process.exited())
    ordered = asyncio.create_task(endings.ordered())
    both = {exited, ordered}
    try:
        while not (exited.done() or ordered.done()):
            await asyncio.wait(both, timeout=REAP_S, return_when=asyncio.FIRST_COMPLETED)
            process.reap_orphans()
    finally:
        for task in both:
            task.cancel()
    return None if process.has_exited else endings.order


async def ask(process: AgentProcess, grace_s: float) -> None:
    """Ask it to end, and give it the time for it."""
    process.ask()
    with suppress(TimeoutError):
        async with asyncio.timeout(grace_s):
            await process.exited()
