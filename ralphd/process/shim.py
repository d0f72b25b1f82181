"""The small process beside a run: it holds the output, knows the tree, and keeps the exit status (S1 to S7).

``spawn`` starts one for each run, by ``python -I -S -E``, with the run's directory and descriptors of the
run's lock, of the pipe on which to say that the command runs, and of the working directory (not for S9's).
What is to be started it reads from ``intent.json``. It outlives the daemon, unless it is tied (P5): then it
has one descriptor more, and ends its tree and itself at the end of file there. The installation may change
under it: all that it needs is imported here, from the standard library only. The modules ``json``, ``signal``
and ``contextlib`` are avoided: with ``re``, ``enum`` and more they would be a fifth of this process.

The upper part, what ``/proc`` says and how a process is signalled, is shared with ``tree``.
"""

import ctypes
import errno
import fcntl
import os
import select
import time
from _json import encode_basestring_ascii, make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, NoReturn
else:
    import _signal

FORMAT_VERSION = 1
SHIM_VERSION = 1
COOKIE = "RALPH_RUN_ID"
TIED = "tied="

READ_BYTES = 1 << 16
PART_BYTES = 1 << 14
MIN_SEGMENT_BYTES = 1 << 20
RESERVE_BYTES = 1 << 14
HEAD_BYTES = len(b"2026-11-21T20:00:00.000000000Z stdout F ")
PARTIAL_AFTER_S = 0.2
DRAIN_S = 2.0
SWEEP_S = 10.0
FREEZE_S = 2.0
PAUSE_S = 0.002
REMOVE_S = 0.5

HEEDED = (
    *(_signal.SIGTERM, _signal.SIGINT, _signal.SIGQUIT),
    *(_signal.SIGUSR1, _signal.SIGUSR2, _signal.SIGCHLD),
)
IGNORED = (_signal.SIGHUP, _signal.SIGPIPE, _signal.SIGTSTP, _signal.SIGTTIN, _signal.SIGTTOU)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


# --- what /proc says -------------------------------------------------------------------------------------


def read_bytes(path: str) -> bytes:
    """The whole of a small file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = []
        while piece := os.read(descriptor, READ_BYTES):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def boot_id() -> str:
    """The id of this boot of the machine: pids and start times of another one mean nothing (S8)."""
    return read_bytes("/proc/sys/kernel/random/boot_id").decode().strip()


def process_stat(pid: int) -> "tuple[str, int, int, str] | None":
    """State letter, parent, start time in ticks since boot (field 22), name; None without such a pid."""
    try:
        data = read_bytes(f"/proc/{pid}/stat")
    except OSError:
        return None
    before, _, after = data.rpartition(b")")  # the name may hold anything, a bracket too
    fields = after.split()
    if len(fields) < 20:
        return None
    name = before.partition(b"(")[2].decode(errors="replace")
    return fields[0].decode(), int(fields[1]), int(fields[19]), name


def command_line(pid: int) -> str:
    """The command of a process as people read it, up to 200 characters; without one, its name in brackets."""
    try:
        text = read_bytes(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        text = ""
    if not text and (stat := process_stat(pid)):
        text = f"[{stat[3]}]"
    return text[:200]


def children(pid: int) -> "list[int]":
    """The children of a process. While it forks, some may be missing."""
    try:
        found = []
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += read_bytes(f"/proc/{pid}/task/{thread}/children").split()
        return [int(child) for child in found]
    except FileNotFoundError:
        return [] if _HAS_CHILDREN_FILES else _children_by_scan(pid)
    except OSError:
        return []


def all_pids() -> "list[int]":
    """Every pid there is."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _children_by_scan(parent: int) -> "list[int]":
    return [pid for pid in all_pids() if (stat := process_stat(pid)) and stat[1] == parent]


_HAS_CHILDREN_FILES = os.path.exists("/proc/thread-self/children")  # CONFIG_PROC_CHILDREN


