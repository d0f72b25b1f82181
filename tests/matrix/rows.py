"""What each failpoint is checked with: a scene of the matrix, or tests that have a stage of their own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tests.matrix import scenes
from tests.whole.harness import Daemon

NO_DOUBLE = "each run alone, each end entered and told once, no byte of output lost"
ONCE = "one revert, pushed once, told once; a person's uncommitted change stays"


@dataclass(frozen=True, slots=True)
class Row:
    """Failpoints that are killed at in turn; ``scene`` is None where ``tests`` of their own do it.

    ``names`` are failpoints or, with ``*``, families of them.
    """

    names: Sequence[str]
    checks: str
    scene: Callable[[Daemon, str], int] | None = None
    tests: Sequence[str] = ()

    def covers(self, failpoint: str) -> bool:
        """Whether the row is about this failpoint, as ``names.failpoints`` gives it."""
        return any(fnmatchcase(name, failpoint) or fnmatchcase(failpoint, name) for name in self.names)


FILES = ("ralph.json", "regent-state.json", "env", "explanation.json")
ORDERS = ("run_tests", "set_aside", "put_back", "revert", "push")
WHEN = ("ordered", "done")
VERBS = (
    *("rev-parse", "update-ref", "read-tree", "write-tree", "commit-tree", "status", "fetch", "cat-file"),
    *("rev-list", "for-each-ref", "ls-files", "diff-tree", "log", "config"),
)

ROWS: tuple[Row, ...] = (
    Row(
        (
            *("spawn.after_intent", "spawn.after_popen", "regent.end_seen", "account.end_entered"),
            *("account.before_state", "account.state_saved", "events.before_commit", "events.committed"),
            *("history.appended", "signal.SIGQUIT"),
            *(f"write.{name}.{when}_rename" for name in FILES for when in ("before", "after")),
        ),
        NO_DOUBLE,
        scenes.a_day,
        ("tests/whole/test_adoption_failpoints.py",),
    ),
    Row(
        (
            *(f"gate.{order}.{when}" for order in ORDERS for when in WHEN),
            *("gate.tests_run", "gate.baseline.done", "gate.say.done"),
            *("guard.move.begun", "guard.move.tree", "guard.move.branch", "guard.reverts_kept"),
            *("guard.aside.kept", "guard.aside.moved", "guard.aside.files", "guard.aside.index"),
            *("vault.take.begin", "vault.take.fetched", "vault.take.staged", "vault.take.swapping"),
            *("regent.before_answer", "account.report_entered"),
            *(f"git.{verb}.{when}" for verb in VERBS for when in ("begun", "done")),
        ),
        ONCE,
        scenes.a_bad_commit,
        ("tests/whole/test_gate_failpoints.py",),
    ),
    Row(
        ("gate.show_old.*", "guard.old_tests.*"),
        "weakened tests are put back once; the commits stay",
        tests=("tests/whole/test_weakened_tests.py",),
    ),
    Row(
        ("rewritten.*", "guard.move.submodules", "repair.undo.kept"),
        "each commit that an iteration lost is kept, re-applied once and told once",
        tests=("tests/whole/test_rewritten.py", "tests/git/rewrite/test_cut_off.py"),
    ),
    Row(
        ("vault.rebuild.*",),
        "the repository is whole again; nothing in it is lost",
        tests=("tests/whole/test_custody.py",),
    ),
    Row(
        ("undo.*",),
        "an undo is done once, and entered once",
        tests=("tests/whole/test_undo.py", "tests/whole/test_rewritten.py"),
    ),
    Row(
        ("guard.aside.lock",),
        "what was set aside is put back, and nothing is overwritten",
        tests=("tests/git/rewrite/test_cut_off.py",),
    ),
    Row(
        ("follow.*", "gate.restore.*", "guard.left_kept"),
        "what landed is merged once; what an iteration lost of it is back",
        tests=("tests/whole/test_follow.py",),
    ),
    Row(
        ("landing.*",),
        "what lands is tested, lands once, is announced once; no commit is lost",
        tests=(
            *("tests/whole/test_landing.py", "tests/whole/test_landing_tests.py"),
            *("tests/whole/test_landing_publish.py", "tests/whole/landing_stage.py"),
        ),
    ),
    Row(
        ("worktree.*",),
        "one worktree with its branch, or none; nothing in it is lost",
        tests=("tests/whole/test_trees.py",),
    ),
    Row(("webhook.arrived",), "a delivery has one id; none is lost", tests=("tests/whole/test_webhooks.py",)),
    Row(
        ("loop.*",),
        "the loop continues; each task is done once",
        tests=("tests/loop/test_runner.py", "tests/loop/test_phases.py"),
    ),
    Row(
        ("fleet.*",),
        "no acknowledged push is lost, no machine pushes after a takeover; hub and machines are killed",
        tests=("tests/whole/test_fleet_torture.py",),
    ),
)


def rows_of(failpoint: str) -> list[Row]:
    """The rows that are about a failpoint."""
    return [row for row in ROWS if row.covers(failpoint)]


def cases() -> Mapping[str, Callable[[Daemon, str], int]]:
    """Each failpoint that a scene of the matrix dies at."""
    return {name: row.scene for row in ROWS if row.scene is not None for name in row.names}
