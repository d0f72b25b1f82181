"""A real systemd in a private namespace (``boot.sh``), with ralphd as a service of its own user in it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.helpers import wait_for

PROJECT = Path(__file__).parents[2]
BOOT = Path(__file__).with_name("boot.sh")
UID = 4242
"""Nobody's on a usual machine; the user exists inside only."""
BOOT_S = 30.0
COMMAND_S = 150.0
_TARGET = "[Unit]\nDescription=test\nDefaultDependencies=no\nAllowIsolate=yes\n"
_DROP_IN = "[Unit]\nDefaultDependencies=no\n"
_MANAGER = f"""{_DROP_IN}
[Service]
User=ralph
Type=notify
ExecStart=/lib/systemd/systemd --user --unit=ralphd-test.target
Environment=XDG_RUNTIME_DIR=/run/user/{UID}
Delegate=yes
KillMode=mixed
"""
_SHOWN = "[Service]\nStandardOutput=append:{0}\nStandardError=append:{0}\n"

View = dict[str, Any]


def why_not() -> str | None:
    """Why no systemd can be booted here, in a sentence; None where it can."""
    if os.geteuid() != 0:
        return "a systemd of one's own needs root: sudo make test-systemd"
    missing = [tool for tool in ("unshare", "nsenter", "setpriv", "systemctl") if shutil.which(tool) is None]
    if missing or not Path("/lib/systemd/systemd").exists():
        return f"there is no systemd to boot here, or no {', '.join(missing) or '/lib/systemd/systemd'}"
    return None if _cgroups() else "there are no control groups of version 2 here"


