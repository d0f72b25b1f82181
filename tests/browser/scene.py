"""A night for the page to show: the page's real process over a daemon whose answers are set here."""

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ralphctl.web.devices import Devices, Role
from ralphd.core.time import rfc3339
from ralphd.process.log.records import stored_time
from tests.ctl.commands.test_quota import account
from tests.ctl.fake import Answer, FakeDaemon, view
from tests.git.work_tree import WorkTree
from tests.helpers import wait_for
from tests.whole.web_stage import free_port
from tests.written_nights import night, write

RUN = "r000001-0000beef"
TITLES = {
    "api": "Write a test for leap seconds in the header of a date",
    "web": "Show the date in local time, and the time zone beside it",
    "infra": "Move the build to the new runners",
    "docs": "Describe the header in the reference",
    "search": "Rank exact matches first",
}


@dataclass(frozen=True, slots=True)
class Scene:
    """A page that is served. ``daemon`` answers it; ``news`` wakes those who follow."""

    port: int
    state: Path
    daemon: FakeDaemon

    @property
    def origin(self) -> str:
        """Where the page is."""
        return f"http://ralphd.localhost:{self.port}"

    def cookie(self, role: Role = "act") -> Mapping[str, Any]:
        """The session of a device that was paired just now, as a browser keeps it."""
        _, session = Devices(self.state / "web").add("My phone", role, None)
        return {
            "name": "ralphd",
            "value": session,
            "url": self.origin,
            "sameSite": "Strict",
            "httpOnly": True,
        }


