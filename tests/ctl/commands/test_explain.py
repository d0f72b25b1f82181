"""explain: what a person reads at seven in the morning, at 80 columns, in local time."""

import json
from typing import Any

import pytest

from ralphctl.format import explanation
from tests.ctl.conftest import Ctl
from tests.ctl.fake import Answer, FakeDaemon, problem, view
from tests.ctl.golden_files import Golden

NOW = 1_795_244_400.0  # 07:00:00 UTC
STALL: dict[str, Any] = {
    "at": "2026-11-21T06:57:00.000000Z",
    "rule": "H4",
    "title": "Ralph hung: no sign of life for 5 min 3 s — killing its processes",
    "because": "without output and without strong evidence for hang_timeout_seconds = 300, a run hangs",
    "figures": [
        {"name": "longest silence", "seen": "5 min 3 s", "limit": ""},
        {"name": "without strong evidence", "seen": "5 min 3 s", "limit": "ended at 5 min"},
        {"name": "files changed in the directory", "seen": "0 in the last 30 s, never enough",
         "limit": "1 or more counts"},
        {"name": "bytes moved by read and write", "seen": "12 in the last 30 s, enough 3 times, last "
         "2026-11-21T06:40:00.000000Z", "limit": "4096 or more counts"},
        {"name": "context switches (busiest process)", "seen": "0.2/s in the last 30 s, never enough",
         "limit": "over 10/s counts as weak evidence"},
        {"name": "ended with", "seen": "SIGKILL", "limit": ""},
    ],
    "missing": ["output", "files changed in the directory", "new commits", "new processes"],
    "done": "its tree is killed; the next run starts at 2026-11-21T06:57:30.000000Z (crash)",
    "silence": None,
    "run_id": "r000012-3fa9c1d2",
    "living": False,
    "evidence": {
        "at": "2026-11-21T06:56:59.000000Z",
        "rule": "H4",
        "title": "Ralph hung: no sign of life for 5 min 3 s — killing its processes",
        "processes": [
            {"pid": 4711, "parent": 4700, "state": "S", "command": "/bin/bash ./loop.sh", "age_s": 4000.0,
             "cpu_s": 0.5, "io_bytes": 12, "switches_per_s": 0.1},
            {"pid": 4712, "parent": 4711, "state": "S", "command": "claude -p " + "x" * 190, "age_s": 600.0,
             "cpu_s": None, "io_bytes": None, "switches_per_s": None},
        ],
        "last_lines": ["thinking about \x1b[2Jit", "y" * 300],
    },
}  # fmt: skip
SHORT = {**STALL, "figures": STALL["figures"][:1], "evidence": None}
NEVER: dict[str, Any] = {
    "rule": "", "title": "Nothing was done yet", "because": "it has never been started", "figures": [],
    "missing": [], "done": "", "silence": None, "run_id": None, "living": False, "evidence": None,
}  # fmt: skip


def page(shown: Any, **options: Any) -> str:
    return explanation.page("api", shown, NOW, **options)


@pytest.mark.parametrize("columns", [None, 40, 200])
def test_a_stall_is_told_with_rule_figures_what_was_missing_and_what_was_done(
    columns: int | None, golden: Golden
) -> None:
    golden(page(STALL, columns=columns))


