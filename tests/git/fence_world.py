"""Remotes for the fence, by path and over smart http, with faults that the pusher asks for; hosts.

A fault is chosen by the environment of a push. ``before`` and ``after``: the server dies, or closes the
connection, before the refs move or before it answers. ``once``: as ``after``, for the first request only.
``pause:DIRECTORY``: the push stops after the pusher has read the refs and before they move.
"""

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ralphd.core.fleet.model import HostName, Lease
from ralphd.git.fence.fence import Claimed, Fence, LeaseMove, Pushed, WorkPush
from ralphd.git.fence.lease_ref import LeaseState
from tests.git.work_tree import WorkTree
from tests.helpers import wait_for

BRANCH = "ralph/i-7f3k"
LEASE_REF = f"refs/ralph/lease/{BRANCH}"
HEAD_REF = f"refs/heads/{BRANCH}"
QUIET = {"gc.auto": "0", "receive.autogc": "false", "core.fsync": "none", "core.logAllRefUpdates": "always"}
PRE_RECEIVE = """#!/bin/sh
case "$RALPH_FAULT" in
before) kill -9 $PPID;;
pause:*)
    directory="${RALPH_FAULT#pause:}"; : > "$directory/reached"; looks=0
    while [ ! -e "$directory/go" ] && [ $looks -lt 600 ]; do sleep 0.05; looks=$((looks + 1)); done;;
esac
"""
TRANSACTION = """#!/bin/sh
[ "$1:$RALPH_FAULT" = committed:after ] && kill -9 $PPID
exit 0
"""


class _Backend(BaseHTTPRequestHandler):
    """``git http-backend`` as CGI. Connections stay open: curl repeats a request on one that breaks."""

    protocol_version = "HTTP/1.1"
    timeout = 30
    server: "GitServer"

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self._body())

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _serve(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        fault = self.headers.get("X-Ralph-Fault", "") if path.endswith("/git-receive-pack") else ""
        if fault == "before":
            self.close_connection = True
            return
        variables = {
            "GIT_PROJECT_ROOT": str(self.server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "PATH": os.environ["PATH"],
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_ADDR": "127.0.0.1",
            "REMOTE_USER": "ralph",
            "RALPH_FAULT": fault if fault.startswith("pause:") else "",
        }
        backend = ["git", "http-backend"]
        output = subprocess.run(
            backend, input=body, env=variables, capture_output=True, check=True, timeout=60
        )
        head, _, content = output.stdout.partition(b"\r\n\r\n")
        if fault == "after" or (fault.startswith("once") and self.server.is_first(fault)):
            self.close_connection = True
            return
        lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(lines.pop("Status", "200 OK").split()[0]))
        for name, value in lines.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class GitServer(ThreadingHTTPServer):
    """Serves the repositories below ``root`` on loopback."""

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Backend)
        self.root = root
        self.daemon_threads = False  # so that closing waits for them
        self._seen: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def is_first(self, fault: str) -> bool:
        is_first = fault not in self._seen
        self._seen.add(fault)
        return is_first

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that was ended in the middle


@contextmanager
def serving(root: Path) -> Iterator[GitServer]:
    server = GitServer(root)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def environment(fault: str = "") -> Mapping[str, str]:
    """Return the pusher's environment: nothing of the machine's configuration, and a fault."""
    header = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "http.extraHeader"}
    asked = {"RALPH_FAULT": fault, **header, "GIT_CONFIG_VALUE_0": f"X-Ralph-Fault: {fault}"}
    basic = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_GLOBAL": os.devnull}
    return {**basic, "GIT_CONFIG_NOSYSTEM": "1", **(asked if fault else {})}


