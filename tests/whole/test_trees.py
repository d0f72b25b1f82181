"""Several ralphs on one repository, each in a worktree: made, shared, removed, made again (W1 to W7)."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import wait_for
from tests.players import player
from tests.whole.harness import Daemon, View
from tests.whole.loops import loop_in
from tests.whole.person import Person

LONG_S = 60.0


class Project:
    """A repository with a task list, in which ralphs get worktrees."""

    def __init__(self, daemon: Daemon, directory: Path) -> None:
        self.daemon, self.directory, self.person = daemon, directory, Person(daemon)

    def git(self, *words: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=P", "-c", "user.email=p@example.invalid", *words],
            cwd=cwd or self.directory,
            env=self.daemon.environment | {"GIT_CONFIG_NOSYSTEM": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def commit(self, message: str = "more") -> str:
        self.git("add", "--all")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def configure(self, text: str) -> None:
        """Add to ``ralph.toml``, and commit it."""
        with (self.directory / "ralph.toml").open("a") as file:
            file.write(text)
        self.commit("configuration")

    def start(self, *words: str, code: int = 0, timeout_s: float = LONG_S) -> str:
        said = self.person("start", str(self.directory), *words, timeout_s=timeout_s)
        assert said.returncode == code, said
        return said.stdout + said.stderr

    def path(self, name: str) -> Path:
        return self.daemon.home / ".local/share/ralphd/trees/demo" / name

    def trees(self) -> dict[str, View]:
        return {tree["name"]: tree for tree in self.daemon.ask("GET", "/v1/trees")["trees"]}

    def record(self, name: str) -> dict[str, Any]:
        return dict(json.loads((self.daemon.state / f"trees/{name}.json").read_text()))

    def reason_of_lock(self, name: str) -> str:
        blocks = self.git("worktree", "list", "--porcelain").split("\n\n")
        block = next(each for each in blocks if each.startswith(f"worktree {self.path(name)}\n"))
        return next((line for line in block.splitlines() if line.startswith("locked")), "")


@pytest.fixture
def project(daemon: Daemon) -> Iterator[Project]:
    directory = loop_in(daemon, tasks=2)
    project = Project(daemon, directory)
    project.git("init", "-q", "-b", "main")
    (directory / ".gitignore").write_text(".env\nbuilt\n")
    project.commit("first")
    daemon.start()
    yield project


def idle(project: Project, *words: str) -> None:
    """Start a ralph whose command does nothing."""
    project.start(*words, "--", "true")


# --- W1, W2 ---------------------------------------------------------------------------------------------


def test_a_ralph_gets_a_locked_worktree_of_its_own(project: Project, daemon: Daemon) -> None:
    output = project.start("--worktree", "fix")

    view = daemon.becomes("fix", "done", timeout_s=LONG_S)
    assert Path(view["directory"]) == project.path("fix")
    assert output.count("branch ralph/fix; ports 2") == 1, output
    assert project.reason_of_lock("fix") == "locked ralphd: fix"
    assert (project.directory / "TASKS.md").read_text().count("[ ]") == 2
    assert (project.path("fix") / "TASKS.md").read_text().count("[x]") == 2
    assert project.git("rev-parse", "ralph/fix") == project.git("rev-parse", "main")


def test_what_all_worktrees_share_stays_as_it_is(project: Project, daemon: Daemon) -> None:
    hook = project.directory / ".git" / "hooks" / "post-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    config = (project.directory / ".git" / "config").read_bytes()

    project.start("--worktree", "w", "--count", "3", "--", "sh", "-c", "echo 1 >done; git add done")

    for number in range(1, 4):
        daemon.becomes(f"w-{number}", "done", timeout_s=LONG_S)
    assert (project.directory / ".git" / "config").read_bytes() == config
    assert hook.exists()
    assert daemon.events("file.restored") == []


def test_without_a_name_one_is_found_and_ref_is_where_it_begins(project: Project, daemon: Daemon) -> None:
    first = project.git("rev-parse", "HEAD")
    (project.directory / "more").touch()
    project.commit()

    project.start("--from", "HEAD~1", "--branch", "night", "--worktree", "--", "true")

    daemon.becomes("demo", "done")
    assert project.git("rev-parse", "night") == first
    assert not (project.path("demo") / "more").exists()


def test_two_repositories_of_one_name_have_two_folders(project: Project, daemon: Daemon) -> None:
    idle(project, "--worktree", "fix")
    other = Project(daemon, daemon.home / "other" / "demo")
    other.directory.mkdir(parents=True)
    other.git("init", "-q", "-b", "main")
    (other.directory / "a").touch()
    other.commit()

    idle(other, "--worktree", "fix-2")

    folder = Path(project.trees()["fix-2"]["path"]).parent.name
    assert folder.startswith("demo-") and folder != "demo"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--worktree", "fix", "--from", "nothing"), "nothing is not a commit"),
        (("--worktree", "fix", "--branch", "main"), "checked out in"),
        (("--worktree", "/tmp"), "is not a name for a worktree"),
        (("--worktree", "landed"), "ralph/landed is the landing queue's"),
        (("--count", "2"), "--count is for a worktree"),
        (("--worktree", "fix", "--task", "nothing"), "no task 'nothing' in TASKS.md"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(
    project: Project, daemon: Daemon, words: tuple[str, ...], why: str
) -> None:
    before = project.git("for-each-ref"), project.git("worktree", "list")

    output = project.start(*words, code=2 if "--branch" not in words else 1)

    assert why in output
    assert (project.git("for-each-ref"), project.git("worktree", "list")) == before
    assert project.trees() == {} and daemon.status()["ralphs"] == []


def test_a_command_that_cannot_be_started_leaves_no_worktree(project: Project, daemon: Daemon) -> None:
    output = project.start("--worktree", "fix", "--", "./absent", code=1)

    assert "absent" in output
    assert project.trees() == {} and daemon.status()["ralphs"] == []
    assert "ralph/fix" not in project.git("branch", "--list")


def test_submodules_and_filters_are_refused_with_the_reason(project: Project) -> None:
    (project.directory / ".gitattributes").write_text("*.bin filter=big\n")
    (project.directory / "a.bin").touch()
    project.commit()
    project.git("config", "filter.big.smudge", "cat")
    assert "a.bin needs the filter big" in project.start("--worktree", "fix", "--", "true", code=2)
    project.git("config", "--unset", "filter.big.smudge")
    (project.directory / ".gitmodules").touch()
    project.commit()
    assert "it has submodules" in project.start("--worktree", "fix", "--", "true", code=2)


@pytest.mark.parametrize(
    "failpoint",
    [
        "worktree.recorded",
        "worktree.branch_made",
        "worktree.added",
        "worktree.made",
        "write.fix.json.after_rename",
    ],
)
def test_a_killed_start_is_continued_by_the_same_words(
    project: Project, daemon: Daemon, failpoint: str
) -> None:
    daemon.kill()
    daemon.start(failpoints=[failpoint])
    project.person("start", "--no-autostart", str(project.directory), "--worktree", "fix", "--", "true")
    daemon.died()
    daemon.start()

    if "fix" not in [view["name"] for view in daemon.status()["ralphs"]]:
        idle(project, "--worktree", "fix")

    daemon.becomes("fix", "done")
    assert project.git("status", "--porcelain", cwd=project.path("fix")) == ""
    assert project.reason_of_lock("fix") == "locked ralphd: fix"


# --- W4, W7 ---------------------------------------------------------------------------------------------


def test_rm_refuses_what_is_nowhere_else_and_names_it(project: Project, daemon: Daemon) -> None:
    idle(project, "--worktree", "fix")
    daemon.becomes("fix", "done")
    tree = project.path("fix")
    (tree / "new file").write_text("work")
    refused = project.person("trees", "rm", "fix")
    assert refused.returncode == 1 and "not committed: new file" in refused.stderr
    project.git("add", "--all", cwd=tree)
    project.git("commit", "-q", "-m", "work", cwd=tree)
    refused = project.person("trees", "rm", "fix")
    assert refused.returncode == 1 and "1 commit that no other branch and no remote has" in refused.stderr
    assert (tree / "new file").read_text() == "work"
    assert project.reason_of_lock("fix") == "locked ralphd: fix"

    project.git("merge", "-q", "--ff-only", "ralph/fix")
    removed = project.person("trees", "rm", "fix")

    assert removed.returncode == 0, removed
    assert not tree.exists() and project.trees() == {}
    assert "ralph/fix" not in project.git("branch", "--list")
    assert daemon.status()["ralphs"] == []


def test_rm_with_keep_saves_commits_and_files_under_a_ref(project: Project, daemon: Daemon) -> None:
    idle(project, "--worktree", "fix")
    daemon.becomes("fix", "done")
    tree = project.path("fix")
    (tree / "committed").touch()
    project.git("add", "--all", cwd=tree)
    project.git("commit", "-q", "-m", "work", cwd=tree)
    tip = project.git("rev-parse", "ralph/fix")
    (tree / "untracked").write_text("not committed")

    removed = project.person("trees", "rm", "--keep", "fix")

    assert removed.returncode == 0 and "refs/ralph/trees/fix" in removed.stdout, removed
    assert not tree.exists()
    assert project.git("show", "refs/ralph/trees/fix:untracked") == "not committed"
    assert project.git("rev-parse", "refs/ralph/trees/fix^") == tip


def test_a_refusal_to_remove_names_what_helps(project: Project, daemon: Daemon) -> None:
    idle(project, "--worktree", "fix")
    daemon.becomes("fix", "done")
    tree = project.path("fix")
    project.git("commit", "-q", "--allow-empty", "-m", "work", cwd=tree)
    project.git("update-ref", "CHERRY_PICK_HEAD", "HEAD", cwd=tree)
    refused = project.person("trees", "rm", "--keep", "fix").stderr
    assert "a cherry-pick is half done" in refused and "try: " not in refused, refused
    project.git("update-ref", "-d", "CHERRY_PICK_HEAD", cwd=tree)
    assert "save it: ralphctl trees rm --keep fix" in project.person("trees", "rm", "fix").stderr
    shutil.rmtree(tree)
    refused = project.person("trees", "rm", "--keep", "fix").stderr
    assert "make the worktree again: ralphctl start fix" in refused and "--keep" not in refused, refused


def test_a_worktree_whose_repository_is_gone_can_be_forgotten(project: Project, daemon: Daemon) -> None:
    idle(project, "--worktree", "fix")
    daemon.becomes("fix", "done")
    shutil.rmtree(project.directory)
    refused = project.person("trees", "rm", "fix")
    assert f"is gone: mv {project.path('fix')}" in refused.stderr, refused
    project.path("fix").rename(daemon.root / "old")
    assert project.person("trees", "rm", "fix").returncode == 0
    assert project.trees() == {}


def test_a_worktree_of_a_living_ralph_is_not_removed(project: Project, daemon: Daemon) -> None:
    project.start("--worktree", "fix", "--", *player("sleeper"))
    daemon.becomes("fix", "running")

    refused = project.person("trees", "rm", "fix")

    assert refused.returncode == 1 and "it works in the worktree" in refused.stderr
    assert project.path("fix").is_dir()


def test_trees_lists_what_a_person_decides_by(project: Project, daemon: Daemon) -> None:
    idle(project, "--worktree", "fix")
    daemon.becomes("fix", "done")
    (project.path("fix") / "new").touch()
    (project.directory / "b").touch()
    project.commit()

    tree, text = project.trees()["fix"], project.person("trees").stdout

    assert (tree["ahead"], tree["behind"], tree["dirty"], tree["unlanded"]) == (0, 1, 1, 0)
    assert tree["size_bytes"] > 0 and tree["state"] == "done" and tree["branch"] == "ralph/fix"
    assert text.startswith("~/.local/share/ralphd/trees/demo/NAME, on branch ralph/NAME\n")
    assert "+0 -1" in text and "1 file" in text


def test_several_have_a_line_each_and_their_notes_once(project: Project) -> None:
    name = "a-name-that-is-rather-long"
    (project.directory / ".worktreeinclude").write_text(".env\n")
    (project.directory / ".env").touch()
    output = project.start("--worktree", name, "--count", "5", "--", "sleep", "600")
    bases = [project.record(f"{name}-{number}")["port_base"] for number in range(1, 6)]
    assert all(abs(a - b) >= 100 for a in bases for b in bases if a is not b), bases
    assert output.count("1 file copied by .worktreeinclude") == 1
    for number in range(1, 6):
        lines = [line for line in output.splitlines() if f"{name}-{number}" in line]
        base = project.record(f"{name}-{number}")["port_base"]
        assert len(lines) == 1 and lines[0].startswith(f"{name}-{number}: started (pid "), output
        assert lines[0].endswith(f", branch ralph/{name}-{number}; ports {base} to {base + 99}"), output
    table = project.person("trees").stdout.splitlines()
    assert "\n".join(table).count(f"\n{name}") == 5 and max(map(len, table)) <= 80, table


def test_a_deleted_worktree_is_made_again_from_its_branch(project: Project, daemon: Daemon) -> None:
    idle(project, "--worktree", "fix")
    daemon.becomes("fix", "done")
    tree = project.path("fix")
    (tree / "work").write_text("work")
    project.git("add", "--all", cwd=tree)
    project.git("commit", "-q", "-m", "work", cwd=tree)
    subprocess.run(["rm", "-rf", str(tree)], check=True)
    assert project.trees()["fix"]["stage"] == "deleted"

    said = project.person("start", "fix", timeout_s=LONG_S)

    assert said.returncode == 0, said
    assert (tree / "work").read_text() == "work"
    daemon.becomes("fix", "done")
    assert project.git("status", "--porcelain", cwd=tree) == ""


def test_a_forgotten_ralph_leaves_its_worktree_unlocked(project: Project, daemon: Daemon) -> None:
    idle(project, "--worktree", "fix")
    daemon.becomes("fix", "done")

    assert project.person("rm", "-y", "fix").returncode == 0

    assert project.reason_of_lock("fix") == ""
    assert project.trees()["fix"]["state"] is None
    idle(project, "--worktree", "fix")
    assert project.reason_of_lock("fix") == "locked ralphd: fix"


# --- W3 -------------------------------------------------------------------------------------------------


def test_a_worktree_is_ready_to_work(project: Project, daemon: Daemon) -> None:
    (project.directory / ".env").write_text("KEY=1")
    (project.directory / "built").mkdir()
    (project.directory / "built" / "big").write_text("not listed")
    (project.directory / ".worktreeinclude").write_text(".env\n")
    project.configure('[ralph]\nsetup = "cat .env > prepared; echo $RALPH_PORT_BASE >> prepared"\n')

    project.start("--worktree", "a", "--", "sh", "-c", "cat prepared; echo $RALPH_PORT_BASE")
    project.start("--worktree", "b", "--", "true")

    ports = project.record("a")["port_base"]
    assert project.person.says_lines("a", 2) == [f"KEY=1{ports}", str(ports)]
    assert not (project.path("a") / "built").exists()
    assert abs(ports - project.record("b")["port_base"]) >= 100


def test_a_setup_that_fails_is_shown_and_run_again(project: Project, daemon: Daemon) -> None:
    project.configure('[ralph]\nsetup = "echo no such package; test -e repaired"\n')

    output = project.start("--worktree", "fix", "--", "true", code=1)

    assert "the setup of fix failed: exit 1" in output and "no such package" in output
    assert daemon.view("fix")["run_id"] is None
    (project.path("fix") / "repaired").touch()
    assert project.person("start", "fix").returncode == 0
    daemon.becomes("fix", "done")


def test_a_setup_that_is_not_over_in_time_is_ended(project: Project, daemon: Daemon) -> None:
    toml = project.directory / "ralph.toml"
    toml.write_text(toml.read_text().replace("[regent]\n", "[regent]\ntest_timeout_seconds = 1\n"))
    project.configure('[ralph]\nsetup = "echo begun; sleep 600"\n')

    output = project.start("--worktree", "fix", "--", "true", code=1)

    assert "the setup of fix failed: not over in time" in output and "begun" in output
    assert project.trees()["fix"]["stage"] == "preparing"


def test_a_setup_goes_on_without_the_daemon_that_began_it(project: Project, daemon: Daemon) -> None:
    go = daemon.root / "go"
    project.configure(f'[ralph]\nsetup = "echo once >> log; until test -e {go}; do sleep 0.05; done"\n')
    with project.person.watching("start", str(project.directory), "--worktree", "fix", "--", "true"):
        wait_for(lambda: (project.path("fix") / "log").exists(), timeout_s=LONG_S, what="a setup")
        daemon.kill()
    daemon.start()
    go.touch()

    daemon.becomes("fix", "done", timeout_s=LONG_S)
    assert (project.path("fix") / "log").read_text() == "once\n"


def test_a_setup_is_begun_once_though_the_daemon_dies_before_it(project: Project, daemon: Daemon) -> None:
    project.configure('[ralph]\nsetup = "echo once >> log"\n')
    daemon.restart(failpoints=["worktree.setup_begun"])
    project.person("start", "--no-autostart", str(project.directory), "--worktree", "fix", "--", "true")
    daemon.died()
    daemon.start()

    if daemon.view("fix")["state"] == "idle":
        daemon.ask("POST", "/v1/ralphs/fix/start", {})

    daemon.becomes("fix", "done", timeout_s=LONG_S)
    assert (project.path("fix") / "log").read_text() == "once\n"


# --- W1: claims -----------------------------------------------------------------------------------------


def has_own_tasks(project: Project, count: int) -> None:
    """Have the list hold ``count`` tasks, and an agent that does the task of its prompt."""
    (project.directory / "TASKS.md").write_text("".join(f"- [ ] task {n}\n" for n in range(count)))
    project.commit()
    agent = project.daemon.root / "agent.py"
    agent.write_text(SHARING_AGENT)
    toml = (project.directory / "ralph.toml").read_text()
    before, _, after = toml.partition("command = ")
    command = json.dumps([player("task_agent")[0], str(agent), str(project.daemon.root / "done")])
    (project.directory / "ralph.toml").write_text(f"{before}command = {command}\n" + after.partition("\n")[2])
    project.commit()


def test_three_ralphs_share_a_list_and_no_task_is_done_twice(project: Project, daemon: Daemon) -> None:
    has_own_tasks(project, 7)

    project.start("--worktree", "all", "--count", "3")

    for name in ("all-1", "all-2", "all-3"):
        daemon.becomes(name, "done", timeout_s=LONG_S)
    done = (daemon.root / "done").read_text().splitlines()
    assert sorted(done) == [f"task {n}" for n in range(7)]


def test_a_list_that_changes_while_it_is_shared_is_done_once(project: Project, daemon: Daemon) -> None:
    has_own_tasks(project, 5)

    project.start("--worktree", "all", "--count", "2")

    for name in ("all-1", "all-2"):
        daemon.becomes(name, "done", timeout_s=LONG_S)
    # Each change is in one copy: what was removed or renamed there is done by the other, once.
    done = (daemon.root / "done").read_text().splitlines()
    assert sorted(done) == [f"task {n}" for n in (0, 1, 2, 3, 4, 7, 8)]


SHARING_AGENT = """
import re, sys
prompt = sys.stdin.read()
number = re.search(r"task (\\d)", prompt)[1]
with open("TASKS.md") as file:
    text = file.read()
