"""The situations of ``situations.md``: what an iteration did, and what was so besides."""

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ralphd.core.gate.verdict import Baseline, GatePolicy
from tests.git.guard_world import committed, head, others_push, write
from tests.git.work_tree import WorkTree

TESTS: Final = "! test -e broken && ! grep -qs red notes && grep -qs fine code"
"""Red with a file ``broken``, with ``red`` in ``notes``, without ``fine`` in ``code``."""


@dataclass(frozen=True, slots=True)
class World:
    """A repository of two commits with an upstream, dependencies that are ignored, and green tests."""

    root: Path

    @property
    def tree(self) -> WorkTree:
        """The work tree."""
        return WorkTree(self.root / "tree")

    @property
    def origin(self) -> WorkTree:
        """The bare repository that is its upstream."""
        return WorkTree(self.root / "origin.git")

    @classmethod
    def new(cls, root: Path) -> "World":
        """Paths in it are relative: a copy of it is one too."""
        world = cls(root)
        root.mkdir()
        subprocess.run(
            ["git", "init", "-q", "--bare", "-b", "main", "--template=", world.origin.path], check=True
        )
        tree = WorkTree.new(world.tree.path)
        tree.git("config", "user.name", "Someone")
        tree.git("config", "user.email", "someone@example.invalid")
        tree.git("remote", "add", "origin", "../origin.git")
        committed(
            tree, "first", **{".gitignore": "node_modules/\n.venv/\n", "code": "fine\n", "notes": "-\n"}
        )
        committed(tree, "second", kept="kept\n")
        tree.git("push", "--quiet", "-u", "origin", "main")
        write(tree, "node_modules/dep/index.js", "a dependency")
        write(tree, ".venv/bin/python", "an interpreter")
        return world


def _nothing(_: World) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Situation:
    """``deed`` is what happens between the begin of the iteration and its boundary.

    ``tests`` get ``limit_s`` seconds. ``most_bytes`` is how large a file the disk takes.
    """

    deed: Callable[[World], None]
    tests: str = TESTS
    limit_s: float = 30.0
    baseline: Baseline = Baseline.GREEN
    policy: GatePolicy = field(default_factory=GatePolicy)
    most_bytes: int | None = None


def good(world: World) -> None:
    committed(world.tree, "good", good="x")


def bad(world: World) -> None:
    committed(world.tree, "bad", broken="x")


def first_of_three(world: World) -> None:
    bad(world)
    committed(world.tree, "two", two="x")
    committed(world.tree, "three", three="x")


def last_of_three(world: World) -> None:
    committed(world.tree, "one", one="x")
    committed(world.tree, "two", two="x")
    bad(world)


def bad_merge(world: World) -> None:
    world.tree.git("checkout", "--quiet", "-b", "side")
    committed(world.tree, "on the side", side="x")
    bad(world)
    world.tree.git("checkout", "--quiet", "main")
    committed(world.tree, "on main", ahead="x")
    world.tree.git("merge", "--quiet", "--no-edit", "side")


def theirs_below(world: World) -> None:
    _by_a_person(world)
    bad(world)


def theirs_on_top(world: World) -> None:
    bad(world)
    _by_a_person(world)


def _by_a_person(world: World) -> None:
    write(world.tree, "theirs", "x")
    world.tree.git("add", "theirs")
    world.tree.git("commit", "--quiet", "--author=A Person <person@example.invalid>", "-m", "theirs")


def red_untracked(world: World) -> None:
    good(world)
    write(world.tree, "broken", "mine")


def work_left(world: World) -> None:
    good(world)
    write(world.tree, "notes", "mine")
    write(world.tree, "untracked", "mine")


def red_work_left(world: World) -> None:
    good(world)
    write(world.tree, "notes", "red")
    write(world.tree, "code", "fine, and staged")
    world.tree.git("add", "code")


def bad_and_work_left(world: World) -> None:
    bad(world)
    write(world.tree, "notes", "mine")
    world.tree.git("add", "notes")
    write(world.tree, "notes", "mine, and more")


def overlap(world: World) -> None:
    committed(world.tree, "bad", code="bad\n")
    write(world.tree, "code", "bad, and mine")


def overlap_untracked(world: World) -> None:
    committed(world.tree, "bad", broken="x", kept=None)
    write(world.tree, "kept", "mine")


def needs_what_is_down(world: World) -> None:
    good(world)
    committed(world.tree, "good too", two="x")
    (world.root / "down").touch()


def pushed(world: World) -> None:
    bad(world)
    world.tree.git("push", "--quiet")


def pushed_in_part(world: World) -> None:
    pushed(world)
    committed(world.tree, "two", two="x")


def pushed_and_fetched(world: World) -> None:
    pushed(world)
    world.tree.git("pull", "--quiet", "--rebase")


def pushed_and_moved_on(world: World) -> None:
    pushed(world)
    others_push(world.root, world.origin, "theirs")


def upstream_away(world: World) -> None:
    pushed(world)
    world.origin.path.rename(world.root / "away")


def hook_fails(world: World) -> None:
    pushed(world)
    _hook(world, "pre-push", "echo >&2 'error: not today'; exit 1")


def hook_asks(world: World) -> None:
    pushed(world)
    _hook(world, "pre-push", "read answer </dev/tty || { echo >&2 'error: nobody answers'; exit 1; }")


def other_hooks(world: World) -> None:
    bad(world)
    for name in ("pre-commit", "prepare-commit-msg", "commit-msg", "post-checkout", "reference-transaction"):
        _hook(world, name, "touch ../a-hook-was-run; exit 1")


def _hook(world: World, name: str, script: str) -> None:
    path = world.tree.path / ".git" / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def nobody(world: World) -> None:
    bad(world)
    world.tree.git("config", "--unset", "user.name")
    world.tree.git("config", "--unset", "user.email")


