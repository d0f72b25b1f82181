"""The process beside each run: it holds the output, knows the tree and records the exit status (S1 to S7).

``spawn`` starts one per run with ``python -I -S -E`` and hands it the run's directory and some descriptors:
the run's lock, the pipe on which to report the start, the working directory's lock. ``intent.json`` says what
to start. The shim outlives the daemon unless it is tied (P5): then it gets a pipe, too, and ends the run at
the pipe's end of file. The upper part, which reads ``/proc`` and sends signals, is shared with ``tree``.
"""

# Theory of operation
#
# A daemon that owns its children's pipes kills them when it dies: their next write fails. Their exit statuses
# die with it too, since only a parent can wait for a process. So each run has a small parent of its own, as
# with containerd and conmon, and the daemon may come and go. All rules below follow from one aim: whatever
# dies, and at whatever line, exactly one of these holds, and a later daemon can tell which:
#
#   1. the lock is held: the run lives or is starting; run.json says which processes it consists of;
#   2. the lock is free, exit.json is there: the run is over, its tree is gone, its log is complete;
#   3. the lock is free, no exit.json: we were killed. The command died with us (PDEATHSIG), the rest of its
#      tree is swept by the daemon, by control group and cookie. The run is lost: no exit code, never 0.
#
# Hence the order of writes. run.json is written while the command waits at a gate, and gets its name when
# the command was executed. exit.json gets its name last, after the sweep, the drain and the fsync of the
# log: its existence is the statement, so it must not exist before all of it is true. Room for it is reserved
# before the command starts, since a command that fills the disk must not hide how it ended. Where the mount
# has become read-only it keeps the name exit.json.tmp, and counts as long as we exit with 0.
#
# The locks (flocks on inherited descriptors) are never taken here: the daemon took them, and we share its
# open file description. A shim that locked for itself would leave a moment in which both look free.
#
# There is one thread, because PR_SET_PDEATHSIG fires when the forking *thread* ends, and because a fork of a
# process with threads can deadlock. There is one loop, around poll(). Signals do nothing but note their
# number and wake the loop, so nothing below runs concurrently with anything else.
#
# The installation may be upgraded or removed under a running shim: everything needed is imported at the
# start, from the standard library only. The modules json, signal and contextlib are avoided, since with re,
# enum and more they would be a fifth of this process, and there is one per run.

import ctypes
import errno
import fcntl
import os
import resource  # os.wait4 would import it when the command ends
import select
import sys
import time
from _json import encode_basestring_ascii, make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, NoReturn

    Still = Callable[[int, Any], bool]
    Swept = dict[int, str]  # the processes that were killed, with their command lines
    Find = Callable[[int, set[int], Swept], bool]
    Spared = Callable[[int], bool] | None
else:
    import _signal

# How this file is started: isolated from its surroundings, and imported rather than run as a script, so that
# its bytecode is cached (S1).
FLAGS = ("-I", "-S", "-E", "-X", "utf8", "-c")
FORMAT_VERSION = 1
SHIM_VERSION = 1
COOKIE = "RALPH_RUN_ID"
TIED = "tied="
SANDBOX, WRITABLE = "RALPH_SANDBOX", "RALPH_SANDBOX_WRITABLE"
BOX = "box"

PIPE_BYTES, READ_BYTES = 1 << 16, 1 << 17  # what a pipe holds; what it holds of a flood
PART_BYTES = 1 << 14
MIN_SEGMENT_BYTES = 1 << 20
RESERVE_BYTES = 1 << 14
HEAD_BYTES = len(b"2026-11-21T20:00:00.000000000Z stdout F ")
PARTIAL_AFTER_S = 0.2
DRAIN_S = 2.0
SWEEP_S = 10.0
FREEZE_S = 2.0
PAUSE_S = 0.002
OOM_SCORE_ADJ = b"500"
REMOVE_S = 0.5

CAUGHT = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2, _signal.SIGCHLD)
IGNORED = (_signal.SIGHUP, _signal.SIGPIPE, _signal.SIGTSTP, _signal.SIGTTIN, _signal.SIGTTOU)
WRAPPED_IGNORE = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGUSR1, _signal.SIGUSR2)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
CLONE3, CLONE_INTO_CGROUP = 435, 1 << 33  # from Linux 5.7; a container may refuse clone3
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446  # on all architectures
LANDLOCK_VERSION = 1
LANDLOCK_SCOPED = 3  # abstract Unix sockets, and signals
LANDLOCK_PATH_BENEATH = 1
LANDLOCK_CHANGES = 0xFFF2  # write, remove, make, refer, truncate, ioctl on devices: all but read and execute
LANDLOCK_FILE_CHANGES = 0xC002  # those of them that a rule on a file may name
LANDLOCK_NODES = 0x840  # make device nodes: root could write to a disk through its own


# --- /proc -----------------------------------------------------------------------------------------------


def read_bytes(path: str) -> bytes:
    """Return the contents of a small file. Raise OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(descriptor, READ_BYTES), b""))
    finally:
        os.close(descriptor)


def boot_id() -> str:
    """Return the id of this boot: pids and start times of another one mean nothing (S8)."""
    return read_bytes("/proc/sys/kernel/random/boot_id").decode().strip()


def process_stat(pid: int) -> "tuple[str, int, int, str, list[bytes]] | None":
    """Return state letter, parent, start time in ticks since boot, name, and all fields; None for no process.

    The fields are those of proc_pid_stat(5) from the third on.
    """
    try:
        data = read_bytes(f"/proc/{pid}/stat")
    except OSError:
        return None
    before, _, after = data.rpartition(b")")  # the name may hold anything, brackets included
    fields = after.split()
    if len(fields) < 20:
        return None
    name = before.partition(b"(")[2].decode(errors="replace")
    return fields[0].decode(), int(fields[1]), int(fields[19]), name, fields


def arguments(pid: int) -> bytes:
    """Return the arguments of a process, each ended by a null byte; empty if it has none or is gone."""
    try:
        return read_bytes(f"/proc/{pid}/cmdline")
    except OSError:
        return b""


def command_line(pid: int) -> str:
    """Return a process's command for people, up to 200 characters; without one, its name in brackets."""
    text = arguments(pid).replace(b"\0", b" ").decode(errors="replace").strip()
    if not text and (stat := process_stat(pid)):
        text = f"[{stat[3]}]"
    return text[:200]


