"""The pages of ``ralphctl web``: what each shows, that hostile text stays text, and that they stay small."""

import gzip
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import resources
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ralphctl.client.client import Client
from ralphctl.report.html import style
from ralphctl.top.model import TopModel
from ralphctl.web import pages
from ralphctl.web.devices import Device, Role
from ralphctl.web.pages import Pages
from ralphd.core.time import rfc3339
from ralphd.errors import NotFound, UnknownRalph
from tests.ctl.commands.test_quota import account
from tests.ctl.fake import Answer, FakeDaemon, problem, view
from tests.ctl.report.test_html import EVIL, evil
from tests.ctl.report.test_report import NOW, held, home, ralph
from tests.written_nights import night

__all__ = ["held", "home"]

VOID = {"meta", "link", "br", "input"}
FILES = resources.files("ralphctl.web")
STATIC = {name: FILES.joinpath("static", name).read_text() for name in ("page.js", "style.css", "icon.svg")}


def phone(name: str = "My phone", role: Role = "act") -> Device:
    return Device("1", name, role, session="", key=None, paired_at=0.0)


class Document(HTMLParser):
    """Parses a page; refuses code and styles in it, and elements that are left open."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []
        self.text = " ".join(self.text.split())
        ids = [attributes["id"] for _, attributes in self.tags if "id" in attributes]
        assert len(ids) == len({*ids})
        assert not any(re.search(r"\s", each) for each in ids)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len({*names}) == len(names)
        assert not any(name.startswith("on") or name in ("style", "srcdoc") for name in names), (tag, names)
        assert tag not in ("style", "iframe", "object", "embed", "base", "img"), tag
        assert tag != "script" or str(dict(attrs)["src"]).startswith("/static/page.js?v=")
        self.text += " "
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError("a comment")

    def handle_data(self, data: str) -> None:
        assert not (self.open[-1:] == ["script"] and data.strip())
        self.text += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def actions(self) -> list[str]:
        return [each["data-action"] for each in self.all("button") if "data-action" in each]

    def links(self) -> list[str]:
        return [each["href"] for each in self.all("a")]


@pytest.fixture
def stage(daemon: FakeDaemon, held: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    monkeypatch.setenv("RALPHD_STATE_DIR", str(held))
    monkeypatch.setattr(pages, "time", SimpleNamespace(time=lambda: NOW))
    daemon.on("GET /v1/quota", lambda _: Answer({"accounts": []}))
    daemon.on("GET /v1/landing", lambda _: Answer({"queues": []}))
    yield daemon


@pytest.fixture
def faces(stage: FakeDaemon) -> Pages:
    return Pages(Client(lambda: [str(stage.path)]))


def knows(stage: FakeDaemon, name: str = "api", **changes: Any) -> None:
    """Have the daemon know a ralph, its explanation and its log."""
    stage.views[name] = view(name, **changes)
    path = f"/v1/ralphs/{name}" if "/" not in name else f"/v1/fleet/ralphs/{name}"
    stage.on(f"GET {path}", lambda _: Answer(stage.views[name]))
    stage.on(f"GET {path}/explain", lambda _: Answer(EXPLANATION))
    stage.on(f"GET {path}/logs", lambda _: Answer(logged("line 1", "line 2")))


EXPLANATION = {
    "rule": "L3", "title": "the run failed", "because": "3 failures in a row", "done": "gave up",
    "missing": [],
    "figures": [{"name": "failures", "seen": "3", "limit": "3"}], "at": rfc3339(NOW - 60),
    "run_id": "r000012-x",
    "request": {"action": "pause", "at": rfc3339(NOW - 30), "by": {"device": "My phone"}},
}  # fmt: skip
LIMIT = {"reason": "usage_limit", "until": rfc3339(NOW + 1900)}
INCIDENT = {
    "opened_at": rfc3339(NOW - 300), "message": "gave up", "needs": "a login", "do": "claude /login",
    "held_back": 0,
    "reminders": 1, "acknowledged_at": None,
}  # fmt: skip


def logged(*lines: str) -> bytes:
    record = {"at": rfc3339(NOW - 9), "stream": "stdout", "partial": False, "cursor": "r:1:0"}
    return b"".join(json.dumps(record | {"text": line}).encode() + b"\n" for line in lines)


def shown(faces: Pages, viewer: Device = phone()) -> Document:  # noqa: B008
    return Document(faces.home(viewer))


# --- what each page shows ---


def test_who_needs_you_is_first_with_reason_and_step(stage: FakeDaemon, faces: Pages) -> None:
    knows(stage, "web", task={"id": "1", "title": "Parse dates"}, tasks={"done": 4, "total": 5})
    knows(
        stage,
        "docs",
        state="failed",
        message="5 tasks failed",
        incident=INCIDENT,
        finished_at=rfc3339(NOW - 120),
    )
    knows(stage, "old", state="done")
    page = shown(faces)
    assert "1 ralph needs you" in page.text and "3 ralphs, 1 working, 1 done" in page.text
    first, then = page.text.index("docs"), page.text.index("web")
    assert first < page.text.index("failed 5 tasks failed, 2m ago") < page.text.index("Working") < then
    for words in ("needs: a login", "claude /login", "5m ago", "ralphctl start docs", "1 finished"):
        assert words in page.text
    assert "ralphctl explain" not in page.text, "the page itself shows why"
    assert page.actions() == ["ack"]
    assert "/ralphs/docs" in page.links()
    stage.views["docs"]["incident"] = INCIDENT | {"acknowledged_at": rfc3339(NOW - 5)}
    assert "acknowledged 5s ago" in shown(faces).text, "what came of it"


@pytest.mark.parametrize(
    ("changes", "actions", "words"),
    [
        ({"state": "failed", "message": "exit 1"}, [], "failed exit 1"),
        ({"state": "paused", "pause_reason": "requested"}, ["resume", "stop"], "paused as requested"),
        ({"state": "paused", "pause_reason": "guard", "guard": {"reverted": ["abc1234"]}}, ["resume",
        "undo", "stop"],
         "the guard needs you"),
        ({"state": "waiting_for_retry", "wait": LIMIT, "agent": "claude"}, ["skip-wait", "pause", "stop"],
         "limited until 07:31"),
        ({"state": "done", "branch": "ralph/x", "landing": {"state": "waiting", "target": "main"}}, ["land"],
         "waits for you to land on main"),
        ({"state": "running"}, ["pause", "stop"], "working for 1d 2h"),
    ],
)  # fmt: skip
def test_the_buttons_fit_the_state(
    stage: FakeDaemon, faces: Pages, changes: dict[str, Any], actions: list[str], words: str
) -> None:
    knows(stage, **changes)
    page, alone = shown(faces), Document(faces.ralph("api", phone()))
    assert alone.actions() == actions
    assert page.actions() == (
        actions if "needs you" in words or changes["state"] in ("paused", "done") else []
    )
    assert words in page.text and words in alone.text
    assert all("disabled" in each for each in alone.all("button")), "until the script is there"
    assert {each["data-action"] for each in alone.all("button") if "data-question" in each} <= {
        "stop",
        "undo",
        "land",
    }
    assert shown(faces, phone(role="look")).actions() == []


def test_problems_of_the_daemon_are_shown(
    stage: FakeDaemon, faces: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    knows(stage)
    assert "degraded" not in shown(faces).text
    known = stage.daemon() | {"problems": ["disk: <b>full</b>"]}
    monkeypatch.setattr(stage, "daemon", lambda: known)
    assert "ralphd is degraded: disk: <b>full</b>" in shown(faces).text


def test_one_that_works_shows_its_work(stage: FakeDaemon, faces: Pages) -> None:
    change = {"at": rfc3339(NOW - 50), "what": "commit abc1234"}
    task = {"id": "1", "title": "Parse dates"}
    knows(stage, task=task, tasks={"done": 4, "total": 5}, total_cost_usd=0.66, last_change=change)
    for page in (shown(faces), Document(faces.ralph("api", phone()))):
        for words in (
            "task: Parse dates",
            "4 of 5 tasks",
            "$0.66",
            "iteration 7",
            "50s ago (06:59:10): commit abc1234",
        ):
            assert words in page.text
        assert page.all("progress") == [{"aria-label": "tasks done", "max": "5", "value": "4"}]
    knows(stage, total_cost_usd=0.0031)
    assert "less than $0.01" in shown(faces).text


def test_the_night_has_its_strips_reverts_tasks_and_quota(
    stage: FakeDaemon, faces: Pages, held: Path
) -> None:
    directory = ralph(held, night(60, NOW - 5 * 3600), "api", state="running")
    knows(stage, directory=str(directory))
    windows = [
        {
            "name": "five_hour",
            "limit": "5-hour limit",
            "used": 0.82,
            "resets_at": rfc3339(NOW + 60),
            "ends_at": None,
        }
    ]
    stage.on(
        "GET /v1/quota",
        lambda _: Answer({"accounts": [account("claude", windows=windows), account("codex")]}),
    )
    stage.on("GET /v1/landing", lambda _: Answer({"queues": [QUEUE]}))
    page = shown(faces)
    for words in (
        "58 tasks done, 58 commits kept, 2 reverted", "Landing on main of x", "ralph/api landed",
        "the tests failed, and pass without it",
        "FAILED tests/test_list.py", "82 %", "5-hour limit resets 07:01", "Story 59 of the list",
        "api, strip of the night",
    ):  # fmt: skip
        assert words in page.text
    assert "before" not in page.text, "what landed the night before"
    asked = [request.path for request in stage.asked]
    assert asked == ["/v1/status", "/v1/quota", "/v1/fleet/ralphs", "/v1/landing"]


QUEUE: dict[str, Any] = {
    "repository": "/srv/x/.git", "target": "main", "remote": None, "blocked": None, "batch": None,
    "candidates": [
        {"number": number, "ralph": "api", "branch": branch, "head": "abc", "state": "landed", "why": "",
        "tries": 1,
         "commit": "abc1234", "undoes": None, "queued_at": at, "ended_at": at, "next": "", "copies": []}
        for number, branch, at in ((2, "ralph/api", rfc3339(NOW - 99)), (1, "before", rfc3339(NOW - 2e5)))
    ],
}  # fmt: skip


def test_the_page_of_a_ralph_has_why_report_and_iterations(
    stage: FakeDaemon, faces: Pages, held: Path
) -> None:
    directory = ralph(held, night(60, NOW - 5 * 3600), "api", state="running")
    (directory / "TASKS.md").write_text("".join(f"- [ ] Task {number}\n" for number in range(90)))
    knows(stage, directory=str(directory))
    page = Document(faces.ralph("api", phone()))
    for words in ("the run failed", "L3: 3 failures in a row", "gave up", "failures 3 3",
                   "pause by My phone, 30s ago",
                  "api, strip of the night", "… and 30 more: ralphctl tasks",
                  "Where the time went"):  # fmt: skip
        assert words in page.text
    links = [each for each in page.links() if "iterations" in each]
    assert links == [f"/ralphs/api/iterations/1:{number}" for number in range(60, 10, -1)]
    assert "/ralphs/api/log#end" in page.links()
    one = Document(faces.iteration("api", "1:29", phone()))
    for words in (
        "iteration 29 of run 1",
        "reverted: the tests failed",
        "FAILED tests/test_list.py",
        "ralphctl show api 1:29.",
    ):
        assert words in one.text
    assert "iteration 60" in Document(faces.iteration("api", "60", phone())).text
    with pytest.raises(NotFound):
        faces.iteration("api", "61", phone())


def test_the_log_has_its_last_lines_without_codes(stage: FakeDaemon, faces: Pages) -> None:
    knows(stage)
    lines = [f"line {number}" for number in range(300)] + ["\x1b[31mred\x1b[0m \x1b]0;t\x07<b>", "x" * 9000]
    stage.on("GET /v1/ralphs/api/logs", lambda _: Answer(logged(*lines)))
    page = Document(faces.log("api", phone()))
    assert "red <b>" in page.text and "line 102 line 103" in page.text and "line 101" not in page.text
    assert "… (9000 characters)" in page.text and "ralphctl logs api" in page.text
    assert stage.asked[-1].query["tail"] == "200"
    stage.on("GET /v1/ralphs/api/logs", lambda _: Answer(logged(*["y" * 1999] * 200)))
    assert len(faces.log("api", phone())) < 110_000


def test_a_ralph_of_another_machine_has_no_history(stage: FakeDaemon, faces: Pages) -> None:
    knows(stage, "box/api")
    elsewhere = {"host": "own", "ralphs": [stage.views["box/api"]]}
    stage.on("GET /v1/fleet/ralphs", lambda _: Answer(elsewhere))
    assert "/ralphs/box/api" in shown(faces).links()
    page = Document(faces.ralph("box/api", phone()))
    assert "the run failed" in page.text and page.all("svg") == [] and page.actions() == ["pause", "stop"]
    assert "line 2" in Document(faces.log("box/api", phone())).text
    with pytest.raises(NotFound):
        faces.iteration("box/api", "1", phone())


def test_an_unknown_ralph_is_an_error(stage: FakeDaemon, faces: Pages) -> None:
    stage.on("GET /v1/ralphs/x/logs", lambda _: problem("unknown-ralph", 404, "no"))
    for page in (faces.ralph, faces.log):
        with pytest.raises(UnknownRalph):
            page("x", phone())


def test_an_error_is_a_page_for_a_person(faces: Pages) -> None:
    page = Document(faces.problem(UnknownRalph(f"no {EVIL}", why="why", mend="ralphctl status"), phone()))
    assert "no \"'><script>" in page.text and "try: ralphctl status" in page.text and "/" in page.links()


def test_without_a_ralph_the_page_says_how_to_start_one(faces: Pages) -> None:
    assert "Nobody needs you" in shown(faces).text and "ralphctl start DIR" in shown(faces).text


# --- what they never do ---


def test_whatever_others_write_is_text(stage: FakeDaemon, faces: Pages, held: Path) -> None:
    evil(held, "api")
    directory = str(held.parent / "home" / "work" / "api")
    part = {"id": EVIL, "title": EVIL}
    hostile: dict[str, Any] = {
        "message": EVIL, "branch": EVIL, "agent": EVIL, "notes": [EVIL], "task": part, "pause_reason": EVIL,
        "incident": INCIDENT | {"message": EVIL, "needs": EVIL, "do": EVIL}, "last_change": {"at": EVIL,
        "what": EVIL},
        "wait": {"reason": EVIL, "until": EVIL}, "landing": {"state": "waiting", "target": EVIL, "why": EVIL},
    }  # fmt: skip
    for state in ("failed", "paused", "running", "waiting_for_retry", "done", EVIL):
        knows(stage, "api", directory=directory, **hostile | {"state": state})
        stage.views |= {EVIL: view(EVIL, **hostile), f"{EVIL}/x": view(f"{EVIL}/x", **hostile)}
        stage.on("GET /v1/quota", lambda _: Answer({"accounts": [account(EVIL, working=[EVIL])]}))
        stage.on(
            "GET /v1/landing",
            lambda _: Answer({"queues": [json.loads(json.dumps(QUEUE).replace("ralph/api", "</ul>"))]}),
        )
        why = dict.fromkeys(EXPLANATION, EVIL) | {"figures": [{"name": EVIL, "seen": EVIL, "limit": EVIL}]}
        stage.on("GET /v1/ralphs/api/explain", lambda _, why=why: Answer(why))  # type: ignore[misc]
        stage.on("GET /v1/ralphs/api/logs", lambda _: Answer(logged(EVIL)))
        viewer = phone(EVIL)
        for html in (
            faces.home(viewer),
            faces.ralph("api", viewer),
            faces.log("api", viewer),
            faces.iteration("api", "1", viewer),
        ):
            assert "<script>alert(1)</script>" in Document(html).text
            assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", html)
            assert html.count("<script") == 1 and html.count("<img") == html.count("<!--") == 0


@pytest.mark.parametrize("wrong", [None, 3, "<b>\ud800", [1, None], {"id": 3, "title": []}, True, 1e308])
def test_values_of_another_type_make_a_page_too(stage: FakeDaemon, faces: Pages, wrong: object) -> None:
    keys = (
        "task",
        "tasks",
        "message",
        "last_change",
        "iteration",
        "agent",
        "total_cost_usd",
        "landing",
        "guard",
        "seen",
    )
    for key in keys:
        knows(stage, "a-" + key.replace("_", "-"), **{key: wrong})
        assert "a-task" in shown(faces).text


def test_no_part_has_code_or_styles_of_its_own(stage: FakeDaemon, faces: Pages) -> None:
    knows(stage)
    for html in (
        faces.home(phone()),
        faces.pair(),
        faces.log("api", phone()),
        faces.ralph("api", phone()),
    ):
        assert html.startswith("<!DOCTYPE html>") and html.count("<main") == 1
        assert not re.search(r"https?:|javascript:|url\(", html)
        page = Document(html)
        assert page.all("html") == [{"lang": "en"}]
        levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
        assert levels[0] == 1 and levels.count(1) == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))
    part = faces.home(phone(), part=True)
    assert "<main" not in part and "<html" not in part and "1 ralph" in Document(part).text
    assert not re.search(r"https?:|@import|\burl\(", STATIC["style.css"] + STATIC["page.js"])
    assert "innerHTML" not in STATIC["page.js"] and "eval(" not in STATIC["page.js"]


# --- bounds ---


def test_two_hundred_ralphs_fit_a_slow_network(stage: FakeDaemon, faces: Pages, held: Path) -> None:
    states = ("running", "failed", "waiting_for_retry", "done")
    for number in range(200):
        name, state = f"ralph-{number}", states[number % 4]
        directory = ralph(held, night(6, NOW - 3600 - 60 * number), name, state=state)
        task = {"id": str(number), "title": f"Task {number} " * 9}
        stage.views[name] = view(name, state=state, directory=str(directory), task=task,
                                 message=f"why {number} " * 30,
                                 tasks={"done": number % 7, "total": 7},
                                 wait=LIMIT if state == states[2] else None)  # fmt: skip
    html = faces.home(phone())
    size = sum(len(gzip.compress(each.encode(), 6)) for each in (html, *STATIC.values()))
    assert size <= 60_000
    assert "And 30 more: ralphctl status" in Document(html).text
    histories = [pages._stamp(name) for name in stage.views]
    assert all(histories)
    names: list[set[str]] = []

    def read_nights(_: TopModel, which: set[str], now: float) -> None:
        names.append(which)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TopModel, "read_nights", read_nights)
        faces.home(phone())
    assert names == [set()], "what has not changed is not read again"


def test_a_long_history_is_read_from_its_end(stage: FakeDaemon, faces: Pages, held: Path) -> None:
    directory = ralph(held, night(2000, NOW - 2000 * 200), "api", state="running")
    knows(stage, directory=str(directory))
    assert len(faces.ralph("api", phone())) < 200_000
    assert len(gzip.compress(faces.home(phone()).encode())) < 20_000


# --- the files besides ---


def test_the_colours_are_those_of_the_report() -> None:
    sheet = STATIC["style.css"]
    for palette in (style.LIGHT, style.DARK):
        assert ";".join(f"--{name}:{value}" for name, value in palette.items()) in sheet
    assert not re.search(r"#[0-9a-f]{3,6}\b", re.sub(r"--\w+:#[0-9a-f]+", "", sheet)), "no other colour"
    for words in ("prefers-reduced-motion", ":focus-visible", "min-height:2.75rem"):
        assert words in sheet


def test_the_script_stays_small() -> None:
    assert len(STATIC["page.js"].splitlines()) <= 250
    assert sum(len(gzip.compress(each.encode())) for each in STATIC.values()) < 9_000


def test_addresses_of_files_change_with_them(faces: Pages) -> None:
    page = Document(faces.pair())
    addresses = [each["href"] for each in page.all("link")] + [each["src"] for each in page.all("script")]
    assert [re.sub(r"\?v=[0-9a-f]{16}$", "", each) for each in addresses] == [
        "/static/style.css", "/static/icon.svg", "/static/page.js"
    ]  # fmt: skip
