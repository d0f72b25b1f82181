"""What a branch gets from other branches, by its agent or by ralphd, is never reverted on it (R2, R5, M7)."""

import json
from dataclasses import replace

import pytest

from tests.helpers import wait_for
from tests.players import agents
from tests.whole.guarded import TESTS, Guarded
from tests.whole.harness import Daemon

BOTH: str = f"{TESTS} && ! {{ test -e a && test -e b && ! test -e fix; }}"
"""Red with ``a`` of main and ``b`` of the branch, unless there is a ``fix``."""


@pytest.fixture
def main(daemon: Daemon) -> Guarded:
    return Guarded.of(daemon)


@pytest.fixture
def branch(daemon: Daemon, main: Guarded) -> Guarded:
    """A ralph's work tree on ``ralph/demo``, with a judged ``b``, while main gets ``a``."""
    branch = replace(main, place=daemon.home / "tree")
    main.git("worktree", "add", "-q", "-b", "ralph/demo", str(branch.place))
    daemon.start()
    branch.register(tests=BOTH)
    branch.does(1, "b")
    assert branch.verdict(1)["kind"] == "kept"
    main.commit("a")
    return branch


def lands(main: Guarded) -> None:
    """Merge the branch, as it is, into main: what main had is still there."""
    main.git("merge", "-q", "--no-edit", "ralph/demo")
    assert (main.place / "a").exists(), main.git("log", "--graph", "--oneline")


def test_a_red_merge_is_taken_off_the_branch(daemon: Daemon, main: Guarded, branch: Guarded) -> None:
    began = branch.git("rev-parse", "HEAD")
    branch.does(2, script="git merge -q --no-edit main")
    gone = branch.verdict(2)
    assert branch.git("rev-parse", "HEAD") == began
    assert (gone["kind"], gone["task"]["id"]) == ("reverted", "t2")
    assert f"so the branch is back at {began[:7]}" in gone["why"]
    [entry] = branch.judged(2)[1:]
    assert branch.git("rev-parse", entry["refs"][0]) == gone["reverted"][0]
    assert branch.said()[-1] == f"Tests failed ❌ — taking commit {gone['reverted'][0][:7]} off the branch"
    lands(main)

    branch.does(3, "fix", script="git merge -q --no-edit main")
    assert branch.verdict(3)["kind"] == "kept"
    assert not daemon.events("ralph.escalated")


@pytest.mark.parametrize("how", ["merge -q --no-edit", "rebase -q"])
def test_only_its_own_commits_on_top_are_reverted(main: Guarded, branch: Guarded, how: str) -> None:
    began = branch.git("rev-parse", "HEAD")
    branch.does(2, "fix", "broken", script=f"git {how} main")
    gone = branch.verdict(2)
    assert gone["kind"] == "reverted"
    if how.startswith("merge"):
        assert [branch.subject(sha) for sha in gone["reverted"]] == ["broken"]
        assert (branch.place / "a").exists()
    else:
        assert branch.git("rev-parse", "HEAD") == began, "HEAD did not lead back to it"
    lands(main)


def test_what_main_had_is_not_reverted_after_a_fast_forward(main: Guarded, branch: Guarded) -> None:
    main.git("merge", "-q", "--no-edit", "ralph/demo")
    began = branch.git("rev-parse", "HEAD")
    branch.does(2, "mine", script="git merge -q --ff-only main")
    assert branch.verdict(2)["kind"] == "reverted"
    assert branch.git("rev-parse", "HEAD") == began
    main.git("merge", "-q", "--no-edit", "ralph/demo")
    assert (main.place / "a").exists()


def test_a_branch_that_went_back_is_restored_by_undo(daemon: Daemon, branch: Guarded) -> None:
    branch.does(2, "broken", script="git merge -q --no-edit main")
    left = branch.verdict(2)["reverted"]
    branch.does(3, "more")
    branch.verdict(3)
    branch.ends(0)
    daemon.becomes("demo", "done")
    done = daemon.ask("POST", "/v1/ralphs/demo/undo", {"iteration": 2})
    assert [each["sha"] for each in done["commits"]] == left, "not that of iteration 3"
    assert branch.subjects()[:3] == ["more", "broken", "Merge branch 'main' into ralph/demo"]


def test_where_it_is_pushed_a_person_is_called(daemon: Daemon, branch: Guarded) -> None:
    """And the night continues: the next iteration is judged with it."""
    branch.git("init", "-q", "--bare", str(daemon.home / "origin"))
    branch.git("remote", "add", "origin", str(daemon.home / "origin"))
    branch.does(2, script="git merge -q --no-edit main && git push -q -u origin HEAD")
    stays = branch.verdict(2)
    assert (stays["kind"], branch.told(2)["next"]) == ("untested", "continue")
    assert "nothing of that is reverted" in stays["why"]
    assert len(daemon.events("ralph.escalated")) == 1
    branch.does(3, "fix")
    assert branch.verdict(3)["kind"] == "kept"