def _cgroups() -> Path | None:
    """Where control groups of version 2 are mounted."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if line.partition(" - ")[2].startswith("cgroup2 "):
            return Path(line.split()[4])
    return None


@dataclass(slots=True)
class Machine:
    """What is booted below ``root``: a directory of the machine's, which is seen inside by the same name."""

    root: Path
    _process: subprocess.Popen[bytes] | None = None
    _init: int = 0
    _group: Path = field(init=False)

    def __post_init__(self) -> None:
        groups = _cgroups()
        assert groups is not None
        self._group = groups / f"ralphd-test-{os.getpid()}"

    @property
    def home(self) -> Path:
        """The home directory of the user inside."""
        return self.root / "home"

    # --- its life -------------------------------------------------------------------------------------

    def boot(self, *, service: str = "") -> None:
        """Boot it; ``service`` is added to the section of the service."""
        self._prepare(service)
        self._group.mkdir()
        kept = [str(PROJECT), sys.base_prefix, sys.prefix]
        outside = os.readlink("/proc/self/ns/mnt")
        joined = 'echo $$ > "$0"/cgroup.procs && exec "$@"'
        with (self.root / "boot.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig", "KILL", "sh", "-c", joined, str(self._group)),
                    *("unshare", "--fork", "--kill-child", "--pid", "--mount", "--mount-proc", "--cgroup"),
                    *("--uts", "--ipc", "--propagation", "private"),
                    *(str(BOOT), str(self.root), outside, *kept),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_for(self._is_up, timeout_s=BOOT_S, what=f"a booted systemd:\n{self.words()}")

    def _prepare(self, service: str) -> None:
        """Write what ``boot.sh`` puts into place."""
        self.root.mkdir(mode=0o755)
        units = self.root / "units"
        for name in ("ralphd.service.d", "ralphd.socket.d"):
            (units / name).mkdir(parents=True)
            (units / name / "test.conf").write_text(_DROP_IN)
        with (units / "ralphd.service.d" / "test.conf").open("a") as more:
            more.write(_SHOWN.format(self.root / "daemon.log") + service)
        (units / "ralphd-test.target").write_text(_TARGET)
        self.home.mkdir()
        os.chown(self.home, UID, UID)
        (self.root / "console").touch()
        account = f"ralph:x:{UID}:{UID}::{self.home}:/bin/sh\n"
        (self.root / "passwd").write_text(Path("/etc/passwd").read_text() + account)
        (self.root / "group").write_text(Path("/etc/group").read_text() + f"ralph:x:{UID}:\n")

    def _is_up(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self.words()
        pid = self._process.pid
        with suppress(OSError):
            found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            self._init = int(found[0]) if found else 0
        if not self._init or Path(f"/proc/{self._init}/comm").read_text().strip() != "systemd":
            return False
        return self.systemctl("is-active", "ralphd-test.target", check=False) == "active"

    def end(self) -> None:
        """End it as a power cut would, and prove that nothing of it is left."""
        if self._process is None:
            return
        if self._init:
            with suppress(ProcessLookupError):
                os.kill(self._init, signal.SIGKILL)  # the kernel ends all inside
        self._process.kill()
        self._process.wait(BOOT_S)
        wait_for(lambda: not self._populated(), what="an empty control group")
        for folder, _, _ in os.walk(self._group, topdown=False):
            Path(folder).rmdir()

    def _populated(self) -> bool:
        return "populated 1" in (self._group / "cgroup.events").read_text()

    def words(self) -> str:
        """All that was said, by systemd and by the daemon."""
        logs = (self.root / name for name in ("boot.log", "console", "daemon.log"))
        return "\n".join(path.read_text(errors="replace") for path in logs if path.exists())

    # --- what is done inside --------------------------------------------------------------------------

    def run(self, *command: str, cwd: Path | None = None, user: bool = False, check: bool = True) -> str:
        """Run a command inside, as root or as the user; gives its output without the last line end."""
        entered = ["nsenter", "-t", str(self._init), "-m", "-p", "-C", "-u", "-i"]
        who = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"] if user else []
        environment = {
            "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
        }
        environment["HOME"] = str(self.home) if user else "/root"
        there = f"--wdns={cwd}" if cwd else "--wdns=/"
        done = subprocess.run(
            [*entered, there, *who, *command],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_S,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{command}: {done.stderr}\n{done.stdout}\n{self.words()}"
        return done.stdout.strip()

    def systemctl(self, *words: str, check: bool = True) -> str:
        """What systemctl says."""
        return self.run("systemctl", *words, check=check)

    def ralphctl(self, *words: str, cwd: Path | None = None, user: bool = True, check: bool = True) -> str:
        """What ralphctl says."""
        ralphctl = (sys.executable, "-P", "-m", "ralphctl")
        return self.run(*ralphctl, *words, cwd=cwd, user=user, check=check)

    def log_in(self) -> None:
        """Have the user's own systemd run, as it does after a login."""
        units = self.home / ".config" / "systemd" / "user"
        (units / "ralphd.service.d").mkdir(parents=True)
        (units / "ralphd.service.d" / "test.conf").write_text(_DROP_IN)
        (units / "ralphd-test.target").write_text(_TARGET)
        self.run("chown", "-R", "ralph:ralph", str(self.home))
        self.run("install", "-d", "-m", "755", "/run/user")
        self.run("install", "-d", "-o", "ralph", "-m", "700", f"/run/user/{UID}")
        unit = f"/etc/systemd/system/user@{UID}.service"
        self.run("sh", "-c", 'printf %s "$1" > "$2"', "sh", _MANAGER, unit)
        self.systemctl("daemon-reload")
        self.systemctl("start", f"user@{UID}.service")

    def users(self, *words: str, check: bool = True) -> str:
        """What the user's own systemctl says."""
        place = f"XDG_RUNTIME_DIR=/run/user/{UID}"
        return self.run("env", place, "systemctl", "--user", *words, user=True, check=check)

    def install(self) -> str:
        """``regent install --system``, by root."""
        return self.ralphctl("regent", "install", "--system", "--user", "ralph", user=False)

    def property(self, name: str, unit: str = "ralphd.service") -> str:
        """A property of a unit."""
        return self.systemctl("show", f"--property={name}", "--value", unit)

    def main_pid(self) -> int:
        """The daemon's pid inside; 0 where there is none."""
        return int(self.property("MainPID"))

    def kill(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to a pid inside."""
        self.run("kill", f"-{number.name.removeprefix('SIG')}", str(pid))

    def status(self) -> View:
        """``ralphctl status --json`` of the user."""
        return dict(json.loads(self.ralphctl("status", "--all", "--json", check=False)))

    def views(self) -> dict[str, View]:
        """Every ralph, by name."""
        return {view["name"]: view for view in self.status()["ralphs"]}

    def directory(self, name: str) -> Path:
        """A directory of the user's to work in."""
        place = self.home / name
        place.mkdir()
        os.chown(place, UID, UID)
        return place

    def starts(self, name: str, command: Sequence[str]) -> View:
        """Start a ralph in a directory of its own."""
        self.ralphctl("start", "--name", name, str(self.directory(name)), "--", *command)
        return self.views()[name]

    def born(self, pid: int) -> str:
        """When a process inside was started, in ticks since boot: with its pid, who it is."""
        text = Path(f"/proc/{self._init}/root/proc/{pid}/stat").read_text()
        return text.rpartition(")")[2].split()[19]

    def processes(self) -> list[int]:
        """The processes in the service's control group and below it; none where it is gone."""
        group = Path(f"/proc/{self._init}/root/sys/fs/cgroup/system.slice/ralphd.service")
        return [
            int(pid)
            for folder, _, _ in os.walk(group)
            for pid in (Path(folder) / "cgroup.procs").read_text().split()
        ]


@contextmanager
def machine_in(root: Path) -> Iterator[Machine]:
    """A machine below ``root``, to be booted; nothing is left of it, and the real /tmp is as it was."""
    marker = Path("/tmp") / f"ralphd-test-{os.getpid()}.marker"
    marker.touch()
    machine = Machine(root)
    try:
        yield machine
    finally:
        machine.end()
        assert marker.exists(), "the masks of boot.sh do not hold: the real /tmp was touched"
        marker.unlink()
