"""The built-in loop with its commits judged (L9, R9): played agents, a real daemon, real git, real tests."""

import json
import os
import signal
from typing import Any

import pytest

from tests.helpers import wait_for
from tests.players import agents
from tests.whole.guarded import Guarded
from tests.whole.harness import Daemon

LONG_S = 30.0
TESTS = """\
test ! -e ../slow || touch ../testing; while test -e ../slow; do sleep 0.05; done
if test -e broken; then printf '\\033[31mFAILED\\033[0m test_header\\a\\n```\\n'; fi
! test -e broken && ! test -e ../red
"""
BROKEN = {"do": "task", "files": {"broken": "yes\n"}}


class Project(Guarded):
    """A project with a list that git does not hold, two tasks, an origin, and a played claude."""

    @property
    def script(self) -> Any:
        """What the agent does."""
        return self.daemon.root / "script.json"

    @property
    def environment(self) -> dict[str, str]:
        """The shell's, in which the agent is found."""
        return {"HOME": str(self.daemon.home), **agents.environment(self.daemon.root / "bin", self.script)}

    def begins(self, *steps: dict[str, Any], stories: int = 2, **settings: object) -> None:
        """Have the agent do these, and then its work; start the loop."""
        ids = [f"US-00{number}" for number in range(1, stories + 1)]
        tasks = [{"id": id_, "title": "story", "passes": False} for id_ in ids]
        (self.place / "prd.json").write_text(json.dumps({"userStories": tasks}))
        (self.place / "PROMPT.md").write_text("Do the next task.\n")
        (self.place / ".gitignore").write_text(".ralph/\nprd.json\n")
        self.git("add", "-A")
        self.git("commit", "-qm", "start")
        self.git("init", "-q", "--bare", "../origin")
        self.git("remote", "add", "origin", "../origin")
        self.git("push", "-q", "-u", "origin", "main")
        agents.install(self.daemon.root / "bin", ["claude"])
        agents.write_script(self.script, steps)
        flags = {
            "git.auto_push": True,
            "regent.rollback_on_test_failure": True,
            "regent.test_command": TESTS,
            "regent.test_retries": 0,
            "regent.retry_backoff_seconds": 0.05,
        }
        flags |= {key.replace("__", "."): value for key, value in settings.items()}
        body = {"directory": str(self.place), "name": "demo", "flags": flags, "environment": self.environment}
        self.daemon.ask("POST", "/v1/ralphs", body)

    def prompt(self, number: int) -> str:
        """What the agent was told in its call of this number, once that is under way."""
        wait_for(lambda: len(agents.calls(self.script)) >= number, timeout_s=LONG_S, what=f"call {number}")
        return agents.calls(self.script)[number - 1].prompt

    def task(self, id_: str) -> dict[str, Any]:
        """What is remembered of a task."""
        kept = json.loads((self.daemon.files("demo") / "tasks.json").read_text())
        return dict(kept["tasks"][id_])

    def log(self) -> str:
        """What the loop said, in all its runs."""
        return bytes(self.daemon.ask("GET", "/v1/ralphs/demo/logs?tail=all")).decode()


@pytest.fixture
def project(daemon: Daemon) -> Project:
    daemon.start()
    project = Project.of(daemon)
    assert isinstance(project, Project)
    return project


def test_r9_a_reverted_task_is_open_again_and_its_agent_is_told_why(daemon: Daemon, project: Project) -> None:
    project.begins(BROKEN)

    view = daemon.becomes("demo", "done", timeout_s=LONG_S)

    assert (view["iteration"], view["reverts"], view["restarts"]) == (3, 1, 0)
    assert project.subjects() == [
        "US-002: done",
        "US-001: done",
        'Revert "US-001: done"',
        "US-001: done",
        "start",
        "first",
    ]
    first, second, third = (project.prompt(number) for number in (1, 2, 3))
    bad = project.git("rev-parse", "HEAD~3")[:7]
    assert f"were reverted ({bad}): the tests failed, and pass without it" in second
    assert "The last lines of the tests' output:\n\n````\nFAILED test_header\n```\n````\n" in second
    assert "Reverted" not in first + third and "Previous Attempt" not in second
    assert [line for line in second if not line.isprintable() and line != "\n"] == []
    log = project.log()
    told = ["iteration 1: its commits were reverted", "iteration 2: done"]
    assert [log.count(f"Ralph: {line}") for line in told] == [1, 1], log
    assert log.index(f"reverting commit {bad}") < log.index(told[0]), "the end comes after the verdict"
    assert log.count("push: ") == 2, "nothing is pushed after a revert"
    assert project.git("rev-parse", "origin/main") == project.git("rev-parse", "HEAD")
    record = project.task("US-001")
    assert (record["status"], record["failure_count"], record["reopened"]) == ("complete", 0, False)
    assert (record["reverted"], record["unjudged"]) == (None, False)


