"""Where each row of "what happens when" is tested (plan of the fleet, section 11); each named test exists.

The torture (tests/whole/test_fleet_torture.py) mixes rows 1, 3, 5 and 8 to 15.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STORIES, LEASE, HOLDER = "core/fleet/test_stories", "core/fleet/test_lease", "daemon/fleet/test_holder"
MEMBER, WATCHER, FENCE = "daemon/fleet/test_member", "daemon/fleet/test_watcher", "git/test_fence"
NATS, JOINING, RACES = "fleet/test_nats", "fleet/test_hub_joining", "git/test_fence_races"
ROWS: dict[int, tuple[str, dict[str, tuple[str, ...]]]] = {
    1: ("the hub restarts", {
        STORIES: ("test_an_outage_of_the_hub_moves_nothing",),
        NATS: ("test_a_watch_is_not_deaf_after_a_restart", "test_a_server_continues_after_a_restart"),
    }),
    2: ("the hub is down for a day", {
        STORIES: ("test_an_outage_of_the_hub_moves_nothing",),
        HOLDER: ("test_pushes_continue_without_the_hub",),
        NATS: ("test_events_are_stored_once_in_order",),
    }),
    3: ("kill -9 of the hub", {
        NATS: ("test_a_kill_loses_no_acknowledged_update", "test_events_survive_a_kill_once"),
    }),
    4: ("the hub loses writes", {
        "fleet/test_memory": ("test_lost_writes_are_undone_backwards",),
        LEASE: ("test_tokens_only_grow",),
        MEMBER: ("test_an_older_state_in_the_hub_is_replaced",),
        HOLDER: ("test_a_hub_that_forgot_gets_the_end",),
    }),
    5: ("the hub's disk is wiped", {
        STORIES: ("test_a_wiped_hub_is_filled_again",),
        HOLDER: ("test_a_wiped_hub_gets_its_lease_again", "test_a_hub_that_forgot_gets_the_end"),
        MEMBER: ("test_a_wiped_hub_gets_its_items_again", "test_items_come_back_from_the_disk",
                 "test_an_own_item_without_a_holder_is_taken", "test_an_item_without_a_lease_is_watched"),
        WATCHER: ("test_an_item_whose_lease_is_lost_is_taken_over",),
    }),
    6: ("the hub is split in two", {HOLDER: ("test_git_decides_between_two_claims",)}),
    7: ("the hub's disk is full", {MEMBER: ("test_a_hub_that_takes_nothing_is_reported",)}),
    8: ("a host dies", {
        STORIES: ("test_a_dead_host_loses_its_work",),
        WATCHER: ("test_a_dead_host_is_taken_over",),
        "whole/test_fleet": ("test_a_dead_machine_loses_its_item_and_no_work",),
    }),
    9: ("a host reboots in time", {
        STORIES: ("test_a_reboot_within_the_time_continues",),
        HOLDER: ("test_a_restarted_daemon_continues_its_lease",),
    }),
    10: ("a host is frozen", {
        HOLDER: ("test_a_frozen_host_is_fenced", "test_a_push_after_a_takeover_is_fenced"),
    }),
    11: ("a laptop slept", {
        STORIES: ("test_a_laptop_that_slept_is_fenced",),
        LEASE: ("test_after_a_sleep_no_agent_starts_unchecked",
                "test_a_check_without_answer_pauses_at_the_next_tick"),
        HOLDER: ("test_after_a_sleep_a_ralph_waits_for_git",),
    }),
    12: ("a host loses the hub", {
        STORIES: ("test_a_host_without_nats_keeps_its_work",),
        WATCHER: ("test_a_host_without_hub_keeps_its_item",),
    }),
    13: ("a host loses git", {
        STORIES: ("test_a_host_without_git_keeps_its_lease",),
        HOLDER: ("test_a_remote_that_is_away_is_named",),
        MEMBER: ("test_a_machine_without_git_says_so",),
    }),
    14: ("a host loses both", {HOLDER: ("test_a_host_without_hub_and_git_is_fenced",)}),
    15: ("the taker loses the hub", {STORIES: ("test_a_taker_without_nats_stops",)}),
    16: ("two takers at once", {
        WATCHER: ("test_of_two_watchers_one_takes",),
        HOLDER: ("test_of_two_claimants_one_wins",),
        RACES: ("test_each_of_many_contests_has_one_winner", "test_a_takeover_meets_a_push_that_won"),
    }),
    17: ("the answer to a push is lost", {
        FENCE: ("test_a_push_with_a_lost_answer_is_known", "test_a_holder_continues_from_an_unknown_push"),
        HOLDER: ("test_a_push_without_answer_is_not_repeated",),
    }),
    18: ("the answer to a renewal is lost", {
        HOLDER: ("test_a_lost_answer_of_a_renewal_is_harmless",),
        FENCE: ("test_lost_answers_of_claim_bump_and_release",),
    }),
    19: ("a person moves the branch", {
        FENCE: ("test_a_branch_that_a_person_moved_is_left", "test_a_branch_that_a_person_rewound_is_left"),
        HOLDER: ("test_a_force_push_holds_the_item",),
    }),
    20: ("a person deletes the lease ref", {
        FENCE: ("test_a_deleted_lease_is_claimed_again",),
        HOLDER: ("test_a_deleted_lease_ref_is_set_again",),
    }),
    21: ("clocks are wrong by hours", {HOLDER: ("test_a_wrong_clock_decides_nothing",)}),
    22: ("an item kills each host", {
        "core/fleet/test_items": ("test_an_item_is_no_tour_of_the_fleet", "test_a_release_counts_and_ends"),
    }),
    23: ("an account is limited", {
        "core/fleet/test_quota": ("test_one_host_probes_after_the_reset",
                                  "test_a_reset_costs_one_call_a_minute"),
    }),
    24: ("a host's key is stolen", {
        JOINING: ("test_a_forgotten_host_is_locked_out",),
        "fleet/test_hub_access": ("test_a_key_struck_out_may_come_back",),
        "fleet/test_hub_permissions": ("test_a_host",),
    }),
    25: ("the git server is slow", {
        LEASE: ("test_time_has_its_orders",),
        FENCE: ("test_a_remote_that_hangs_is_given_up",),
    }),
    26: ("ralphd is upgraded", {
        HOLDER: ("test_a_recorded_lease_is_held_at_once", "test_a_restart_needs_no_hub"),
        "daemon/fleet/test_work": ("test_a_restarted_host_adopts_the_ralph",),
    }),
    27: ("two hosts with one name", {
        JOINING: ("test_a_second_host_of_a_name_is_refused",),
        MEMBER: ("test_two_machines_with_one_name_are_told_once",),
    }),
    28: ("versions differ", {
        "core/fleet/test_checked": ("test_a_newer_version_is_not_for_us",),
        MEMBER: ("test_an_item_of_a_newer_version_is_left",),
    }),
}  # fmt: skip


def test_each_row_has_its_tests() -> None:
    assert list(ROWS) == list(range(1, 29))


@pytest.mark.parametrize("row", ROWS, ids=[f"{row}: {what}" for row, (what, _) in ROWS.items()])
def test_the_tests_of_a_row_exist(row: int) -> None:
    for name, tests in ROWS[row][1].items():
        tree = ast.parse((ROOT / f"{name}.py").read_text())
        there = {each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert there >= set(tests), f"{name}: {set(tests) - there}"


@pytest.mark.parametrize("name", [FENCE, RACES])
def test_the_rows_of_git_hold_over_http_too(name: str) -> None:
    assert '@pytest.fixture(params=["file", "http"])' in (ROOT / f"{name}.py").read_text()
