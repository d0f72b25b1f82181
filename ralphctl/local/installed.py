"""The unit file of the service: written and removed, unless a person has edited it."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from ralphctl.local import units
from ralphd.errors import DirectoryUnusable, RalphdError

_LONGEST_UNIT = 1 << 20


class EditedByHand(RalphdError):
    """The unit is not as ralphd wrote it."""

    slug, exit_code = "unit-edited", 1


def command() -> tuple[str, ...]:
    """What starts the daemon of this very installation, whatever PATH says then."""
    script = Path(sys.executable).with_name("ralphd")
    with suppress(OSError), script.open("rb") as text:
        if text.readline(4096).strip() == b"#!" + os.fsencode(sys.executable) and os.access(script, os.X_OK):
            return (str(script),)
    return (sys.executable, "-P", "-m", "ralphd")


def is_current(path: Path, text: str) -> bool:
    """Whether this very unit is installed."""
    return not path.is_symlink() and _read(path) == text


def write(path: Path, text: str, *, force: bool) -> Path | None:
    """Put the unit into place as a whole; gives the copy that is kept of one that was edited.

    Raises EditedByHand, unless ``force``, and DirectoryUnusable.
    """
    kept = _set_aside(path, force=force)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                os.fchmod(file.fileno(), 0o644)
                file.flush()
                os.fsync(file.fileno())
            Path(draft).replace(path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except OSError as fault:
        raise DirectoryUnusable(f"{path} cannot be written", why=str(fault)) from fault
    return kept


def check_removable(path: Path, *, force: bool) -> None:
    """Raise EditedByHand for a unit that ``remove`` would leave alone."""
    if not force and not _is_ours(path):
        raise _edited(path)


def remove(path: Path, *, force: bool) -> Path | None:
    """Remove the unit; gives the copy that is kept of one that was edited. Raises as ``write`` does."""
    kept = _set_aside(path, force=force)
    try:
        path.unlink(missing_ok=True)
    except OSError as fault:
        raise DirectoryUnusable(f"{path} cannot be removed", why=str(fault)) from fault
    return kept


def _set_aside(path: Path, *, force: bool) -> Path | None:
    """Keep a copy of what a person wrote: by another name, which systemd does not read."""
    if not os.path.lexists(path) or _is_ours(path):
        return None
    if not force:
        raise _edited(path)
    kept = path.with_name(f"{path.name}.kept-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    try:
        path.rename(kept)
    except OSError as fault:
        raise DirectoryUnusable(f"{path} cannot be kept as {kept.name}", why=str(fault)) from fault
    return kept


def _is_ours(path: Path) -> bool:
    return not path.is_symlink() and units.is_as_written(_read(path) or "")


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(_LONGEST_UNIT).decode(errors="replace")
    except OSError:
        return None


def _edited(path: Path) -> EditedByHand:
    return EditedByHand(
        f"{path} was edited, or is not ralphd's",
        why="nothing was changed; your own settings belong beside it: systemctl edit ralphd, or --user edit",
        mend="the same with --force  (a copy of it is kept)",
    )