def children(pid: int) -> "list[int]":
    """Return the children of a process. While it forks, or its threads end, some may be missing."""
    if not _HAS_CHILDREN_FILES:
        return [child for child in all_pids() if (stat := process_stat(child)) and stat[1] == pid]
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found = []
    for thread in threads:
        try:
            listed = read_bytes(f"/proc/{pid}/task/{thread}/children")
        except OSError:  # this thread has ended; the others' children still count
            continue
        found += listed.split()
    return [int(child) for child in found]


_HAS_CHILDREN_FILES = os.path.exists("/proc/thread-self/children")  # CONFIG_PROC_CHILDREN


def below(root: int, limit: int = 1 << 22) -> "Iterator[int]":
    """Yield the processes below ``root``, zombies included; ``limit`` or a few more.

    A walk down may miss some that are being forked.
    """
    known, queue = {root}, [root]
    while queue and len(known) <= limit:
        fresh = [child for child in children(queue.pop()) if child not in known]
        known.update(fresh)
        queue += fresh
        yield from fresh


def all_pids() -> "list[int]":
    """Return every pid of the machine."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def carries(pid: int, run_id: str, cookie: str = COOKIE) -> bool:
    """Return True if a process was started with the run's cookie in its environment (S7)."""
    try:
        return f"\0{cookie}={run_id}\0".encode() in b"\0" + read_bytes(f"/proc/{pid}/environ") + b"\0"
    except OSError:  # gone, or another user's
        return False


def carriers(run_id: str, cookie: str = COOKIE) -> "list[int]":
    """Return the living processes that carry the run's cookie, except this one."""
    return [pid for pid in all_pids() if pid != os.getpid() and carries(pid, run_id, cookie)]


def living(pids: "Iterable[int]") -> "dict[int, str]":
    """Return the commands of those processes that live, by pid; a zombie does not."""
    alive = [pid for pid in pids if (stat := process_stat(pid)) and stat[0] not in "ZX"]
    return {pid: command_line(pid) for pid in alive}


# --- signals, to nobody else -----------------------------------------------------------------------------


def signal_if(pid: int, number: int, still: "Still") -> bool:
    """Send a signal if ``still`` holds for the very process that gets it; return True if it was sent.

    ``still`` gets the pid and what ``process_stat`` returned for it.
    """
    if pid <= 1:
        return False
    # Pin, then check, then signal through the pin. The pid may be reused between any two system calls (S8);
    # a check before the pin, or a kill() by number after it, could hit the new owner.
    try:
        pinned = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        stat = process_stat(pid)
        if stat is None or stat[0] in "ZX" or not still(pid, stat):  # a zombie has nothing left to signal
            return False
        _signal.pidfd_send_signal(pinned, number)
        return True
    except OSError:
        return False
    finally:
        os.close(pinned)


def signal_below(
    roots: "Iterable[int]", number: int, done: "set[int]", swept: "Swept", spared: "Spared" = None
) -> bool:
    """Signal all processes below ``roots`` that are not in ``done``; return True if there was any.

    Add each to ``done`` and, with its command, to ``swept``. ``spared`` excludes children of ours, with all
    that is below them.
    """
    # Level by level, each process as soon as it is seen, and not list first and signal then: a program that
    # forks and exits endlessly ("hopper") has moved on by the time a list is complete.
    queue, seen, fresh, me = list(roots), set[int](), False, os.getpid()
    while queue:
        parent = queue.pop(0)
        for pid in children(parent):
            if pid in seen or (spared is not None and parent == me and spared(pid)):
                continue
            seen.add(pid)
            queue.append(pid)
            if pid not in done and _signal_child(pid, parent, number):
                done.add(pid)
                fresh = True
                if pid not in swept:
                    swept[pid] = command_line(pid)
    return fresh


def _signal_child(pid: int, parent: int, number: int) -> bool:
    me = os.getpid()
    if parent != me:
        # Still this parent's child, or ours: the parent may have died since, which makes us the parent.
        return signal_if(pid, number, lambda _, stat: stat[1] in (parent, me))
    # A child of ours keeps its pid until we reap it, and we are not reaping now: kill() by number is safe,
    # and a check first would be too slow for a hopper.
    try:
        os.kill(pid, number)
    except OSError:
        return False
    stat = process_stat(pid)
    return stat is not None and stat[0] not in "ZX"


def signal_each(pids: "list[int]", number: int, done: "set[int]", swept: "Swept", still: "Still") -> bool:
    """Do the same for ``pids`` that ``still`` holds for, and for what is below them."""
    fresh = False
    for pid in pids:
        name = command_line(pid)
        if pid not in done and signal_if(pid, number, still):
            done.add(pid)
            swept.setdefault(pid, name)
            fresh = True
    return signal_below(pids, number, done, swept) or fresh


def signal_carriers(run_id: str, number: int, done: "set[int]", swept: "Swept", cookie: str = COOKIE) -> bool:
    """Do the same for all processes that carry the run's cookie."""
    pids = carriers(run_id, cookie)
    return signal_each(pids, number, done, swept, lambda pid, _: carries(pid, run_id, cookie))


def _started_at(ticks: int) -> "Still":
    return lambda _, stat: stat[2] == ticks


