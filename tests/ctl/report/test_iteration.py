"""``show`` and ``diff``: one iteration on one page, its commits as git shows them, and whom git may run."""

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ralphctl.report import diff, iteration
from ralphctl.report.model import ReportSource
from ralphd.errors import NotFound, UsageError
from ralphd.process.log.records import stored_time
from tests.ctl.conftest import Ctl
from tests.ctl.fake import FakeDaemon, view
from tests.ctl.golden_files import Golden
from tests.git.work_tree import WorkTree
from tests.written_nights import attempt, entry, write

NOW = 1_795_330_800.0  # 2026-11-22 07:00:00 UTC
RUN, LATER = "r000003-0000beef", "r000012-0000cafe"
TOLD: dict[str, Any] = {"run_id": RUN, "iteration": 2, "task": None}
TASK = {"id": "write-the-parser", "title": "Write the parser"}


def history(place: Path, *entries: dict[str, Any]) -> ReportSource:
    home = place / "ralphs" / "demo"
    home.mkdir(parents=True)
    (home / "history.jsonl").write_text("".join(json.dumps(each) + "\n" for each in entries))
    return ReportSource("demo", str(place), home)


def finished(number: int | None, at: float, *shas: str, run: str = RUN, **more: Any) -> dict[str, Any]:
    key = f"{run}/{at}"
    return entry("iteration", key, at, run_id=run, iteration=number, task=TASK, failed=False,
                 summary="write-the-parser is done", complete=True, commits=list(shas), **more)  # fmt: skip


def judged(number: int | None, at: float, *newest_first: str, run: str = RUN, **more: Any) -> dict[str, Any]:
    said = {"verdict": "kept", "why": "the tests pass", "tests": ["green"], "tests_s": [12.0], "reverted": []}
    return entry("verdict", f"{run}/{at}/verdict", at, run_id=run, iteration=number, task=TASK,
                 commits=list(newest_first), **(said | more))  # fmt: skip


def test_n_is_the_newest_of_that_number_and_run_n_an_earlier_one(tmp_path: Path) -> None:
    source = history(
        tmp_path,
        finished(1, NOW - 90, "aaaaaaa"), judged(1, NOW - 89, "aaaaaaa"), finished(2, NOW - 80, "bbbbbbb"),
        finished(1, NOW - 50, "ccccccc", run=LATER), judged(1, NOW - 49, "ddddddd", "ccccccc", run=LATER),
        finished(2, NOW - 40, run=LATER),
    )  # fmt: skip

    newest, again = iteration.find(source, None), iteration.find(source, "2")
    assert newest == again
    assert (newest.run_id, newest.number, newest.commits, newest.began_at) == (LATER, 2, [], NOW - 50)
    assert iteration.find(source, "1").commits == ["ccccccc", "ddddddd"], "what was judged, oldest first"
    for run in ("3", "r000003", "r3", RUN, "000003"):
        assert iteration.find(source, f"{run}:2").commits == ["bbbbbbb"]
    assert iteration.find(source, "3:1").verdict["why"] == "the tests pass"
    for wanted in ("3", "4:1", "3:7", "03:9"):
        with pytest.raises(NotFound):
            iteration.find(source, wanted)
    for wanted in ("x", "3:", ":3", "1:2:3", "-1"):
        with pytest.raises(UsageError):
            iteration.find(source, wanted)


def test_a_command_without_numbers_has_its_last_iteration_or_its_last_run(tmp_path: Path) -> None:
    last = finished(None, NOW - 60)
    unnumbered = history(
        tmp_path / "a", finished(None, NOW - 90, "aaaaaaa"), judged(None, NOW - 89, "aaaaaaa"), last
    )
    facts = iteration.find(unnumbered, None)
    assert (facts.commits, facts.verdict) == ([], {})

    opaque = history(tmp_path / "b", entry("run", RUN, NOW - 50, run_id=RUN, code=3, signal=None))
    facts = iteration.find(opaque, None)
    assert (facts.run_id, facts.number, facts.end["summary"]) == (RUN, None, "exit 3")

    by_run = history(tmp_path / "c", judged(7, NOW - 60, "aaaaaaa", run=LATER),
                     entry("run", LATER, NOW - 60, run_id=LATER, code=0, signal=None))  # fmt: skip
    assert iteration.find(by_run, "7").commits == iteration.find(by_run, None).commits == ["aaaaaaa"]

    with pytest.raises(NotFound):
        iteration.find(history(tmp_path / "d"), None)


def test_commits_in_a_row_are_one_range_and_others_are_shown_one_by_one() -> None:
    row = {"b": ("a",), "c": ("b",)}
    assert diff.range_of(row).words()[-3:] == ("a", "c", "--")
    assert diff.range_of({"b": ("a",), "d": ("c",)}).words()[-3:] == ("b", "d", "--")
    assert diff.range_of({"a": ()}).words()[0] == "show", "the first commit has nothing before it"
    merged = {"b": ("a",), "m": ("b", "side")}
    assert diff.range_of(merged).words()[-3:] == ("a", "m", "--")


