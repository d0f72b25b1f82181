"""What review commands print, and what is read in it (L15)."""

import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphd.core.loop.review import MOST_FINDINGS, Review, ReviewFinding, counted, named, read_review, shown

RUFF = [
    {
        "cell": None,
        "code": "F401",
        "end_location": {"column": 10, "row": 1},
        "filename": "/srv/demo/a.py",
        "fix": {"applicability": "safe", "edits": [{"content": ""}], "message": "Remove unused import: `os`"},
        "location": {"column": 8, "row": 1},
        "message": "`os` imported but unused",
        "noqa_row": 1,
        "url": "https://docs.astral.sh/ruff/rules/unused-import",
    },
    {
        "code": None,
        "filename": "/srv/demo/b.py",
        "location": {"column": 1, "row": 2},
        "message": "SyntaxError: Expected an expression",
    },
]
ESLINT = [
    {"filePath": "/srv/demo/a.js", "messages": [], "errorCount": 0},
    {
        "filePath": "/srv/demo/b.js",
        "messages": [
            {"ruleId": "no-undef", "severity": 2, "message": "'x' is not defined.", "line": 4, "column": 1},
            {"ruleId": "no-undef", "severity": 2, "message": "'y' is not defined.", "line": 4, "column": 9},
        ],
        "errorCount": 2,
        "source": "x(y)",
    },
]


def found(output: object, code: int = 0) -> tuple[ReviewFinding, ...]:
    """The findings in this JSON."""
    return read_review(code, json.dumps(output)).findings


def test_ruffs_findings_have_rule_place_and_text() -> None:
    assert found(RUFF, 1) == (
        ReviewFinding("F401 /srv/demo/a.py:1", "F401: `os` imported but unused", "/srv/demo/a.py:1"),
        ReviewFinding(
            "/srv/demo/b.py:2 SyntaxError: Expected an expression",
            "SyntaxError: Expected an expression",
            "/srv/demo/b.py:2",
        ),
    )


def test_eslints_files_without_messages_are_no_findings_and_two_at_a_place_are_two() -> None:
    assert [(each.id, each.text) for each in found(ESLINT, 1)] == [
        ("no-undef /srv/demo/b.js:4", "no-undef: 'x' is not defined."),
        ("no-undef /srv/demo/b.js:4 #2", "no-undef: 'y' is not defined."),
    ]
    assert found(ESLINT[:1]) == ()


@pytest.mark.parametrize(
    ("output", "texts"),
    [
        ([], []),
        ({"findings": []}, []),
        ({"findings": [], "issues": ["one"]}, ["one"]),
        ({"findings": ["one", "  ", "two"]}, ["one", "two"]),
        ({"issues": [{"title": "one", "body": "long"}]}, ["one"]),
        ([{"severity": "high"}], ['{"severity": "high"}']),
        ([None, 7, True, {}, [], "one"], ["one"]),
        ({"results": [{"path": "a.py", "start": {"line": 3}, "message": "one"}]}, ["one"]),
        ({"summary": "2 problems"}, []),
        ("just a text", []),
    ],
)
def test_lists_of_findings_are_understood_by_many_names(output: Any, texts: list[str]) -> None:
    assert [each.text for each in found(output)] == texts


def test_findings_of_one_name_stay_apart() -> None:
    twice = found([{"id": 1, "message": "a"}, {"id": 1, "message": "b"}, {"id": "1 #2", "message": "c"}])
    assert len({each.id for each in twice}) == 3


def test_a_model_may_talk_around_its_list() -> None:
    said = 'Here is what I found:\n\n```json\n{"findings": ["one"]}\n```\nThat is all.'
    assert [each.text for each in read_review(0, said).findings] == ["one"]
    assert read_review(0, "I looked at it:\n```\nx = 1\n```\nAll is well.").findings == ()


def test_without_json_the_exit_status_counts_and_then_the_text() -> None:
    assert read_review(0, "a warning\n", "and more").findings == ()
    (finding,) = read_review(1, "a.py:3: error: bad\n", "1 error\n").findings
    assert finding.text == "a.py:3: error: bad\n1 error"
    assert read_review(1, "a.py:3: error: bad\n", "1 error\n").findings == (finding,)
    assert read_review(1, "another").findings[0].id != finding.id
    assert read_review(2, "").findings[0].text == "the review ended with 2 and said nothing"
    assert read_review(1, "[]", "it broke").findings[0].text == "[]\nit broke"
    assert len(read_review(1, "x" * 10**6).findings[0].text) <= 8000