def end_all(find: "Find", is_over: "Callable[[], bool]", swept: "Swept", deadline: float) -> bool:
    """Kill all processes that ``find`` signals, until ``is_over`` (S5); False if ``deadline`` came first.

    ``deadline`` is a moment of the monotonic clock.
    """
    # Killing what a scan finds does not end a tree that forks: the child of a killed process was not in the
    # scan, and there may always be one more. So the tree is frozen first. A stopped process cannot fork; once
    # a further scan finds nobody that is not stopped, the set is closed, and SIGKILL gets all of it. SIGSTOP
    # cannot be caught, and a process that a third party continues is met again in the next round.
    while True:
        stopped, frozen_by = set[int](), min(deadline, time.monotonic() + FREEZE_S)
        while find(_signal.SIGSTOP, stopped, swept) and time.monotonic() < frozen_by:
            pass
        frozen = [(pid, stat[2]) for pid in stopped if (stat := process_stat(pid))]
        killed = find(_signal.SIGKILL, set(), swept)
        # The first kills take parents away, and what was below them is no longer found there. Such a process
        # is known by its pid and start time; a later owner of the pid has another one.
        for pid, began in frozen:
            killed |= signal_if(pid, _signal.SIGKILL, _started_at(began))
        if is_over() and not killed:
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(PAUSE_S)


# --- control groups --------------------------------------------------------------------------------------


def cgroup_processes(leaf: str) -> "list[int]":
    """Return the processes in a control group and below it."""
    found: list[bytes] = []
    for folder, _, _ in os.walk(leaf):
        try:
            found += read_bytes(f"{folder}/cgroup.procs").split()
        except OSError:
            continue
    return [int(pid) for pid in found if pid != b"0"]  # 0: a process of another pid namespace


def kill_cgroup(leaf: str, swept: "Swept", meanwhile: "Callable[[], object]", deadline: float) -> bool:
    """Kill all processes in a control group; return True if it is empty. Call ``meanwhile`` until it is."""
    # cgroup.kill is atomic: no fork escapes it. The freeze before it serves only to list what is inside.
    try:
        _write(f"{leaf}/cgroup.freeze", b"1")
        frozen_by = min(deadline, time.monotonic() + FREEZE_S / 4)
        while not _has(leaf, b"frozen 1") and time.monotonic() < frozen_by:
            time.sleep(PAUSE_S / 4)
    except OSError:
        pass
    for pid in cgroup_processes(leaf):
        swept[pid] = command_line(pid)
    try:
        _write(f"{leaf}/cgroup.kill", b"1")
    except OSError:
        return not is_populated(leaf)
    while is_populated(leaf) and time.monotonic() < deadline:
        meanwhile()
        time.sleep(PAUSE_S / 4)
    return not is_populated(leaf)


def is_populated(leaf: str) -> bool:
    """Return True if a living process is in the control group, or below it."""
    return _has(leaf, b"populated 1")


def remove_cgroup(leaf: str) -> None:
    """Remove a control group and those below it, as far as they are empty."""
    # A process that has just died keeps its group busy for a moment longer than it populates it.
    until = time.monotonic() + REMOVE_S
    while True:
        for folder, _, _ in os.walk(leaf, topdown=False):
            _quietly(os.rmdir, folder)
        if not os.path.exists(leaf) or is_populated(leaf) or time.monotonic() > until:
            return
        time.sleep(PAUSE_S)


def _has(leaf: str, fact: bytes) -> bool:
    try:
        return fact in read_bytes(f"{leaf}/cgroup.events").splitlines()
    except OSError:
        return False


def _write(path: str, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CLOEXEC), "wb", buffering=0) as file:
        file.write(data)


# --- JSON, without the json module -----------------------------------------------------------------------


class _Scanner:
    strict, object_hook, object_pairs_hook = True, None, None
    parse_float, parse_int, parse_constant = float, int, float


_scan: "Any" = make_scanner(_Scanner())  # type: ignore[arg-type]  # the stub knows only json's own


def from_json(data: bytes) -> "Any":
    """Return the value of a JSON text. Raise ValueError for anything else."""
    try:
        return _scan(data.decode().strip(), 0)[0]
    except (StopIteration, SystemError) as error:  # the scanner finds no JSONDecodeError to raise
        raise ValueError("not JSON") from error


