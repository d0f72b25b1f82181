"""The phases, event by event: what is remembered, ordered and said (L14, L15, 004)."""

from dataclasses import replace

import pytest

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop.phases import (
    UNREVIEWED,
    AgentDone,
    AskAgent,
    NoReview,
    Phase,
    PhasePolicy,
    Phases,
    PhasesOver,
    PhaseStep,
    Reviewed,
    RunReview,
    begin,
    findings_text,
    in_words,
    invoking,
    left_words,
    phase_limit_s,
    phase_prompt,
    step,
    tries_of,
)
from ralphd.core.loop.review import Review, ReviewFinding, dismissed_by

POLICY = PhasePolicy(retry_count=1, phase_3_retry_count=1, has_review=True, max_address_rounds=2)
ONE, TWO = ReviewFinding("R1", "too short", "a.py:3"), ReviewFinding("R2", "too long", "b.py:1")
WELL, CRASH = AgentDone(None), AgentDone(FailureKind.AGENT_CRASH)
BOTH = Reviewed(Review((ONE, TWO)))


def at(phase: Phase, *, tries: int = 0, round_: int = 0) -> Phases:
    """In the middle of an attempt, with one finding left and another one dismissed."""
    return Phases("T", phase, "the plan", round_, (ONE,), (TWO,), tries)


def agent(phase: Phase, attempt: int = 1, most: int = 2) -> AskAgent:
    """The order for an agent."""
    return AskAgent(phase, attempt, most)


WORKED_ON = Phases("T", Phase.IMPLEMENT, "the plan")


# The configuration


def test_without_a_configuration_nothing_is_retried_or_reviewed_and_findings_of_five_rounds_fail() -> None:
    assert PhasePolicy() == PhasePolicy(0, 0, has_review=False, max_address_rounds=5, findings_fail=True)
    assert PhasePolicy().has_review is False


def test_an_attempt_begins_with_its_plan_and_nothing_else() -> None:
    assert begin("T", None, POLICY) == PhaseStep(
        Phases("T", Phase.PLAN, "", 0, (), (), 0), agent(Phase.PLAN), ""
    )
    assert (AgentDone(None).said, AgentDone(None).not_started) == ("", False)
    assert PhaseStep(WORKED_ON, RunReview()).said == ""


@pytest.mark.parametrize(
    ("phase", "tries"),
    [(Phase.PLAN, 4), (Phase.IMPLEMENT, 4), (Phase.TRIAGE, 2), (Phase.ADDRESS, 2)],
)
def test_004_each_phase_has_its_number_of_tries(phase: Phase, tries: int) -> None:
    assert tries_of(phase, PhasePolicy(3, 1)) == tries


@pytest.mark.parametrize(
    ("phase", "told"),
    [
        (Phase.PLAN, "phase 1 (plan)"),
        (Phase.IMPLEMENT, "phase 2 (implement)"),
        (Phase.REVIEW, "the review"),
        (Phase.TRIAGE, "phase 3 (triage)"),
        (Phase.ADDRESS, "phase 3 (address)"),
    ],
)
def test_004_phases_with_an_agent_are_told_with_their_numbers(phase: Phase, told: str) -> None:
    assert in_words(phase) == told


def test_004_an_agent_is_announced_with_its_phase_and_its_try() -> None:
    assert invoking(agent(Phase.TRIAGE, 2, 3)) == "invoking phase 3 (attempt 2/3): triage"


def test_a_phase_without_a_limit_of_its_own_has_what_is_left() -> None:
    assert phase_limit_s(0.0, left_s=30.0) == phase_limit_s(30.0, left_s=0.0) == 30.0
    assert phase_limit_s(0.0, left_s=0.0) == 0.0
    assert phase_limit_s(0.5, left_s=30.0) == phase_limit_s(30.0, left_s=0.5) == 0.5


# Going on


@pytest.mark.parametrize("phase", [Phase.REVIEW, Phase.TRIAGE, Phase.ADDRESS])
def test_where_reviews_are_not_wanted_any_more_the_work_itself_is_gone_on_with(phase: Phase) -> None:
    started = begin("T", at(phase, tries=1), replace(POLICY, has_review=False))
    assert started == PhaseStep(replace(at(phase), phase=Phase.IMPLEMENT), agent(Phase.IMPLEMENT))
    assert begin("T", at(Phase.PLAN), replace(POLICY, has_review=False)).order == agent(Phase.PLAN)


