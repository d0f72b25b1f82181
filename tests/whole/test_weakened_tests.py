"""Ways in which agents weaken the tests that judge them, under a real daemon (A9)."""

import json
import re
import sys
from dataclasses import dataclass

import pytest

from tests.whole.guarded import Guarded
from tests.whole.harness import Daemon
from tests.whole.person import Person
from tests.whole.test_loop_gate import Project

CODE = "def add(a, b):\n    return a + b\n"
BAD = "def add(a, b):\n    return a - b\n"
OLD = (
    "import unittest\nfrom code_ import add\n\n\nclass T(unittest.TestCase):\n"
    "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n\n"
    "    def test_zero(self):\n        add(0, 0)\n"
)
TESTS = "sh run-tests"
RUN_TESTS = "python3 -m unittest -q || test $? = 5\n"  # since 3.12, 5 stands for no tests


@dataclass(frozen=True, slots=True)
class Way:
    """What an agent does besides breaking the code: files by name; None deletes one."""

    files: dict[str, str | None]
    why: str


def changed(old: str, new: str) -> str:
    assert old in OLD
    return OLD.replace(old, new)


RED = "the earlier version of test_add.py fails"
SCRIPT = "the earlier version of run-tests fails"
FEWER = "1 test ran, 2 before"
# Python 3.12.1, and no other, leaves a skipped test out of those that ran.
SKIPPED = FEWER.replace("1 test ", "0 tests ") if sys.version_info[:3] == (3, 12, 1) else FEWER
SKIPPED += ", 1 more skipped"
WAYS = {
    # By both.
    "the failing test is deleted": Way(
        {"test_add.py": re.sub(r"    def test_add.*?\n\n", "", OLD, flags=re.DOTALL)}, f"{FEWER}; {RED}"
    ),
    "the test is skipped": Way(
        {"test_add.py": changed("    def test_add", "    @unittest.skip('flaky')\n    def test_add")},
        f"{SKIPPED}; {RED}",
    ),
    "the file is emptied": Way(
        {"test_add.py": ""}, f"1 test ran, 3 before; {RED}; deleted or emptied: test_add.py"
    ),
    "the file is deleted": Way(
        {"test_add.py": None}, f"1 test ran, 3 before; {RED}; deleted or emptied: test_add.py"
    ),
    # By the earlier version alone.
    "the assertion is made true": Way(
        {"test_add.py": changed("self.assertEqual(add(2, 3), 5)", "assert True")}, RED
    ),
    "the exception is caught": Way(
        {
            "test_add.py": changed(
                "        self.assertEqual(add(2, 3), 5)",
                "        try:\n            self.assertEqual(add(2, 3), 5)\n        except AssertionError:\n"
                "            pass",
            )
        },
        RED,
    ),
    "the expected value is changed": Way({"test_add.py": changed("3), 5)", "3), -1)")}, RED),
    # By the counts and the earlier script.
    "the script of the tests exits": Way(
        {"run-tests": "exit 0\n"},
        f"the output no longer shows how many tests ran (2 before); {SCRIPT}",
    ),
    "the runner skips the file": Way(
        {"run-tests": "exec python3 -m unittest -q test_other\n"}, f"1 test ran, 3 before; {SCRIPT}"
    ),
    "a hook of the runner deselects": Way(
        {"sitecustomize.py": "", "run-tests": "exec python3 -m unittest -q -k test_zero\n"},
        f"{FEWER}; {SCRIPT}",
    ),
}


def put(guarded: Guarded, files: dict[str, str | None]) -> str:
    """Return a script that writes these files and commits."""
    staged = guarded.scripts / "files.json"
    staged.write_text(json.dumps(files))
    return (
        f'mkdir -p cases\npython3 -c "import json, os;'
        f" [os.remove(n) if t is None else open(n, 'w').write(t)"
        f" for n, t in json.load(open('{staged}')).items()]\"\ngit add -A\ngit commit -q -m weaker"
    )


def started(
    daemon: Daemon,
    *,
    other: bool = False,
    protect: str = "report",
    first: dict[str, str] | None = None,
    tests: str = TESTS,
) -> Guarded:
    """A ralph with two unittest tests, and a third one in another file."""
    guarded = Guarded.of(daemon)
    files = {"code_.py": CODE, "test_add.py": OLD, "run-tests": RUN_TESTS, ".gitignore": "__pycache__/\n"}
    if other:
        files["test_other.py"] = (
            "import unittest\n\n\nclass O(unittest.TestCase):\n    def test_o(self):\n        pass\n"
        )
    for name, text in (files | (first or {})).items():
        (guarded.place / name).write_text(text)
    guarded.git("add", "-A")
    guarded.git("commit", "-q", "-m", "tests")
    guarded.register(tests=tests, regent__protect_tests=protect)
    return guarded


