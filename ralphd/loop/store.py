"""What lies on the loop's desk: checkpoint, tasks, memory and handoff, written before they are acted upon."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ralphd.core.gate.verdict_views import VerdictMessage, heard
from ralphd.core.loop.model import Loop, Resumed, SaveCheckpoint
from ralphd.core.loop.phases import Phases
from ralphd.core.loop.state import Checkpoint, CheckpointTask, Ledger, LoopState, TaskRecord
from ralphd.core.time import Moment, parse_rfc3339, rfc3339
from ralphd.git.snapshot import Snapshot, snapshot
from ralphd.loop.settings import LoopSettings
from ralphd.store.gate import look_into
from ralphd.store.loop_files import LoopFiles
from ralphd.store.state import GATE_FILE

MOST_NOTES, MOST_NOTE_CHARS = 10, 500
"""Of a night of failures the next agent is told the last ones."""


class LoopStore:
    """The files of one loop, and what is to be said of them. All methods block."""

    def __init__(self, settings: LoopSettings) -> None:
        self._settings = settings
        self._files = LoopFiles(settings.home, settings.directory)
        self._news: list[str] = []
        self._trouble = ""
        self._phases: Phases | None = None
        self._saved_phases: Phases | None = None

    @property
    def prompt_file(self) -> Path:
        """Where the prompt of the present attempt is."""
        return self._settings.home / "PROMPT-now.md"

    def news(self) -> list[str]:
        """What is to be said since the last call."""
        told, self._news = self._news, []
        return told

    def load(self, now: Moment, *, resume: bool) -> tuple[LoopState, Ledger, Resumed | None]:
        """Where an earlier loop stood. Raises NewerState for files of a newer version."""
        self._files.create()
        memory, ledger = self._files.load_memory(), self._files.load_tasks()
        if not resume:
            self._discard()
        checkpoint = self._files.checkpoints.load()
        self._news += filter(None, (memory.fault, ledger.fault, self._files.checkpoints.fault))
        self._load_phases(forget=checkpoint is None)
        remembered = memory.value if resume else replace(memory.value, out=())
        gone_on = _gone_on(self._settings, remembered, ledger.value, checkpoint, now)
        # At once: a loop that dies before anything else changes is not another start of a person's.
        self.remember(Loop(memory.value, ledger.value), Loop(gone_on[0], gone_on[1]))
        return gone_on

    def unheard(self, memory: LoopState, ledger: Ledger) -> VerdictMessage | None:
        """The last verdict, where an earlier loop died before it heard it; None: it is on no task of ours."""
        state = look_into(self._settings.home / GATE_FILE)
        if state is None or (last := state.last) is None or last.boundary_id == memory.judged:
            return None
        if last.task is None or last.task.id not in ledger or last.boundary_id in state.undone:
            return None
        try:
            return heard(
                last.boundary_id,
                last.kind,
                last.why,
                task=last.task.id,
                commits=last.commits,
                reverted=last.reverted,
                tail=last.tail,
                is_open=state.is_open,
            )
        except ValueError:
            return None

    def undone(self) -> tuple[str, ...]:
        """The boundaries whose commits a person has put back."""
        state = look_into(self._settings.home / GATE_FILE)
        return () if state is None else state.undone

    def _discard(self) -> None:
        kept_as = self._files.checkpoints.discard()
        if kept_as is not None:
            self._news.append(f"the checkpoint is put aside as {kept_as}")

    def _load_phases(self, *, forget: bool) -> None:
        """Where an earlier attempt was, where this loop has phases. Without a checkpoint all begins anew."""
        if not self._settings.configuration.phases.enabled:
            return
        kept = self._files.load_phases()
        self._phases = self._saved_phases = kept.value
        self._news += filter(None, (kept.fault,))
        if forget:
            self.clear_phases()

    @property
    def phases(self) -> Phases | None:
        """Where the last attempt was."""
        return self._phases

    def save_phases(self, phases: Phases) -> None:
        """Write down where the attempt is."""
        self._phases = phases
        if phases == self._saved_phases:
            return
        try:
            self._files.save_phases(phases)
            self._saved_phases = phases
        except OSError as fault:
            self._news.append(f"where the phases are cannot be saved: {fault}")

    def clear_phases(self) -> None:
        """The iteration is over, and well."""
        if self._phases is None:
            return
        self._phases = self._saved_phases = None
        try:
            self._files.clear_phases()
        except OSError as fault:
            self._news.append(f"where the phases are cannot be cleared: {fault}")

    def remember(self, before: Loop, after: Loop) -> None:
        """Save what has changed of tasks and memory. What a full disk does not take is said, and kept."""
        try:
            if after.ledger != before.ledger:
                self._files.save_tasks(after.ledger)
            if after.memory != before.memory:
                self._files.save_memory(after.memory)
        except OSError as fault:
            self._news.append(f"what is remembered of the tasks cannot be saved: {fault}")

    def save_checkpoint(
        self, order: SaveCheckpoint, memory: LoopState, now: Moment, max_iterations: int
    ) -> None:
        """Write the checkpoint, with a snapshot of uncommitted work where there is any."""
        self._files.renew_copies()
        iteration = order.iteration
        label = memory.iteration + 1 if iteration is None else iteration.number
        found = snapshot(
            self._settings.directory, f"{self._settings.name}, iteration {label}", scratch=self._files.home
        )
        if found.trouble and found.trouble != self._trouble:
            self._news.append(found.trouble)
        self._trouble = found.trouble
        checkpoint = _with_work(
            Checkpoint(
                created_at=now,
                iteration=label,
                pause_reason=order.reason,
                max_iterations=max_iterations,
                resume_at=order.resume_at,
                total_cost_usd=memory.cost_usd,
                why=order.why,
            ),
            found,
        )
        if iteration is not None:
            task = CheckpointTask(iteration.task.id, iteration.task.title, iteration.attempt)
            session = iteration.session
            checkpoint = replace(checkpoint, task=task, agent=iteration.agent, session_id=session)
        try:
            self._files.checkpoints.save(checkpoint)
        except OSError as fault:
            self._news.append(f"the checkpoint cannot be saved: {fault}")

    def clear_checkpoint(self) -> None:
        """The task is done."""
        try:
            self._files.checkpoints.clear()
        except OSError as fault:
            self._news.append(f"the checkpoint cannot be removed: {fault}")

    def handoff(self) -> str:
        """What the next agent is told."""
        return self._files.load_handoff().value

    def hand_over(self, note: str) -> None:
        """Leave a note for the next agent, after the last ones that are there; an empty one clears them."""
        before = self.handoff()
        lines = [line for line in before.splitlines() if line]
        if note:
            line = f"- {' '.join(note.split())[:MOST_NOTE_CHARS]}"
            lines = [*lines, line][-MOST_NOTES:]
        text = "".join(f"{line}\n" for line in lines) if note else ""
        if text == before:
            return
        try:
            self._files.save_handoff(text)
        except OSError as fault:
            self._news.append(f"the note for the next agent cannot be saved: {fault}")

    def keep_prompt(self, text: str) -> None:
        """Write down the prompt of the present attempt."""
        try:
            self._files.save_prompt(text)
        except OSError as fault:
            self._news.append(f"the prompt cannot be written down: {fault}")


def _with_work(checkpoint: Checkpoint, found: Snapshot) -> Checkpoint:
    return replace(checkpoint, uncommitted_files=found.files, head_commit=found.head, snapshot_ref=found.ref)


def _gone_on(
    settings: LoopSettings, memory: LoopState, ledger: Ledger, checkpoint: Checkpoint | None, now: Moment
) -> tuple[LoopState, Ledger, Resumed | None]:
    """Memory and tasks as the loop begins with them.

    A person's start counts iterations, costs and failures anew, from the checkpoint where there is one; a
    restart by the Regent goes on counting. Agents that are out until a moment stay out. Who starts a loop
    again that ended at its number of iterations wants as many more.
    """
    began_at = _began_at(settings.environment)
    if began_at is None or began_at != _rounded(memory.began_at):
        memory = LoopState(
            began_at=began_at or now,
            out=tuple(each for each in memory.out if each.until),
            last_agent=memory.last_agent,
            under_way=memory.under_way,
            judged=memory.judged,
        )
        ledger = {id_: _anew(record) for id_, record in ledger.items()}
        if checkpoint is not None:
            cost_usd = checkpoint.total_cost_usd
            iteration = max(checkpoint.iteration - 1, 0)
            is_used_up = 0 < settings.policy.max_iterations <= iteration
            memory = replace(memory, iteration=0 if is_used_up else iteration, cost_usd=cost_usd)
    if checkpoint is None:
        return memory, ledger, None
    task = checkpoint.task
    resumed = Resumed(
        task_id=None if task is None else task.id,
        attempt=0 if task is None else task.attempt,
        agent=checkpoint.agent,
        session=checkpoint.session_id,
        reason=checkpoint.pause_reason,
        why=checkpoint.why,
        resume_at=checkpoint.resume_at,
        saved_at=checkpoint.created_at,
    )
    return memory, ledger, resumed


def _anew(record: TaskRecord) -> TaskRecord:
    return replace(record, failure_count=0, timeout_factor=1.0)


def _rounded(moment: Moment | None) -> Moment | None:
    """A moment as it comes back from a file."""
    return None if moment is None else parse_rfc3339(rfc3339(moment))


def _began_at(environment: Mapping[str, str]) -> Moment | None:
    """When a person started this ralph, by its Regent; None where there is none."""
    try:
        return parse_rfc3339(environment["RALPH_BEGAN_AT"])
    except (KeyError, ValueError):
        return None
