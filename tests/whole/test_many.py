"""Fifty ralphs, and a daemon that is killed: all of them are taken over as they are (P1)."""

import os
import re
import signal
import time

from tests.helpers import is_alive
from tests.whole.harness import Daemon, View

MANY = 50


def register(daemon: Daemon, number: int) -> View:
    place = daemon.home / f"r{number:02d}"
    place.mkdir()
    body = {
        "directory": str(place),
        "command": ["/bin/sleep", "600"],
        "environment": {"PATH": os.environ.get("PATH", os.defpath)},
    }
    return dict(daemon.ask("POST", "/v1/ralphs", body))


def test_fifty_runs_are_adopted_with_the_same_pids(daemon: Daemon) -> None:
    daemon.start()
    before = {view["name"]: view for view in (register(daemon, number) for number in range(MANY))}
    assert len({view["ralph_pid"] for view in before.values()}) == MANY
    daemon.kill()
    began = time.monotonic()
    daemon.start()
    up_s = time.monotonic() - began

    after = {view["name"]: view for view in daemon.status()["ralphs"]}
    kept = ("ralph_pid", "run_id", "started_at", "directory", "command")
    assert {name: [view[key] for key in kept] for name, view in after.items()} == {
        name: [view[key] for key in kept] for name, view in before.items()
    }
    assert {view["state"] for view in after.values()} == {"running"}
    assert all(is_alive(view["ralph_pid"]) for view in after.values())
    assert all(len(daemon.run_directories(name)) == 1 for name in before)
    adopted = [event["ralph"] for event in daemon.events("ralph.adopted")]
    assert sorted(adopted) == sorted(before)
    assert len(daemon.events("ralph.started")) == MANY
    print(f"{MANY} runs: API up after {up_s:.2f} s, {adoption_s(daemon):.2f} s of that their adoption")

    daemon.send(signal.SIGQUIT)
    assert daemon.exit_code() == 0
    assert not daemon.leftovers()


def adoption_s(daemon: Daemon) -> float:
    """From the first to the last word of the log about an adoption."""
    lines = [line for line in (daemon.state / "ralphd.log").read_text().splitlines() if "adopted" in line]
    seconds = [
        int(hour) * 3600 + int(minute) * 60 + float(second)
        for line in lines
        for hour, minute, second in re.findall(r"T(\d\d):(\d\d):([\d.]+)Z", line)
    ]
    return (seconds[-1] - seconds[0]) % 86400
