"""How thoroughly the property tests search: ``dev`` in every run.

``mutants`` is for ``make mutants``, which runs them thousands of times.

Each is the same search in every run (a failure is a failure for everybody), and nothing is kept on disk.
"""

import gc
import os
import re
import shutil
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis.configuration import set_hypothesis_home_dir

LONG = """
    daemon/fleet/test_quota.py::test_after_any_faults fleet/test_crowd fleet/test_hub_three
    fleet/test_landing.py::test_a_base_without_tests fleet/test_landing.py::test_a_dead_machine
    fleet/test_landing.py::test_a_drained fleet/test_landing.py::test_a_loop_repairs
    fleet/test_landing.py::test_a_machine fleet/test_landing.py::test_a_pause_does
    fleet/test_landing.py::test_a_remote_that_refuses fleet/test_landing.py::test_an_item_on_hold
    fleet/test_landing.py::test_another_base_waits fleet/test_landing.py::test_rules_land
    hostile_agent_ends_no_night[another test_door.py::test_the_run_of_a
    test_each_of_many_contests_has_one_winner[file test_fence_races.py::test_a_chaos
    test_gate_failpoints.py::test_a_bad_commit test_habits.py::test_build_o
    test_landing.py::test_it_lands_once_wherever test_landing.py::test_several_green_branches
    test_landing_torture.py::test_what_lands_is_green test_landing_two_daemons.py::test_a_red_branch
    test_many.py::test_fifty_runs upgrades/test_upgrades.py::test_living_runs_of_0_1_0
    whole/test_fleet.py::test_an_item_is_worked_on whole/test_fleet_landing.py::test_two_items_land
    whole/test_fleet_page whole/test_fleet_pane.py::test_a_ralph_elsewhere whole/test_fleet_quota
    whole/test_fleet_torture.py::test_no_fault_of_a_fleet
""".split()  # noqa: SIM905 - a list has too many lines
"""What narrow tests show too with whole machines, or another test of the same part: `make test-long` only."""
SAMPLED = """
    a_branch_never_costs a_killed_ a_planted_command_is_ a_short_command_loads a_way_to_weaken_tests
    a_wrong_clock_costs commits_that_were_reset_away dies_before_it_answers[ dies_in_the_middle_leaves
    git/test_fence.py git/test_guard_table.py goes_on_over_a_broken_file[ in_place_of_a_file
    is_killed_after_any sim/test_nights.py target_that_moves_meanwhile that_is_cut_off
    values_of_another_type_make_a_page was_cut_off[ whatever_replaces_the_list whoever_is_killed
    without_a_hello_every_other
""".split()  # noqa: SIM905 - a list has too many lines
"""Of the forms of these, `make test` takes every fifth, `make test-long` the others."""
ROOT = Path(__file__).parents[1]
TABLES = ("docs/promises.md", "docs/faults.md", "docs/failpoints.md")
REQUIREMENTS = "tests/requirements.md"
STORIES = ("whole/test_demo", "whole/test_docs", "whole/test_go_to_bed", "whole/test_it_stopped")
"""What is promised on other pages: as long as they are true, all of them."""
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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes long; everything else with ``LONG=only``, nothing with ``LONG=1`` or of one file.

    Begin with the tests that wait for time to pass, the longest first: the others fill the gaps.
    """
    if {Path(word).name for word in config.args} == {"tests"}:
        names = "\n".join(item.nodeid for item in items)
        assert not (stale := [word for word in (*LONG, *SAMPLED) if word not in names]), f"no test is {stale}"
    long, is_one_file = os.environ.get("LONG"), any(".py" in word for word in config.args)
    left_out = set() if long == "1" or is_one_file else _left_out(items)
    if long == "only":
        config.hook.pytest_deselected(items=[item for item in items if item not in left_out])
        items[:] = [item for item in items if item in left_out]
    for item in left_out if long is None else ():
        item.add_marker(pytest.mark.skip(reason="make test-long"))
    items.sort(key=lambda item: next((rank for rank, path in enumerate(WAITING) if path in item.nodeid), 99))


def _left_out(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return what `make test` leaves out.

    Of the tests with whole machines it runs the stories, those that a table names, the first of each
    requirement, and a tenth of the others; but none of ``LONG``, also where a table names it.
    """
    named = {name for page in TABLES for name in re.findall(r"test_\w+", (ROOT / page).read_text())}
    for row in (ROOT / REQUIREMENTS).read_text().splitlines():
        named.update(re.findall(r"tests/whole/[\w/.]+::(test_\w+)", row)[:1])
    others = defaultdict[str, dict[str, None]](dict)
    forms, left_out = Counter[str](), set[pytest.Item]()
    for item in items:
        name, is_sampled = item.nodeid.partition("[")[0], any(path in item.nodeid for path in SAMPLED)
        path, _, function = name.partition("::")
        is_other = (
            "tests/whole/" in path and function not in named and not any(each in path for each in STORIES)
        )
        if is_other:
            others[path].setdefault(function)
        is_passed_over = is_other and list(others[path]).index(function) % 10
        if is_passed_over or (is_sampled and forms[name] % 5) or any(path in item.nodeid for path in LONG):
            left_out.add(item)
        forms[name] += 1
    return left_out


def pytest_collection_finish() -> None:
    """Collect garbage again, but seldom, and without the tests: saves a seventh of the CPU."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()
