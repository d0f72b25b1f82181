"""What gets in the way of a landing loses nothing and leaves a reason (M1 to M4)."""

import os
from pathlib import Path

import pytest

from tests.helpers import wait_for
from tests.whole.harness import Daemon
from tests.whole.person import Person
from tests.whole.test_landing import LAND_S, TOML, Yard

HOOKS = (
    *("pre-commit", "commit-msg", "pre-merge-commit", "post-commit", "post-merge", "post-checkout"),
    *("pre-push", "reference-transaction", "post-index-change"),
)


class Held:
    """A repository whose tests wait until they are let go."""

    def __init__(self, daemon: Daemon, *, remote: bool) -> None:
        self.began, self.go = daemon.root / "began", daemon.root / "go"
        held = f"echo x >> {self.began}; until test -e {self.go}; do sleep 0.05; done; ! test -e broken"
        self.yard = Yard.of(
            daemon, remote=remote, toml=f'[regent]\ntest_command = "{held}"\ntest_retries = 0\n'
        )
        daemon.start()

    def until_tested(self) -> None:
        wait_for(self.began.exists, timeout_s=LAND_S, what="the tests to begin")

    @property
    def runs(self) -> int:
        return len(self.began.read_text().splitlines())


def blocked(yard: Yard) -> str:
    return str(wait_for(lambda: yard.queue().get("blocked"), timeout_s=LAND_S, what="the reason"))


def origin_log(yard: Yard) -> list[str]:
    return yard.git("log", "--first-parent", "--format=%s", "main", at=yard.main.parent / "origin").split(
        "\n"
    )


def refuse_pushes(yard: Yard, words: str) -> Path:
    hook = yard.main.parent / "origin/hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\necho {words} >&2\nexit 1\n")
    hook.chmod(0o755)
    return hook


@pytest.mark.parametrize("remote", [False, True])
def test_a_target_that_moves_meanwhile_is_tested_again(daemon: Daemon, remote: bool) -> None:
    held = Held(daemon, remote=remote)
    yard = held.yard
    yard.ralph("api", api="1\n")
    yard.land("api")
    held.until_tested()
    mine = yard.commit(yard.main, "mine", "1\n")
    if remote:
        yard.git("push", "-q")
    held.go.touch()
    assert yard.ended(1)[1]["state"] == "landed"
    assert held.runs == 2
    assert yard.git("rev-parse", "main^1") == mine
    assert yard.git("status", "--porcelain") == ""
    if remote:
        assert origin_log(yard)[:2] == ["Merge branch 'ralph/api'", "project: mine"]


def test_a_remote_that_is_gone_blocks_with_its_reason(daemon: Daemon) -> None:
    held = Held(daemon, remote=True)
    yard, person, origin = held.yard, Person(daemon), held.yard.main.parent / "origin"
    yard.ralph("api", api="1\n")
    yard.land("api")
    held.until_tested()
    before = yard.git("rev-parse", "main")
    origin.rename(origin.with_name("away"))
    held.go.touch()
    assert "git fetch: " in blocked(yard)
    assert "blocked: git fetch: " in person("queue").stdout
    assert yard.git("rev-parse", "main") == before
    yard.land("api")
    assert "git fetch: " in blocked(yard)
    origin.with_name("away").rename(origin)
    assert person("land", "api").returncode == 0
    assert yard.ended(3)[3]["state"] == "landed"
    assert origin_log(yard) == ["Merge branch 'ralph/api'", "project: shared"]


def test_a_push_that_a_hook_refuses_blocks_with_its_words(daemon: Daemon) -> None:
    yard = Yard.of(daemon, remote=True)
    daemon.start()
    hook, before = refuse_pushes(yard, "main is protected"), yard.git("rev-parse", "main")
    yard.ralph("api", api="1\n")
    yard.land("api")
    why = blocked(yard)
    assert "(pre-receive hook declined)" in why
    assert "remote: main is protected" in why
    assert (yard.tests(), yard.git("rev-parse", "main")) == (1, before)
    assert yard.queue()["candidates"][0]["next"] == why
    hook.unlink()
    yard.land("api")
    assert yard.ended(2)[2]["state"] == "landed"
    assert origin_log(yard) == ["Merge branch 'ralph/api'", "project: shared"]


