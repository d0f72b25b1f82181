"""``ralphctl report``: read at seven in the morning, with a daemon, without one, and from what is torn."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ralphctl.format.humanize import last_evening
from ralphctl.report import page as pages
from ralphctl.report import read as reading
from ralphctl.report import text as words
from ralphctl.report.history import HistoryReader
from ralphctl.report.model import ListedTask, RalphReport, TaskListState
from ralphd.core.landing.model import LandingCandidate, LandingQueue, Standing, Target
from ralphd.core.time import rfc3339
from ralphd.core.worktrees.rules import Claim, Worktree
from ralphd.store.shared.claims import change_claims, save_worktree
from ralphd.store.shared.landing import LandingFiles
from tests.ctl import fake
from tests.ctl.conftest import Ctl
from tests.ctl.golden_files import Golden
from tests.written_nights import attempt, entry, night, write

NOW = 1_795_330_800.0  # 2026-11-22 07:00:00 UTC
EVENING = NOW - 13 * 3600.0
DOCS = Path(__file__).parents[3] / "docs" / "report.md"
EVIL = "\x1b[2J\u202etitle | *bold* `code` <b>\nnext"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ralphs work below the home: no page depends on how long the path of a test is."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def held(tmp_path: Path, environment: dict[str, str]) -> Iterator[Path]:
    """A state directory that a daemon holds."""
    place = tmp_path / "state"
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield place


def ralph(place: Path, entries: Iterator[dict[str, Any]], name: str = "demo", **view: Any) -> Path:
    """A ralph's files in a state directory; gives where it works."""
    directory = place.parent / "home" / "work" / name
    directory.mkdir(parents=True)
    write(place / "ralphs" / name, directory, entries, run_id="r000001-0000beef", **view)
    return directory


def read(held: Path, name: str = "demo", since: float = EVENING) -> RalphReport:
    (place,) = reading.choose(name, "/", {"RALPHD_STATE_DIR": str(held)})
    return reading.read(place, since, NOW, NOW)


def text(report: RalphReport, columns: int = 80) -> str:
    return pages.plain_text(words.page(report, NOW), columns=columns)


def test_the_first_screen_says_how_it_is_what_is_done_what_blocks_when_it_goes_on_and_what_it_cost(
    held: Path, golden: Golden
) -> None:
    directory = ralph(
        held,
        night(200, NOW - 12.5 * 3600),
        state="paused",
        pause_reason="usage_limit",
        wait={"reason": "usage_limit", "until": rfc3339(NOW + 8000)},
        branch="main",
        total_cost_usd=31.5,
        message=None,
    )
    boxes = [f"- [{'x' if number < 60 else ' '}] Story {number} of the list\n" for number in range(72)]
    (directory / "TASKS.md").write_text("".join(boxes))
    lines = text(read(held)).splitlines()
    golden(lines)
    assert max(map(len, lines)) <= 80
    assert len(lines) < 150


def test_what_blocks_it_and_what_to_type(held: Path, golden: Golden) -> None:
    views: list[dict[str, Any]] = [
        {"state": "failed", "message": "Ralph exited (exit 1) — giving up after 3 failures in a row"},
        {"state": "paused", "pause_reason": "guard", "message": "the tests fail without them too"},
        {"state": "paused", "pause_reason": "user_requested"},
        {"state": "stopped"},
        {"state": "done"},
        {"state": "running"},
        {"state": "running", "wait": {"reason": "rate limit of claude", "until": rfc3339(NOW + 60)}},
        {"state": "waiting_for_retry", "wait": {"reason": "crash", "until": rfc3339(NOW + 30)}},
    ]
    shown: dict[str, list[str]] = {}
    for view in views:
        name = f"r{len(shown)}"
        ralph(held, iter(()), name, **view)
        rows = dict(words.page(read(held, name), NOW).rows)
        shown[json.dumps(view, ensure_ascii=False)] = [
            f"{label}: {rows[label].replace(pages.CODE, '')}" for label in ("blocked by", "resumes")
        ]
    golden(shown)


