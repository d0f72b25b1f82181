"""Branches of ralphs land on main, tested, and a person's checkout is left alone (M1 to M6)."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers import wait_for
from tests.players import agents
from tests.whole.harness import Daemon, View
from tests.whole.person import Person, tree_of

LAND_S = 40.0
TOML = '[regent]\ntest_command = "! test -e broken"\ntest_retries = 0\n'
PLACES = (
    "write.queue.json.after_rename",
    "landing.merging.ordered",
    "landing.merging.done",
    "landing.testing.ordered",
    "gate.tests_run",
    "landing.testing.done",
    "landing.moving.ordered",
    "guard.move.begun",
    "guard.move.tree",
    "guard.move.branch",
    "landing.moved",
    "landing.moving.done",
    "landing.told",
)


@dataclass(frozen=True, slots=True)
class Yard:
    """A person's repository on main, and linked work trees with a ralph each."""

    daemon: Daemon
    main: Path

    @classmethod
    def of(cls, daemon: Daemon, *, remote: bool = False, at: str = "project", toml: str = TOML) -> "Yard":
        yard = cls(daemon, daemon.home / at)
        yard.main.mkdir(parents=True)
        for words in (
            ("init", "-q", "-b", "main"),
            ("config", "user.name", "A"),
            ("config", "user.email", "a@b"),
        ):
            yard.git(*words)
        (yard.main / "ralph.toml").write_text(toml)
        yard.commit(yard.main, "shared", "1\n")
        if remote:
            yard.git("init", "-q", "--bare", "../origin")
            yard.git("remote", "add", "origin", "../origin")
            yard.git("push", "-q", "-u", "origin", "main")
        return yard

    def git(self, *words: str, at: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=at or self.main,
            env=self.daemon.environment | {"GIT_CONFIG_NOSYSTEM": "1"},
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        return done.stdout.strip()

    def commit(self, place: Path, name: str, text: str) -> str:
        (place / name).write_text(text)
        self.git("add", "-A", at=place)
        self.git("commit", "-q", "-m", f"{place.name}: {name}", at=place)
        return self.git("rev-parse", "HEAD", at=place)

    def ralph(self, name: str, **files: str) -> Path:
        """A ralph with the built-in loop, registered and not started, whose branch has these files."""
        place = self.daemon.home / name
        self.git("worktree", "add", "-q", "-b", f"ralph/{name}", str(place), "main")
        (place / "PROMPT.md").write_text("work\n")
        self.git("config", "core.excludesFile", str(self.daemon.home / "ignored"))
        (self.daemon.home / "ignored").write_text("PROMPT.md\n.ralph/\n")
        for file, text in files.items():
            self.commit(place, file, text)
        agent = self.daemon.home / "bin" / "claude"
        agent.parent.mkdir(exist_ok=True)
        agent.write_text("#!/bin/sh\nexit 1\n")
        agent.chmod(0o755)
        path = f"{agent.parent}:{os.environ.get('PATH', os.defpath)}"
        environment = {"PATH": path, "HOME": str(self.daemon.home)}
        body = {"directory": str(place), "name": name, "start": False, "environment": environment}
        self.daemon.ask("POST", "/v1/ralphs", body)
        return place

    def land(self, name: str) -> View:
        return dict(self.daemon.ask("POST", "/v1/landing", {"ralph": name}))

    def queue(self) -> View:
        queues = self.daemon.ask("GET", "/v1/landing")["queues"]
        return dict(queues[0]) if queues else {"candidates": []}

    def ended(self, *numbers: int) -> dict[int, View]:
        """The candidates of these numbers, once all have landed or been refused, and were reported."""

        def candidates() -> dict[int, View]:
            ends = {each["data"]["number"] for each in self.daemon.events() if each["type"] in ENDS}
            known = {each["number"]: each for each in self.queue()["candidates"]}
            if not ends.issuperset(numbers):
                return {}
            refused = [known[each] for each in numbers if known[each]["state"] == "refused"]
            return known if all(each["next"] for each in refused) else {}

        return wait_for(
            candidates, timeout_s=LAND_S, what=f"the ends of {numbers}: {self.daemon.words()[-3000:]}"
        )

    def tests(self) -> int:
        return len(list(self.daemon.state.glob("landing/*/tests/r*")))


ENDS = ("landing.landed", "landing.pushed", "landing.refused")


def test_the_good_one_of_three_lands(daemon: Daemon) -> None:
    yard = Yard.of(daemon)
    daemon.start()
    yard.ralph("good", good="1\n")
    yard.ralph("red", broken="1\n")
    yard.ralph("other", shared="2\n")
    mine = yard.commit(yard.main, "shared", "3\n")
    (yard.main / "shared").write_text("not committed\n")
    before = tree_of(yard.main / "shared")
    numbers = [yard.land(name)["number"] for name in ("good", "red", "other")]
    ends = yard.ended(*numbers)
    assert [ends[number]["state"] for number in numbers] == ["landed", "refused", "refused"]
    assert ends[2]["why"] == f"the tests fail on top of {yard.git('rev-parse', 'ralph/landed')[:7]}"
    assert ends[3]["why"] == "conflict in shared"
    assert ends[3]["next"] == "needs you: ralphctl start other (it has the task)"
    assert ends[1]["why"].startswith("on ralph/landed: ")
    assert (yard.git("rev-parse", "main"), (yard.main / "shared").read_text()) == (mine, "not committed\n")
    assert tree_of(yard.main / "shared") == before

    for name, what in (("red", "the tests fail on top of"), ("other", "conflict in shared")):
        sent = json.loads((daemon.files(name) / "inbox.json").read_text())
        assert len(sent["tasks"]) == 1
        assert f"ralph/{name} does not land on main: {what}" in sent["tasks"][0]["text"]

    shown = {view["name"]: view["landing"] for view in daemon.status()["ralphs"]}
    assert {name: each["state"] for name, each in shown.items()} == {
        "good": "landed", "red": "refused", "other": "refused",
    }  # fmt: skip
    assert shown["other"]["why"] == "conflict in shared"

    yard.git("restore", "shared")
    last = "Merge branch 'ralph/good'"
    wait_for(
        lambda: yard.git("log", "-1", "--format=%s", "main") == last, timeout_s=LAND_S, what="main to follow"
    )
    wait_for(lambda: yard.ended(1)[1]["why"] == "", timeout_s=LAND_S, what="the note to go")
    assert (yard.main / "good").exists()
    assert yard.git("status", "--porcelain") == ""
    assert not (yard.main / "broken").exists()


def test_several_green_branches_cost_one_test_run(daemon: Daemon) -> None:
    yard = Yard.of(daemon)
    daemon.start(failpoints=["landing.merging.ordered"])
    names = [f"r{number}" for number in range(1, 6)]
    for name in names:
        yard.ralph(name, **{name: "1\n"})
    daemon.ask_the_dying("POST", "/v1/landing", {"ralph": names[0]})
    daemon.start(failpoints=[])
    yard.ended(1)
    assert yard.tests() == 1
    daemon.kill()
    daemon.start()
    for name in names[1:]:
        yard.land(name)
    ends = yard.ended(*range(2, 6))
    assert {each["state"] for each in ends.values()} == {"landed"}
    assert yard.tests() <= 4
    assert yard.git("status", "--porcelain") == ""
    assert all((yard.main / name).exists() for name in names)


def test_a_landing_is_undone_by_a_commit(daemon: Daemon) -> None:
    yard, person = Yard.of(daemon), Person(daemon)
    daemon.start()
    place = yard.ralph("good", good="1\n")
    said = person("land", cwd=place)
    assert said.returncode == 0, said
    assert said.stdout.splitlines()[0] == "ralph/good is queued for main as landing 1"
    yard.ended(1)
    assert (yard.main / "good").exists()
    yard.ralph("other", other="1\n")
    said = person("land", "other", "--undo")
    assert "nothing of other landed that could be undone" in said.stderr
    said = person("land", "good", "--undo")
    assert said.returncode == 0, said
    yard.ended(2)
    assert yard.git("log", "-1", "--format=%s", "main") == "Revert \"Merge branch 'ralph/good'\""
    assert not (yard.main / "good").exists()
    lines = person("queue").stdout.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        ["2", "undone", "ralph/good"], ["1", "landed", "ralph/good"],
    ]  # fmt: skip


