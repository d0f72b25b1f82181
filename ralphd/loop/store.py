"""The files of one loop: checkpoint, tasks, memory, phases and handoff, written before they are acted upon.

A full disk must not end a loop: what cannot be written becomes a line for the log, and the loop continues.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ralphd.core.gate.range import news_for
from ralphd.core.gate.verdict import VerdictKind
from ralphd.core.gate.verdict_views import GateNews, one_line
from ralphd.core.gate.weakened import Weakened
from ralphd.core.loop.inbox import Sent, plan_tasks, unread
from ralphd.core.loop.model import Checkpoint, CheckpointTask, Ledger, Loop, LoopState, TaskState
from ralphd.core.loop.tasks import progress
from ralphd.core.quota.model import SKIPPED
from ralphd.core.time import Moment, parse_rfc3339, rfc3339
from ralphd.core.worktrees.rules import Claims, claimed, only
from ralphd.git.snapshot import snapshot
from ralphd.store.gate import look_into
from ralphd.store.loop_files import LoopFiles, peek_inbox
from ralphd.store.shared.claims import change_claims, worktree_of
from ralphd.store.state import GATE_FILE

if TYPE_CHECKING:
    from ralphd.core.loop.model import SaveCheckpoint
    from ralphd.core.loop.phases import Phases
    from ralphd.core.plan import Plan, Task
    from ralphd.loop.settings import LoopSettings

MOST_NOTES, MOST_NOTE_CHARS = 10, 500
"""After a night of failures the next agent gets the last notes only."""


class LoopStore:
    """The files of one loop, and the news about them. All methods block.

    ``phases`` is the position of the last attempt, ``prompt_file`` has the prompt of the present one.
    """

    def __init__(self, settings: "LoopSettings") -> None:
        self._settings = settings
        self.prompt_file = settings.home / "PROMPT-now.md"
        self._files = LoopFiles(settings.home, settings.directory)
        self._state = settings.home.parent.parent
        self._tree = worktree_of(self._state, settings.name) if settings.is_supervised else None
        self._news: list[str] = []
        self._trouble = ""
        self._notes_read = 0
        self.phases: Phases | None = None
        self._saved_phases: Phases | None = None

    def news(self) -> list[str]:
        """Return the lines for the log since the last call."""
        news, self._news = self._news, []
        return news

    @contextmanager
    def _reporting(self, problem: str) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            self._news.append(f"{problem}: {fault}")

    def load(self, now: Moment, *, resume: bool) -> tuple[LoopState, Ledger, Checkpoint | None]:
        """Return from where to continue. Raise NewerState for files of a newer version."""
        self._files.create()
        memory, ledger = self._files.memory.load(), self._files.tasks.load()
        if not resume and (discarded := self._files.checkpoints.discard()) is not None:
            self._news.append(f"the checkpoint was discarded; it is kept as {discarded}")
        checkpoint = self._files.checkpoints.load()
        loaded = (self._files.memory, self._files.tasks, self._files.checkpoints)
        self._news += [file.fault for file in loaded if file.fault]
        if self._settings.configuration.phases.enabled:
            self.phases = self._saved_phases = self._files.phases.load()
            self._news += filter(None, (self._files.phases.fault,))
            if checkpoint is None:
                self.clear_phases()
        remembered = memory if resume else replace(memory, out=())
        start = continued(self._settings, remembered, ledger, checkpoint, now)
        # At once: if the loop dies before anything else changes, the next start is not a person's first one.
        self.remember(Loop(memory, ledger), Loop(*start))
        return *start, checkpoint

    def gate_news(self, memory: LoopState, ledger: Ledger) -> GateNews:
        """Return what the gate has decided, and an earlier loop may not have heard before it died."""
        state = look_into(self._settings.home / GATE_FILE)
        return GateNews() if state is None else news_for(state, memory.judged, ledger)

    def weakened_tests(self) -> tuple[str, ...]:
        """Return a line for the prompt where tests vanished in the last judged iteration (A9)."""
        state = look_into(self._settings.home / GATE_FILE)
        if state is None or (last := state.last) is None or last.weakened is not Weakened.VANISHED:
            return ()
        if last.kind is VerdictKind.REVERTED:
            return ()
        what = f"The last commits removed or disabled tests ({one_line(last.why)})."
        return (f"{what} Restore them, and fix the code instead.",)

    def save_phases(self, phases: "Phases") -> None:
        """Save the position of the attempt."""
        self.phases = phases
        if phases != self._saved_phases:
            with self._reporting("cannot save phases.json"):
                self._files.phases.save(phases)
                self._saved_phases = phases

    def clear_phases(self) -> None:
        """Forget the position: the iteration has succeeded."""
        if self.phases is not None:
            self.phases = self._saved_phases = None
            with self._reporting("cannot remove phases.json"):
                self._files.phases.clear()

    def remember(self, before: Loop, after: Loop) -> None:
        """Save what has changed of tasks and memory."""
        self._notes_read = after.memory.notes_read
        with self._reporting("cannot save tasks.json or loop.json"):
            if after.ledger != before.ledger:
                self._files.tasks.save(after.ledger)
            known, memory = (replace(it.memory, tasks=progress(it.plan, it.ledger)) for it in (before, after))
            if memory != known:
                self._files.memory.save(memory)

    def save_checkpoint(self, order: "SaveCheckpoint", memory: LoopState, now: Moment) -> None:
        """Write the checkpoint, with a snapshot of uncommitted work."""
        self._files.renew_copies()
        iteration, max_iterations = order.iteration, self._settings.policy.max_iterations
        number = memory.iteration + 1 if iteration is None else iteration.number
        label = f"{self._settings.name}, iteration {number}"
        work = snapshot(self._settings.directory, label, scratch=self._files.home)
        if work.trouble and work.trouble != self._trouble:
            self._news.append(work.trouble)
        self._trouble = work.trouble
        checkpoint = Checkpoint(
            now, number, order.reason, max_iterations, resume_at=order.resume_at, why=order.why,
            uncommitted_files=work.files, head_commit=work.head, snapshot_ref=work.ref,
            total_cost_usd=memory.cost_usd,
        )  # fmt: skip
        if iteration is not None:
            task = CheckpointTask(iteration.task.id, iteration.task.title, iteration.attempt)
            session, is_worth_it = iteration.session, iteration.session is not None
            checkpoint = replace(checkpoint, task=task, agent=iteration.agent, resumes_session=is_worth_it)
            checkpoint = replace(checkpoint, session_id=session or iteration.last_session)
        with self._reporting("cannot save the checkpoint"):
            self._files.checkpoints.save(checkpoint)

    def clear_checkpoint(self) -> None:
        """Remove the checkpoint: the task is done."""
        with self._reporting("cannot remove the checkpoint"):
            self._files.checkpoints.clear()

    def handoff(self) -> str:
        """Return the notes for the next agent."""
        return self._files.load_handoff()

    def hand_over(self, note: str) -> None:
        """Append a note for the next agent; an empty one clears them all."""
        before, text = self.handoff(), ""
        if note:
            lines = [line for line in before.splitlines() if line]
            lines.append(f"- {' '.join(note.split())[:MOST_NOTE_CHARS]}")
            text = "".join(f"{line}\n" for line in lines[-MOST_NOTES:])
        if text != before:
            with self._reporting("cannot save the handoff note"):
                self._files.save_handoff(text)

    def added(self) -> "tuple[Task, ...]":
        """Return the tasks that a person added."""
        return plan_tasks(peek_inbox(self._settings.home))

    def own_part(self, plan: "Plan", ledger: Ledger) -> "Plan":
        """Claim the next task of a list that several ralphs share, and return this ralph's part of it (W1).

        Raise OSError where the claim cannot be saved: another ralph would do the same task.
        """
        tree, name = self._tree, self._settings.name
        if tree is None:
            return plan
        part = only(plan, tree.tasks) if tree.tasks else plan
        if not tree.shares:
            return part
        failed = {id_ for id_, each in ledger.items() if each.state is TaskState.FAILED}
        task_list = os.path.normpath(f"{tree.inside}/{plan.file}")
        shown = [part]

        def claim(claims: Claims) -> Claims:
            after, shown[0] = claimed(claims, part, name, failed)
            return after

        change_claims(self._state, tree.repository, task_list, claim)
        return shown[0]

    def notes(self) -> tuple[Sent, ...]:
        """Return the notes of a person for the present attempt."""
        return unread(peek_inbox(self._settings.home).notes, self._notes_read)

    def keep_prompt(self, text: str) -> None:
        """Write the prompt of the present attempt."""
        with self._reporting("the prompt cannot be saved"):
            self._files.save_prompt(text)


def continued(
    settings: "LoopSettings", memory: LoopState, ledger: Ledger, checkpoint: Checkpoint | None, now: Moment
) -> tuple[LoopState, Ledger]:
    """Return memory and tasks for the start of a loop.

    After a restart by the Regent all counts continue. After a person's start iterations, costs and failures
    start from 0, or from the checkpoint if there is one; timed cooldowns remain. A loop that had reached its
    number of iterations gets as many again.
    """
    try:
        began_at = parse_rfc3339(settings.environment["RALPH_BEGAN_AT"])
    except (KeyError, ValueError):
        began_at = None
    # The moment in memory is rounded as it is in its file, so that both are comparable.
    known_at = None if memory.began_at is None else parse_rfc3339(rfc3339(memory.began_at))
    if began_at is None or began_at != known_at:
        memory = LoopState(
            began_at=began_at or now, out=tuple(each for each in memory.out if each.until),
            last_agent=memory.last_agent, in_flight=memory.in_flight, judged=memory.judged,
            notes_read=memory.notes_read,
        )  # fmt: skip
        ledger = {id_: replace(each, failure_count=0, timeout_factor=1.0) for id_, each in ledger.items()}
        if checkpoint is not None:
            iteration = max(checkpoint.iteration - 1, 0)
            is_used_up = 0 < settings.policy.max_iterations <= iteration
            iteration = 0 if is_used_up else iteration
            memory = replace(memory, iteration=iteration, cost_usd=checkpoint.total_cost_usd)
    if settings.environment.get("RALPH_QUEUED_AT") == SKIPPED:  # a person does not want to wait
        memory = replace(memory, out=tuple(each for each in memory.out if not each.until))
    return memory, ledger