def carries(pid: int, run_id: str, cookie: str = COOKIE) -> bool:
    """Whether a process was started with the run's cookie in its environment (S7)."""
    try:
        return f"\0{cookie}={run_id}\0".encode() in b"\0" + read_bytes(f"/proc/{pid}/environ") + b"\0"
    except OSError:  # gone, or another user's
        return False


def carriers(run_id: str, cookie: str = COOKIE) -> "list[int]":
    """The living processes that carry the run's cookie, but for this one."""
    return [pid for pid in all_pids() if pid != os.getpid() and carries(pid, run_id, cookie)]


# --- signals, sent to nobody else ------------------------------------------------------------------------


def signal_if(pid: int, number: int, still: "Callable[[int], bool]") -> bool:
    """Send a signal when ``still`` holds for the very process that gets it; whether it was sent.

    The descriptor pins the process first, so that a pid that was used again is never hit (S8). A zombie has
    nothing left to signal.
    """
    if pid <= 1:
        return False
    try:
        pinned = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        stat = process_stat(pid)
        if stat is None or stat[0] in "ZX" or not still(pid):
            return False
        _signal.pidfd_send_signal(pinned, number)
        return True
    except OSError:
        return False
    finally:
        os.close(pinned)


def signal_below(
    roots: "Iterable[int]",
    number: int,
    done: "set[int]",
    swept: "dict[int, str]",
    spared: "Callable[[int], bool] | None" = None,
) -> bool:
    """Signal all below ``roots`` that is not in ``done``, note it there and in ``swept``; whether any was.

    Level by level, each as soon as it is seen: a process that forks and exits without end is only caught so.
    ``spared`` says which children of ours are let alone, with all that is below them.
    """
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
        return signal_if(pid, number, lambda pid: _parent(pid) in (parent, me))
    try:  # a child of ours keeps its pid until we reap it: no look is needed, and none would be quick enough
        os.kill(pid, number)
    except OSError:
        return False
    stat = process_stat(pid)
    return stat is not None and stat[0] not in "ZX"


def _parent(pid: int) -> int:
    stat = process_stat(pid)
    return stat[1] if stat else 0


def _kill_the_same(pid: int, began: int) -> bool:
    """SIGKILL to the process that started at this tick of the clock; whether it was sent."""
    return signal_if(
        pid, _signal.SIGKILL, lambda pid: (stat := process_stat(pid)) is not None and stat[2] == began
    )


def signal_carriers(
    run_id: str, number: int, done: "set[int]", swept: "dict[int, str]", cookie: str = COOKIE
) -> bool:
    """The same for all that carry the run's cookie, and for what is below them."""
    fresh, found = False, carriers(run_id, cookie)
    for pid in found:
        name = command_line(pid)
        if pid not in done and signal_if(pid, number, lambda pid: carries(pid, run_id, cookie)):
            done.add(pid)
            swept.setdefault(pid, name)
            fresh = True
    return signal_below(found, number, done, swept) or fresh


def end_all(
    find: "Callable[[int, set[int], dict[int, str]], bool]",
    is_over: "Callable[[], bool]",
    swept: "dict[int, str]",
    deadline: float,
) -> bool:
    """End all that ``find`` signals: SIGSTOP until two scans agree, then SIGKILL, until ``is_over`` (S5).

    ``deadline`` is a moment of the monotonic clock; False when it came first.
    """
    while True:
        stopped, frozen_by = set[int](), min(deadline, time.monotonic() + FREEZE_S)
        while find(_signal.SIGSTOP, stopped, swept) and time.monotonic() < frozen_by:
            pass
        frozen = [(pid, stat[2]) for pid in stopped if (stat := process_stat(pid))]
        killed = find(_signal.SIGKILL, set(), swept)
        for pid, began in frozen:  # what was below one that has died of this is not found there any more
            killed |= _kill_the_same(pid, began)
        if is_over() and not killed:
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(PAUSE_S)


# --- control groups --------------------------------------------------------------------------------------