@pytest.mark.parametrize(
    ("code", "trouble"),
    [
        (127, "it was not found: sh: 1: ruf: not found"),
        (126, "it may not be executed: sh: 1: ruf: not found"),
        (-9, "signal 9 ended it"),
        (137, "signal 9 ended it"),
        (None, "nobody knows how it ended"),
    ],
)
def test_what_did_not_review_is_no_review(code: int | None, trouble: str) -> None:
    review = read_review(code, '{"findings": ["x"]}', "\x1b[31msh: 1: ruf: not found\n\n")
    assert (review.trouble, review.findings) == (trouble, ())


def test_what_is_cut_is_not_taken_for_clean_where_it_looks_like_a_list() -> None:
    assert read_review(0, ', {"message": "x"}]\n', cut=True).trouble == "it printed more JSON than is read"
    assert read_review(0, "5000 tests passed\n", cut=True).findings == ()
    assert read_review(1, "x]", cut=True).findings[0].text == "x]"


def test_depths_and_crowds_are_bounded() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    assert len(read_review(1, deep).findings) == 1
    nested: Any = ["at the bottom"]
    for _ in range(300):
        nested = [{"messages": nested}]
    assert len(found(nested)) == 1
    assert len(found([{"message": str(n)} for n in range(5000)])) == MOST_FINDINGS