# --- a real repository -----------------------------------------------------------------------------------

PROGRAMS = (
    ("diff.external", "{}"),
    ("diff.mine.command", "{}"),
    ("diff.mine.textconv", "{}"),
    ("core.pager", "{}"),
    ("pager.diff", "{}"),
    ("pager.show", "{}"),
    ("core.fsmonitor", "{}"),
    ("core.sshCommand", "{}"),
    ("core.editor", "{}"),
    ("alias.diff", "!{}"),
    ("alias.show", "!{}"),
    ("filter.mine.smudge", "{}"),
    ("filter.mine.clean", "{}"),
    ("interactive.diffFilter", "{}"),
    ("gpg.program", "{}"),
    ("log.showSignature", "true"),
    ("diff.submodule", "diff"),
    ("core.askPass", "{}"),
)


@pytest.fixture
def planted(tmp_path: Path, environment: dict[str, str]) -> Iterator[WorkTree]:
    """A repository of two iterations, the second one reverted, in which every program would leave a mark."""
    tree = WorkTree.new(tmp_path / "home" / "demo")
    tree.commit("first", file="a.txt")
    program = tmp_path / "planted"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {tmp_path}/ran\ncat\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tree.path / ".gitattributes").write_text("*.txt diff=mine filter=mine\n")
    tree.git("add", ".")
    tree.git("commit", "-qm", "attributes")
    shas = []
    for number in (1, 2):
        (tree.path / "a.txt").write_text(f"line {number}\n")
        tree.git("commit", "-qam", f"work {number}")
        shas.append(tree.git("rev-parse", "HEAD").strip()[:7])
    tree.git("revert", "--no-edit", "HEAD")
    for key, value in PROGRAMS:
        tree.git("config", key, value.format(program))
    hooks = tree.path / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for hook in ("post-index-change", "pre-commit", "post-checkout"):
        (hooks / hook).write_text(program.read_text())
        (hooks / hook).chmod(0o755)
    entries = [
        finished(1, NOW - 100, shas[0]),
        judged(1, NOW - 99, shas[0]),
        attempt(NOW - 90, TOLD, 1, kind="agent_crash", cost=None, duration_s=8.0),
        attempt(NOW - 51, TOLD, 2, cost=0.42, duration_s=30.0),
        finished(2, NOW - 50, shas[1]),
        judged(2, NOW - 49, shas[1], verdict="reverted", why="the tests failed, and pass without it",
               reverted=[shas[1]], tests=["red", "green"], tests_s=[2.0, 2.0], tail="1 failed\n"),
    ]  # fmt: skip
    write(tmp_path / "state" / "ralphs" / "demo", tree.path, iter(entries), run_id=RUN)
    yield tree
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()


def test_the_trap_works(planted: WorkTree, tmp_path: Path) -> None:
    planted.git("diff", "HEAD~1", "HEAD")
    planted.git("status")
    ran = (tmp_path / "ran").read_text()
    (tmp_path / "ran").unlink()
    assert ran.count("planted") >= 2


def test_a_diff_is_gits_own_also_of_what_was_reverted(planted: WorkTree, ctl: Ctl) -> None:
    one, two = ctl("diff", "demo", "1"), ctl("diff", cwd=planted.path)

    assert (one.returncode, two.returncode, one.stderr + two.stderr) == (0, 0, "")
    assert "-first\n+line 1" in one.stdout.replace("\\ No newline at end of file\n", "")
    assert two.stdout.endswith("@@ -1 +1 @@\n-line 1\n+line 2\n")
    assert "\x1b" not in one.stdout + two.stdout


def test_a_diff_whose_reader_is_gone_ends_with_141(planted: WorkTree, environment: dict[str, str]) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    argv = [sys.executable, "-P", "-m", "ralphctl", "diff"]
    ended = subprocess.run(argv, cwd=planted.path, env=environment, stdout=theirs, timeout=20, check=False)
    os.close(theirs)
    assert ended.returncode == 141


def test_no_program_of_the_repository_runs_and_the_users_own_pager_does(
    planted: WorkTree, ctl: Ctl, environment: dict[str, str], tmp_path: Path
) -> None:
    own = {"GIT_PAGER": "sed s/^/mine:/", "GIT_EXTERNAL_DIFF": str(tmp_path / "planted"),
           "GIT_SSH_COMMAND": str(tmp_path / "planted"), "GIT_DIR": "/nowhere"}  # fmt: skip
    assert diff.pager(environment | own) == "sed s/^/mine:/"
    assert ctl("diff", "demo", "2", more=own).stdout.endswith("+line 2\n")
    said = on_a_terminal(("diff", "demo", "2"), environment | own, tmp_path)
    assert "mine:" in said and "+line 2" in said


def test_a_pager_of_the_users_configuration_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("GIT_PAGER", "PAGER", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".gitconfig").write_text("[core]\n\tpager = delta --dark\n")
    assert diff.pager({}) == "delta --dark"