if number == "0" and text.count("- [") == 5:
    text = text.replace("- [ ] task 3\\n", "") + "- [ ] task 8\\n"
if number == "1" and text.count("- [") == 5:
    text = text.replace("- [ ] task 4", "- [ ] task 7")
with open("TASKS.md", "w") as file:
    file.write(text.replace(f"- [ ] task {number}", f"- [x] task {number}"))
with open(sys.argv[1], "a") as file:
    file.write(f"task {number}\\n")
print("done")
"""


def test_only_the_tasks_that_were_named_are_done(project: Project, daemon: Daemon) -> None:
    has_own_tasks(project, 3)

    project.start("--worktree", "fix", "--task", "task-1")

    daemon.becomes("fix", "done", timeout_s=LONG_S)
    assert (daemon.root / "done").read_text() == "task 1\n"
    assert daemon.view("fix")["tasks"] == {"done": 1, "total": 1}


# --- W6 -------------------------------------------------------------------------------------------------


def test_beyond_the_limit_of_disk_a_start_is_refused(project: Project, daemon: Daemon) -> None:
    idle(project, "--worktree", "fix")
    daemon.becomes("fix", "done")
    project.person.configures("[worktree]\nmax_total_bytes = 1\n")

    output = project.start("--worktree", "other", "--", "true", code=1)

    assert "no room for the worktree of other" in output and "landed and clean: fix" in output
    assert list(project.trees()) == ["fix"]


def test_a_start_in_a_worktree_waits_for_room_and_starts_when_there_is(
    project: Project, daemon: Daemon
) -> None:
    for name in ("fix", "old"):
        idle(project, "--worktree", name)
        daemon.becomes(name, "done")
    (project.path("old") / "built").write_bytes(bytes(2 << 20))
    project.person.configures("[worktree]\nmax_total_bytes = 1048576\n[regent]\nretry_backoff_seconds = 1\n")
    daemon.restart()  # sizes are known for a minute

    said = project.person("start", "fix")

    view = daemon.view("fix")
    assert said.returncode == 0 and view["wait"]["reason"] == "resources", (said, view)
    why = "0.0 GiB of 1MiB are used ([worktree] max_total_bytes); landed and clean: old"
    assert view["message"] == why
    for words in (("status", "fix"), ("explain", "fix")):
        assert why in " ".join(project.person(*words).stdout.split()), words
    assert project.person("trees", "rm", "old").returncode == 0
    daemon.becomes("fix", "done", timeout_s=LONG_S)


@pytest.mark.parametrize(
    "failpoint", ["worktree.kept", "worktree.unlocked", "worktree.removed", "write.none"]
)
def test_a_killed_removal_is_continued_by_the_same_words(
    project: Project, daemon: Daemon, failpoint: str
) -> None:
    idle(project, "--worktree", "fix")
    daemon.becomes("fix", "done")
    if failpoint != "write.none":
        daemon.restart(failpoints=[failpoint])
        keep = "?keep=true" if failpoint == "worktree.kept" else ""
        daemon.ask_the_dying("DELETE", f"/v1/trees/fix{keep}")
        daemon.start()

    assert project.person("trees", "rm", "fix").returncode == 0

    assert not project.path("fix").exists() and project.trees() == {}
    assert "ralph/fix" not in project.git("branch", "--list")


def test_a_deleted_worktree_of_a_living_ralph_is_reported_once(project: Project, daemon: Daemon) -> None:
    (project.directory / "ralph.toml").write_text("[regent]\nretry_backoff_seconds = 0.05\n")
    project.commit()
    go = daemon.root / "go"
    loop = f"until test -e {go}; do sleep 0.05; done; exit 1"
    project.start("--worktree", "fix", "--", "sh", "-c", loop)
    daemon.becomes("fix", "running")
    subprocess.run(["rm", "-rf", str(project.path("fix"))], check=True)
    go.touch()

    view = daemon.becomes("fix", "failed")

    assert str(project.path("fix")) in view["message"]
    assert [event["data"]["do"] for event in daemon.events("ralph.escalated")] == ["ralphctl start fix"]
    assert project.git("rev-parse", "ralph/fix") == project.git("rev-parse", "main")
    assert project.person("start", "fix").returncode == 0
    assert (project.path("fix") / "TASKS.md").exists()


def test_the_tasks_of_a_removed_ralph_are_done_by_another(project: Project, daemon: Daemon) -> None:
    has_own_tasks(project, 1)
    project.start("--worktree", "all", "--count", "2")
    for name in ("all-1", "all-2"):
        daemon.becomes(name, "done", timeout_s=LONG_S)
    done = daemon.root / "done"
    assert done.read_text() == "task 0\n"
    holder = next(
        name for name in ("all-1", "all-2") if "[x]" in (project.path(name) / "TASKS.md").read_text()
    )
    other = "all-2" if holder == "all-1" else "all-1"

    assert project.person("rm", "-y", holder).returncode == 0
    assert project.person("start", other).returncode == 0

    wait_for(lambda: done.read_text() == "task 0\ntask 0\n", timeout_s=LONG_S, what="the task")
    daemon.becomes(other, "done", timeout_s=LONG_S)