@pytest.mark.parametrize("remote", [False, True])
def test_local_hooks_do_not_run(daemon: Daemon, remote: bool) -> None:
    yard, hooks = Yard.of(daemon, remote=remote), daemon.home / "hooks"
    daemon.start()
    yard.ralph("api", api="1\n")
    hooks.mkdir()
    for name in HOOKS:
        (hooks / name).write_text(f"#!/bin/sh\necho {name} >> {daemon.root}/hooks-ran\nexit 1\n")
        (hooks / name).chmod(0o755)
    yard.git("config", "core.hooksPath", str(hooks))
    yard.land("api")
    assert yard.ended(1)[1]["state"] == "landed"
    assert not (daemon.root / "hooks-ran").exists()
    assert (yard.main / "api").exists()


def test_a_shallow_clone_lands(daemon: Daemon) -> None:
    source = Yard.of(daemon, remote=True)
    source.commit(source.main, "second", "1\n")
    source.git("push", "-q")
    clone = Yard(daemon, daemon.home / "clone")
    source.git("clone", "-q", "-b", "main", "--depth", "1", f"file://{daemon.home}/origin", str(clone.main))
    for words in (("user.name", "A"), ("user.email", "a@b")):
        clone.git("config", *words)
    daemon.start()
    clone.ralph("api", api="1\n")
    clone.land("api")
    assert clone.ended(1)[1]["state"] == "landed"
    assert clone.git("rev-parse", "--is-shallow-repository") == "true"
    assert origin_log(source) == ["Merge branch 'ralph/api'", "project: second", "project: shared"]
    source.git("fsck", "--connectivity-only", at=daemon.home / "origin")


def test_two_repositories_of_one_name_have_two_queues(daemon: Daemon) -> None:
    first, second = (Yard.of(daemon, at=f"{place}/project") for place in ("one", "two"))
    daemon.start()
    first.ralph("a", a="1\n")
    second.ralph("b", b="1\n")
    first.land("a")
    second.land("b")
    wait_for(lambda: len(daemon.events("landing.landed")) == 2, timeout_s=LAND_S, what="both to land")
    queues = {each["repository"]: each["candidates"] for each in daemon.ask("GET", "/v1/landing")["queues"]}
    for yard, name, other in ((first, "a", "b"), (second, "b", "a")):
        (mine,) = queues[str(yard.main / ".git")]
        assert (mine["ralph"], mine["state"]) == (name, "landed")
        assert (yard.main / name).exists()
        assert not (yard.main / other).exists()


def test_a_branch_that_is_deleted_in_the_queue_lands(daemon: Daemon) -> None:
    held = Held(daemon, remote=False)
    yard = held.yard
    yard.ralph("first", first="1\n")
    place = yard.ralph("gone", gone="1\n")
    yard.land("first")
    held.until_tested()
    yard.land("gone")
    yard.git("worktree", "remove", "--force", str(place))
    yard.git("branch", "-q", "-D", "ralph/gone")
    yard.git("reflog", "expire", "--expire=now", "--all")
    yard.git("gc", "-q", "--prune=now")
    held.go.touch()
    assert {each["state"] for each in yard.ended(1, 2).values()} == {"landed"}
    assert (yard.main / "gone").exists()


