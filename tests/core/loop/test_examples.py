"""The loop: which task is next, when an iteration is finished, and when the loop ends (L1, L9 to L14)."""

import pytest

from ralphd.core.failures.classify import Classification
from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop.model import (
    Attempting,
    AttemptOver,
    AwaitingVerdict,
    Began,
    ClearCheckpoint,
    EndLoop,
    Finished,
    FinishIteration,
    Handoff,
    InFlight,
    LoopPolicy,
    LoopState,
    LoopWoke,
    PauseAsked,
    PauseReason,
    PendingRequest,
    Previous,
    ReportAttempt,
    ReportLost,
    SaveCheckpoint,
    StartAttempt,
    StartIteration,
    StopAsked,
    TaskRecord,
    TaskState,
)
from ralphd.core.plan import Plan
from ralphd.core.supervision.model import Next
from tests.core.loop.scenes import START, Play, begun, plan_of, resumed_at

CRASH, INCOMPLETE = FailureKind.AGENT_CRASH, FailureKind.AGENT_INCOMPLETE
TRANSIENT = FailureKind.TRANSIENT


def test_l1_an_iteration_begins_with_a_checkpoint_and_the_first_open_task() -> None:
    play = Play("A", "B")

    kinds = [type(order) for order in play.latest]
    assert kinds == [SaveCheckpoint, StartIteration, StartAttempt]
    assert play.ordered(SaveCheckpoint)[0].reason is PauseReason.ITERATION_BOUNDARY
    assert (play.task, play.agent, play.attempt.iteration.attempt) == ("A", "claude", 1)


def test_l10_when_all_tasks_are_done_the_loop_is() -> None:
    play = Play("A", "B")

    play.succeeds()
    assert play.task == "B"
    play.succeeds()

    assert (play.end.code, play.end.reason) == (0, "complete")
    assert play.loop.ledger["A"].state is TaskState.COMPLETE


def test_us002_the_checkpoint_is_cleared_when_the_task_is_done_and_only_then() -> None:
    play = Play("A", "B")

    play.fails(CRASH)
    assert not play.ordered(ClearCheckpoint, ever=True)
    play.wakes()
    play.succeeds(judged=False)

    assert play.ordered(ClearCheckpoint)


def test_l1_a_task_that_failed_is_tried_again_only_after_all_that_were_not_tried() -> None:
    play = Play("A", "B", policy=LoopPolicy(retries_before_fallback=0, jitter=0.0))

    play.fails(CRASH)
    play.judged()
    assert play.task == "B"
    play.succeeds()

    assert play.task == "A"
    assert play.failures("A") == 1


def test_l1_a_task_that_failed_too_often_is_left_alone_and_told() -> None:
    play = Play("A", policy=LoopPolicy(max_task_failures=2, retries_before_fallback=1, jitter=0.0))

    play.fails(CRASH)
    play.wakes()
    play.fails(CRASH)
    play.judged()
    play.fails(CRASH)
    play.judged()

    assert (play.end.code, play.end.reason) == (1, "tasks_failed")
    assert play.end.why.startswith("the task failed with: ")


def test_l12_a_pause_waits_for_the_iteration_and_ends_with_75_and_a_checkpoint() -> None:
    play = Play("A", "B")

    play.feed(PauseAsked(play.now))
    assert isinstance(play.loop.stage, Attempting)
    play.succeeds()

    assert (play.end.code, play.end.reason) == (75, "user_requested")
    assert play.ordered(SaveCheckpoint)[0].reason is PauseReason.USER_REQUESTED


def test_l12_a_pause_asked_for_by_the_answer_to_a_boundary_counts_as_well() -> None:
    play = Play("A", "B")

    play.succeeds(judged=False)
    play.judged(Next.PAUSE)

    assert play.end.code == 75


def test_a_pause_does_not_begin_another_attempt() -> None:
    play = Play("A")

    play.feed(PauseAsked(play.now))
    play.fails(CRASH)

    assert play.end.code == 75
    assert play.ordered(SaveCheckpoint)[0].iteration is not None