def cgroup_processes(leaf: str) -> "list[int]":
    """The processes in a control group and below it."""
    found: list[bytes] = []
    for folder, _, _ in os.walk(leaf):
        try:
            found += read_bytes(f"{folder}/cgroup.procs").split()
        except OSError:
            continue
    return [int(pid) for pid in found if pid != b"0"]


def kill_cgroup(
    leaf: str, swept: "dict[int, str]", meanwhile: "Callable[[], object]", deadline: float
) -> bool:
    """End all in a control group with one write; whether it is empty. ``meanwhile`` is called until it is.

    It is frozen first, only to name what is in it.
    """
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
    """Whether a living process is in the control group, or below it."""
    return _has(leaf, b"populated 1")


def remove_cgroup(leaf: str) -> None:
    """Remove a control group and those below it, as far as they are empty.

    A process that has just been ended keeps its group busy for a moment longer than it populates it.
    """
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
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


# --- JSON, without the json module -----------------------------------------------------------------------


class _Scanner:
    strict, object_hook, object_pairs_hook = True, None, None
    parse_float, parse_int, parse_constant = float, int, float


_scan: "Any" = make_scanner(_Scanner())  # type: ignore[arg-type]  # the stub knows only json's own


def from_json(data: bytes) -> "Any":
    """The value of a JSON text. Raises ValueError when it is none."""
    try:
        return _scan(data.decode().strip(), 0)[0]
    except (StopIteration, SystemError) as error:  # the scanner finds no JSONDecodeError to raise
        raise ValueError("not JSON") from error


def to_json(value: object) -> str:
    """A value of dicts, lists, texts, numbers and None as JSON."""
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
    """Nanoseconds since the epoch as ``2026-11-21T20:00:00.000000Z``."""
    seconds, rest = divmod(moment_ns, 10**9)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest // 1000:06d}Z"


# --- the log ---------------------------------------------------------------------------------------------


class Stamp:
    """The time as each record begins with it, to the nanosecond."""

    def __init__(self) -> None:
        self._second, self._text = -1, ""

    def now(self) -> bytes:
        """``2026-11-21T20:00:00.000000000Z``."""
        second, rest = divmod(time.time_ns(), 10**9)
        if second != self._second:
            self._second, self._text = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._text}.{rest:09d}Z".encode()


class Stream:
    """Turns what one of the two streams says into records, one a line (F4).

    A line without its end is held back; ``flush`` gives it as a part, and the next record goes on with it.
    """

    def __init__(self, name: bytes, stamp: Stamp) -> None:
        self._name, self._stamp, self._tail = name, stamp, b""
        self.flush_at: float | None = None

    def records(self, data: bytes) -> bytes:
        """The records of what was read, with the time of now."""
        head = self._stamp.now() + b" " + self._name
        data = self._tail + data
        end = data.rfind(b"\n") + 1
        body, tail = data[:end], data[end:]
        whole = self._lines(body, head) if body else b""
        if len(tail) > PART_BYTES:
            parts, tail = self._parts(tail, head)
            whole += parts
        self._tail = tail
        self.flush_at = time.monotonic() + PARTIAL_AFTER_S if tail else None
        return whole

    def flush(self) -> bytes:
        """What is held back, as a part."""
        tail, self._tail, self.flush_at = self._tail, b"", None
        return self._stamp.now() + b" " + self._name + b" P " + tail + b"\n" if tail else b""

    def _lines(self, body: bytes, head: bytes) -> bytes:
        full = head + b" F "
        if not _has_long_line(body):
            return full + body.replace(b"\n", b"\n" + full, body.count(b"\n") - 1)
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
    """Whether a line of ``body`` is longer than a record may be, by a few looks and not line by line (S4)."""
    at = 0
    while len(body) - at > PART_BYTES + 1:
        at, before = body.rfind(b"\n", at, at + PART_BYTES + 1) + 1, at
        if at <= before:
            return True
    return False


