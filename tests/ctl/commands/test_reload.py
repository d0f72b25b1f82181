"""What a person reads when a configuration has changed, and when it is taken up."""

from typing import Any

import pytest

from ralphctl.commands.regent import _APPLIED_AT_ONCE
from ralphctl.format import status_text, table_text
from ralphctl.format.state_text import drift_rows
from ralphd.config.keys import SECTIONS, is_daemons, keys_of
from tests.ctl.conftest import Ctl
from tests.ctl.fake import Answer, FakeDaemon, problem, view
from tests.ctl.golden_files import Golden, Printed

NOW = 1795244400.0
DRIFT = {"key": "regent.max_retries", "pinned": "3", "now": "5", "origin": "ralph.toml:2"}
CHANGE = {"key": "regent.max_retries", "was": "3", "becomes": "5", "origin": "ralph.toml:2"}


def reloaded(when: str, changes: list[dict[str, Any]], **ralph: Any) -> dict[str, Any]:
    return {"ralph": view(**ralph), "changes": changes, "when": when}


def test_status_says_what_differs_and_how_to_take_it_up(golden: Golden) -> None:
    golden(status_text.ralph(view(drift=[DRIFT]), NOW))


def test_a_key_that_is_set_now_or_not_any_more_says_so(golden: Golden) -> None:
    golden(drift_rows(view(drift=[{**DRIFT, "pinned": None}, {**DRIFT, "now": None}])))


def test_a_fault_is_told_as_one_and_no_reload_is_offered(golden: Golden) -> None:
    golden(drift_rows(view(drift=[{"fault": "ralph.toml:2: is not TOML"}])))


def test_somebody_elses_text_cannot_move_the_terminal() -> None:
    rows = drift_rows(view(drift=[{"fault": "\x1b[2Jx\ny"}, {"fault": "b"}]))

    assert rows[1] == "  ^[[2Jx^Jy"


def test_more_than_a_person_reads_is_left_to_json(golden: Golden) -> None:
    rows = drift_rows(view(drift=[{**DRIFT, "key": f"agents.a{number}.model"} for number in range(40)]))

    golden(rows)
    assert len(rows) == 8


def test_a_view_without_drift_says_nothing_of_it() -> None:
    assert "changed" not in status_text.ralph(view(), NOW)


@pytest.mark.parametrize("changes", [{}, {"state": "idle"}, {"state": "failed", "finished_at": None}])
def test_the_table_marks_a_state_with_a_star_and_explains_it(changes: dict[str, Any], golden: Golden) -> None:
    golden(table_text.table([view(drift=[DRIFT], **changes), view("other")], NOW, columns=100))


def test_reload_prints_what_changes_and_when(daemon: FakeDaemon, ctl: Ctl, golden: Golden) -> None:
    daemon.views = {"api": view()}
    daemon.on("POST /v1/ralphs/api/reload", lambda request: Answer(reloaded("next_run", [CHANGE]), 202))

    golden(ctl("reload", "api"))
    assert ctl("--json", "reload", "api").stdout.startswith('{"ralph"')


def test_reload_of_a_ralph_at_rest_holds_at_once(daemon: FakeDaemon, ctl: Ctl, golden: Golden) -> None:
    daemon.views = {"api": view(state="stopped")}
    daemon.on("POST /v1/ralphs/api/reload", lambda request: Answer(reloaded("now", [CHANGE]), 202))

    golden(ctl("reload"))


def test_a_reload_during_a_wait_says_that_the_wait_is_as_long_as_before(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    daemon.views = {"api": view(state="waiting_for_retry")}
    waiting = reloaded("now", [CHANGE], state="waiting_for_retry")
    daemon.on("POST /v1/ralphs/api/reload", lambda request: Answer(waiting, 202))

    golden(ctl("reload", "api"))


def test_reload_says_when_nothing_has_changed(daemon: FakeDaemon, ctl: Ctl, golden: Golden) -> None:
    daemon.views = {"api": view()}
    daemon.on("POST /v1/ralphs/api/reload", lambda request: Answer(reloaded("next_run", []), 202))

    golden(ctl("reload", "api"))


def test_reload_with_faults_ends_with_78_and_all_of_them(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    daemon.views = {"api": view()}
    refused = problem(
        "configuration", 422, "api is not reloaded: 2 faults", "ralph.toml:1: a\nralph.toml:2: b"
    )
    daemon.on("POST /v1/ralphs/api/reload", lambda request: refused)

    reply = ctl("reload", "api")

    golden(reply)
    assert reply.returncode == 78


def test_regent_reload_says_what_holds_and_what_waits_for_the_ralphs(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    logs = {"key": "logs.total_bytes", "was": "1", "becomes": "2", "origin": "config.toml:2"}

    def reloaded_with(change: dict[str, Any]) -> Printed:
        daemon.on("POST /v1/reload", lambda request: Answer({"daemon": daemon.daemon(), "changes": [change]}))
        return ctl("regent", "reload")

    golden(reloaded_with(logs), reloaded_with(CHANGE))


@pytest.mark.parametrize(
    ("key", "waits"), [("lease_seconds", True), ("work_directory", True), ("slots", False)]
)
def test_regent_reload_names_the_restart_that_some_keys_need(
    daemon: FakeDaemon, ctl: Ctl, key: str, *, waits: bool
) -> None:
    change = {"key": f"fleet.{key}", "was": "1", "becomes": "2", "origin": "config.toml:2"}
    daemon.on("POST /v1/reload", lambda _: Answer({"daemon": daemon.daemon(), "changes": [change]}))
    restart = f"  next: ralphctl regent restart  (for fleet.{key}; the runs continue)"
    assert (restart in ctl("regent", "reload").stdout.splitlines()) == waits


def test_what_applies_at_once_is_what_the_daemon_alone_acts_on() -> None:
    every = [key.dotted for section in SECTIONS for key in keys_of(section).values()]
    at_once = [key for key in every if key.startswith(_APPLIED_AT_ONCE)]
    assert at_once == [key for key in every if is_daemons(key)]


def test_regent_status_gives_each_line_of_a_problem_one_of_its_own(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    trouble = (
        "the user's configuration: 1 fault in the configuration\n  /home/x/config.toml:2: is no\x1b[31m TOML"
    )
    about = daemon.daemon() | {"status": "degraded", "problems": [trouble]}
    daemon.on("GET /v1/status", lambda _: Answer({"daemon": about, "ralphs": []}))

    golden(ctl("regent", "status"))


def test_regent_reload_without_a_daemon_ends_with_3(ctl: Ctl) -> None:
    assert ctl("regent", "reload").returncode == 3


def test_the_table_has_columns_for_resources_when_they_are_asked_for(golden: Golden) -> None:
    used = {"cpu_s": 754.2, "rss_bytes": 91_000_000, "processes": 3}
    views = [view(resources=used), view("other", resources=None)]
    shown = table_text.table(views, NOW, columns=120)

    golden(shown, table_text.table([view(), view("other")], NOW, columns=120))
    assert all(len(line) <= 120 for line in shown.splitlines())