def test_a_queue_outlives_the_work_tree_that_it_began_in(daemon: Daemon) -> None:
    """In a bare repository that is the work tree of a ralph."""
    held = Held(daemon, remote=False)
    yard = Yard(daemon, daemon.home / "bare.git")
    held.yard.git("clone", "-q", "--bare", ".", str(yard.main))
    for key in ("user.name", "user.email"):
        yard.git("config", key, "a@b")
    places = [yard.ralph(name, **{name: "1\n"}) for name in ("one", "two")]
    yard.land("one")
    held.until_tested()
    yard.land("two")
    yard.git("worktree", "remove", "--force", str(places[0]))
    held.go.touch()
    ends = yard.ended(1, 2)
    assert [ends[number]["state"] for number in (1, 2)] == ["landed", "landed"]


def test_a_file_name_that_is_not_unicode_can_be_shown(daemon: Daemon) -> None:
    person, toml = Person(daemon), f'{TOML}protect = ["*.x"]\n[landing]\nmode = "auto"\n'
    yard = Yard.of(daemon, toml=toml)
    daemon.start()
    place = daemon.home / "odd"
    yard.git("worktree", "add", "-q", "-b", "ralph/odd", str(place), "main")
    yard.commit(place, os.fsdecode(b"\xff.x"), "1\n")
    daemon.ask("POST", "/v1/ralphs", {"directory": str(place), "name": "odd", "command": ["true"]})
    wait_for(lambda: yard.queue()["candidates"], timeout_s=LAND_S, what="a candidate")
    assert yard.queue()["candidates"][0]["why"] == "it changes \ufffd.x: land it yourself"
    for words in (("status",), ("queue",), ("--json", "status", "odd")):
        assert "it changes" in person(*words).stdout


def test_a_repaired_test_command_is_used(daemon: Daemon) -> None:
    yard = Yard.of(daemon, toml=TOML.replace("! test -e broken", "no-such-command"))
    daemon.start()
    yard.ralph("api", api="1\n")
    yard.land("api")
    wait_for(lambda: yard.queue().get("blocked"), timeout_s=LAND_S, what="the queue to be blocked")
    yard.commit(yard.main, "ralph.toml", TOML)
    assert yard.ended(1)[1]["state"] == "landed"


def test_each_place_is_tested_by_its_own_configuration(daemon: Daemon) -> None:
    yard = Yard.of(daemon)
    for name in ("a", "b"):
        (yard.main / name).mkdir()
        (yard.main / name / "ralph.toml").write_text(f'[regent]\ntest_command = "! test -e {name}/broken"\n')
    yard.git("add", "-A")
    yard.git("commit", "-q", "-m", "two services")
    daemon.start()
    for name in ("a", "b"):
        place = yard.ralph(name) / name
        (place / "broken").touch()
        yard.git("add", "-A", at=place)
        yard.git("commit", "-q", "-m", "breaks its own service", at=place)
        daemon.ask("DELETE", f"/v1/ralphs/{name}")
        body = {"directory": str(place), "name": name, "command": ["true"], "start": False}
        daemon.ask("POST", "/v1/ralphs", body)
    numbers = [yard.land(name)["number"] for name in ("a", "b")]
    assert {each["state"] for each in yard.ended(*numbers).values()} == {"refused"}


@pytest.mark.parametrize("method", ["merge", "rebase"])
def test_a_push_without_an_answer_has_landed(daemon: Daemon, method: str) -> None:
    yard = Yard.of(daemon, remote=True, toml=f'{TOML}[landing]\nmethod = "{method}"\n')
    origin = yard.main.parent / "origin"
    hook = origin / "hooks" / "post-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nrm {hook}\nmv {origin} {origin}.away\nkill -9 $PPID\n")
    hook.chmod(0o755)
    daemon.start()
    yard.ralph("api", api="1\n")
    yard.land("api")
    wait_for(lambda: yard.queue().get("blocked"), timeout_s=LAND_S, what="the queue to be blocked")
    (yard.main.parent / "origin.away").rename(origin)
    yard.ralph("other", other="1\n")
    yard.land("other")
    landed = yard.ended(1)[1]
    assert (landed["state"], bool(landed["commit"])) == ("landed", True)
    assert len(landed["copies"]) == (method == "rebase")