class Log:
    """The numbered segments, together ``run_bytes`` at most: the oldest goes, never the newest (F4, F5).

    What cannot be written is dropped and counted, and its place is marked once writing works again (S4).
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
        """Mark a gap that is still open, as far as possible, and make the log durable."""
        if self._gap_bytes:
            self._append(b"")
        _quietly(os.fsync, self._descriptor)  # a disk that fails here does not hide how the command ended

    def _fitting(self, records: bytes) -> int:
        room = self._segment_bytes - self._sizes[self._number]
        if len(records) <= room:
            return len(records)
        if end := records.rfind(b"\n", 0, max(room, 0)) + 1:
            return end
        if self._sizes[self._number] and self._rotate():
            return self._fitting(records)
        return records.find(b"\n") + 1

    def _rotate(self) -> bool:
        try:
            descriptor = self._open(self._number + 1)
        except OSError:  # no room for a name: the segment grows instead
            return False
        os.close(self._descriptor)
        self._descriptor = descriptor
        return True

    def _open(self, number: int) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path(number), flags, 0o600)
        self._number, self._sizes[number] = number, 0
        return descriptor

    def _append(self, records: bytes) -> None:
        gap = self._gap_record() if self._gap_bytes else b""
        data, written = memoryview(gap + records), 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError as error:
            kept = 0 if gap else records.rfind(b"\n", 0, written) + 1
            self._truncate(kept)
            self._drop(records[kept:], error)
            written = kept
        else:
            self._gap_bytes = 0
        self._sizes[self._number] += written
        self._prune()

    def _truncate(self, kept: int) -> None:
        _quietly(os.ftruncate, self._descriptor, self._sizes[self._number] + kept)

    def _drop(self, records: bytes, error: OSError) -> None:
        lost = 0
        for record in records.split(b"\n")[:-1]:
            lost += len(record) - HEAD_BYTES + record.startswith(b"F", HEAD_BYTES - 2)
        self._gap_bytes += lost
        self.dropped_bytes += lost
        self._gap_reason = os.strerror(error.errno or 0)

    def _gap_record(self) -> bytes:
        text = f"[ralphd] {self._gap_bytes} bytes of output lost here: {self._gap_reason}"
        return self._stamp.now() + b" stderr F " + text.encode() + b"\n"

    def _prune(self) -> None:
        while len(self._sizes) > 1 and sum(self._sizes.values()) > self._run_bytes:
            oldest = min(self._sizes)
            del self._sizes[oldest]
            _quietly(os.unlink, self._path(oldest))

    def _path(self, number: int) -> str:
        return f"{self._directory}/log.{number:06d}"


# --- the run ---------------------------------------------------------------------------------------------


class Fault(Exception):
    """The command cannot be started: the number of the system's error, and what was tried."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(number, what)
        self.number, self.what = number, what


