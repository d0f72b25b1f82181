"""What a person types about one iteration, tasks, notes and costs: a real daemon, the loop, real git."""

import json

from tests.helpers import wait_for
from tests.template import ralphctl
from tests.whole.harness import Daemon
from tests.whole.person import Person
from tests.whole.test_loop_gate import BROKEN, LONG_S, Project


def test_a_task_and_a_note_reach_the_next_prompt_and_every_count(daemon: Daemon) -> None:
    daemon.start()
    project, person = Project.of(daemon), Person(daemon)
    assert isinstance(project, Project)
    project.begins({"cost_usd": 0.21}, {}, {"do": "rate_limit", "holds_s": 0.3})
    daemon.becomes("demo", "done", timeout_s=LONG_S)
    added = person("tasks", "add", "demo", "Fix the header")
    noted = person("note", "Use the new API", cwd=project.place)

    start = "  next: ralphctl start demo  (the loop does not run)\n"
    assert added.stdout == f"demo: added task +1; the loop's next prompt has it\n{start}", added
    assert noted.stdout == f"demo: added note 2; the loop's next prompt has it\n{start}"
    listed = person("tasks", cwd=project.place).stdout
    assert listed.startswith("demo  2 of 3 tasks done (prd.json)\n") and "2: Use the new API" in listed
    shell = person.environment | project.environment
    assert ralphctl(("start", "demo"), shell, project.place, LONG_S).returncode == 0
    first, again = project.prompt(3), project.prompt(4)
    assert all("Fix the header\n\nA person added this task" in prompt for prompt in (first, again))
    assert "Use the new API" in first and "Use the new API" in again, "a rate limit reads no note"
    wait_for(lambda: "Use the new API" not in person("tasks", "demo").stdout, what="the note is read")
    daemon.becomes("demo", "done", timeout_s=LONG_S)
    daemon.kill()

    said = person("tasks", "demo").stdout
    assert said.startswith("demo  3 of 3 tasks done (prd.json)\n") and "Notes" not in said
    assert any(line.split()[:5] == ["+1", "Fix", "the", "header", "done"] for line in said.splitlines()), said
    figures = json.loads(person("cost", "demo", "--json").stdout)["ralphs"][0]
    assert figures["cost"]["usd"] >= 0.21 and figures["tasks"]["done"] == 3
    assert "resumes      done" in person("report", "demo").stdout
    refused = person("tasks", "add", "demo", "x")
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (3, "error: no ralphd is running")


def test_an_iteration_that_was_reverted_has_its_page_and_its_diff(daemon: Daemon) -> None:
    daemon.start()
    project, person = Project.of(daemon), Person(daemon)
    assert isinstance(project, Project)
    project.begins(BROKEN)
    daemon.becomes("demo", "done", timeout_s=LONG_S)

    shown, diff = person("show", "demo", "1"), person("diff", "1", cwd=project.place)
    last, logged = person("show", cwd=project.place), person("logs", "demo", "--iteration", "2").stdout

    bad = project.git("rev-parse", "HEAD~3")[:7]
    assert f"  commits      {bad}\n" in shown.stdout and "verdict      reverted: the tests" in shown.stdout
    assert "| FAILED test_header" in shown.stdout and "Agent output\n" in shown.stdout
    assert "+++ b/broken\n@@ -0,0 +1 @@\n+yes\n" in diff.stdout
    assert last.stdout.startswith("demo  iteration 3 of run 1\n")
    lines = [line.partition("Ralph: ")[2] for line in logged.splitlines() if "Ralph: iteration " in line]
    assert len(lines) == 2 and all(line.startswith("iteration 2: ") for line in lines), logged
    assert "Ralph: iteration 2: " in logged.splitlines()[0], logged
    assert shown.stderr + diff.stderr + last.stderr == ""


def test_only_the_built_in_loop_takes_a_task(daemon: Daemon) -> None:
    daemon.start()
    person = Person(daemon)
    person.starts(person.directory("own"), ["sleep", "60"])
    refused = person("note", "own", "Use the new API")
    assert (refused.returncode, refused.stderr) == (
        1,
        "error: own runs a command of its own\n  only the built-in loop takes tasks and notes\n",
    )
    removed = person("tasks", "remove", "own", "+1")
    assert removed.returncode == 1
    wait_for(lambda: daemon.view("own")["state"] == "running", what="it runs")
