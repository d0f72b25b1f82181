"""What a person sends to the loop: added tasks are done next, and a note is in one prompt."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ralphd.core.failures.classify import Classification
from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop import inbox, tasks
from ralphd.core.loop.inbox import Inbox, Sent
from ralphd.core.loop.model import (
    AttemptOver,
    Began,
    EndLoop,
    FinishIteration,
    Judged,
    Loop,
    LoopState,
    StartAttempt,
    TaskRecord,
    TaskState,
)
from ralphd.core.loop.prompt import prompt
from ralphd.core.plan import Plan, Task, TaskStatus
from ralphd.core.supervision.model import Next
from ralphd.errors import NotFound, RalphdError, UsageError, WrongState
from tests.core.loop.scenes import Play

ADDED = (Task("+1", "Fix the header", TaskStatus.PENDING, added=True),)
LISTED = (Task("A", "a", TaskStatus.PENDING), Task("B", "b", TaskStatus.DONE))
PLAN = Plan("TASKS.md", LISTED, added=ADDED)


def started(play: Play) -> list[str]:
    return [each.iteration.task.id for each in play.ordered(StartAttempt, ever=True)]


def over(plan: Plan | None, *, kind: FailureKind | None = None, **more: Any) -> AttemptOver:
    finding = Classification(kind, "rule", "why")
    return replace(AttemptOver(20.0, finding, plan), **more)


def test_ids_rise_and_are_never_used_again() -> None:
    box = inbox.with_task(inbox.with_note(Inbox(), 1.0, "n"), 2.0, "t")
    box = inbox.with_task(inbox.without(box, 3.0, "+2"), 4.0, "u")

    assert [task.id for task in box.tasks] == ["+3"]
    assert [note.id for note in inbox.without(box, 5.0, "+3").notes] == ["1"]


@pytest.mark.parametrize("named", ["+2", "2", " Fix  src/a.py", "Fix src/a.py"])
def test_an_added_task_is_removed_by_number_or_text(named: str) -> None:
    box = inbox.with_task(inbox.with_note(Inbox(), 1.0, "n"), 2.0, "Fix src/a.py")
    box = inbox.with_task(box, 3.0, "2")

    left = inbox.without(box, 4.0, named)

    assert ([task.id for task in left.tasks], left.notes) == (["+3"], box.notes)


@pytest.mark.parametrize("text", ["", "  \n ", "\x1b[2J", "x" * 201])
def test_an_unfit_task_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        inbox.with_task(Inbox(), 1.0, text)


def test_texts_keep_their_words_and_lose_control_sequences() -> None:
    box = inbox.with_note(inbox.with_task(Inbox(), 1.0, " a\n b\x1b[1m "), 1.0, "one\x1b[2J\n  two  \n")

    assert (box.tasks[0].text, box.notes[0].text) == ("a b", "one\n  two")
    with pytest.raises(UsageError):
        inbox.with_note(box, 1.0, "x" * 4001)


def test_there_is_a_most_of_both_and_only_what_was_added_is_removed() -> None:
    box = Inbox()
    for _ in range(inbox.MOST_NOTES):
        box = inbox.with_note(box, 1.0, "n")
    with pytest.raises(WrongState):
        inbox.with_note(box, 1.0, "n")
    full = replace(box, tasks=inbox.with_task(box, 1.0, "t").tasks * inbox.MOST_TASKS)
    with pytest.raises(WrongState):
        inbox.with_task(full, 1.0, "t")
    with pytest.raises(NotFound):
        inbox.without(box, 1.0, "A")


def test_what_is_kept_of_a_task_and_a_note() -> None:
    box = inbox.with_note(inbox.with_task(Inbox(), 1.0, "t" * 200), 2.0, "n" * 4000)

    assert box == Inbox(2, (Sent("+1", "t" * 200, 1.0),), (Sent("2", "n" * 4000, 2.0),))
    assert inbox.without(box, 3.0, "2") == replace(box, notes=())
    assert (inbox.MOST_TASKS, inbox.MOST_NOTES) == (100, 20)
    assert inbox.plan_tasks(box) == (Task("+1", "t" * 200, TaskStatus.PENDING, added=True),)


@pytest.mark.parametrize(("refused", "text"), [
    (lambda: inbox.with_task(Inbox(), 1.0, " "), "the task is empty"),
    (lambda: inbox.with_note(Inbox(), 1.0, " \n"), "the note is empty"),
    (lambda: inbox.with_task(Inbox(), 1.0, "t" * 201),
     "the task is longer than 200 characters\n"
     "  write the rest to a file of the repository, and name the file"),
    (lambda: inbox.with_note(Inbox(notes=(Sent("1", "n", 1.0),) * 20), 1.0, "n"),
     "there are 20 added notes already\n  try: ralphctl tasks remove ID"),
    (lambda: inbox.without(Inbox(), 1.0, "A" * 201),
     f"no added task '{'A' * 200}'\n  only added tasks and pending notes can be removed; "
     "other tasks are in your own task list\n  try: ralphctl tasks"),
])  # fmt: skip
def test_a_refusal_says_why_and_what_to_do(refused: Callable[[], Inbox], text: str) -> None:
    with pytest.raises(RalphdError) as caught:
        refused()

    assert str(caught.value) == text


def test_a_note_is_unread_until_an_attempt_has_it() -> None:
    notes = inbox.with_note(inbox.with_note(Inbox(), 1.0, "a"), 9.0, "b").notes

    assert [note.text for note in inbox.unread(notes, 0)] == ["a", "b"]
    assert [note.text for note in inbox.unread(notes, 0, taken_at=5.0)] == ["b"]
    assert [note.text for note in inbox.unread(notes, 0, taken_at=1.0)] == ["b"]
    assert [note.text for note in inbox.unread(notes, 1)] == ["b"]


def test_an_added_task_is_done_next_and_only_the_ledger_says_that_it_is_done() -> None:
    play = Play(begin=False)
    play.feed(Began(10.0, PLAN))
    assert started(play) == ["+1"]

    play.feed(over(PLAN, commits=1))
    (finished,) = play.ordered(FinishIteration)
    assert (finished.complete, finished.summary) == (True, "done")
    play.feed(Judged(21.0, Next.CONTINUE, PLAN))

    assert started(play) == ["+1", "A"]
    assert play.loop.ledger["+1"].state is TaskState.COMPLETE
    assert [task.id for task in tasks.open_tasks(PLAN, play.loop.ledger)] == ["A"]


@pytest.mark.parametrize(
    ("more", "is_done"), [({}, False), ({"commits": 1}, True), ({"promised": True}, True)]
)
def test_it_is_done_by_a_commit_or_by_the_agents_word(more: dict[str, Any], is_done: bool) -> None:
    play = Play(begin=False)
    play.feed(Began(10.0, PLAN))
    play.feed(over(PLAN, **more))

    assert bool(play.ordered(FinishIteration)) is is_done
    assert play.loop.ledger["+1"].failure_count == (0 if is_done else 1)


def test_an_added_task_counts_among_all_of_which_some_failed() -> None:
    kind = FailureKind.AGENT_CRASH
    play = Play(begin=False)
    play.loop = Loop(
        LoopState(), {each: TaskRecord(each, "", TaskState.FAILED, 6, kind, "why") for each in ("A", "+1")}
    )
    play.feed(Began(10.0, PLAN))

    assert play.ordered(EndLoop)[0].why == "2 of 3 tasks failed, all with: why"


def test_a_loop_without_a_list_does_not_end_before_an_added_task() -> None:
    play, plan = Play(begin=False), Plan("", added=ADDED)
    play.feed(Began(10.0, None))
    play.feed(over(None, promised=True))
    play.feed(Judged(21.0, Next.CONTINUE, plan))  # added while the last iteration ran
    assert started(play) == ["prompt", "+1"]

    play.feed(over(plan, promised=True))
    play.feed(Judged(31.0, Next.CONTINUE, plan))
    assert started(play)[2:] == ["prompt"], "what it promised was the added task"
    assert not play.ordered(EndLoop)


def test_a_broken_list_takes_no_added_task_away() -> None:
    broken = Plan("TASKS.md", fault="TASKS.md is larger than 1 MiB", added=ADDED)

    assert tasks.latest(PLAN, broken) == PLAN
    assert tasks.latest(PLAN, None) == replace(PLAN, added=())
    ledger = tasks.sync_with_plan({}, PLAN)
    assert tasks.initial_plan(Plan("", added=ADDED), "TASKS.md", ledger) == PLAN


@pytest.mark.parametrize(("kind", "worked", "read"), [
    (None, False, 7),
    (FailureKind.AGENT_CRASH, False, 7),
    (FailureKind.RATE_LIMIT, True, 7),
    (FailureKind.RATE_LIMIT, False, 0),
    (FailureKind.USAGE_LIMIT, False, 0),
    (FailureKind.TRANSIENT, False, 0),
])  # fmt: skip
def test_an_agent_that_could_not_work_has_not_read_a_note(
    kind: FailureKind | None, worked: bool, read: int
) -> None:
    play = Play(begin=False)
    play.feed(Began(10.0, PLAN))
    play.feed(over(PLAN, kind=kind, worked=worked, notes_read=7))

    assert play.loop.memory.notes_read == read


def test_the_prompt_has_the_notes_and_says_where_an_added_task_is() -> None:
    text = prompt("Do.", task=ADDED[0], plan=PLAN, notes=["Use the new API\nand be brief", "again"])

    assert "## Task\n\nFix the header\n\nA person added this task; no file lists it." in text
    assert "## Note from the person who runs this loop\n\nUse the new API\nand be brief\n\nagain" in text
    assert "## Note" not in prompt("Do.", task=ADDED[0], plan=PLAN)