def test_a_long_reason_leaves_room_on_the_first_screen(held: Path, golden: Golden) -> None:
    ralph(held, iter(()), state="failed", message="Ralph gave up: " + "a task failed 5 times; " * 99)
    report = read(held)
    golden(text(report).splitlines()[:24])
    assert len(pages.plain_text(words.overview([report], EVENING, NOW, NOW), columns=80)) < 900


def test_without_a_daemon_nothing_is_promised_to_go_on_by_itself(golden: Golden, tmp_path: Path) -> None:
    wait = {"reason": "usage_limit", "until": rfc3339(NOW + 8000)}
    ralph(tmp_path / "state", iter(()), state="paused", pause_reason="usage_limit", wait=wait)
    golden(text(read(tmp_path / "state")))


def test_unknown_costs_are_never_told_as_0(held: Path, golden: Golden) -> None:
    told = {"run_id": "r1", "iteration": 1, "task": None}
    ralph(held, iter([attempt(NOW - 60, told, 1, cost=None), attempt(NOW - 30, told, 2, cost=None)]))
    report = read(held)
    golden(text(report))
    assert "$0" not in text(report)


def test_what_a_command_cost_that_tells_nothing_is_unknown(held: Path, ctl: Ctl, golden: Golden) -> None:
    run = entry("run", "r1", NOW - 60, run_id="r1", outcome="done", started_at=rfc3339(NOW - 900))
    ralph(held, iter([run]))
    loop = read(held)
    path = held / "ralphs" / "demo" / "ralph.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"command": ["./loop.sh"]}))
    told = json.loads(ctl("report", "--json", "--since", rfc3339(NOW - 1000)).stdout)
    assert told["ralphs"][0]["cost"]["usd"] is None
    overview = words.overview([read(held)], EVENING, NOW, NOW)
    golden(
        {
            "the built-in loop": dict(words.page(loop, NOW).rows)["cost"],
            "a command": dict(words.page(read(held), NOW).rows)["cost"],
            "several": dict(overview.rows)["cost"],
        }
    )


def test_the_commits_of_a_command_that_tells_none_are_not_counted_as_none(held: Path) -> None:
    ralph(held, iter([entry("iteration", "r1/1", NOW - 60, run_id="r1", iteration=1, failed=False)]))
    assert dict(words.page(read(held), NOW).rows)["commits"] == "none"
    path = held / "ralphs" / "demo" / "ralph.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"command": ["./loop.sh"]}))
    assert not dict(words.page(read(held), NOW).rows).get("commits")


def test_the_sum_of_costs_includes_what_the_output_of_a_run_shows(
    held: Path, ctl: Ctl, daemon: fake.FakeDaemon
) -> None:
    told = {"run_id": "r1", "iteration": 1, "task": None}
    ralph(held, iter([attempt(NOW - 60, told, 1, cost=0.5)]))
    ralph(held, iter([entry("run", "r1", NOW - 60, run_id="r1", started_at=rfc3339(NOW - 900))]), "loop")
    path = held / "ralphs" / "loop" / "ralph.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"command": ["./loop.sh"]}))
    daemon.views = {name: fake.view(name, seen={"cost_usd": 1.25}) for name in ("demo", "loop")}
    said = ctl("cost").stdout
    assert "$1.25 (seen in output of the current run)" in said and said.startswith("in all  $1.75\n\n"), said
    spent = entry("cost", "r1/seen", NOW - 60, run_id="r1", usd=0.25, source="seen in output")
    ralph(held, iter([spent]), "again", state="running", started_at=rfc3339(NOW - 50))
    daemon.views["again"] = fake.view("again", seen={"cost_usd": 2.0})
    said = ctl("cost", "again", "loop").stdout
    assert "$0.25; $2.00 (seen in output of the current run)" in said and said.startswith("in all  $3.50\n\n")
    shutil.rmtree(held / "ralphs" / "again")
    daemon.views = {name: fake.view(name) for name in ("demo", "loop")}
    assert ctl("cost").stdout.startswith("in all  $0.50; unknown for 1 ralph\n\n")
    assert ctl("cost", "loop", "loop").stdout.startswith("in all  unknown for 2 ralphs\n\n")