def to_json(value: object) -> str:
    """Return a value of dicts, lists, texts, numbers and None as JSON."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return str(encode_basestring_ascii(value))
    if isinstance(value, dict):
        return "{" + ", ".join(f"{to_json(str(key))}: {to_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(to_json, value)) + "]"
    return repr(value)


def rfc3339(moment_ns: int) -> str:
    """Return nanoseconds since the epoch as ``2026-11-21T20:00:00.000000Z``."""
    seconds, rest = divmod(moment_ns, 10**9)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest // 1000:06d}Z"


# --- the log ---------------------------------------------------------------------------------------------


class Stamp:
    """The present time in the form that begins each record, to the nanosecond."""

    def __init__(self) -> None:
        self._second, self._text = -1, ""

    def now(self) -> bytes:
        """Return ``2026-11-21T20:00:00.000000000Z``."""
        second, rest = divmod(time.time_ns(), 10**9)
        if second != self._second:  # strftime once a second: there may be thousands of reads in it
            self._second, self._text = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._text}.{rest:09d}Z".encode()


class Stream:
    """Turn the output of one stream into records, one per line (F4).

    A line without its end is held back, so that an echo of single characters does not make a record each.
    ``flush`` returns it as a part (``P``), at the latest at ``flush_at``; the next record continues it.
    """

    def __init__(self, name: bytes, stamp: Stamp) -> None:
        self._name, self._stamp, self._tail = name, stamp, b""
        self.flush_at: float | None = None

    def records(self, data: bytes) -> bytes:
        """Return the records of the data just read, with the present time."""
        head = self._stamp.now() + b" " + self._name
        data = self._tail + data
        end = data.rfind(b"\n") + 1
        body, tail = data[:end], data[end:]
        whole = self._lines(body, head) if body else b""
        if len(tail) > PART_BYTES:
            parts, tail = self._parts(tail, head)
            whole += parts
        self._tail = tail
        if not tail:
            self.flush_at = None
        elif whole or self.flush_at is None:  # a further piece of the same line does not put its time off
            self.flush_at = time.monotonic() + PARTIAL_AFTER_S
        return whole

    def flush(self) -> bytes:
        """Return what is held back, as a part."""
        tail, self._tail, self.flush_at = self._tail, b"", None
        return self._stamp.now() + b" " + self._name + b" P " + tail + b"\n" if tail else b""

    def _lines(self, body: bytes, head: bytes) -> bytes:
        full = head + b" F "
        # One replace() for the whole read, since a loop over lines cannot keep up with a command that prints
        # hundreds of MB. It works unless a line is longer than a record may be (S4).
        if not _has_long_line(body):
            return full + body[:-1].replace(b"\n", b"\n" + full) + b"\n"  # to count would cost twice as much
        records = []
        for line in body[:-1].split(b"\n"):
            parts, rest = self._parts(line, head)
            records += [parts, full, rest, b"\n"]
        return b"".join(records)

    def _parts(self, line: bytes, head: bytes) -> "tuple[bytes, bytes]":
        last = max(0, (len(line) - 1) // PART_BYTES * PART_BYTES)
        parts = [line[at : at + PART_BYTES] for at in range(0, last, PART_BYTES)]
        return b"".join(head + b" P " + part + b"\n" for part in parts), line[last:]


def _has_long_line(body: bytes) -> bool:
    # Jump from the last newline within a record's length to the next one: a few steps, whatever the lines.
    at = 0
    while len(body) - at > PART_BYTES + 1:
        at, before = body.rfind(b"\n", at, at + PART_BYTES + 1) + 1, at
        if at <= before:
            return True
    return False


class Log:
    """The numbered segments, ``run_bytes`` in all: the oldest is deleted, never the newest (F4, F5).

    A full disk must not stop the command, so what cannot be written is dropped, counted, and marked in its
    place once writing works again (S4).
    """

    def __init__(self, directory: str, run_bytes: int, stamp: Stamp) -> None:
        self._directory, self._stamp = directory, stamp
        self._run_bytes, self._segment_bytes = run_bytes, max(run_bytes // 8, MIN_SEGMENT_BYTES)
        self._sizes: dict[int, int] = {}
        self._number = 0
        self._descriptor = self._open(1)
        self._gap_bytes, self._gap_reason = 0, ""
        self.dropped_bytes = 0

    def write(self, records: bytes) -> None:
        """Append whole records."""
        while records:
            end = self._fitting(records)
            self._append(records[:end])
            records = records[end:]

    def close(self) -> None:
        """Mark a gap that is still open, if possible, and make the log durable."""
        if self._gap_bytes:
            self._append(b"")
        _quietly(os.fsync, self._descriptor)  # a disk that fails here must not hide how the command ended

    def _fitting(self, records: bytes) -> int:
        """Return how much goes into the current segment, which may be a new one afterwards."""
        room = self._segment_bytes - self._sizes[self._number]
        if len(records) <= room:
            return len(records)
        if end := records.rfind(b"\n", 0, max(room, 0)) + 1:
            return end
        if self._sizes[self._number]:
            try:
                descriptor = self._open(self._number + 1)
            except OSError:  # no room for a name: the segment grows instead
                return records.find(b"\n") + 1
            os.close(self._descriptor)
            self._descriptor = descriptor
            return self._fitting(records)
        return records.find(b"\n") + 1

    def _open(self, number: int) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path(number), flags, 0o600)
        self._number, self._sizes[number] = number, 0
        return descriptor

    def _append(self, records: bytes) -> None:
        gap = b""
        if self._gap_bytes:
            text = f"[ralphd] {self._gap_bytes} bytes of output lost here: {self._gap_reason}"
            gap = self._stamp.now() + b" stderr F " + text.encode() + b"\n"
        data, written = memoryview(gap + records), 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError as error:
            # Keep whole records only: cut off the half that fitted. After a gap's mark keep nothing, since
            # the mark names a count that has just grown.
            written = 0 if gap else records.rfind(b"\n", 0, written) + 1
            _quietly(os.ftruncate, self._descriptor, self._sizes[self._number] + written)
            self._drop(records[written:], error)
        else:
            self._gap_bytes = 0
        self._sizes[self._number] += written
        while len(self._sizes) > 1 and sum(self._sizes.values()) > self._run_bytes:
            oldest = min(self._sizes)
            del self._sizes[oldest]
            _quietly(os.unlink, self._path(oldest))

    def _drop(self, records: bytes, error: OSError) -> None:
        lost = 0
        # Count the command's bytes, newlines included, not our heads.
        for record in records.split(b"\n")[:-1]:
            lost += len(record) - HEAD_BYTES + record.startswith(b"F", HEAD_BYTES - 2)
        self._gap_bytes += lost
        self.dropped_bytes += lost
        self._gap_reason = os.strerror(error.errno or 0)

    def _path(self, number: int) -> str:
        return f"{self._directory}/log.{number:06d}"


# --- the run ---------------------------------------------------------------------------------------------


class Fault(Exception):
    """The command cannot be started: the errno, and the stage that failed."""


class Shim:
    """One run, from the fork of its command to its exit record."""

    def __init__(
        self, directory: str, intent: "Mapping[str, Any]", handed: "list[int]", tied: "int | None" = None
    ) -> None:
        self._directory, self._intent, self._handed, self._tied = directory, intent, handed, tied
        self._run_id = str(intent["run_id"])
        self._wrapper: list[str] = intent.get("wrapper") or []
        self._stamp = Stamp()
        self._log = Log(directory, int(intent["run_bytes"]), self._stamp)
        self._reserve = self._reserved()
        self._pending: set[int] = set()  # signals that came and are not yet acted upon
        self._leader = 0
        self._status: int | None = None
        self._cgroup: str | None = None
        self._is_inside = False
        self._sandbox, self._sandbox_reason = "none", str(intent.get("sandbox_reason", ""))
        self._streams: dict[int, Stream] = {}
        self._received_bytes = 0
        self._started_ns: int | None = None
        self._rusage: dict[str, float] = {"user_s": 0.0, "system_s": 0.0, "max_rss_bytes": 0}
        self._wake = -1

    def _reserved(self) -> int:
        """Reserve room for the exit record before the command can fill the disk."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(f"{self._directory}/exit.json.tmp", flags, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):  # others: a file system that cannot reserve
                raise
        return descriptor

    # starting

    def start(self) -> None:
        """Fork the command and wait until it is executed; ``run.json`` exists afterwards. Raise Fault."""
        self._listen()
        # From here on every orphan below us becomes our child, whatever session or group it has made for
        # itself: descent from us is complete, and we get each exit status and resource usage.
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        if (leaf := self._intent["cgroup"]) is not None:
            _quietly(os.mkdir, leaf)
            self._cgroup = leaf if os.path.isdir(leaf) else None
            for name, number in self._intent.get("limits", {}).items():
                _quietly(_write, f"{leaf}/{name}", number.encode())
        environment = self._environment()
        (out_r, out_w), (err_r, err_w), (gate_r, gate_w), (report_r, report_w) = [os.pipe() for _ in range(4)]
        shim_pid = os.getpid()
        self._leader, self._is_inside = fork_into(self._cgroup)
        if self._leader == 0:
            for descriptor in (*self._handed, gate_w):  # the locks are the shim's alone
                os.close(descriptor)
            self._become_command(environment, shim_pid, out_w, err_w, gate_r, report_w)
        for descriptor in (out_w, err_w, gate_r, report_w):
            os.close(descriptor)
        self._streams = {out_r: Stream(b"stdout", self._stamp), err_r: Stream(b"stderr", self._stamp)}
        self._open_gate(gate_w, report_r)

    def _listen(self) -> None:
        # Blocked until the command is forked and recorded: before that there is nobody to pass a signal on
        # to, and the fork must not run our handlers. A pending one is acted upon afterwards.
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
        # The wake-up pipe closes the race between the check of _pending and poll(): a signal in between
        # leaves a byte, and poll() returns at once.
        self._wake, wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        _signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        for number in CAUGHT:
            _signal.signal(number, lambda number, _frame: self._pending.add(number))
        for number in IGNORED:
            _signal.signal(number, _signal.SIG_IGN)

    def _open_gate(self, gate: int, report: int) -> None:
        """Record whom the gate is opened for, open it, and read how the start went."""
        # The child reports its group, waits, and executes. It has a line for each failure, and end of file
        # means success: the report pipe closes on exec. The record is written under a temporary name before
        # the gate opens, since afterwards the command may fill the disk; it gets its name only when there is
        # a command, so that run.json never names a process that executed nothing.
        path = f"{self._directory}/run.json"
        line = _line(report)
        means, _, sandbox = line.partition(b" ")
        is_ready = means in (b"cgroup", b"plain")
        if is_ready:
            self._note_sandbox(int(sandbox))
        if means == b"plain" and self._cgroup:
            remove_cgroup(self._cgroup)
            self._cgroup = None
        try:
            if is_ready:
                began_ns = time.time_ns()
                write_new(f"{path}.tmp", to_json(self._run_record(began_ns)).encode())
                os.write(gate, b"g")
                line = _line(report)
        except BrokenPipeError:  # the child failed on the way to the gate and said why
            line = _line(report)
        except OSError as error:
            line = b"run.json %d" % (error.errno or 0)
        finally:
            os.close(gate)
            os.close(report)
        if line:
            os.waitpid(self._leader, 0)
            _quietly(os.unlink, f"{path}.tmp")
            stage, _, number = line.decode().partition(" ")
            raise Fault(int(number), stage)
        self._started_ns = began_ns
        os.rename(f"{path}.tmp", path)
        _sync(self._directory)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())

    def _note_sandbox(self, number: int) -> None:
        level = str(self._intent.get("sandbox", "none"))  # an earlier daemon's intent has none
        if number == 0 or level == BOX:
            self._sandbox = level
        elif level != "none":
            self._sandbox_reason = f"it could not be set up: {os.strerror(number)}"

    def _run_record(self, began_ns: int) -> "dict[str, object]":
        mine, leader = process_stat(os.getpid()), process_stat(self._leader)
        return {
            "version": FORMAT_VERSION, "shim_version": SHIM_VERSION, "run_id": self._run_id,
            "pid": self._leader, "start_ticks": leader[2] if leader else 0,
            "shim_pid": os.getpid(), "shim_start_ticks": mine[2] if mine else 0,
            "boot_id": boot_id(), "tree_means": "cgroup" if self._cgroup else "subreaper",
            "cgroup": self._cgroup, "sandbox": self._sandbox,
            "sandbox_reason": self._sandbox_reason, "started_at": rfc3339(began_ns),
        }  # fmt: skip

    def _environment(self) -> "dict[str, str]":
        path = self._intent["environment_file"]
        try:
            base: Mapping[str, str] = os.environ if path is None else from_json(read_bytes(path))
            base = {name: value for name, value in base.items() if isinstance(value, str)}
            return {**base, **self._intent["environment"]}
        except (OSError, TypeError, ValueError) as error:
            raise Fault(getattr(error, "errno", None) or errno.EINVAL, str(path)) from error

    def _become_command(
        self, environment: "Mapping[str, str]", shim_pid: int, out: int, err: int, gate: int, report: int
    ) -> "NoReturn":
        """In the fork: wait at the gate, then be the command (S3). Report what fails, and exit with 127."""
        stage = "prepare"
        try:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out, 1)
            os.dup2(err, 2)
            _set_signals(WRAPPED_IGNORE if self._wrapper else ())  # process/sandbox/box.py says why
            os.umask(self._intent["umask"])
            self._limit_descriptors()
            _die_with(shim_pid)
            # Without memory the kernel ends runs first: the daemon and we keep our own value (A11).
            _quietly(_write, "/proc/self/oom_score_adj", OOM_SCORE_ADJ)
            means = "cgroup" if self._enter_cgroup() else "plain"
            stage = "sandbox"
            outside = self._enter_sandbox(shim_pid)
            os.write(report, f"{means} {outside}\n".encode())
            stage = "chdir"
            os.chdir(self._intent["directory"])
            if not os.read(gate, 1):  # the shim gave up
                os._exit(127)
            stage = "exec"
            _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
            level = self._intent.get("sandbox", "none")
            inside = {SANDBOX: level} if outside == 0 or level == BOX else {}
            _execute([*self._wrapper, *self._intent["command"]], {**environment, **inside})
        except OSError as error:
            os.write(report, f"{stage} {error.errno or 0}\n".encode())
        except BaseException:  # nothing may escape: this is a second copy of the shim
            os.write(report, f"{stage} {errno.EINVAL}\n".encode())
        os._exit(127)

    def _limit_descriptors(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = self._intent.get("descriptors", soft)  # an earlier daemon's intent has none
        try:  # noqa: SIM105 - contextlib is not loaded here
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):  # the hard limit was lowered since the daemon began; the run starts
            pass

    def _enter_cgroup(self) -> bool:
        # The command enters by itself, before it executes: whatever it starts is inside. The shim stays out,
        # or it would be killed with the group.
        try:
            if self._cgroup and not self._is_inside:
                _write(f"{self._cgroup}/cgroup.procs", b"0")
        except OSError:  # the subreaper remains
            self._cgroup = None
        if self._cgroup is None and self._intent.get("require_cgroup"):
            raise OSError(errno.EACCES, "no control group")
        return self._cgroup is not None

    def _enter_sandbox(self, outsider: int) -> int:
        """Enter the run's sandbox (A1). Return 0, else the errno. Raise it if the sandbox is required.

        A box needs no domain: the domain is outside of it, where the kernel has one.
        """
        if self._intent.get("sandbox", "none") == "none":
            return errno.ENOSYS
        writable = self._intent.get("writable")
        try:
            enter_domain(writable)
            is_tight = is_out_of_reach(outsider) and not (writable and _opens(f"{self._directory}/lock"))
            number = 0 if is_tight else errno.EOPNOTSUPP  # only a test from inside is proof
        except OSError as error:
            number = error.errno or errno.EINVAL
        if number and self._intent.get("sandbox_required") and self._intent["sandbox"] != BOX:
            raise OSError(number, "sandbox")
        return number

    # while it runs

    def pump(self) -> None:
        """Carry output and signals until the command has ended, or its tree is to be killed."""
        poller = select.poll()
        for descriptor in (self._wake, *self._streams, *([] if self._tied is None else [self._tied])):
            poller.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in poller.poll(self._flush_due()):
                if descriptor == self._wake:
                    os.read(descriptor, READ_BYTES)
                elif descriptor == self._tied:
                    if not os.read(descriptor, READ_BYTES):  # the process that we are tied to is gone (P5)
                        return
                elif not self._carry(descriptor):
                    poller.unregister(descriptor)
            if self._handle_signals() or self._status is not None:
                return

    def _carry(self, descriptor: int) -> bool:
        data = os.read(descriptor, READ_BYTES)
        if len(data) == PIPE_BYTES:  # a larger pipe takes a tenth of the CPU; a user has only so many pages
            _quietly(fcntl.fcntl, descriptor, fcntl.F_SETPIPE_SZ, READ_BYTES)
        if data:
            self._received_bytes += len(data)
            self._log.write(self._streams[descriptor].records(data))
            return True
        self._log.write(self._streams.pop(descriptor).flush())
        os.close(descriptor)
        return False

    def _flush_due(self) -> "int | None":
        """Log lines that have waited long enough for their end; return ms until the next one, or None."""
        now, next_at = time.monotonic(), float("inf")
        for stream in self._streams.values():
            if stream.flush_at is not None and stream.flush_at <= now:
                self._log.write(stream.flush())
            elif stream.flush_at is not None:
                next_at = min(next_at, stream.flush_at)
        return None if next_at == float("inf") else int((next_at - now) * 1000) + 1

    def _handle_signals(self) -> bool:
        """Act on the signals that came (docs/signals.md); return True if the tree is to be killed."""
        while self._pending:
            number = self._pending.pop()
            if number == _signal.SIGQUIT:
                return True
            if number == _signal.SIGCHLD:
                self.reap()
            elif self._status is None:
                self._pass_on(number)
        return False

    def _pass_on(self, number: int) -> None:
        # A command that announced our signals gets them alone, and terminates what it started at its next
        # boundary. Any other gets nothing but SIGTERM, with its whole group: a script does not forward it.
        # SIGCONT follows, since a stopped process cannot act on SIGTERM.
        has_announced = os.path.exists(f"{self._directory}/signals")
        send = self._signal_command if has_announced else os.killpg
        if number in (_signal.SIGUSR1, _signal.SIGUSR2):
            if has_announced:
                _quietly(self._signal_command, self._leader, number)
        elif self._leader > 1:  # a group of 0 or 1 would be everybody
            _quietly(send, self._leader, _signal.SIGTERM)
            _quietly(send, self._leader, _signal.SIGCONT)

    def _signal_command(self, leader: int, number: int) -> None:
        if not self._wrapper:
            os.kill(leader, number)
        for init in children(leader)[:1] if self._wrapper else []:  # the box: bwrap, its init, the command
            for pid in children(init)[:1]:
                signal_if(pid, number, lambda _, stat: stat[1] == init)  # noqa: B023

    def reap(self) -> bool:
        """Reap all children that have ended; return True if no child is left at all."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self._leader and self._status is None:
                self._status = status
            self._rusage["user_s"] += usage.ru_utime
            self._rusage["system_s"] += usage.ru_stime
            self._rusage["max_rss_bytes"] = max(self._rusage["max_rss_bytes"], usage.ru_maxrss * 1024)

    # its end

    def finish(self) -> None:
        """Kill the tree, take the rest of the output, write ``exit.json``, in this order (S5)."""
        swept: dict[int, str] = {}
        is_empty = self._sweep(swept)
        self._drain()  # after the sweep: until then there were writers
        self._log.close()
        survivors = {} if is_empty else living({*carriers(self._run_id), *below(os.getpid())})
        for pid in (self._leader, *survivors):
            swept.pop(pid, None)
        self._write_exit(oom=self._killed_by_kernel(), swept=_listed(swept), survivors=_listed(survivors))

    def failed(self, number: int, what: str) -> None:
        """Write the exit record of a command that could not be started."""
        self._sweep({})
        self._write_exit(error={"errno": number, "text": f"{what}: {os.strerror(number)}"})

    def _sweep(self, swept: "Swept") -> bool:
        """Kill what is left of the tree by all means there are (S7); return True if all of it is gone."""
        # Each means finds what another misses: the group what another subreaper (a user manager, a container)
        # has adopted, descent what has left the group, the cookie what did both.
        deadline, is_empty = time.monotonic() + SWEEP_S, True
        if self._cgroup and is_populated(self._cgroup):
            is_empty = kill_cgroup(self._cgroup, swept, self.reap, deadline)
        if not self.reap():  # a subreaper without children has no descendants either
            is_empty &= end_all(lambda *how: signal_below([os.getpid()], *how), self.reap, swept, deadline)
        if carriers(self._run_id):
            is_empty &= end_all(
                lambda *how: signal_carriers(self._run_id, *how), self._no_carriers, swept, deadline
            )
        return is_empty

    def _no_carriers(self) -> bool:
        self.reap()
        return not carriers(self._run_id)

    def _drain(self) -> None:
        # A process outside of the tree may hold a pipe open for ever, so the end of file is not awaited for
        # more than DRAIN_S.
        deadline = time.monotonic() + DRAIN_S
        poller = select.poll()
        for descriptor in self._streams:
            poller.register(descriptor, select.POLLIN)
        while self._streams and (left := deadline - time.monotonic()) > 0:
            for descriptor, _ in poller.poll(int(left * 1000) + 1):
                if not self._carry(descriptor):
                    poller.unregister(descriptor)
        for stream in self._streams.values():
            self._log.write(stream.flush())

    def _killed_by_kernel(self) -> "bool | None":
        """Return True if the kernel killed a process for lack of memory; None if that is not counted."""
        try:
            lines = read_bytes(f"{self._cgroup}/memory.events").splitlines()
        except OSError:
            return None
        return any(line.startswith(b"oom_kill ") and line != b"oom_kill 0" for line in lines)

    def _write_exit(self, **facts: object) -> None:
        if self._cgroup:
            remove_cgroup(self._cgroup)
        code = None if self._status is None else os.waitstatus_to_exitcode(self._status)
        record: dict[str, Any] = {
            "version": FORMAT_VERSION, "run_id": self._run_id,
            "code": code if code is not None and code >= 0 else None,
            "signal": -code if code is not None and code < 0 else None,
            "started_at": None if self._started_ns is None else rfc3339(self._started_ns),
            "ended_at": rfc3339(time.time_ns()), "oom": None,
            "rusage": {name: round(value, 6) for name, value in self._rusage.items()},
            "swept": [], "survivors": [], "dropped_bytes": self._log.dropped_bytes,
            "log_bytes": self._received_bytes, "error": None, **facts,
        }  # fmt: skip
        try:
            self._put_exit(record)
        except OSError:  # the list of a fork storm may not fit into what was reserved
            # In plain ASCII: JSON has six bytes for any other character.
            short = [
                {**entry, "command": ascii(entry["command"][:40])[:40]} for entry in record["swept"][:100]
            ]
            self._put_exit({**record, "swept": short})

    def _put_exit(self, record: "Mapping[str, object]") -> None:
        data = memoryview(to_json(record).encode())
        written = 0
        while written < len(data):
            written += os.pwrite(self._reserve, data[written:], written)
        os.ftruncate(self._reserve, len(data))
        os.fsync(self._reserve)
        temporary = f"{self._directory}/exit.json.tmp"
        try:
            if not os.path.lexists(temporary):  # somebody cleans up temporary files
                write_new(temporary, data)
            os.rename(temporary, f"{self._directory}/exit.json")
        except OSError as error:
            if error.errno != errno.EROFS:  # then the daemon reads it under the name that it has
                raise
        _sync(self._directory)


# --- becoming another program ----------------------------------------------------------------------------


def _set_signals(ignored: "tuple[int, ...]") -> None:
    """Set the default action of all signals but the ignored ones."""
    for number in _signal.valid_signals():
        action = _signal.SIG_IGN if number in ignored else _signal.SIG_DFL
        _quietly(_signal.signal, number, action)  # SIGKILL and SIGSTOP cannot be set


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies."""
    prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel knew: nobody would send the signal
        os._exit(127)


