"""What a run may request (A3): it reads, and reports for itself; the rest only where the user permits it."""

from dataclasses import replace

import pytest

from ralphd.core.supervision.door import (
    REFUSAL_EVERY_S,
    UNKNOWN_RUN,
    Caller,
    RefusalCounter,
    RequestedAction,
    can_end_services,
    is_permitted,
    refusal_text,
    requested,
)
from ralphd.core.supervision.model import RunId

RUN = RunId("r000001-aaaaaaaa")
PERSON = Caller(4711, 1000)
AGENT = Caller(4712, 1000, RUN, "api", "ralphctl stop api")


def test_a_run_does_not_pass_for_a_device() -> None:
    assert str(replace(PERSON, device="My phone")) == 'device "My phone"'
    assert str(replace(AGENT, device="My phone")) == str(AGENT)


@pytest.mark.parametrize(
    ("method", "path", "asked"),
    [
        ("GET", "/v1/status", None),
        ("HEAD", "/v1/status", None),
        ("POST", "/v1/ralphs", ("start", None)),
        ("POST", "/v1/ralphs/api/stop", ("stop", "api")),
        ("POST", "/v1/ralphs/api/skip-wait", ("skip-wait", "api")),
        ("POST", "/v1/ralphs/api/reports", ("reports", "api")),
        ("DELETE", "/v1/ralphs/api/tasks/t1", ("tasks", "api")),
        ("DELETE", "/v1/ralphs/api", ("rm", "api")),
        ("POST", "/v1/shutdown", ("regent stop", None)),
        ("POST", "/v1/reload", ("regent reload", None)),
        ("POST", "/v1/webhooks", ("webhooks add", None)),
        ("POST", "/v1/webhooks/w1/test", ("webhooks test", None)),
        ("DELETE", "/v1/webhooks/reports", ("webhooks remove", None)),
        ("POST", "/v1/deliveries/3/replay", ("webhooks replay", None)),
        ("POST", "/v1/landing", ("land", None)),
        ("POST", "/v1/landing/undo", ("land", None)),
        ("POST", "/v1/fleet/items/i-aaaa/hold", ("fleet", None)),
        ("POST", "/v1/ralphs/api/anything", ("request", None)),
        ("PUT", "/v1/ralphs/api", ("request", "api")),
        ("POST", "/", ("request", None)),
    ],
)
def test_a_request_is_one_action(method: str, path: str, asked: tuple[str, str | None] | None) -> None:
    assert requested(method, path) == (None if asked is None else RequestedAction(*asked))


ACTIONS = ("stop", "pause", "start", "resume", "reload", "rm", "undo", "webhooks", "shutdown", "request")


@pytest.mark.parametrize("action", ACTIONS)
def test_a_person_may_do_everything_and_a_run_nothing(action: str) -> None:
    asked = RequestedAction(action, "api")

    assert is_permitted(asked, PERSON, ())
    assert not is_permitted(asked, AGENT, ())
    assert not is_permitted(asked, Caller(1, 1000, UNKNOWN_RUN), ())
    assert is_permitted(asked, AGENT, ("all",))


def test_a_run_reports_for_its_own_ralph_only() -> None:
    assert is_permitted(RequestedAction("reports", "api"), AGENT, ())
    assert not is_permitted(RequestedAction("reports", "web"), AGENT, ())
    assert not is_permitted(RequestedAction("reports", "api"), Caller(1, 1000, UNKNOWN_RUN), ())


@pytest.mark.parametrize("action", ["stop", "pause"])
def test_what_is_permitted_for_itself_is_not_for_others(action: str) -> None:
    may = (f"{action}-self",)

    assert is_permitted(RequestedAction(action, "api"), AGENT, may)
    assert not is_permitted(RequestedAction(action, "web"), AGENT, may)
    assert not is_permitted(RequestedAction(action, None), Caller(1, 1000, UNKNOWN_RUN), may)
    assert [each for each in ACTIONS if is_permitted(RequestedAction(each, "api"), AGENT, may)] == [action]


@pytest.mark.parametrize(
    ("command", "can"),
    [
        ("systemctl --user stop ralphd", True),
        ("/usr/bin/loginctl terminate-user me", True),
        ("/bin/sh /home/me/bin/systemctl stop ralphd", True),
        ("sudo systemctl stop ralphd", True),
        ("kill -TERM 4711", True),
        ("pkill -f ralphd", True),
        ("grep systemctl README", False),
        ("python worker.py kill", False),
        ("sh", False),
        ("", False),
    ],
)
def test_some_programs_end_services(command: str, can: bool) -> None:
    assert can_end_services(command.split(" ")) == can


def test_a_start_may_be_permitted_for_any_ralph() -> None:
    assert is_permitted(RequestedAction("start"), AGENT, ("start",))
    assert is_permitted(RequestedAction("start", "web"), AGENT, ("start",))
    assert not is_permitted(RequestedAction("stop", "api"), AGENT, ("start",))


def test_refusals_of_a_minute_are_one_report_and_their_number_the_next() -> None:
    counter, stop = RefusalCounter(), RequestedAction("stop", "api")

    assert [counter.count(AGENT, stop, at) for at in (0.0, 1.0, REFUSAL_EVERY_S - 1)] == [1, 0, 0]
    assert counter.count(AGENT, RequestedAction("pause", "api"), 1.0) == 1
    assert counter.count(AGENT, stop, REFUSAL_EVERY_S) == 3


def test_refusals_that_were_only_counted_are_due_after_a_minute() -> None:
    counter, stop = RefusalCounter(), RequestedAction("stop", "api")
    for at in (0.0, 1.0, 2.0):
        counter.count(AGENT, stop, at)
    counter.count(AGENT, RequestedAction("pause", "api"), 0.0)

    assert counter.due(REFUSAL_EVERY_S - 1) == []
    assert counter.due(REFUSAL_EVERY_S) == [(AGENT, stop, 2)]
    assert counter.due(REFUSAL_EVERY_S) == []
    assert counter.count(AGENT, stop, REFUSAL_EVERY_S) == 1


def test_a_clock_that_was_set_back_holds_no_report_back() -> None:
    counter, stop = RefusalCounter(), RequestedAction("stop", "api")
    counter.count(AGENT, stop, 1000.0)

    assert counter.count(AGENT, stop, 10.0) == 1


def test_a_refusal_names_the_request_the_run_and_the_process() -> None:
    assert refusal_text(AGENT, RequestedAction("stop", "api"), 3) == (
        "Refused: ralphctl stop api from within run r000001-aaaaaaaa, 3 times — "
        "pid 4712 (ralphctl stop api), uid 1000, run r000001-aaaaaaaa"
    )
    assert str(PERSON) == "pid 4711, uid 1000"
