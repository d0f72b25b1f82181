"""The phases of an attempt as a machine: what follows what, how often, and that it ends (L14, L15, 004)."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop.phases import (
    RETRIED,
    AgentDone,
    AskAgent,
    NoReview,
    Phase,
    PhaseOrder,
    PhasePolicy,
    Phases,
    PhasesOver,
    PhaseStep,
    Reviewed,
    RunReview,
    begin,
    findings_text,
    invoking,
    left_words,
    phase_limit_s,
    phase_prompt,
    step,
)
from ralphd.core.loop.review import Review, ReviewFinding, dismissed_by

POLICY = PhasePolicy(has_review=True)
ONE, TWO = ReviewFinding("R1", "too short", "a.py:3"), ReviewFinding("R2", "too long", "b.py:1")
FOUND, CLEAN = Reviewed(Review((ONE, TWO))), Reviewed(Review())
WELL, CRASH = AgentDone(None, "done"), AgentDone(FailureKind.AGENT_CRASH)
TIMEOUT = AgentDone(FailureKind.TIMEOUT)
NO_TIME = Reviewed(Review(trouble="it ran into its time limit", timed_out=True))
BOTH = AgentDone(None, '{"dismiss": ["R1", "R2"]}')


def after(
    *events: AgentDone | Reviewed, policy: PhasePolicy = POLICY, saved: Phases | None = None
) -> PhaseStep:
    """Where an attempt at task T is after these."""
    at = begin("T", saved, policy)
    for event in events:
        at = step(at.phases, event, policy)
    return at


def asks(phase: Phase, attempt: int = 1, most: int = 1) -> PhaseOrder:
    """The order for an agent."""
    return AskAgent(phase, attempt, most)


def test_l14_an_attempt_plans_implements_is_reviewed_and_addresses() -> None:
    assert after().order == asks(Phase.PLAN)
    assert after(WELL).order == asks(Phase.IMPLEMENT)
    assert after(WELL, WELL).order == RunReview()
    assert after(WELL, WELL, CLEAN).order == PhasesOver()
    assert after(WELL, WELL, FOUND).order == asks(Phase.ADDRESS)
    assert after(WELL, WELL, FOUND, WELL).order == RunReview()
    assert after(WELL, WELL, FOUND, WELL, CLEAN).order == PhasesOver(rounds=1)


def test_without_a_review_command_the_work_is_the_end() -> None:
    policy = replace(POLICY, has_review=False)
    assert after(WELL, WELL, policy=policy).order == PhasesOver()
    assert after(policy=policy, saved=Phases("T", Phase.ADDRESS, "plan")).order == asks(Phase.IMPLEMENT)


@pytest.mark.parametrize(("asked", "most"), [(0, 1), (1, 2), (2, 3), (3, 3), (10**9, 3)])
def test_004_address_and_triage_are_tried_again_as_often_as_asked_and_twice_at_most(
    asked: int, most: int
) -> None:
    policy = replace(POLICY, phase_3_retry_count=asked)
    for until in ((WELL, WELL, FOUND), (WELL, WELL, FOUND, WELL, FOUND)):
        for failures in range(most):
            at = after(*until, *[CRASH, TIMEOUT, CRASH][:failures], policy=policy)
            assert isinstance(at.order, AskAgent)
            assert (at.order.attempt, at.order.most) == (failures + 1, most)
            assert invoking(at.order).startswith(f"invoking phase 3 (attempt {failures + 1}/{most})")
            assert at.said == "phase 3 failed, retrying" or not failures
        assert after(*until, *[TIMEOUT] * most, policy=policy).order == PhasesOver(failed=True, rounds=0)


def test_004_the_count_of_phase_3_changes_nothing_for_plan_and_implement_and_the_other_way_round() -> None:
    policy = replace(POLICY, phase_3_retry_count=2)
    assert after(CRASH, policy=policy).order == PhasesOver(failed=True)
    assert after(WELL, CRASH, policy=policy).order == PhasesOver(failed=True)
    policy = replace(POLICY, retry_count=7)
    assert after(*[CRASH] * 7, policy=policy).order == asks(Phase.PLAN, 8, 8)
    assert after(WELL, TIMEOUT, policy=policy).order == asks(Phase.IMPLEMENT, 2, 8)
    assert after(WELL, WELL, FOUND, CRASH, policy=policy).order == PhasesOver(failed=True)


@pytest.mark.parametrize("kind", list(FailureKind))
def test_004_time_outs_and_exit_codes_are_tried_again_and_limits_logins_and_what_never_began_are_not(
    kind: FailureKind,
) -> None:
    policy = replace(POLICY, retry_count=1)
    again = kind in RETRIED
    limits = (
        FailureKind.RATE_LIMIT,
        FailureKind.USAGE_LIMIT,
        FailureKind.FATAL,
        FailureKind.AGENT_INCOMPLETE,
    )
    assert again is (kind not in limits)
    assert isinstance(after(AgentDone(kind), policy=policy).order, AskAgent) is again
    assert after(AgentDone(kind, not_started=True), policy=policy).order == PhasesOver(failed=True)


def test_004_after_its_last_try_a_late_triage_fails_and_one_that_crashed_dismisses_nothing() -> None:
    until = (WELL, WELL, FOUND, WELL, FOUND)
    assert after(*until, TIMEOUT).order == PhasesOver(failed=True)
    assert after(*until, AgentDone(FailureKind.STALL)).order == PhasesOver(failed=True)
    at = after(*until, CRASH)
    assert (at.order, at.phases.findings) == (asks(Phase.ADDRESS), (ONE, TWO))


def test_l15_what_a_triage_dismisses_is_not_found_again_and_its_namesake_is() -> None:
    at = after(WELL, WELL, FOUND, WELL, FOUND, AgentDone(None, '{"dismiss": ["R1"]}'))
    assert (at.order, at.phases.findings) == (asks(Phase.ADDRESS), (TWO,))
    at = step(at.phases, WELL, POLICY)
    assert step(at.phases, Reviewed(Review((ONE,))), POLICY).order == PhasesOver(rounds=2)
    other = ReviewFinding("R1", "something else")
    assert step(at.phases, Reviewed(Review((other,))), POLICY).order == asks(Phase.TRIAGE)
    assert after(WELL, WELL, FOUND, WELL, FOUND, BOTH).order == PhasesOver(rounds=1)


@pytest.mark.parametrize("fails", [True, False])
def test_l15_what_is_left_after_the_last_round_fails_the_attempt_or_is_a_warning(fails: bool) -> None:
    policy = replace(POLICY, max_address_rounds=1, findings_fail=fails)
    at = after(AgentDone(None, "the plan"), WELL, FOUND, WELL, FOUND, WELL, policy=policy)
    assert at.order == PhasesOver((ONE, TWO), failed=fails, rounds=1)
    assert left_words(at.order) == "2 findings are left after 1 round: a.py:3: too short; b.py:1: too long"
    assert at.phases == Phases("T", Phase.IMPLEMENT, "the plan")
    policy = replace(policy, max_address_rounds=0)
    assert after(WELL, WELL, FOUND, policy=policy).order == PhasesOver((ONE, TWO), failed=fails)


def test_l15_a_review_that_takes_too_long_is_made_once_more_and_one_that_is_not_there_is_not() -> None:
    assert after(WELL, WELL, NO_TIME).order == RunReview()
    assert after(WELL, WELL, NO_TIME, FOUND).order == asks(Phase.ADDRESS)
    assert after(WELL, WELL, NO_TIME, NO_TIME).order == NoReview("it ran into its time limit", fatal=True)
    missing = Reviewed(Review(trouble="it was not found"))
    at = after(WELL, WELL, missing)
    assert (at.order, at.phases.phase) == (NoReview("it was not found", fatal=True), Phase.REVIEW)
    at = after(WELL, WELL, missing, policy=replace(POLICY, findings_fail=False))
    assert (at.order, at.phases.phase) == (NoReview("it was not found", fatal=False), Phase.IMPLEMENT)


@pytest.mark.parametrize("phase", list(Phase))
def test_l14_the_next_attempt_goes_on_where_the_last_one_ended_and_another_task_begins_anew(
    phase: Phase,
) -> None:
    saved = Phases("T", phase, "the plan", 1, (ONE,), (TWO,), tries=3)
    at = after(saved=saved)
    assert at.phases == replace(saved, tries=0)
    assert at.order == (RunReview() if phase is Phase.REVIEW else asks(phase))
    assert begin("U", saved, POLICY).phases == Phases("U")


def test_a_plan_is_kept_as_a_prompt_can_hold_it() -> None:
    plan = after(AgentDone(None, "\x1b[31mfirst\x00\n\n  then \ud800that\n" + "x\n" * 20_000)).phases.plan
    assert plan.startswith("first\n\n  then that\n")
    assert len(plan) <= 16_000
    assert plan.isascii()


@pytest.mark.parametrize(
    ("answer", "ids"),
    [
        ("", set()),
        ("I think that all of it is fine.", set()),
        ("NOTHING", {"R1", "R2"}),
        ("It is by design.\n**NOTHING**.\n", {"R1", "R2"}),
        ("NOTHING of that is to be dismissed", set()),
        ('{"dismiss": []}\nNOTHING', set()),
        ('{"dismiss": ["R1", "R9", 4, null]}', {"R1"}),
        ('Here:\n```json\n{"why": {"a": 1}, "dismiss": ["R2"]}\n```\nso {that} is it', {"R2"}),
        ('{"dismiss": ["R1"]} no, rather {"dismiss": ["R2"]}', {"R2"}),
        ('{"dismiss": "R1"}', set()),
        ('{"dismiss": ["R1"', set()),
        ("{" * 50_000, set()),
        ('{"a":' * 50_000, set()),
    ],
)
def test_l15_only_what_is_clearly_dismissed_is_dismissed(answer: str, ids: set[str]) -> None:
    assert dismissed_by(answer, (ONE, TWO)) == ids


def test_numbers_as_ids_are_dismissed_too() -> None:
    assert dismissed_by('{"dismiss": [7]}', (ReviewFinding("7", "text"),)) == {"7"}


def test_l15_a_triage_dismisses_only_what_it_was_shown() -> None:
    many = tuple(ReviewFinding(str(n), "x" * 2000) for n in range(20))
    at = Phases("T", Phase.TRIAGE, findings=many)

    assert findings_text(many).endswith("\n(and 6 more, for later)")
    assert step(at, AgentDone(None, "NOTHING"), POLICY).phases.findings == many[14:]
    (huge,) = (ReviewFinding("1", "x" * 40_000),)
    assert findings_text((huge,)) == huge.whole


def test_a_phase_has_no_more_time_than_is_left_of_the_attempt() -> None:
    assert phase_limit_s(600, left_s=900) == 600
    assert phase_limit_s(600, left_s=20) == 20
    assert phase_limit_s(0, left_s=20) == 20
    assert phase_limit_s(600, left_s=0) == 600
    assert phase_limit_s(0, left_s=0) == 0


def test_the_prompts_say_which_phase_it_is_and_hold_what_it_needs() -> None:
    at = Phases("T", Phase.PLAN)
    assert "change no file" in phase_prompt("Do it.\n", at)
    assert phase_prompt("Do it.\n", replace(at, phase=Phase.IMPLEMENT)) == "Do it.\n"
    assert phase_prompt("Do it.\n", replace(at, phase=Phase.IMPLEMENT, plan="first this")).endswith(
        "first this\n"
    )
    for phase in (Phase.ADDRESS, Phase.TRIAGE):
        text = phase_prompt("Do it.\n", replace(at, phase=phase, findings=(ONE, TWO)))
        assert text.startswith("Do it.\n\n## This phase: ")
        assert "- [R1] a.py:3: too short\n- [R2] b.py:1: too long" in text
    triage = phase_prompt("", replace(at, phase=Phase.TRIAGE, findings=(ONE,)))
    assert dismissed_by(triage, (ONE,)) == set()  # an agent that says its prompt again decides nothing


KINDS = st.sampled_from(FailureKind)
AGENTS = st.builds(AgentDone, st.none() | KINDS, st.sampled_from(["", "NOTHING", BOTH.said]), st.booleans())
REVIEWS = st.builds(
    Reviewed,
    st.builds(Review, st.lists(st.sampled_from((ONE, TWO)), unique=True).map(tuple))
    | st.builds(Review, trouble=st.just("no"), timed_out=st.booleans()),
)
POLICIES = st.builds(
    PhasePolicy, st.integers(0, 3), st.integers(0, 5), st.booleans(), st.integers(0, 3), st.booleans()
)


@settings(max_examples=60)
@given(st.data(), POLICIES, st.sampled_from(Phase), st.integers(0, 5))
def test_whatever_happens_an_attempt_ends_and_every_agent_is_asked_within_its_bounds(
    data: st.DataObject, policy: PhasePolicy, phase: Phase, round_: int
) -> None:
    at = begin("T", data.draw(st.none() | st.just(Phases("T", phase, "plan", round_, (ONE,)))), policy)
    most = 2 * (1 + policy.retry_count) + (1 + policy.max_address_rounds) * (2 * (1 + 2) + 2)
    for _ in range(most + 2):
        match at.order:
            case AskAgent(phase=asked, attempt=attempt, most=tries):
                assert (asked, attempt) == (at.phases.phase, at.phases.tries + 1)
                assert attempt <= tries
                at = step(at.phases, data.draw(AGENTS), policy)
            case RunReview():
                assert policy.has_review
                at = step(at.phases, data.draw(REVIEWS), policy)
            case PhasesOver() | NoReview():
                break
        assert at.phases.task_id == "T"
        assert at.phases.round <= max(policy.max_address_rounds, round_ + 1)
    assert isinstance(at.order, PhasesOver | NoReview)
