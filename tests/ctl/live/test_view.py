"""The live view's region line by line, its panels, and both as drawn for a terminal."""

import time
from typing import Any

import pytest

from ralphctl.format.humanize import cells
from ralphctl.live import news
from ralphctl.live.news import Panel, PanelKind
from ralphctl.live.view import LEAST_WIDTH, Drawing, RegionContext, region_lines
from ralphd.core.time import rfc3339
from tests.ctl.fake import view
from tests.ctl.golden_files import Golden
from tests.terminal import seen

NOW = 1_795_000_000.0
KEYS = RegionContext(has_keys=True)
TASK = {"id": "T-2", "title": "Mend the parser"}
WAIT = {"reason": "rate_limit", "until": rfc3339(NOW + 600)}


def working(**changes: Any) -> dict[str, Any]:
    """The built-in loop at its second task."""
    known: dict[str, Any] = {
        "command": [], "agent": "claude", "task": TASK, "checkpoint": {"iteration": 8, "created_at": None},
        "started_at": rfc3339(NOW - 725), "last_output_at": rfc3339(NOW - 1),
    }  # fmt: skip
    return view(**(known | changes))


def said(ralph: dict[str, Any], context: RegionContext = KEYS, width: int = 80, rows: int = 3) -> list[str]:
    return region_lines(ralph, context, NOW, width, rows=rows)


def test_the_region_says_state_iteration_agent_time_cost_task_and_wait(golden: Golden) -> None:
    lines = said(working(wait=WAIT), RegionContext(task_position=(2, 7), has_keys=True))
    golden(lines)
    assert len(lines[0]) == 79


def test_a_command_that_reports_nothing_has_one_line_which_tells_its_silence(golden: Golden) -> None:
    (line,) = said(view(started_at=rfc3339(NOW - 5), last_output_at=rfc3339(NOW - 125)), RegionContext())
    golden(line)


@pytest.mark.parametrize("width", [1, 10, 20, 33, 80, 200])
def test_no_line_is_wider_than_the_terminal_and_one_column_stays_free(width: int) -> None:
    wide = working(wait=WAIT, task={"id": "x", "title": "把解析器修好" * 9}, name="a" * 63)
    for context in (
        KEYS,
        RegionContext(question="Skip the wait, at your own risk? [y/N]"),
        RegionContext(trouble="ralphd is away"),
    ):
        lines = said(wide, context, width)
        assert all(cells(line) <= max(width - 1, LEAST_WIDTH) for line in lines)


def test_at_twenty_columns_the_state_and_the_time_that_is_left_are_there(golden: Golden) -> None:
    golden(said(working(wait=WAIT), width=20))


def test_on_a_low_terminal_one_line_is_all_and_a_question_is_never_cut() -> None:
    assert len(said(working(wait=WAIT), rows=1)) == 1
    question = "Skip the wait? The limit may still apply. [y/N]"
    lines = said(working(wait=WAIT), RegionContext(question=question), width=20, rows=1)
    assert " ".join(lines[1:]) == question


def test_a_daemon_that_is_away_is_told_in_place_of_the_state(golden: Golden) -> None:
    golden(said(working(), RegionContext(trouble="ralphd is away")))


def test_control_characters_of_others_are_shown_and_not_obeyed() -> None:
    evil = "a\x1b[2J\nb\u202e"
    lines = said(working(name=evil, agent=evil, task={"id": evil, "title": evil}, state=evil))
    assert not set("".join(lines)) & {"\x1b", "\n", "\u202e"}


# --- panels ---------------------------------------------------------------------------------------------


def event(kind: str, **data: Any) -> dict[str, Any]:
    return {"type": kind, "at": rfc3339(NOW), "ralph": "api", "data": data}


def panels(*events: dict[str, Any], ralph: dict[str, Any] | None = None) -> list[Panel]:
    return news.panels(events, ralph or working(), NOW)


def drawn(panel: Panel) -> str:
    return Drawing(colour=False).panel(panel, 80)


RETRYING = "Ralph exited (exit 1) — retrying in 30s (attempt 2/3)"
FAILED = event(
    "attempt.finished", attempt=2, agent="claude", outcome="failed", failure_kind="agent_crash",
    why="Segmentation fault", next="claude again in 4 s",
)  # fmt: skip


def test_a_retry_is_one_panel_with_its_number_and_its_delay(golden: Golden) -> None:
    waits = event("wait.started", message="Ralph is waiting: try 2 of 2 follows", until=rfc3339(NOW + 4))
    (failed,) = panels(FAILED, waits)
    (retrying,) = panels(
        event("ralph.retrying", message=RETRYING, until=rfc3339(NOW + 30)),
        event("wait.started", until=rfc3339(NOW + 30)),
    )
    assert failed.kind is retrying.kind is PanelKind.WARNING
    golden(drawn(failed), drawn(retrying))


def test_a_failed_phase_is_named_in_its_panel() -> None:
    failed = {**FAILED, "data": {**FAILED["data"], "phase": "address", "next": "phase 3 (address) again"}}
    (panel,) = panels(failed)
    assert panel.title == "attempt 2 (address) by claude failed: agent crash"