def test_a_rebased_landing_is_undone_commit_by_commit(daemon: Daemon) -> None:
    yard, person = Yard.of(daemon, toml=TOML + '[landing]\nmethod = "rebase"\n'), Person(daemon)
    daemon.start()
    place = yard.ralph("good", good="1\n", better="1\n")
    yard.commit(yard.main, "mine", "1\n")
    yard.land("good")
    landed = yard.ended(1)[1]
    assert yard.git("log", "--format=%s").splitlines()[:3] == ["good: better", "good: good", "project: mine"]
    olds = yard.git("rev-list", "--reverse", "--max-count=2", "HEAD", at=place).splitlines()
    news = yard.git("rev-list", "--reverse", "--max-count=2", "main").splitlines()
    assert landed["copies"] == [list(each) for each in zip(olds, news, strict=True)]
    assert olds[-1] == yard.git("rev-parse", f"refs/ralph/rebased/{olds[-1]}")

    assert person("land", "good", "--undo").returncode == 0
    yard.ended(2)
    reverts = ['Revert "good: good"', 'Revert "good: better"']
    assert yard.git("log", "--format=%s").splitlines()[:2] == reverts
    assert not (yard.main / "good").exists() and (yard.main / "mine").exists()


def test_without_tests_nothing_lands(daemon: Daemon) -> None:
    yard, person = Yard.of(daemon), Person(daemon)
    (yard.main / "ralph.toml").write_text("[regent]\n")
    yard.git("commit", "-q", "-a", "-m", "no tests")
    daemon.start()
    place = yard.ralph("good", good="1\n")
    yard.commit(place, "ralph.toml", TOML)  # the candidate's own configuration does not count
    said = person("land", "good")
    assert said.returncode == 78, said
    assert "nothing lands untested" in said.stderr
    assert yard.git("log", "--format=%s", "main").splitlines()[0] == "no tests"