def test_after_a_failed_try_the_next_phase_has_all_of_its_own() -> None:
    assert step(at(Phase.PLAN, tries=1), WELL, POLICY) == PhaseStep(
        replace(at(Phase.IMPLEMENT), plan=""), agent(Phase.IMPLEMENT)
    )
    assert step(at(Phase.IMPLEMENT, tries=1), WELL, POLICY) == PhaseStep(at(Phase.REVIEW), RunReview())
    assert step(at(Phase.ADDRESS, tries=1), WELL, POLICY) == PhaseStep(
        at(Phase.REVIEW, round_=1), RunReview()
    )
    assert step(at(Phase.TRIAGE, tries=1), WELL, POLICY) == PhaseStep(at(Phase.ADDRESS), agent(Phase.ADDRESS))
    reviewed = step(at(Phase.REVIEW, tries=1), Reviewed(Review((ONE,))), POLICY)
    assert reviewed.phases == replace(at(Phase.ADDRESS), dismissed=())
    assert reviewed.order == agent(Phase.ADDRESS)


@pytest.mark.parametrize(
    ("lines", "kept"), [(2000, "x\n" * 2000), (2001, "x\n" * 2000 + "[cut: 1 more line]")]
)
def test_of_a_plan_2000_lines_are_kept(lines: int, kept: str) -> None:
    planned = step(Phases("T"), AgentDone(None, "x\n" * lines), POLICY).phases.plan
    assert planned == kept.rstrip("\n")


def test_of_a_plan_16_000_characters_are_kept() -> None:
    planned = step(Phases("T"), AgentDone(None, ("x" * 1000 + "\n") * 20), POLICY).phases.plan
    assert len(planned) == 16_000


def test_without_a_review_the_attempt_is_over_with_its_work_and_that_is_told_at_the_start() -> None:
    over = step(at(Phase.IMPLEMENT), WELL, replace(POLICY, has_review=False))
    assert over == PhaseStep(WORKED_ON, PhasesOver(), "")
    assert "without [phases] review_command" in UNREVIEWED


# What goes wrong


@pytest.mark.parametrize(
    ("phase", "number"),
    [(Phase.PLAN, 1), (Phase.IMPLEMENT, 2), (Phase.TRIAGE, 3), (Phase.ADDRESS, 3)],
)
def test_004_a_failed_try_is_told_and_counted_and_the_last_one_ends_the_attempt(
    phase: Phase, number: int
) -> None:
    late = AgentDone(FailureKind.TIMEOUT)
    assert step(at(phase), late, POLICY) == PhaseStep(
        at(phase, tries=1), agent(phase, 2), f"phase {number} failed, retrying"
    )
    over = PhasesOver((), failed=True, rounds=0)
    assert step(at(phase, tries=1), late, POLICY) == PhaseStep(
        at(phase, tries=2), over, f"phase {number} failed"
    )
    limited = AgentDone(FailureKind.USAGE_LIMIT)
    assert step(at(phase), limited, POLICY) == PhaseStep(at(phase, tries=1), over, f"phase {number} failed")


def test_004_a_triage_that_crashes_for_the_last_time_dismisses_nothing_and_says_so() -> None:
    said = "phase 3 failed, so that nothing is dismissed"
    triage = at(Phase.TRIAGE, tries=1, round_=1)
    assert step(triage, replace(CRASH, said='{"dismiss": ["R1"]}'), POLICY) == PhaseStep(
        at(Phase.ADDRESS, round_=1), agent(Phase.ADDRESS), said
    )
    last = step(replace(triage, round=2), CRASH, POLICY)
    assert last == PhaseStep(WORKED_ON, PhasesOver((ONE,), failed=True, rounds=2), said)


@pytest.mark.parametrize("fatal", [True, False])
def test_l15_a_review_that_takes_too_long_is_told_and_after_the_second_time_as_good_as_none(
    fatal: bool,
) -> None:
    policy = replace(POLICY, findings_fail=fatal)
    late = Reviewed(Review(trouble="it ran into its time limit of 5 s", timed_out=True))
    said = "no review: it ran into its time limit of 5 s; once more"
    assert step(at(Phase.REVIEW), late, policy) == PhaseStep(at(Phase.REVIEW, tries=1), RunReview(), said)
    ended = step(at(Phase.REVIEW, tries=1), late, policy)
    order = NoReview("it ran into its time limit of 5 s", fatal=fatal)
    assert ended == PhaseStep(at(Phase.REVIEW) if fatal else WORKED_ON, order, "")


# Reviews


def test_l15_a_review_is_told_with_what_it_found() -> None:
    review = replace(at(Phase.REVIEW), dismissed=())
    assert step(review, BOTH, POLICY) == PhaseStep(
        replace(review, phase=Phase.ADDRESS, findings=(ONE, TWO)),
        agent(Phase.ADDRESS),
        "the review has 2 findings: a.py:3: too short; b.py:1: too long",
    )
    assert step(review, Reviewed(Review()), POLICY) == PhaseStep(
        WORKED_ON, PhasesOver(), "the review has no findings"
    )


