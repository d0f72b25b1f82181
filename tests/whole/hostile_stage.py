"""A daemon with three ralphs, one of them hostile, in a pid namespace of its own; prints what became of them.

The namespace has the test's directory at ``PLACE``, a HOME of its own, and everything else read-only.

python -m tests.whole.hostile_stage SEED OUTER
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.helpers import is_alive, wait_for
from tests.players import player
from tests.whole.guarded import Guarded
from tests.whole.harness import Daemon, daemon_in

PLACE = Path("/mnt")
OUTER = "/proc/self/ns/pid"
OVER_S, ENTER_S = 180.0, 20.0
OTHERS = ("one", "two")
MINE = b"a person's \x00 bytes\r\nwithout an end"
SETTINGS = {
    "regent.rollback_on_test_failure": True,
    "regent.test_command": "sh run-tests",
    "regent.protect_tests": "revert",
    "regent.protect": ["run-tests"],
    "regent.retry_backoff_seconds": 0.05,
    "regent.max_retries": 1000,
    "regent.max_restarts_per_hour": 1000,
    "regent.test_retries": 0,
}
PREPARE = """
set -e
place=$1 user=$2; shift 2
mount --bind "$place" /mnt
chown -R "$user:$user" /mnt
number=0
for path in "$HOSTILE_PROJECT" "$HOSTILE_PREFIX" "$HOSTILE_BASE"; do
  number=$((number + 1))
  mkdir -p "/mnt/.kept/$number"
  mount --bind "$path" "/mnt/.kept/$number"
done
mount -t tmpfs -o mode=755,size=8m tmpfs "$HOME"
number=0
for path in "$HOSTILE_PROJECT" "$HOSTILE_PREFIX" "$HOSTILE_BASE"; do
  number=$((number + 1))
  test -e "$path" || { mkdir -p "$path"; mount --bind "/mnt/.kept/$number" "$path"; }
