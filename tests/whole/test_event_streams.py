"""A loop of one's own that prints agents' event streams: shown as text, counted, and stored as printed."""

import time
from pathlib import Path

import pytest

from ralphd.core.time import rfc3339
from tests.agents.streams import CODEX, claude, limited
from tests.helpers import wait_for
from tests.terminal import Terminal
from tests.whole.harness import Daemon
from tests.whole.person import Person, argv

BROKEN = ['{"type":"assistant","mess', '{"level":"info"}']
PRINTED = [*(line for pair in zip(claude(), CODEX, strict=False) for line in pair), *BROKEN]
TEXT = [
    "claude: started, claude-opus-5-5",
    "I fixed it.",
    "[Edit] /repo/a.py",
    "[command_execution] make test",
    "claude: finished · $0.11 · 2000 tokens in, 40 out",
    *BROKEN,
]


@pytest.fixture
def person(daemon: Daemon) -> Person:
    return Person(daemon)


def loop(person: Person, name: str, lines: list[str], then: str = "true") -> tuple[Path, list[str]]:
    """A directory, and the command of a loop there that prints the lines, then does something."""
    place = person.directory(name)
    (place / "printed").write_text("".join(f"{line}\n" for line in lines))
    return place, ["sh", "-c", f"cat printed; {then}"]


def done(person: Person, name: str, lines: list[str], then: str = "true") -> None:
    person.starts(*loop(person, name, lines, then))
    person.daemon.becomes(name, "done")


def test_logs_shows_text_and_the_store_keeps_what_was_printed(daemon: Daemon, person: Person) -> None:
    daemon.start()
    done(person, "demo", PRINTED)
    assert person("logs", "demo").stdout.splitlines()[:-1] == TEXT
    assert person("logs", "demo", "-n", "3").stdout.splitlines()[:-1] == BROKEN
    assert "    + x = 2" in person("logs", "demo", "--verbose").stdout.splitlines()
    assert person("logs", "demo", "--raw", "--stream", "stdout").stdout.splitlines() == PRINTED
    assert daemon.ask("GET", "/v1/ralphs/demo/logs?stream=stdout").decode().splitlines() == PRINTED
    assert person("logs", "demo", "-t").stdout.splitlines()[1].endswith("I fixed it.")
    wait_for(lambda: "cost         $0.11\n" in person("cost", "demo").stdout, what="the cost in the history")
    assert "seen in output  $0.11" in person("report", "demo").stdout
    assert person("logs", "demo", "--grep", "x = 2", "--stream", "stdout").stdout == "    + x = 2\n"
    daemon.kill()
    kept = person("logs", "-n", "4", cwd=person.directory())
    assert kept.stdout.splitlines()[:-1] == TEXT[-3:]
    assert "this is the log on disk" in kept.stderr


def test_costs_and_limits_are_seen_in_the_output_and_again_after_a_restart(
    daemon: Daemon, person: Person
) -> None:
    daemon.start()
    resets_at = int(time.time()) + 3600
    place, command = loop(person, "demo", [*PRINTED, *limited("s-2", resets_at)], "sleep 60")
    person.starts(place, command)
    assert daemon.view("demo")["total_cost_usd"] == 0.0
    expected = {
        "agent": "claude", "session_id": "s-2", "cost_usd": 0.11, "tokens_in": 2000, "tokens_out": 40,
        "limit": {"agent": "claude", "name": "five_hour", "resets_at": rfc3339(resets_at)},
    }  # fmt: skip
    wait_for(lambda: daemon.view("demo")["seen"] == expected, timeout_s=20, what="the output counted")
    assert daemon.view("demo")["state"] == "running"
    assert daemon.view("demo")["wait"] is None
    daemon.kill()
    daemon.start()
    wait_for(lambda: daemon.view("demo")["seen"] == expected, timeout_s=20, what="it counted again")
    person("stop", "--now", "demo")


def test_what_a_short_run_printed_is_seen_after_its_end(daemon: Daemon, person: Person) -> None:
    daemon.start()
    done(person, "demo", CODEX)
    seen = wait_for(lambda: daemon.view("demo")["seen"], what="the output counted")
    assert (seen["agent"], seen["session_id"], seen["cost_usd"]) == ("codex", "t-1", None)
    assert person("start", "demo").returncode == 0


