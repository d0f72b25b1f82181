"""What a ralph was started with is kept whole, and comes back as it was."""

import json
from dataclasses import replace

import pytest

from ralphd.config.configuration import Configuration, Difference, differences
from ralphd.core.supervision.model import Mode, Policy, Restart
from ralphd.errors import ConfigFaults, NewerState
from tests.config.conftest import Place

EVERYTHING = """
[project]
name = "mine"
[ralph]
command = ["./loop.sh", "it's \\"this\\""]
mode = "iteration"
restart = "always"
max_iterations = 7
iteration_pause_seconds = 0.5
[regent]
enabled = false
max_retries = 1
retry_backoff_seconds = 2
retry_backoff_factor = 2
retry_backoff_max_seconds = 20
healthy_after_seconds = 60
max_restarts_per_hour = 4
stop_timeout_seconds = 5
[retry]
reset_margin_seconds = 9
[agents]
fallback = ["codex"]
[agents.mine]
command = ["run"]
env = { KEY = "secret-value" }
[[webhooks]]
url = "https://example.com/hidden-part"
secret_env = "TOKEN"
on = ["ralph.*", "daemon.degraded"]
"""


def test_a_pinned_configuration_comes_back_the_same_through_json(place: Place) -> None:
    place.user("[logs]\nrun_bytes = 5000000\n")
    place.project(EVERYTHING)
    before = place.load(flags={"timeout": 90})
    assert Configuration.from_pinned(json.loads(json.dumps(before.pinned()))) == before


def test_the_policy_holds_what_was_configured(place: Place) -> None:
    place.project(EVERYTHING)
    assert place.load().policy() == Policy(
        supervised=False,
        restart=Restart.ALWAYS,
        mode=Mode.ITERATION,
        max_iterations=7,
        iteration_pause_s=0.5,
        max_retries=1,
        retry_backoff_s=2,
        retry_backoff_factor=2,
        retry_backoff_max_s=20,
        healthy_after_s=60,
        max_restarts_per_hour=4,
        stop_timeout_s=5,
        reset_margin_s=9,
    )
    assert Configuration().policy() == Policy()


def test_what_an_earlier_version_pinned_is_read_with_todays_defaults_for_what_it_lacks() -> None:
    values = {"regent": {"max_retries": 9, "gone_since": 1}, "old_section": {"x": 1}}
    configuration = Configuration.from_pinned({"version": 1, "values": values, "origins": {}})
    assert configuration.regent.max_retries == 9
    assert configuration.regent.stop_timeout_seconds == 30
    assert configuration.origins["regent.stop_timeout_seconds"].text == "default"


def test_what_a_later_version_pinned_is_refused() -> None:
    with pytest.raises(NewerState):
        Configuration.from_pinned({"version": 2, "values": {}, "origins": {}})


@pytest.mark.parametrize(
    "broken", [{}, {"version": 1, "values": []}, {"values": {"regent": 1}, "origins": {}}]
)
def test_what_is_no_pinned_configuration_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(ConfigFaults):
        Configuration.from_pinned(broken)


def test_differences_are_told_key_by_key_with_where_they_come_from(place: Place) -> None:
    before = place.load()
    place.project(
        '[regent]\nmax_retries = 5\n[ralph]\ncommand = ["./other.sh"]\n[agents.mine]\nmodel = "m"\n'
    )
    told = differences(before, place.load())
    assert told[:2] == (
        Difference("ralph.command", "[]", '["./other.sh"]', "ralph.toml:4"),
        Difference("regent.max_retries", "3", "5", "ralph.toml:2"),
    )
    assert Difference("agents.mine.model", None, '"m"', "ralph.toml:6") in told


def test_of_a_new_webhook_only_what_it_has_is_told(place: Place) -> None:
    before = place.load()
    place.user('[[webhooks]]\nurl = "https://example.com/hook"\nsecret_file = "/s"\n')

    told = [each.key for each in differences(before, place.load())]

    assert told == [f"webhooks[0].{name}" for name in ("url", "secret_file", "on", "format")]


def test_the_same_values_from_elsewhere_are_no_difference(place: Place) -> None:
    before = place.load()
    place.project("[regent]\nmax_retries = 3\n")
    assert differences(before, place.load()) == ()


def test_another_name_is_no_difference_since_a_ralph_keeps_its_own(place: Place) -> None:
    before = place.load()
    place.project('[project]\nname = "other"\n')
    assert differences(before, place.load()) == ()


def test_no_difference_shows_a_variable_or_a_webhooks_address(place: Place) -> None:
    before = place.load()
    place.project(EVERYTHING)
    told = differences(before, place.load()) + differences(place.load(), before)
    hidden = {each.key: (each.pinned, each.now) for each in told if "(not shown)" in (each.pinned, each.now)}
    assert {"agents.mine.env", "webhooks[0].url"} <= set(hidden)
    assert "secret-value" not in str(told) and "hidden-part" not in str(told)


def test_a_value_of_an_agents_making_is_cut(place: Place) -> None:
    before = place.load()
    place.project(f'[agents.mine]\nargs = ["{"x" * 100_000}"]\n')
    assert max(len(each.now or "") for each in differences(before, place.load())) <= 200


def test_a_webhooks_secret_is_named_and_never_held(place: Place) -> None:
    place.project(EVERYTHING)
    held = json.dumps(place.load({"TOKEN": "whsec_abc"}).pinned())
    assert "TOKEN" in held and "whsec_abc" not in held


def test_a_configuration_can_not_be_changed_after_it_was_read() -> None:
    with pytest.raises(AttributeError):
        Configuration().regent.max_retries = 4  # type: ignore[misc]  # the point of the test
    assert replace(Configuration(), webhooks=()) == Configuration()
