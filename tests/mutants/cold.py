"""Changes of what is decided at import (constants, tables): each in a fork that has imported nothing yet."""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path

import hypothesis.stateful  # noqa: F401  # loaded once, here, and not again in each fork
import pytest

from tests.mutants.change import Change
from tests.mutants.forks import SURVIVED, tried

OPTIONS = (
    *("-p", "no:cacheprovider", "-p", "no:xdist", "-o", "timeout=0", "--tb=no"),
    "--hypothesis-profile=mutants",
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # hypothesis is loaded before pytest knows of it
)
LONGEST_S = 120.0


class _Changed(importlib.machinery.SourceFileLoader):
    """Loads the changed text in the place of the file's."""

    def __init__(self, change: Change) -> None:
        super().__init__(change.module, str(Path(change.file).resolve()))
        self._source = change.source

    def get_code(self, fullname: str) -> types.CodeType:
        return compile(self._source, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, change: Change) -> None:
        self._change = change

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._change.module:
            return None
        return importlib.machinery.ModuleSpec(
            fullname, loader := _Changed(self._change), origin=loader.path, is_package=False
        )


def tried_cold(
    changes: Sequence[Change | None], tests: Sequence[str], *, at_once: int
) -> Iterator[tuple[Change | None, bool]]:
    """Whether the tests pass with each change; None is no change."""
    for change, code in tried(
        changes, lambda change: _attempt(change, tests), at_once=at_once, cpu_s=lambda _: LONGEST_S
    ):
        yield change, code == SURVIVED


def _attempt(change: Change | None, tests: Sequence[str]) -> int:
    own = []
    if change is not None:
        assert change.module not in sys.modules
        sys.meta_path.insert(0, _Finder(change))
        own = named_after(Path(change.file))
    without = [each for each in tests if each.startswith("--deselect=")]
    if own and pytest.main([*OPTIONS, "-x", *without, *own]) in (
        pytest.ExitCode.TESTS_FAILED,
        pytest.ExitCode.INTERRUPTED,  # they cannot be loaded
    ):
        return 1
    return int(pytest.main([*OPTIONS, "-x", *tests, *(f"--ignore={each}" for each in own)]))


def named_after(file: Path) -> list[str]:
    """Return the test files of a module: asked first, since they notice most and are loaded in a second."""
    folder = Path("tests", *file.parts[1:-1])
    return sorted(map(str, folder.glob(f"test_{file.stem}*.py")))