def large(world: World) -> None:
    bad(world)
    (world.tree.path / "data").unlink()
    world.tree.git("commit", "--quiet", "-a", "-m", "without data")


def amend(world: World) -> None:
    write(world.tree, "broken", "x")
    world.tree.git("add", "-A")
    world.tree.git("commit", "--quiet", "--amend", "-m", "second, amended")


def good_amend(world: World) -> None:
    world.tree.git("commit", "--quiet", "--amend", "-m", "second, amended")


def rebase(world: World) -> None:
    bad(world)
    # Under another name: within the same second the rebased commits would be the same ones.
    world.tree.git("-c", "user.name=agent", "rebase", "--quiet", "--force-rebase", "--root")


def earlier(world: World) -> None:
    world.tree.git("reset", "--quiet", "--hard", "HEAD~1")


def there_again(world: World) -> None:
    before = head(world.tree)
    bad(world)
    world.tree.git("reset", "--quiet", "--hard", before)


def switched(world: World) -> None:
    world.tree.git("checkout", "--quiet", "-b", "other")
    bad(world)


def pulled(world: World) -> None:
    good(world)
    others_push(world.root, world.origin, "broken")
    world.tree.git("pull", "--quiet", "--rebase")


def lock(world: World) -> None:
    bad(world)
    (world.tree.path / ".git" / "index.lock").touch()


def _diverged(world: World) -> None:
    world.tree.git("checkout", "--quiet", "-b", "side")
    committed(world.tree, "theirs", code="fine, theirs")
    world.tree.git("checkout", "--quiet", "main")
    committed(world.tree, "ours", code="fine, ours")


def _stops(world: World, *words: str) -> None:
    try:
        world.tree.git(*words)
    except subprocess.CalledProcessError:
        return
    raise AssertionError(f"git {words} goes through")


def rebase_left(world: World) -> None:
    _diverged(world)
    _stops(world, "rebase", "side")


def merge_left(world: World) -> None:
    _diverged(world)
    _stops(world, "merge", "side")


def detached(world: World) -> None:
    world.tree.git("checkout", "--quiet", "--detach")
    bad(world)


def submodule(world: World) -> None:
    sub = WorkTree(world.tree.path / "sub")
    committed(sub, "library 2", lib="2")
    bad(world)


PERSON: Final = (
    "git -c user.name=P -c user.email=p@example.invalid commit --quiet --allow-empty -m theirs; false"
)
NEEDS_DEPENDENCIES: Final = f"test -e node_modules/dep/index.js && test -e .venv/bin/python && {TESTS}"
ONCE: Final = "test -e ../seen || { touch ../seen; false; }"

ROWS: Final = {
    "good": Situation(good),
    "bad": Situation(bad),
    "three, the first is bad": Situation(first_of_three),
    "three, the last is bad": Situation(last_of_three),
    "three, all at once": Situation(first_of_three, policy=GatePolicy(minimal=False)),
    "bad merge": Situation(bad_merge),
    "no commit": Situation(_nothing),
    "dependencies": Situation(bad, NEEDS_DEPENDENCIES),
    "submodule": Situation(submodule),
    "red before": Situation(bad, baseline=Baseline.RED),
    "not known before": Situation(bad, baseline=Baseline.UNKNOWN),
    "flaky tests": Situation(good, ONCE),
    "tests that hang": Situation(good, "sleep 60", 0.2),
    "tests not found": Situation(good, "no-such-program --all"),
    "tests ended from outside": Situation(good, "kill -9 $$"),
    "used up and still red": Situation(needs_what_is_down, "! test -e ../down"),
    "work left, green": Situation(work_left),
    "work left, red by the work": Situation(red_work_left),
    "work left, red by the commit": Situation(bad_and_work_left),
    "red by an untracked file": Situation(red_untracked),
    "overlap with work left": Situation(overlap),
    "overlap with an untracked file": Situation(overlap_untracked),
    "already pushed": Situation(pushed),
    "pushed in part": Situation(pushed_in_part),
    "pushed, and fetched again": Situation(pushed_and_fetched),
    "origin has moved on": Situation(pushed_and_moved_on),
    "upstream away": Situation(upstream_away),
    "pulled by the agent": Situation(pulled),
    "your commit below a bad one": Situation(theirs_below),
    "your commit on top of a bad one": Situation(theirs_on_top),
    "a commit during the tests": Situation(bad, PERSON),
    "amend": Situation(amend),
    "amend, green": Situation(good_amend),
    "rebase by the agent": Situation(rebase),
    "reset to before the iteration": Situation(earlier, "test -e kept"),
    "reset to where it began": Situation(there_again),
    "another branch": Situation(switched),
    "index lock": Situation(lock),
    "rebase left, with conflicts": Situation(rebase_left),
    "merge left, with conflicts": Situation(merge_left),
    "detached HEAD": Situation(detached),
    "a push hook fails": Situation(hook_fails),
    "a push hook asks": Situation(hook_asks),
    "other hooks fail": Situation(other_hooks),
    "no user.name": Situation(nobody),
    "disk full": Situation(large, most_bytes=100_000),
}


def prepare(world: World, name: str) -> None:
    """What is so before the iteration begins, where it is not the same for all."""
    if name == "disk full":
        (world.tree.path / "data").write_bytes(os.urandom(200_000))
        world.tree.git("add", "data")
        world.tree.git("commit", "--quiet", "-m", "data")
    if name == "submodule":
        library = WorkTree.new(world.root / "library")
        committed(library, "library 1", lib="1")
        world.tree.git(
            "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library.path), "sub"
        )
        world.tree.git("commit", "--quiet", "-m", "a submodule")
