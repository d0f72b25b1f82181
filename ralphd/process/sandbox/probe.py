"""Determine which sandbox runs get on this machine (A1). The shim sets it up and tests it from inside."""

# Whether sudo works without a password is kept in memory, not in a file: at the level ``signals`` a run can
# write every file of its user, and must not be able to turn its successor's sandbox off.

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from typing import Final

from ralphd.core.sandbox import BOX, SandboxChoice, SandboxFacts, choose
from ralphd.errors import CommandNotStartable
from ralphd.process import shim
from ralphd.process.sandbox import box
from ralphd.process.start_errors import LOWER_LEVEL

SUDO_S: Final = 2.0
KEPT_S: Final = 24 * 3600.0


class SandboxProbe:
    """Chooses the sandbox of runs; asks sudo once a day at most."""

    def __init__(self) -> None:
        self._sudo: tuple[float, bool] | None = None
        self._alone = asyncio.Lock()

    async def choose(self, requested: str) -> SandboxChoice:
        """Return the sandbox for a requested level. Raise CommandNotStartable if it is not available."""
        async with self._alone:
            facts = await asyncio.to_thread(self._facts, requested)
        choice = choose(requested, facts)
        if choice.fault:
            raise CommandNotStartable("the sandbox is not available", why=choice.fault, mend=LOWER_LEVEL)
        return choice

    def _facts(self, requested: str) -> SandboxFacts:
        now = time.monotonic()
        if requested == "auto" and self._sudo is not None and now - self._sudo[0] <= KEPT_S:
            return SandboxFacts(shim.landlock_abi(), os.geteuid() == 0, self._sudo[1])
        found = facts_for(requested, os.environ)
        if requested == "auto":
            self._sudo = now, found.has_sudo
        return found


def facts_for(requested: str, environ: Mapping[str, str]) -> SandboxFacts:
    """Return what the machine allows; sudo and bubblewrap are tried only where the choice depends on them."""
    abi, is_root = shim.landlock_abi(), os.geteuid() == 0
    asks_sudo = requested == "auto" and abi > 0 and not is_root
    no_box = (box.why_unavailable() or "") if requested == BOX else ""
    return SandboxFacts(abi, is_root, asks_sudo and has_sudo(environ), no_box)


def has_sudo(environ: Mapping[str, str]) -> bool:
    """Return whether sudo works without a password. Takes up to SUDO_S seconds."""
    if (sudo := shutil.which("sudo", path=environ.get("PATH"))) is None:
        return False
    try:
        done = subprocess.run(
            [sudo, "-kn", "true"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
            timeout=SUDO_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