def test_us006_a_stop_during_a_wait_ends_at_once_and_keeps_a_checkpoint() -> None:
    play = Play("A")
    play.fails(FailureKind.RATE_LIMIT)

    play.feed(StopAsked(play.now))

    assert (play.end.code, play.end.reason) == (130, "interrupted")
    assert play.ordered(SaveCheckpoint)[0].reason is PauseReason.INTERRUPTED


def test_a_stop_outweighs_a_pause() -> None:
    play = Play("A", "B")

    play.feed(StopAsked(play.now))
    play.feed(PauseAsked(play.now))

    assert play.loop.request is PendingRequest.STOP


def test_an_attempt_that_was_ended_as_asked_is_no_failure() -> None:
    play = Play("A")

    play.feed(StopAsked(play.now))
    play.feed(
        AttemptOver(play.now, Classification(None, "asked", "ended as requested", asked=True), play.plan)
    )

    assert play.end.code == 130
    assert play.failures("A") == 0


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (LoopPolicy(max_iterations=1), "max_iterations = 1 reached"),
        (LoopPolicy(max_cost_usd=0.5), "$0.60 of $0.50 spent (max_cost_usd)"),
        (LoopPolicy(max_runtime_s=1.0), "1 s of 1 s used (max_runtime_seconds)"),
    ],
)
def test_l10_a_limit_of_the_users_own_ends_the_loop_with_5(policy: LoopPolicy, words: str) -> None:
    play = Play("A", "B", policy=policy)

    play.succeeds(cost_usd=0.6)

    assert (play.end.code, play.end.reason, play.end.why) == (5, "limit", words)


def test_a_cost_limit_counts_in_the_middle_of_an_iteration() -> None:
    play = Play("A", policy=LoopPolicy(max_cost_usd=1.0))

    play.fails(CRASH, cost_usd=1.0)

    assert play.end.code == 5


def test_an_attempt_does_not_outlast_the_runtime() -> None:
    play = Play("A", policy=LoopPolicy(max_runtime_s=100.0))

    assert play.attempt.timeout_s == 100.0


def test_l10_without_a_list_the_promise_is_the_end() -> None:
    play = Play()

    play.succeeds(promised=True)

    assert (play.end.code, play.end.reason) == (0, "complete")


def test_l10_without_a_list_two_iterations_that_commit_nothing_are_the_end() -> None:
    play = Play()

    play.succeeds(commits=0)
    play.succeeds(commits=1)
    play.succeeds(commits=0)
    play.succeeds(commits=0)

    assert (play.end.code, play.end.reason) == (0, "no_progress")
    assert play.loop.memory.iteration == 4


def test_a_list_that_cannot_be_read_at_the_start_is_a_fault_of_the_configuration() -> None:
    play = Play("A", begin=False)

    play.feed(Began(START, Plan("prd.json", fault="prd.json is not JSON: a comma in line 3")))

    assert play.end.code == 78
    assert "line 3" in play.end.why


@pytest.mark.parametrize("found", [None, Plan("prd.json"), Plan("prd.json", fault="prd.json is not JSON")])
def test_a_list_that_an_agent_breaks_counts_as_it_was(found: Plan | None) -> None:
    play = Play("A", "B")

    play.feed(AttemptOver(play.now, Classification(None, "rule", "well"), found))

    assert play.ordered(ReportAttempt)[0].kind is INCOMPLETE
    assert play.loop.plan == plan_of("A", "B")


def test_r9_a_task_whose_commits_were_reverted_is_open_again() -> None:
    play = Play("A", "B")

    play.succeeds(judged=False)
    play.judged(reopened=("A",))

    assert play.task == "A"
    play.succeeds()
    assert play.task == "B"


def test_after_the_end_nothing_is_done_any_more() -> None:
    play = Play("A")
    play.succeeds()

    play.feed(LoopWoke(play.now))

    assert isinstance(play.loop.stage, Finished)
    assert play.latest == ()


