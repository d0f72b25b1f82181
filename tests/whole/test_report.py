"""What did it do, and what did it cost: a small night for real, and its report with and without a daemon."""

import json
import time

from tests.ctl.report.test_html import Page
from tests.whole.harness import Daemon
from tests.whole.person import Person
from tests.whole.test_loop_gate import BROKEN, LONG_S, Project


def test_the_report_of_a_night_with_a_revert_a_limit_and_a_crash_is_the_same_without_a_daemon(
    daemon: Daemon,
) -> None:
    daemon.start()
    project, person = Project.of(daemon), Person(daemon)
    assert isinstance(project, Project)
    project.begins(
        BROKEN,
        {"do": "rate_limit", "holds_s": 0.5},
        {"do": "crash", "exit": 3},
        {"do": "task", "cost_usd": 0.21},
        retry__same_agent_base_seconds=0.1,
    )
    daemon.becomes("demo", "done", timeout_s=LONG_S)
    until = time.time()
    words = ("report", "--since", "2h", "--until", f"@{until}")

    up, found = person(*words, cwd=project.place), person(*words, "demo", "--json")
    html = person(*words, "demo", "--html")
    daemon.kill()
    down, again = person(*words, "demo"), person(*words, "--json", cwd=project.place)
    offline = person(*words, "--html", cwd=project.place)

    codes = [said.returncode for said in (up, down, found, again, html, offline)]
    assert codes == [0] * 6, up.stderr + down.stderr + html.stderr
    assert up.stderr == down.stderr == ""
    assert up.stdout.splitlines()[1:] == down.stdout.splitlines()[1:]  # the first line tells how long ago
    assert _without_since(found.stdout) == _without_since(again.stdout)
    pages = [each.stdout.partition("<main>")[2] for each in (html, offline)]  # the head tells how long ago
    assert pages[0] == pages[1] != ""
    _check_the_page(Page(html.stdout), project)
    _check_the_text(up.stdout, project)
    _check_the_figures(json.loads(found.stdout)["ralphs"][0], project)
    assert not (project.place / ".git" / "index.lock").exists()


def _without_since(document: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(document)
    return {key: value for key, value in found.items() if key != "since"}


def _check_the_text(said: str, project: Project) -> None:
    bad = project.git("rev-parse", "HEAD~3")[:7]
    head = "\n".join(said.splitlines()[:24])
    assert max(map(len, said.splitlines())) <= 80
    assert said.startswith("demo  done ")
    for line in (
        "done         2 of 2 tasks (prd.json), 2 of them in this span",
        "blocked by   nothing",
        "resumes      done; ralphctl start demo starts it again",
        "cost         $0.24, and 1 attempt of unknown cost",
        "commits      2 kept (2 files, +2 −0), 1 reverted",
    ):
        assert f"  {line}\n" in head, said
    assert f"iteration 1, story: {bad} reverted: the tests failed, and" in said
    assert "      | FAILED test_header\n" in said
    assert "to restore it: ralphctl undo demo 1\n" in said
    assert "\x1b" not in said
    assert "rate limit, at " in said
    assert "agent crash, at " in said


def _check_the_page(page: Page, project: Project) -> None:
    said = page.text
    assert len(page.all("svg")) == 3, "the strip, its legend, and the cost"
    assert "reverted" in {each["class"] for each in page.all("rect")}
    for words in (
        "FAILED test_header",
        "Needs you",
        "ralphctl undo demo 1",
        "$0.24",
        "Prompt",
        "+++ b/",
        "Diff",
    ):
        assert words in said
    assert said.count("iteration 1 of run 1") == 1
    subject = project.git("log", "-1", "--format=%s", "HEAD~3").strip()
    assert subject in said


def _check_the_figures(told: dict[str, object], project: Project) -> None:
    kept = [project.git("rev-parse", revision)[:7] for revision in ("HEAD~1", "HEAD")]
    commits, times, cost = told["commits"], told["times"], told["cost"]
    assert isinstance(commits, dict)
    assert isinstance(times, list)
    assert commits["kept"] == kept
    assert isinstance(cost, dict)
    assert {"usd": 0.24, "attempts": 5, "unknown": 1, "estimated": 0}.items() <= cost.items()
    went = {(each["doing"], each["reason"]) for each in times}
    assert went >= {
        ("work", None), ("undone", None), ("failure", None), ("tests", None), ("wait", "rate_limit"),
    }  # fmt: skip
