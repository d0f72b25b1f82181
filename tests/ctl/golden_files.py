"""Golden files: what a command prints, as text that a person reads and reviews.

``golden/X.txt`` has a section for each test of ``test_X.py`` that uses the fixture ``golden``. A test whose
command prints something else fails with the difference; ``make golden`` writes what is printed now.
"""

import ast
import difflib
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "golden"
ACCEPT = "ACCEPT_GOLDEN"
"""Set in the environment, what is printed is written instead of compared (with ``-n 0`` only)."""
HEAD = "=== "
_OFTEN_SET = ("COLUMNS", "TZ")
"""Variables that the command line of a section names where a test sets them."""

Printed = subprocess.CompletedProcess[str]
Shown = Printed | str | Iterable[str] | Mapping[str, str | Iterable[str]]


def printed(typed: str, code: int, out: str, err: str = "") -> Printed:
    """What a command printed that ran in the process of the test."""
    return subprocess.CompletedProcess(typed, code, out, err)


def typed(words: Iterable[str], more: Mapping[str, str] | None = None, folder: str = ".") -> str:
    """The command as a person types it, with more variables, in a folder below the test's."""
    variables = [f"{name}={more[name]} " for name in _OFTEN_SET if more and name in more]
    away = "" if folder == "." else f"cd {folder}; "
    return away + "".join(variables) + shlex.join(["ralphctl", *words])


def without_remark(reply: Printed, begins: str = "waiting for ") -> Printed:
    """A reply without the line that is printed only where the machine is slow."""
    reply.stderr = re.sub(f"(?m)^{begins}.*\n", "", reply.stderr)
    return reply


class Golden:
    """The section of one test. Call it once, with all that the test shows."""

    def __init__(self, request: pytest.FixtureRequest, tmp_path: Path, now: float) -> None:
        self._request, self._tmp_path, self._now = request, tmp_path, now
        self._module = Path(request.module.__file__)
        self._path = path_of(self._module)
        self._title = str(request.node.name)
        self._is_used = False

    def __call__(self, *shown: Shown, hide: Mapping[int | str, str] | None = None) -> None:
        """Compare replies, texts, lines, or texts by their titles with the section.

        ``hide`` has the words to show for what differs in each run; a number is a pid.
        """
        assert not self._is_used, "a test has one section"
        self._is_used = True
        text = self._normalised("\n".join(map(_lines_of, shown)), hide or {})
        if os.environ.get(ACCEPT):
            self._accept(text)
        elif text != (accepted := read(self._path).get(self._title)):
            pytest.fail(self._difference(accepted, text), pytrace=False)

    def _normalised(self, text: str, hide: Mapping[int | str, str]) -> str:
        known = {str(self._tmp_path): "/TMP", f"pid {os.getpid()}": "pid PID"}
        for value, word in hide.items():
            known |= {f"pid {value}": f"pid {word}"} if isinstance(value, int) else {str(value): word}
        for value, word in known.items():
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", word, text)
        for seconds in range(60):  # how long it has waited is measured
            text = text.replace(f"since {time.strftime('%T', time.gmtime(self._now - seconds))}", "since NOW")
        text = re.sub(r"\b\d{8}T\d{6}(\.\d+)?Z\b", "STAMP", text)
        text = re.sub(" +$", "", text, flags=re.MULTILINE)  # which editors take away
        return "".join(each if each.isprintable() or each == "\n" else repr(each)[1:-1] for each in text)

    def _difference(self, accepted: str | None, text: str) -> str:
        name = self._path.relative_to(FOLDER.parents[2])
        lines = difflib.unified_diff(
            (accepted or "").splitlines(),
            text.splitlines(),
            f"{name}: {self._title}",
            "printed now",
            lineterm="",
        )
        tests = self._module.relative_to(FOLDER.parents[2])
        how = f"if this is right: make golden TESTS={tests}, and review the file"
        return "\n".join(["what is printed differs from the golden file", *lines, "", how])

    def _accept(self, text: str) -> None:
        assert "PYTEST_XDIST_WORKER" not in os.environ, "golden files are written with -n 0"
        order = list(tests_of(self._module))
        gone = stale(self._module, self._request.session)
        sections = {title: old for title, old in read(self._path).items() if title not in gone}
        sections[self._title] = text
        titles = sorted(sections, key=lambda title: order.index(title.partition("[")[0]))
        self._path.parent.mkdir(exist_ok=True)
        text = "\n".join(f"{HEAD}{title}\n{sections[title]}" for title in titles)
        self._path.write_text(text, encoding="utf-8")


def path_of(module: Path) -> Path:
    """The golden file of a module of tests."""
    return FOLDER / f"{module.stem.removeprefix('test_')}.txt"


def read(path: Path) -> dict[str, str]:
    """The sections of a golden file by their titles."""
    parts = re.split(
        rf"^{HEAD}(.*)\n", path.read_text(encoding="utf-8") if path.exists() else "", flags=re.MULTILINE
    )[1:]
    texts = [*(part.removesuffix("\n") for part in parts[1:-2:2]), *parts[-1:]]
    return dict(zip(parts[::2], texts, strict=True))


def tests_of(module: Path) -> dict[str, bool]:
    """The tests of a module, in their order, with whether they have a section."""
    functions = [node for node in ast.parse(module.read_text()).body if isinstance(node, ast.FunctionDef)]
    return {
        each.name: any(isinstance(node, ast.Name) and node.id == "golden" for node in ast.walk(each))
        for each in functions
    }


def stale(module: Path, session: pytest.Session) -> set[str]:
    """The sections without a test; of a test with parameters too, where the session has all of a module."""
    tests, option = tests_of(module), session.config.option
    collected = {item.name for item in session.items if item.path == module}
    names = {name.partition("[")[0] for name in collected}
    chosen = option.keyword or option.markexpr or option.deselect or getattr(option, "lf", False)
    is_whole = not (chosen or any("::" in each for each in session.config.args))
    return {
        title
        for title in read(path_of(module))
        if not tests.get(test := title.partition("[")[0])
        or (is_whole and test in names and title not in collected)
    }


def _lines_of(shown: Shown) -> str:
    match shown:
        case subprocess.CompletedProcess():
            ended = "" if shown.returncode == 0 else f"[exit {shown.returncode}]\n"
            errors = "".join(f"! {line}\n" for line in shown.stderr.splitlines())
            out = shown.stdout if shown.stdout.endswith("\n") or not shown.stdout else f"{shown.stdout}⏎\n"
            return f"$ {shown.args}\n{ended}{out}{errors}"
        case Mapping():
            return "\n".join(f"-- {title}\n{_lines_of(text)}" for title, text in shown.items())
        case str():
            return shown.rstrip() + "\n"
        case _:
            return _lines_of("\n".join(shown))