def test_an_iteration_is_finished_once_and_told_with_its_outcome() -> None:
    play = Play("A", policy=LoopPolicy(retries_before_fallback=0))

    play.fails(CRASH)

    assert isinstance(play.loop.stage, AwaitingVerdict)
    (finish,) = play.ordered(FinishIteration)
    assert (finish.failed, finish.complete) == (True, False)


# The beginning


def test_l1_an_iteration_saves_its_checkpoint_is_told_and_runs_its_agent() -> None:
    play = begun("A")

    saved, told, start = play.latest
    assert isinstance(told, StartIteration)
    iteration = told.iteration
    assert (iteration.number, iteration.task.id, iteration.agent, iteration.attempt) == (1, "A", "claude", 0)
    assert saved == SaveCheckpoint(PauseReason.ITERATION_BOUNDARY, iteration)
    assert start == StartAttempt(play.attempt.iteration, 600.0, 900.0)
    assert play.attempt.iteration.attempt == 1


def test_a_list_that_cannot_be_used_ends_the_loop_as_a_fault_of_the_configuration() -> None:
    play = Play("A", begin=False)

    play.feed(Began(START, Plan("prd.json", fault="prd.json is not JSON")))

    why = "the task list cannot be used: prd.json is not JSON"
    assert play.latest == (EndLoop(78, "configuration", why),)


def test_the_number_of_a_lost_attempt_is_not_used_again() -> None:
    lost = InFlight(1, 2, "claude", "A", "do A", START - 9.0)

    play = begun("A", memory=LoopState(in_flight=lost), resumed=resumed_at("A", 1))

    assert play.ordered(ReportLost) == [ReportLost(lost)]
    assert play.attempt.iteration.attempt == 3


def test_a_loop_that_ends_at_once_tells_a_lost_attempt_for_the_last_time_too() -> None:
    lost = InFlight(1, 1, "claude", "A", "do A", START - 9.0)

    play = begun("A", done=("A",), memory=LoopState(in_flight=lost))

    assert play.end == EndLoop(0, "complete", "all tasks are done")
    assert play.loop.memory.in_flight is None


def test_at_the_beginning_the_ledger_is_brought_abreast_of_the_list() -> None:
    left = {
        "A": TaskRecord("A", "old title", TaskState.IN_PROGRESS),
        "C": TaskRecord("C", "", TaskState.COMPLETE),
    }

    play = begun("A", "B", "C", done=("B",), ledger=left)

    stands = {id_: (record.title, record.state) for id_, record in play.loop.ledger.items()}
    assert stands == {
        "A": ("do A", TaskState.IN_PROGRESS),  # it is under way again
        "B": ("do B", TaskState.COMPLETE),
        "C": ("do C", TaskState.PENDING),
    }


@pytest.mark.parametrize("reviews", [True, False])
def test_l14_a_ticked_task_whose_review_is_missing_is_open_only_where_there_are_reviews(
    reviews: bool,
) -> None:
    left = {"A": TaskRecord("A", unreviewed=True)}

    play = begun("A", done=("A",), ledger=left, policy=LoopPolicy(reviews=reviews))

    assert isinstance(play.loop.stage, Attempting if reviews else Finished)


@pytest.mark.parametrize("reviews", [True, False])
def test_l14_a_task_that_is_begun_waits_for_a_review_only_where_there_are_reviews(reviews: bool) -> None:
    play = begun("A", policy=LoopPolicy(reviews=reviews))

    assert play.loop.ledger["A"].unreviewed is reviews


# The end of an attempt


def test_an_iteration_that_got_its_task_done_is_told_cleared_and_finished() -> None:
    play = begun("A")

    play.succeeds(judged=False, commits=2)

    assert isinstance(play.loop.stage, AwaitingVerdict)
    iteration = play.loop.stage.iteration
    assert (iteration.number, iteration.attempt, iteration.commits) == (1, 1, 2)
    assert play.latest == (
        ReportAttempt(iteration, None, "rule", "it ended well", "the iteration ends"),
        Handoff(""),
        ClearCheckpoint(),
        FinishIteration(iteration, failed=False, complete=True, summary="done"),
    )
    assert play.loop.stage == AwaitingVerdict(iteration, promised=False)


