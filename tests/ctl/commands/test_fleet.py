"""``ralphctl fleet``: what its screens say of items."""

from pathlib import Path
from typing import Any

import pytest

from ralphd.core.fleet.model import HostName
from ralphd.core.time import rfc3339
from ralphd.fleet.hub import joining
from tests.ctl.conftest import SEVEN, Ctl
from tests.ctl.fake import Answer, FakeDaemon

DONE = {
    "id": "i-7f3kq2ab", "state": "done", "goal": "running", "holder": None, "why": "", "landed": None,
    "next": "", "repo": "example.com/app", "base": "main", "branch": "ralph/i-7f3kq2ab", "priority": 0,
    "tries": 0, "max_tries": 3, "last": {"host": "rack1", "why": "done", "commit": "8d165f7"}, "by": "me",
    "submitted_at": "2026-11-28T20:00:00Z", "ended_at": "2026-11-28T21:00:00Z",
}  # fmt: skip


FLEET = {"host": "h1", "connected": True, "problem": "", "as_of": None, "hosts": [], "limits": []}


def shown(daemon: FakeDaemon, ctl: Ctl, *words: str, **item: Any) -> str:
    daemon.on("GET /v1/fleet", lambda _: Answer(FLEET | {"items": [DONE | item]}))
    return ctl("fleet", *words).stdout


@pytest.mark.parametrize("screen", ["status", "items"])
def test_an_item_that_ended_at_a_limit_says_so(daemon: FakeDaemon, ctl: Ctl, screen: str) -> None:
    why = "a limit of yours was reached: max_iterations = 2 reached"
    assert f"  {why}; ralph/i-7f3kq2ab is at 8d165f7\n" in shown(daemon, ctl, screen, why=why)
    assert "  ralph/i-7f3kq2ab is at 8d165f7\n" in shown(daemon, ctl, screen)


@pytest.mark.parametrize("screen", ["status", "items", "quota"])
def test_what_is_last_known_is_shown_as_that(daemon: FakeDaemon, ctl: Ctl, screen: str) -> None:
    away = {"connected": False, "problem": "refused", "items": [DONE], "as_of": rfc3339(SEVEN)}
    daemon.on("GET /v1/fleet", lambda _: Answer(FLEET | away))
    words = ctl("fleet", screen).stderr
    assert words.startswith("note: the hub is unreachable, as of ") and words.endswith("refused\n")


def test_who_leaves_sees_what_still_runs(ctl: Ctl, environment: dict[str, str]) -> None:
    fleet = Path(environment["RALPHD_STATE_DIR"]) / "fleet"
    joining.keep(fleet, joining.Joined(HostName("rack1"), hub_host=HostName("hub")))
    (fleet / joining.HOLDS).mkdir()
    (fleet / joining.HOLDS / "i-7f3kq2ab.json").touch()

    lines = ctl("fleet", "leave").stdout.splitlines()

    assert lines[1:] == [
        "  next: ralphctl stop i-7f3kq2ab    (its work is pushed; after the restart it is not)",
        "  next: ralphctl regent restart    (the daemon leaves, too; its runs continue)",
        "  next: ralphctl fleet forget rack1    (on the hub)",
    ]


def test_a_second_init_keeps_what_is_known_of_the_fleet(ctl: Ctl, environment: dict[str, str]) -> None:
    """The way to a new certificate, for example. A hub that loses its store gets the items from there."""
    item = Path(environment["RALPHD_STATE_DIR"]) / "fleet" / joining.ITEMS / "i-7f3kq2ab.json"
    assert ctl("fleet", "init", "127.0.0.1", "--name", "hub").returncode == 0
    item.parent.mkdir()
    item.touch()
    assert ctl("fleet", "init", "127.0.0.1", "--name", "hub").returncode == 0
    assert item.exists()


def test_a_second_init_changes_no_address(ctl: Ctl) -> None:
    assert ctl("fleet", "init", "hub.test", "--name", "hub").returncode == 0

    refused = ctl("fleet", "init", "other.test", "--name", "hub")

    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.splitlines() == [
        "error: init does not change the addresses of the hub: hub.test",
        "  its certificate and the machines that have joined name them",
        "  try: ralphctl fleet init hub.test",
    ]
    assert ctl("fleet", "init").returncode == 0


@pytest.mark.parametrize("words", [("token",), ("forget", "rack1"), ("hub",)])
def test_only_a_hub_lets_machines_join(ctl: Ctl, environment: dict[str, str], words: tuple[str, ...]) -> None:
    what = "error: this machine is not the hub of a fleet"
    assert ctl("fleet", *words).stderr == f"{what}\n  try: ralphctl fleet init, where the hub is to be\n"

    joined = joining.Joined(HostName("rack2"), hub_host=HostName("office"))
    joining.keep(Path(environment["RALPHD_STATE_DIR"]) / "fleet", joined)
    assert ctl("fleet", *words).stderr == f"{what}\n  try: type it on office\n"
