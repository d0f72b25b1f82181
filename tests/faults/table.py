"""The faults of a machine: how each is made, what was seen, and the tests: ``docs/faults.md``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.pages import ROOT

CALLS, HANGS = "tests/faults/test_calls.py", "tests/faults/test_hangs.py"
MACHINE, AROUND = "tests/faults/test_machine.py", "tests/faults/test_surroundings.py"
STATE = "tests/whole/test_state_files.py"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault. ``tests`` are files, each with the beginning of a test's name."""

    what: str
    how: str
    seen: str
    tests: Sequence[tuple[str, str]]


TRIED = "a problem that names the cause, once; the work is tried again, and done when the fault ends"

FAULTS = (
    Fault(
        "disk full, at each file that the daemon writes",
        "a tmpfs of 4 MiB; `ENOSPC` for the files of one name",
        TRIED,
        ((STATE, "test_a_full_disk_neither"), (CALLS, "test_a_file_that_cannot")),
    ),
    Fault(
        "read-only state",
        "a mount that becomes read-only; `EROFS` for the files of one name, and for all",
        TRIED,
        (
            (CALLS, "test_a_file_that_cannot"),
            (AROUND, "test_a_read_only"),
            (AROUND, "test_a_state_directory_that_becomes"),
        ),
    ),
    Fault(
        "a disk that fails (EIO)",
        "`EIO` for files of the state, the runs, the working directory, `/proc`",
        f"{TRIED}. A ralph whose files cannot be read at a start is loaded later",
        ((CALLS, "test_a_file_that_cannot"), (CALLS, "test_files_that_cannot")),
    ),
    Fault(
        "no inodes",
        "a tmpfs with `nr_inodes=120`",
        "the next run waits for room; then as for a full disk",
        ((AROUND, "test_a_state_directory_without_inodes"),),
    ),
    Fault(
        "no descriptors",
        "`RLIMIT_NOFILE` of the daemon; `EMFILE` in its calls",
        f"{TRIED}; clients wait for a connection",
        (
            ("tests/whole/test_descriptors.py", "test_clients_wait"),
            (CALLS, "test_files_that_cannot"),
        ),
    ),
    Fault(
        "no memory",
        "`RLIMIT_AS` of daemon and shim; `ENOMEM` in calls",
        "the daemon continues. A shim may die: then its run is lost, and is followed by one",
        ((MACHINE, "test_a_daemon_without_memory"), (MACHINE, "test_a_shim_without_memory")),
    ),
    Fault(
        "no processes, no threads",
        "`pids.max` of a control group; `EAGAIN` for new threads",
        "the next run waits (`resources`) and starts when it can",
        ((MACHINE, "test_no_process"), (CALLS, "test_no_thread")),
    ),
    Fault(
        "clock set forward, and back",
        "another `CLOCK_REALTIME` in the daemon",
        "a wait is compared with the clock every 30 s; no run ends",
        (
            (MACHINE, "test_a_clock_that_is_set"),
            (MACHINE, "test_a_wait_is_over"),
            (MACHINE, "test_a_clock_that_went"),
        ),
    ),
    Fault(
        "suspend",
        "another `CLOCK_BOOTTIME` in the daemon",
        "the time asleep counts for no stall",
        ((MACHINE, "test_a_sleep"),),
    ),
    Fault(
        "`/proc` unreadable",
        "`EACCES` and `EIO` below `/proc` in the daemon",
        "no end is lost; the next run waits",
        ((AROUND, "test_processes_that_cannot"), (CALLS, "test_files_that_cannot")),
    ),
    Fault(
        "control group gone",
        "its processes are moved, the group is removed (cgroup v2)",
        "the run is adopted, and its end is the true one",
        ((AROUND, "test_a_control_group"),),
    ),
    Fault(
        "`events.db` corrupt, or locked",
        "bytes overwritten under the daemon; `BEGIN EXCLUSIVE` of another process",
        "set aside, and a new one; events wait in memory until the lock is free",
        ((MACHINE, "test_events_that_break"), (MACHINE, "test_events_that_another")),
    ),
    Fault(
        "lock stolen",
        "the lock file is removed and locked by another process",
        "the lock on the directory keeps a second daemon out",
        ((MACHINE, "test_a_stolen_lock"),),
    ),
    Fault(
        "working directory unmounted",
        "`umount -l` under a run",
        "a problem; nothing starts or is restored in its place, until it is mounted again",
        ((AROUND, "test_an_unmounted"),),
    ),
    Fault(
        "a file system that hangs",
        "the daemon's calls below a working directory do not return",
        "a problem of that ralph, which can be stopped; others are supervised; a daemon starts and ends",
        (
            *((HANGS, "test_a_directory_that_hangs"), (HANGS, "test_a_daemon_starts")),
            (HANGS, "test_a_ralph_whose_directory"),
        ),
    ),
    Fault(
        "network black hole",
        "a webhook's receiver that accepts and never answers",
        "no ralph waits for it",
        ((AROUND, "test_a_receiver"),),
    ),
    Fault(
        "no name service",
        "`EAI_AGAIN` for each name",
        "deliveries wait, and arrive later",
        ((AROUND, "test_a_webhook_that_no_name"),),
    ),
    Fault(
        "a part is killed for memory",
        "`memory.max` of a control group with the command, the shim, or the daemon",
        "the true signal of the command, a lost run for the shim; one run follows, no run ends with a daemon",
        (
            (MACHINE, "test_a_part_that_the_kernel"),
            (MACHINE, "test_a_daemon_that_the_kernel"),
            ("tests/whole/test_limits.py", "test_out_of_memory"),
        ),
    ),
    Fault(
        "a part is stopped for an hour",
        "SIGSTOP of daemon, shim, command, and another clock",
        "it continues; no end is lost",
        ((AROUND, "test_a_part_that_is_stopped"), ("tests/whole/test_stop.py", "test_a_stopped_shim")),
    ),
    Fault(
        "restart storm",
        "15 starts of the daemon, most of them killed while they adopt; 8 kills under systemd; its watchdog",
        "the run is adopted, once",
        (
            (AROUND, "test_many_quick_starts"),
            ("tests/systemd/under_systemd.py", "test_however_often"),
            ("tests/systemd/under_systemd.py", "test_a_frozen_daemon"),
            ("tests/systemd/under_systemd.py", "test_a_second_daemon"),
        ),
    ),
    Fault(
        "log flood",
        "100 MB/s from one ralph",
        "no other ralph waits",
        ((AROUND, "test_a_flood"), ("tests/whole/test_output.py", "test_output_without_end")),
    ),
    Fault(
        "git gc and repack meanwhile",
        "both, again and again, beside three judged commits",
        "each verdict is right, no commit is lost",
        ((AROUND, "test_git_gc"),),
    ),
    Fault(
        "agent upgraded meanwhile",
        "the file of the command is replaced",
        "the run continues; the next one uses the new file",
        ((MACHINE, "test_a_command_that_is_replaced"),),
    ),
    Fault(
        "Python upgraded meanwhile",
        "the daemon's interpreter is moved away, and back",
        "the run continues; the next one waits for the interpreter",
        ((MACHINE, "test_an_interpreter"),),
    ),
    Fault(
        "locale and zone changed",
        "`LC_ALL`, `TZ` of the next daemon",
        "the same names, times in UTC",
        ((MACHINE, "test_another_locale"),),
    ),
)

