"""Determine which sandbox runs get on this machine (A1). The shim sets it up and tests it from inside."""

# Whether sudo works without a password is kept in memory, not in a file: at the level ``signals`` a run can
# write every file of its user, and must not be able to turn its successor's sandbox off.

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
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
            facts = await asyncio.to_thread(facts_for, requested, os.environ, self._has_sudo)
        choice = choose(requested, facts)
        if choice.fault:
            raise CommandNotStartable("the sandbox is not available", why=choice.fault, mend=LOWER_LEVEL)
        return choice

    def _has_sudo(self, environ: Mapping[str, str]) -> bool:
        now = time.monotonic()
        if self._sudo is None or now - self._sudo[0] > KEPT_S:
            self._sudo = now, has_sudo(environ)
        return self._sudo[1]


def has_sudo(environ: Mapping[str, str]) -> bool:
    """Return whether sudo works without a password. Takes up to SUDO_S seconds."""
    if (sudo := shutil.which("sudo", path=environ.get("PATH"))) is None:
        return False
    words = [sudo, "-kn", "true"]
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(words, input=b"", capture_output=True, env=environ, timeout=SUDO_S, check=False)
        return done.returncode == 0
    return False


def facts_for(
    requested: str, environ: Mapping[str, str], asks_sudo: Callable[[Mapping[str, str]], bool] = has_sudo
) -> SandboxFacts:
    """Return what the machine allows; sudo and bubblewrap are tried only where the choice depends on them."""
    abi, is_root = shim.landlock_abi(), os.geteuid() == 0
    no_sudo = requested != "auto" or abi <= 0 or is_root
    no_box = (box.why_unavailable() or "") if requested == BOX else ""
    return SandboxFacts(abi, is_root, not no_sudo and asks_sudo(environ), no_box)