class Shim:
    """One run, from the fork of its command to its exit record."""

    def __init__(
        self, directory: str, intent: "Mapping[str, Any]", handed: "list[int]", tied: "int | None" = None
    ) -> None:
        self._directory, self._intent, self._handed, self._tied = directory, intent, handed, tied
        self._run_id = str(intent["run_id"])
        self._stamp = Stamp()
        self._log = Log(directory, int(intent["run_bytes"]), self._stamp)
        self._reserve = self._reserved()
        self._asked: set[int] = set()
        self._leader = 0
        self._status: int | None = None
        self._cgroup: str | None = None
        self._streams: dict[int, Stream] = {}
        self._received_bytes = 0
        self._began_ns = 0
        self._started_ns: int | None = None
        self._user_s = self._system_s = 0.0
        self._max_rss_bytes = 0
        self._wake = -1

    # starting

    def start(self) -> None:
        """Fork the command and see it executed; ``run.json`` is there afterwards. Raises Fault."""
        self._listen()
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self._cgroup = _made_cgroup(self._intent["cgroup"])
        environment = self._environment()
        ends = [os.pipe() for _ in range(4)]
        (out_r, out_w), (err_r, err_w), (gate_r, gate_w), (told_r, told_w) = ends
        shim_pid = os.getpid()
        self._leader = os.fork()
        if self._leader == 0:
            Command(self._intent, environment, self._cgroup, shim_pid).become(
                out_w, err_w, gate_r, told_w, [*self._handed, gate_w]
            )
        for descriptor in (out_w, err_w, gate_r, told_w):
            os.close(descriptor)
        self._streams = {out_r: Stream(b"stdout", self._stamp), err_r: Stream(b"stderr", self._stamp)}
        self._open_gate(gate_w, told_r)

    def _listen(self) -> None:
        """Note each signal and wake the loop. All are blocked until the command has been forked."""
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
        self._wake, wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        _signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        for number in HEEDED:
            _signal.signal(number, lambda number, _frame: self._asked.add(number))
        for number in IGNORED:
            _signal.signal(number, _signal.SIG_IGN)

    def _open_gate(self, gate: int, told: int) -> None:
        """Write down whom the gate is opened for, open it, and hear what became of it."""
        path = f"{self._directory}/run.json"
        news = _line(told)
        if news == b"plain" and self._cgroup:
            remove_cgroup(self._cgroup)
            self._cgroup = None
        try:
            if news in (b"cgroup", b"plain"):
                self._began_ns = time.time_ns()
                _write_new(f"{path}.tmp", to_json(self._run_record()).encode())
                os.write(gate, b"g")
                news = _line(told)
        except BrokenPipeError:
            news = _line(told)
        except OSError as error:
            news = b"run.json %d" % (error.errno or 0)
        finally:
            os.close(gate)
            os.close(told)
        if news:
            self._give_up(path, news)
        self._started_ns = self._began_ns
        os.rename(f"{path}.tmp", path)
        _sync(self._directory)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())

    def _give_up(self, path: str, told: bytes) -> "NoReturn":
        os.waitpid(self._leader, 0)
        _quietly(os.unlink, f"{path}.tmp")
        what, _, number = told.decode().partition(" ")
        raise Fault(int(number), what)

    def _run_record(self) -> "dict[str, object]":
        mine, leader = process_stat(os.getpid()), process_stat(self._leader)
        return {
            "version": FORMAT_VERSION,
            "shim_version": SHIM_VERSION,
            "run_id": self._run_id,
            "pid": self._leader,
            "start_ticks": leader[2] if leader else 0,
            "shim_pid": os.getpid(),
            "shim_start_ticks": mine[2] if mine else 0,
            "boot_id": boot_id(),
            "tree_means": "cgroup" if self._cgroup else "subreaper",
            "cgroup": self._cgroup,
            "started_at": rfc3339(self._began_ns),
        }

    def _environment(self) -> "dict[str, str]":
        path = self._intent["environment_file"]
        try:
            base: Mapping[str, str] = os.environ if path is None else from_json(read_bytes(path))
            return {**base, **self._intent["environment"]}
        except OSError as error:
            raise Fault(error.errno or 0, str(path)) from error
        except (TypeError, ValueError) as error:
            raise Fault(errno.EINVAL, str(path)) from error

    # while it runs

    def pump(self) -> None:
        """Carry output and signals until the command has ended, or its tree is to be killed."""
        poller = select.poll()
        for descriptor in (self._wake, *self._streams, *([] if self._tied is None else [self._tied])):
            poller.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in poller.poll(self._patience_ms()):
                if descriptor == self._wake:
                    self._drain_wake()
                elif descriptor == self._tied:
                    if not os.read(descriptor, READ_BYTES):  # who started all this is gone (P5)
                        return
                elif not self._carry(descriptor):
                    poller.unregister(descriptor)
            self._flush_silent()
            if self._obey() or self._status is not None:
                return

    def _carry(self, descriptor: int) -> bool:
        data = os.read(descriptor, READ_BYTES)
        if data:
            self._received_bytes += len(data)
            self._log.write(self._streams[descriptor].records(data))
            return True
        self._log.write(self._streams.pop(descriptor).flush())
        os.close(descriptor)
        return False

    def _patience_ms(self) -> "int | None":
        moments = [stream.flush_at for stream in self._streams.values() if stream.flush_at is not None]
        return max(0, int((min(moments) - time.monotonic()) * 1000) + 1) if moments else None

    def _flush_silent(self) -> None:
        now = time.monotonic()
        for stream in self._streams.values():
            if stream.flush_at is not None and stream.flush_at <= now:
                self._log.write(stream.flush())

    def _drain_wake(self) -> None:
        try:
            while os.read(self._wake, 4096):
                pass
        except BlockingIOError:
            pass

    def _obey(self) -> bool:
        """Act on the signals that came; whether the tree is to be killed (docs/signals.md)."""
        while self._asked:
            number = self._asked.pop()
            if number == _signal.SIGQUIT:
                return True
            if number == _signal.SIGCHLD:
                self.reap()
            elif self._status is None:
                self._pass_on(number)
        return False

    def _pass_on(self, number: int) -> None:
        """To the whole group what ends it; to a command that said it knows our signals, to it alone.

        Such a one ends what it has started itself, at its next boundary.
        """
        knows = os.path.exists(f"{self._directory}/signals")
        if number in (_signal.SIGUSR1, _signal.SIGUSR2):
            if knows:
                _quietly(os.kill, self._leader, number)
            return
        if knows:
            _quietly(os.kill, self._leader, _signal.SIGTERM)
            _quietly(os.kill, self._leader, _signal.SIGCONT)
        elif self._leader > 1:  # a group of 0 or 1 would be everybody
            _quietly(os.killpg, self._leader, _signal.SIGTERM)
            _quietly(os.killpg, self._leader, _signal.SIGCONT)

    def reap(self) -> bool:
        """Take the ends of all children that have ended; whether there is no child left at all."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self._leader and self._status is None:
                self._status = status
            self._user_s += usage.ru_utime
            self._system_s += usage.ru_stime
            self._max_rss_bytes = max(self._max_rss_bytes, usage.ru_maxrss * 1024)

    # its end

    def finish(self) -> None:
        """End the tree, take the rest of the output, write ``exit.json`` (S5)."""
        swept: dict[int, str] = {}
        deadline = time.monotonic() + SWEEP_S
        gone = self._sweep(swept, deadline)
        self._drain()
        self._log.close()
        survivors = {} if gone else {pid: command_line(pid) for pid in self._survivors()}
        for pid in (self._leader, *survivors):
            swept.pop(pid, None)
        oom = self._killed_by_kernel()
        if self._cgroup:
            remove_cgroup(self._cgroup)
        self._write_exit({"oom": oom, "swept": _listed(swept), "survivors": _listed(survivors)})

    def _sweep(self, swept: "dict[int, str]", deadline: float) -> bool:
        """End what is left of the tree, by each means there is (S7); whether all of it is gone."""
        gone = True
        if self._cgroup and is_populated(self._cgroup):
            gone = kill_cgroup(self._cgroup, swept, self.reap, deadline)
        if not self.reap():  # a subreaper without children has no descendants either
            gone &= end_all(lambda *how: signal_below([os.getpid()], *how), self.reap, swept, deadline)
        if carriers(self._run_id):
            gone &= end_all(
                lambda *how: signal_carriers(self._run_id, *how), self._no_carriers, swept, deadline
            )
        return gone

    def _no_carriers(self) -> bool:
        self.reap()
        return not carriers(self._run_id)

    def _survivors(self) -> "set[int]":
        found, queue = set(carriers(self._run_id)), [os.getpid()]
        while queue:
            below = [pid for pid in children(queue.pop()) if pid not in found]
            found.update(below)
            queue += below
        return {pid for pid in found if (stat := process_stat(pid)) and stat[0] not in "ZX"}

    def _drain(self) -> None:
        """Take what is left in the pipes; who still holds one open does not get more than DRAIN_S seconds."""
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
        """Whether the kernel ended a process for want of memory; None where nobody counts that."""
        try:
            lines = read_bytes(f"{self._cgroup}/memory.events").splitlines()
        except OSError:
            return None
        return any(line.startswith(b"oom_kill ") and line != b"oom_kill 0" for line in lines)

    # the exit record

    def _reserved(self) -> int:
        """Room for the exit record, taken before the command can fill the disk."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(f"{self._directory}/exit.json.tmp", flags, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
        return descriptor

    def failed(self, fault: Fault) -> None:
        """Write the exit record of a command that could not be started."""
        error = {"errno": fault.number, "text": f"{fault.what}: {os.strerror(fault.number)}"}
        self._sweep({}, time.monotonic() + SWEEP_S)
        if self._cgroup:
            remove_cgroup(self._cgroup)
        self._write_exit({"error": error})

    def _write_exit(self, found: "Mapping[str, object]") -> None:
        record = {**self._exit_record(), **found}
        try:
            self._put_exit(record)
        except OSError:  # the list of a storm may not fit into what was reserved
            swept: Any = record["swept"]
            record["swept"] = [{**entry, "command": entry["command"][:40]} for entry in swept[:100]]
            self._put_exit(record)

    def _put_exit(self, record: "Mapping[str, object]") -> None:
        data = memoryview(to_json(record).encode())
        written = 0
        while written < len(data):
            written += os.pwrite(self._reserve, data[written:], written)
        os.ftruncate(self._reserve, len(data))
        os.fsync(self._reserve)
        os.rename(f"{self._directory}/exit.json.tmp", f"{self._directory}/exit.json")
        _sync(self._directory)

    def _exit_record(self) -> "dict[str, object]":
        code = None if self._status is None else os.waitstatus_to_exitcode(self._status)
        return {
            "version": FORMAT_VERSION,
            "run_id": self._run_id,
            "code": code if code is not None and code >= 0 else None,
            "signal": -code if code is not None and code < 0 else None,
            "started_at": None if self._started_ns is None else rfc3339(self._started_ns),
            "ended_at": rfc3339(time.time_ns()),
            "oom": None,
            "rusage": {
                "user_s": round(self._user_s, 6),
                "system_s": round(self._system_s, 6),
                "max_rss_bytes": self._max_rss_bytes,
            },
            "swept": [],
            "survivors": [],
            "dropped_bytes": self._log.dropped_bytes,
            "log_bytes": self._received_bytes,
            "error": None,
        }