def _execute(argv: "list[str]", environment: "Mapping[str, str]") -> "NoReturn":
    """Execute a program, searched on the PATH that it is given. Raise OSError."""
    if "/" in argv[0]:
        os.execve(argv[0], argv, environment)  # noqa: S606 - the command is the user's own
    fault: OSError = FileNotFoundError(errno.ENOENT, argv[0])
    for folder in environment.get("PATH", os.defpath).split(":"):
        try:
            os.execve(os.path.join(folder, argv[0]), argv, environment)  # noqa: S606
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:  # the first file that exists and cannot be executed gives the reason
            fault = fault if not isinstance(fault, FileNotFoundError) else error
    raise fault


def become(arguments: "list[str]") -> "NoReturn":
    """Become an agent that the loop starts (L5). Arguments: PARENT REPORT LOCALE SANDBOX WRITABLE COMMAND…

    The process dies with its parent, and begins with default signals, whatever the loop ignores or blocks.
    If the command cannot be executed, its errno is written to the descriptor REPORT. LOCALE is the agent's
    LC_CTYPE, which this interpreter may have changed; empty for none. SANDBOX is the level of the run: in
    a sandbox the agent gets a domain below the loop's, from which it cannot signal the loop either. WRITABLE
    is a JSON list, outside of which the agent can write nothing; empty for no such limit.
    """
    parent, report, locale, sandbox, writable, *argv = arguments
    os.set_inheritable(int(report), False)
    try:
        _die_with(int(parent))
        if writable:
            enter_domain(from_json(writable.encode()))  # nothing starts without it
        elif sandbox:
            _quietly(enter_domain)
        _set_signals(WRAPPED_IGNORE if sandbox == BOX else ())
        environment = {name: value for name, value in os.environ.items() if name != "LC_CTYPE"}
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        _execute(argv, environment | ({"LC_CTYPE": locale} if locale else {}))
    except OSError as error:
        os.write(int(report), b"%d" % (error.errno or errno.EINVAL))
    os._exit(127)


