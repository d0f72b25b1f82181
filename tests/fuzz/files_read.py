"""Parsers of files that a run, a repository or an earlier daemon wrote."""

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from ralphctl.format import checkpoint_text, status_text, table_text
from ralphctl.offline import checkpoint as offline_checkpoint
from ralphctl.offline import state as offline
from ralphctl.report import gather, model, read
from ralphctl.report import text as report_text
from ralphctl.report.history import HistoryReader
from ralphctl.report.page import markdown, plain_text
from ralphctl.setup import detect
from ralphctl.web.devices import Signatures
from ralphd.config import files
from ralphd.config.configuration import Configuration
from ralphd.config.layers import Layer
from ralphd.core.gate.git_config_changes import changed_commands
from ralphd.core.landing.model import LandingQueue, Target
from ralphd.core.loop.inbox import Inbox, Sent
from ralphd.core.quota.model import QuotaClock, QuotaLimit
from ralphd.core.supervision.model import RunId
from ralphd.core.time import rfc3339
from ralphd.errors import RalphdError
from ralphd.git import facts
from ralphd.git.repo import Repository
from ralphd.git.rewrite.file_snapshots import PathKind, SavedFile, SavedState
from ralphd.git.runner import NotDone
from ralphd.git.tree_diff import TreeEntry
from ralphd.plain_files import peek
from ralphd.process import shim
from ralphd.process.log.log import RalphLog
from ralphd.process.log.records import BLOCK_BYTES, Chunk, Cursor, LogQuery, parse, whole_text
from ralphd.process.log.rendered import rendered, shown
from ralphd.process.rundir import RunDirectory
from ralphd.store import checkpoint, gate, history, loop_files, webhooks
from ralphd.store.codec import FAULTS, peek_file
from ralphd.store.shared import landing, quota
from ralphd.store.state import Definition, RegentState
from tests.fuzz.agent_texts import NOW
from tests.fuzz.parsers import (
    JSON_TOKENS,
    KIB,
    MIB,
    TEXT_TOKENS,
    Parser,
    is_kind,
    is_showable,
    json_samples,
    must,
    text_of,
)

RUN_ID = "r000001-12345678"


@cache
def folder() -> Path:
    """Return a directory of this process, in memory where there is some; it is removed at its end."""
    shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="fuzz-", dir=shm))
    pid = os.getpid()

    def remove() -> None:
        if pid == os.getpid():
            shutil.rmtree(path, ignore_errors=True)

    atexit.register(remove)
    return path


def written(name: str, data: bytes) -> Path:
    path = folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


# --- configuration ---------------------------------------------------------------------------------------


def ralph_toml(data: bytes) -> None:
    """Read a repository's file and the user's own; each fault has one line of text and a place."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    for users_own in (False, True):
        layer = files.layer_of(text, Path("/project/ralph.toml"), Path("/home/u"), users_own=users_own)
        is_kind(layer, Layer)
        for fault in layer.faults:
            must(fault.place.startswith("ralph.toml"), f"a fault at {fault.place}")
            is_showable(str(fault))


def pinned(data: bytes) -> None:
    """Read the configuration in a ralph's definition."""
    try:
        stored = json.loads(data)
    except (ValueError, RecursionError):
        return
    try:
        is_kind(Definition.from_json(stored), Definition)
        is_kind(Configuration.from_pinned(stored["configuration"]), Configuration)
    except (*FAULTS, RalphdError):
        return


def project_files(data: bytes) -> None:
    """Look for a test command in a project whose files hold anything."""
    place = folder() / "project"
    for name in ("pyproject.toml", "package.json", "Makefile", "tox.ini", "Cargo.toml"):
        written(f"project/{name}", data)
    for found in detect.detect_tests(place, os.defpath):
        is_showable(found.source)
    for pattern in detect._python_files(place):
        is_kind(pattern, str)


# --- logs ------------------------------------------------------------------------------------------------


def log_lines(data: bytes) -> None:
    """Parse whole lines, with and without a torn end; both ways to read them agree."""
    body = data if data.endswith(b"\n") else data + b"\n"
    for torn in (False, True):
        chunk = Chunk(body, 0, torn=torn)
        lines = parse(chunk)
        must(lines[-1].end == chunk.end, "the lines do not add up")
        must(all(a.end <= b.end for a, b in pairwise(lines)), "offsets go back")
        if (whole := whole_text(chunk)) is not None:
            must(whole == b"".join(line.text + b"\n" for line in lines), "two readings of a chunk differ")
    is_kind(chunk.last_at, str)