done
mount --bind /proc/sys /proc/sys
cut -d' ' -f2 /proc/mounts | sort -ru | while read -r mounted; do
  case $mounted in
    /mnt|/mnt/*|/proc|/dev*|/sys/fs/cgroup*) ;;
    *) mount -o remount,bind,ro "$mounted" || test "$mounted" != /proc/sys ;;
  esac
done
mkdir -p /mnt/tmp && chmod 1777 /mnt/tmp
test "$user" = "$(id -u)" || set -- setpriv "--reuid=$user" "--regid=$user" --clear-groups -- "$@"
exec "$@"
"""
NAMESPACES = ("--pid", "--mount", "--ipc", "--net", "--fork", "--mount-proc", "--kill-child")


def entered(place: Path, user: int, *command: str) -> list[str]:
    """Return the words that run a command as ``user`` in namespaces of its own, ``place`` at ``PLACE``."""
    rights = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    unshare = ("setpriv", "--pdeathsig", "KILL", "unshare", *rights, *NAMESPACES)
    return [*unshare, "sh", "-c", PREPARE, "sh", str(place), str(user), *command]


def run(place: Path, user: int, command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a command so, to its end, which is the end of all that it started."""
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": os.environ.get("HOME", "/root"),
        "TMPDIR": str(PLACE / "tmp"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "HOSTILE_PROJECT": str(Path(__file__).parents[2]),
        "HOSTILE_PREFIX": sys.prefix,
        "HOSTILE_BASE": sys.base_prefix,
    }
    return subprocess.run(
        entered(place, user, *command),
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s,
    )  # fmt: skip


def processes() -> dict[int, str]:
    """The living processes of this namespace."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if is_alive(int(pid)):
                found[int(pid)] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def born(pid: int) -> str:
    """A process's start in ticks since boot: with its pid, which one it is."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


class Stage:
    """The daemon, two ralphs that count, a hostile one in a repository, a process of a person's."""

    def __init__(self, daemon: Daemon, seed: int, outer: str) -> None:
        self.daemon, self.record = daemon, daemon.root / "record"
        self.record.mkdir()
        self.person = subprocess.Popen(["sleep", "3600"])
        daemon.start(as_child=True)
        for name in OTHERS:
            self._register(name, player("counter", self.record / name))
        self.guarded = Guarded.of(daemon)
        place = self.guarded.place
        (place / "run-tests").write_text("! test -e broken\n")
        (place / ".gitignore").write_text(".env.local\n")
        self.guarded.git("add", ".")
        self.guarded.commit("second")
        (place / "mine").write_bytes(MINE)
        (place / ".env.local").write_bytes(MINE)
        self._register("demo", player("hostile", self.record, seed, outer), SETTINGS)
        self.shims = {name: daemon.run_record(name)["shim_pid"] for name in OTHERS}
        self.before = self._identities()

    def _register(self, name: str, command: Sequence[str], flags: dict[str, Any] | None = None) -> None:
        directory = self.daemon.home / name
        directory.mkdir(exist_ok=True)
        body = {
            "directory": str(directory), "name": name, "command": list(command),
            "environment": self.daemon.environment, "flags": flags or {},
        }  # fmt: skip
        self.daemon.ask("POST", "/v1/ralphs", body)
        wait_for(lambda: self.daemon.run_directories(name), timeout_s=ENTER_S, what=f"a run of {name}")
        self.daemon.becomes(name, "running", timeout_s=ENTER_S)

    def _identities(self) -> dict[str, str]:
        pids = {"daemon": self.daemon.pid, "person": self.person.pid, **self.shims}
        return {who: f"{pid} {born(pid)}" if is_alive(pid) else "dead" for who, pid in pids.items()}

    def lines(self, name: str) -> list[str]:
        """What the players wrote to a file of the record."""
        path = self.record / name
        return path.read_text().splitlines() if path.exists() else []

    def play(self) -> dict[str, Any]:
        """Return what holds in the hostile ralph's last life, after its stop, and after the daemon's end."""
        wait_for(lambda: self.lines("over"), timeout_s=OVER_S, what="its last life")
        wait_for(lambda: self._is_up(), timeout_s=ENTER_S, what="the socket")
        counted = {name: len(self.lines(name)) for name in OTHERS}
        wait_for(lambda: all(len(self.lines(name)) > counted[name] for name in OTHERS), what="a count")
        facts = self._facts()
        self.daemon.ask("POST", "/v1/ralphs/demo/stop", {"now": True})
        facts["stopped"] = self.daemon.becomes("demo", "stopped", timeout_s=60)["state"]
        facts["after_stop"] = {pid: line for pid, line in processes().items() if pid not in facts["ours"]}
        facts["files"] = {name: self._is_mine(name) for name in ("mine", ".env.local")}
        facts["branch"] = self.guarded.git("symbolic-ref", "--short", "HEAD")
        facts["lost"] = [sha for sha in self._kept() if not self._is_on_the_branch(sha)]
        facts["kept"] = len(self._kept())
        self.daemon.ask("POST", "/v1/shutdown", {"runs": "now"})
        facts["exit_code"] = self.daemon.exit_code()
        kept = {os.getpid(), self.person.pid}
        facts["after_all"] = {pid: line for pid, line in processes().items() if pid not in kept}
        return facts

    def _is_up(self) -> bool:
        with suppress(OSError):
            return self.daemon.api("GET", "/v1/ready").status == 200
        return False

    def _facts(self) -> dict[str, Any]:
        events = self.daemon.events()
        exits = [event for event in events if event["type"] == "ralph.exited"]
        others = [self.daemon.run_record(name)[key] for name in OTHERS for key in ("shim_pid", "pid")]
        return {
            "ours": [os.getpid(), self.daemon.pid, self.person.pid, *others],
            "before": self.before,
            "after": self._identities(),
            "views": {view["name"]: view for view in self.daemon.status()["ralphs"]},
            "lives": self.lines("lives"),
            "acts": self.lines("acts"),
            "answers": self.lines("answers"),
            "reached": self.lines("reached"),
            "hooks": self.lines("hooks"),
            "exits": [[event["ralph"], event["run_id"], event["data"]] for event in exits],
            "words": self.daemon.words(),
            "types": sorted({event["type"] for event in events}),
        }

    def _is_mine(self, name: str) -> bool:
        path = self.guarded.place / name
        return path.exists() and path.read_bytes() == MINE

    def _kept(self) -> list[str]:
        return [sha for event in self.daemon.events("commit.kept") for sha in event["data"]["commits"]]

    def _is_on_the_branch(self, sha: str) -> bool:
        with suppress(subprocess.CalledProcessError):
            self.guarded.git("merge-base", "--is-ancestor", sha, "HEAD")
            return True
        return False


def main() -> None:
    seed, outer = int(sys.argv[1]), sys.argv[2]
    if os.readlink(OUTER) == outer:
        sys.exit("the stage belongs into a pid namespace of its own")
    with daemon_in(PLACE) as daemon:
        try:
            print(json.dumps(Stage(daemon, seed, outer).play()))
        finally:
            sys.stderr.write(daemon.words()[-8000:])


if __name__ == "__main__":
    main()
