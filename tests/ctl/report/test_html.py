"""``ralphctl report --html``: one file that shows hostile text as text, is accessible, and stays small."""

import json
import os
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ralphctl.report import read as reading
from ralphctl.report import text as words
from ralphctl.report.html import details, document, style
from ralphd.core.time import rfc3339
from ralphd.process.log.records import stored_time
from tests.ctl.conftest import Ctl
from tests.ctl.report.test_report import EVENING, NOW, held, home, ralph
from tests.git.work_tree import WorkTree
from tests.written_nights import attempt, entry, night, write

__all__ = ["held", "home"]

TEXTS = ("text", "muted", "accent")
"""The colours of text. It is on ``page`` or on ``panel``."""
EVIL = (
    "\"'><script>alert(1)</script><img src=x onerror=alert(1)>&lt;"
    "\x1b[31m\x1b]0;t\x07\u202e\x00\x01`--><!--</style>"
)
ALLOWED = {
    "html": {"lang"}, "head": set(), "meta": {"charset", "http-equiv", "content", "name"}, "title": set(),
    "style": set(), "body": set(), "header": set(), "nav": {"aria-label"}, "main": set(), "footer": set(),
    "section": {"id"}, "h1": set(), "h2": set(), "h3": set(), "p": {"class"}, "a": {"href"}, "ul": {"class"},
    "li": set(), "strong": set(), "code": set(), "pre": set(), "br": set(), "dl": set(), "dt": set(),
    "dd": set(),
    "table": set(), "thead": set(), "tbody": set(), "tr": set(), "th": {"scope"}, "td": set(),
    "figure": set(), "figcaption": set(), "details": set(), "summary": set(),
    "svg": {"role", "viewbox", "aria-label"}, "rect": {"class", "x", "y", "width", "height"},
    "path": {"class", "d"}, "text": {"class", "x", "y"},
}  # fmt: skip
VOID = {"meta", "br"}