@pytest.mark.parametrize("columns", [None, 40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(columns: int | None) -> None:
    lines = page(STALL, columns=columns).splitlines()

    assert max(map(len, lines)) <= (columns or 80)


def test_a_wide_terminal_has_each_figure_on_a_line_of_its_own() -> None:
    wide, narrow = page(STALL, columns=200).splitlines(), page(STALL).splitlines()

    [first, last] = [at for at, line in enumerate(wide) if "longest silence" in line or "SIGKILL" in line]
    assert last - first == len(STALL["figures"]) - 1
    assert len(narrow) > len(wide)


def test_a_run_that_was_silent_and_ended_otherwise_has_a_part_about_its_silence(golden: Golden) -> None:
    golden(page({**SHORT, "rule": "E1", "title": "Ralph is done (exit 0)", "silence": SHORT}))


def test_what_an_earlier_daemon_saved_stands_for_what_this_one_does_not_know(golden: Golden) -> None:
    forgotten = {**STALL, "title": "Ralph was ended by the supervisor (stall)", "figures": []}

    golden(page({**forgotten, "evidence": {**STALL["evidence"], "figures": STALL["figures"]}}))


def test_a_run_that_lives_is_told_as_it_is_now(golden: Golden) -> None:
    golden(page({**SHORT, "living": True, "rule": "H2", "title": "Ralph is silent for 12 min, and works"}))


def test_what_was_done_since_stands_beside_what_followed_then(golden: Golden) -> None:
    golden(page(SHORT, state="paused because you asked"))


def test_one_that_was_never_started_has_nothing_to_explain(golden: Golden) -> None:
    golden(page(NEVER))


@pytest.mark.parametrize(
    "broken",
    [{}, {"figures": "none", "missing": {}, "evidence": [], "silence": 3},
     {**STALL, "figures": [3, {"name": None}], "missing": [None],
      "evidence": {"processes": [{}], "last_lines": [None], "at": 7}},
     {"title": "\x1b[2J", "living": True}],
)  # fmt: skip
def test_whatever_is_in_the_files_is_shown_without_harm(broken: dict[str, Any]) -> None:
    text = page(broken)

    assert text.startswith("api")
    assert "\x1b" not in text


def test_the_command_prints_the_page_or_the_reply(daemon: FakeDaemon, ctl: Ctl, golden: Golden) -> None:
    daemon.views = {"api": view()}
    daemon.on("GET /v1/ralphs/api/explain", lambda _: Answer(SHORT))

    shown, raw = ctl("explain"), ctl("explain", "api", "--json")

    golden(shown)
    assert shown.returncode == raw.returncode == 0
    assert json.loads(raw.stdout) == SHORT


def test_no_explanation_is_no_line_of_json(daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.views = {"api": view()}
    daemon.on("GET /v1/ralphs/api/explain", lambda _: Answer(SHORT))

    assert ctl("explain", "--list").stdout == "no explanation is kept for api yet\n"
    assert ctl("explain", "--list", "--json").stdout == ""


def test_an_unknown_ralph_ends_with_4(daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.on("GET /v1/ralphs/bob/explain", lambda _: problem("unknown-ralph", 404, "no ralph is called bob"))

    assert ctl("explain", "bob").returncode == 4


def test_without_a_daemon_it_says_what_starts_one(ctl: Ctl) -> None:
    reply = ctl("explain", "api")

    assert (reply.returncode, reply.stderr) == (3, ctl("status").stderr)


def test_a_type_that_no_event_has_and_two_ways_to_name_an_explanation_are_refused(ctl: Ctl) -> None:
    near = ctl("events", "--type", "comit.revert")
    assert (near.returncode, near.stdout) == (2, "")
    assert "no event has the type 'comit.revert', did you mean commit.reverted?" in near.stderr
    assert "did you mean ralph.stalled?" in ctl("events", "--type", "hang").stderr
    assert ctl("events", "--type", "commit.*").returncode == 3, "no daemon is running"
    for words in (("--list",), ("--attempt", "1:1"), ("--attempt", "1:1", "--list")):
        both = ctl("explain", "api", "--run", "1", *words)
        assert (both.returncode, both.stdout) == (2, "") and "exclude one another" in both.stderr


@pytest.mark.parametrize("word", ["remove", "rm"])
def test_a_task_is_removed_by_its_number_or_its_text(daemon: FakeDaemon, ctl: Ctl, word: str) -> None:
    daemon.views = {"api": view("api")}
    for text, sent in (("+1", "%2B1"), ("1", "1"), ("Fix src/a.py", "Fix%20src/a.py")):
        assert ctl("tasks", word, "api", text).stdout == f"api: removed {text}\n"
        assert daemon.lines()[-1] == f"DELETE /v1/ralphs/api/tasks/{sent}"


@pytest.mark.parametrize(
    "words", [("note", "api"), ("tasks", "add", "api"), ("note", "api", "api"), ("note",)]
)
def test_a_forgotten_text_is_not_sent(daemon: FakeDaemon, ctl: Ctl, words: tuple[str, ...]) -> None:
    daemon.views = {"api": view("api")}
    refused = ctl(*words)
    assert (refused.returncode, daemon.lines()) == (2, [])
    assert "a name and one text are expected" in refused.stderr
