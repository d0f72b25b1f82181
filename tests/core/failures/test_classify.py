"""Classification: the order of evidence, and what each piece of it means (K1 to K4)."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphd.agents.known import agent_of
from ralphd.config.specs import AgentSpec
from ralphd.core.failures.agent_events import FinalEvent, Limited, RetryingItself
from ralphd.core.failures.classify import Classification, Evidence, OurDoing, Rules, classify
from ralphd.core.failures.kinds import ExitMeaning, FailureKind
from ralphd.core.failures.patterns import AfterGoodExit, Pattern, Patterns, anchored
from ralphd.core.failures.reset_parsers import Confidence
from ralphd.core.failures.resets import LONGEST_S, Reset

NOW = 1_800_000_000.0
K = FailureKind


def _pattern(
    name: str, kind: K, match: str, *, read: bool = False, after: AfterGoodExit = AfterGoodExit.NEVER
) -> Pattern:
    return Pattern(name, kind, anchored(match), read=read, after_good_exit=after)


def _phrase(name: str, kind: K, match: str) -> Pattern:
    return Pattern(name, kind, match)


PATTERNS = Patterns(
    agent="one",
    version=1,
    patterns=(
        _pattern("limit", K.USAGE_LIMIT, r"you've hit your limit", after=AfterGoodExit.LAST),
        _pattern("broke", K.AGENT_CRASH, r"it broke:(?P<text>.*)", read=True),
        _pattern("alone", K.TRANSIENT, r"api error", after=AfterGoodExit.ALONE),
        _pattern("error", K.UNKNOWN, r"error: (?P<text>.*)", read=True),
    ),
    phrases=(
        _phrase("context", K.CONTEXT, "too long"),
        _phrase("usage", K.USAGE_LIMIT, "usage limit"),
        _phrase("billing", K.FATAL, "billing"),
        _phrase("rate", K.RATE_LIMIT, "rate limit"),
        _phrase("busy", K.TRANSIENT, "overloaded"),
        _phrase("login", K.FATAL, "log in"),
    ),
)
TELLS = Rules("one", PATTERNS, {173: ExitMeaning(K.RATE_LIMIT, "HTTP 429")}, has_verdict=True)
"""An agent that ends with a final event."""
SILENT = replace(TELLS, has_verdict=False)
"""One that does not."""

GOOD, BAD = FinalEvent(good=True, message="Done."), FinalEvent(good=False, message="it went wrong")
LIMIT_LINE = "You’ve hit your limit · resets 3pm (UTC)"


def _kind(evidence: Evidence, rules: Rules = TELLS) -> K | None:
    return classify(evidence, rules, now=NOW).kind


@pytest.mark.parametrize(
    ("ours", "kind"),
    [
        (OurDoing.TIMEOUT, K.TIMEOUT),
        (OurDoing.STALL, K.STALL),
        (OurDoing.CRASH_PATTERN, K.AGENT_CRASH),
        (OurDoing.LOST_CONNECTION, K.TRANSIENT),
    ],
)
def test_what_we_did_ourselves_counts_before_anything_printed(ours: OurDoing, kind: K) -> None:
    printed = Evidence(ours=ours, code=173, verdict=BAD, limited=Limited(NOW + 60), own_lines=(LIMIT_LINE,))

    assert _kind(printed) is kind


def test_an_attempt_that_was_asked_to_end_has_not_failed() -> None:
    finding = classify(Evidence(ours=OurDoing.ASKED, signal=15, own_lines=(LIMIT_LINE,)), TELLS, now=NOW)

    assert (finding.kind, finding.asked) == (None, True)


def test_an_agent_that_hung_after_its_result_is_what_the_result_says() -> None:
    assert _kind(Evidence(ours=OurDoing.AFTER_RESULT, signal=9, verdict=GOOD)) is None
    assert (
        _kind(Evidence(ours=OurDoing.AFTER_RESULT, signal=9, verdict=replace(BAD, status=529))) is K.TRANSIENT
    )


def test_a_command_that_could_not_be_started_is_fatal() -> None:
    finding = classify(Evidence(not_started="no program claude on PATH"), TELLS, now=NOW)

    assert (finding.kind, finding.why) == (K.FATAL, "no program claude on PATH")
    long = classify(Evidence(not_started="x" * 301), SILENT, now=NOW)
    assert long.why == "x" * 299 + "…"


@given(
    lines=st.lists(st.sampled_from([LIMIT_LINE, "error: billing", "api error", "panic: x"]), max_size=4),
    limited=st.sampled_from([None, Limited(NOW + 60, "five_hour")]),
)
@settings(max_examples=25)
def test_a_good_final_event_and_exit_0_are_a_success_whatever_was_printed(
    lines: list[str], limited: Limited | None
) -> None:
    evidence = Evidence(code=0, verdict=GOOD, limited=limited, own_lines=tuple(lines))

    assert _kind(evidence) is None
    assert _kind(evidence, SILENT) is None


def test_a_good_final_event_and_a_bad_exit_are_a_crash_whatever_was_printed() -> None:
    assert _kind(Evidence(code=1, verdict=GOOD, own_lines=(LIMIT_LINE,))) is K.AGENT_CRASH
    assert _kind(Evidence(signal=11, verdict=GOOD, own_lines=(LIMIT_LINE,))) is K.AGENT_CRASH


def test_exit_0_without_the_final_event_is_no_success_of_an_agent_that_has_one() -> None:
    cut = Evidence(code=0, own_lines=("Working on it",))

    assert _kind(cut) is K.AGENT_CRASH
    assert _kind(cut, SILENT) is None
    assert _kind(replace(cut, partial=True)) is None


def test_exit_0_without_any_output_is_a_crash() -> None:
    assert _kind(Evidence(code=0, printed=False), SILENT) is K.AGENT_CRASH


def test_what_an_agent_without_output_wrote_to_stderr_is_its_reason() -> None:
    found = classify(Evidence(code=1, printed=False, own_lines=("Error: no tool",)), SILENT, now=NOW)
    assert (found.rule, found.why) == ("no output", "exit status 1: Error: no tool")


def test_an_agent_that_said_nothing_at_all_is_told_as_such() -> None:
    found = classify(Evidence(code=1, printed=False), SILENT, now=NOW)
    assert (found.rule, found.why) == ("no output", "it printed nothing on stdout; exit status 1")


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (429, "slow down", K.RATE_LIMIT),
        (429, "the usage limit is reached", K.USAGE_LIMIT),
        (429, "check your billing details", K.FATAL),
        (429, "please log in", K.FATAL),
        (401, "the usage limit", K.FATAL),
        (402, "pay", K.FATAL),
        (402, "monthly usage limit", K.USAGE_LIMIT),
        (403, "no", K.FATAL),
        (400, "bad", K.FATAL),
        (400, "the prompt is too long", K.CONTEXT),
        (404, "overloaded", K.FATAL),
        (413, "big", K.CONTEXT),
        (408, "late", K.TRANSIENT),
        (500, "billing", K.TRANSIENT),
        (529, "", K.TRANSIENT),
        (None, "unexpected status 503: x", K.TRANSIENT),
        (None, "overloaded", K.TRANSIENT),
        (None, "it went wrong", K.UNKNOWN),
        (None, "", K.AGENT_CRASH),
    ],
)
def test_a_bad_final_event_is_read_by_its_status_and_then_by_its_text(
    status: int | None, message: str, kind: K
) -> None:
    assert _kind(Evidence(code=1, verdict=FinalEvent(False, message, status))) is kind


def test_numbers_in_an_error_that_are_no_status_say_nothing() -> None:
    for message in ("line 429 of 503", "took 500 ms", "Limit 429000, used 401.5", "exited with code 12"):
        assert _kind(Evidence(code=1, verdict=FinalEvent(False, message))) is K.UNKNOWN


def test_a_bad_final_event_counts_before_an_earlier_quotation_on_its_lines() -> None:
    evidence = Evidence(code=1, verdict=FinalEvent(False, "Overloaded", 529), own_lines=(LIMIT_LINE,))

    assert _kind(evidence) is K.TRANSIENT


def test_a_limit_event_with_a_reset_or_a_name_makes_a_429_a_plans_limit() -> None:
    told = Evidence(code=1, verdict=FinalEvent(False, "no", 429), limited=Limited(NOW + 3600, "five_hour"))

    assert _kind(told) is K.USAGE_LIMIT
    assert _kind(replace(told, limited=Limited())) is K.RATE_LIMIT
    assert _kind(replace(told, verdict=FinalEvent(False, "no", 529))) is K.TRANSIENT


@pytest.mark.parametrize(
    ("code", "signal", "kind"),
    [
        (1, None, K.AGENT_CRASH),
        (124, None, K.TIMEOUT),
        (126, None, K.FATAL),
        (127, None, K.FATAL),
        (134, None, K.AGENT_CRASH),
        (143, None, K.AGENT_CRASH),
        (173, None, K.RATE_LIMIT),
        (None, 9, K.AGENT_CRASH),
        (None, None, K.UNKNOWN),
    ],
)
def test_an_exit_status_alone_is_read_by_the_tables(code: int | None, signal: int | None, kind: K) -> None:
    assert _kind(Evidence(code=code, signal=signal)) is kind


def test_lines_tell_which_429_an_exit_status_means_and_nothing_about_a_signal() -> None:
    assert _kind(Evidence(code=173, own_lines=(LIMIT_LINE,))) is K.USAGE_LIMIT
    assert _kind(Evidence(code=173, own_lines=("error: overloaded",))) is K.RATE_LIMIT
    assert _kind(Evidence(signal=15, own_lines=(LIMIT_LINE,))) is K.AGENT_CRASH


def test_the_last_line_that_says_something_counts_and_an_errors_text_goes_on_over_lines() -> None:
    assert _kind(Evidence(code=1, own_lines=(LIMIT_LINE, "error: overloaded"))) is K.TRANSIENT
    assert _kind(Evidence(code=1, own_lines=("error: [{", '  "message": "rate', '   limit"'))) is K.RATE_LIMIT
    assert _kind(Evidence(code=1, own_lines=("error: billing", "it broke: [object]"))) is K.FATAL
    assert _kind(Evidence(code=1, own_lines=("it broke: [object]",))) is K.AGENT_CRASH


def test_words_in_the_middle_of_a_line_or_in_prose_say_nothing() -> None:
    for line in (
        'the text "You\'ve hit your limit" is red now',
        "I fixed the usage limit",
        "An error: billing",
    ):
        assert _kind(Evidence(code=1, own_lines=(line,))) is K.AGENT_CRASH


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (("Starting", LIMIT_LINE), K.USAGE_LIMIT),
        (("Starting", "", LIMIT_LINE, "", "https://example.com/limits"), K.USAGE_LIMIT),
        ((LIMIT_LINE, "", "is what the parser accepts."), None),
        (("The message is:", LIMIT_LINE), None),
        (("```", LIMIT_LINE), None),
        (("API Error",), K.TRANSIENT),
        (("one", "two", "three", "API Error"), None),
        (("error: billing",), None),
    ],
)
def test_after_exit_0_only_what_ends_the_output_can_be_a_failure(
    lines: tuple[str, ...], kind: K | None
) -> None:
    assert _kind(Evidence(code=0, own_lines=lines), SILENT) is kind


def test_an_agent_that_ended_amid_its_own_retries_failed_for_their_reason() -> None:
    evidence = Evidence(code=1, retrying=RetryingItself(reason="overloaded", attempt=5))

    assert _kind(evidence) is K.TRANSIENT
    assert _kind(replace(evidence, retrying=RetryingItself(status=401))) is K.FATAL
    assert _kind(replace(evidence, retrying=RetryingItself(reason="hm"))) is K.AGENT_CRASH


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("Usage limit reached", K.USAGE_LIMIT),
        ("Too many requests", K.RATE_LIMIT),
        ("Too many requests, please log in", K.RATE_LIMIT),
    ],
)
def test_words_of_a_limit_that_no_pattern_knows_count_where_an_agent_failed(line: str, kind: K) -> None:
    evidence = Evidence(code=1, own_lines=(line,))

    assert classify(evidence, TELLS, now=NOW) == Classification(kind, "words of a limit", line)
    assert _kind(replace(evidence, code=0)) is K.AGENT_CRASH


def test_the_reset_of_a_limit_in_words_is_read_from_the_lines_around_it() -> None:
    lines = ("HTTP 429 Too Many Requests", "retry-after: 40")
    finding = classify(Evidence(code=1, own_lines=lines), TELLS, now=NOW)

    assert finding.rule == "words of a limit"
    assert finding.reset == Reset(NOW + 40, "retry-after", Confidence.EXACT)


def _reset_of(
    *,
    limited: Limited | None = None,
    headers: Mapping[str, str] | None = None,
    body: str = "",
    message: str = "usage limit",
    lines: tuple[str, ...] = (),
) -> Reset | None:
    verdict = FinalEvent(False, message, 429, headers=headers or {}, body=body)
    return classify(Evidence(code=1, verdict=verdict, limited=limited, own_lines=lines), TELLS, now=NOW).reset


def test_the_reset_comes_from_the_event_then_headers_then_body_then_message_then_lines() -> None:
    everything = {
        "limited": Limited(NOW + 10, "five_hour"),
        "headers": {"retry-after": "20"},
        "body": '{"resets_in_seconds": 30}',
        "message": "usage limit, try again in 40s",
        "lines": ("You've hit your limit, try again in 50s",),
    }
    waits = []
    for missing in [*everything, None]:
        reset = _reset_of(**everything)  # type: ignore[arg-type]  # each key has its own type
        waits.append(None if reset is None else round(reset.until - NOW))
        if missing:
            del everything[missing]

    assert waits == [10, 20, 30, 40, 50, None]


def test_a_reset_that_has_just_passed_is_not_read_again_as_tomorrows() -> None:
    reset = _reset_of(limited=Limited(NOW - 5, "five_hour"), message="usage limit · resets 3pm (UTC)")

    assert reset == Reset(NOW - 5, "resetsAt", Confidence.EXACT)


def test_a_limit_that_still_names_the_reset_of_half_an_hour_ago_has_none() -> None:
    reset = _reset_of(message="Claude usage limit reached. Your limit will reset at 7:30am (UTC).")

    assert reset is None


def test_a_long_retry_after_stays_a_rate_limit_with_its_reset() -> None:
    verdict = FinalEvent(False, "slow down", 429, headers={"retry-after": "7200"})
    finding = classify(Evidence(code=1, verdict=verdict), TELLS, now=NOW)

    assert finding.kind is K.RATE_LIMIT
    assert finding.reset is not None and finding.reset.until == NOW + 7200


def test_a_crash_that_nobody_knows_is_told_in_its_own_words() -> None:
    def why(*lines: str) -> str:
        return classify(Evidence(code=3, own_lines=lines), SILENT, now=NOW).why

    assert why("Error: boom") == "exit status 3: Error: boom"
    assert why("starting", "Error: boom", "    at f (a.js:1:2)", "bye") == "exit status 3: Error: boom"
    assert why("Traceback (most recent call last):", "ZeroDivisionError: x").endswith("ZeroDivisionError: x")
    assert why("Done so far.", "I stop here.").endswith("; last line: I stop here.")
    assert why("", "{}") == "exit status 3, and its output does not say why"


@pytest.mark.parametrize(
    ("evidence", "rules", "finding"),
    [
        (Evidence(not_started="no such file"), TELLS, (K.FATAL, "not started", "no such file")),
        (
            Evidence(ours=OurDoing.CRASH_PATTERN, crash_line="panic: x"),
            TELLS,
            (
                K.AGENT_CRASH,
                "ours: crash pattern",
                "it printed 'panic: x' on stderr, which is a crash message, and was terminated",
            ),
        ),
        (
            Evidence(ours=OurDoing.LOST_CONNECTION, crash_line="read  ECONNRESET"),
            TELLS,
            (
                K.TRANSIENT,
                "ours: lost connection",
                "it lost its connection (read ECONNRESET), hung and was terminated",
            ),
        ),
        (
            Evidence(ours=OurDoing.AFTER_RESULT, signal=9, verdict=GOOD),
            TELLS,
            (
                None,
                "final event",
                "its final event says success; it did not exit afterwards and was terminated",
            ),
        ),
        (
            Evidence(code=0, verdict=GOOD),
            TELLS,
            (None, "final event", "its final event says success; exit status 0"),
        ),
        (
            Evidence(code=0, own_lines=("Done",)),
            SILENT,
            (None, "exit status 0", "exit status 0, and no failure on its last lines"),
        ),
        (
            Evidence(code=1, verdict=GOOD),
            TELLS,
            (
                K.AGENT_CRASH,
                "exit after a good final event",
                "its final event says success, but it ended with exit status 1",
            ),
        ),
        (
            Evidence(code=124, verdict=BAD),
            TELLS,
            (K.TIMEOUT, "exit status 124", "a time limit around it ran out"),
        ),
        (
            Evidence(code=1, verdict=FinalEvent(False, "a monthly usage limit", 402)),
            TELLS,
            (K.USAGE_LIMIT, "final event: status 402, phrase usage", "a monthly usage limit"),
        ),
        (
            Evidence(code=1, verdict=FinalEvent(False, body="a monthly usage limit")),
            TELLS,
            (K.USAGE_LIMIT, "final event: phrase usage", "usage limit"),
        ),
        (
            Evidence(code=1, verdict=BAD, own_lines=("error: billing",)),
            TELLS,
            (K.FATAL, "line: error, phrase billing", "error: billing"),
        ),
        (
            Evidence(code=1, verdict=FinalEvent(False, code="oops")),
            TELLS,
            (K.AGENT_CRASH, "final event", "its final event says failure (oops), not why"),
        ),
        (
            Evidence(code=1, verdict=FinalEvent(False)),
            TELLS,
            (K.AGENT_CRASH, "final event", "its final event says failure, not why"),
        ),
        (
            Evidence(code=1, verdict=replace(BAD, code="oops")),
            TELLS,
            (K.UNKNOWN, "final event", "it went wrong"),
        ),
        (
            Evidence(code=1, verdict=FinalEvent(False, body="strange")),
            TELLS,
            (K.UNKNOWN, "final event", "strange"),
        ),
        (
            Evidence(code=1, retrying=RetryingItself("overloaded", 529)),
            TELLS,
            (
                K.TRANSIENT,
                "its own retries: status 529",
                "it ended while it retried: overloaded",
            ),
        ),
        (
            Evidence(code=1, retrying=RetryingItself(status=401)),
            TELLS,
            (K.FATAL, "its own retries: status 401", "it ended while it retried: 401"),
        ),
        (
            Evidence(code=0),
            TELLS,
            (K.AGENT_CRASH, "no final event", "exit status 0, but its final event is missing"),
        ),
        (
            Evidence(code=1),
            TELLS,
            (K.AGENT_CRASH, "exit status", "exit status 1, and its output does not say why"),
        ),
    ],
)
def test_a_finding_names_its_rule_and_its_reason(
    evidence: Evidence, rules: Rules, finding: tuple[K | None, str, str]
) -> None:
    assert classify(evidence, rules, now=NOW) == Classification(*finding)


def test_k1_what_we_did_is_named_by_a_word() -> None:
    assert [*OurDoing] == ["timeout", "stall", "crash_pattern", "lost_connection", "after_result", "asked"]


def test_without_any_evidence_nothing_is_known() -> None:
    why = "how it ended is unknown, and its output does not say why"
    rules = Rules("one", PATTERNS)
    finding = classify(Evidence(), rules, now=NOW)

    assert Evidence() == Evidence(None, None, None, None, None, (), None, True, None, False, None)
    assert rules == Rules("one", PATTERNS, {}, False, None)
    assert finding == Classification(K.UNKNOWN, "nothing known", why)


@pytest.mark.parametrize(
    ("limited", "why"),
    [
        (Limited(None, "five_hour"), "5-hour usage limit"),
        (Limited(NOW + 60), "usage limit"),
        (Limited(None, "monthly"), "monthly usage limit"),
    ],
)
def test_a_limit_event_has_a_name_or_a_reset(limited: Limited, why: str) -> None:
    finding = classify(Evidence(code=1, limited=limited), TELLS, now=NOW)

    assert (finding.kind, finding.rule, finding.why) == (K.USAGE_LIMIT, "limit event", why)


def test_after_exit_0_lines_prove_less_where_a_final_event_is_not_expected() -> None:
    mute = Evidence(code=0, printed=False, own_lines=("error: billing",))

    assert _kind(mute, SILENT) is K.AGENT_CRASH
    assert _kind(replace(mute, partial=True), TELLS) is K.AGENT_CRASH
    assert _kind(mute, TELLS) is K.FATAL
    assert _kind(replace(mute, code=1), SILENT) is K.FATAL


@pytest.mark.parametrize("ago_s", [0.0, 0.5, LONGEST_S])
def test_a_reset_that_has_passed_is_kept(ago_s: float) -> None:
    reset = _reset_of(limited=Limited(NOW - ago_s, "five_hour"), message="usage limit, try again in 40s")

    assert reset == Reset(NOW - ago_s, "resetsAt", Confidence.EXACT)


def test_a_reset_to_come_is_named_by_its_event() -> None:
    assert _reset_of(limited=Limited(NOW + 10)) == Reset(NOW + 10, "resetsAt", Confidence.EXACT)


def test_a_time_of_day_is_read_in_the_local_zone() -> None:
    evidence = Evidence(code=1, verdict=FinalEvent(False, "usage limit, resets at 10am", 429))
    local = replace(TELLS, zone=timezone(timedelta(hours=1)))

    reset = classify(evidence, local, now=NOW).reset

    assert reset is not None and reset.until - NOW == 3600


_texts = st.one_of(
    st.text(max_size=60), st.sampled_from([LIMIT_LINE, "error: 429", "\x1b[31mAPI Error", "429"])
)


@given(
    ours=st.sampled_from([None, *OurDoing]),
    code=st.one_of(st.none(), st.integers(-300, 300)),
    signal=st.one_of(st.none(), st.integers(-5, 70)),
    verdict=st.one_of(
        st.none(),
        st.builds(
            FinalEvent,
            st.booleans(),
            _texts,
            st.one_of(st.none(), st.integers(-1, 900)),
            st.one_of(st.none(), _texts),
        ),
    ),
    limited=st.one_of(st.none(), st.builds(Limited, st.one_of(st.none(), st.floats(allow_nan=True)), _texts)),
    lines=st.lists(_texts, max_size=5),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
@settings(max_examples=60)
def test_no_evidence_makes_it_raise_and_it_always_says_why(
    ours: OurDoing | None,
    code: int | None,
    signal: int | None,
    verdict: FinalEvent | None,
    limited: Limited | None,
    lines: list[str],
    flags: tuple[bool, bool, bool],
) -> None:
    printed, partial, tells = flags
    evidence = Evidence(ours, code, signal, verdict, limited, tuple(lines), printed=printed, partial=partial)

    finding = classify(evidence, TELLS if tells else SILENT, now=NOW)

    assert finding.rule and finding.why
    assert finding.asked is (ours is OurDoing.ASKED)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("Claude usage limit reached|1795476710", "Claude usage limit reached"),
        ('Error: 429 {"type":"usage_limit_reached","resets_at":1795476710}', "usage limit"),
        ("Error: 429 Too Many Requests, retry after 1795476710000", "rate limit"),
        (
            "Error: 429 Too Many Requests (request 7f21795476710a)",
            "Error: 429 Too Many Requests (request 7f21795476710a)",
        ),
    ],
)
def test_the_reason_of_a_limit_shows_no_epoch(line: str, why: str) -> None:
    agent = agent_of("claude", AgentSpec(), outside={})
    rules = Rules(agent.name, agent.patterns, agent.exits, agent.has_verdict)
    assert classify(Evidence(code=1, own_lines=(line,)), rules, now=1795470000.0).why == why