def test_an_iteration_that_got_another_task_done_leaves_its_own_with_its_failures_and_its_checkpoint() -> (
    None
):
    play = begun("A", "B")
    play.fails(FailureKind.AGENT_INCOMPLETE)
    play.done.add("B")

    play.succeeds(ticks=False, judged=False)

    told, note, finish = play.latest
    assert isinstance(told, ReportAttempt)
    assert note == Handoff("")
    assert isinstance(finish, FinishIteration)
    assert (finish.failed, finish.complete) == (False, False)
    assert finish.summary == "another task was done"
    assert play.failures("A") == 1
    assert play.loop.ledger["A"].state is TaskState.PENDING
    assert play.loop.ledger["B"].state is TaskState.COMPLETE


@pytest.mark.parametrize("promised", [False, True])
def test_without_a_list_the_prompt_is_done_only_by_promise(promised: bool) -> None:
    play = begun()

    play.succeeds(judged=False, promised=promised)

    (finish,) = play.ordered(FinishIteration)
    assert (finish.failed, finish.complete, finish.summary) == (False, promised, "the agent finished")


def test_commits_and_costs_of_all_attempts_of_an_iteration_count() -> None:
    play = begun("A")
    play.fails(FailureKind.AGENT_INCOMPLETE, commits=2, cost_usd=1 / 3)

    play.succeeds(judged=False, commits=1, cost_usd=1.0)

    assert play.ordered(FinishIteration)[0].iteration.commits == 3
    assert [each.iteration.made for each in play.ordered(ReportAttempt, ever=True)] == [2, 1]
    assert play.loop.memory.cost_usd == 1.333333, "sums are kept to a millionth"


@pytest.mark.parametrize(("open_", "words"), [("A", "1 task is"), ("AB", "2 tasks are")])
def test_l10_a_false_promise_is_told_with_the_number_of_open_tasks(open_: str, words: str) -> None:
    play = begun(*open_)

    play.succeeds(ticks=False, promised=True)

    (told,) = play.ordered(ReportAttempt)
    assert (told.kind, told.why) == (
        FailureKind.AGENT_INCOMPLETE,
        f"the agent declared that all is done while {words} open",
    )


@pytest.mark.parametrize("worked", [True, False])
def test_an_attempt_that_was_ended_as_asked_is_told_and_its_session_kept_where_it_had_worked(
    worked: bool,
) -> None:
    play = begun("A")

    asked = Classification(None, "stop", "it was asked to end", asked=True)
    play.feed(AttemptOver(play.now, asked, play.plan, session="s-1", worked=worked))

    told, saved, end = play.latest
    assert isinstance(told, ReportAttempt)
    assert (told.kind, told.rule, told.why) == (None, "stop", "it was asked to end")
    assert told.next == "ended as requested"
    assert isinstance(saved, SaveCheckpoint)
    assert saved.iteration is not None
    assert (saved.reason, saved.iteration.attempt) == (PauseReason.INTERRUPTED, told.iteration.attempt)
    assert saved.iteration.session == ("s-1" if worked else None)
    assert end == EndLoop(130, "interrupted", "stopped as requested")


@pytest.mark.parametrize("kind", [None, CRASH])
def test_l14_where_a_person_has_to_act_first_the_loop_ends_however_the_attempt_did(
    kind: FailureKind | None,
) -> None:
    play = begun("A")
    iteration = play.attempt.iteration

    finding = Classification(kind, "rule", "why")
    play.feed(AttemptOver(play.now, finding, play.plan, halted="the review cannot be run"))

    assert play.latest == (
        SaveCheckpoint(PauseReason.ERROR, iteration, None, "the review cannot be run"),
        ReportAttempt(iteration, kind, "rule", "why", "the loop ends until you act"),
        EndLoop(78, "review", "the review cannot be run"),
    )