# --- helpers ---------------------------------------------------------------------------------------------


def _quietly(call: "Callable[..., object]", *arguments: object) -> None:
    """Call a function whose failure has no consequence."""
    try:  # noqa: SIM105 - contextlib is not loaded here
        call(*arguments)
    except OSError:
        pass


_LIBC = ctypes.CDLL(None, use_errno=True)


def fork_into(leaf: "str | None") -> "tuple[int, bool]":
    """Fork, into a control group where possible; return the pid, and whether it is inside. Raise OSError.

    To enter a group afterwards waits 8 ms for all processors (clone(2), CLONE_INTO_CGROUP).
    """
    if leaf is None:
        return os.fork(), False
    try:
        folder = os.open(leaf, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return os.fork(), False
    # struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, five that stay 0, the group. With
    # one thread, and all signals blocked, the child needs nothing of what os.fork() does in it.
    arguments = (ctypes.c_uint64 * 11)(CLONE_INTO_CGROUP, 0, 0, 0, _signal.SIGCHLD, 0, 0, 0, 0, 0, folder)
    size = ctypes.c_size_t(ctypes.sizeof(arguments))
    pid = ctypes.PyDLL(None).syscall(CLONE3, ctypes.byref(arguments), size)
    os.close(folder)
    return (pid, True) if pid >= 0 else (os.fork(), False)


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process. Raise OSError."""
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def landlock_abi() -> int:
    """Return the version of the kernel's Landlock; 0 if it has none."""
    return max(int(_LIBC.syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), LANDLOCK_VERSION)), 0)


