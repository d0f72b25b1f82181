"""What a person reads when a configuration has changed, and when it is taken up."""

from typing import Any

import pytest

from ralphctl.format import status_text
from ralphctl.format.state_text import drift_rows
from tests.ctl.conftest import Ctl
from tests.ctl.fake import Answer, FakeDaemon, problem, view

NOW = 1795244400.0
DRIFT = {"key": "regent.max_retries", "pinned": "3", "now": "5", "origin": "ralph.toml:2"}
CHANGE = {"key": "regent.max_retries", "was": "3", "becomes": "5", "origin": "ralph.toml:2"}


def reloaded(when: str, changes: list[dict[str, Any]], **ralph: Any) -> dict[str, Any]:
    return {"ralph": view(**ralph), "changes": changes, "when": when}


def test_status_says_what_differs_and_how_to_take_it_up() -> None:
    said = status_text.ralph(view(drift=[DRIFT]), NOW)

    assert (
        "  changed      the configuration was changed; to have it from the next run on: ralphctl reload api"
        in said
    )
    assert "regent.max_retries (ralph.toml:2) = 5, was 3" in said


def test_a_key_that_is_set_now_or_not_any_more_says_so() -> None:
    (_, new, gone) = drift_rows(view(drift=[{**DRIFT, "pinned": None}, {**DRIFT, "now": None}]))

    assert new.endswith("= 5, was not set")
    assert gone.endswith("= not set, was 3")


def test_a_fault_is_told_as_one_and_no_reload_is_offered() -> None:
    rows = drift_rows(view(drift=[{"fault": "ralph.toml:2: is not TOML"}]))

    assert rows == [
        "the configuration was changed and is not right now; until it is, nothing changes:",
        "  ralph.toml:2: is not TOML",
    ]


def test_somebody_elses_text_cannot_move_the_terminal() -> None:
    rows = drift_rows(view(drift=[{"fault": "\x1b[2Jx\ny"}, {"fault": "b"}]))

    assert rows[1] == "  ^[[2Jx^Jy"


def test_more_than_a_person_reads_is_left_to_json() -> None:
    rows = drift_rows(view(drift=[{**DRIFT, "key": f"agents.a{number}.model"} for number in range(40)]))

    assert len(rows) == 8
    assert rows[-1] == "  and 34 more: ralphctl --json status api"


def test_a_view_without_drift_says_nothing_of_it() -> None:
    assert "changed" not in status_text.ralph(view(), NOW)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "running* for 2h 13m"),
        ({"state": "idle"}, "idle*, never started"),
        ({"state": "failed", "finished_at": None}, "failed*: "),
    ],
)
def test_the_table_marks_a_state_with_a_star_and_explains_it(changes: dict[str, Any], said: str) -> None:
    shown = status_text.table([view(drift=[DRIFT], **changes), view("other")], NOW, columns=100)

    assert said in shown.splitlines()[1]
    assert "*" not in shown.splitlines()[2]
    assert "* its configuration was changed since it was started: ralphctl status api" in shown


def test_reload_prints_what_changes_and_when(daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.views = {"api": view()}
    daemon.on("POST /v1/ralphs/api/reload", lambda request: Answer(reloaded("next_run", [CHANGE]), 202))

    said = ctl("reload", "api")

    assert said.stdout.splitlines() == [
        "api: 1 change, from the next run on",
        "  regent.max_retries (ralph.toml:2) = 5, was 3",
        "  next: ralphctl restart api  (begin the next run now)",
    ]
    assert ctl("--json", "reload", "api").stdout.startswith('{"ralph"')


def test_reload_of_a_ralph_at_rest_holds_at_once(daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.views = {"api": view(state="stopped")}
    daemon.on("POST /v1/ralphs/api/reload", lambda request: Answer(reloaded("now", [CHANGE]), 202))

    assert ctl("reload").stdout.splitlines()[0] == "api: 1 change, from now on"


def test_a_reload_during_a_wait_says_that_the_wait_is_as_long_as_before(daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.views = {"api": view(state="waiting_for_retry")}
    waiting = reloaded("now", [CHANGE], state="waiting_for_retry")
    daemon.on("POST /v1/ralphs/api/reload", lambda request: Answer(waiting, 202))

    said = ctl("reload", "api").stdout.splitlines()

    assert said[0] == "api: 1 change, from now on"
    assert said[-1] == "  next: ralphctl skip-wait api  (the wait under way keeps its end)"


def test_reload_says_when_nothing_has_changed(daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.views = {"api": view()}
    daemon.on("POST /v1/ralphs/api/reload", lambda request: Answer(reloaded("next_run", []), 202))

    assert ctl("reload", "api").stdout == "api: nothing has changed\n"


def test_reload_with_faults_ends_with_78_and_all_of_them(daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.views = {"api": view()}
    refused = problem(
        "configuration", 422, "api is not reloaded: 2 faults", "ralph.toml:1: a\nralph.toml:2: b"
    )
    daemon.on("POST /v1/ralphs/api/reload", lambda request: refused)

    said = ctl("reload", "api")

    assert said.returncode == 78
    assert "ralph.toml:1: a" in said.stderr and "ralph.toml:2: b" in said.stderr


def test_regent_reload_says_what_holds_and_what_waits_for_the_ralphs(daemon: FakeDaemon, ctl: Ctl) -> None:
    logs = {"key": "logs.total_bytes", "was": "1", "becomes": "2", "origin": "config.toml:2"}
    daemon.on("POST /v1/reload", lambda request: Answer({"daemon": daemon.daemon(), "changes": [logs]}))
    assert ctl("regent", "reload").stdout.splitlines()[1:] == [
        "  logs.total_bytes (config.toml:2) = 2, was 1"
    ]

    daemon.on("POST /v1/reload", lambda request: Answer({"daemon": daemon.daemon(), "changes": [CHANGE]}))
    assert "next: ralphctl reload NAME" in ctl("regent", "reload").stdout


def test_regent_status_gives_each_line_of_a_problem_one_of_its_own(daemon: FakeDaemon, ctl: Ctl) -> None:
    trouble = (
        "the user's configuration: 1 fault in the configuration\n  /home/x/config.toml:2: is no\x1b[31m TOML"
    )
    about = daemon.daemon() | {"status": "degraded", "problems": [trouble]}
    daemon.on("GET /v1/status", lambda _: Answer({"daemon": about, "ralphs": []}))

    shown = ctl("regent", "status").stdout.splitlines()

    assert "  problem   the user's configuration: 1 fault in the configuration" in shown
    assert "              /home/x/config.toml:2: is no^[[31m TOML" in shown


def test_regent_reload_without_a_daemon_ends_with_3(ctl: Ctl) -> None:
    assert ctl("regent", "reload").returncode == 3


def test_the_table_has_columns_for_resources_when_they_are_asked_for() -> None:
    used = {"cpu_s": 754.2, "rss_bytes": 91_000_000, "processes": 3}
    shown = status_text.table(
        [view(resources=used), view("other", resources=None)], NOW, columns=120
    ).splitlines()

    assert shown[0].split()[-4:] == ["CPU", "TIME", "MEMORY", "PROCESSES"]
    assert shown[1].endswith("12m 34s   91 MB   3")
    assert all(len(line) <= 120 for line in shown)
    assert "CPU" not in status_text.table([view(), view("other")], NOW, columns=120)