def test_r2_a_bad_commit_after_a_pull_that_rebased_is_reverted(daemon: Daemon, project: Project) -> None:
    who = "-c user.name=x -c user.email=x@example.invalid"
    theirs = f"cd ../other; git {who} commit -q --allow-empty -m theirs; git push -q"
    mine = "touch mine; git add mine; git commit -q -m mine; sed -i '0,/false/s//true/' prd.json"
    pushed = {"do": "claim", "runs": f"{mine}; git clone -q -b main ../origin ../other; ({theirs})"}
    project.begins(pushed, BROKEN, git__auto_push=False, git__auto_pull_rebase=True)

    view = daemon.becomes("demo", "done", timeout_s=LONG_S)

    assert view["reverts"] == 1
    bad = "US-002: done"
    assert project.subjects() == [bad, f'Revert "{bad}"', bad, "mine", "theirs", "start", "first"]


def test_an_attempt_has_the_commits_that_it_made_itself(daemon: Daemon, project: Project) -> None:
    project.begins({"do": "claim", "runs": "touch a; git add a; git commit -qm half"}, stories=1)

    daemon.becomes("demo", "done", timeout_s=LONG_S)

    attempts = [event["data"] for event in daemon.events("attempt.finished")]
    assert [(each["outcome"], each["commits"]) for each in attempts] == [("failed", 1), ("ok", 1)]


def test_done_without_a_commit_is_reported(daemon: Daemon, project: Project) -> None:
    hook = project.place / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\n! test -e ../refused\n")
    hook.chmod(0o755)

    project.begins({"do": "task", "files": {"../refused": "", "a": ""}})

    view = daemon.becomes("demo", "done", timeout_s=LONG_S)
    assert project.subjects() == ["start", "first"]
    left = "but 3 files were not committed: a, work/US-001.txt and 1 more; next: git status"
    assert view["message"] == left
    [event] = daemon.events("ralph.done")
    assert event["data"]["message"] == f"Ralph is done: all tasks are done, {left}"


def test_commits_that_could_not_be_pushed_are_reported_at_the_end(daemon: Daemon, project: Project) -> None:
    who = "-c user.name=x -c user.email=x@example.invalid"
    theirs = f"git clone -q -b main ../origin ../o; git -C ../o {who} commit -q --allow-empty -m theirs"
    mine = "touch a; git add a; git commit -qm mine; sed -i s/false/true/ prd.json"
    project.begins({"do": "claim", "runs": f"{mine}; {theirs}; git -C ../o push -q"}, stories=1)

    view = daemon.becomes("demo", "done", timeout_s=LONG_S)

    left = "but origin/main lacks 1 of the commits; next: git pull --rebase && git push"
    assert view["message"] == left
    [event] = daemon.events("ralph.done")
    assert event["data"]["message"] == f"Ralph is done: all tasks are done, {left}"


def test_r9_a_loop_that_is_killed_while_the_tests_run_knows_the_verdict_when_it_is_back(
    daemon: Daemon, project: Project
) -> None:
    project.begins({"do": "task", "files": {"broken": "yes\n", "../slow": ""}}, {"do": "task", "takes_s": 1})
    wait_for(lambda: (daemon.home / "testing").exists(), timeout_s=LONG_S, what="tests that run")
    wait_for(
        lambda: "waiting for the verdict: the tests are running" in project.log(),
        timeout_s=LONG_S,
        what="words",
    )
    assert project.task("US-001")["unjudged"]

    os.kill(daemon.view("demo")["ralph_pid"], signal.SIGKILL)
    (daemon.home / "slow").unlink()

    assert "FAILED test_header" in project.prompt(2)
    record = project.task("US-001")
    assert (record["status"], record["reopened"], record["failure_count"]) == ("in_progress", True, 1)
    assert record["last_failure"].startswith("its commit was reverted (")
    assert record["reverted"]["tail"] == ["FAILED test_header", "```"]
    view = daemon.becomes("demo", "done", timeout_s=LONG_S)
    assert (view["reverts"], view["restarts"]) == (1, 1)
    assert "from the previous run" in project.log()
    assert project.subjects()[:3] == ["US-002: done", "US-001: done", 'Revert "US-001: done"']


def test_l9_nothing_is_pushed_that_a_person_has_to_look_at(daemon: Daemon, project: Project) -> None:
    project.begins({"do": "task", "files": {"../red": ""}})

    view = daemon.becomes("demo", "paused", timeout_s=LONG_S)

    assert view["pause_reason"] == "guard"
    assert project.subjects() == ["US-001: done", "start", "first"]
    assert project.subject("origin/main") == "start"
    log = project.log()
    assert "push: " not in log
    assert "Ralph paused: the tests fail without these commits too" in log
    (daemon.home / "red").unlink()
    daemon.ask("POST", "/v1/ralphs/demo/resume", {})
    daemon.becomes("demo", "done", timeout_s=LONG_S)
    assert project.subjects()[:2] == ["US-002: done", "US-001: done"]