@pytest.mark.parametrize(
    "place",
    ["guard.left_kept", "guard.move.begun", "guard.move.branch", "gate.restore.ordered", "gate.restore.done"],
)
def test_a_branch_goes_back_once_wherever_the_daemon_dies(
    daemon: Daemon, main: Guarded, branch: Guarded, place: str
) -> None:
    began = branch.git("rev-parse", "HEAD")
    daemon.restart(failpoints=[place])
    branch.does(2, script="git merge -q --no-edit main")
    daemon.died()
    daemon.start()
    assert branch.verdict(2)["kind"] == "reverted"
    assert branch.git("rev-parse", "HEAD") == began
    assert branch.git("status", "--porcelain") == ""
    assert len(branch.judged(2)) == 2
    lands(main)


# --- M7: what landed comes to the other branches ------------------------------------------------------------


@pytest.fixture
def tree(daemon: Daemon, main: Guarded) -> Guarded:
    """The ralph ``demo`` in a worktree of ralphd, and a branch ``side`` of somebody else with ``a``."""
    (main.place / "ralph.toml").write_text(f"[regent]\ntest_command = '''{TESTS}'''\ntest_retries = 0\n")
    (main.place / "PLAN.md").write_text("- [ ] one\n- [ ] two\n")
    main.git("add", "-A")
    main.commit("more")
    main.git("switch", "-q", "-c", "side")
    (main.place / "PLAN.md").write_text("- [x] one\n- [ ] two\n")
    main.git("add", "-A")
    main.commit("a")
    main.git("switch", "-q", "main")
    daemon.start()
    main.register(route="/v1/trees", tests=BOTH)
    return replace(main, place=daemon.home / ".local/share/ralphd/trees/demo/demo")


def land(tree: Guarded, branch: str = "side") -> None:
    daemon = tree.daemon
    number = daemon.ask("POST", "/v1/landing", {"ralph": "demo", "branch": branch})["number"]
    ended = ("landing.landed", "landing.refused")
    ends = wait_for(
        lambda: [e for e in daemon.events() if e["type"] in ended and e["data"]["number"] == number],
        timeout_s=30.0,
        what=f"the end of {number}: {daemon.words()[-3000:]}",
    )
    assert [each["type"] for each in ends] == ["landing.landed"], ends


def test_what_landed_is_merged_before_the_next_iteration(
    daemon: Daemon, main: Guarded, tree: Guarded
) -> None:
    tree.does(1, "mine", script="sed -i '2s/ \\]/x]/' PLAN.md && git add -A")
    tree.verdict(1)
    land(tree)
    tip = main.git("rev-parse", "main")
    tree.does(2, "two")
    assert tree.verdict(2)["kind"] == "kept"
    merged = tree.git("rev-parse", "HEAD")
    assert tree.subjects()[0] == "Merge branch 'main'"
    assert (tree.place / "a").exists() and tree.git("status", "--porcelain", "-uno") == ""
    assert (tree.place / "PLAN.md").read_text() == "- [x] one\n- [x] two\n"
    [event] = daemon.events("landing.followed")
    assert event["data"]["message"] == f"merged main {tip[:7]} (2 commits) before the next iteration"

    tree.does(3, "broken")
    gone = tree.verdict(3)
    assert (gone["kind"], [tree.subject(sha) for sha in gone["reverted"]]) == ("reverted", ["broken"])
    assert tree.git("rev-parse", "HEAD~2") == merged
    assert len(daemon.events("landing.followed")) == 1


def test_a_red_merge_is_not_blamed_on_the_next_iteration(daemon: Daemon, tree: Guarded) -> None:
    tree.does(1, "b")
    tree.verdict(1)
    land(tree)
    tree.does(2, "two")
    assert tree.verdict(2)["kind"] == "kept"
    assert daemon.view("demo")["guard"]["baseline"] == "red"
    tree.does(3, "three")
    assert tree.verdict(3)["why"].endswith("were not green before: nothing is blamed on these commits")
    tree.does(4, "fix")
    assert tree.verdict(4)["kind"] == "kept"
    assert daemon.events("ralph.escalated") == []


def test_uncommitted_work_is_left_alone_and_merged_into_later(tree: Guarded) -> None:
    tree.does(1, "mine")
    tree.verdict(1)
    land(tree)
    tree.does(2, "two", ends="echo more >>mine")
    tree.verdict(2)
    assert (tree.subjects()[0], (tree.place / "mine").read_text()) == ("two", "mine\nmore\n")
    tree.does(3, script="git commit -q -a -m three")
    tree.verdict(3)
    assert tree.subjects()[0] == "Merge branch 'main'"


