"""What review commands print, and what is read in it (L15)."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphd.core.loop.review import MOST_FINDINGS, ReviewFinding, named, read_review

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