def log_directory(data: bytes) -> None:
    """Read a run's log whose segments and Regent's lines are anything; a form feed divides the files."""
    parts = data.split(b"\f")
    shutil.rmtree(folder() / "runs", ignore_errors=True)
    for name, part in zip(("log.000001", "log.000002", "regent.log"), parts, strict=False):
        written(f"runs/{RUN_ID}/{name}", part)
    if len(parts) > 3:
        written(f"runs/{RUN_ID}/exit.json", parts[3])
    log = RalphLog(folder() / "runs")
    for query in (
        LogQuery(),
        LogQuery(tail=3),
        LogQuery(as_text=True),
        LogQuery(since=NOW, tail=2),
        LogQuery(stream="stdout", grep="a", until=NOW),
        LogQuery(whole_events=True, tail=2),
    ):
        size = 0
        for item in log.read(query):
            size += len(getattr(item, "text", b""))
            if not query.as_text:
                json.dumps(shown(item))
            must(str(Cursor.parse(str(item.cursor))) == str(item.cursor), "a cursor does not survive")
        must(size <= 2 * len(data) + 1000, "more text than there is in the files")
    list(rendered(log.read, LogQuery(tail=3, whole_events=True), lambda: lambda line, at: line))
    is_kind(log.last_lines(RunId(RUN_ID), 5, stream=None), list)


def cursor(data: bytes) -> None:
    try:
        found = Cursor.parse(text_of(data))
    except RalphdError as fault:
        is_showable(str(fault))
        return
    must(Cursor.parse(str(found)) == found, "a cursor does not survive")


# --- records of runs, state files ------------------------------------------------------------------------


def run_records(data: bytes) -> None:
    """Read all records of a run's directory; what a run wrote there may be anything."""
    for name in ("run.json", "exit.json", "intent.json"):
        written(f"{RUN_ID}/{name}", data)
    directory = RunDirectory(folder() / RUN_ID)
    record, ended = directory.run_record(), directory.exit_record()
    for each in (record, ended):
        if each is not None:
            must(each.run_id == RUN_ID, "a record of another run")
            must(each.started_at is None or rfc3339(each.started_at), "a time that cannot be written")


def shim_json(data: bytes) -> None:
    """Read JSON without the json module; what it reads can be written and read again."""
    try:
        value = shim.from_json(data)
    except (ValueError, RecursionError):
        return
    if value == value and "inf" not in repr(value) and "nan" not in repr(value):
        must(json.loads(shim.to_json(value)) == value, "a value changes when it is written")


def _saved(stored: dict[str, Any]) -> SavedState:
    try:
        return SavedState.from_json(json.dumps(stored).encode())
    except NotDone as unreadable:
        raise ValueError from unreadable


def _stores() -> dict[str, tuple[Callable[[dict[str, Any]], Any], Callable[[Any], Any] | None]]:
    return {
        "checkpoint.json": (checkpoint.from_json, checkpoint.to_json),
        "loop.json": (loop_files.MEMORY.load, loop_files.MEMORY.dump),
        "tasks.json": (loop_files._tasks_of, loop_files._tasks_json),
        "phases.json": (loop_files._PHASES.load, loop_files._PHASES.dump),
        "inbox.json": (loop_files._INBOX.load, loop_files._INBOX.dump),
        "gate.json": (gate._state_of, gate._as_plain),
        "webhooks.json": (webhooks._webhooks_of, None),
        "queue.json": (landing._QUEUE.load, landing._QUEUE.dump),
        "clock.json": (quota._CLOCK.load, quota._CLOCK.dump),
        "regent-state.json": (RegentState.from_json, None),
        "saved": (_saved, lambda each: json.loads(each.to_json())),
    }


def state_file(data: bytes) -> None:
    """Read each of the stores' files; what was read can be written, and reads as the same."""
    path = written("state.json", data)
    stored = peek(path)
    for name, (load, dump) in _stores().items():
        peek_file(path, 1, load)
        try:
            value = load(stored or {})
        except (*FAULTS, RalphdError):
            continue
        if dump is not None:
            plain = json.loads(json.dumps(dump(value)))
            must(load({"version": 1, **plain}) == value, f"{name} changes when it is written")


def view_of_files(data: bytes) -> None:
    """Show what ``status`` prints without a daemon, of a working directory that a run filled."""
    place = folder() / "work"
    for name in ("regent-state.json", "checkpoint.json"):
        written(f"work/.ralph/{name}", data)
    view = offline.last_view(str(place))
    if view is not None:
        view = offline.without_daemon(view)
        saved = offline_checkpoint.checked(place / ".ralph" / "checkpoint.json", place)
        step = ("start it", "ralphctl start")
        content = dict(saved.content)
        for columns in (None, 80):
            is_showable(status_text.ralph(view, NOW, checkpoint=content, step=step, columns=columns))
        is_showable(status_text.ralph(view, NOW, checkpoint_fault=saved.fault))
        is_showable(table_text.table([view], NOW, columns=100))
        is_showable(table_text.short([view], NOW))
        for _, words in checkpoint_text.rows(content, NOW):
            is_showable(words)
    checkpoint.summary(place / ".ralph" / "checkpoint.json")
    paused = checkpoint.pause_in(place / ".ralph" / "checkpoint.json")
    must(paused.resume_at is None or rfc3339(paused.resume_at), "a time that cannot be written")


