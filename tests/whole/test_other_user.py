"""Agents of another user than the daemon (docs/container.md), as root: what that user can and cannot do."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from ralphd.process.peer_run import run_of
from ralphd.process.tree import start_ticks
from tests.helpers import wait_for
from tests.whole.harness import Daemon
from tests.whole.person import Person

PYTHON = "/usr/bin/python3"
UID = 65_534
AS_OTHER = ("setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--")
TRIES = """\
umask 022
{{
id -u
cat {state}/ralphs/demo/env && echo read
ls {state} && echo listed
touch {state}/ralphd.sock && echo touched
kill -0 {daemon} && echo signalled
{python} -c 'import socket; socket.socket(socket.AF_UNIX).connect("{state}/ralphd.sock"); print("connected")'
}} 2>errors >out
sleep 1000 & echo $! >child
setsid sleep 1000 & echo $! >leader
mv out done
wait
"""

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None or not Path(PYTHON).exists(),
    reason="needs root, setpriv and a python3 that every user can run",
)


def opened(path: Path) -> None:
    """Let other users pass through the directories above: what is private has to be so by itself."""
    for above in path.parents:
        if above in (Path(tempfile.gettempdir()), Path("/tmp"), Path("/")):
            return
        above.chmod(above.stat().st_mode | 0o011)


def number_in(path: Path) -> int:
    return int(wait_for(lambda: path.exists() and path.read_text().strip(), what=path.name))


@pytest.mark.parametrize("as_agent", [False, True])
def test_an_agent_of_another_user_reaches_nothing_and_is_swept(daemon: Daemon, *, as_agent: bool) -> None:
    person = Person(daemon)
    person.configures('[sandbox]\nlevel = "none"\n')  # so that the uid alone refuses
    daemon.start()
    directory = person.directory()
    os.chown(directory, UID, UID)
    opened(daemon.state)
    script = TRIES.format(state=daemon.state, daemon=daemon.pid, python=PYTHON)
    words = [*AS_OTHER, "/bin/sh", "-c", script]
    if as_agent:
        listed = ", ".join(f"'''{word}'''" for word in words)
        (directory / "ralph.toml").write_text(
            f'[agents]\nprimary = "other"\n[agents.other]\ncommand = [{listed}]\n'
        )
        (directory / "PROMPT.md").write_text("Work.\n")
        said = person("start", str(directory))
        assert said.returncode == 0, said
    else:
        person.starts(directory, words)

    wait_for((directory / "done").exists, timeout_s=30.0, what="the tries")
    assert (directory / "done").read_text().split() == [str(UID)], (directory / "errors").read_text()
    pids = [number_in(directory / name) for name in ("child", "leader")]
    run_id = daemon.view("demo")["run_id"]
    for pid in pids:
        assert run_of(pid, UID, start_ticks(pid), lambda each: each == run_id) == run_id

    assert person("stop", "--now", "demo").returncode == 0
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), what="the sweep")
