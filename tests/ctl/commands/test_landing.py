"""``ralphctl queue`` on terminals of two widths: what is open first, each with the command to type next."""

import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ralphd.core.time import rfc3339
from tests.ctl.conftest import SEVEN, Ctl
from tests.ctl.fake import Answer, FakeDaemon
from tests.ctl.golden_files import Golden

CONFLICT = "conflict in src/orders/views.py, src/orders/models.py, tests/test_orders.py and 3 more"


def candidate(number: int, ralph: str, state: str, hours: float, **more: Any) -> dict[str, Any]:
    at = rfc3339(SEVEN - hours * 3600)
    ended_at = None if state in ("queued", "waiting") else at
    known = {
        "number": number, "ralph": ralph, "branch": f"ralph/{ralph}", "head": "abc1234", "state": state,
        "why": "", "tries": 0, "commit": None, "undoes": None, "queued_at": at, "ended_at": ended_at,
        "next": "",
    }  # fmt: skip
    return known | more


def queue(*candidates: dict[str, Any], **more: Any) -> dict[str, Any]:
    known = {"repository": "/home/me/shop/.git", "target": "main", "remote": None, "mode": "ask"}
    return known | {"blocked": None, "batch": None, "candidates": candidates} | more


EIGHT = queue(
    candidate(11, "api", "queued", 0.1, next="testing, with 1 more"),
    candidate(12, "billing", "queued", 0.1, branch="fix/rounding", next="testing, with 1 more"),
    candidate(9, "docs", "waiting", 1, why="you decide: ralphctl land docs", next="ralphctl land docs"),
    candidate(10, "ci", "waiting", 1, why="it changes .github/workflows/ci.yml: land it yourself",
              next="ralphctl land ci"),
    candidate(8, "web", "refused", 2, why=CONFLICT, next="fix ralph/web, then ralphctl land web"),
    candidate(7, "search", "landed", 3, undoes="abc", commit="def"),
    candidate(6, "search", "landed", 3.5, commit="abc"),
    candidate(5, "web", "refused", 30, why=CONFLICT),
)  # fmt: skip
RED = "the tests fail on the target itself, at 1234567: nothing lands until they pass"


@pytest.mark.parametrize("columns", ["80", "110"])
def test_a_queue_is_read_at_a_glance(columns: str, daemon: FakeDaemon, ctl: Ctl, golden: Golden) -> None:
    red = queue(candidate(1, "api", "queued", 1, next=RED), blocked=RED, remote="origin")
    daemon.on("GET /v1/landing", lambda _: Answer({"queues": [EIGHT, red]}))
    replies = [ctl("queue", *words, more={"COLUMNS": columns}) for words in ((), ("--all",))]
    golden(*replies)
    assert max(map(len, replies[0].stdout.splitlines())) <= int(columns)


def test_a_pipe_gets_one_line_per_branch(daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.on("GET /v1/landing", lambda _: Answer({"queues": [EIGHT]}))
    lines = ctl("queue", "--all").stdout.splitlines()
    assert len(lines) == 9
    assert lines[4].endswith("it changes .github/workflows/ci.yml: land it yourself; ralphctl land ci")


def test_the_repository_of_the_directory_comes_first(daemon: FakeDaemon, ctl: Ctl, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "mine")], check=True)
    mine = str((tmp_path / "mine" / ".git").resolve())
    paths = ("/home/me/shop/.git", "/home/me/b/app/.git", mine, "/home/me/a/app/.git")
    queues = [queue(candidate(1, "api", "queued", 1), repository=path) for path in paths]
    daemon.on("GET /v1/landing", lambda _: Answer({"queues": queues}))

    def shown(cwd: Path) -> list[str]:
        lines = ctl("queue", cwd=cwd).stdout.splitlines()
        return [line.split()[1] for line in lines if line.startswith("main")]

    by_name = ["/home/me/a/app/.git", "/home/me/b/app/.git", mine, "/home/me/shop/.git"]
    assert shown(tmp_path) == by_name
    assert shown(tmp_path / "mine") == [mine, *(path for path in by_name if path != mine)]


def test_a_landing_that_waits_for_the_checkout_waits(daemon: FakeDaemon, ctl: Ctl) -> None:
    aside = candidate(1, "api", "landed", 50, why="on ralph/landed: f has changes", commit="abc")
    for state, undoes in (("waiting", None), ("undo", "abc")):
        answer = Answer({"queues": [queue({**aside, "undoes": undoes})]})
        daemon.on("GET /v1/landing", partial(lambda answer, _: answer, answer))
        line = ctl("queue").stdout.splitlines()[1]
        assert line.split()[1] == state and line.endswith("f has changes; then there: git merge ralph/landed")


@pytest.mark.parametrize(
    "words",
    [("--branch", ""), ("--branch", "-x"), ("--branch", "a b"), ("--undo", "-n", "x"), ("--undo", "-n", "0")],
)
def test_wrong_words_are_refused_before_the_request(words: tuple[str, ...], ctl: Ctl) -> None:
    said = ctl("land", "api", *words)
    assert (said.returncode, said.stdout) == (2, "")
    first = said.stderr.splitlines()[0]
    assert first.startswith("error: ") and ("name of a branch" in first or "number of a landing" in first)