INTRODUCTION = """\
# Faults of the machine

Written by `make docs` from `tests/faults/table.py`; a test fails when it is stale. Do not edit it.

In each, no work is lost, nothing that makes progress is killed, no status is invented, `ralphctl status`
and an event name the problem once, and all is well when the fault ends. `make faults` runs them; what takes
a mount, root, or a C compiler is skipped without. Where a fault is made "in the calls" or "in the daemon",
`tests/faults/faults.c` is preloaded into it.

| fault | made by | seen | tests |
| --- | --- | --- | --- |
"""


def faults_page() -> str:
    """The page."""
    tests = [", ".join(f"`{path}::{name}`" for path, name in _full(each)) for each in FAULTS]
    rows = zip(FAULTS, tests, strict=True)
    return INTRODUCTION + "".join(f"| {f.what} | {f.how} | {f.seen} | {by} |\n" for f, by in rows)


def _full(fault: Fault) -> list[tuple[str, str]]:
    """The tests with their whole names. Fails for one that is not there."""
    found = []
    for path, beginning in fault.tests:
        lines = Path(ROOT, path).read_text().splitlines()
        names = [line.split("def ")[1].split("(")[0] for line in lines if f"def {beginning}" in line]
        assert names, (path, beginning)
        found.append((path, names[0]))
    return found