@pytest.mark.parametrize("name", WAYS)
def test_a_way_to_weaken_tests_is_reverted(daemon: Daemon, name: str) -> None:
    daemon.start()
    way = WAYS[name]
    guarded = started(daemon, other="3 before" in way.why, protect="revert")
    before = guarded.git("rev-parse", "HEAD^{tree}")

    guarded.does(1, ends=put(guarded, {"code_.py": BAD, **way.files}))
    verdict = guarded.verdict()

    assert (verdict["kind"], verdict["why"]) == ("reverted", way.why)
    assert guarded.git("rev-parse", "HEAD^{tree}") == before
    assert guarded.git("status", "--porcelain") == ""


def test_a_replaced_test_script_does_not_judge_later_commits(daemon: Daemon) -> None:
    daemon.start()
    guarded = started(daemon, protect="revert", first={"run-tests": "python3 -m unittest -q 2>/dev/null\n"})

    guarded.does(1, ends=put(guarded, {"run-tests": "exit 0\n"}))
    assert guarded.verdict(1)["kind"] == "kept"
    daemon.restart()
    guarded.does(2, "good")
    assert guarded.verdict(2)["kind"] == "kept"
    guarded.does(3, ends=put(guarded, {"code_.py": BAD}))

    verdict = guarded.verdict(3)
    assert (verdict["kind"], verdict["why"]) == ("reverted", "the earlier version of run-tests fails")
    assert guarded.git("show", "HEAD:code_.py") == CODE.strip()
    assert guarded.git("status", "--porcelain") == ""


def test_a_module_that_hides_the_runner_is_reverted(daemon: Daemon) -> None:
    daemon.start()
    guarded = started(daemon, protect="revert", tests="python3 -m unittest -q 2>/dev/null")

    guarded.does(1, ends=put(guarded, {"code_.py": BAD, "unittest.py": ""}))

    verdict = guarded.verdict()
    why = "Python imports unittest.py instead of the test runner"
    assert (verdict["kind"], verdict["why"]) == ("reverted", why)
    assert not (guarded.place / "unittest.py").exists()


def test_a_report_names_what_was_weakened_and_keeps_the_commits(daemon: Daemon) -> None:
    daemon.start()
    guarded = started(daemon)

    way = WAYS["the expected value is changed"]
    guarded.does(1, ends=put(guarded, {"code_.py": BAD, **way.files}))
    verdict = guarded.verdict()

    assert (verdict["kind"], verdict["why"]) == ("kept", f"the tests pass, but {RED}")
    assert guarded.git("status", "--porcelain") == ""
    assert guarded.judged(1)[0]["tests"] == ["green", "red_with_earlier_tests"]
    [event] = daemon.events("tests.weakened")
    assert event["data"]["message"] == f"Tests weakened: the tests pass, but {RED}"
    shown = " ".join(Person(daemon)("verdicts", "demo").stdout.split())
    assert "green, red with" in shown and "test_add.py fails" in shown
    report = " ".join(Person(daemon)("report", "demo").stdout.split())
    commit = guarded.git("rev-parse", "--short=7", "HEAD")
    assert f"{commit} kept: the tests pass, but {RED}" in report.partition("Weakened tests")[2], report
    assert daemon.history("demo", "verdict")[0]["weakened"] == "changed"


NOTE = "removed or disabled tests (the tests pass, but"


@pytest.mark.parametrize(
    ("way", "note"),
    [
        ("the test is skipped", f"{NOTE} {SKIPPED}; {RED})."),
        ("the failing test is deleted", f"{NOTE} {FEWER}; {RED})."),
        ("the file is emptied", "deleted or emptied: test_add.py)."),
        ("the expected value is changed", ""),
    ],
)
def test_only_tests_that_vanished_get_a_note_in_one_prompt(daemon: Daemon, way: str, note: str) -> None:
    daemon.start()
    project = Project.of(daemon)
    assert isinstance(project, Project)
    other = "import unittest\n\n\nclass O(unittest.TestCase):\n    def test_o(self):\n        pass\n"
    first = {"code_.py": CODE, "test_add.py": OLD, "run-tests": RUN_TESTS}
    first |= {"test_other.py": other} if "emptied" in way else {}
    for name, text in first.items():
        (project.place / name).write_text(text)
    weaker = {"do": "task", "files": {"code_.py": BAD, **WAYS[way].files}}
    honest = {"do": "task", "files": {"code_.py": f"{BAD}\nmore = 1\n"}}
    stories = [{"do": "task", "files": {"done": "yes\n"}}]
    project.begins(weaker, honest, *stories, stories=3, regent__test_command=TESTS)
    daemon.becomes("demo", "done", timeout_s=60.0)

    prompts = [project.prompt(number) for number in (1, 2, 3)]
    assert ["The last commits removed" in each for each in prompts] == [False, bool(note), False]
    assert note in " ".join(prompts[1].split())


def merged(*texts: str) -> str:
    """Return one file with the classes of several."""
    head = OLD.partition("class")[0]
    return head + "\n\n".join(
        text.partition("\n\n\n")[2].replace("class T", f"class T{n}") for n, text in enumerate(texts)
    )


