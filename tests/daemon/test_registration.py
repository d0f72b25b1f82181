"""What the guard cannot do in a repository is told at the start, not by its first verdict (R8)."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import httpx
import pytest

from ralphd.api.app import create_app
from ralphd.config.configuration import Configuration
from ralphd.config.specs import GitSpec, SandboxSpec
from ralphd.daemon import registration
from ralphd.daemon.host import Host
from ralphd.daemon.registration import notes_beside, notes_on, notes_on_gate
from ralphd.errors import ConfigFaults, DirectoryUnusable
from tests.api.serving import serve
from tests.daemon.test_regent_view import a_regent
from tests.git.work_tree import WorkTree
from tests.helpers import eventually, wait_for


def guarded(tests: str = "make test", *, is_on: bool = True) -> Configuration:
    regent = replace(Configuration().regent, rollback_on_test_failure=is_on, test_command=tests)
    return replace(Configuration(), regent=regent)


def test_where_it_would_pause_at_the_first_commit_it_says_so_before(tmp_path: Path) -> None:
    tree = WorkTree.new(tmp_path / "tree")
    tree.commit("first")
    assert notes_on_gate(tree.path, guarded()) == []
    tree.git("checkout", "--quiet", "--detach")
    [note] = notes_on_gate(tree.path, guarded())
    assert note.startswith("the guard will pause Ralph at a commit: HEAD is detached at ")
    assert notes_on_gate(tree.path, guarded(is_on=False)) == []


def test_without_tests_it_is_refused_and_without_a_repository_it_is_off(tmp_path: Path) -> None:
    with pytest.raises(ConfigFaults, match="test_command is not"):
        notes_on_gate(tmp_path, guarded(" "))
    [note] = notes_on_gate(tmp_path, guarded())
    assert note.startswith("the guard is off")


@pytest.mark.parametrize(("level", "is_told"), [("auto", True), ("write", True), ("box", False)])
def test_a_network_that_stays_although_it_was_turned_off_is_told(
    tmp_path: Path, level: Literal["auto", "write", "box"], is_told: bool
) -> None:
    wanted = replace(Configuration(), sandbox=SandboxSpec(level=level, net=False))
    notes = notes_on(tmp_path, wanted, ("true",), {})
    assert [f'[sandbox] level is "{level}"' in each for each in notes if "sandbox.net" in each] == [
        True
    ] * is_told


@pytest.mark.parametrize("git", [GitSpec(auto_push=True), GitSpec(auto_pull_rebase=True)])
def test_a_command_is_neither_pulled_nor_pushed_for_and_that_is_told(tmp_path: Path, git: GitSpec) -> None:
    notes = notes_on(tmp_path, replace(Configuration(), git=git), ("true",), {})
    assert [each for each in notes if "are for the built-in loop" in each]
    assert not [each for each in notes_on(tmp_path, Configuration(), ("true",), {}) if "auto_push" in each]


@contextmanager
def a_directory_that_hangs(monkeypatch: pytest.MonkeyPatch, hanging: Path) -> Iterator[threading.Event]:
    """Have a look at this directory block until the event is set, as on a mount whose server is gone."""
    released, usable = threading.Event(), registration._usable

    def look(directory: Path, state_directory: Path) -> Path:
        if directory == hanging:
            released.wait()
        return usable(directory, state_directory)

    monkeypatch.setattr(registration, "_usable", look)
    try:
        yield released
    finally:
        released.set()
        wait_for(lambda: not checks_under_way(), what="the end of the threads")


def checks_under_way() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("check of ")]


async def test_a_directory_that_hangs_is_refused_while_the_daemon_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    regent, events = await a_regent(tmp_path)
    host = Host(regent._services, cast("Any", None))
    host.ready = True
    hanging, other = tmp_path / "hanging", tmp_path / "other"
    hanging.mkdir()
    other.mkdir()
    app = create_app(host)

    async def register(client: httpx.AsyncClient, directory: Path) -> tuple[int, str]:
        body = {"directory": str(directory), "command": ["true"], "start": False}
        reply = await client.post("/v1/ralphs", json=body)
        return reply.status_code, reply.text

    with a_directory_that_hangs(monkeypatch, hanging) as released:
        async with serve(app, tmp_path / "s") as served:
            monkeypatch.setattr(registration, "CHECK_S", 0.2)
            status, text = await register(served.client, hanging)
            assert (status, f"{hanging} does not answer" in text) == (422, True), text
            assert (await served.client.get("/v1/status")).json()["ralphs"] == []
            monkeypatch.setattr(registration, "CHECK_S", 600.0)
            assert (await register(served.client, hanging))[0] == 422  # at once
            assert len(checks_under_way()) == 1
            assert (await register(served.client, other))[0] == 201
            released.set()
            await eventually(lambda: not checks_under_way())
            assert (await register(served.client, hanging))[0] == 201
            host.stopping.set()
    await host._roster.close()
    await events.close()


def test_a_guard_tells_of_other_ralphs_in_its_work_tree(tmp_path: Path) -> None:
    tree = WorkTree.new(tmp_path / "tree")
    known = {name: tree.path / name for name in ("web", "api", "inner")} | {"far": tmp_path / "far"}
    for path in known.values():
        path.mkdir()
    tree.git("init", "-q", "inner")
    [note] = notes_beside(known["web"], guarded(), known)
    assert note.startswith("api works in the same work tree")
    assert notes_beside(known["web"], guarded(is_on=False), known) == ()
    assert notes_beside(known["far"], guarded(), known) == ()
    assert notes_beside(known["inner"], guarded(), known) == ()


async def test_the_note_on_other_ralphs_is_for_who_registers(tmp_path: Path) -> None:
    regent, events = await a_regent(tmp_path)
    tree = WorkTree.new(tmp_path / "tree")
    tree.commit("first")
    known = {name: tree.path / name for name in ("web", "api")}
    for path in known.values():
        path.mkdir()
    guard = '[regent]\ntest_command = "true"\nrollback_on_test_failure = true\n'
    (known["web"] / "ralph.toml").write_text(guard)
    wanted = registration.Registration(str(known["web"]), ["true"], environment={"PATH": "/usr/bin"})
    checked = registration.candidate(wanted, {"api": known["api"]}, regent._services)
    assert [note for note in checked.notes if note.startswith("api works in the same work tree")]
    await events.close()


async def test_a_check_that_is_over_is_none_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread may take longer to end than the next request to come."""
    leave, run = threading.Event(), threading.Thread.run

    def run_and_stay(thread: threading.Thread) -> None:
        run(thread)
        leave.wait(10)

    regent, events = await a_regent(tmp_path)
    monkeypatch.setattr(threading.Thread, "run", run_and_stay)
    wanted = registration.Registration(str(tmp_path / "gone"), ["true"])
    try:
        for _ in range(2):
            with pytest.raises(DirectoryUnusable, match="cannot be used"):
                await registration.checked(wanted, {}, regent._services)
    finally:
        leave.set()
        await events.close()