def enter_domain(writable: "Iterable[str] | None" = None) -> None:
    """Enter a Landlock domain: no signal and no abstract socket reaches out of it. Raise OSError.

    It cannot be left, holds for all descendants, for root too, and nests. With ``writable``, files can be
    changed only at and below these paths; those that do not exist are left out. Then nothing can be mounted.
    """
    attributes = (ctypes.c_uint64 * 3)(LANDLOCK_CHANGES if writable else 0, 0, LANDLOCK_SCOPED)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    ruleset = _LIBC.syscall(LANDLOCK_CREATE_RULESET, ctypes.byref(attributes), size, 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock")
    try:
        for path in writable or ():
            _allow_changes(ruleset, path)
        # Root needs no ``no_new_privs``, which would disable setuid programs. Others do, and some containers'
        # root does.
        if _LIBC.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0) == 0:
            return
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        if _LIBC.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0) != 0:
            raise OSError(ctypes.get_errno(), "landlock")
    finally:
        os.close(ruleset)


def _allow_changes(ruleset: int, path: str) -> None:
    try:  # an agent of an earlier run may have put a link there: the daemon has resolved the path
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    is_directory = os.path.isdir(f"/proc/self/fd/{descriptor}")
    allowed = LANDLOCK_CHANGES & ~LANDLOCK_NODES if is_directory else LANDLOCK_FILE_CHANGES
    rule = allowed.to_bytes(8, sys.byteorder) + descriptor.to_bytes(4, sys.byteorder)  # a packed struct
    done = _LIBC.syscall(LANDLOCK_ADD_RULE, ruleset, LANDLOCK_PATH_BENEATH, rule, 0)
    number = ctypes.get_errno()
    os.close(descriptor)
    if done != 0:
        raise OSError(number, "landlock")


