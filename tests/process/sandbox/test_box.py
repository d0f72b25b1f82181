"""A run inside bubblewrap: what it can reach, and that it is stopped, reported and counted as any other."""

import os
import shlex
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ralphd.process import shim
from ralphd.process.sandbox.box import Box, resolved, share_socket, why_unavailable, wrapper
from ralphd.process.spawn import Run
from tests.helpers import eventually, is_alive
from tests.process.runs import Stage, output, said

needs_bwrap = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))
CONNECTS = (
    "import os, socket; s = socket.socket(socket.AF_UNIX); s.connect(os.environ['RALPHD_SOCKET'])\n"
    "print('connected', flush=True)"
)
TRAPS = "trap 'echo ending; exit 7' TERM; echo ready; while :; do sleep 0.05; done"


def repository(directory: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", str(directory)], check=True)
    return directory / ".git"


def box_of(stage: Stage, **more: object) -> Box:
    git = repository(stage.home)
    state = stage.home.parent / "state"
    (state / "socket").mkdir(parents=True, exist_ok=True)
    (state / "secret").write_text("x")
    plain = Box(stage.home, (git,), state, readable=(state / "socket",))
    return replace(plain, **more)  # type: ignore[arg-type]


async def boxed(stage: Stage, box: Box, *command: str) -> Run:
    directory = stage.directory()
    spec = replace(stage.spec(directory, command), wrapper=wrapper(box))
    run = await Run.spawn(directory, spec, None)
    stage.started.append(run)
    return run


async def printed(stage: Stage, box: Box, script: str) -> str:
    run = await boxed(stage, box, "/bin/sh", "-c", script)
    record = await run.ended()
    return output(run.directory).decode() + output(run.directory, "stderr").decode() + f"exit {record.code}"


def test_the_words_name_what_is_writable_and_end_before_the_command(tmp_path: Path) -> None:
    box = Box(tmp_path, (), tmp_path / "state", writable=(tmp_path / "cache",), net=False, proxy="http://p:1")
    words = wrapper(box)
    assert words[0].startswith("/") and "--unshare-net" in words  # PATH may be the run's
    assert words[words.index(str(tmp_path / "cache")) - 1] == "--bind-try"
    assert words[words.index("https_proxy") + 1] == "http://p:1"
    assert "--unshare-net" not in wrapper(replace(box, net=True))


def test_a_link_that_a_run_could_have_made_is_not_followed(tmp_path: Path) -> None:
    for name in ("project", "secret", "big", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "project" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "home" / "cache").symlink_to(tmp_path / "big")  # the user's own
    (tmp_path / "big" / "pip").symlink_to(tmp_path / "secret")
    given = ("project", "project/link", "project/link/x", "home/cache", "big/pip", "home/none")

    paths = resolved(str(tmp_path / each) for each in given)

    assert paths == (tmp_path / "project", tmp_path / "big", tmp_path / "home" / "none")


@needs_bwrap
@pytest.mark.parametrize(
    ("script", "refused"),
    [
        ("echo x > .git/hooks/pre-commit", True),
        ("git config core.fsmonitor /bin/false", True),
        ("mv .git .git2", True),
        ("rm -rf .git/hooks", True),
        ("echo x > /etc/profile.d/ralph.sh", True),
        ("cat {state}/secret", True),
        ("echo x > {state}/../runs/x", True),
        ("kill -0 {pid}", True),
        ("test -e /run/user -o -e /run/docker.sock -o -e /var/run/docker.sock", True),
        ("mount -t tmpfs none /mnt", True),
        ("umount {git}/hooks", True),
        ("mount -o remount,rw {git}/config", True),
        ("cat /proc/{pid}/environ", True),
        ("echo x > new && mkdir -p /tmp/mine && echo x > /tmp/mine/y && cat new > /dev/null", False),
        ("git add -A && git -c user.name=a -c user.email=a@b commit --quiet --allow-empty -m x", False),
        ("getent hosts localhost > /dev/null", False),
    ],
)
async def test_in_the_box(stage: Stage, script: str, refused: bool) -> None:
    box = box_of(stage)
    script = script.format(state=shlex.quote(str(box.hidden)), pid=os.getpid(), git=box.git[0])
    text = await printed(stage, box, script)
    assert text.endswith("exit 0") is not refused, text


@needs_bwrap
async def test_it_is_asked_to_end_and_has_its_time(stage: Stage) -> None:
    run = await boxed(stage, box_of(stage), "/bin/sh", "-c", TRAPS)
    await said(run.directory, b"ready")
    run.terminate()
    assert (await run.ended()).code == 7
    assert b"ending" in output(run.directory)


@needs_bwrap
async def test_a_command_with_signals_of_its_own_gets_them_alone(stage: Stage) -> None:
    script = "trap 'echo paused' USR1; " + TRAPS
    run = await boxed(stage, box_of(stage), "/bin/sh", "-c", script)
    await said(run.directory, b"ready")
    run.directory.note_signals()
    run.pass_on(signal.SIGUSR1)
    await said(run.directory, b"paused")
    run.terminate()
    assert (await run.ended()).code == 7


@needs_bwrap
async def test_its_processes_are_found_from_outside_and_none_survives(stage: Stage) -> None:
    script = "setsid sleep 100 & (setsid setsid sleep 101 &) ; echo ready; exec sleep 102"
    run = await boxed(stage, box_of(stage), "/bin/sh", "-c", script)
    await said(run.directory, b"ready")
    record = run.record
    assert record is not None
    pids = await eventually(
        lambda: [pid for pid in shim.below(record.shim_pid) if b"sleep" in shim.arguments(pid)[:6]],
        what="three processes",
    )
    found = await eventually(
        lambda: [pid for pid in shim.below(record.shim_pid) if shim.arguments(pid)[:6] == b"sleep\0"],
        what="the processes",
    )
    assert pids and set(found) <= set(shim.carriers(record.run_id))
    adopted = Run.adopt(run.directory)  # as the next daemon does
    assert adopted is not None and (await adopted.ready()) is not None
    adopted.kill_tree()
    assert (await adopted.ended()).code != 0
    assert not any(map(is_alive, found))


@needs_bwrap
async def test_a_report_reaches_each_next_daemon_whose_socket_is_a_new_one(
    stage: Stage, tmp_path: Path
) -> None:
    place = tmp_path / "d.sock"
    box = box_of(stage, net=False, socket=tmp_path / "box" / "d.sock")
    for _ in range(2):
        place.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(place))
            listening.listen()
            assert share_socket(place) == share_socket(place) == box.socket
            script = f"{shlex.quote(sys.executable)} -c " + shlex.quote(CONNECTS)
            assert "connected" in await printed(stage, box, script)
    assert [each.name for each in (tmp_path / "box").iterdir()] == ["d.sock"]


@needs_bwrap
async def test_without_net_only_its_own_loopback_is_there(stage: Stage) -> None:
    text = await printed(stage, box_of(stage, net=False), "cat /proc/net/dev | grep -c :")
    assert text.startswith("1\n"), text


@needs_bwrap
async def test_a_command_that_does_not_exist_ends_as_in_a_shell(stage: Stage) -> None:
    run = await boxed(stage, box_of(stage), "no-such-command")
    assert (await run.ended()).code == 127
    assert b"no-such-command" in output(run.directory, "stderr")