def test_a_time_out_says_that_its_checkpoint_is_saved(golden: Golden) -> None:
    late = event("attempt.finished", attempt=1, agent="claude", outcome="failed", failure_kind="timeout")
    (saved,) = panels(late, ralph=working(checkpoint={"created_at": rfc3339(NOW - 3)}))
    (unknown,) = panels(late, ralph=working(checkpoint=None))
    golden(drawn(saved), drawn(unknown))


def test_a_wait_by_itself_is_information_and_a_short_one_is_none(golden: Golden) -> None:
    (panel,) = panels(event("wait.started", message="Ralph is waiting: rate limit", until=rfc3339(NOW + 60)))
    assert panel.kind is PanelKind.INFO
    golden(drawn(panel))
    assert panels(event("wait.started", message="Ralph is waiting", until=rfc3339(NOW + 0.5))) == []


def test_a_landing_is_a_panel_with_its_reason(golden: Golden) -> None:
    why = "ralph/api does not land on main: conflict in src/app.py"
    shown = panels(
        event("landing.queued", message="ralph/api is queued to land on main"),
        event("landing.testing", message="ralph/api is tested on top of abc1234"),
        event("landing.landed", message="ralph/api landed on main"),
        event("landing.refused", message=why, tail="exit 1"),
    )
    assert [panel.kind for panel in shown] == [PanelKind.INFO, PanelKind.SUCCESS, PanelKind.WARNING]
    golden(*map(drawn, shown))


def test_a_person_is_called_in_red_unless_the_last_words_do_so(golden: Golden) -> None:
    call = event("ralph.escalated", message="red twice", needs="a look", do="ralphctl logs api")
    (panel,) = panels(call)
    assert panel.kind is PanelKind.ERROR
    golden(drawn(panel))
    assert panels(call, ralph=working(state="failed")) == []


def test_what_goes_well_and_what_the_log_says_already_has_no_panel() -> None:
    well = event("attempt.finished", attempt=1, outcome="ok", failure_kind=None)
    others = map(event, ("iteration.started", "ralph.started", "wait.ended", "ralph.exited", "ralph.done"))
    assert panels(well, *others) == []


@pytest.mark.parametrize(
    ("state", "reason", "kind"),
    [
        ("done", None, PanelKind.SUCCESS), ("failed", None, PanelKind.ERROR),
        ("paused", "usage_limit", PanelKind.WARNING), ("paused", "requested", PanelKind.INFO),
        ("stopped", None, PanelKind.INFO),
    ],
)  # fmt: skip
def test_the_last_words_are_a_panel_of_their_kind(state: str, reason: str | None, kind: PanelKind) -> None:
    panel = news.last_words(view(state=state, pause_reason=reason), ["api: over", "  next: go on"])
    assert panel == Panel(kind, "api: over", ("next: go on",))


def test_an_end_at_a_limit_is_no_success() -> None:
    panel = news.last_words(view(state="done", message="max_iterations = 2 reached"), ["api: done"])
    assert panel.kind is PanelKind.INFO


def test_news_of_others_is_clean_in_its_panel() -> None:
    evil = "a\x1b[2J\nb"
    found = panels(event("attempt.finished", agent=evil, why=evil, failure_kind="x\x1b", next=evil))
    assert "\x1b" not in Drawing(colour=False).panel(found[0], 80)


# --- on a terminal --------------------------------------------------------------------------------------

NEWS = Panel(
    PanelKind.WARNING, "attempt 2 by claude failed", ("Segmentation fault — " + "x" * 90, "next: ok")
)


@pytest.mark.parametrize("width", [20, 80, 300])
def test_a_panel_fits_and_says_its_kind_without_any_colour(width: int) -> None:
    text = Drawing(colour=False).panel(NEWS, width)
    assert all(cells(line) <= width for line in text.splitlines())
    assert "warning" in text
    assert "\x1b" not in text


def test_in_colour_it_is_the_same_text_and_the_regions_head_is_orange() -> None:
    drawing, plain = Drawing(colour=True), Drawing(colour=False)
    coloured = seen(drawing.panel(NEWS, 80).replace("\n", "\r\n"))
    assert [line.rstrip() for line in coloured] == plain.panel(NEWS, 80).split("\n")
    painted = drawing.region(["── api ──", "task"], 80)
    assert painted.text.startswith("\x1b[38;5;208m── api ──")
    assert painted.widths == (9, 4)


def test_a_region_is_drawn_by_rich_once_and_then_only_when_it_says_something_else() -> None:
    drawing = Drawing(colour=True)
    began = time.process_time()
    drawn = {id(drawing.region(["── api ──"], 80)) for _ in range(10_000)}
    assert len(drawn) == 1
    assert time.process_time() - began < 2.0


def test_a_limit_has_no_panel_but_that_of_a_wait_that_can_be_skipped() -> None:
    at, until = "2026-11-21T07:00:00Z", "2026-11-21T09:00:00Z"
    events = [
        {"type": "attempt.finished", "at": at, "data": {"failure_kind": "usage_limit", "why": "a limit"}},
        {"type": "agent.exhausted", "at": at, "data": {"agent": "claude", "until": until}},
        {"type": "wait.started", "at": at, "data": {"until": until, "message": "Ralph is waiting: claude"}},
    ]  # fmt: skip

    assert [panel.title for panel in panels(*events)] == ["waiting"]
