"""How the landing queue tests: setup, ports, sandbox, weakened and flaky tests (W3, A9, R3, R4)."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from ralphd.core.sandbox import SIGNALS_ABI
from ralphd.process import shim
from ralphd.process.sandbox.box import why_unavailable
from tests.helpers import wait_for
from tests.whole.harness import Daemon, View
from tests.whole.person import Person
from tests.whole.test_landing import LAND_S, Yard
from tests.whole.test_weakened_tests import BAD, CODE, OLD, RED, RUN_TESTS

IGNORED = "ready\nnode_modules/\n.env\n__pycache__/\n"


def yard_of(daemon: Daemon, toml: str, **files: str) -> Yard:
    """A repository whose main has this ralph.toml and these files."""
    yard = Yard.of(daemon)
    for name, text in {"ralph.toml": toml, ".gitignore": IGNORED, **files}.items():
        (yard.main / name).write_text(text)
    yard.git("add", "-A")
    yard.git("commit", "-q", "-m", "rules")
    return yard


def tree_of_queue(daemon: Daemon) -> Path:
    (tree,) = (daemon.home / ".local/share/ralphd/landing").iterdir()
    return tree


def test_setup_and_included_files_come_before_the_tests(daemon: Daemon) -> None:
    yard = yard_of(
        daemon,
        '[ralph]\nsetup = "pwd -P > ready; echo $RALPH_PORT_BASE >> ready"\n'
        "[regent]\ntest_retries = 0\ntest_command = \"test -s ready && cat .env > seen\"\n",
        **{".worktreeinclude": ".env\n"},
    )  # fmt: skip
    (yard.main / ".env").write_text("one\n")
    yard.git("config", "include.path", "more")
    daemon.start()
    yard.ralph("a", a="1\n")
    yard.land("a")
    assert yard.ended(1)[1]["state"] == "landed", yard.queue()
    tree = tree_of_queue(daemon)
    place, port = (tree / "ready").read_text().split()
    assert place == str(tree.resolve())
    assert 14_000 <= int(port) < 20_000
    assert (tree / "seen").read_text() == "one\n"
    (run,) = daemon.state.glob("landing/*/setup/r*")
    assert json.loads((run / "exit.json").read_text())["code"] == 0

    (yard.main / ".env").write_text("two\n")
    yard.ralph("b", **{"b": "1\n"})
    yard.land("b")
    assert yard.ended(2)[2]["state"] == "landed"
    assert (tree / "seen").read_text() == "two\n"


def test_a_setup_that_fails_blames_only_whom_it_has_to(daemon: Daemon) -> None:
    script = "test -e stale && exit 7; touch stale; test -e bad && exit 3; rm stale\n"
    yard = yard_of(
        daemon, '[ralph]\nsetup = "sh s.sh"\n' + RULES, **{"s.sh": script, ".gitignore": "stale\n"}
    )
    daemon.start()
    yard.ralph("bad", bad="1\n")
    yard.ralph("good", good="1\n")
    tip = yard.git("rev-parse", "--short=7", "main")
    yard.land("bad")
    bad = yard.ended(1)[1]
    assert (bad["state"], bad["why"]) == ("refused", f"the setup commands fail (exit 3) on top of {tip}")
    yard.land("good")
    assert yard.ended(2)[2]["state"] == "landed"  # without what the failed setup has left

    yard.commit(yard.main, "bad", "1\n")
    yard.ralph("other", other="1\n")
    yard.land("other")
    wait_for(lambda: yard.queue()["blocked"], timeout_s=LAND_S, what="a red target")
    assert yard.queue()["blocked"].startswith("the setup commands fail (exit 3) on the target itself, at ")
    assert yard.queue()["candidates"][0]["state"] == "queued"
    assert daemon.events("landing.refused")[1:] == []


RULES = '[regent]\ntest_retries = 0\ntest_command = "! test -e broken"\n'
PLACES = (
    "landing.setup.ordered",
    "landing.setup.done",
    "gate.tests_run",
    "landing.checking.ordered",
    "landing.checking.done",
)


def test_setup_and_checks_survive_a_kill(daemon: Daemon) -> None:
    tests = {"test_x.py": "0\n", "run": ". ./test_x.py\n"}
    yard = yard_of(daemon, RULES.replace("! test -e broken", "test -e ready; sh run || true"), **tests)
    yard.commit(yard.main, "ralph.toml", (yard.main / "ralph.toml").read_text() + SETUP)
    daemon.start(failpoints=PLACES[:1], unarmed=True)
    for number, place in enumerate(PLACES, start=1):
        name = f"r{number}"
        yard.ralph(name, **{name: "1\n", "test_x.py": f"{number}\n"})
        daemon.arm()
        daemon.ask_the_dying("POST", "/v1/landing", {"ralph": name})
        daemon.start(failpoints=PLACES[number : number + 1], unarmed=True)
        assert yard.ended(number)[number]["state"] == "landed", place
        assert (yard.main / "test_x.py").read_text() == f"{number}\n"
        assert yard.git("status", "--porcelain") == ""
    landed = [event["data"]["number"] for event in daemon.events("landing.landed")]
    assert landed == list(range(1, len(PLACES) + 1))


SETUP = '[ralph]\nsetup = "touch ready"\n'


# Weakened tests.


def weak(daemon: Daemon, protect: str = "report", mode: str = "off") -> Yard:
    """Main has two unittest tests and a runner that prints how many ran."""
    toml = (
        f'[regent]\ntest_retries = 0\ntest_command = "sh run-tests"\nprotect_tests = "{protect}"\n'
        f'[landing]\nmode = "{mode}"\n'
    )
    return yard_of(daemon, toml, **{"code_.py": CODE, "test_add.py": OLD, "run-tests": RUN_TESTS})


GONE = re.sub(r"    def test_add.*?\n\n", "", OLD, flags=re.DOTALL)
FEWER = f"weakens tests: 1 test ran, 2 before; {RED}"


@pytest.mark.parametrize("is_gone", [True, False])
def test_what_a_person_lands_says_that_it_weakens_tests(daemon: Daemon, is_gone: bool) -> None:
    yard, person = weak(daemon), Person(daemon)
    daemon.start()
    new = GONE if is_gone else OLD.replace("3), 5)", "3), -1)")
    yard.ralph("weak", **{"code_.py": BAD, "test_add.py": new})
    yard.ralph("good", good="1\n")
    yard.land("weak")
    yard.land("good")
    ends = yard.ended(1, 2)
    why = FEWER if is_gone else f"weakens tests: {RED}"
    assert [(ends[n]["state"], ends[n]["why"]) for n in (1, 2)] == [("landed", why), ("landed", "")]
    (event,) = (each for each in daemon.events("landing.landed") if each["data"]["number"] == 1)
    assert event["data"]["message"] == f"ralph/weak landed on main: {why}"
    assert why in person("queue").stdout
    assert yard.git("show", "main:test_add.py") == new.strip()
    assert yard.git("status", "--porcelain") == ""


def test_weakened_tests_are_refused_where_they_are_protected(daemon: Daemon) -> None:
    yard = weak(daemon, "revert")
    daemon.start()
    yard.ralph("weak", **{"code_.py": BAD, "test_add.py": OLD.replace("3), 5)", "3), -1)")})
    yard.ralph("honest", **{"test_add.py": OLD + "\n    def test_more(self):\n        add(1, 1)\n"})
    before = yard.git("rev-parse", "main")
    yard.land("weak")
    assert (yard.ended(1)[1]["state"], yard.ended(1)[1]["why"]) == ("refused", f"weakens tests: {RED}")
    assert yard.git("rev-parse", "main") == before
    (task,) = json.loads((daemon.files("weak") / "inbox.json").read_text())["tasks"]
    assert "does not land on main: weakens tests: the earlier version of test_add.py" in task["text"]
    yard.land("honest")
    assert (yard.ended(2)[2]["state"], yard.ended(2)[2]["why"]) == ("landed", "")


def test_vanished_tests_wait_for_a_person(daemon: Daemon) -> None:
    yard, person = weak(daemon, mode="auto"), Person(daemon)
    daemon.start()
    place = daemon.home / "weak"
    yard.git("worktree", "add", "-q", "-b", "ralph/weak", str(place), "main")
    yard.commit(place, "test_add.py", "")
    yard.commit(place, "code_.py", BAD)
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(daemon.home)}
    body = {"directory": str(place), "name": "weak", "command": ["true"], "environment": environment}
    before = yard.git("rev-parse", "main")
    daemon.ask("POST", "/v1/ralphs", body | {"flags": {"landing.mode": "auto"}})

    def waiting() -> View | None:
        found = [each for each in yard.queue()["candidates"] if each["state"] == "waiting"]
        return found[0] if found else None

    shown = wait_for(waiting, timeout_s=LAND_S, what="a candidate that waits") or {}
    assert shown["why"].startswith("weakens tests: 0 tests ran, 2 before; ")
    assert shown["why"].endswith("deleted or emptied: test_add.py: land it yourself")
    assert shown["next"] == "ralphctl land weak"
    wait_for(lambda: len(daemon.events("landing.queued")) == 2, what="the event that it waits")
    assert "waits to land on main: weakens tests" in daemon.events("landing.queued")[1]["data"]["message"]
    assert yard.git("rev-parse", "main") == before
    assert person("land", "weak").returncode == 0
    assert yard.ended(2)[2]["state"] == "landed"
    assert yard.ended(2)[2]["why"].startswith("weakens tests: 0 tests ran, 2 before")


def test_a_revert_of_a_landing_weakens_nothing(daemon: Daemon) -> None:
    yard = weak(daemon, "revert")
    daemon.start()
    yard.ralph("more", **{"test_more.py": OLD})
    yard.land("more")
    assert yard.ended(1)[1]["state"] == "landed"
    daemon.ask("POST", "/v1/landing/undo", {"ralph": "more"})
    assert (yard.ended(2)[2]["state"], yard.ended(2)[2]["why"]) == ("landed", "")


# Flaky, red and slow tests.


def test_a_flaky_test_lands_and_is_named(daemon: Daemon) -> None:
    seen = shlex.quote(str(daemon.root / "seen"))
    command = f"test -e {seen} || {{ touch {seen}; exit 1; }}"
    yard, person = yard_of(daemon, f'[regent]\ntest_command = "{command}"\n'), Person(daemon)
    daemon.start()
    yard.ralph("a", a="1\n")
    yard.land("a")
    end = yard.ended(1)[1]
    assert (end["state"], end["why"]) == ("landed", "the tests passed at a second run")
    assert "the tests passed at a second run" in person("queue").stdout
    assert yard.tests() == 2


def test_a_red_target_is_shown_and_blames_nobody(daemon: Daemon) -> None:
    yard, person = yard_of(daemon, RULES), Person(daemon)
    yard.commit(yard.main, "broken", "1\n")
    daemon.start()
    yard.ralph("a", a="1\n")
    yard.land("a")
    wait_for(lambda: yard.queue()["blocked"], timeout_s=LAND_S, what="a red target")
    tip = yard.git("rev-parse", "--short=7", "main")
    words = f"the tests fail on the target itself, at {tip}: nothing lands until they pass"
    assert words in person("queue").stdout
    assert daemon.events("landing.refused") == []
    yard.git("rm", "-q", "broken")
    yard.git("commit", "-q", "-m", "fixed")
    assert yard.ended(1)[1]["state"] == "landed"


def test_tests_that_time_out_twice_are_named(daemon: Daemon) -> None:
    toml = (
        '[regent]\ntest_retries = 0\ntest_timeout_seconds = 1\ntest_command = "! test -e slow || sleep 600"\n'
    )
    yard = yard_of(daemon, toml)
    daemon.start()
    yard.ralph("slow", slow="1\n")
    tip = yard.git("rev-parse", "--short=7", "main")
    yard.land("slow")
    end = yard.ended(1)[1]
    assert (end["state"], end["why"]) == ("refused", f"the tests do not end in time on top of {tip}")
    assert yard.tests() == 3


# Sandbox and layout.


def level_of(name: str) -> object:
    why = why_unavailable() if name == "box" else None
    if name == "write" and shim.landlock_abi() < SIGNALS_ABI:
        why = f"Landlock ABI {shim.landlock_abi()}"
    return pytest.param(name, marks=pytest.mark.skipif(why is not None, reason=str(why)))


@pytest.mark.parametrize("level", [level_of("write"), level_of("box")])
def test_tests_write_their_tree_and_not_the_state(daemon: Daemon, tmp_path: Path, level: str) -> None:
    (tmp_path / "tmp").mkdir()
    state = shlex.quote(str(daemon.state))
    command = f"touch {state}/x {state}/landing/x; touch ready"  # the box has a state directory of its own
    yard = yard_of(daemon, f"[sandbox]\nlevel = \"{level}\"\n[regent]\ntest_command = '''{command}'''\n")
    daemon.start()
    place = daemon.home / "a"
    yard.git("worktree", "add", "-q", "-b", "ralph/a", str(place), "main")
    yard.commit(place, "a", "1\n")
    environment = {"PATH": os.environ["PATH"], "HOME": str(daemon.home), "TMPDIR": str(tmp_path / "tmp")}
    body = {"directory": str(place), "name": "a", "command": ["true"], "environment": environment}
    daemon.ask("POST", "/v1/ralphs", body | {"start": False})
    yard.land("a")
    assert yard.ended(1)[1]["state"] == "landed", yard.queue()
    assert (tree_of_queue(daemon) / "ready").exists()
    assert not list(daemon.state.rglob("x"))
    (run,) = daemon.state.glob("landing/*/tests/r*")
    assert json.loads((run / "run.json").read_text())["sandbox"] == level


def test_a_queue_of_the_earlier_layout_is_moved(daemon: Daemon) -> None:
    yard = yard_of(daemon, RULES)
    daemon.start(failpoints=["landing.testing.ordered"])
    yard.ralph("a", a="1\n")
    daemon.ask_the_dying("POST", "/v1/landing", {"ralph": "a"})
    (home,) = (daemon.state / "landing").iterdir()
    yard.git("worktree", "add", "-q", "--detach", str(home / "tree"), "main")
    yard.git("worktree", "lock", str(home / "tree"))
    queue = json.loads((home / "queue.json").read_text())
    new = ("counts", "counts_at", "tree", "inside", "port_base", "is_spoiled")
    (home / "queue.json").write_text(json.dumps({k: v for k, v in queue.items() if k not in new}))
    daemon.start()
    assert yard.ended(1)[1]["state"] == "landed"
    assert not (home / "tree").exists()
    assert (tree_of_queue(daemon) / "a").exists()
    assert str(home) not in yard.git("worktree", "list")