def test_texts_come_out_as_prompts_and_terminals_can_hold_them() -> None:
    (finding,) = read_review(
        0, '[{"id": "a\\u0000\\n\\u001b[31mb", "message": "x\\ud800\\u0007y\\nz"}]'
    ).findings
    assert (finding.id, finding.text) == ("a b", "xy\nz")
    assert (
        named((ReviewFinding("i", "one\n two", "a.py"),) * 5)
        == "; ".join(["a.py: one two"] * 3) + "; and 2 more"
    )


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["findings", "issues", "messages", "message", "id", "file", "line", "location", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@settings(max_examples=60)
@given(
    st.none() | st.integers(-64, 255), JSONS.map(json.dumps) | st.text(), st.text(max_size=50), st.booleans()
)
def test_nothing_that_is_printed_raises_and_ids_are_distinct(
    code: int | None, stdout: str, stderr: str, cut: bool
) -> None:
    review = read_review(code, stdout, stderr, cut=cut)
    ids = [each.id for each in review.findings]
    assert len(set(ids)) == len(ids)
    assert all(ids)
    assert not (review.trouble and review.findings)
    for each in review.findings:
        assert each.short.encode()
        assert each.text
    if code in (1, 2, 255):
        assert review.findings


CUT = "it printed more JSON than is read"


def texts(stdout: str, code: int = 0, *, cut: bool = False) -> list[str]:
    """What the findings in this output say."""
    return [each.text for each in read_review(code, stdout, cut=cut).findings]


# Where a list may be


def test_of_two_fences_the_last_one_holds_the_list() -> None:
    fences = 'I ran\n```sh\nmake ```\nand\n```json\n["one"]\n```\nand\n```\n["two"]\n```\nThat is all.'
    assert texts(fences) == ["two"]
    assert texts('```["three"]```') == ["three"]


def test_a_list_at_the_end_needs_no_fence() -> None:
    assert texts('I found this:\n{"findings": ["one"]}\n') == ["one"]
    assert texts('[a note]\nI found this:\n[\n  "one",\n  {"message": "two"}\n]') == ["one", "two"]
    assert texts('\n["not this"]\nno,\n["this"]') == ["this"]
    assert texts('\n{"issues": ["not this"]}\nno,\n{"issues": ["this"]}') == ["this"]
    assert texts('I found [this] and {"findings": ["that"]}') == []


@pytest.mark.parametrize("lines", ['["one"] \n\n["two"]', '{"issues": ["one"]}\n{"issues": ["two"]}'])
def test_of_a_list_in_each_line_the_last_one_is_not_taken_for_all(lines: str) -> None:
    assert texts(lines, 1) == [lines]


def test_a_text_that_is_too_deep_for_json_hides_no_list_after_it() -> None:
    assert texts("[" * 100_000 + '\n["one"]') == ["one"]


def test_a_review_that_found_nothing_is_no_trouble() -> None:
    assert (Review().findings, Review().trouble, Review().timed_out) == ((), "", False)
    assert ReviewFinding("R", "bad").place == ""


def test_of_what_is_cut_a_fence_or_an_end_that_is_whole_is_read() -> None:
    assert texts('talk\n```json\n["one"]\n```', cut=True) == ["one"]
    assert texts('talk\n["one"]\n', cut=True) == ["one"]
    assert texts('\n["one"]\n', cut=True) == ["one"]
    assert read_review(0, 'talk\n```json\n{"findings": []}\n```\n', cut=True) == Review()


@pytest.mark.parametrize("end", ['"x"]', '{"message": "x"}]}\n', '"x"}]\n```\n', "]\r\n```` \t"])
def test_of_what_is_cut_the_end_of_a_list_is_no_clean_review(end: str) -> None:
    assert read_review(0, end, cut=True) == Review(trouble=CUT)
    assert read_review(0, end).trouble == ""
    assert read_review(1, end, cut=True).trouble == ""


def test_what_is_cut_is_not_read_as_a_whole_though_it_could_be() -> None:
    assert read_review(0, '["the last item of a longer one"]', cut=True) == Review(trouble=CUT)


# What did not review


@pytest.mark.parametrize(
    ("stdout", "stderr", "said"),
    [
        ("", " \n", ""),
        ("first\nlast\n\n", "", ": last"),
        ("out", "err", ": err"),
        ("x" * 400, "", f": {'x' * 300} [cut: 400 characters]"),
    ],
)
def test_a_command_that_was_not_found_says_its_last_line_if_it_said_any(
    stdout: str, stderr: str, said: str
) -> None:
    assert read_review(127, stdout, stderr).trouble == f"it was not found{said}"


@pytest.mark.parametrize(
    ("code", "trouble"),
    [
        (-1, "signal 1 ended it"),
        (128, ""),
        (129, "signal 1 ended it"),
        (192, "signal 64 ended it"),
        (193, ""),
        (1, ""),
    ],
)
def test_a_shell_tells_a_signal_with_128_and_its_number(code: int, trouble: str) -> None:
    assert read_review(code, "text").trouble == trouble


# What is found


def test_a_place_that_another_tool_would_call_otherwise_is_read_too() -> None:
    semgrep = {"check_id": "eval", "path": "a.py", "start": {"line": 3, "col": 1}, "message": "no eval"}
    assert found({"results": [semgrep]}) == (ReviewFinding("eval a.py:3", "eval: no eval", "a.py:3"),)
    assert found([{"file": "a.py", "message": "bad"}])[0].place == "a.py"
    assert found([{"line": 7, "message": "bad"}])[0].place == ""
    assert found([{"file": "a.py", "line": 0, "message": "bad"}])[0].place == "a.py:0"


@pytest.mark.parametrize("name", ["message", "text", "title", "description", "summary", "body"])
def test_a_text_goes_by_many_names(name: str) -> None:
    assert found([{name: "bad", "severity": "high"}]) == (ReviewFinding("bad", "bad"),)


@pytest.mark.parametrize("name", ["file", "filename", "path", "filePath", "file_path"])
@pytest.mark.parametrize("line", ["line", "row", "start_line", "lineNumber"])
def test_a_place_goes_by_many_names(name: str, line: str) -> None:
    item = {name: "a.py", line: 3, "message": "bad"}
    assert found([item])[0].place == "a.py:3"


@pytest.mark.parametrize("name", ["code", "rule", "ruleId", "check_id"])
def test_a_rule_goes_by_many_names(name: str) -> None:
    assert found([{name: "E1", "message": "bad"}])[0].id == "E1"


def test_what_is_listed_of_a_file_is_found_in_that_file_be_it_a_text_only() -> None:
    assert found([{"file": "a.py", "messages": ["bad"]}]) == (ReviewFinding("a.py bad", "bad", "a.py"),)
    inner = {"file": "a.py", "messages": [{"issues": ["bad"]}, {"path": "b.py", "issues": ["worse"]}]}
    assert [each.place for each in found([inner])] == ["a.py", "b.py"]


def test_an_id_is_taken_as_it_is_and_a_rule_gets_its_place_also_where_an_id_is_null() -> None:
    own = {"id": "R1", "code": "E1", "file": "a.py", "message": "bad"}
    assert found([own]) == (ReviewFinding("R1", "bad", "a.py"),)
    assert found([own | {"id": None}]) == (ReviewFinding("E1 a.py", "E1: bad", "a.py"),)
    assert found([{"rule": "E1", "message": "bad"}]) == (ReviewFinding("E1", "E1: bad"),)


def test_what_shows_nothing_is_no_text_and_the_next_name_is_looked_at() -> None:
    assert found(["\u001b[31m", " ", "one"]) == (ReviewFinding("one", "one"),)
    assert found([{"message": "\u001b[0m", "text": "one"}]) == (ReviewFinding("one", "one"),)


def test_a_finding_without_a_name_is_called_by_its_place_and_80_characters() -> None:
    (finding,) = found([{"file": "a.py", "message": "x" * 100}])
    assert finding.id == "a.py " + "x" * 80


def test_names_and_texts_are_cut() -> None:
    (finding,) = found([{"id": "i" * 121, "message": "x" * 3000}])
    assert (finding.id, finding.text) == ("i" * 120 + " [cut: 121 characters]", "x" * 2000)
    assert found([{"id": "i" * 120, "message": "x"}])[0].id == "i" * 120
    assert len(found([{"rule": "E1", "message": "x" * 2000}])[0].text) == 2000
    assert len(found(["x" * 2001])[0].text) == 2000
    assert len(found([{"message": 10**3000}])[0].text) == 2000
    assert len(found([{"severity": "x" * 3000}])[0].text) == 2000


def test_findings_after_thousands_of_files_without_any_are_found() -> None:
    clean: list[Any] = [{"filePath": f"{n}.js", "messages": []} for n in range(3000)]
    assert [each.text for each in found([*clean, {"filePath": "z.js", "messages": ["bad"]}])] == ["bad"]


def test_as_many_as_are_read_may_have_the_same_name() -> None:
    same = found(["bad"] * 300)
    assert [each.id for each in same] == ["bad", *(f"bad #{n}" for n in range(2, 201))]


@pytest.mark.parametrize(("depth", "text"), [(1, "bad"), (7, "bad"), (8, '{"messages": ["bad"]}')])
def test_lists_in_lists_are_followed_eight_deep(depth: int, text: str) -> None:
    nested: list[Any] = ["bad"]
    for _ in range(depth):
        nested = [{"messages": nested}]
    assert [each.text for each in found(nested)] == [text]


def test_of_an_output_that_is_no_list_8000_characters_are_kept() -> None:
    assert texts("first\n" + "x" * 1999 + ("\n" + "y" * 1999) * 3, 1)[0].startswith("x" * 1999)
    assert len(texts(("y" * 1999 + "\n") * 9 + "z", 1)[0]) == 8000
    assert len(texts(("y" * 99 + "\n") * 99, 1)[0]) == 7999


def test_a_text_of_many_lines_is_one_finding_with_all_of_them_and_an_id_that_goes_by_them() -> None:
    lines = [f"line {n}" for n in range(700)]
    (finding,) = read_review(1, " \udcff\n".join(lines), "").findings
    assert finding.text.split("\n") == lines
    assert finding.id == f"review-{sha256(finding.text.encode()).hexdigest()[:8]}"


# How it is told


@pytest.mark.parametrize(
    ("finding", "short", "whole"),
    [
        (ReviewFinding("R", "bad"), "bad", "- [R] bad"),
        (ReviewFinding("R", "bad", "a:3"), "a:3: bad", "- [R] a:3: bad"),
        (ReviewFinding("R", "in a:3: bad", "a:3"), "in a:3: bad", "- [R] a:3: in a:3: bad"),
        (ReviewFinding("R", "x" * 120), "x" * 120, "- [R] " + "x" * 120),
        (ReviewFinding("R", "x" * 121), "x" * 118 + " …", "- [R] " + "x" * 121),
    ],
)
def test_a_finding_is_told_with_its_place_in_part_of_a_line_and_as_a_whole(
    finding: ReviewFinding, short: str, whole: str
) -> None:
    assert (finding.short, finding.whole) == (short, whole)


def test_two_findings_are_alike_in_name_and_text_wherever_they_have_moved() -> None:
    one = ReviewFinding("R", "bad", "a.py:3")
    assert one.is_like(ReviewFinding("R", "bad", "a.py:4"))
    assert not one.is_like(ReviewFinding("S", "bad", "a.py:3"))
    assert not one.is_like(ReviewFinding("R", "worse", "a.py:3"))


def test_findings_are_counted_and_three_of_them_named() -> None:
    one = ReviewFinding("R", "bad")
    assert [counted(n) for n in (0, 1, 2)] == ["0 findings", "1 finding", "2 findings"]
    assert [named((one,) * n) for n in (0, 1, 3)] == ["", "bad", "bad; bad; bad"]
    assert named((one,) * 4) == "bad; bad; bad; and 1 more"


def test_as_many_findings_are_shown_as_30_000_characters_hold_and_one_at_least() -> None:
    thousand = ReviewFinding("R", "x" * (1000 - len("- [R] ")))
    assert len(shown((thousand,) * 31)) == 30
    one_more = ReviewFinding("R", thousand.text + "x")
    assert len(shown((one_more, *(thousand,) * 30))) == 29
    assert shown((ReviewFinding("R", "x" * 30_001), thousand)) == (ReviewFinding("R", "x" * 30_001),)
    assert shown(()) == ()