def _opens(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def is_out_of_reach(pid: int) -> bool:
    """Return True if this process must not signal ``pid``, a living process of the same user."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno == errno.EPERM
    return False


def _line(descriptor: int) -> bytes:
    """Return one line, or what came before the end of file."""
    data = b""
    while not data.endswith(b"\n") and (piece := os.read(descriptor, 1)):
        data += piece
    return data.strip()


def write_new(path: str, data: "bytes | memoryview") -> None:
    """Create a file, 0600, and make its contents durable. Raise OSError if there is one."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    _quietly(os.fsync, descriptor)  # some file systems cannot
    os.close(descriptor)


def _listed(processes: "Mapping[int, str]") -> "list[dict[str, object]]":
    return [{"pid": pid, "command": command} for pid, command in sorted(processes.items())]


def main(arguments: "list[str]") -> None:
    """Run one command to its end. Arguments: RUN_DIRECTORY LOCK READY [WORKING_DIRECTORY] [tied=PIPE].

    All but the first are descriptors.
    """
    directory, handed = arguments[0], [int(word.removeprefix(TIED)) for word in arguments[1:]]
    lock, ready = handed[:2]
    tied = handed[-1] if arguments[-1].startswith(TIED) else None
    for descriptor in handed:
        os.set_inheritable(descriptor, False)
    os.chdir("/")  # a file system that we stand on could not be unmounted
    # Have the C library keep the memory of a read for the next one: to get it from the kernel each time
    # costs as much as the read.
    if mallopt := getattr(_LIBC, "mallopt", None):
        mallopt(M_TRIM_THRESHOLD, 1 << 20)
        mallopt(M_MMAP_THRESHOLD, 1 << 20)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ours already, unless somebody else started us
    try:
        shim = Shim(directory, from_json(read_bytes(f"{directory}/intent.json")), handed, tied)
    except OSError as error:
        _quietly(os.write, ready, f"fault {error.errno or 0}\n".encode())
        return
    try:
        shim.start()
    except Fault as fault:
        shim.failed(*fault.args)
    except OSError as error:  # no process or no descriptor to be had
        shim.failed(error.errno or 0, "cannot start a process")
    else:
        _quietly(os.write, ready, b"ready\n")  # if the daemon is gone, the next one reads the records
        os.close(ready)
        shim.pump()
        shim.finish()
    if os.fstat(2).st_size == 0:
        _quietly(os.unlink, f"{directory}/shim.err")
    os._exit(0)  # all is written; to take the interpreter down would be 2 ms of each restart
