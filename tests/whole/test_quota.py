"""One account, several ralphs: one meets the limit, the others wait, one tries first (Q2, Q3, Q6)."""

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ralphd.core.quota import clock as quota
from ralphd.core.quota.model import QuotaClock, QuotaLimit
from ralphd.store.shared.quota import QuotaMember
from tests.helpers import wait_for
from tests.players import player
from tests.whole.harness import Daemon, View
from tests.whole.loops import open_tasks
from tests.whole.person import Person

LONG_S = 40.0
NAMES = ("a", "b", "c")


class OneAccount:
    """The account ``work`` of a scripted agent, and the ralphs that use it."""

    def __init__(self, daemon: Daemon, keys: str = "", place: Path | None = None) -> None:
        self.daemon, self.person = daemon, Person(daemon)
        self.place = place or daemon.root / "account"
        self.place.mkdir(exist_ok=True)
        command = json.dumps(list(player("quota_agent", self.place)))
        self.person.configures(
            f'[agents]\nprimary = "moody@work"\n[agents.moody]\ncommand = {command}\n'
            f'[accounts.work]\nagent = "moody"\nenv = {{ WHO = "~/work" }}\n{keys}\n'
            "[retry]\nreset_margin_seconds = 0\n"
        )

    def limit(self, lasts_s: float) -> float:
        """Let the account be limited from now on; return until when."""
        until = time.time() + lasts_s
        (self.place / "until").write_text(str(until))
        return until

    def resets_in(self, lasts_s: float) -> float:
        """Let the reset come earlier, for the vendor and in the clock; return when."""
        until = self.limit(lasts_s)

        def earlier(clock: QuotaClock) -> QuotaClock:
            assert clock.limit is not None
            return replace(clock, limit=replace(clock.limit, until=until))

        self._change(earlier)
        return until

    def meets_limit(self, lasts_s: float) -> float:
        """Put a limit into the clock, as if a ralph had met it; return until when."""
        now = time.time()
        met = QuotaLimit(now + lasts_s, now, "5-hour limit", "x.1")
        self._change(lambda clock: quota.limit_met(quota.named(clock, "moody", is_stable=True), met))
        return met.until

    def _change(self, change: Callable[[QuotaClock], QuotaClock]) -> None:
        member = QuotaMember(self.daemon.state / "quota", "vendor.1")
        member.change("moody@work", lambda clock: (change(clock), None))
        member.leave()

    def start(self, name: str, tasks: int = 1, toml: str = "") -> Path:
        directory = self.person.directory(name, toml=toml)
        (directory / "TASKS.md").write_text("".join(f"- [ ] task {n}\n" for n in range(tasks)))
        (directory / "PROMPT.md").write_text("Do the next task.\n")
        said = self.person("start", str(directory))
        assert said.returncode == 0, said
        return directory

    def calls(self) -> list[tuple[float, str]]:
        """When the agent was called, and where."""
        if not (self.place / "calls").exists():
            return []
        lines = (self.place / "calls").read_text().splitlines()
        return [(float(at), name) for at, name in map(str.split, lines)]

    def clock(self) -> View:
        """The account as the API shows it."""
        [account] = self.daemon.ask("GET", "/v1/quota")["accounts"]
        return dict(account)

    def waits(self, *names: str) -> None:
        """Wait until these ralphs wait for the account, and their Regents know it."""

        def reached() -> bool:
            waiting = set(names) <= set(self.clock()["waiting"])
            return waiting and all(self.daemon.view(name)["wait"] for name in names)

        wait_for(reached, timeout_s=LONG_S, what=f"waits of {names}")