def test_of_several_ralphs_one_has_to_be_named(
    planted: WorkTree, ctl: Ctl, daemon: FakeDaemon, tmp_path: Path
) -> None:
    daemon.stop()
    for command in ("show", "diff", "verdicts"):
        assert ctl(command).returncode == 0, "the only one may be taken"
    build = tmp_path / "state" / "build" / "aaa-1" / "ralphs" / "aaa"
    write(build, tmp_path / "elsewhere", iter([finished(1, NOW - 100)]), run_id=LATER)
    daemon.views = {name: view(name, directory=f"/nowhere/{name}") for name in ("demo", "zeta")}
    for with_daemon in (False, True):
        if with_daemon:
            daemon.start()
        for command in ("show", "diff", "explain", "verdicts"):
            said = ctl(command)
            assert (said.returncode, said.stdout) == (4, ""), (command, said)
            assert said.stderr.startswith("error: no ralph works in /") and "known: aaa, demo" in said.stderr
            assert command in ("explain", "verdicts") or ctl(command, cwd=planted.path).returncode == 0
    daemon.stop()
    assert ctl("cost").returncode == 0, "all of them are meant"
    assert "no ralphd is running" in ctl("events").stderr, "and here: it has no events to show"


def on_a_terminal(words: tuple[str, ...], environment: dict[str, str], cwd: Path) -> str:
    """Type a command at a terminal and return what is on it."""
    import pty

    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "ralphctl", *words]
    with subprocess.Popen(argv, cwd=cwd, env=environment | {"TERM": "dumb"}, stdin=subprocess.DEVNULL,
                          stdout=theirs, stderr=theirs):  # fmt: skip
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 1 << 16):
                shown += data
        except OSError:  # the terminal is gone with its last program
            pass
    os.close(ours)
    return shown.decode()


def test_show_has_it_all_on_one_page(planted: WorkTree, ctl: Ctl, golden: Golden) -> None:
    run = planted.path.parents[1] / "state" / "ralphs" / "demo" / "runs" / RUN
    run.mkdir(parents=True)
    said = ({"type": "text", "text": f"Step {number}.\nIt is done."} for number in range(15))
    used = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "sh test.sh"}}
    events = (
        {"type": "assistant", "message": {"content": [each]}, "session_id": "s"} for each in (*said, used)
    )
    lines = ("Ralph: iteration 2: Write the parser", *map(json.dumps, events), "Ralph: iteration 2: done")
    stamps = (NOW - 110, *[NOW - 60] * 16, NOW - 49)
    parts = (f"{stored_time(at)} stdout F {line}\n" for at, line in zip(stamps, lines, strict=True))
    (run / "log.000001").write_text("".join(parts))
    replies = [ctl("show"), ctl("show", "demo", "1"), ctl("show", "demo", "2", more={"COLUMNS": "40"})]
    for reply in replies:
        reply.stdout = re.sub(r"(commits +)[0-9a-f]{7}", r"\1abc1234", reply.stdout)
    golden(*replies)
    assert "next         ralphctl diff demo 3:1  (see the changes)\n" in replies[1].stdout, (
        "not of a later run"
    )
    narrow = ctl("show", "demo", "2", more={"COLUMNS": "20"})
    assert max(map(len, narrow.stdout.splitlines())) <= 20
    document = json.loads(ctl("show", "demo", "2", "--json").stdout)
    assert (document["iteration"], document["verdict"]["verdict"]) == (2, "reverted")
    assert "is done, then reverted\n" in ctl("show", "demo", "2").stdout
    assert "then reverted" not in ctl("show", "demo", "1").stdout


def test_why_there_is_no_diff_is_in_gits_own_words(planted: WorkTree, ctl: Ctl, tmp_path: Path) -> None:
    assert diff.fault(planted.path, ["0" * 40]) == "git no longer has its commits"
    planted.git("config", "core.bare", "notabool")
    refused = ctl("diff", "demo", "2")
    assert refused.returncode == 4 and "there is no diff of iteration 2 of demo" in refused.stderr
    assert refused.stderr.endswith("try: ralphctl show demo 2\n")
    assert "fatal: bad boolean config value 'notabool' for 'core.bare'" in refused.stderr
    write(tmp_path / "state" / "ralphs" / "flood", tmp_path / "flood",
          iter([entry("run", RUN, NOW - 50, run_id=RUN, code=3, signal=None)]), run_id=RUN)  # fmt: skip
    assert "there is no diff of run 3 of flood\n  no commit is known\n" in ctl("diff", "flood").stderr


def test_what_cannot_be_shown_is_one_clear_message(planted: WorkTree, ctl: Ctl, golden: Golden) -> None:
    typed = (("show", "demo", "9"), ("show", "demo", "x:1"), ("show", "a", "b", "1"), ("diff", "nobody"),
             ("diff", "demo", "7:1"))  # fmt: skip
    replies = [ctl(*words) for words in typed]
    golden(*replies)
    assert [reply.returncode for reply in replies] == [4, 2, 2, 4, 4]
