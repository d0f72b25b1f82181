"""``tests/requirements.md`` leaves nothing out, and every test that it names is there."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE, PROMISES = ROOT / "tests" / "requirements.md", ROOT / "docs" / "promises.md"
WITHOUT_A_TEST = {"not yet", "nothing to show"}

PARTS = {
    "000-0": 1,
    "000-T1": 3, "000-T2": 4, "000-T3": 3, "000-T4": 3, "000-T5": 6, "000-T6": 2, "000-T7": 7,
    "001-1": 3, "001-2": 3, "001-3": 5, "001-4": 2, "001-5": 2,
    "001-modes": 2, "001-config": 2, "001-tui": 3, "001-layout": 1, "001-accept": 8,
    "002-US-001": 6, "002-US-002": 7, "002-US-003": 6, "002-US-004": 7, "002-US-005": 6, "002-US-006": 5,
    "002-US-007": 6, "002-US-008": 6, "002-US-009": 6, "002-US-010": 7, "002-US-011": 5, "002-US-012": 5,
    "002-FR": 17, "002-goals": 6, "002-not": 6, "002-tech": 7, "002-layout": 1, "002-metrics": 5,
    "002-questions": 3,
    "003-goal": 1, "003-detect": 3, "003-stderr": 3, "003-recover": 3, "003-context": 3, "003-positives": 2,
    "003-pool": 2, "003-validate": 4,
    "004-1": 3, "004-2": 1, "004-3": 4, "004-4": 4, "004-5": 1, "004-6": 1, "004-7": 1, "004-8": 3,
    "004-9": 1, "004-10": 1,
}  # fmt: skip
"""The sections, tasks, stories and lists of the five sources, and into how many parts each falls."""

RULES = {
    "P": 6,
    "S": 9,
    "F": 6,
    "E": 5,
    "C": 4,
    "G": 3,
    "H": 6,
    "L": 15,
    "K": 4,
    "R": 9,
    "Q": 7,
    "W": 8,
    "M": 8,
}


def lines() -> list[list[str]]:
    """The cells of every line that holds a requirement or a rule."""
    rows = (
        line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if "|" in line
    )
    return [cells for cells in rows if re.fullmatch(r"[A-Z]{1,2}-?\d+", cells[0])]


def shown_by() -> Iterator[tuple[str, str]]:
    """Of each line its id, and one by one what shows it."""
    for cells in lines():
        yield from ((cells[0], shown.strip("`")) for shown in cells[-1].split(", "))


@cache
def named_in(path: str) -> frozenset[str]:
    """The tests that a file holds, read without being run."""
    found = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    return frozenset(each.name for each in found if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_test_that_is_named_exists() -> None:
    named = [(ident, shown.split("::")) for ident, shown in shown_by() if "::" in shown]
    missing = [
        (ident, "::".join(parts))
        for ident, parts in named
        if not (ROOT / parts[0]).is_file() or parts[1] not in named_in(parts[0])
    ]

    assert named
    assert not missing


def test_a_line_is_shown_by_tests_or_by_a_part_of_make_check_or_says_why_not() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    checked = re.search(r"^check: (.*(?:\n\t.*)*)", makefile, re.MULTILINE)
    assert checked is not None
    parts = {f"make {part}" for part in checked[1].split()}

    other = {shown for _, shown in shown_by() if not re.fullmatch(r"tests/[a-z_/]+\.py::test_\w+", shown)}
    assert other <= parts | WITHOUT_A_TEST


def test_every_id_is_there_once() -> None:
    ids = Counter(cells[0] for cells in lines())

    assert max(ids.values()) == 1


def test_every_line_has_its_source() -> None:
    tag = re.compile(r"\[(\d{3}-[\w-]+\.\d+)\]")
    sources = {cells[0]: cells[2].split(" ") for cells in lines() if "-" in cells[0]}

    assert not {ident: tags for ident, tags in sources.items() if not all(map(tag.fullmatch, tags))}


def test_no_part_of_a_source_is_left_out_and_none_is_made_up() -> None:
    cited = {tag for cells in lines() for tag in re.findall(r"\[([^\]]+\.\d+)\]", " ".join(cells[2:3]))}

    assert cited == {f"{tag}.{part}" for tag, count in PARTS.items() for part in range(1, count + 1)}


def test_every_rule_of_our_own_is_there() -> None:
    told = {cells[0] for cells in lines() if "-" not in cells[0]}

    known = {f"{letter}{number}" for letter, count in RULES.items() for number in range(1, count + 1)}
    assert told == known | {"M7"}


def test_each_promise_names_tests_that_exist() -> None:
    """``docs/promises.md`` is for people; a promise whose test was renamed is noticed here."""
    rows = [line for line in PROMISES.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    promises = [line for line in rows if not line.startswith(("| promise ", "| --- "))]
    named = {line: re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", line) for line in promises}

    assert len(promises) > 30
    assert [line for line, tests in named.items() if not tests] == []
    assert [
        f"{path}::{name}"
        for tests in named.values()
        for path, name in tests
        if not (ROOT / path).is_file() or name not in named_in(path)
    ] == []