@dataclass
class Holder:
    """A host with a clone, and what it knows of its lease."""

    tree: WorkTree
    fence: Fence
    lease: Lease
    mine: str = ""
    last: str = ""

    def commit(self, subject: str) -> str:
        self.tree.git("commit", "--quiet", "--allow-empty", "-m", subject)
        return self.head

    @property
    def head(self) -> str:
        return self.tree.git("rev-parse", "HEAD").strip()

    def with_fault(self, fault: str) -> Fence:
        return replace(self.fence, environment=environment(fault))

    def take(self, *, token: int, expected: str = "") -> None:
        """Claim the lease, which has to go well, and start from the tip of the branch."""
        claimed = self.fence.claim(BRANCH, replace(self.lease, token=token, n=0), expected)
        assert isinstance(claimed, Claimed), claimed
        self.mine, self.lease = claimed.sha, claimed.lease
        if self.state().tip:
            self.tree.git("fetch", "--quiet", self.fence.url, HEAD_REF)
            self.tree.git("reset", "--quiet", "--hard", "FETCH_HEAD")
            self.last = self.head

    def take_over(self) -> None:
        present = self.state()
        self.take(token=1 + (present.lease.token if present.lease else 0), expected=present.sha)

    def push(self, *, fault: str = "", mine: str = "", last: str | None = None) -> WorkPush:
        fence = self.with_fault(fault)
        answer = fence.push(
            BRANCH, self.head, self.lease, mine or self.mine, self.last if last is None else last
        )
        if isinstance(answer, Pushed):
            self.mine, self.lease, self.last = answer.sha, answer.lease, self.head
        return answer

    def pushes(self, subject: str) -> str:
        """Commit and push, which has to go well; the commit."""
        head = self.commit(subject)
        answer = self.push()
        assert isinstance(answer, Pushed), answer
        return head

    def bump(self, *, fault: str = "") -> LeaseMove:
        return self.with_fault(fault).bump(BRANCH, self.lease, self.mine)

    def state(self) -> LeaseState:
        state = self.fence.read(BRANCH)
        assert isinstance(state, LeaseState), state
        return state


@dataclass(frozen=True)
class World:
    """A remote that takes pushes, reached by ``url``."""

    root: Path
    bare: WorkTree
    url: str

    def host(self, name: str) -> Holder:
        WorkTree(self.root).git("clone", "--quiet", str(self.bare.path), name)
        tree = WorkTree(self.root / name)
        return Holder(
            tree,
            Fence(tree.path, self.url, environment(), limit_s=30.0),
            Lease(HostName(name), f"boot-{name}", 0),
        )

    def refs(self) -> dict[str, str]:
        lines = self.bare.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return dict(line.split(" ", 1) for line in lines)

    def hook(self, name: str, script: str) -> None:
        hook = self.bare.path / "hooks" / name
        hook.write_text(script)
        hook.chmod(0o755)

    def put(self, ref: str, content: bytes) -> str:
        """Have a ref point to a blob, as whoever can push could; its sha."""
        given = self.root / "given"
        given.write_bytes(content)
        sha = self.bare.git("hash-object", "-w", str(given)).strip()
        self.bare.git("update-ref", ref, sha)
        return sha

    def subjects(self, ref: str = HEAD_REF) -> list[str]:
        return self.bare.git("log", "--format=%s", ref).splitlines()


@contextmanager
def world(root: Path, kind: str) -> Iterator[World]:
    """A bare repository with one commit on ``main``, by path (``file``) or over http."""
    seed = WorkTree.new(root / "seed")
    seed.commit("first")
    seed.git("clone", "--quiet", "--bare", str(seed.path), str(root / "origin.git"))
    bare = WorkTree(root / "origin.git")
    with (bare.path / "config").open("a") as config:
        settings = {**QUIET, "http.receivepack": "true"}
        config.writelines(
            f"[{key.split('.')[0]}]\n{key.split('.')[1]} = {value}\n" for key, value in settings.items()
        )
    made = World(root, bare, str(bare.path))
    made.hook("pre-receive", PRE_RECEIVE)
    if kind == "file":
        made.hook("reference-transaction", TRANSACTION)
        yield made
        return
    with serving(root) as server:
        yield replace(made, url=f"{server.url}/origin.git")


def reached(directory: Path) -> None:
    """Wait until a push with the fault ``pause:DIRECTORY`` has read the refs."""
    wait_for((directory / "reached").exists, what="the push in the server", timeout_s=30.0)
