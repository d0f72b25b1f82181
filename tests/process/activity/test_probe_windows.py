"""What follows from two snapshots of a tree: what was done between them, counted once (H2, H3)."""

from collections.abc import Mapping

from ralphd.core.stall_detector import Changes, Window
from ralphd.process.activity.probe import TreeSnapshot, window
from ralphd.process.activity.proc_stats import TICKS_PER_S, Identity, ProcStats

SHIM, LEADER, CHILD, GRANDCHILD = 10, 11, 12, 13
BEFORE, NOW = 1000, 4000
"""When the snapshots are taken, in ticks since boot."""


def figures(
    pid: int,
    parent: int,
    *,
    started: int = 1,
    cpu: int = 0,
    faults: int = 0,
    moved: int | None = 0,
    switches: Mapping[int, int] | None = None,
) -> ProcStats:
    """A process that has done this much since it began."""
    return ProcStats(Identity(pid, started), parent, "S", "name", cpu, faults, moved, switches)


def snapshot(
    ticks: int, *members: ProcStats, shim_faults: int = 0, received: Mapping[int, int] | None = None
) -> TreeSnapshot:
    """A tree at a moment."""
    return TreeSnapshot(ticks / 100, ticks, shim_faults, {each.identity: each for each in members}, received)


def between(before: TreeSnapshot, now: TreeSnapshot) -> Window:
    """The window between two snapshots, 30 s apart."""
    return window(before, now, Changes())


def test_what_a_child_moved_before_it_was_reaped_is_taken_off_its_parents_figures() -> None:
    before = snapshot(BEFORE, figures(LEADER, SHIM, cpu=5), figures(CHILD, LEADER, cpu=70, moved=50_000))
    now = snapshot(NOW, figures(LEADER, SHIM, cpu=5 + 70 + 3, moved=50_100, faults=300))

    seen = between(before, now)

    assert (seen.io_bytes, seen.cpu_s, seen.new_processes) == (100, 3 / TICKS_PER_S, 0)


def test_what_two_generations_moved_is_taken_off_whoever_is_left() -> None:
    leader, child = figures(LEADER, SHIM), figures(CHILD, LEADER, moved=1000)
    before = snapshot(BEFORE, leader, child, figures(GRANDCHILD, CHILD, moved=5000))
    now = snapshot(NOW, figures(LEADER, SHIM, moved=6000, faults=300))

    assert between(before, now).io_bytes == 0


def test_a_child_that_was_reaped_by_nobody_leaves_its_parent_no_debt_to_others() -> None:
    before = snapshot(BEFORE, figures(LEADER, SHIM), figures(CHILD, LEADER, moved=9000), figures(99, SHIM))
    now = snapshot(NOW, figures(LEADER, SHIM, moved=10), figures(99, SHIM, moved=500))

    assert between(before, now).io_bytes == 500


def test_a_process_that_a_walk_overlooked_is_neither_new_nor_has_it_just_done_all_it_ever_did() -> None:
    before = snapshot(BEFORE, figures(LEADER, SHIM, switches={LEADER: 0}))
    overlooked = figures(CHILD, LEADER, started=BEFORE - 1, cpu=500, moved=10**9, switches={CHILD: 10**6})
    now = snapshot(NOW, figures(LEADER, SHIM, switches={LEADER: 0}), overlooked)

    seen = between(before, now)

    assert (seen.new_processes, seen.io_bytes, seen.cpu_s, seen.switches_per_s) == (0, 0, 0.0, 0.0)


def test_a_pid_that_was_used_again_is_a_new_process() -> None:
    before = snapshot(BEFORE, figures(LEADER, SHIM), figures(CHILD, LEADER, moved=10**6))
    again = figures(CHILD, LEADER, started=NOW - 1, moved=40)
    now = snapshot(NOW, figures(LEADER, SHIM, moved=10**6), again)

    seen = between(before, now)

    assert (seen.new_processes, seen.io_bytes) == (1, 40)


def test_page_faults_of_the_reaped_count_only_where_nobody_known_has_gone() -> None:
    before = snapshot(BEFORE, figures(LEADER, SHIM), figures(99, LEADER))
    passed = snapshot(NOW, figures(LEADER, SHIM, faults=100), figures(99, LEADER), shim_faults=90)
    known = snapshot(NOW, figures(LEADER, SHIM, faults=100), shim_faults=90)

    assert between(before, passed).new_processes == 2
    assert between(before, known).new_processes == 0


def test_what_may_not_be_read_is_unknown_and_hides_nothing_else() -> None:
    readable = figures(LEADER, SHIM, moved=0, switches={LEADER: 0})
    closed = figures(CHILD, LEADER, moved=None)
    opened = figures(CHILD, LEADER, moved=10**6, switches={CHILD: 10**6})

    assert between(snapshot(BEFORE, closed), snapshot(NOW, closed)).io_bytes is None
    assert between(snapshot(BEFORE, closed), snapshot(NOW, closed)).switches_per_s is None
    assert between(snapshot(BEFORE, readable, closed), snapshot(NOW, readable, opened)).io_bytes == 0


def test_a_tree_that_is_not_there_tells_nothing() -> None:
    seen = between(snapshot(BEFORE), snapshot(NOW))

    assert seen == Window(elapsed_s=30.0)


def test_a_socket_that_was_opened_since_has_received_all_its_bytes_since() -> None:
    before = snapshot(BEFORE, received={1: 1000, 2: 50})
    now = snapshot(NOW, received={1: 1500, 3: 70})

    assert between(before, now).received_bytes == 570
    assert between(before, snapshot(NOW)).received_bytes is None
    assert between(snapshot(BEFORE), now).received_bytes is None


def test_a_thread_that_is_new_has_made_its_switches_since_and_one_that_is_gone_takes_none_away() -> None:
    before = snapshot(BEFORE, figures(LEADER, SHIM, switches={1: 100, 2: 500}))
    now = snapshot(NOW, figures(LEADER, SHIM, switches={1: 200, 3: 201}))

    assert between(before, now).switches_per_s == 10.0


def test_a_timer_of_100_ms_never_exceeds_ten_a_second_wherever_the_looks_fall() -> None:
    before = TreeSnapshot(0.0, 0, 0, {Identity(1, 1): figures(1, SHIM, switches={1: 0})}, {})
    now = TreeSnapshot(1.005, 100, 0, {Identity(1, 1): figures(1, SHIM, switches={1: 11})}, {})

    assert (between(before, now).switches_per_s or 0.0) < 10