def test_one_meets_the_limit_the_others_make_no_call_and_one_tries_first(daemon: Daemon) -> None:
    account = OneAccount(daemon)
    daemon.start()
    account.limit(600.0)
    first = account.start("a")
    wait_for(lambda: daemon.view("a")["wait"], timeout_s=LONG_S, what="the wait of a")
    others = [account.start(name) for name in NAMES[1:]]
    account.waits(*NAMES)
    assert daemon.view("a")["checkpoint"]["pause_reason"] == "usage_limit"
    for name in NAMES[1:]:
        view = daemon.view(name)
        assert (view["state"], view["wait"]["reason"]) == ("waiting_for_retry", "usage_limit")
        assert not daemon.run_directories(name)
    why = "(met by a); next after a, b"
    wait_for(lambda: daemon.view("c")["message"].endswith(why), what="the order of starts")
    for words in (("status", "c"), ("explain", "c")):
        shown = " ".join(account.person(*words).stdout.split())
        assert why in shown, shown
    assert [name for _, name in account.calls()] == ["a"]
    assert account.clock()["state"] == "limited" and account.clock()["source"] == "a"
    shown = account.person("quota").stdout
    assert "moody@work" in shown and "met by a" in shown and "waits: a, " in shown
    (account.place / "hold").touch()  # the probe answers when the test says so
    until = account.resets_in(3.0)
    wait_for(lambda: len(account.calls()) == 2, timeout_s=LONG_S, what="the probe")
    wait_for(lambda: account.clock()["state"] == "probing", timeout_s=LONG_S, what="the probe's mark")
    probe = account.calls()[1]
    assert probe[0] >= until
    account.waits(*{*NAMES} - {probe[1]})
    assert len(account.calls()) == 2, "one call for a reset"

    (account.place / "go").touch()
    for name, directory in zip(NAMES, (first, *others), strict=True):
        daemon.becomes(name, "done", timeout_s=LONG_S)
        assert open_tasks(directory) == 0
    assert sorted(name for _, name in account.calls()[1:]) == [*NAMES]
    assert account.clock()["state"] == "open"
    wait_for(lambda: daemon.events("quota.open"), what="the event")
    limited = daemon.events("quota.limited")[0]
    assert limited["data"]["account"] == "moody@work" and limited["data"]["met_by"] == "a"
    assert len(daemon.events("quota.open")) == 1


def test_a_slot_is_free_again_when_its_ralph_was_killed(daemon: Daemon) -> None:
    account = OneAccount(daemon, "slots = 1")
    daemon.start()
    (account.place / "hold").touch()
    account.start("a")
    wait_for(account.calls, timeout_s=LONG_S, what="the first call")
    account.start("b")
    account.waits("b")
    wait, why = daemon.view("b")["wait"], "account moody@work: 1 of 1 slots are in use"
    assert wait == {"reason": why, "until": None}
    state = account.person.directory("b") / ".ralph" / "regent-state.json"
    wait_for(lambda: json.loads(state.read_text())["wait"] == wait, what="the wait in regent-state.json")
    for words in (("status", "b"), ("status", "--all"), ("explain", "b")):
        shown = " ".join(account.person(*words).stdout.split())
        assert why in shown and "limit" not in shown and "until" not in shown, shown
    [event] = [each for each in daemon.events("wait.started") if each["ralph"] == "b"]
    assert event["data"] == {"message": f"Ralph is waiting: {why}"}
    assert account.clock()["working"] == ["a"]

    (account.place / "go").touch()
    os.kill(daemon.view("a")["ralph_pid"], signal.SIGKILL)
    daemon.becomes("b", "done", timeout_s=LONG_S)


def test_only_the_next_for_a_slot_is_started_and_each_gets_its_turn(daemon: Daemon) -> None:
    account = OneAccount(daemon, "slots = 1")
    daemon.start()
    (account.place / "hold").touch()
    account.start("a", tasks=2)
    wait_for(account.calls, timeout_s=LONG_S, what="the first call")
    for name in ("b", "c", "d"):
        account.start(name)
    account.waits("b", "c", "d")
    assert daemon.run_directories("b")  # only a loop gets the slot before a continues
    for name, before in (("c", "b"), ("d", "b, c")):
        why = f"account moody@work: 1 of 1 slots are in use; next after {before}"
        wait_for(lambda n=name, w=why: daemon.view(n)["message"] == w, what=f"the turn of {name}")  # type: ignore[misc]
        view = daemon.view(name)
        assert (view["state"], view["wait"]["reason"]) == ("waiting_for_retry", "resources")
        assert not daemon.run_directories(name)

    (account.place / "go").touch()
    for name in ("a", "b", "c", "d"):
        daemon.becomes(name, "done", timeout_s=LONG_S)
    assert [name for _, name in account.calls()][:2] == ["a", "b"]
    assert sorted(name for _, name in account.calls()) == ["a", "a", "b", "c", "d"]


def test_one_that_runs_already_is_not_stopped_and_a_fallback_starts_it(daemon: Daemon) -> None:
    account = OneAccount(daemon)
    daemon.start()
    account.limit(600.0)
    account.start("a")
    wait_for(lambda: daemon.view("a")["wait"], timeout_s=LONG_S, what="the wait of a")
    free = json.dumps(list(player("task_agent", daemon.root / "moods")))
    directory = account.person.directory(
        "b", toml=f'[agents]\nfallback = ["other"]\n[agents.other]\ncommand = {free}\n'
    )
    (directory / "TASKS.md").write_text("- [ ] task\n")
    (directory / "PROMPT.md").write_text("Do the next task.\n")

    assert account.person("start", str(directory)).returncode == 0

    daemon.becomes("b", "done", timeout_s=LONG_S)
    account.person.starts(account.person.directory("c"), player("sleeper"))
    assert daemon.view("a")["ralph_pid"] and daemon.view("c")["state"] == "running"
    assert [name for _, name in account.calls()] == ["a"]


