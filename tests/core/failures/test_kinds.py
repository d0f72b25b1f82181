"""Kinds of failure: four classes, a hint each, and whom they count against."""

import pytest

from ralphd.core.failures.kinds import Category, FailureKind, Hint, hint, kind_of, meaning
from ralphd.core.supervision.reports import AttemptFinished

K, C, H = FailureKind, Category, Hint


def test_every_kind_falls_into_one_of_four_classes() -> None:
    assert {meaning(kind).category for kind in FailureKind} == set(Category)
    assert len(Category) == 4


@pytest.mark.parametrize(
    ("kind", "category", "hint"),
    [
        (K.RATE_LIMIT, C.TRANSIENT, H.RETRY_AFTER),
        (K.USAGE_LIMIT, C.USAGE_LIMIT, H.RESUME_FROM_CHECKPOINT),
        (K.TRANSIENT, C.TRANSIENT, H.RETRY_AFTER),
        (K.TIMEOUT, C.TIMEOUT, H.RESUME_FROM_CHECKPOINT),
        (K.STALL, C.TIMEOUT, H.RESUME_FROM_CHECKPOINT),
        (K.AGENT_CRASH, C.TRANSIENT, H.RETRY_AFTER),
        (K.AGENT_INCOMPLETE, C.TRANSIENT, H.RETRY_NOW),
        (K.FATAL, C.FATAL, H.STOP_EXECUTION),
        (K.CONTEXT, C.TRANSIENT, H.RETRY_NOW),
        (K.UNKNOWN, C.TRANSIENT, H.RETRY_AFTER),
    ],
)
def test_each_kind_has_its_class_and_its_hint(kind: FailureKind, category: Category, hint: Hint) -> None:
    assert (meaning(kind).category, meaning(kind).hint) == (category, hint)


def test_limits_outages_and_logins_do_not_count_against_the_task() -> None:
    spared = {kind for kind in FailureKind if not meaning(kind).for_the_task}

    assert spared == {K.RATE_LIMIT, K.USAGE_LIMIT, K.TRANSIENT, K.FATAL}


def test_a_usage_limit_resumes_by_itself_where_its_reset_is_known_and_else_waits_for_the_user() -> None:
    assert hint(FailureKind.USAGE_LIMIT, reset_known=True) is Hint.RESUME_FROM_CHECKPOINT
    assert hint(FailureKind.USAGE_LIMIT, reset_known=False) is Hint.WAIT_FOR_USER


def test_events_and_history_tell_class_and_hint_of_a_failure() -> None:
    failed = AttemptFinished("claude", "failed", kind="fatal").data()

    assert (failed["category"], failed["hint"]) == ("fatal", "StopExecution")


@pytest.mark.parametrize("word", [None, "", "a word of a script's own", "ok"])
def test_a_word_that_is_no_kind_has_neither(word: str | None) -> None:
    told = AttemptFinished("mine", "failed", kind=word).data()

    assert kind_of(word) is None
    assert (told["category"], told["hint"]) == (None, None)