def test_an_alert_about_a_persons_red_commit_outlives_the_end_of_the_work(
    daemon: Daemon, project: Project
) -> None:
    person = "(unset GIT_CONFIG_PARAMETERS; touch broken; git add broken; git commit -qm theirs)"
    mine = "touch a; git add a; git commit -qm mine; sed -i s/false/true/ prd.json"
    project.begins({"do": "claim", "runs": f"{mine}; {person}"}, stories=1)

    view = daemon.becomes("demo", "done", timeout_s=LONG_S)

    assert "it did not make" in view["incident"]["message"]
    assert len(daemon.events("guard.blocked")) == 1, "the same commits are judged once"
    assert daemon.events("incident.closed") == []


def _tracked(project: Project) -> None:
    """The list is in git, as most are."""
    (project.place / "prd.json").write_text("{}")
    project.git("add", "-f", "prd.json")
    project.git("commit", "-qm", "list")


REMOVES = {"do": "claim", "runs": "git rm -q prd.json && git commit -qm tidy"}


@pytest.mark.parametrize("scope", ["minimal", "iteration"])
def test_a_list_removed_below_a_bad_commit_outlives_the_revert(
    daemon: Daemon, project: Project, scope: str
) -> None:
    _tracked(project)
    bad = f"{REMOVES['runs']}; touch broken; git add broken; git commit -qm bad"
    project.begins({"do": "claim", "runs": bad}, regent__rollback_scope=scope)

    view = daemon.becomes("demo", "done", timeout_s=LONG_S)

    assert (view["reverts"], view["restarts"]) == (1, 0), project.log()
    list_ = json.loads(project.git("show", "HEAD:prd.json"))
    assert [story["passes"] for story in list_["userStories"]] == [True, True]
    assert not (project.place / "broken").exists()
    assert daemon.events("guard.blocked") == []
    assert project.log().count("the attempt lost the task list (prd.json is not there)") >= 1


def test_an_agent_that_removes_the_list_each_time_gets_a_pause_and_one_alert(
    daemon: Daemon, project: Project
) -> None:
    _tracked(project)
    project.begins(*[REMOVES] * 9, agents__retries_before_fallback=0, retry__same_agent_base_seconds=0.05)

    view = daemon.becomes("demo", "paused", timeout_s=LONG_S)

    why = "the task list was lost in 3 iterations in a row: prd.json is not there"
    assert (view["pause_reason"], why in view["message"]) == ("task_list", True), view
    (alert,) = daemon.events("ralph.escalated")
    assert why in alert["data"]["message"], alert
    assert len(agents.calls(project.script)) == 3
    assert (project.place / "prd.json").exists()
    assert project.git("status", "--porcelain", "prd.json") == ""


def test_a_persons_own_task_outlives_the_revert_of_the_commit_that_took_it(
    daemon: Daemon, project: Project
) -> None:
    task_list = project.place / "TASKS.md"
    task_list.write_text("- [ ] one\n")
    person = "sed -i '$a - [ ] mine' TASKS.md"
    agent = "sed -i '1s/ /x/2' TASKS.md; touch broken; git add -A; git commit -qm bad"
    project.begins({"do": "claim", "runs": f"{person}; {agent}"}, stories=0, ralph__tasks="TASKS.md")

    view = daemon.becomes("demo", "done", timeout_s=LONG_S)

    assert "removed open work from TASKS.md, which is restored: mine" in project.log()
    assert task_list.read_text() == "- [x] one\n- [x] mine\n"
    assert (view["reverts"], project.subjects()[:2]) == (1, ["mine: done", "one: done"])


def test_a_list_whose_restoration_is_reverted_is_restored_again(daemon: Daemon, project: Project) -> None:
    project.commit("prd.json")  # in git, although it is ignored
    loses = (
        "git rm -q prd.json && git commit -qm tidy && touch broken && git add broken && git commit -qm bad"
    )

    project.begins({"do": "claim", "runs": loses})

    view = daemon.becomes("demo", "done", timeout_s=LONG_S)
    subjects = project.subjects()
    reverted = ['Revert "bad"', 'Revert "Restore prd.json"', 'Revert "US-001: done"']
    first = [*reverted, "US-001: done", "Restore prd.json", "bad", "tidy", "start", "prd.json", "first"]
    assert subjects == ["US-002: done", "US-001: done", "Restore prd.json", *first]
    assert [
        each["passes"] for each in json.loads((project.place / "prd.json").read_text())["userStories"]
    ] == [True] * 2
    assert view["reverts"] == 1