def test_other_peoples_text_moves_no_terminal_and_breaks_no_markdown(held: Path, golden: Golden) -> None:
    told = {"run_id": "r1", "iteration": 1, "task": {"id": "US-1", "title": EVIL}}
    bad = {"verdict": "reverted", "commits": ["abc1234"], "reverted": ["abc1234"], "why": EVIL, "tail": EVIL}
    entries = [
        attempt(NOW - 60, told, 1, kind="agent_crash"),
        entry("verdict", "1/verdict", NOW - 50, **told, **bad),
        entry("escalation", "e", NOW - 40, data={"message": EVIL}),
    ]
    ralph(held, iter(entries), state="failed", message=EVIL, branch=EVIL)
    report = read(held)
    page = words.page(report, NOW)
    for shown in (text(report), pages.markdown(page)):
        assert [line for line in shown.splitlines() if not line.isprintable()] == []
    marked = pages.markdown(page)
    built = replace(report, source=replace(report.source, is_build=True, directory="/srv/my demo"))
    golden(marked, pages.markdown(words.page(built, NOW)))  # no daemon knows the ralph of a build
    prose = [line for line in marked.splitlines() if not line.startswith(" " * 6)]  # which is shown as it is
    assert not re.search(r"(?<!\\)[*`|<](bold|code|b>)", "\n".join(prose))


@pytest.mark.parametrize("number", [None, 2])
def test_undo_is_named_only_for_the_revert_that_it_restores(held: Path, number: int | None) -> None:
    bad = [{"run_id": f"r{at}", "iteration": number, "task": None, "verdict": "reverted"} for at in (1, 2)]
    shas = ("abc1234", "def5678")
    verdicts = [
        entry("verdict", f"r{at}/verdict", NOW - 90 + at, **told, commits=[sha], reverted=[sha], why="red")
        for at, (told, sha) in enumerate(zip(bad, shas, strict=True))
    ]
    undo = "to restore it: ralphctl undo demo" + (f" {number}" if number else "")
    ralph(held, iter(verdicts))
    first, second = text(read(held)).partition("def5678")[::2]
    unwrapped = first.replace("\n" + 8 * " ", "")  # where it is wrapped depends on the directory's name
    assert "This reverts commit abc1234" in unwrapped and undo not in first
    assert undo in second

    with (held / "ralphs" / "demo" / "history.jsonl").open("a") as history:
        history.write(json.dumps(entry("undo", "r1/undo", NOW - 60, commits=["def5678"])) + "\n")
    assert undo in text(read(held)).partition("def5678")[0]


def test_a_task_done_in_an_iteration_for_another_is_not_told_as_open(held: Path) -> None:
    told = {"run_id": "r1", "iteration": 1, "task": {"id": "US-1", "title": "one"}}
    ralph(held, iter([attempt(NOW - 60, told, 1, kind="agent_crash")]))
    report = read(held)
    assert "Started, not done" in text(report)
    listed = TaskListState("TASKS.md", 1, 1, (), (ListedTask("US-1", "one", 1, "", False, "done"),))
    shown = text(replace(report, tasks=listed))
    assert "Started, not done" not in shown
    assert "1 of 1 task (TASKS.md), none reported in this span" in shown


def test_a_list_without_its_finished_tasks_is_not_said_to_have_them(held: Path) -> None:
    directory = ralph(held, night(20, NOW - 3 * 3600))
    (directory / "TASKS.md").write_text("- [x] The last one\n- [ ] The next one\n")
    assert "1 of 2 tasks (TASKS.md), 20 done in this span" in text(read(held), 200)


def test_tasks_that_another_ralph_does_are_not_open_here(held: Path) -> None:
    directory = ralph(held, iter([]))
    (directory / "TASKS.md").write_text("- [x] one\n- [ ] two\n- [ ] three\n- [ ] four\n")
    tree = Worktree("demo", str(directory), "/shop/.git", "/shop", "ralph/demo", "abc", NOW, 0, shares=True)
    save_worktree(held, tree)
    claims = {"one": Claim("demo", True), "two": Claim("other"), "three": Claim("demo")}
    change_claims(held, "/shop/.git", os.path.normpath("/TASKS.md"), lambda _: claims)
    shown = text(read(held))
    assert "1 of 3 tasks (TASKS.md)" in shown
    assert "three" in shown and "four" in shown and "two" not in shown


