"""The command line of bubblewrap around a command: the level ``box`` (A2).

Inside, the machine is read-only except for what is listed. Pid and ipc namespaces are its own, so that it
sees and signals no other process. /tmp and /run are empty, which hides docker.sock, ssh-agent, tmux and the
user's bus. From outside, its processes are ordinary ones below the shim, with their cookie and their pids.
"""

# Theory of operation
#
# The outer bwrap is the leader of the run. If it dies, the kernel kills its pid namespace (die-with-parent).
# So a SIGTERM for the process group must not end it: the command would lose the time that it has to end. The
# shim therefore starts it with WRAPPED_IGNORE ignored, and the command inside gets the default actions back.
#
# A socket that is bound as a file stays the old one when the next daemon creates another. So its directory is
# bound, one that holds nothing but a hard link to the socket (``share_socket``). The daemon renews the link
# whenever it binds its socket (``renew_shared``).
#
# The built-in loop needs the state directory and git. It stays outside, and each of its agents and reviews
# gets a box of its own: the loop finds the words in WORDS, which the box removes again.

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ralphd.dataclass import dataclass

PROBE_S = 2.0
WORDS = "RALPH_BOX"
SOURCES = Path(__file__).parents[3]
"""Where ralphd is imported from: outside of ``sys.prefix`` if it was installed from a checkout."""
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
KEPT = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
"""What root needs to work with files. Without SYS_ADMIN and SYS_PTRACE it cannot leave."""
NAMES = ("/run/systemd/resolve", "/run/nscd", "/run/NetworkManager/resolv.conf")
"""What /etc/resolv.conf may point to."""
_RESET = (
    "import os,signal as s,sys\n"
    "for n in s.valid_signals()-{s.SIGKILL,s.SIGSTOP}: s.signal(n,s.SIG_DFL)\n"
    "try: os.execvp(sys.argv[1],sys.argv[1:])\n"
    "except OSError as e: print(sys.argv[1],e.strerror,sep=': ',file=sys.stderr)\n"
    "os._exit(126 if os.path.exists(sys.argv[1]) else 127)"
)


@dataclass(frozen=True, slots=True)
class Box:
    """What a command in the box can reach.

    ``git`` are the repository's git directory and common directory; their hooks and configuration are
    read-only. ``hidden`` is the state directory; ``readable`` is shown of it. ``socket`` is the link that
    ``share_socket`` made. ``proxy`` is only a variable: with ``net`` a program may ignore it.
    """

    directory: Path
    git: tuple[Path, ...]
    hidden: Path
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    socket: Path | None = None
    home: Path | None = None
    net: bool = True
    proxy: str = ""


def wrapper(box: Box) -> tuple[str, ...]:
    """Return the words to put before the command. Paths that do not exist are left out."""
    # By its full path: the PATH of a run may lead to files that the run can write.
    words = [shutil.which("bwrap") or "bwrap", "--die-with-parent", "--unshare-pid", "--unshare-ipc"]
    words += ["--cap-drop", "ALL"]
    if os.geteuid() == 0:  # of others, bubblewrap keeps none in any case
        words += [word for name in KEPT for word in ("--cap-add", f"CAP_{name}")]
    words += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    words += ["--tmpfs", "/tmp", "--tmpfs", "/var/tmp", "--tmpfs", "/run"]  # noqa: S108
    # Also if they are below /tmp.
    words += _bound("--ro-bind-try", (*NAMES, sys.prefix, SOURCES, *([box.home] if box.home else [])))
    words += _bound("--bind-try", box.writable)
    is_inside = box.hidden.is_relative_to(box.directory)  # then it is hidden last
    hide, show = ["--tmpfs", str(box.hidden)], _bound("--bind-try", (box.directory,))
    words += [*show, *hide] if is_inside else [*hide, *show]
    for each in sorted(set(box.git), key=lambda path: len(path.parts)):  # a linked one lies in the common one
        words += _bound("--bind-try", (each,)) + _git_rules(each)  # a mount point cannot be renamed
    words += _bound("--ro-bind-try", (*box.readable, *([box.socket.parent] if box.socket else [])))
    words += [word for name in PROXIES if box.proxy for word in ("--setenv", name, box.proxy)]
    words += ["--setenv", "RALPHD_SOCKET", str(box.socket)] if box.socket else []
    words += ["--unsetenv", WORDS, "--unsetenv", "TMPDIR", *([] if box.net else ["--unshare-net"])]
    return (*words, "--chdir", str(box.directory), "--", sys.executable, "-I", "-S", "-E", "-c", _RESET)


def _bound(how: str, paths: Iterable[str | Path]) -> list[str]:
    return [word for path in paths for word in (how, str(path), str(path))]


def _git_rules(git: Path) -> list[str]:
    hooks = git / "hooks"
    is_there = hooks.is_dir() and not hooks.is_symlink()
    empty = ["--tmpfs", str(hooks), "--remount-ro", str(hooks)]
    rules = _bound("--ro-bind-try", (hooks,)) if is_there else empty if (git / "config").exists() else []
    return rules + _bound("--ro-bind-try", (git / "config", git / "config.worktree"))


def resolved(paths: Iterable[str]) -> tuple[Path, ...]:
    """Return the paths with their links resolved, without those that lead through an earlier one.

    A run that can write a directory can replace what is in it by a link to anywhere.
    """
    kept: list[str] = []
    for path in paths:
        ways = {os.path.realpath(each) + "/" for each in Path(path).parents}
        if not any(way.startswith(f"{each}/") for each in kept for way in ways):
            kept.append(os.path.realpath(path))
    return tuple(map(Path, kept))


def share_socket(socket: Path) -> Path:
    """Return a link to the daemon's socket, in a directory that holds nothing else. Raise OSError."""
    link = socket.parent / "box" / socket.name
    link.parent.mkdir(mode=0o700, exist_ok=True)
    if not (link.exists() and link.samefile(socket)):
        link.unlink(missing_ok=True)
        link.hardlink_to(socket)
    return link


def renew_shared(socket: Path) -> None:
    """Let the boxes that are alive reach the socket that the daemon has now, if there may be any."""
    if (socket.parent / "box").is_dir():
        with suppress(OSError):
            share_socket(socket)


def why_unavailable() -> str | None:
    """Return why no box can be made here, by making one; None where it can."""
    if (program := shutil.which("bwrap")) is None:
        return "bubblewrap is not installed: install the package bubblewrap (program bwrap)"
    words = [program, "--unshare-pid", "--unshare-ipc", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as fault:
        return f"bubblewrap cannot be started: {fault}"
    return None if done.returncode == 0 else done.stderr.strip() or f"bubblewrap exits with {done.returncode}"
