"""The documents a newcomer reads are true: their commands are typed as they stand, in a home of their own.

Every ``console`` block counts. ``$`` begins a command, ``>`` goes on with it, the rest is what it prints: a
number stands for any, one of four digits or more (a pid) for the same one throughout, ``…`` for any text, a
``…`` alone for any lines, ``^C`` for a person who has seen enough.
"""

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.players import agents
from tests.whole.harness import Daemon, daemon_in

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LOOP = "#!/bin/sh\nwhile echo working; do sleep 0.1; done\n"
PROMPT = "You work on this repository. Do the task below, run the tests, commit.\n"
TASKS = "- [ ] parse the date in the header\n- [ ] show it in local time\n"
WATCHING_S = 2.5
PAGE_S = 90.0
_MARK = "-- command"


@dataclass(frozen=True, slots=True)
class Typed:
    """A command of a page, and the lines that it prints there."""

    command: str
    printed: tuple[str, ...]

    @property
    def is_interrupted(self) -> bool:
        return self.printed[-1:] == ("^C",)


def commands_of(page: Path) -> list[Typed]:
    """All commands of a page that are to be run, in order."""
    typed: list[Typed] = []
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text(), re.M | re.S):
        for line in block.splitlines():
            if line.startswith("$ "):
                typed.append(Typed(line[2:], ()))
            elif line.startswith("> ") or line == ">":
                typed[-1] = Typed(f"{typed[-1].command}\n{line[2:]}", ())
            else:
                typed[-1] = Typed(typed[-1].command, (*typed[-1].printed, line))
    return typed


@dataclass(frozen=True, slots=True)
class Newcomer:
    """Somebody with a shell, an empty home and ``ralphctl`` on the PATH."""

    daemon: Daemon

    def has_project(self) -> None:
        """The git repository with a loop and a task list, and the agents, that a reader is taken to have."""
        project = self.daemon.home / "project"
        project.mkdir()
        (project / "PROMPT.md").write_text(PROMPT)
        (project / "TASKS.md").write_text(TASKS)
        agents.install(self.daemon.home / "bin", ("claude", "codex"))
        agents.write_script(self.daemon.home / "script.json", [])
        (project / "loop.sh").write_text(LOOP)
        (project / "loop.sh").chmod(stat.S_IRWXU)
        subprocess.run(["git", "init", "--quiet", project], check=True, env=self._environment())

    def types(self, typed: Sequence[Typed]) -> list[tuple[int, list[str]]]:
        """Type all commands into one shell; the exit code and the lines of each."""
        script = "".join(f"{self._shell_line(each)}\nprintf '\\n%s %d\\n' '{_MARK}' $?\n" for each in typed)
        said = subprocess.run(
            ["bash", "-c", script], cwd=self.daemon.home, env=self._environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PAGE_S, check=False,
        ).stdout  # fmt: skip
        parts = re.split(rf"\n{_MARK} (\d+)\n", said)
        assert len(parts) == 2 * len(typed) + 1, said
        return [(int(code), text.splitlines()) for text, code in zip(parts[0::2], parts[1::2], strict=False)]

    def _shell_line(self, each: Typed) -> str:
        return f"timeout --signal=INT {WATCHING_S} {each.command}" if each.is_interrupted else each.command

    def _environment(self) -> dict[str, str]:
        home = self.daemon.home
        places = [str(home / "bin"), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
        more = {"PATH": os.pathsep.join(places), "PLAYED_SCRIPT": str(home / "script.json")}
        return self.daemon.environment | more


@pytest.fixture
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    # A short name: curl does not know how to reach a socket whose path has more than 107 bytes.
    with daemon_in(tmp_path_factory.mktemp("n")) as daemon:
        daemon.state = daemon.home / ".local" / "state" / "ralphd"  # where it is when nobody says otherwise
        yield Newcomer(daemon)


def check_page(newcomer: Newcomer, page: Path) -> None:
    """Every command of the page goes well and prints what the page says."""
    typed = [
        each for each in commands_of(page) if shutil.which("curl") or not each.command.startswith("curl")
    ]
    known: dict[str, str] = {}
    for each, (code, lines) in zip(typed, newcomer.types(typed), strict=True):
        told = f"{page.name}: $ {each.command}\n" + "\n".join(lines)
        assert code == 0 or (each.is_interrupted and code in (124, 130)), told
        expected = [line for line in each.printed if line != "^C"]
        if expected:
            assert is_as_told(expected, lines, known), told


def is_as_told(expected: Sequence[str], lines: Sequence[str], known: dict[str, str]) -> bool:
    """Whether ``lines`` are what ``expected`` says; ``known`` has the pids that are bound already."""
    pattern = "".join(r"(?:.*\n)*" if line == "…" else _pattern(line) + r"\n" for line in expected)
    match = re.fullmatch(pattern, "".join(f"{line}\n" for line in lines))
    pids = re.findall(r"\d{4,}", "\n".join(expected))
    return match is not None and all(
        known.setdefault(pid, actual) == actual for pid, actual in zip(pids, match.groups(), strict=True)
    )


def _pattern(line: str) -> str:
    parts = re.split(r"(\d+|…)", line)
    return "".join(
        ".*"
        if part == "…"
        else re.escape(part)
        if not part.isdigit()
        else r"(\d+)"
        if len(part) > 3
        else r"\d+"
        for part in parts
    )


def test_the_quick_starts_of_the_loop_and_of_the_readme_are_true(newcomer: Newcomer) -> None:
    newcomer.has_project()
    check_page(newcomer, ROOT / "docs" / "loop.md")
    assert "- [ ]" not in (newcomer.daemon.home / "project" / "TASKS.md").read_text()
    check_page(newcomer, ROOT / "README.md")


def test_the_first_ten_minutes_go_as_start_here_says(newcomer: Newcomer) -> None:
    check_page(newcomer, ROOT / "docs" / "start-here.md")
    assert not newcomer.daemon.leftovers()


def test_the_readme_is_short_and_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 120
    assert "make demo" in text and "make test" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_a_page_is_taken_at_its_word() -> None:
    known: dict[str, str] = {}
    assert is_as_told(["started (pid 4711) in ~/x", "…"], ["started (pid 99) in ~/x", "more"], known)
    assert is_as_told(["pid 4711, 3 lines"], ["pid 99, 12 lines"], known)
    assert not is_as_told(["pid 4711, 3 lines"], ["pid 98, 12 lines"], known)
    assert not is_as_told(["one"], ["one", "two"], known)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_configuration_shown_has_no_faults(newcomer: Newcomer, page: Path) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.M | re.S)
    for block in blocks:
        if block.startswith("version = "):  # a file of data about an agent; its own test loads it
            continue
        (newcomer.daemon.home / "ralph.toml").write_text(block)
        (code, lines), *_ = newcomer.types([Typed("ralphctl config check", ())])
        assert code == 0, (block, lines)
        assert lines[0].startswith("no faults"), lines
        assert not lines[1:], (block, lines)  # a key without effect has a line of its own
