"""trees and the options of start for worktrees: what is sent, and what is refused before that."""

from pathlib import Path

import pytest

from ralphd.core.time import rfc3339
from tests.ctl.conftest import SEVEN, Ctl
from tests.ctl.fake import Answer, FakeDaemon, problem, view

START = "POST /v1/trees"


def removed(name: str) -> Answer:
    return Answer({"name": name, "path": f"/trees/{name}", "branch": f"ralph/{name}", "kept_as": None})


def test_one_that_is_refused_keeps_no_other_from_removal(daemon: FakeDaemon, ctl: Ctl) -> None:
    refusal = problem("wrong-state", 409, "the worktree a holds what is nowhere else", "not committed: x")
    daemon.on("DELETE /v1/trees/a", lambda _: refusal)
    daemon.on("DELETE /v1/trees/b", lambda _: removed("b"))
    daemon.on("DELETE /v1/trees/c", lambda _: refusal)

    several, one = ctl("trees", "rm", "a", "b", "c", "b"), ctl("trees", "rm", "a")

    assert daemon.lines() == [f"DELETE /v1/trees/{name}" for name in "abca"]
    assert several.stdout == "b: removed /trees/b\n"
    assert several.stderr.count("not committed: x") == 2
    assert (several.returncode, one.returncode) == (1, 1)


def test_a_name_that_cannot_be_is_refused_before_any_is_removed(daemon: FakeDaemon, ctl: Ctl) -> None:
    reply = ctl("trees", "rm", "b", "UPPER")
    assert reply.returncode == 2 and "allowed: a-z 0-9" in reply.stderr
    assert daemon.lines() == []


def test_what_is_not_known_of_a_worktree_is_not_shown_as_none(daemon: FakeDaemon, ctl: Ctl) -> None:
    facts = dict.fromkeys(("size_bytes", "ahead", "behind", "unlanded", "dirty"), 0)
    tree = {
        **facts, "name": "a", "path": "/trees/a", "branch": "ralph/a", "word": "stopped",
        "stage": "preparing", "keeps": ["not known: git is slow"], "used_at": rfc3339(SEVEN),
    }  # fmt: skip
    daemon.on("GET /v1/trees", lambda _: Answer({"trees": [tree]}))
    shown = ctl("trees").stdout
    assert "stopped (setup" in shown and "not known: git" in shown and "+0 -0" not in shown, shown


@pytest.mark.parametrize(
    ("words", "what", "allowed"),
    [
        (("--worktree", "UPPER"), "'UPPER' is not a name for a worktree", "allowed: a-z 0-9 . _ -"),
        (("--worktree", ""), "'' is not a name for a worktree", "allowed: a-z 0-9 . _ -"),
        (("--worktree", "fix", "--from", "-x"), "--from '-x' names nothing", "a commit, a branch or a tag"),
        (("--worktree", "fix", "--from", ""), "--from '' names nothing", "a commit, a branch or a tag"),
        (("--worktree", "fix", "--from", "x" * 201), "names nothing", "at most 200 characters"),
        (("--from", ""), "--from is for a worktree", ""),
        (("--worktree", "fix", "--branch", ""), "--branch '' names nothing", "allowed: a branch"),
        (("--branch", ""), "--branch '' names nothing", "allowed: a branch"),
        (("--branch", "-x"), "--branch '-x' names nothing", "the first one not -"),
        (("--branch", "ralph/landed"), "ralph/landed is the landing queue's branch", ""),
    ],
)
def test_what_cannot_be_is_refused_with_what_is_allowed(
    daemon: FakeDaemon, ctl: Ctl, words: tuple[str, ...], what: str, allowed: str
) -> None:
    reply = ctl("start", *words)
    assert reply.returncode == 2
    assert what in reply.stderr and allowed in reply.stderr, reply.stderr
    assert daemon.lines() == []


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("--worktree",), None),
        (("--worktree", "--name", "fix"), "fix"),
        (("--worktree", "fix", "--from", "main"), "fix"),
    ],
)
def test_a_worktree_needs_no_name(
    daemon: FakeDaemon, ctl: Ctl, tmp_path: Path, words: tuple[str, ...], name: str | None
) -> None:
    daemon.on(START, lambda _: Answer({"ralphs": [view()]}, 201))
    reply = ctl("start", *words)
    assert reply.returncode == 0, reply.stderr
    assert daemon.body_of(START).get("name") == name