def test_a_moment_in_a_reason_is_shown_in_local_time(held: Path) -> None:
    told = {"run_id": "r1", "iteration": 1, "task": {"id": "US-1", "title": "one"}}
    lost = attempt(NOW - 60, told, 1) | {"outcome": "lost", "why": f"it began at {rfc3339(NOW - 90)}"}
    ralph(held, iter([lost]))
    shown = text(read(held))
    assert f"it began at {time.strftime('%H:%M:%S', time.localtime(NOW - 90))}" in shown


def test_20_columns_are_enough(held: Path) -> None:
    ralph(held, night(40, NOW - 3 * 3600), state="failed", message="giving up")
    assert max(map(len, text(read(held), 20).splitlines())) <= 20


def test_a_record_that_is_torn_is_read_as_far_as_it_goes_and_said_to_be(held: Path, golden: Golden) -> None:
    ralph(held, night(40, NOW - 3 * 3600))
    path = held / "ralphs" / "demo" / "history.jsonl"
    data = path.read_bytes()
    path.write_bytes(b'{"kind":"att' + data[:2000] + b'\n[1]\nnull\n\xff\xfe\n{"kind":"moon","key":"","at":"'
                     + rfc3339(NOW - 5).encode() + b'"}\n' + data[2000:] + b'{"half')  # fmt: skip
    page = words.page(read(held), NOW)
    golden([said for label, said in page.rows if label == "note"])


# --- reading --------------------------------------------------------------------------------------------