def test_a_commit_of_the_person_and_what_landed_come_together(daemon: Daemon) -> None:
    yard = Yard.of(daemon)
    daemon.start()
    yard.ralph("api", api="1\n")
    (yard.main / "shared").write_text("mine\n")
    yard.land("api")
    assert yard.ended(1)[1]["why"].startswith("on ralph/landed")
    yard.git("commit", "-q", "-a", "-m", "my work")
    wait_for(lambda: (yard.main / "api").exists(), timeout_s=LAND_S, what="main to have both")
    wait_for(lambda: yard.ended(1)[1]["why"] == "", timeout_s=LAND_S, what="the note to go")
    assert yard.git("show", "main:shared") == "mine" and yard.git("status", "--porcelain") == ""
    assert yard.git("branch", "--list", "ralph/landed") == ""


@pytest.mark.parametrize("target", ["staging", "mian"])
def test_a_target_is_never_replaced_by_main(daemon: Daemon, target: str) -> None:
    yard = Yard.of(daemon, remote=True, toml=f'{TOML}[landing]\ntarget = "{target}"\n')
    if target == "staging":
        yard.git("push", "-q", "origin", "main:staging")
        yard.git("fetch", "-q")
    before = yard.git("rev-parse", "main")
    daemon.start()
    yard.ralph("api", api="1\n")
    if target == "staging":
        yard.land("api")
        assert yard.ended(1)[1]["state"] == "landed"
        assert "api" in yard.git("ls-tree", "--name-only", "origin/staging").split()
    else:
        said = Person(daemon)("land", "api")
        assert said.returncode == 1 and "no branch mian here" in said.stderr, said
    assert yard.git("rev-parse", "main") == yard.git("rev-parse", "origin/main") == before


def test_an_undo_names_the_ralph_of_its_landing(daemon: Daemon) -> None:
    yard, person = Yard.of(daemon), Person(daemon)
    daemon.start()
    for name in ("one", "two"):
        yard.ralph(name, **{name: "1\n"})
        yard.land(name)
    yard.ended(1, 2)
    said = person("land", "one", "--undo", "-n", "2")
    assert said.returncode == 1 and "ralphctl land two --undo -n 2" in said.stderr, said
    assert person("land", "two", "--undo", "-n", "2").returncode == 0
    assert yard.ended(3)[3]["undoes"]
    assert person("land", "two", "--undo", "-n", "3").returncode == 0
    again = yard.ended(4)[4]
    assert (again["state"], again["undoes"]) == ("landed", None) and (yard.main / "two").exists()


def test_what_a_removed_ralph_left_is_withdrawn(daemon: Daemon) -> None:
    yard = Yard.of(daemon)
    daemon.start()
    yard.ralph("api", api="1\n", **{"ralph.toml": TOML + "# changed\n"})
    yard.land("api")
    yard.ended(1)
    tree = next((daemon.home / ".local/share/ralphd/landing").iterdir())
    daemon.ask("DELETE", "/v1/ralphs/api")
    refs = "refs/ralph/landing"
    wait_for(lambda: yard.git("for-each-ref", refs) == "", timeout_s=LAND_S, what="its refs to be removed")
    assert not tree.exists() and str(tree) not in yard.git("worktree", "list")


def test_a_branch_that_adds_a_submodule_blocks_nobody(daemon: Daemon) -> None:
    yard = Yard.of(daemon)
    daemon.start()
    place = yard.ralph("odd")
    yard.git("update-index", "--add", "--cacheinfo", f"160000,{yard.git('rev-parse', 'main')},lib", at=place)
    yard.git("commit", "-q", "-m", "a submodule", at=place)
    yard.ralph("good", good="1\n")
    numbers = [yard.land(name)["number"] for name in ("odd", "good")]
    ends = yard.ended(*numbers)
    assert [ends[number]["state"] for number in numbers] == ["refused", "landed"]
    assert "submodules, which the landing queue does not check out on top of" in ends[numbers[0]]["why"]
