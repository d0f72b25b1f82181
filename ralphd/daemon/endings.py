"""The end of a run as the core wants to know it: what its record, its log, its directory and git tell."""

import asyncio

from ralphd.core.model import Ending, Mode
from ralphd.core.outcome import TRY_AGAIN_LATER
from ralphd.core.plan import PROMISE_LINES, is_complete, is_promised
from ralphd.daemon.account import Account
from ralphd.loop.plan import read_plan
from ralphd.process.output import Log
from ralphd.process.spawn import ExitRecord
from ralphd.store.checkpoint_file import Pause


async def ending_of(account: Account, log: Log, record: ExitRecord) -> Ending:
    """All that matters about the end of a run (E1 to E4)."""
    account.note_exit(record)
    pause = Pause()
    if record.code == TRY_AGAIN_LATER:
        held = account.in_force.definition
        pause = await asyncio.to_thread(account.files.checkpoint, held.directory, own_loop=held.runs_own_loop)
    complete = False
    if record.code == 0 and account.policy.mode is Mode.ITERATION:
        complete = await asyncio.to_thread(_is_complete, account, log, record)
    return Ending(
        run_id=record.run_id,
        at=record.ended_at,
        code=record.code,
        signal=record.signal,
        started_at=record.started_at,
        last_sign_at=log.last_output_at(record.run_id),
        committed=await account.has_moved(),
        complete=complete,
        pause_reason=pause.reason,
        resume_at=pause.resume_at,
    )


def _is_complete(account: Account, log: Log, record: ExitRecord) -> bool:
    """E4: the task list is complete, or the promise was given and no task is open."""
    plan = read_plan(account.definition.directory, account.configuration.ralph.tasks)
    return is_complete(plan, is_promised(log.last_lines(record.run_id, PROMISE_LINES)))