def test_a_ralph_that_is_done_lands_by_itself_once_it_is_green(daemon: Daemon) -> None:
    yard = Yard.of(daemon)
    (yard.main / "ralph.toml").write_text(TOML + '[landing]\nmode = "auto"\n')
    (yard.main / "fix_plan.md").write_text("- [ ] one\n")
    (yard.main / "PROMPT.md").write_text("Do the next task.\n")
    (yard.main / ".gitignore").write_text(".ralph/\n")
    yard.git("add", "-A")
    yard.git("commit", "-q", "-m", "plan")
    place, script = daemon.home / "auto", daemon.root / "script.json"
    yard.git("worktree", "add", "-q", "-b", "ralph/auto", str(place), "main")
    steps: list[View] = [
        {"do": "task", "files": {"broken": "yes\n"}},
        {"do": "claim", "runs": "git rm -q broken && git commit -qm fixed", "says": "fixed"},
    ]
    steps = [{**step, "cost_usd": 0.25} for step in steps]
    programs = agents.install(daemon.root / "bin", ["claude"])
    agents.write_script(script, steps)
    environment = {"HOME": str(daemon.home), **agents.environment(programs, script)}
    daemon.start()
    daemon.ask("POST", "/v1/ralphs", {"directory": str(place), "name": "auto", "environment": environment})
    ends = yard.ended(1, 2)
    assert (ends[1]["state"], ends[1]["next"]) == ("refused", "see 2"), ends
    assert ends[2]["state"] == "landed", ends
    assert len(agents.calls(script)) == 2
    assert "Landing 1: ralph/auto does not land on main" in agents.calls(script)[1].prompt
    known = dict(daemon.ask("GET", "/v1/ralphs/auto"))
    assert (known["iteration"], known["total_cost_usd"]) == (2, 0.5)  # one budget for both starts
    assert (yard.main / "fix_plan.md").read_text() == "- [x] one\n"
    assert not (yard.main / "broken").exists()


def test_a_refused_branch_that_no_loop_can_fix_calls_a_person(daemon: Daemon) -> None:
    yard = Yard.of(daemon)
    daemon.start()
    place = daemon.home / "own"
    yard.git("worktree", "add", "-q", "-b", "ralph/own", str(place), "main")
    yard.commit(place, "broken", "1\n")
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(daemon.home)}
    body = {"directory": str(place), "name": "own", "command": ["true"], "environment": environment}
    daemon.ask("POST", "/v1/ralphs", body | {"start": False})
    before = yard.git("rev-parse", "main")
    yard.land("own")
    assert yard.ended(1)[1]["state"] == "refused"
    assert yard.ended(1)[1]["next"] == "needs you: fix ralph/own, then ralphctl land own"
    (alert,) = daemon.events("ralph.escalated")
    assert "ralph/own does not land on main: the tests fail on top of" in alert["data"]["message"]
    assert yard.git("rev-parse", "main") == before


