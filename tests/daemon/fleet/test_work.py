"""An item on its host: its clone, its worktree, its ralph, against a real host and real processes."""

import asyncio
import json
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ralphd.core.fleet.model import ItemState
from ralphd.core.supervision.events import StopRequested
from ralphd.daemon.fleet.clones import Clones
from ralphd.daemon.fleet.holder import Progress
from ralphd.daemon.fleet.work import RalphWork
from ralphd.errors import RalphdError, UnknownRalph
from ralphd.git.fence.fence import PUSH_URL
from tests.daemon.fleet.stage import BRANCH, LIMIT_S, Stage
from tests.git.work_tree import WorkTree
from tests.helpers import eventually, is_alive


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    place = Path(tempfile.mkdtemp(prefix="fw-"))  # short: players connect to a socket in it
    stage = Stage(place)
    monkeypatch.setenv("HOME", str(place / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    yield stage
    stage.clean_up()


@pytest.fixture
async def hosted(stage: Stage) -> AsyncIterator[Stage]:
    async with stage.running():
        yield stage


async def changed(work: RalphWork) -> Progress:
    async with asyncio.timeout(LIMIT_S):
        return await work.changed()


# --- begin ----------------------------------------------------------------------------------------------


async def test_an_item_begins_at_its_base(hosted: Stage) -> None:
    base = hosted.project.git("rev-parse", "main").strip()

    work = await hosted.begun()

    view = await hosted.view()
    assert (view["branch"], hosted.branch()) == (BRANCH, base)
    assert Path(view["directory"]).is_relative_to(hosted.place / "home")
    assert WorkTree(hosted.clone).git("config", "remote.origin.pushurl").strip() == PUSH_URL
    assert work.fence.directory == hosted.clone


async def test_each_kept_iteration_is_a_change(hosted: Stage) -> None:
    work = await hosted.begun()

    for number in (1, 2):
        hosted.script(number)
        assert await changed(work) == Progress(hosted.branch())
        assert WorkTree(hosted.clone).git("log", "-1", "--format=%s", BRANCH).strip() == f"file-{number}"
    hosted.end()

    assert await changed(work) == Progress(hosted.branch(), ItemState.DONE)


async def test_commits_that_fail_the_tests_are_not_reported(hosted: Stage) -> None:
    hosted.configure('[regent]\ntest_command = "! test -e file-1"\nrollback_on_test_failure = true\n')
    hosted.project.commit("tests")
    base = hosted.push()
    work = await hosted.begun()

    hosted.script(1)
    hosted.script(2)
    progress = await changed(work)

    tree = WorkTree(hosted.clone)
    assert progress.state is None and progress.head != base
    assert tree.git("ls-tree", "--name-only", progress.head, "file-1", "file-2").split() == ["file-2"]


async def test_a_failed_ralph_says_why(hosted: Stage) -> None:
    hosted.configure("[regent]\nmax_retries = 1\n", ("sh", "-c", "exit 3"))
    hosted.project.commit("fails")
    hosted.push()
    work = await hosted.begun()

    progress = await changed(work)

    assert progress.state is ItemState.FAILED and progress.why


async def test_a_person_who_stops_it_holds_the_item(hosted: Stage) -> None:
    work = await hosted.begun()
    await hosted.host.ask("i-7f3k", StopRequested, now=True)

    assert (await changed(work)).state is ItemState.HELD


async def test_an_agent_that_needs_a_person_holds(hosted: Stage) -> None:
    work = await hosted.begun()
    hosted.end(75)

    assert (await changed(work)).state is ItemState.HELD


async def test_a_takeover_continues_at_its_tip(hosted: Stage) -> None:
    agent = hosted.place / "agent.sh"
    agent.write_text(
        f"cat >> {hosted.place}/prompt\nsed -i 's/- \\[ \\]/- [x]/' TASKS.md\n"
        "git commit -qam ticked\necho well\n"
    )
    (hosted.project.path / "ralph.toml").write_text(
        f'[agents]\nprimary = "sheller"\n[agents.sheller]\ncommand = {json.dumps(["sh", str(agent)])}\n'
    )
    (hosted.project.path / "TASKS.md").write_text("- [ ] one\n")
    (hosted.project.path / "PROMPT.md").write_text("Do it.\n")
    hosted.project.commit("a loop")
    hosted.push()
    hosted.project.git("checkout", "-q", "-b", BRANCH)
    hosted.project.commit("of another host")
    tip = hosted.project.git("rev-parse", "HEAD").strip()
    hosted.project.git("push", "-q", "origin", BRANCH)

    work = await hosted.begun(tip, "taken over from h at a commit")
    progress = await changed(work)
    while progress.state is None:
        progress = await changed(work)

    assert progress.state is ItemState.DONE
    assert "taken over from h at a commit" in (hosted.place / "prompt").read_text()
    assert WorkTree(hosted.clone).git("rev-parse", f"{progress.head}~1").strip() == tip


async def test_a_branch_cannot_change_its_rules(hosted: Stage) -> None:
    hosted.project.git("checkout", "-q", "-b", BRANCH)
    hosted.configure("# changed\n")
    hosted.project.commit("rules")
    hosted.project.git("push", "-q", "origin", BRANCH)
    tip = hosted.project.git("rev-parse", "HEAD").strip()

    with pytest.raises(RalphdError, match=r"changes ralph\.toml"):
        await hosted.begun(tip)


async def test_rules_that_the_base_changed_later_hold(hosted: Stage) -> None:
    tip = hosted.project.git("rev-parse", "main").strip()
    hosted.configure("# changed\n")
    hosted.project.commit("rules")
    hosted.push()

    await hosted.begun(tip)

    assert hosted.branch() == tip


async def test_what_an_old_branch_had_stays(hosted: Stage) -> None:
    assert await hosted.work().prepare() == ""
    clone = WorkTree(hosted.clone)
    old = clone.git("commit-tree", "-m", "old", "origin/main^{tree}").strip()
    clone.git("branch", BRANCH, old)

    await hosted.begun()

    assert hosted.branch() == hosted.project.git("rev-parse", "main").strip()
    assert clone.git("for-each-ref", "--format=%(objectname)", "refs/ralph/local").strip() == old


async def test_a_restarted_host_adopts_the_ralph(stage: Stage) -> None:
    async with stage.running():
        await stage.begun()
        pid = await running_pid(stage)
        stage.how = "leave"
    assert is_alive(pid)

    async with stage.running():
        work = await stage.begun()
        assert (await stage.view())["ralph_pid"] == pid
        before = stage.branch()
        stage.script(1)

        while (head := (await changed(work)).head) in ("", before):
            continue
        assert head == stage.branch() and is_alive(pid)
    await eventually(lambda: not is_alive(pid))


async def running_pid(stage: Stage) -> int:
    async with asyncio.timeout(LIMIT_S):
        while not (pid := (await stage.view())["ralph_pid"]):
            await asyncio.sleep(0.02)
    return int(pid)


# --- end ------------------------------------------------------------------------------------------------


async def test_a_stop_ends_its_tree(hosted: Stage) -> None:
    work = await hosted.begun()
    pid = await running_pid(hosted)

    await work.stop(at_once=True)

    assert not is_alive(pid)
    assert (await hosted.view())["state"] == "stopped"


async def test_a_stop_waits_without_events(hosted: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that ends closes its hub first. What waits for an iteration then must not keep it busy."""
    work = await hosted.begun()
    begun = hosted.place / "begun"
    hosted.script(1, f"touch {begun}; while :; do sleep 0.05; done")
    await eventually(begun.exists, what="an iteration")
    looks, look = [0], hosted.host.view_bytes

    async def view_bytes(name: str) -> bytes:
        looks[0] += 1
        assert looks[0] < 100, "it looks again and again, and nothing else runs"
        return await look(name)

    stopping = asyncio.create_task(work.stop(at_once=False))
    while (await hosted.view())["state"] != "stopping":
        await asyncio.sleep(0.02)
    hosted.host.hub.close()
    monkeypatch.setattr(hosted.host, "view_bytes", view_bytes)
    await eventually(lambda: looks[0] or stopping.done(), what="another look")
    stopping.cancel()

    with pytest.raises(asyncio.CancelledError):
        await stopping


async def test_a_stopped_ralph_starts_again(hosted: Stage) -> None:
    work = await hosted.begun()
    await work.stop(at_once=True)

    await work.begin("", "")

    hosted.script(1)
    assert (await changed(work)).head == hosted.branch()


async def test_a_paused_ralph_continues(hosted: Stage) -> None:
    work = await hosted.begun()
    await running_pid(hosted)
    hosted.script(1)
    await changed(work)

    await work.pause()
    hosted.script(2)
    await changed(work)
    await work.resume()
    hosted.script(3)

    assert (await changed(work)).head == hosted.branch()


async def test_uncommitted_files_are_saved_and_kept(hosted: Stage) -> None:
    work = await hosted.begun()
    await work.stop(at_once=True)
    directory = Path((await hosted.view())["directory"])
    (directory / "half").write_text("done")

    tip, files = await work.saved()
    await work.forget()

    assert tip == hosted.branch()
    assert WorkTree(hosted.clone).git("show", f"{files}:half") == "done"
    assert (directory / "half").exists() and await hosted.view()


async def test_what_the_remote_has_is_forgotten(hosted: Stage) -> None:
    work = await hosted.begun()
    hosted.script(1)
    head = (await changed(work)).head
    await work.stop(at_once=True)
    directory = Path((await hosted.view())["directory"])
    (directory / "half").write_text("done")
    _, *files = await work.saved()
    hosted.publish(work, head, *files)

    await work.forget()

    assert not directory.exists()
    with pytest.raises(UnknownRalph):
        await hosted.view()


async def test_commits_that_were_not_pushed_are_kept(hosted: Stage) -> None:
    work = await hosted.begun()
    hosted.script(1)
    await changed(work)
    await work.stop(at_once=True)

    await work.forget()

    assert (await hosted.view())["state"] == "stopped"


async def test_a_remote_that_is_away_keeps_the_ralph(hosted: Stage) -> None:
    await hosted.begun()
    pid = await running_pid(hosted)
    (hosted.place / "app.git").rename(hosted.place / "away")
    work = hosted.work()

    assert await work.prepare()
    await work.begin("", "")
    before = hosted.branch()
    hosted.script(1)

    while (head := (await changed(work)).head) in ("", before):
        continue
    assert head == hosted.branch() and is_alive(pid)


async def test_the_flags_of_an_item_hold(hosted: Stage) -> None:
    await hosted.begun()

    configuration = hosted.host._roster.get("i-7f3k").account.configuration
    assert (configuration.landing.mode, configuration.ralph.max_iterations) == ("off", 50)
    assert not configuration.worktree.follow, "another item of this clone may have another base"


# --- clones ---------------------------------------------------------------------------------------------


async def test_an_interrupted_clone_is_made_again(hosted: Stage) -> None:
    assert await hosted.work().prepare() == ""
    left = hosted.clone.with_name(f".new-{hosted.clone.name}-x")
    hosted.clone.rename(left)

    assert await hosted.work().prepare() == ""

    assert not left.exists() and (hosted.clone / ".git").exists()


async def test_a_second_item_fetches_what_is_new(hosted: Stage) -> None:
    assert await hosted.work().prepare() == ""
    hosted.project.commit("later")
    new = hosted.push()

    assert await hosted.work().prepare() == ""

    assert WorkTree(hosted.clone).git("rev-parse", "origin/main").strip() == new


async def test_a_fetch_runs_no_hook_of_the_clone(hosted: Stage) -> None:
    assert await hosted.work().prepare() == ""
    hook = hosted.clone / ".git" / "hooks" / "reference-transaction"
    hook.parent.mkdir()
    hook.write_text(f"#!/bin/sh\ntouch {hosted.place}/ran\n")
    hook.chmod(0o755)
    hosted.project.commit("later")
    hosted.push()

    assert await hosted.work().prepare() == ""

    assert not (hosted.place / "ran").exists()


async def test_a_repository_without_rules_is_refused(hosted: Stage) -> None:
    hosted.project.git("rm", "-q", "-f", "ralph.toml")
    hosted.project.commit("none")
    hosted.push()

    assert "has no ralph.toml on main" in await hosted.work().prepare()


async def test_a_missing_base_is_refused(hosted: Stage) -> None:
    assert await hosted.work(base="next").prepare() == f"{hosted.url} has no branch next"


@pytest.mark.parametrize("url", ["ext::sh -c touch% x", "-u x", "file:///does/not/exist"])
async def test_a_wrong_remote_is_refused(hosted: Stage, url: str) -> None:
    assert await hosted.work(repo=url).prepare()


async def test_a_silent_remote_is_given_up(hosted: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/app"

        why = await hosted.work(repo=url, limit_s=0.5).prepare()

    assert "did not end within" in why
    assert [each.name for each in (hosted.place / "work/clones").iterdir()] == [".scratch"]


def test_old_clones_go_unless_they_hold_work(stage: Stage) -> None:
    clones = Clones(stage.place / "work/clones", stage.environment, keep=1)
    paths = []
    for name in ("a", "b", "c"):
        stage.project.git("clone", "-q", "--bare", stage.url, str(stage.place / name))
        url = f"file://{stage.place}/{name}"
        paths.append(clones.directory(url))
        clones.ready(paths[-1], url)
        if name == "b":
            tree = WorkTree(paths[-1])
            tree.git("branch", "own", tree.git("commit-tree", "-m", "own", "origin/main^{tree}").strip())

    assert [each.exists() for each in paths] == [False, True, True]


@pytest.mark.parametrize("name", ["a\u2028b", "a\x85b"])
def test_any_name_of_a_branch_can_be_fetched(stage: Stage, name: str) -> None:
    stage.project.git("push", "-q", "origin", f"HEAD:refs/heads/{name}")
    clones = Clones(stage.place / "work/clones", stage.environment)
    clone = clones.directory(stage.url)

    clones.ready(clone, stage.url)

    assert name in WorkTree(clone).git("branch", "-r", "--format=%(refname)")