class Command:
    """What the forked process does until it is the command (S3)."""

    def __init__(
        self,
        intent: "Mapping[str, Any]",
        environment: "Mapping[str, str]",
        cgroup: "str | None",
        shim_pid: int,
    ) -> None:
        self._intent, self._environment, self._cgroup, self._shim_pid = intent, environment, cgroup, shim_pid

    def become(self, out: int, err: int, gate: int, told: int, others: "list[int]") -> "NoReturn":
        """Wait at the gate, then be the command. What stands in the way is told, and the exit is 127."""
        what = "prepare"
        try:
            for descriptor in others:  # the locks are the shim's alone
                os.close(descriptor)
            self._prepare(out, err)
            os.write(told, b"cgroup\n" if self._enter_cgroup() else b"plain\n")
            what = "chdir"
            os.chdir(self._intent["directory"])
            if not os.read(gate, 1):
                os._exit(127)
            what = "exec"
            self._exec()
        except OSError as error:
            os.write(told, f"{what} {error.errno or 0}\n".encode())
        except BaseException:
            os.write(told, f"{what} {errno.EINVAL}\n".encode())
        os._exit(127)

    def _prepare(self, out: int, err: int) -> None:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        _default_signals()
        os.umask(self._intent["umask"])
        _die_with(self._shim_pid)

    def _enter_cgroup(self) -> bool:
        try:
            if self._cgroup:
                _write(f"{self._cgroup}/cgroup.procs", b"0")
        except OSError:  # the subreaper's means are left
            return False
        return self._cgroup is not None

    def _exec(self) -> None:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        _execute(list(self._intent["command"]), self._environment)