def test_what_changes_the_rules_waits_for_a_person(daemon: Daemon) -> None:
    yard, person = Yard.of(daemon), Person(daemon)
    (yard.main / "ralph.toml").write_text(TOML + '[landing]\nmode = "auto"\n')
    yard.git("commit", "-q", "-a", "-m", "auto")
    daemon.start()
    place = daemon.home / "sly"
    yard.git("worktree", "add", "-q", "-b", "ralph/sly", str(place), "main")
    yard.commit(place, "ralph.toml", '[regent]\ntest_command = "true"\n')
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(daemon.home)}
    body = {"directory": str(place), "name": "sly", "command": ["true"], "environment": environment}
    daemon.ask("POST", "/v1/ralphs", body | {"flags": {"landing.mode": "auto"}})
    wait_for(lambda: yard.queue()["candidates"], timeout_s=LAND_S, what="a candidate")
    waiting = yard.queue()["candidates"][0]
    assert (waiting["state"], waiting["next"]) == ("waiting", "ralphctl land sly")
    assert waiting["why"] == "it changes ralph.toml: land it yourself"
    assert "it changes ralph.toml" in person("queue").stdout
    assert person("land", "sly").returncode == 0
    assert yard.ended(2)[2]["state"] == "landed"


@pytest.mark.parametrize(("remote", "method"), [(False, "merge"), (True, "merge"), (True, "rebase")])
def test_it_lands_once_wherever_the_daemon_dies(daemon: Daemon, remote: bool, method: str) -> None:
    yard = Yard.of(daemon, remote=remote, toml=f'{TOML}[landing]\nmethod = "{method}"\n')
    daemon.start(failpoints=PLACES[:1], unarmed=True)
    (yard.main / "mine").write_text("untracked\n")
    before = (yard.main / "mine").stat().st_mtime_ns
    for number, place in enumerate(PLACES, start=1):
        name = f"r{number}"
        yard.ralph(name, **{name: "1\n"})
        daemon.arm()
        daemon.ask_the_dying("POST", "/v1/landing", {"ralph": name})
        daemon.start(failpoints=PLACES[number : number + 1], unarmed=True)
        ends = yard.ended(number)
        assert ends[number]["state"] == "landed", place
        tip = "origin/main" if remote else "main"
        subjects = yard.git("log", "--first-parent", "--format=%s", tip).splitlines()[:-1]
        each_is = "Merge branch 'ralph/{0}'" if method == "merge" else "{0}: {0}"
        assert subjects == [each_is.format(f"r{each}") for each in range(number, 0, -1)], place
        assert yard.git("rev-parse", "main") == yard.git("rev-parse", tip)
        assert yard.git("status", "--porcelain") == "?? mine"
    assert (yard.main / "mine").stat().st_mtime_ns == before
    landed = [event["data"]["number"] for event in daemon.events("landing.landed")]
    assert landed == list(range(1, len(PLACES) + 1))
    assert daemon.events("ralph.escalated") == []


def test_a_follow_that_was_cut_off_needs_no_remote(daemon: Daemon) -> None:
    yard = Yard.of(daemon, remote=True)
    daemon.start(failpoints=["guard.move.tree"])
    yard.ralph("good", good="1\n")
    daemon.ask_the_dying("POST", "/v1/landing", {"ralph": "good"})
    assert yard.git("status", "--porcelain") == "A  good"
    (daemon.home / "origin").rename(daemon.home / "away")
    daemon.start()
    wait_for(lambda: yard.git("status", "--porcelain") == "", timeout_s=LAND_S, what="a clean checkout")
    (daemon.home / "away").rename(daemon.home / "origin")
    yard.ralph("next", next="1\n")
    yard.land("next")
    assert {each["state"] for each in yard.ended(1, 2).values()} == {"landed"}
    assert yard.git("rev-parse", "main") == yard.git("rev-parse", "origin/main")