@contextmanager
def scene(root: Path, copies: int = 1) -> Iterator[Scene]:
    """Serve a night of eight ralphs, or of ``copies`` times as many."""
    state, now = root / "state", time.time()
    (state / "ralphs").mkdir(parents=True)
    daemon = FakeDaemon(state / "ralphd.sock")
    port = free_port()
    settings = {"listen": f"127.0.0.1:{port}", "hosts": [], "socket": str(daemon.path)}
    environment = {**os.environ, "RALPHD_STATE_DIR": str(state), "HOME": str(root)}
    with (state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for number in range(copies):
            _night(daemon, root, now, f"-{number}" if number else "")
        _answers(daemon, now)
        page = subprocess.Popen(
            [sys.executable, "-m", "ralphctl.web"], stdin=subprocess.PIPE, env=environment, text=True
        )
        assert page.stdin
        page.stdin.write(json.dumps(settings | {"state_directory": str(state)}) + "\n")
        page.stdin.flush()
        try:
            wait_for(lambda: (state / "web" / "control.sock").exists(), what="the page")
            yield Scene(port, state, daemon)
        finally:
            page.stdin.close()
            page.wait(10)
            daemon.stop()


def _night(daemon: FakeDaemon, root: Path, now: float, suffix: str) -> None:
    def ago(seconds: float) -> str:
        return rfc3339(now - seconds)

    def add(name: str, iterations: int, began_s: float, **changes: Any) -> None:
        task = {"id": name, "title": TITLES[name]} if name in TITLES else None
        directory = root / "work" / (name + suffix)
        directory.mkdir(parents=True)
        entries = night(iterations, now - began_s, tasks=9)
        state = {key: changes[key] for key in ("state", "wait", "message", "pause_reason") if key in changes}
        write(daemon.path.parent / "ralphs" / (name + suffix), directory, entries, run_id=RUN, **state)
        shown: dict[str, Any] = {
            "task": task,
            "command": [],
            "last_output_at": ago(4),
            "started_at": ago(began_s),
            "agent": "claude",
        }
        daemon.views[name + suffix] = view(
            name + suffix, directory=str(directory), iteration=iterations, **shown | changes
        )

    add("api", 62, 4 * 3600, tasks={"done": 4, "total": 5}, total_cost_usd=6.82,
        last_change={"at": ago(95), "what": "commit 3fa9c1d: read the header"})  # fmt: skip
    add("web", 40, 3 * 3600, tasks={"done": 2, "total": 5}, total_cost_usd=4.4, agent="codex",
        last_change={"at": ago(610), "what": "commit 91be220: format dates"})  # fmt: skip
    add("infra", 20, 7 * 3600, state="waiting_for_retry", tasks={"done": 2, "total": 5}, total_cost_usd=2.1,
        wait={"reason": "usage_limit", "until": rfc3339(now + 1860)})  # fmt: skip
    add("docs", 12, 6 * 3600, state="failed", tasks={"done": 0, "total": 5}, finished_at=ago(2900),
        message="5 tasks failed, all of them: unhandled exception in the tool loop",
        incident={"opened_at": ago(2900), "message": "5 tasks failed", "held_back": 0, "reminders": 2,
                  "needs": "a login of the agent's CLI", "do": "claude /login",
                  "acknowledged_at": None})  # fmt: skip
    add("search", 25, 5 * 3600, state="paused", pause_reason="guard", tasks={"done": 3, "total": 4},
        message="the tests fail without its commits, too",
        guard={"reverted": ["a1b2c3d", "b2c3d4e"]})  # fmt: skip
    add("billing", 30, 8 * 3600, state="done", tasks={"done": 6, "total": 6}, branch="ralph/billing",
        finished_at=ago(5000), total_cost_usd=3.3,
        landing={"state": "waiting", "target": "main", "why": "it changes payments/",
                 "next": "ralphctl land billing"})  # fmt: skip
    add("old", 8, 12 * 3600, state="done", finished_at=ago(30000), message="all 3 tasks are done")
    if not suffix:
        daemon.views["buildbox/fuzz"] = view("buildbox/fuzz", task={"id": "f", "title": "Fuzz the parser"},
                                             started_at=ago(4000), last_output_at=ago(2))  # fmt: skip
        _iteration(daemon, root / "work" / "api", now)


def _iteration(daemon: FakeDaemon, directory: Path, now: float) -> None:
    """Give the last iteration of ``api`` a prompt, an output and a commit."""
    home = daemon.path.parent / "ralphs" / "api"
    tree = WorkTree.new(directory)
    (directory / "header.py").write_text("def parse(text):\n    return text.split()\n")
    tree.git("add", ".")
    tree.git("commit", "--quiet", "--message", "Parse the header of a date")
    sha = tree.git("rev-parse", "HEAD").strip()
    path = home / "history.jsonl"
    path.write_text(path.read_text().replace("000003e", sha))
    (home / "PROMPT-now.md").write_text("Do the first open task of TASKS.md, then commit.\n")
    run = home / "runs" / RUN
    run.mkdir(parents=True)
    lines = ["I'll add the leap-second case.", "[Edit] tests/test_header.py +14", "All 212 tests pass."]
    ended = next(line for line in reversed(path.read_text().splitlines()) if '"kind":"attempt"' in line)
    at = datetime.fromisoformat(json.loads(ended)["at"]).timestamp() - 60
    (run / "log.000001").write_text(
        "".join(f"{stored_time(at + number)} stdout F {line}\n" for number, line in enumerate(lines))
    )


def _answers(daemon: FakeDaemon, now: float) -> None:
    window = {"name": "five_hour", "limit": "5-hour limit", "used": 0.82, "resets_at": rfc3339(now + 1860)}
    accounts = [
        account("claude@work", windows=[window | {"ends_at": None}], working=["api"], waiting=["infra"]),
        account("codex", windows=[window | {"used": 0.31, "ends_at": None}], working=["web"]),
    ]
    landed = {
        "number": 4, "ralph": "billing", "branch": "ralph/billing-2", "head": "abc", "state": "landed",
        "why": "", "tries": 1, "commit": "abc1234", "undoes": None, "queued_at": rfc3339(now - 9000),
        "ended_at": rfc3339(now - 8000), "next": "", "copies": [],
    }  # fmt: skip
    queue = {"repository": "/srv/shop/.git", "target": "main", "remote": None, "blocked": None, "batch": None}
    daemon.on("GET /v1/quota", lambda _: Answer({"accounts": accounts}))
    daemon.on("GET /v1/landing", lambda _: Answer({"queues": [queue | {"candidates": [landed]}]}))
    why = {
        "rule": "L3", "title": "the run failed", "because": "3 failures in a row, as many as are allowed",
        "done": "stopped, and alerted you", "missing": [], "at": rfc3339(now - 2900), "run_id": RUN,
        "figures": [{"name": "failures in a row", "seen": "3", "limit": "3"}],
        "request": {"action": "pause", "at": rfc3339(now - 3100), "by": {"device": "My phone"}},
    }  # fmt: skip
    texts = [
        "[Read] header.py",
        "I'll add the leap-second case to test_header.py.",
        "[Edit] test_header.py +14",
    ]
    record = {"stream": "stdout", "partial": False, "cursor": "r:1:0"}
    lines = [record | {"at": rfc3339(now - 400 + 2 * i), "text": texts[i % 3]} for i in range(180)]
    log = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    daemon.on("GET /v1/events", lambda request: Answer(None, parts=_quiet(daemon)))
    for name, shown in daemon.views.items():
        path = f"/v1/ralphs/{name}" if "/" not in name else f"/v1/fleet/ralphs/{name}"
        daemon.on(f"GET {path}", lambda _, shown=shown: Answer(shown))  # type: ignore[misc]
        daemon.on(f"GET {path}/explain", lambda _: Answer(why))
        daemon.on(f"GET {path}/logs", lambda _: Answer(log))


def _quiet(daemon: FakeDaemon) -> Iterator[bytes]:
    while not daemon.ended.wait(5):
        yield b": alive\n\n"