def test_a_follower_ends_with_the_ralphs_and_names_them(daemon: Daemon, person: Person) -> None:
    daemon.start()
    for name in ("one", "two"):
        place, command = loop(person, name, ["begun"], "while ! test -e go; do sleep 0.02; done; echo over")
        person.starts(place, command)
    with person.watching("logs", "one", "two", "-f") as process:
        assert process.stdout is not None and process.stderr is not None
        assert {process.stdout.readline() for _ in range(2)} == {b"one | begun\n", b"two | begun\n"}
        for name in ("one", "two"):
            (person.directory(name) / "go").touch()
        printed = process.stdout.read().decode().splitlines()
        assert process.wait(20) == 0
        assert {"one | over", "two | over"} < {*printed}
        assert "two: done" in process.stderr.read().decode()
    both = person("logs", "one", "two").stdout.splitlines()
    assert (
        sorted(line.split(" | ")[1] for line in both if "Regent" not in line) == ["begun"] * 2 + ["over"] * 2
    )
    assert person("logs", "-f", "one", "-n", "0").stdout == ""


def test_a_cost_that_the_run_reports_itself_is_not_counted_twice(daemon: Daemon, person: Person) -> None:
    daemon.start()
    done(person, "demo", PRINTED, "ralphctl notify cost 0.5")
    person("start", "demo")
    wait_for(lambda: kept(daemon).count('"kind":"run"') == 2, what="the end of the second run")
    wait_for(lambda: (daemon.view("demo")["seen"] or {}).get("cost_usd") == 0.11, what="the output counted")
    assert kept(daemon).count('"usd":0.5') == 2
    assert "/seen" not in kept(daemon)


@pytest.mark.parametrize("trusts", ["false", "true"])
def test_costs_in_the_output_end_a_run_only_where_trusted(
    daemon: Daemon, person: Person, trusts: str
) -> None:
    daemon.start()
    place, command = loop(person, "demo", PRINTED, "sleep 600")
    (place / "ralph.toml").write_text(f"[ralph]\nmax_cost_usd = 0.1\ntrust_output = {trusts}\n")
    person.starts(place, command)
    wait_for(lambda: (daemon.view("demo")["seen"] or {}).get("cost_usd") == 0.11, what="the output counted")
    if trusts == "true":
        view = daemon.becomes("demo", "done", timeout_s=30)
        assert (view["total_cost_usd"], "max_cost_usd" in view["message"]) == (0.11, True), view
        return
    daemon.kill()
    daemon.start()  # which looks again at once
    wait_for(lambda: (daemon.view("demo")["seen"] or {}).get("cost_usd") == 0.11, what="it counted again")
    assert (daemon.view("demo")["state"], daemon.view("demo")["total_cost_usd"]) == ("running", 0.0)
    person("stop", "--now", "demo")


def test_trusted_costs_of_short_runs_add_up_to_the_limit(daemon: Daemon, person: Person) -> None:
    daemon.start()
    place, command = loop(person, "demo", PRINTED)
    toml = (
        '[ralph]\nmax_cost_usd = 0.3\ntrust_output = true\nrestart = "always"\niteration_pause_seconds = 0\n'
    )
    (place / "ralph.toml").write_text(toml)
    person.starts(place, command)
    view = daemon.becomes("demo", "done", timeout_s=30)
    assert view["total_cost_usd"] == pytest.approx(0.33) and "max_cost_usd" in view["message"], view
    wait_for(lambda: kept(daemon).count("/seen") == 3, what="the costs in the history")


def kept(daemon: Daemon) -> str:
    return (daemon.files("demo") / "history.jsonl").read_text()


def test_attach_shows_text_on_a_narrow_terminal(daemon: Daemon, person: Person) -> None:
    daemon.start()
    place, command = loop(person, "demo", PRINTED, "while ! test -e go; do sleep 0.02; done")
    person.starts(place, command)
    environment = person.environment | {"TERM": "xterm-256color", "NO_COLOR": "1"}
    with Terminal(
        argv(["attach", "demo", "-n", "100"]), cwd=place, environment=environment, columns=20
    ) as screen:
        screen.shows("I fixed it.")
        screen.shows(BROKEN[1])
        (place / "go").touch()
        assert screen.exit_code() == 0
        assert not any("session_id" in line for line in screen.lines())