def test_l15_what_was_dismissed_is_told_by_its_number_and_forgotten_when_it_is_not_found_any_more() -> None:
    review = at(Phase.REVIEW, round_=1)
    assert step(review, BOTH, POLICY) == PhaseStep(
        at(Phase.TRIAGE, round_=1),
        agent(Phase.TRIAGE),
        "the review has 1 finding, besides 1 dismissed: a.py:3: too short",
    )
    assert step(review, Reviewed(Review((TWO,))), POLICY) == PhaseStep(
        WORKED_ON, PhasesOver(rounds=1), "the review has no findings, besides 1 dismissed"
    )
    assert step(review, Reviewed(Review((ONE,))), POLICY).phases.dismissed == ()


def test_l15_without_rounds_what_a_review_finds_is_left_and_told() -> None:
    over = step(replace(at(Phase.REVIEW), dismissed=()), BOTH, replace(POLICY, max_address_rounds=0))
    assert over == PhaseStep(
        WORKED_ON,
        PhasesOver((ONE, TWO), failed=True, rounds=0),
        "the review has 2 findings: a.py:3: too short; b.py:1: too long",
    )
    one = replace(at(Phase.REVIEW), dismissed=())
    assert step(one, BOTH, replace(POLICY, max_address_rounds=1)).order == agent(Phase.ADDRESS)


def test_l15_what_a_triage_dismisses_is_told_and_kept_with_what_was_dismissed_before() -> None:
    other = ReviewFinding("R3", "too wide", "c.py:9")
    triage = replace(at(Phase.TRIAGE, round_=1), findings=(ONE, other))
    assert step(triage, AgentDone(None, '{"dismiss": ["R3"]}'), POLICY) == PhaseStep(
        replace(at(Phase.ADDRESS, round_=1), dismissed=(TWO, other)),
        agent(Phase.ADDRESS),
        "the triage dismisses 1 finding: c.py:9: too wide",
    )
    assert step(triage, AgentDone(None, '{"dismiss": ["R1", "R3"]}'), POLICY) == PhaseStep(
        WORKED_ON,
        PhasesOver(rounds=1),
        "the triage dismisses 2 findings: a.py:3: too short; c.py:9: too wide",
    )


@pytest.mark.parametrize("fails", [True, False])
def test_l15_after_the_last_round_what_a_triage_leaves_is_left(fails: bool) -> None:
    policy = replace(POLICY, findings_fail=fails)
    triage = replace(at(Phase.TRIAGE, round_=2), findings=(ONE, ReviewFinding("R3", "too wide")))
    assert step(triage, AgentDone(None, '{"dismiss": ["R3"]}'), policy) == PhaseStep(
        WORKED_ON, PhasesOver((ONE,), failed=fails, rounds=2), "the triage dismisses 1 finding: too wide"
    )
    assert step(replace(triage, round=1), WELL, policy).order == agent(Phase.ADDRESS)


def test_what_is_left_is_told_in_one_and_in_many() -> None:
    assert left_words(PhasesOver((ONE,), rounds=1)) == "1 finding is left after 1 round: a.py:3: too short"
    assert left_words(PhasesOver((ONE, TWO), rounds=2)) == (
        "2 findings are left after 2 rounds: a.py:3: too short; b.py:1: too long"
    )


# Prompts and answers


def paragraphs(phase: Phase) -> list[str]:
    """The prompt of a phase with two findings, in paragraphs."""
    text = phase_prompt("Do it.\n\n", replace(at(phase), findings=(ONE, TWO)))
    assert text.endswith("\n")
    return text[:-1].split("\n\n")


def test_a_prompt_begins_with_the_users_own_and_its_paragraphs_are_apart() -> None:
    findings = "- [R1] a.py:3: too short\n- [R2] b.py:1: too long"
    plan, triage, address = (paragraphs(phase) for phase in (Phase.PLAN, Phase.TRIAGE, Phase.ADDRESS))
    assert plan[:2] == ["Do it.", "## This phase: plan"]
    assert len(plan) == 3
    assert triage[:2] == ["Do it.", "## This phase: triage"]
    assert (triage[3], len(triage)) == (findings, 5)
    assert address[:2] == ["Do it.", "## This phase: address the findings of a review"]
    assert (address[3], len(address)) == (findings, 4)
    assert paragraphs(Phase.IMPLEMENT)[0::3] == ["Do it.", "the plan"]


def test_a_plan_of_nothing_but_spaces_is_none() -> None:
    assert phase_prompt("Do it.\n", Phases("T", Phase.IMPLEMENT, " \n ")) == "Do it.\n"


def test_findings_that_are_not_shown_are_counted() -> None:
    assert findings_text((ONE,)) == "- [R1] a.py:3: too short"
    long = ReviewFinding("R", "x" * 29_000)
    assert findings_text((long, long, ONE)) == f"{long.whole}\n(and 2 more, for later)"


@pytest.mark.parametrize(("objects", "ids"), [(199, {"R1"}), (200, set())])
def test_the_last_200_beginnings_of_an_object_are_looked_at(objects: int, ids: set[str]) -> None:
    assert dismissed_by('{"dismiss": ["R1"]}' + "{" * objects, (ONE,)) == ids
