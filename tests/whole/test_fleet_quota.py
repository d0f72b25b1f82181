"""One account on two machines with daemons of their own, and a real hub: one limit, one probe (Q2, Q3)."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers import wait_for
from tests.whole.harness import daemon_in
from tests.whole.test_fleet import a_hub, joins
from tests.whole.test_quota import LONG_S, OneAccount


@dataclass
class TwoMachines:
    """The account as each machine uses it."""

    one: OneAccount
    two: OneAccount

    @property
    def calls(self) -> list[str]:
        """Which ralphs called, in order."""
        return [name for _, name in self.one.calls()]

    def both_know(self) -> None:
        """Wait until the second machine knows the limit of the first one."""

        def knows() -> bool:
            accounts = self.two.daemon.ask("GET", "/v1/quota")["accounts"]
            return any(each["state"] != "open" for each in accounts)

        wait_for(knows, timeout_s=LONG_S, what="the limit on the second machine")


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[TwoMachines]:
    with daemon_in(tmp_path / "one") as one, daemon_in(tmp_path / "two") as two, a_hub(one):
        joins(one, two, "h2")
        accounts = [OneAccount(each, place=tmp_path / "account") for each in (one, two)]
        for each in (one, two):
            each.start()
            wait_for(lambda d=each: d.ask("GET", "/v1/fleet")["connected"], what="the hub")  # type: ignore[misc]
        yield TwoMachines(*accounts)
        for each in (one, two):
            assert "a task failed" not in (each.state / "ralphd.log").read_text()


def test_a_limit_of_one_machine_holds_on_the_other(machines: TwoMachines) -> None:
    one, two = machines.one, machines.two
    one.limit(600.0)
    one.start("a")
    machines.both_know()
    two.start("b")
    two.waits("b")

    assert machines.calls == ["a"]
    view = two.daemon.view("b")
    assert (view["state"], view["wait"]["reason"]) == ("waiting_for_retry", "usage_limit")
    assert not two.daemon.run_directories("b")
    for words in (("quota",), ("status", "b"), ("explain", "b")):
        shown = _typed(two, *words)
        assert "met by host h1" in shown, (words, shown)
    [limit] = one.daemon.ask("GET", "/v1/fleet")["limits"]
    assert (limit["agent"], limit["account"], limit["by"]) == ("moody", "work", "h1")
    [event] = wait_for(lambda: two.daemon.events("quota.limited"), what="the event")
    assert event["data"]["met_by"] == "host h1"

    (one.place / "until").unlink()
    assert two.person("skip-wait", "b").returncode == 0
    two.daemon.becomes("b", "done", timeout_s=LONG_S)
    one.daemon.becomes("a", "done", timeout_s=LONG_S)  # the answer to b opened the account there, too
    assert machines.calls == ["a", "b", "a"]


def test_one_machine_probes_after_the_reset(machines: TwoMachines) -> None:
    one, two = machines.one, machines.two
    (one.place / "hold").touch()  # the probe answers when the test says so
    until = one.meets_limit(3.0)
    machines.both_know()
    one.start("a")
    two.start("b")
    wait_for(lambda: machines.calls, timeout_s=LONG_S, what="the probe")
    [(at, prober)] = one.calls()
    assert at >= until
    host, other, name = ("h1", two, "b") if prober == "a" else ("h2", one, "a")
    why = f"host {host} tries it first"
    wait_for(lambda: why in _typed(other, "status", name), timeout_s=LONG_S, what=why)
    assert why in _typed(other, "quota")
    assert machines.calls == [prober], "one call for a reset in the whole fleet"

    (one.place / "go").touch()
    one.daemon.becomes("a", "done", timeout_s=LONG_S)
    two.daemon.becomes("b", "done", timeout_s=LONG_S)
    assert sorted(machines.calls) == ["a", "b"]
    wait_for(lambda: not one.daemon.ask("GET", "/v1/fleet")["limits"], what="the open account")


def _typed(account: OneAccount, *words: str) -> str:
    return " ".join(account.person(*words).stdout.split())
