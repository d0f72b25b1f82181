"""The scenes of the matrix: a daemon that dies at one place, the one after it, and what both must keep."""

import http.client
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from tests.helpers import wait_for
from tests.whole.guarded import Guarded
from tests.whole.harness import Daemon
from tests.whole.witnesses import Witness

T = TypeVar("T")
LONG_S = 40.0
RATE = 50_000


class Dying:
    """A daemon that dies at a failpoint, and is started again without it."""

    def __init__(self, daemon: Daemon, failpoint: str) -> None:
        self.daemon, self.deaths = daemon, 0
        daemon.start(failpoints=[failpoint], unarmed=True)

    def until(self, fact: Callable[[], T], what: str) -> T:
        """Wait for a fact; a daemon that has died is followed by the next one."""

        def looked() -> T | None:
            with suppress(OSError, http.client.HTTPException, AssertionError):
                if answer := fact():
                    return answer
            self.revive()
            return None

        answer = wait_for(looked, timeout_s=LONG_S, what=what)
        assert answer is not None
        return answer

    def revive(self) -> None:
        """Start the next one if this one has died."""
        process = self.daemon._process
        assert process is not None
        if process.poll() is not None:
            self.daemon.died()
            self.deaths += 1
            self.daemon.start()

    def orders(self, path: str, body: Mapping[str, Any], taken: Callable[[], bool]) -> None:
        """Send a request, again after a death before which it was not written down."""

        def sent() -> bool:
            if not taken():
                self.daemon.api("POST", path, body)
            return taken()

        self.until(sent, f"{path} {body}")


def a_day(daemon: Daemon, failpoint: str) -> int:
    """A ralph is registered, crashes, is stopped, started again, and is done. Return the number of deaths.

    Each run is alone, no end is lost or told twice, and the log of a run has each byte.
    """
    witness = Witness.of(daemon)
    dying = Dying(daemon, failpoint)
    daemon.arm()

    def state() -> str:
        return str(daemon.view("demo")["state"])

    def is_known() -> bool:
        return daemon.api("GET", "/v1/ralphs/demo").status == 200 and state() != "idle"

    dying.orders("/v1/ralphs", witness.registration("--output", RATE), is_known)
    dying.until(lambda: len(witness.starts()) == 1, "the first start")
    dying.until(lambda: state() == "running", "the first run")
    witness.end(3)
    dying.until(lambda: len(witness.starts()) == 2 and state() == "running", "the second run")
    dying.orders("/v1/ralphs/demo/stop", {"now": True}, lambda: state() in ("stopping", "stopped"))
    dying.until(lambda: state() == "stopped", "the stop")
    dying.orders("/v1/ralphs/demo/start", {}, lambda: state() not in ("stopped", "idle"))
    dying.until(lambda: len(witness.starts()) == 3 and state() == "running", "the third run")
    witness.end(0)
    dying.until(lambda: state() == "done", "the last end")
    dying.until(lambda: not daemon.status()["daemon"]["problems"], "no problem")

    first, second, third = daemon.history("demo")
    witness.account_is_true(3, -second["signal"] if second["signal"] else second["code"], 0)
    assert second["outcome"] == "asked"
    assert len(witness.starts()) == 3
    for entry in (first, second, third):
        run = daemon.files("demo") / "runs" / entry["run_id"]
        ended = json.loads((run / "exit.json").read_text())
        assert ended["dropped_bytes"] == 0
        if entry is not second:  # which was killed within a write
            assert ended["log_bytes"] == witness.written(run)
    told = [event["type"] for event in daemon.events() if event["ralph"] == "demo"]
    assert [told.count(kind) for kind in ("ralph.started", "ralph.stopped", "ralph.done")] == [3, 1, 1], told
    return dying.deaths


def a_bad_commit(daemon: Daemon, failpoint: str) -> int:
    """A commit that fails its tests is reverted once; nothing else changes. Return the number of deaths."""
    guarded = Guarded.of(daemon)
    guarded.git("init", "-q", "--bare", "../origin")
    guarded.git("remote", "add", "origin", "../origin")
    guarded.git("push", "-q", "-u", "origin", "main")
    guarded.commit("mine")
    (guarded.place / "mine").write_text("not committed\n")
    before = guarded.git("rev-parse", "HEAD")
    dying = Dying(daemon, failpoint)
    if failpoint == "gate.baseline.done":  # the tests before the first run
        daemon.arm()
    guarded.register()
    dying.until(lambda: daemon.view("demo")["state"] == "running", "a run")
    daemon.arm()
    guarded.does(1, "broken", ends="git push -q")
    told = guarded.scripts / "TOLD"
    dying.until(lambda: told.exists() and told.read_text().count("\n") >= 1, "the verdict")
    guarded.ends(0)
    dying.until(lambda: daemon.view("demo")["state"] == "done", "the end")
    dying.until(lambda: not daemon.status()["daemon"]["problems"], "no problem")

    assert guarded.verdict(1)["kind"] == "reverted"
    assert guarded.subjects()[:3] == ['Revert "broken"', "broken", "mine"]
    assert guarded.git("rev-parse", "HEAD~2") == before
    assert guarded.git("rev-parse", "origin/main") == guarded.git("rev-parse", "HEAD")
    assert guarded.git("status", "--porcelain") == "M mine"
    assert (guarded.place / "mine").read_text() == "not committed\n"
    assert guarded.git("stash", "list") == ""
    assert [entry["verdict"] for entry in guarded.judged(1)] == ["reverted"]
    assert (daemon.view("demo")["reverts"], len(daemon.events("commit.reverted"))) == (1, 1)
    assert daemon.events("ralph.escalated") == []
    return dying.deaths