def _default_signals() -> None:
    for number in range(1, _signal.NSIG):
        try:
            _signal.signal(number, _signal.SIG_DFL)
        except (OSError, ValueError):  # SIGKILL, SIGSTOP, and those that the C library keeps
            continue


def _die_with(parent: int) -> None:
    """Have the kernel end this process with its parent."""
    prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before the kernel knew of our wish
        os._exit(127)


def _execute(argv: "list[str]", environment: "Mapping[str, str]") -> "NoReturn":
    """Be another program, looked for on the PATH that it is given. Raises OSError."""
    if "/" in argv[0]:
        os.execve(argv[0], argv, environment)  # noqa: S606 - the command is the user's own
    fault: OSError = FileNotFoundError(errno.ENOENT, argv[0])
    for folder in environment.get("PATH", os.defpath).split(":"):
        try:
            os.execve(os.path.join(folder, argv[0]), argv, environment)  # noqa: S606
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:  # the first that is there but cannot be executed says why
            fault = fault if not isinstance(fault, FileNotFoundError) else error
    raise fault


def become(arguments: "list[str]") -> "NoReturn":
    """What a process does that the loop starts, until it is the agent (L5): PARENT TOLD LOCALE COMMAND…

    It dies with its parent, and begins with default signals, whatever the loop ignores or blocks. On TOLD, a
    descriptor, it says the number of the error when the command cannot be executed. LOCALE is the LC_CTYPE
    of the agent, which this interpreter may have changed; empty for none.
    """
    parent, told, locale, *argv = arguments
    os.set_inheritable(int(told), False)
    try:
        _die_with(int(parent))
        _default_signals()
        environment = {name: value for name, value in os.environ.items() if name != "LC_CTYPE"}
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        _execute(argv, environment | ({"LC_CTYPE": locale} if locale else {}))
    except OSError as error:
        os.write(int(told), b"%d" % (error.errno or errno.EINVAL))
    os._exit(127)


