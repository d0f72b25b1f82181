"""Copies of ralphd's code, each with an interpreter of its own, as an installation has."""

import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.pages import ROOT

FIRST_VERSION = "ce508cec004fa5a5cb4da85ab72fba774eb6c659"
"""The last commit with the code, and the state directory, of 0.1.0."""
PACKAGES = ("ralphd", "ralphctl")
ANSWER_S = 120.0


@dataclass(frozen=True, slots=True)
class Copy:
    """One installation below ``place``: ``bin/python`` finds its code, then the packages of the tests."""

    name: str
    place: Path

    @property
    def python(self) -> Path:
        return self.place / "bin" / "python"

    def command(self, program: str, *words: str) -> list[str]:
        """Return what its ``bin/PROGRAM`` executes."""
        return [str(self.python), "-P", "-m", program, *words]

    def run(
        self, program: str, *words: str, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of it to its end."""
        return subprocess.run(
            self.command(program, *words),
            env=dict(environment),
            cwd=self.place,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=ANSWER_S,
        )


def first_version(place: Path, *, compiled: bool = True) -> Copy | None:
    """Return a copy of 0.1.0; None in a clone that does not have its commit.

    Unless ``compiled``, it compiles what it imports.
    """
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", FIRST_VERSION, *PACKAGES], capture_output=True, check=False
    )
    if archive.returncode:
        return None
    copy = _installed("0.1.0", place)
    subprocess.run(["tar", "-x", "-C", str(place / "code")], input=archive.stdout, check=True)
    return _compiled(copy) if compiled else copy


def present_version(name: str, place: Path) -> Copy:
    """Return a copy of the code that is tested."""
    copy = _installed(name, place)
    sources: Sequence[str] = [str(ROOT / package) for package in PACKAGES]
    subprocess.run(["cp", "-R", *sources, str(place / "code")], check=True)
    return _compiled(copy)


def _installed(name: str, place: Path) -> Copy:
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(place)],
        check=True,
        capture_output=True,
    )
    copy = Copy(name, place)
    (place / "code").mkdir()
    packages = place / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (packages / "copy.pth").write_text(f"{place / 'code'}\n{sysconfig.get_path('purelib')}\n")
    return copy


def _compiled(copy: Copy) -> Copy:
    words = [str(copy.python), "-m", "compileall", "-q", str(copy.place / "code")]
    subprocess.run(words, check=False, capture_output=True)
    return copy