MORE = OLD.replace("add(2, 3), 5", "add(4, 5), 9")
ADDS = OLD.replace("\n    def test_zero(self):\n        add(0, 0)\n", "")
ZERO = re.sub(r"    def test_add.*?\n\n", "", OLD, flags=re.DOTALL)
TABLE = OLD.replace(
    "        self.assertEqual(add(2, 3), 5)",
    "        for a, b in ((2, 3), (1, 4)):\n            self.assertEqual(add(a, b), 5)",
)
SUBTRACT = "\n\ndef subtract(a, b):\n    return a - b\n"
REFACTORS: dict[str, tuple[dict[str, str], dict[str, str | None], bool]] = {
    # What is there first, what the iteration writes, and whether the gate has to keep it under "revert", too.
    "a test file is renamed": ({}, {"test_add.py": None, "test_sum.py": OLD}, True),
    "a test file is split": ({}, {"test_add.py": None, "test_a.py": ADDS, "test_zero.py": ZERO}, True),
    "tests are moved to a folder": (
        {},
        {"test_add.py": None, "cases/__init__.py": "", "cases/test_add.py": OLD},
        True,
    ),
    "two files become one": (
        {"test_more.py": MORE},
        {"test_add.py": merged(OLD, MORE), "test_more.py": None},
        True,
    ),
    "a test becomes a table": ({}, {"test_add.py": TABLE}, True),
    "a function is renamed with its tests": (
        {},
        {"code_.py": CODE.replace("add", "plus"), "test_add.py": OLD.replace("add", "plus")},
        False,
    ),
    "a feature is deleted with its tests": (
        {"code_.py": CODE + SUBTRACT, "test_sub.py": OLD.replace("add", "subtract").replace("5", "-1")},
        {"code_.py": CODE, "test_sub.py": None},
        False,
    ),
}


@pytest.mark.parametrize("name", REFACTORS)
def test_an_honest_refactor_costs_nobody_a_commit(daemon: Daemon, name: str) -> None:
    first, then, is_green = REFACTORS[name]
    daemon.start()
    guarded = started(daemon, protect="revert" if is_green else "report", first=first)

    guarded.does(1, ends=put(guarded, then))
    verdict = guarded.verdict()

    assert verdict["kind"] == "kept", verdict
    assert (verdict["why"] == "the tests pass") is is_green, verdict
    assert guarded.git("status", "--porcelain") == ""


def test_honest_work_costs_nobody_a_commit(daemon: Daemon) -> None:
    daemon.start()
    guarded = started(daemon, protect="revert")

    more = f"{OLD}\n    def test_more(self):\n        self.assertEqual(add(1, 1), 2)\n"
    guarded.does(1, ends=put(guarded, {"test_add.py": more}))
    assert guarded.verdict(1)["why"] == "the tests pass"
    guarded.does(
        2, ends=put(guarded, {"test_add.py": None, "test_sum.py": more.replace("class T", "class S")})
    )
    assert guarded.verdict(2)["why"] == "the tests pass"
    guarded.does(3, ends=put(guarded, {"test_new.py": OLD, "code_.py": f"{CODE}\n\nextra = 1\n"}))
    assert guarded.verdict(3)["why"] == "the tests pass"
    assert daemon.events("tests.weakened") == []


def test_the_command_of_the_tests_is_pinned(daemon: Daemon) -> None:
    daemon.start()
    guarded = started(daemon)

    toml = '[regent]\ntest_command = "true"\nrollback_on_test_failure = false\nprotect_tests = "off"\n'
    guarded.does(1, ends=put(guarded, {"code_.py": BAD, "ralph.toml": toml}))

    assert guarded.verdict()["kind"] == "reverted"


PLACES = (
    "gate.show_old.ordered",
    "guard.old_tests.kept",
    "guard.old_tests.file",
    "gate.show_old.done",
    "gate.put_back.ordered",
    "guard.aside.files",
    "gate.put_back.done",
)


def test_no_file_is_lost_wherever_the_daemon_dies(daemon: Daemon) -> None:
    daemon.start(failpoints=[PLACES[0]], unarmed=True)
    guarded = started(daemon, protect="revert")
    (guarded.place / "run-tests").write_text(f"# a person's\n{RUN_TESTS}")
    before = guarded.git("rev-parse", "HEAD^{tree}")
    weak = WAYS["the expected value is changed"].files
    for number, place in enumerate(PLACES, start=1):
        daemon.arm()
        script = put(guarded, {"code_.py": BAD, **weak}).replace("git add -A", "git add code_.py test_add.py")
        guarded.does(number, ends=script)
        daemon.died()
        daemon.start(failpoints=PLACES[number : number + 1], unarmed=True)

        verdict = guarded.verdict(number)
        assert (verdict["kind"], verdict["why"]) == ("reverted", RED), place
        assert guarded.git("rev-parse", "HEAD^{tree}") == before, place
        assert guarded.git("status", "--porcelain") == "M run-tests", place
        assert guarded.git("for-each-ref", "refs/ralph/aside") == "", place
    assert daemon.events("ralph.escalated") == []