class Page(HTMLParser):
    """Parses a page, and refuses any element or attribute that this program does not write."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert {name for name, _ in attrs} <= ALLOWED[tag], (tag, attrs)
        assert len({name for name, _ in attrs}) == len(attrs)
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError("a comment")

    def handle_pi(self, data: str) -> None:
        raise AssertionError("an instruction")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def html(held: Path, *names: str) -> str:
    every = [
        each
        for each in reading.choose(None, "/", {"RALPHD_STATE_DIR": str(held)})
        if not names or each.name in names
    ]
    reports = [reading.read(source, EVENING, NOW, NOW) for source in every]
    shown = words.page(reports[0], NOW) if len(reports) == 1 else words.overview(reports, EVENING, NOW, NOW)
    shown = words.with_landing(shown, reading.landing(reports, EVENING, NOW), NOW)
    return document.document(shown, [details.details(each) for each in reports], NOW)


def printed(held: Path, name: str, lines: Iterator[tuple[float, str]]) -> None:
    run = held / "ralphs" / name / "runs" / "r000001-0000beef"
    run.mkdir(parents=True)
    (run / "log.000001").write_text("".join(f"{stored_time(at)} stdout F {line}\n" for at, line in lines))


def committed(directory: Path, subject: str, files: dict[str, str]) -> str:
    """Commit the files in a new repository; gives the commit."""
    tree = WorkTree.new(directory)
    for name, content in files.items():
        (directory / name).write_text(content)
    tree.git("add", ".")
    tree.git("commit", "--quiet", "--message", subject)
    return tree.git("rev-parse", "HEAD").strip()


def evil_entries(sha: str) -> Iterator[dict[str, Any]]:
    of: dict[str, Any] = {"run_id": "r000001-0000beef", "iteration": 1, "task": {"id": EVIL, "title": EVIL}}
    yield attempt(NOW - 90, of, 1, agent=EVIL, kind=EVIL) | {"why": EVIL, "hint": EVIL, "model": EVIL}
    yield entry(
        "verdict", "1/verdict", NOW - 70, **of, verdict=EVIL, why=EVIL, commits=[sha], reverted=[sha],
        weakened=[EVIL], tests=[EVIL], tests_s=[1.0], baseline=EVIL, tail=f"{EVIL}\nFAILED {EVIL}",
    )  # fmt: skip
    yield entry("iteration", "1", NOW - 60, **of, failed=True, summary=EVIL, complete=True, commits=[sha])
    yield entry("escalation", "e", NOW - 50, run_id=of["run_id"], data={"message": EVIL})
    yield entry("wait", "w", NOW - 40, run_id=of["run_id"], reason=EVIL, until=rfc3339(NOW + 60))
    yield entry("repair", "r", NOW - 35, run_id=of["run_id"], what=EVIL, why=EVIL, kind_of=EVIL)
    yield entry(EVIL, "x", NOW - 30, **of)


def evil(held: Path, name: str = "demo") -> None:
    directory = held.parent / "home" / "work" / name
    sha = committed(directory, EVIL.replace("\x00", ""), {EVIL.replace("/", "").replace("\x00", ""): EVIL})
    state = {
        "state": "failed", "message": EVIL, "branch": EVIL, "agent": EVIL, "notes": [EVIL],
        "pause_reason": EVIL,
    }  # fmt: skip
    write(held / "ralphs" / name, directory, evil_entries(sha), run_id="r000001-0000beef", **state)
    (directory / "TASKS.md").write_text(f"- [ ] {EVIL}\n- [x] {EVIL} two\n".replace("\x00", ""))
    said = {"type": "assistant", "session_id": EVIL, "message": {"role": "assistant", "content": [
        {"type": "text", "text": EVIL},
        {"type": "tool_use", "id": "x", "name": EVIL, "input": {"command": EVIL}},
    ]}}  # fmt: skip
    printed(
        held, name, iter([(NOW - 100, EVIL), (NOW - 99, json.dumps(said)), (NOW - 98, f"[{EVIL}] {EVIL}")])
    )


def test_whatever_a_run_writes_is_text(held: Path) -> None:
    evil(held)
    page = html(held)
    parsed = Page(page)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)
    assert page.count("<script") == page.count("<img") == page.count("<!--") == 0
    assert parsed.text.count("<script>alert(1)</script>") > 15
    for part in (
        "Needs you",
        "Agent output",
        "Diff",
        "End of the tests' output",
        "Iterations",
        "Commits",
        "Tasks",
    ):
        assert part in parsed.text
    both = held / "ralphs" / "other"
    evil(held, both.name)
    assert Page(html(held)).text.count("<script>alert(1)</script>") > 30


@pytest.mark.parametrize("wrong", [None, 3, "<b>\ud800", [1, None], {"id": 3, "title": []}, True, 1e308])
def test_values_of_another_type_make_a_page_too(held: Path, wrong: object) -> None:
    keys = {key for each in night(4, NOW - 3600) for key in each} - {"kind", "at"}
    for key in sorted(keys):
        entries = ({**each, key: wrong} if key in each else each for each in night(4, NOW - 3600))
        ralph(held, entries, key.replace("_", "-"), state="done")
    assert Page(html(held)).text.count("iteration 1 of") > len(keys) / 2


def test_the_page_is_accessible(held: Path) -> None:
    ralph(held, night(40, NOW - 4 * 3600), state="failed", message="gave up", total_cost_usd=3.0)
    ralph(held, night(3, NOW - 3600), "api", state="done")
    for names in ((), ("demo",)):
        page = html(held, *names)
        parsed = Page(page)
        tags = [tag for tag, _ in parsed.tags]
        assert parsed.all("html") == [{"lang": "en"}]
        assert {"title", "header", "main", "footer"} <= {*tags}
        levels = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
        assert levels.count(1) == 1
        assert levels[0] == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))
        assert all(each.get("scope") in ("col", "row") for each in parsed.all("th"))
        assert parsed.all("table") and tags.count("thead") == tags.count("table")
        assert re.search("<thead><tr>(?!<th scope=.col.>)", page) is None
        ids = [each["id"] for _, each in parsed.tags if "id" in each]
        assert len(ids) == len({*ids}) == (0 if names else 2)
        assert re.search("<title>[^<]+: [^<]+</title>", page)
        pictures = parsed.all("svg")
        assert len(pictures) > len(names)
        assert all(each["role"] == "img" and each["aria-label"] for each in pictures)
        assert page.count('"><title>') >= len(pictures), "each has a title"
        anchors = {str(each["href"]).removeprefix("#") for each in parsed.all("a")}
        assert anchors <= {each.get("id") for each in parsed.all("section")}
        assert ":focus-visible" in style.SHEET


def test_nothing_is_loaded_and_no_script_runs(held: Path) -> None:
    ralph(held, night(20, NOW - 2 * 3600), state="done")
    page = html(held)
    (policy,) = [each["content"] for each in Page(page).all("meta") if "http-equiv" in each]
    assert policy == style.POLICY
    assert "default-src 'none'" in style.POLICY
    assert "unsafe" not in style.POLICY
    assert page.count("<style>") == 1
    assert f"<style>{style.SHEET}</style>" in page
    assert not re.search(r"https?:|url\(|@import|javascript:|\ssrc=|\sstyle=|\son\w+=", page)
    assert "prefers-color-scheme:dark" in page


def test_colours_have_the_contrast_that_reading_needs() -> None:
    for palette in (style.LIGHT, style.DARK):
        for behind in ("page", "panel"):
            for name in TEXTS:
                assert _contrast(palette[name], palette[behind]) >= 4.5, name
            for name in (*style.STATES, "line"):
                assert _contrast(palette[name], palette[behind]) >= 3.0, name
        for name in style.STATES:
            assert _contrast(palette["page"], palette[name]) >= 3.0, "the letter in a cell"
    assert {*style.LIGHT} == {*style.DARK} == {"page", "panel", "line", *TEXTS, *style.STATES}


def _contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_strip_and_the_costs_are_those_of_the_report(held: Path) -> None:
    ralph(held, night(60, NOW - 4 * 3600), state="done", total_cost_usd=6.6)
    source = reading.choose("demo", "/", {"RALPHD_STATE_DIR": str(held)})[0]
    summary = reading.read(source, EVENING, NOW, NOW).summary
    assert sum(micro for _, micro in summary.spending) == summary.cost.micro_usd > 0
    page = html(held)
    cells = summary.cells(summary.since, summary.until)
    assert page.count('class="reverted"') - 1 == sum(a != "reverted" == b for a, b in pairwise(["", *cells]))
    assert page.count(f"{summary.cost.micro_usd / 1e6:.2f} in all") == 2
    assert ">budget<" not in page


def test_the_budget_is_a_line_where_the_cost_would_meet_it(held: Path) -> None:
    ralph(held, night(60, NOW - 4 * 3600), state="running", total_cost_usd=10.0)
    path = held / "ralphs" / "demo" / "ralph.json"
    configuration = {"values": {"ralph": {"max_cost_usd": 15}}}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"configuration": configuration}))
    cost = reading.read(
        reading.choose("demo", "/", {"RALPHD_STATE_DIR": str(held)})[0], EVENING, NOW, NOW
    ).summary.cost
    assert f"the budget is used up at ${5 + cost.micro_usd / 1e6:.2f}" in html(held)


def test_the_prompt_belongs_to_the_attempt_that_it_was_written_for(held: Path) -> None:
    ralph(held, night(3, NOW - 600), state="done")
    path = held / "ralphs" / "demo" / "PROMPT-now.md"
    path.write_text("Do <this>")
    assert "Do &lt;this&gt;" not in html(held), "of an iteration that has not ended"
    os.utime(path, (NOW - 210, NOW - 210))
    assert html(held).count("Do &lt;this&gt;") == 1


def test_a_long_part_is_clipped_and_says_so(held: Path) -> None:
    directory = held.parent / "home" / "work" / "demo"
    sha = committed(directory, "long", {"f": "".join(f"<{i}>\n" for i in range(9000)), "g": "x" * 99_999})
    of: dict[str, Any] = {"run_id": "r000001-0000beef", "iteration": 1, "task": None}
    entries = [
        attempt(NOW - 90, of, 1),
        entry("iteration", "1", NOW - 60, **of, failed=False, summary="ok", complete=True, commits=[sha]),
    ]
    write(held / "ralphs" / "demo", directory, iter(entries), state="done")
    printed(held, "demo", ((NOW - 100, f"{i} {'y<' * 900}") for i in range(50)))
    page = html(held)
    Page(page)
    assert "Diff; its end is left out" in page
    assert "Agent output; its beginning is left out" in page
    assert "49 y&lt;" in page
    assert len(page) < 40_000


def test_a_night_of_200_iterations_is_small_and_quick(held: Path) -> None:
    entries = list(night(200, NOW - 12.5 * 3600))
    ralph(held, iter(entries), state="running", total_cost_usd=20.0)
    ends = [NOW - 12.5 * 3600 + 216.0 * i for i in range(200)]
    printed(held, "demo", ((at + j, f"{'<b>' * 500}") for at in ends for j in range(60)))
    began = time.process_time()
    page = html(held)
    took = time.process_time() - began
    Page(page)
    bare = re.sub(r'(?s)<p class="note">Agent output.*?</details>\n', "", page)
    assert page.count("<summary>iteration") == 200
    assert len(bare.encode()) <= 400_000
    assert 400_000 < len(page.encode()) <= 4_000_000
    assert took < 5.0, "a bound against mistakes of order; make bench has the figure"


def test_an_empty_night_is_a_page_too(held: Path) -> None:
    ralph(held, iter(()), state="stopped")
    page = Page(html(held))
    assert "nothing ran" in str(page.all("svg")[0]["aria-label"])
    assert "Iterations" not in page.text


def test_several_ralphs_are_one_page_without_a_daemon(ctl: Ctl, environment: dict[str, str]) -> None:
    place = Path(environment["RALPHD_STATE_DIR"])
    ralph(place, night(5, NOW - 1800), state="failed", message="gave up")
    ralph(place, iter(()), "web", state="stopped")
    shown = ctl("report", "--all", "--html", "--since", "1h")
    assert (shown.returncode, shown.stderr) == (0, "")
    page = Page(shown.stdout)
    assert [each["href"] for each in page.all("a")] == ["#ralph-0", "#ralph-1"]
    assert len(page.all("svg")) == 4, "two strips, the legend, and what one of them cost"
    assert len(page.all("details")) == 5
    assert "demo failed" in page.text


def test_the_command_prints_it_or_opens_it(
    held: Path, ctl: Ctl, tmp_path: Path, environment: dict[str, str]
) -> None:
    ralph(held, night(5, NOW - 1800), state="done")
    since = ("--since", rfc3339(NOW - 2000), "--until", rfc3339(NOW))
    shown = ctl("report", "demo", "--html", *since)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert len(Page(shown.stdout).all("details")) == 5
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    opened = ctl("report", "demo", "--open", *since, more={"BROWSER": f"{browser} %s"})
    path = held / "reports" / "demo.html"
    assert opened.stdout == f"report: {path}\n"
    assert (tmp_path / "opened").read_text() == f"{path.as_uri()}\n"
    assert path.stat().st_mode & 0o777 == 0o600
    Page(path.read_text())
    for words_ in (("--html", "--md"), ("--html", "--json"), ("--open", "--md")):
        assert ctl("report", "demo", *words_).returncode == 2
