"""The documents a newcomer reads are true: their commands are typed as they stand, in a home of their own.

Every ``console`` and ``sh`` block counts (``tests/pages.py`` says how it is read). A page with a story of
its own has a home for itself. All others share one, with a daemon: they are typed side by side, each into its
own shell, in the repository that its first ``cd`` names.
"""

import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers import wait_for
from tests.pages import DOCS, PAGES, ROOT, Typed, commands_of, fences_of, is_as_told, title
from tests.players import agents, player
from tests.test_fences import ELSEWHERE
from tests.whole.harness import Daemon, daemon_in

LOOP = "#!/bin/sh\nwhile echo working; do sleep 0.1; done\n"
PROMPT = "You work on this repository. Do the task below, run the tests, commit.\n"
TASKS = "- [ ] parse the date in the header\n- [ ] show it in local time\n"
BREAKS_THE_TESTS = """\
#!/bin/sh
touch broken && git add broken && git commit -q -m broken
while ralphctl notify iteration-finished --wait; do sleep 0.1; done
"""
GUARD = """\
[ralph]
command = ["./loop.sh"]

[regent]
rollback_on_test_failure = true
test_command = "! test -e broken"
test_retries = 0
"""
FAILS = """\
[ralph]
command = ["./loop.sh"]

[regent]
max_retries = 3
retry_backoff_seconds = 0
"""
PAGE_S = 90.0
SIDE_BY_SIDE = 3
_MARK = "-- command"

START_HERE, OWN_LOOP, FIVE = DOCS / "start-here.md", DOCS / "own-loop.md", DOCS / "five-ralphs.md"
FLEET = DOCS / "one-to-five.md"  # typed by test_fleet_page.py, on three machines
IN_A_HOME_OF_THEIR_OWN = {ROOT / "README.md", DOCS / "loop.md", START_HERE, OWN_LOOP, FIVE, FLEET}
CALLED = DOCS / "notifications.md"
SHARED = [
    page
    for page in PAGES
    if commands_of(page) and page not in {*IN_A_HOME_OF_THEIR_OWN, CALLED} and title(page) not in ELSEWHERE
]