def history_lines(data: bytes) -> None:
    """Read a history forwards, backwards and for a report, and print the report."""
    path = written("work/.ralph/history.jsonl", data)
    written("work/.ralph/regent-state.json", b"{}")
    list(history.newest_first(path))
    reader, gatherer = HistoryReader(path), gather.Gatherer(NOW - 86400, NOW)
    for entry in reader.entries(rfc3339(NOW - 86400)):
        gatherer.add(entry)
    source = model.ReportSource("demo", str(folder() / "work"), None)
    definition, view, summary = read.gathered(source, NOW - 86400, NOW, NOW)
    state = read.reported_state(view)
    report = model.RalphReport(source, view, state, summary, None, None, read.budget_usd(definition), None)
    page = report_text.page(report, NOW)
    is_showable(plain_text(page, columns=80))
    is_showable(markdown(page))
    gatherer.finish(state, NOW, reader)


# --- git -------------------------------------------------------------------------------------------------


def git_files(data: bytes) -> None:
    """Find a repository whose pointers, HEAD and reflog are anything; a form feed divides the files."""
    head, config, log, pointer = (data.split(b"\f") + [b""] * 3)[:4]
    top = folder() / "repository"
    for name in ("objects", "refs/heads", "logs"):
        (top / ".git" / name).mkdir(parents=True, exist_ok=True)
    written("repository/.git/HEAD", head)
    written("repository/.git/config", config)
    written("repository/.git/logs/HEAD", log)
    (top / "sub").mkdir(exist_ok=True)
    written("repository/sub/.git", b"gitdir: " + pointer)
    for place in (top, top / "sub"):
        repository = Repository.find(place)
        if repository is not None:
            is_kind(repository.branch(), str, None)
            is_kind(repository.branch_and_head(), tuple, None)
            is_kind(repository.top, Path, None)
            repository.proven()
    list(facts._reflog(top / ".git" / "logs" / "HEAD"))
    facts._made_in(top / ".git" / "logs" / "HEAD")


def git_settings(data: bytes) -> None:
    """Judge the settings of a repository, as `git config --list --null` prints them."""
    settings: dict[str, list[str]] = {}
    for line in os.fsdecode(data).split("\0"):
        key, _, value = line.partition("\n")
        settings.setdefault(key, []).append(value)
    changed = changed_commands({}, settings)
    must(set(changed) <= settings.keys(), "a setting that is not there")
    must(changed_commands(settings, settings) == [], "what is the same has changed")


def web_nonces(data: bytes) -> None:
    """Start the page's guard with a file of nonces that holds anything."""
    written("web/nonces.json", data)
    signatures = Signatures(folder() / "web", lambda: NOW)
    must(all(type(at) is float for at in signatures._nonces.values()), "a time that is none")


LINE = b"2026-11-21T20:00:00.000000000Z stdout F "
LOGS = [
    LINE
    + b"one\n"
    + LINE.replace(b" F ", b" P ")
    + b"half\n"
    + LINE.replace(b"stdout", b"stderr")
    + b"\xff\n\f"
    + LINE
    + b"x\n\f"
    + LINE.replace(b"stdout", b"regent")
    + b"started\n",
    LINE + b'{"type":"system"}\njunk\n' + LINE.replace(b"2026-11-21", b"2026-99-99") + b"odd",
    b"\f\f" + LINE + b"\f{}",
]
TOML = [
    b'[ralph]\ncommand = ["a", "b"]\nmax_iterations = 3\n\n[agents.claude]\nenv = { A = "b" }\nargs = []\n',
    b'[regent]\ntest_command = """\nmake\n"""\nmax_retries = 1e3\n[[webhooks]]\nurl = "https://x"\n',
    b'a."b c".\'d\' = 1979-05-27T07:32:00Z\n[x . "y"]\nz = [1, {q = "r"}, [[]],]\n"\\u0041" = 0x_f\n',
    b"[sandbox]\nlevel = 'box'\n",
]
PROJECTS = [
    b'[tool.pytest.ini_options]\npython_files = ["check_*.py"]\n',
    b'{"scripts":{"test":"jest"},"packageManager":"pnpm@9.1.0"}',
    b"test: a\n\tmake b\n.PHONY: test check\n",
    b"[pytest]\npython_files = a.py b.py\n  c.py\n[testenv]\ncommands = pytest\n",
]
GIT = [
    b"ref: refs/heads/main\n\f[core]\n\tbare = false\n\f"
    + b"0" * 40
    + b" "
    + b"1" * 40
    + b" A <a@b> 1795476400 +0000\tcommit: x\n"
    b"\f../.git/worktrees/x\n",
    b"1" * 40 + b"\n\f[core]\n\tworktree = ../x\n\f\f/nowhere",
]
QUEUE = LandingQueue(
    "/r/.git", "/r", Target("main", "origin", "git@h:a"), suspects=(1,), green="1" * 40, retry_at=NOW
)
CLOCK = QuotaClock("claude", limit=QuotaLimit(NOW, NOW - 60, "usage limit", "a.1"))
INBOX = Inbox(2, (Sent("+1", "a task", NOW),), (Sent("2", "a note", NOW),))
DUMPED = [landing._QUEUE.dump(QUEUE), quota._CLOCK.dump(CLOCK), loop_files._INBOX.dump(INBOX)]
SAVED = SavedState(
    "1" * 40, "", 5, (SavedFile(b"a", PathKind.FILE, 0o644, "2" * 40, TreeEntry("100644", "3" * 40), None),)
)
STATES = [
    *json_samples(
        "checkpoint.json",
        "loop.json",
        "tasks.json",
        "phases.json",
        "gate.json",
        "webhooks.json",
        "regent-state.json",
    ),
    *(json.dumps({"version": 1, **each}).encode() for each in DUMPED),
    SAVED.to_json(),
]

