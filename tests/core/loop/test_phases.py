"""The phases of an attempt as a machine: what follows what, how often, and that it ends (L14, L15, 004)."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop.phases import (
    RETRIED,
    UNREVIEWED,
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
    in_words,
    invoking,
    left_words,
    phase_limit_s,
    phase_prompt,
    step,
    tries_of,
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


def test_without_a_review_the_work_is_the_end() -> None:
    policy = replace(POLICY, has_review=False)
    assert after(WELL, WELL, policy=policy).order == PhasesOver()
    assert after(policy=policy, saved=Phases("T", Phase.ADDRESS, "plan")).order == asks(Phase.IMPLEMENT)


@pytest.mark.parametrize(("asked", "most"), [(0, 1), (1, 2), (2, 3), (3, 3), (10**9, 3)])
def test_address_and_triage_are_retried_twice_at_most(asked: int, most: int) -> None:
    policy = replace(POLICY, phase_3_retry_count=asked)
    for until in ((WELL, WELL, FOUND), (WELL, WELL, FOUND, WELL, FOUND)):
        for failures in range(most):
            at = after(*until, *[CRASH, TIMEOUT, CRASH][:failures], policy=policy)
            assert isinstance(at.order, AskAgent)
            assert (at.order.attempt, at.order.most) == (failures + 1, most)
            assert invoking(at.order).startswith(f"invoking phase 3 (attempt {failures + 1}/{most})")
            assert at.message == "phase 3 failed, retrying" or not failures
        assert after(*until, *[TIMEOUT] * most, policy=policy).order == PhasesOver(failed=True, rounds=0)


def test_retry_counts_of_phases_are_separate() -> None:
    policy = replace(POLICY, phase_3_retry_count=2)
    assert after(CRASH, policy=policy).order == PhasesOver(failed=True)
    assert after(WELL, CRASH, policy=policy).order == PhasesOver(failed=True)
    policy = replace(POLICY, phase_retry_count=7)
    assert after(*[CRASH] * 7, policy=policy).order == asks(Phase.PLAN, 8, 8)
    assert after(WELL, TIMEOUT, policy=policy).order == asks(Phase.IMPLEMENT, 2, 8)
    assert after(WELL, WELL, FOUND, CRASH, policy=policy).order == PhasesOver(failed=True)


@pytest.mark.parametrize("kind", list(FailureKind))
def test_timeouts_are_retried_and_limits_are_not(
    kind: FailureKind,
) -> None:
    policy = replace(POLICY, phase_retry_count=1)
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


def test_the_last_triage_fails_or_dismisses_nothing() -> None:
    until = (WELL, WELL, FOUND, WELL, FOUND)
    assert after(*until, TIMEOUT).order == PhasesOver(failed=True)
    assert after(*until, AgentDone(FailureKind.STALL)).order == PhasesOver(failed=True)
    at = after(*until, CRASH)
    assert (at.order, at.phases.findings) == (asks(Phase.ADDRESS), (ONE, TWO))


def test_l15_dismissed_findings_are_not_found_again() -> None:
    at = after(WELL, WELL, FOUND, WELL, FOUND, AgentDone(None, '{"dismiss": ["R1"]}'))
    assert (at.order, at.phases.findings) == (asks(Phase.ADDRESS), (TWO,))
    at = step(at.phases, WELL, POLICY)
    assert step(at.phases, Reviewed(Review((ONE,))), POLICY).order == PhasesOver(rounds=2)
    other = ReviewFinding("R1", "something else")
    assert step(at.phases, Reviewed(Review((other,))), POLICY).order == asks(Phase.TRIAGE)
    assert after(WELL, WELL, FOUND, WELL, FOUND, BOTH).order == PhasesOver(rounds=1)


@pytest.mark.parametrize("fails", [True, False])
def test_l15_leftovers_of_the_last_round_fail_or_warn(fails: bool) -> None:
    policy = replace(POLICY, max_address_rounds=1, findings_fail=fails)
    at = after(AgentDone(None, "the plan"), WELL, FOUND, WELL, FOUND, WELL, policy=policy)
    assert at.order == PhasesOver((ONE, TWO), failed=fails, rounds=1)
    assert left_words(at.order) == "2 findings are left after 1 round: a.py:3: too short; b.py:1: too long"
    assert at.phases == Phases("T", Phase.IMPLEMENT, "the plan")
    policy = replace(policy, max_address_rounds=0)
    assert after(WELL, WELL, FOUND, policy=policy).order == PhasesOver((ONE, TWO), failed=fails)


def test_l15_a_review_that_timed_out_is_repeated_once() -> None:
    assert after(WELL, WELL, NO_TIME).order == RunReview()
    assert after(WELL, WELL, NO_TIME, FOUND).order == asks(Phase.ADDRESS)
    assert after(WELL, WELL, NO_TIME, NO_TIME).order == NoReview("it ran into its time limit", fatal=True)
    missing = Reviewed(Review(trouble="it was not found"))
    at = after(WELL, WELL, missing)
    assert (at.order, at.phases.phase) == (NoReview("it was not found", fatal=True), Phase.REVIEW)
    at = after(WELL, WELL, missing, policy=replace(POLICY, findings_fail=False))
    assert (at.order, at.phases.phase) == (NoReview("it was not found", fatal=False), Phase.IMPLEMENT)


@pytest.mark.parametrize("phase", list(Phase))
def test_l14_an_attempt_resumes_where_the_last_ended(
    phase: Phase,
) -> None:
    saved = Phases("T", phase, "the plan", 1, (ONE,), (TWO,), tries=3)
    at = after(saved=saved)
    assert at.phases == replace(saved, tries=0)
    assert at.order == (RunReview() if phase is Phase.REVIEW else asks(phase))
    assert begin("U", saved, POLICY).phases == Phases("U")


def test_a_kept_plan_is_bounded() -> None:
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


def test_a_phase_gets_at_most_the_remaining_time() -> None:
    assert phase_limit_s(600, left_s=900) == 600
    assert phase_limit_s(600, left_s=20) == 20
    assert phase_limit_s(0, left_s=20) == 20
    assert phase_limit_s(600, left_s=0) == 600
    assert phase_limit_s(0, left_s=0) == 0


def test_prompts_name_their_phase_and_its_input() -> None:
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
AGENTS = st.builds(
    AgentDone, st.none() | KINDS, st.sampled_from(["", "NOTHING", BOTH.message]), st.booleans()
)
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
def test_every_attempt_ends_within_its_bounds(
    data: st.DataObject, policy: PhasePolicy, phase: Phase, round_: int
) -> None:
    at = begin("T", data.draw(st.none() | st.just(Phases("T", phase, "plan", round_, (ONE,)))), policy)
    most = 2 * (1 + policy.phase_retry_count) + (1 + policy.max_address_rounds) * (2 * (1 + 2) + 2)
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


RETRY = PhasePolicy(phase_retry_count=1, phase_3_retry_count=1, has_review=True, max_address_rounds=2)
QUIET = AgentDone(None)


def at(phase: Phase, *, tries: int = 0, round_: int = 0) -> Phases:
    """In the middle of an attempt, with one finding left and another one dismissed."""
    return Phases("T", phase, "the plan", round_, (ONE,), (TWO,), tries)


def agent(phase: Phase, attempt: int = 1, most: int = 2) -> AskAgent:
    """The order for an agent."""
    return AskAgent(phase, attempt, most)


WORKED_ON = Phases("T", Phase.IMPLEMENT, "the plan")


# The configuration


def test_without_configuration_there_are_no_retries() -> None:
    assert PhasePolicy() == PhasePolicy(0, 0, has_review=False, max_address_rounds=5, findings_fail=True)
    assert PhasePolicy().has_review is False


def test_an_attempt_begins_with_its_plan() -> None:
    assert begin("T", None, RETRY) == PhaseStep(
        Phases("T", Phase.PLAN, "", 0, (), (), 0), agent(Phase.PLAN), ""
    )
    assert (AgentDone(None).message, AgentDone(None).not_started) == ("", False)
    assert PhaseStep(WORKED_ON, RunReview()).message == ""


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
def test_phases_are_announced_with_their_numbers(phase: Phase, told: str) -> None:
    assert in_words(phase) == told


def test_an_agent_is_announced_with_phase_and_try() -> None:
    assert invoking(agent(Phase.TRIAGE, 2, 3)) == "invoking phase 3 (attempt 2/3): triage"


def test_a_phase_without_a_limit_gets_the_rest() -> None:
    assert phase_limit_s(0.0, left_s=30.0) == phase_limit_s(30.0, left_s=0.0) == 30.0
    assert phase_limit_s(0.0, left_s=0.0) == 0.0
    assert phase_limit_s(0.5, left_s=30.0) == phase_limit_s(30.0, left_s=0.5) == 0.5


# Going on


@pytest.mark.parametrize("phase", [Phase.REVIEW, Phase.TRIAGE, Phase.ADDRESS])
def test_without_reviews_the_work_continues(phase: Phase) -> None:
    started = begin("T", at(phase, tries=1), replace(RETRY, has_review=False))
    assert started == PhaseStep(replace(at(phase), phase=Phase.IMPLEMENT), agent(Phase.IMPLEMENT))
    assert begin("T", at(Phase.PLAN), replace(RETRY, has_review=False)).order == agent(Phase.PLAN)


def test_the_next_phase_has_its_own_tries() -> None:
    assert step(at(Phase.PLAN, tries=1), QUIET, RETRY) == PhaseStep(
        replace(at(Phase.IMPLEMENT), plan=""), agent(Phase.IMPLEMENT)
    )
    assert step(at(Phase.IMPLEMENT, tries=1), QUIET, RETRY) == PhaseStep(at(Phase.REVIEW), RunReview())
    assert step(at(Phase.ADDRESS, tries=1), QUIET, RETRY) == PhaseStep(
        at(Phase.REVIEW, round_=1), RunReview()
    )
    assert step(at(Phase.TRIAGE, tries=1), QUIET, RETRY) == PhaseStep(at(Phase.ADDRESS), agent(Phase.ADDRESS))
    reviewed = step(at(Phase.REVIEW, tries=1), Reviewed(Review((ONE,))), RETRY)
    assert reviewed.phases == replace(at(Phase.ADDRESS), dismissed=())
    assert reviewed.order == agent(Phase.ADDRESS)


@pytest.mark.parametrize(
    ("lines", "kept"), [(2000, "x\n" * 2000), (2001, "x\n" * 2000 + "[cut: 1 more line]")]
)
def test_of_a_plan_2000_lines_are_kept(lines: int, kept: str) -> None:
    planned = step(Phases("T"), AgentDone(None, "x\n" * lines), RETRY).phases.plan
    assert planned == kept.rstrip("\n")


def test_of_a_plan_16_000_characters_are_kept() -> None:
    planned = step(Phases("T"), AgentDone(None, ("x" * 1000 + "\n") * 20), RETRY).phases.plan
    assert len(planned) == 16_000


def test_an_attempt_without_review_is_announced_so() -> None:
    over = step(at(Phase.IMPLEMENT), QUIET, replace(RETRY, has_review=False))
    assert over == PhaseStep(WORKED_ON, PhasesOver(), "")
    assert "without [phases] review_command" in UNREVIEWED


# What goes wrong


@pytest.mark.parametrize(
    ("phase", "number"),
    [(Phase.PLAN, 1), (Phase.IMPLEMENT, 2), (Phase.TRIAGE, 3), (Phase.ADDRESS, 3)],
)
def test_a_failed_last_try_ends_the_attempt(phase: Phase, number: int) -> None:
    late = AgentDone(FailureKind.TIMEOUT)
    assert step(at(phase), late, RETRY) == PhaseStep(
        replace(at(phase, tries=1), timeout_factor=1.5), agent(phase, 2), f"phase {number} failed, retrying"
    )
    over = PhasesOver((), failed=True, rounds=0)
    assert step(at(phase, tries=1), late, RETRY) == PhaseStep(
        at(phase, tries=2), over, f"phase {number} failed"
    )
    limited = AgentDone(FailureKind.USAGE_LIMIT)
    assert step(at(phase), limited, RETRY) == PhaseStep(at(phase, tries=1), over, f"phase {number} failed")


def test_a_crashed_last_triage_dismisses_nothing() -> None:
    said = "phase 3 failed, so that nothing is dismissed"
    triage = at(Phase.TRIAGE, tries=1, round_=1)
    assert step(triage, replace(CRASH, message='{"dismiss": ["R1"]}'), RETRY) == PhaseStep(
        at(Phase.ADDRESS, round_=1), agent(Phase.ADDRESS), said
    )
    last = step(replace(triage, round=2), CRASH, RETRY)
    assert last == PhaseStep(WORKED_ON, PhasesOver((ONE,), failed=True, rounds=2), said)


@pytest.mark.parametrize("fatal", [True, False])
def test_l15_a_second_review_timeout_means_no_review(
    fatal: bool,
) -> None:
    policy = replace(RETRY, findings_fail=fatal)
    late = Reviewed(Review(trouble="it ran into its time limit of 5 s", timed_out=True))
    said = "no review: it ran into its time limit of 5 s; once more"
    again = replace(at(Phase.REVIEW, tries=1), timeout_factor=1.5)
    assert step(at(Phase.REVIEW), late, policy) == PhaseStep(again, RunReview(), said)
    ended = step(at(Phase.REVIEW, tries=1), late, policy)
    order = NoReview("it ran into its time limit of 5 s", fatal=fatal)
    assert ended == PhaseStep(at(Phase.REVIEW) if fatal else WORKED_ON, order, "")


# Reviews


def test_l15_a_review_is_told_with_what_it_found() -> None:
    review = replace(at(Phase.REVIEW), dismissed=())
    assert step(review, FOUND, RETRY) == PhaseStep(
        replace(review, phase=Phase.ADDRESS, findings=(ONE, TWO)),
        agent(Phase.ADDRESS),
        "the review has 2 findings: a.py:3: too short; b.py:1: too long",
    )
    assert step(review, Reviewed(Review()), RETRY) == PhaseStep(
        WORKED_ON, PhasesOver(), "the review has no findings"
    )


def test_l15_dismissals_are_numbered_and_expire() -> None:
    review = at(Phase.REVIEW, round_=1)
    assert step(review, FOUND, RETRY) == PhaseStep(
        at(Phase.TRIAGE, round_=1),
        agent(Phase.TRIAGE),
        "the review has 1 finding, besides 1 dismissed: a.py:3: too short",
    )
    assert step(review, Reviewed(Review((TWO,))), RETRY) == PhaseStep(
        WORKED_ON, PhasesOver(rounds=1), "the review has no findings, besides 1 dismissed"
    )
    assert step(review, Reviewed(Review((ONE,))), RETRY).phases.dismissed == ()


def test_l15_without_rounds_findings_are_left() -> None:
    over = step(replace(at(Phase.REVIEW), dismissed=()), FOUND, replace(RETRY, max_address_rounds=0))
    assert over == PhaseStep(
        WORKED_ON,
        PhasesOver((ONE, TWO), failed=True, rounds=0),
        "the review has 2 findings: a.py:3: too short; b.py:1: too long",
    )
    one = replace(at(Phase.REVIEW), dismissed=())
    assert step(one, FOUND, replace(RETRY, max_address_rounds=1)).order == agent(Phase.ADDRESS)


def test_l15_new_dismissals_join_the_old() -> None:
    other = ReviewFinding("R3", "too wide", "c.py:9")
    triage = replace(at(Phase.TRIAGE, round_=1), findings=(ONE, other))
    assert step(triage, AgentDone(None, '{"dismiss": ["R3"]}'), RETRY) == PhaseStep(
        replace(at(Phase.ADDRESS, round_=1), dismissed=(TWO, other)),
        agent(Phase.ADDRESS),
        "the triage dismisses 1 finding: c.py:9: too wide",
    )
    assert step(triage, AgentDone(None, '{"dismiss": ["R1", "R3"]}'), RETRY) == PhaseStep(
        WORKED_ON,
        PhasesOver(rounds=1),
        "the triage dismisses 2 findings: a.py:3: too short; c.py:9: too wide",
    )


@pytest.mark.parametrize("fails", [True, False])
def test_l15_triage_leftovers_of_the_last_round_stay(fails: bool) -> None:
    policy = replace(RETRY, findings_fail=fails)
    triage = replace(at(Phase.TRIAGE, round_=2), findings=(ONE, ReviewFinding("R3", "too wide")))
    assert step(triage, AgentDone(None, '{"dismiss": ["R3"]}'), policy) == PhaseStep(
        WORKED_ON, PhasesOver((ONE,), failed=fails, rounds=2), "the triage dismisses 1 finding: too wide"
    )
    assert step(replace(triage, round=1), QUIET, policy).order == agent(Phase.ADDRESS)


def test_leftovers_are_announced_in_singular_and_plural() -> None:
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


def test_a_prompt_begins_with_the_users_own() -> None:
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
def test_the_last_200_object_starts_are_tried(objects: int, ids: set[str]) -> None:
    assert dismissed_by('{"dismiss": ["R1"]}' + "{" * objects, (ONE,)) == ids


def test_only_a_phase_that_ran_out_of_time_gets_more_and_only_until_it_ends() -> None:
    once_more = replace(POLICY, phase_retry_count=1)
    assert after(CRASH, policy=once_more).phases.timeout_factor == 1.0
    longer = after(TIMEOUT, policy=once_more)
    assert longer.phases == Phases("T", tries=1, timeout_factor=1.5)

    assert after(TIMEOUT, WELL, policy=once_more).phases.timeout_factor == 1.0
    assert after(saved=longer.phases, policy=once_more).phases.timeout_factor == 1.0
    reviewed = after(WELL, WELL, NO_TIME)
    assert reviewed.phases.timeout_factor == 1.5
    assert step(reviewed.phases, FOUND, POLICY).phases.timeout_factor == 1.0