def test_a_long_record_is_read_from_its_end_with_what_was_so_before(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    old = [entry("run", f"r{number}", number * 60.0, run_id=f"r{number}") for number in range(9000)]
    new = list(night(3, NOW - 3600))
    path = write(home, tmp_path, iter([*old, *new]))
    record = HistoryReader(path)
    found = list(record.entries(rfc3339(NOW - 4000)))
    assert [each["key"] for each in found] == ["r8999", *(each["key"] for each in new)]
    assert (record.torn, record.is_whole) == (0, False)
    assert list(HistoryReader(tmp_path / "none").entries("")) == []
    whole = HistoryReader(path)
    assert len(list(whole.entries("1970"))) == 9000 + len(new)
    assert whole.is_whole


def test_entries_are_read_across_blocks_and_one_by_one_where_one_of_them_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    wide = json.dumps({"kind": "a", "at": rfc3339(1.0), "tail": "x" * 700_000})
    path.write_text(
        f'{wide}\n{{"kind": "b"}}\n\n{{"kind"\n{{"kind": "\\ud800"}}\n{"y" * 1_500_000}\n{{"kind": "c"}}'
    )
    record = HistoryReader(path)
    assert [each["kind"] for each in record.entries("")] == ["a", "b", "\ud800", "c"]
    assert record.torn >= 2


def test_a_fifo_or_a_link_in_place_of_the_record_is_no_record(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert [list(HistoryReader(tmp_path / name).entries("")) for name in ("fifo", "link")] == [[], []]


def test_since_last_night_is_since_18_of_the_day_before(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [last_evening(NOW + hours * 3600) for hours in (-6.9, 0, 16.9)] == [NOW - 13 * 3600] * 3
    assert last_evening(NOW + 17 * 3600) == NOW + 11 * 3600


# --- the command ----------------------------------------------------------------------------------------


def test_several_ralphs_are_an_overview_and_each_can_be_named(held: Path, ctl: Ctl, golden: Golden) -> None:
    ralph(held, night(5, NOW - 1800), "api")
    web = ralph(held, iter(()), "web", state="failed", message="giving up")
    every, one, marked = ctl("report"), ctl("report", cwd=web), ctl("report", "api", "--md")
    golden(every, one, marked)
    assert every.returncode == 0


def test_the_report_of_several_says_when_their_strips_begin(held: Path, ctl: Ctl) -> None:
    for name in ("api", "web"):
        ralph(held, night(5, NOW - 1800), name)
    assert "; the strips begin at 06:" in " ".join(ctl("report").stdout.split())


def has_landed(held: Path, *candidates: LandingCandidate, place: str = "shop", blocked: str = "") -> Path:
    """A landing queue of the repository ``shop``, whose tip is the merge of a branch with two commits."""
    shop = held.parent / "home" / place
    shop.mkdir(parents=True)
    commit = "git commit --quiet --allow-empty -m "
    merge = f"git init -qb main && {commit} 1 && git switch -qc b && {commit} 2 && {commit} 3"
    merge += " && git switch -q main && git merge -qm 4 --no-ff b"
    who = {f"GIT_{one}_{what}": "a@b" for one in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run(merge, shell=True, cwd=shop, env=os.environ | who, check=True)
    tip = subprocess.check_output(["git", "rev-parse", "main"], cwd=shop, text=True).strip()
    every = tuple(replace(each, commit=tip if each.commit else "") for each in candidates)
    files = LandingFiles.of(held, shop / ".git")
    files.create()
    queue = LandingQueue(str(shop / ".git"), str(shop), Target("main"), candidates=every, blocked=blocked)
    files.save(queue)
    return files.queue_file


def candidate(number: int, ralph: str, standing: Standing, hours: float, why: str = "") -> LandingCandidate:
    ended_at = None if standing is Standing.WAITING else NOW - hours * 3600
    commit = "the tip" if standing is Standing.LANDED else ""
    branch = f"refs/heads/ralph/{ralph}"
    return LandingCandidate(
        number, ralph, branch, "abc", NOW - 7200, standing, why, commit=commit, ended_at=ended_at
    )


def test_one_report_says_what_landed_and_what_waits(held: Path, ctl: Ctl, golden: Golden) -> None:
    for name in ("api", "db", "docs", "web"):
        ralph(held, iter(()), name)
    file = has_landed(
        held,
        candidate(1, "api", Standing.LANDED, 30),
        candidate(2, "db", Standing.REFUSED, 2, "conflict in f"),
        replace(candidate(3, "web", Standing.REFUSED, 2, "the tests fail on top of abc1234"), has_task=True),
        candidate(4, "docs", Standing.WAITING, 1, "it changes ralph.toml: land it yourself"),
        candidate(5, "db", Standing.LANDED, 1),
    )
    before = file.read_bytes()
    every, one, marked = ctl("report"), ctl("report", "web"), ctl("report", "docs", "--md")
    golden(every, one, marked)
    shown = json.loads(ctl("report", "--json").stdout)["landing"]
    kept = [[each[key] for key in ("number", "commits")] for each in shown[0]["candidates"]]
    assert kept == [[4, None], [5, 2], [3, None]]
    shutil.rmtree(held / "ralphs" / "db")
    assert "ralph/db landed (2 commits)" in ctl("report").stdout
    file.write_text("torn")
    assert ctl("report").returncode == 0
    assert file.read_text() == "torn" != before.decode()


ASIDE = "on ralph/landed: main is checked out with changes in f"


def test_only_what_is_on_the_target_counts_as_landed(held: Path, ctl: Ctl) -> None:
    for name in ("api", "db", "web"):
        ralph(held, iter(()), name)
    landed = candidate(1, "api", Standing.LANDED, 3)
    has_landed(
        held,
        replace(landed, copies=(("a", "b"), ("c", "d"), ("e", "f"))),
        replace(landed, id=2, undoes="abc"),
        replace(landed, id=3, ralph="web", why=ASIDE),
        candidate(4, "db", Standing.PUSHED, 1),
    )
    shown = " ".join(ctl("report").stdout.split())
    words = "landed 1 branch on main of shop (3 commits), 1 revert; 1 pushed for a pull request; "
    assert words + "1 waiting for the checkout: git merge ralph/landed there" in shown
    waits = "waits for the checkout of main: main is checked out with changes in f; then there: git merge"
    assert waits in shown
    assert "ralph/db pushed" in shown and "not yet" not in shown


def test_a_blocked_queue_is_what_blocks_the_ralph(held: Path, ctl: Ctl) -> None:
    ralph(held, iter(()), "api", state="done")
    red = "the tests fail on the target"
    has_landed(held, candidate(1, "api", Standing.WAITING, 1), blocked=red)
    lines = ctl("report", "api").stdout.splitlines()
    [line] = [each for each in lines if each.startswith("  blocked by")]
    assert line.endswith(f"its landing queue: {red}")


def test_repositories_of_one_name_are_told_apart(held: Path, ctl: Ctl) -> None:
    ralph(held, iter(()), "api")
    for place in ("b/app", "a/app", "shop"):
        has_landed(held, candidate(1, "api", Standing.LANDED, 1), place=place)
    titles = [line for line in ctl("report").stdout.splitlines() if line.startswith("Landing on")]
    assert [title.split()[4] for title in titles] == ["a/app", "b/app", "shop"]


def test_without_a_daemon_status_shows_the_landing(held: Path, ctl: Ctl) -> None:
    ralph(held, iter(()), "api", state="done")
    has_landed(held, candidate(1, "api", Standing.WAITING, 1, "it changes ralph.toml"))
    said = ctl("status", "api")
    assert "waits for you to land on main: it changes ralph.toml" in said.stdout, said


def test_all_means_all_in_the_directory_of_one_too(held: Path, ctl: Ctl) -> None:
    here, _ = (ralph(held, iter(()), name) for name in ("api", "web"))
    assert ctl("report", cwd=here).stdout.startswith("api  done")
    assert ctl("report", "--all", cwd=here).stdout.startswith("2 ralphs")


def test_the_json_has_a_version_and_the_keys_that_are_documented(held: Path, ctl: Ctl) -> None:
    ralph(held, night(30, NOW - 7200), state="done")
    (held / "ralphs" / "demo" / "tasks.json").write_text('{"tasks": {"A": {"status": "failed"}}}')
    has_landed(held, candidate(1, "demo", Standing.LANDED, 1))
    said = ctl("report", "--json", "--since", f"@{EVENING}", "--until", f"@{NOW}")
    found = json.loads(said.stdout)
    assert (found["version"], found["since"], found["until"]) == (1, rfc3339(EVENING), rfc3339(NOW))
    documented = set(re.findall(r"`([a-z_]+)`", DOCS.read_text(encoding="utf-8").partition("## --json")[2]))
    assert _keys(found) - documented == set()
    (demo,) = found["ralphs"]
    assert sum(each["seconds"] for each in demo["times"]) == pytest.approx(7201.0)
    assert sum(each["usd"] or 0 for each in demo["cost_by_agent"]) == pytest.approx(demo["cost"]["usd"])


def _keys(value: object) -> set[str]:
    if isinstance(value, dict):
        return set(value) | set().union(*map(_keys, value.values()))
    return set().union(*map(_keys, value)) if isinstance(value, list) else set()


def test_what_a_build_has_left_is_found_in_its_directory_and_gone_on_with_there(
    golden: Golden, tmp_path: Path
) -> None:
    place = tmp_path / "state" / "build" / "demo-0123abcd"
    directory = ralph(place, iter(()), state="paused", pause_reason="user_requested")
    found = reading.nearest(str(directory), reading.known({"RALPHD_STATE_DIR": str(tmp_path / "state")}))
    assert found is not None
    assert found.is_build
    rows = dict(words.page(reading.read(found, EVENING, NOW, NOW), NOW).rows)
    golden(rows["next"].replace(pages.CODE, ""))


def test_copies_in_the_directory_are_enough(tmp_path: Path, ctl: Ctl, golden: Golden) -> None:
    home = tmp_path / "elsewhere" / "demo"
    path = write(home, tmp_path, night(5, NOW - 1800))
    kept = tmp_path / "home" / "work" / ".ralph"
    kept.mkdir(parents=True)
    for each in (path, home / "regent-state.json"):
        each.rename(kept / each.name)
    said = ctl("report", "--since", "2026-11-21", cwd=kept.parent)
    golden(said)
    assert said.returncode == 0


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        (["nobody"], 4),
        ([], 4),
        (["--since", "soon"], 2),
        (["--since", "1h", "--until", "2h"], 2),
        (["--md", "--json"], 2),
        (["UPPER"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_what_cannot_be_is_one_clear_line(typed: list[str], code: int, ctl: Ctl, golden: Golden) -> None:
    done = ctl("report", *typed)
    golden(done)
    assert done.returncode == code
