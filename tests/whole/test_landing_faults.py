"""What gets in the way of a landing loses nothing and leaves a reason (M1 to M4)."""

from pathlib import Path

import pytest

from tests.helpers import wait_for
from tests.whole.harness import Daemon
from tests.whole.person import Person
from tests.whole.test_landing import LAND_S, Yard

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