@pytest.mark.parametrize("follow", [True, False])
def test_without_a_guard_it_is_merged_before_a_start(
    daemon: Daemon, main: Guarded, tree: Guarded, follow: bool
) -> None:
    began = tree.git("rev-parse", "HEAD")
    tree.ends(0)
    daemon.becomes("demo", "done")
    main.git("init", "-q", "--bare", str(daemon.home / "origin"))
    main.git("remote", "add", "origin", str(daemon.home / "origin"))
    main.git("push", "-q", "-u", "origin", "main")
    land(tree)
    flags = {"regent.rollback_on_test_failure": False, "worktree.follow": follow}
    daemon.ask("POST", "/v1/ralphs/demo/start", {"flags": flags})
    daemon.becomes("demo", "running")
    assert (tree.git("rev-parse", "HEAD") != began) is follow
    assert main.git("rev-parse", "origin/main") == (
        tree.git("rev-parse", "HEAD") if follow else main.git("rev-parse", "main")
    )


def test_a_branch_without_commits_of_its_own_is_moved_forward(main: Guarded, tree: Guarded) -> None:
    land(tree)
    tree.does(1)
    tree.verdict(1)
    assert tree.git("rev-parse", "HEAD") == main.git("rev-parse", "main")


PLACES = ("follow.noted", "guard.move.begun", "guard.move.tree", "guard.move.branch", "follow.merged")


@pytest.mark.parametrize("place", [*PLACES, "gate.tests_run"])
def test_a_merge_is_whole_or_not_there_wherever_the_daemon_dies(
    daemon: Daemon, main: Guarded, tree: Guarded, place: str
) -> None:
    tree.does(1, "mine")
    tree.verdict(1)
    land(tree)
    daemon.kill()
    daemon.start(failpoints=[place], unarmed=True)
    daemon.arm()
    tree.does(2)  # without a commit, so that the first tests are those of the merge
    daemon.died()
    daemon.start()
    tree.verdict(2)
    assert tree.git("status", "--porcelain", "-uno") == ""
    tree.does(3, "broken")
    assert [tree.subject(sha) for sha in tree.verdict(3)["reverted"]] == ["broken"]
    assert tree.git("merge-base", "main", "HEAD") == main.git("rev-parse", "main")
    assert [each for each in tree.subjects() if each.startswith("Merge")].count("Merge branch 'main'") == 1


def test_a_conflict_is_the_next_task_once(daemon: Daemon, main: Guarded) -> None:
    """And a merge after which the tests fail: the built-in loop gets both as tasks."""
    (main.place / "ralph.toml").write_text(f"[regent]\ntest_command = '''{TESTS}'''\ntest_retries = 0\n")
    (main.place / "fix_plan.md").write_text("- [ ] one\n- [ ] two\n")
    (main.place / "PROMPT.md").write_text("Do the next task.\n")
    (main.place / ".gitignore").write_text(".ralph/\n")
    main.git("add", "-A")
    main.commit("more")
    for side in ("mine", "a"):
        main.git("switch", "-q", "-c", f"side-{side}", "main")
        main.commit(side)
    main.git("switch", "-q", "main")
    go, script = daemon.home / "go", daemon.root / "script.json"
    wait = f"until test -e {go}; do sleep 0.05; done; rm {go}"
    tick = "sed -i '0,/\\[ \\]/s//[x]/' fix_plan.md && git add -A && git commit -q -m"
    runs = (
        f"{wait}; echo other >mine; echo >b; {tick} one",
        "git merge -q -X ours --no-edit main",
        f"{wait}; echo >more; {tick} two",
        "echo >fix; git add -A; git commit -q -m fix",
    )
    agents.write_script(script, [{"do": "claim", "runs": each, "says": "done"} for each in runs])
    programs = agents.install(daemon.root / "bin", ["claude"])
    daemon.start()
    main.register(
        route="/v1/trees",
        tests=BOTH,
        own_loop=agents.environment(programs, script),
    )
    for side, count in (("mine", 1), ("a", 3)):
        wait_for(lambda count=count: len(agents.calls(script)) == count, timeout_s=30.0, what="an agent")  # type: ignore[misc]
        land(main, f"side-{side}")
        go.touch()
    daemon.becomes("demo", "done", timeout_s=60.0)
    tasks = [each["text"] for each in json.loads((daemon.files("demo") / "inbox.json").read_text())["tasks"]]
    assert [text.partition("; ")[0].partition(" ")[2].partition(" ")[2] for text in tasks] == [
        "does not merge into ralph/demo: conflict in mine",
        "was merged into ralph/demo, and the tests fail since then: find out why and fix it",
    ]
    prompts = [call.prompt for call in agents.calls(script)]
    assert [text in prompts[at] for text, at in zip(tasks, (1, 3), strict=True)] == [True, True]
    assert [each["verdict"] for each in daemon.history("demo", "verdict")] == ["kept"] * 4
