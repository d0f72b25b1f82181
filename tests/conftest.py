"""How thoroughly the property tests search: ``dev`` in every run.

``mutants`` is for ``make mutants``, which runs them thousands of times.

Each is the same search in every run (a failure is a failure for everybody), and nothing is kept on disk.
"""

import gc
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis.configuration import set_hypothesis_home_dir

LONG = (
    *("whole/test_fleet_page", "test_what_lands_is_green_and_nothing_is_lost[local]"),
    *("whole/test_fleet_quota", "whole/test_fleet_landing.py::test_what_a_dead", "fleet/test_hub_three"),
    *("whole/test_fleet_pane.py::test_an_agent", "whole/test_fleet_pane.py::test_a_person"),
    *("fleet/test_crowd", "daemon/fleet/test_quota.py::test_after_any_faults"),
    "upgrades/test_upgrades.py::test_living_runs_of_0_1_0",
    *("whole/test_fleet_landing.py::test_two_items_land", "whole/test_fleet_pane.py::test_a_ralph_elsewhere"),
    *("whole/test_fleet.py::test_what_belongs", "whole/test_fleet.py::test_a_remote_that_takes_branches"),
    *("test_each_of_many_contests_has_one_winner[file", "whole/test_door.py::test_the_runs_of_the"),
    *("hostile_agent_ends_no_night[another", "test_box.py::test_commits_and_installs_work_inside[True"),
    "test_sandbox.py::test_commits_and_installs_work_at_the_level_write",
    *(
        "test_weakened_tests.py::test_no_file_is_lost_wherever",
        "whole/test_fleet.py::test_an_item_is_worked_on",
        "whole/test_fleet_torture.py::test_no_fault_of_a_fleet",
        "test_landing_torture.py::test_what_lands_is_green",
        "test_landing.py::test_it_lands_once_wherever",
        "test_rewritten.py::test_a_deleted_branch_comes_back_wherever",
    ),
    *("fleet/test_landing.py::test_another_base_waits", "fleet/test_landing.py::test_a_loop_repairs"),
    *("fleet/test_landing.py::test_a_drained", "fleet/test_landing.py::test_rules_land"),
    *("test_fence_races.py::test_a_chaos", "test_landing_tests.py::test_setup_and_checks_survive"),
    *("test_follow.py::test_without_a_guard_it_is_merged", "test_follow.py::test_uncommitted_work_is_left"),
    *("test_landing_faults.py::test_an_undo_names", "test_landing_faults.py::test_two_repositories"),
    *("test_rewritten.py::test_what_a_mixed_reset", "test_schedule.py::test_a_loop_that_finishes_its_work"),
    *("test_gate_failpoints.py::test_a_bad_commit", "test_landing.py::test_several_green_branches"),
    *("test_many.py::test_fifty_runs", "fleet/test_landing.py::test_a_machine_waits_for_its_turn"),
)
"""What narrow tests show too with whole machines, or another form of the same test: `make test-long`."""
SAMPLED = (
    *("wherever_the_daemon_dies[", "that_is_cut_off", "dies_in_the_middle[", "dies_before_it_answers["),
    "a_killed_",
    *("goes_on_over_a_broken_file[", "a_way_to_weaken_tests", "an_honest_refactor", "in_one_prompt["),
    *("whatever_replaces_the_list", "a_wrong_clock_costs", "record_is_whole_again_from"),
    *("a_branch_that_is_not_checked_out_or_gone", "what_a_person_lands_says_that_it_weakens"),
    *("git/test_fence.py", "daemon/fleet/test_landing.py", "sim/test_nights.py"),
)
"""Of the forms of these, `make test` takes every third, `make matrix` and `make test-long` all."""
WAITING = (
    "whole/test_fleet",
    "whole/test_watch",
    "whole/test_reports",
    "whole/test_state_files",
    "whole/",
    "tests/loop/",
)

gc.disable()  # until all tests are collected: what is collected stays, and looking through it takes seconds

# The `python3` of a version manager is a shell script that takes 0.1 s of CPU at each of thousands of starts.
if (_python := shutil.which("python3")) and Path(_python).read_bytes()[:2] == b"#!":
    os.environ["PATH"] = os.pathsep.join([f"{sys.base_prefix}/bin", os.environ["PATH"]])

# What a shell starts in the background ignores SIGINT, and so would each program that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No directory can be made there: what hypothesis would keep beside its database it computes anew.
set_hypothesis_home_dir(Path(os.devnull) / "hypothesis")

_DEV = settings(
    max_examples=50,
    stateful_step_count=40,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),  # to explain traces each line, and takes minutes
    deadline=None,
    derandomize=True,
    database=None,
)
settings.register_profile("dev", _DEV)
settings.register_profile("ci", _DEV, max_examples=100, stateful_step_count=50)
settings.register_profile(
    "mutants", _DEV, max_examples=15, stateful_step_count=20, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("dev")


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is one hour ahead in winter, ``CET``."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that wait for time to pass, the longest first: the others fill the gaps."""
    if os.environ.get("LONG") != "1":
        forms = Counter[str]()
        for item in items:
            name, is_sampled = item.nodeid.partition("[")[0], any(path in item.nodeid for path in SAMPLED)
            if (is_sampled and forms[name] % 3) or any(path in item.nodeid for path in LONG):
                item.add_marker(pytest.mark.skip(reason="make test-long"))
            forms[name] += 1
    items.sort(key=lambda item: next((rank for rank, path in enumerate(WAITING) if path in item.nodeid), 99))


def pytest_collection_finish() -> None:
    """Collect garbage again, but seldom, and without the tests: saves a seventh of the CPU."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()