# The answer to a boundary


def test_a_task_that_is_in_the_list_only_after_the_boundary_is_done_as_well() -> None:
    play = begun("A")
    play.succeeds(judged=False)

    play.judged_with(plan_of("A", "B", "C", done=("A", "C")))

    assert play.task == "B"
    assert play.loop.ledger["C"].state is TaskState.COMPLETE


def test_a_list_that_is_gone_at_the_boundary_counts_as_it_was() -> None:
    play = begun("A", "B")
    play.succeeds(judged=False)

    play.judged_with(None)

    assert play.task == "B"


def test_l10_a_promise_without_a_list_is_the_end_and_nothing_is_left_to_go_on_from() -> None:
    play = begun()

    play.succeeds(promised=True)

    assert play.latest == (
        ClearCheckpoint(),
        EndLoop(0, "complete", "the agent declared that all is done"),
    )


def test_l10_two_iterations_that_commit_nothing_are_the_end_and_nothing_is_left_to_go_on_from() -> None:
    play = begun()
    play.succeeds(commits=0)

    play.succeeds(commits=0)

    why = "the last 2 iterations succeeded without a commit"
    assert play.latest == (ClearCheckpoint(), EndLoop(0, "no_progress", why))


def test_l3_what_a_turn_left_to_the_next_one_is_told_once() -> None:
    policy = LoopPolicy(agents=("a", "b", "c"), rotates=True)
    play = begun("A", "B", policy=policy)
    play.fails(TRANSIENT, lines=("boom",))
    play.judged()
    assert play.attempt.iteration.previous == Previous(1, "a", TRANSIENT, "a transient failure", ("boom",))
    assert play.loop.shaky == ()

    play.succeeds()

    assert play.attempt.iteration.shaky == ()


# The end


def test_after_the_end_not_even_a_wish_changes_anything() -> None:
    play = begun("A", done=("A",))
    ended = play.loop

    play.feed(PauseAsked(play.now))
    play.feed(StopAsked(play.now))

    assert play.loop == ended
    assert ended.request is PendingRequest.NONE


@pytest.mark.parametrize(("many", "more"), [(2, ""), (3, ""), (4, "; …"), (5, "; …")])
def test_l1_of_tasks_that_failed_differently_three_reasons_are_named(many: int, more: str) -> None:
    ids = "ABCDE"[:many]
    failed = {each: TaskRecord(each, "", TaskState.FAILED, 6, CRASH, f"{each} is hard") for each in ids}

    play = begun(*ids, ledger=failed)

    reasons = "; ".join(f"1 with: {each} is hard" for each in ids[:3])
    why = f"{many} of {many} tasks failed; {reasons}{more}"
    assert play.latest == (EndLoop(1, "tasks_failed", why),)


def test_l1_a_reason_that_all_failed_tasks_share_is_named_once() -> None:
    failed = {each: TaskRecord(each, "", TaskState.FAILED, 6, CRASH, "no disk") for each in "ABC"}

    play = begun(*"ABC", ledger=failed)

    assert play.end.why == "3 of 3 tasks failed, all with: no disk"


def test_l1_of_a_failure_without_words_its_kind_is_told() -> None:
    failed = {"A": TaskRecord("A", "", TaskState.FAILED, 2, CRASH)}

    play = begun("A", ledger=failed, policy=LoopPolicy(max_task_failures=1))

    assert play.end.why == "the task failed with: agent_crash"


def test_us008_a_pause_in_the_answer_to_a_boundary_keeps_no_iteration() -> None:
    play = begun("A", "B")
    play.succeeds(judged=False)

    play.judged(Next.PAUSE)

    why = "paused as requested"
    assert play.latest == (
        SaveCheckpoint(PauseReason.USER_REQUESTED, None, None, why),
        EndLoop(75, "user_requested", why),
    )