def _quietly(call: "Callable[..., object]", *arguments: object) -> None:
    """Call what may fail without consequence."""
    try:  # noqa: SIM105 - contextlib is not loaded here
        call(*arguments)
    except OSError:
        pass


def prctl(option: int, value: int) -> None:
    """A wish of this process's to the kernel. Raises OSError."""
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


_LIBC = ctypes.CDLL(None, use_errno=True)


def _made_cgroup(path: "str | None") -> "str | None":
    try:
        if path is not None:
            os.mkdir(path)
    except FileExistsError:
        return path
    except OSError:
        return None
    return path


def _line(descriptor: int) -> bytes:
    """One line, or what came before the end."""
    data = b""
    while not data.endswith(b"\n") and (piece := os.read(descriptor, 1)):
        data += piece
    return data.strip()


def _write_new(path: str, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
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
    os.chdir("/")
    _keep_memory()
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ours already, unless somebody else started us
    try:
        shim = Shim(directory, from_json(read_bytes(f"{directory}/intent.json")), handed, tied)
    except OSError as error:
        _quietly(os.write, ready, f"fault {error.errno or 0}\n".encode())
        return
    try:
        shim.start()
    except Fault as fault:
        shim.failed(fault)
    except OSError as error:  # no process or no descriptor to be had
        shim.failed(Fault(error.errno or 0, "cannot start a process"))
    else:
        _quietly(os.write, ready, b"ready\n")  # if the daemon is gone, the next one reads the records
        os.close(ready)
        shim.pump()
        shim.finish()
    if os.fstat(2).st_size == 0:
        os.unlink(f"{directory}/shim.err")


def _keep_memory() -> None:
    """Let the C library keep the memory of a read for the next: to get it anew costs as much as the read."""
    if mallopt := getattr(_LIBC, "mallopt", None):
        mallopt(M_TRIM_THRESHOLD, 1 << 20)
        mallopt(M_MMAP_THRESHOLD, 1 << 20)