PARSERS = (
    Parser(
        "ralph-toml",
        ralph_toml,
        TOML,
        (*TEXT_TOKENS, b"[a.b]", b"=", b'"""', b"'''", b"[[", b"#", b"a.b.c"),
        weight=3,
        most_bytes=MIB,
        units=(
            b"a = 1\n",
            b"[a.b]\n",
            b"a.",
            b"x = [",
            b'"""',
            b"{a=",
            b"# x\n",
            b"[[webhooks]]\n",
            b'k = "\\u0041"\n',
        ),
    ),
    Parser("pinned", pinned, json_samples("ralph.json"), JSON_TOKENS, weight=2, most_bytes=MIB),
    Parser("project-files", project_files, PROJECTS, TEXT_TOKENS, most_bytes=MIB),
    Parser(
        "log-lines",
        log_lines,
        [each.replace(b"\f", b"\n") for each in LOGS],
        (LINE, b" P ", b"\n\n"),
        weight=2,
        units=(LINE + b"x\n", LINE, LINE.replace(b" F ", b" P ") + b"y\n"),
        most_bytes=BLOCK_BYTES,
    ),
    Parser(
        "log-directory",
        log_directory,
        LOGS,
        (LINE, b"\f", b"\n"),
        weight=2,
        units=(LINE + b"x\n", LINE.replace(b" F ", b" P ") + b"y\n", LINE + b'{"type":\n'),
    ),
    Parser("cursor", cursor, [b"r000001-12345678:3:1234:0"], (b":", b"0" * 20), most_bytes=KIB),
    Parser(
        "run-records",
        run_records,
        [
            each.replace(json.loads(each)["run_id"].encode(), RUN_ID.encode())
            for each in json_samples("run.json", "exit.json")
        ],
        JSON_TOKENS,
        weight=2,
        most_bytes=MIB,
    ),
    Parser("shim-json", shim_json, json_samples("intent.json", "run.json"), JSON_TOKENS, most_bytes=MIB),
    Parser("state-file", state_file, STATES, JSON_TOKENS, weight=4, most_bytes=MIB),
    Parser(
        "view-of-files",
        view_of_files,
        json_samples("regent-state.json", "checkpoint.json"),
        JSON_TOKENS,
        weight=4,
        most_bytes=MIB,
    ),
    Parser(
        "history",
        history_lines,
        [*json_samples("history.jsonl"), b"\n".join(json_samples("history.jsonl"))],
        (*JSON_TOKENS, rfc3339(NOW - 9).encode()),
        weight=3,
    ),
    Parser(
        "git-settings",
        git_settings,
        [
            b"core.bare\nfalse\0diff.x.textconv\ncat\0alias.s\n!sh",
            b"sendemail.a.smtpserver\nx\0remote.o.url\next::sh",
        ],
        (b".", b".cmd", b"ext::", b"\0", b"\n"),
        most_bytes=MIB,
        units=(
            b"sendemail.",
            b"a.",
            b".cmd",
            b"credential.",
            b"diff.external.",
            b"include.path",
            b"lfs.extension.a.",
        ),
    ),
    Parser(
        "web-nonces",
        web_nonces,
        [b'{"version":1,"nonces":{"d n":1795476400.0}}'],
        JSON_TOKENS,
        most_bytes=MIB,
    ),
    Parser("git-files", git_files, GIT, (b"ref: ", b"..", b"/", b"\0", b"gitdir: "), most_bytes=MIB),
)