def test_a_person_skips_the_wait_for_the_account(daemon: Daemon) -> None:
    account = OneAccount(daemon)
    daemon.start()
    account.limit(600.0)
    account.start("a")
    wait_for(lambda: daemon.view("a")["wait"], timeout_s=LONG_S, what="the wait of a")
    account.start("b")
    account.waits("b")
    (account.place / "until").unlink()

    assert account.person("skip-wait", "b").returncode == 0

    for name in ("b", "a"):  # the answer to b opens the account for a
        daemon.becomes(name, "done", timeout_s=LONG_S)
    assert [name for _, name in account.calls()] == ["a", "b", "a"]


def test_a_build_shares_the_clock_and_pauses_without_a_call(daemon: Daemon) -> None:
    account = OneAccount(daemon)
    daemon.start()
    account.limit(600.0)
    account.start("a")
    wait_for(lambda: daemon.view("a")["wait"], timeout_s=LONG_S, what="the wait of a")
    directory = account.person.directory("b")
    (directory / "TASKS.md").write_text("- [ ] task\n")
    (directory / "PROMPT.md").write_text("Do the next task.\n")

    said = account.person("build", cwd=directory, timeout_s=LONG_S)

    assert said.returncode == 75, said
    assert "(met by a)" in " ".join((said.stdout + said.stderr).split())
    assert [name for _, name in account.calls()] == ["a"]


def test_an_expired_login_is_no_limit_of_the_account(daemon: Daemon) -> None:
    account = OneAccount(daemon)
    daemon.start()
    (account.place / "expired").touch()
    account.start("a", tasks=3)
    assert daemon.becomes("a", "failed", timeout_s=LONG_S)["wait"] is None
    (other := daemon.root / "other").mkdir()
    command = json.dumps(list(player("quota_agent", other)))
    account.start("b", toml=f'[agents]\nfallback = ["calm"]\n[agents.calm]\ncommand = {command}\n')

    daemon.becomes("b", "done", timeout_s=LONG_S)

    [call] = daemon.events("ralph.escalated")
    assert call["ralph"] == "a" and "401" in call["data"]["message"], call
    assert [name for _, name in account.calls()] == ["a", "b"]
    assert (account.clock()["state"], account.clock()["working"]) == ("open", [])
    assert not daemon.events("quota.limited")


def test_finished_tasks_give_a_forecast_at_the_next_start(daemon: Daemon) -> None:
    account = OneAccount(daemon)
    daemon.start()
    directory = account.start("a", tasks=3)
    daemon.becomes("a", "done", timeout_s=LONG_S)
    (account.place / "hold").touch()
    (directory / "TASKS.md").write_text("- [ ] one more\n- [ ] and another\n")

    said = account.person("start", "a")

    assert "note: forecast for the open tasks (2): likely cost unknown, " in said.stderr, said
    assert "forecast" not in account.person("status", "a").stdout
    assert "forecast     likely cost unknown, " in account.person("report", "a").stdout
    [report] = json.loads(account.person("report", "a", "--json").stdout)["ralphs"]
    assert (report["forecast"]["open"], report["forecast"]["finished"], report["forecast"]["usd"]) == (
        2,
        3,
        None,
    )


def test_an_unknown_account_is_refused_at_the_start(daemon: Daemon) -> None:
    account = OneAccount(daemon)
    daemon.start()
    directory = account.person.directory("demo", toml='[agents]\nprimary = "moody@home"\n')
    (directory / "PROMPT.md").write_text("Work.\n")
    said = account.person("start", str(directory))
    assert said.returncode == 78
    assert "the account 'home' is not defined" in said.stderr and "[accounts.home]" in said.stderr
    (directory / "ralph.toml").write_text('[accounts.home]\nagent = "moody"\n')
    assert "user's own file" in account.person("start", str(directory)).stderr


def test_without_a_daemon_the_clocks_are_read_from_their_files(daemon: Daemon) -> None:
    account = OneAccount(daemon)
    daemon.start()
    account.limit(600.0)
    account.start("a")
    wait_for(lambda: daemon.view("a")["wait"], timeout_s=LONG_S, what="the wait of a")
    with_daemon = account.person("quota", "--json").stdout
    daemon.kill()
    assert json.loads(account.person("quota", "--json").stdout) == json.loads(with_daemon)


@pytest.fixture
def daemon_is_off(daemon: Daemon) -> Person:
    return Person(daemon)


def test_no_account_is_said_so(daemon_is_off: Person) -> None:
    assert "No account is known" in daemon_is_off("quota").stdout