@dataclass(frozen=True, slots=True)
class Newcomer:
    """Somebody with a shell, an empty home, the agents, and ``ralphctl`` on the PATH."""

    daemon: Daemon

    def has_agents(self, *steps: Mapping[str, object]) -> None:
        """Programs that play claude and codex: these steps, then each task is done at once."""
        agents.install(self.daemon.home / "bin", ("claude", "codex"))
        agents.write_script(self.daemon.home / "script.json", steps)

    def has_project(self, name: str = "project", *, loop: str = LOOP) -> Path:
        """The git repository with a loop and a task list that a reader is taken to have."""
        project = self.daemon.home / name
        project.mkdir()
        (project / "PROMPT.md").write_text(PROMPT)
        (project / "TASKS.md").write_text(TASKS)
        (project / "loop.sh").write_text(loop)
        (project / "loop.sh").chmod(stat.S_IRWXU)
        subprocess.run(["git", "init", "--quiet", project], check=True, env=self.environment())
        return project

    def types(self, typed: Sequence[Typed]) -> list[tuple[int, list[str]]]:
        """Type all commands into one shell; the exit code and the lines of each."""
        script = "".join(f"{_shell_line(each)}\nprintf '\\n%s %d\\n' '{_MARK}' $?\n" for each in typed)
        said = subprocess.run(
            ["bash", "-c", script], cwd=self.daemon.home, env=self.environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PAGE_S, check=False,
        ).stdout  # fmt: skip
        parts = re.split(rf"\n{_MARK} (\d+)\n", said)
        assert len(parts) == 2 * len(typed) + 1, said
        return [(int(code), text.splitlines()) for text, code in zip(parts[0::2], parts[1::2], strict=False)]

    def environment(self) -> dict[str, str]:
        home = self.daemon.home
        places = [str(home / "bin"), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
        parts = [f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
        someone = dict.fromkeys(parts, "me@example.invalid")
        more = {"PATH": os.pathsep.join(places), "PLAYED_SCRIPT": str(home / "script.json")}
        return self.daemon.environment | someone | more


def _shell_line(each: Typed) -> str:
    return (
        shlex.join([*player("watcher", *each.enough), each.command]) if each.is_interrupted else each.command
    )


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
        told = f"{title(page)}: $ {each.command}\n" + "\n".join(lines)
        assert code == 0 or (each.is_interrupted and code in (124, 130)), told
        if each.expected:
            assert is_as_told(each.expected, lines, known), told


def test_the_quick_starts_of_the_loop_and_of_the_readme_are_true(newcomer: Newcomer) -> None:
    newcomer.has_agents()
    project = newcomer.has_project()
    check_page(newcomer, DOCS / "loop.md")
    assert "- [ ]" not in (project / "TASKS.md").read_text()
    check_page(newcomer, ROOT / "README.md")


def test_a_loop_of_your_own_is_supervised_as_its_page_says(newcomer: Newcomer) -> None:
    check_page(newcomer, OWN_LOOP)
    assert not newcomer.daemon.leftovers()


def test_the_first_night_goes_as_start_here_says(newcomer: Newcomer) -> None:
    newcomer.has_agents({"do": "task"}, {"do": "task", "takes_s": 6})
    check_page(newcomer, START_HERE)
    assert not newcomer.daemon.leftovers()


def test_a_night_of_five_goes_as_its_page_says(newcomer: Newcomer) -> None:
    newcomer.has_agents(*[{"do": "task", "takes_s": 2}] * 8)
    check_page(newcomer, FIVE)
    [(_, subjects)] = newcomer.types([Typed("git -C ~/shop log --format=%s", ())])
    assert sum(line.endswith(": done") for line in subjects) == 8
    assert not newcomer.daemon.leftovers()


def test_every_other_page_is_true_too(newcomer: Newcomer) -> None:
    newcomer.has_agents()
    newcomer.daemon.start()
    for page in SHARED:
        for name in sorted(projects_of(page)):
            newcomer.has_project(name)
    has_reverted_a_commit(newcomer)

    with ThreadPoolExecutor(SIDE_BY_SIDE) as shells:
        asked = [shells.submit(check_page, newcomer, page) for page in SHARED]
        asked.append(shells.submit(check_fragments, newcomer))

    faults = [str(fault) for each in asked if (fault := each.exception())]
    assert not faults, "\n\n".join(faults)
    has_called(newcomer)  # from now on `status` exits with 1
    check_page(newcomer, CALLED)


def check_fragments(newcomer: Newcomer) -> None:
    """What ``docs/own-loop.md`` shows besides whole loops goes well in a run; its sleep is a short one."""
    shown = [fence.text for fence in fences_of(DOCS / "own-loop.md", "bash") if fence.text[:2] != "#!"]
    kept = [text for text in shown if shutil.which("curl") or "curl" not in text]
    newcomer.has_project("fragments", loop="\n".join(["#!/bin/bash", "sleep() { :; }", "set -e", *kept]))
    words = "ralphctl start ~/fragments -- ./loop.sh && ralphctl wait fragments --for done --wait-timeout 60"
    [(code, lines)] = newcomer.types([Typed(words, ())])
    assert code == 0, lines
    assert [each["reason"] for each in newcomer.daemon.history("fragments", "wait")] == ["usage limit"]
    assert len(newcomer.daemon.history("fragments", "iteration")) == len(kept) - 1


def projects_of(page: Path) -> set[str]:
    """The repositories that the commands of a page go to and do not make."""
    commands = "\n".join(each.command for each in commands_of(page))
    made = set(re.findall(r"(?:mkdir|git init|git clone)[^\n]* ~/(\w[\w-]*)", commands))
    return set(re.findall(r"(?:cd|-C) ~/(\w[\w-]*)", commands)) - made


def test_no_two_pages_work_in_the_same_repository() -> None:
    names = [name for page in SHARED for name in projects_of(page)]

    assert len(names) == len(set(names))


def has_reverted_a_commit(newcomer: Newcomer) -> None:
    """The ralph ``my-project``, of which the guard has reverted a commit (``docs/guard.md``)."""
    project = newcomer.has_project("my-project", loop=BREAKS_THE_TESTS)
    (project / "ralph.toml").write_text(GUARD)
    words = "cd ~/my-project && git add . && git commit -q -m first && ralphctl start --name my-project"
    [(code, lines)] = newcomer.types([Typed(words, ())])
    assert code == 0, lines
    events = newcomer.daemon.events
    wait_for(lambda: events("commit.reverted"), timeout_s=30, what="a commit that is reverted")


def has_called(newcomer: Newcomer) -> None:
    """The ralph ``demo``, which has failed for good and called a person (``docs/notifications.md``)."""
    project = newcomer.has_project("demo", loop="#!/bin/sh\nexit 1\n")
    (project / "ralph.toml").write_text(FAILS)
    [(code, lines)] = newcomer.types([Typed("ralphctl start ~/demo", ())])
    assert code == 0, lines
    newcomer.daemon.becomes("demo", "failed", timeout_s=30)


def test_a_page_is_taken_at_its_word() -> None:
    known: dict[str, str] = {}
    assert is_as_told(["started (pid 4711) in ~/x", "…"], ["started (pid 99) in ~/x", "more"], known)
    assert is_as_told(["pid 4711, 3 lines"], ["pid 99, 12 lines"], known)
    assert not is_as_told(["pid 4711, 3 lines"], ["pid 98, 12 lines"], known)
    assert not is_as_told(["one"], ["one", "two"], known)
    assert is_as_told(["one"], ["waiting for ralphd (pid 99) to end", "one"], known)
    assert not is_as_told(["waiting for a", "one"], ["one"], known)
