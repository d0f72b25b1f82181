"""What ``--fix`` does: safe for whoever has anything there, and said."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ralphctl import link
from ralphctl.local.doctor.findings import Finding, IgnoreAll, Level, RemoveSocket, Repair, SetMode
from ralphd.store.files import write_whole


def repaired(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, with what could be repaired put right; what could not says why."""
    return [_repaired(each) if each.repairs else each for each in findings]


def _repaired(finding: Finding) -> Finding:
    done = []
    for repair in finding.repairs:
        try:
            done.append(_carry_out(repair))
        except OSError as fault:
            why = f"{finding.found}\n--fix could not put it right: {fault}"
            return replace(finding, found=why, done=tuple(done), repairs=())
    return replace(finding, level=Level.OK, mend="", repairs=(), done=tuple(done))


def _carry_out(repair: Repair) -> str:
    """Do it, and say what was done. Raises OSError."""
    match repair:
        case SetMode(path, mode):
            _set_mode(path, mode)
            return f"chmod {mode:04o} {path}"
        case RemoveSocket(path, inode, lock):
            _remove_socket(path, inode, lock)
            return f"removed {path}"
        case IgnoreAll(path):
            write_whole(path, b"*\n", durable=False)
            return f"wrote {path}"


def _set_mode(path: Path, mode: int) -> None:
    # O_PATH opens sockets too, follows no link, and what was looked at is what is changed.
    held = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(held).st_uid != os.geteuid():
            raise PermissionError(f"{path} is not ours")
        Path(f"/proc/self/fd/{held}").chmod(mode)
    finally:
        os.close(held)


def _remove_socket(path: Path, inode: int, lock: Path) -> None:
    # Not under the daemon's lock: one that starts just now would take us for another daemon, and end. A
    # daemon whose socket we remove all the same makes it anew.
    if link.is_flocked(lock.stat().st_ino) if lock.exists() else False:
        raise BlockingIOError(f"a ralphd has started meanwhile: {lock}")
    if path.lstat().st_ino != inode:
        raise BlockingIOError(f"{path} is another one meanwhile")
    path.unlink()
