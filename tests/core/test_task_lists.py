"""Task lists of every form that occurs, and of none: what is open in them is never taken for done."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.plan import MAX_TASKS, Plan, Task, TaskStatus, has_task_headings, is_complete, parse

PENDING, IN_PROGRESS, DONE = TaskStatus.PENDING, TaskStatus.IN_PROGRESS, TaskStatus.DONE


def markdown(text: str) -> list[tuple[str, TaskStatus]]:
    """Titles and statuses of a Markdown list."""
    plan = parse("TASKS.md", text)
    assert plan.fault is None
    return [(task.title, task.status) for task in plan.tasks]


def stories(found: object) -> Plan:
    """The plan of a ``prd.json``."""
    return parse("prd.json", json.dumps(found))


# Check lists


@pytest.mark.parametrize("bullet", ["-", "*", "+", "1.", "12)", "  -", "\t*", "        1.", "> -"])
@pytest.mark.parametrize(
    ("box", "status"),
    [
        ("[ ]", PENDING),
        ("[]", PENDING),
        ("[  ]", PENDING),
        ("[ x ]", DONE),
        ("[x]", DONE),
        ("[X]", DONE),
        ("[✅]", DONE),
        ("[✔️]", DONE),
        ("[~]", IN_PROGRESS),
        ("[-]", IN_PROGRESS),
        ("[/]", IN_PROGRESS),
        ("[!]", PENDING),
        ("[?]", PENDING),
    ],
)
def test_a_box_in_a_list_of_any_kind_is_a_task(bullet: str, box: str, status: TaskStatus) -> None:
    assert markdown(f"{bullet} {box} Write it\r\n") == [("Write it", status)]


@pytest.mark.parametrize(
    "line",
    [
        *("- [x](https://example.com) a link", "- [1] Smith et al.", "[x] no list", "- x] no box"),
        *("- [ab] label", "- [ ]", "- [ ]   ", "- [x]done", "text - [ ] in the middle"),
    ],
)
def test_what_only_looks_like_a_box_is_no_task(line: str) -> None:
    assert markdown(line) == []


def test_nested_tasks_are_tasks_of_their_own() -> None:
    text = "- [x] outer\n  - [ ] inner\n    1. [~] innermost\n- plain\n"

    assert markdown(text) == [("outer", DONE), ("inner", PENDING), ("innermost", IN_PROGRESS)]


@pytest.mark.parametrize(
    "hidden",
    [
        "```\n- [ ] hidden\n```",
        "```markdown\n- [ ] hidden\n```\n",
        "~~~~\n- [ ] hidden\n~~~\n- [ ] hidden\n~~~~",
        "  - ```\n    - [ ] hidden\n    ```",
        "````\n```\n- [ ] hidden\n```\n````",
        "<!-- - [ ] hidden -->",
        "<!--\n- [ ] hidden\n```\n-->",
        "<!--\n- [ ] hidden -->",
        "plain -->\n<!--\n- [ ] hidden\n-->",
        "```\r\n- [ ] hidden\r\n```\r",
        "~~~a`b\n- [ ] hidden\n~~~",
    ],
)
def test_boxes_in_code_and_comments_are_examples(hidden: str) -> None:
    assert markdown(f"- [x] before\n{hidden}\n- [ ] after <!-- id 3 -->\n") == [
        ("before", DONE),
        ("after", PENDING),
    ]


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("```a`b\n- [ ] shown\n```", ["shown"]),
        ("```\n```\n- [ ] shown\n```\n```", ["shown"]),
        ("- [ ] shown <!-- never closed", ["shown <!-- never closed"]),
        ("- [ ] one <!-- x --> two <!-- y --> three", ["one two three"]),
        ("<!--\n--> - [ ] shown --> too", ["shown --> too"]),
        ("- [ ] one --><!-- x --> two", ["one --> two"]),
        ("- [ ] shown\nplain --> - [ ] no box\n<!--\nx\n-->", ["shown"]),
    ],
)
def test_what_is_outside_of_code_and_comments_is_shown(text: str, titles: list[str]) -> None:
    assert [title for title, _ in markdown(text)] == titles


@pytest.mark.parametrize("begin", ["```", "~~~ text", "<!--", "- <!-- "])
def test_a_fence_or_comment_that_is_never_closed_hides_no_open_work(begin: str) -> None:
    assert markdown(f"- [x] before\n{begin}\n- [ ] after\n") == [("before", DONE), ("after", PENDING)]


@pytest.mark.parametrize(
    "heading", ["Optional", "Future", "Future work", "Optional / Later", "Nice to have", "Out of scope:"]
)
def test_what_stands_below_a_heading_like_optional_need_not_be_done(heading: str) -> None:
    text = f"## Now\n- [x] this\n## {heading}\n- [ ] that\n### And\n- [ ] more\n## Then\n- [ ] these\n"

    assert markdown(text) == [("this", DONE), ("these", PENDING)]


@pytest.mark.parametrize("heading", ["Future-proof the API", "Optional arguments of the parser", "Later"])
def test_a_heading_that_only_begins_so_leaves_nothing_out(heading: str) -> None:
    assert markdown(f"## {heading}\n- [ ] this\n") == [("this", PENDING)]


def test_a_title_is_one_printable_line_without_emphasis() -> None:
    [(title, _)] = markdown("- [ ] **Bold** `code`\x1b[31m red\u202e ~~gone~~\tand  more " + "x" * 500)

    assert title.startswith("Bold `code` [31m red gone and more xxx")
    assert len(title) == 200


# Headings


@pytest.mark.parametrize("level", ["##", "###", "#"])
def test_a_task_heading_is_done_when_all_its_boxes_are_ticked(level: str) -> None:
    text = "## Task 1: one\n- [x] a\n- [x] b\n## Task 2: two\n- [x] a\n- [ ] b\n## Task 3\n- [ ] a\n"
    text = text.replace("##", level)

    assert markdown(text) == [("one", DONE), ("two", IN_PROGRESS), ("Task 3", PENDING)]


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("Status: done", DONE),
        ("**Status:** Complete", DONE),
        ("- **Status**: ✅ Completed (2026/01/02)", DONE),
        ("*Status:* Done – commit abc1234", DONE),
        ("status: [x] Done", DONE),
        ("> Status: ✅", DONE),
        ("Status: in_progress", IN_PROGRESS),
        ("**Status**: 🚧 nearly done", IN_PROGRESS),
        ("Status: In Progress", IN_PROGRESS),
        ("Status: pending", PENDING),
        ("Status: [ ] Complete", PENDING),
        ("Status: not done", PENDING),
        ("Status: incomplete", PENDING),
        ("Status: done except for the tests", PENDING),
        ("Status: done | pending", PENDING),
        ("Status: done?", PENDING),
        ("Status:", PENDING),
        ("Status is done", PENDING),
        ("nothing", PENDING),
    ],
)
def test_a_task_heading_is_done_when_a_status_line_says_so_without_an_if_or_but(
    said: str, status: TaskStatus
) -> None:
    assert markdown(f"## Task 1: one\n\n{said}\n") == [("one", status)]


def test_two_status_lines_have_to_agree() -> None:
    assert markdown("## Task 1: one\nStatus: done\nStatus: pending\n") == [("one", IN_PROGRESS)]


def test_a_status_line_that_says_done_counts_though_a_box_was_forgotten() -> None:
    assert markdown("## Task 1: one\n- [ ] a\n**Status:** done\n") == [("one", DONE)]


@pytest.mark.parametrize(
    ("heading", "title", "status"),
    [
        ("## Task 3: Parse it", "Parse it", PENDING),
        ("## Task 3 - Parse it ##", "Parse it", PENDING),
        ("### Task 3. Parse it", "Parse it", PENDING),
        ("## **Task 3**: Parse it", "Parse it", PENDING),
        ("## TASK #3 — Parse it", "Parse it", PENDING),
        ("## Task 3 Parse it", "Task 3 Parse it", PENDING),
        ("### US-001: Parse it", "Parse it", PENDING),
        ("### T1: Parse it", "Parse it", PENDING),
        ("## Task 3: Parse it ✅", "Parse it", DONE),
        ("## ✅ Task 3: Parse it", "Parse it", DONE),
        ("## [x] Task 3: Parse it", "Parse it", DONE),
        ("## Task 3: Parse it [x]", "Parse it", DONE),
        ("## Task 3: Parse it (done)", "Parse it", DONE),
        ("## Task 3: Parse it – COMPLETE", "Parse it", DONE),
        ("## Task 3: Parse it (in progress)", "Parse it", IN_PROGRESS),
        ("## Task 3: Parse it (fast)", "Parse it (fast)", PENDING),
        ("## [ ] Parse it", "Parse it", PENDING),
        ("## [x] Parse it", "Parse it", DONE),
    ],
)
def test_the_headings_of_tasks_that_occur(heading: str, title: str, status: TaskStatus) -> None:
    assert markdown(heading) == [(title, status)]
    assert has_task_headings(heading)


@pytest.mark.parametrize(
    "heading", ["## Tasks", "## Taskforce 1", "## HTTP2 support", "## [1] Smith", "##Task 1", "Task 1"]
)
def test_other_headings_are_no_tasks(heading: str) -> None:
    assert markdown(heading) == []
    assert not has_task_headings(heading)


def test_boxes_below_subheadings_belong_to_the_task_and_those_after_it_do_not() -> None:
    text = "## Task 1: one\n### Steps\n- [x] a\n### Tests\n- [x] b\n## Release\n- [ ] tag it\n"

    assert markdown(text) == [("one", DONE), ("tag it", PENDING)]


def test_a_heading_that_says_nothing_itself_leaves_it_to_its_parts() -> None:
    text = "## Task 1: one\n### Task 1.1: half\n- [x] a\n### Task 1.2: other half\nStatus: done\n"

    assert markdown(text) == [("half", DONE), ("other half", DONE)]


def test_a_heading_without_marks_is_told_by_the_box_of_its_name() -> None:
    boxes = "- [x] Task 1: one\n- [ ] Task 2: two\n"
    text = boxes + "## Task 1: one\nHow.\n## Task 2: two\nHow.\n## Task 3: three\nHow.\n"

    assert markdown(text) == [("one", DONE), ("two", PENDING), ("three", PENDING)]


# Stories


def test_stories_come_by_priority_and_are_done_when_they_pass() -> None:
    plan = stories(
        {
            "userStories": [
                {"id": "US-003", "title": "last", "passes": True},
                {"id": "US-002", "title": "second", "priority": 2, "passes": False},
                {"id": "US-001", "title": "first", "priority": 1, "passes": True},
            ]
        }
    )

    assert plan.tasks == (
        Task("US-001", "first", DONE),
        Task("US-002", "second", PENDING),
        Task("US-003", "last", DONE),
    )
    assert [task.id for task in plan.open] == ["US-002"]


@pytest.mark.parametrize(
    ("story", "status"),
    [
        ({"passes": "true"}, PENDING),
        ({"passes": 1}, PENDING),
        ({"passes": None}, PENDING),
        ({"passes": False, "status": "done"}, PENDING),
        ({"passes": False, "status": "in_progress"}, IN_PROGRESS),
        ({"passes": True, "status": "pending"}, DONE),
        ({"status": "complete"}, DONE),
        ({"status": "failed"}, PENDING),
        ({"status": ["done"]}, PENDING),
        ({}, PENDING),
    ],
)
def test_only_what_is_true_passes(story: dict[str, object], status: TaskStatus) -> None:
    plan = stories({"tasks": [story]})

    assert [task.status for task in plan.tasks] == [status]


def test_a_story_without_id_or_title_still_has_both() -> None:
    plan = stories(
        [{"description": "Say  hello"}, {"id": 7}, {"id": {}, "title": ""}, {"title": "Say hello"}]
    )

    assert [(task.id, task.title) for task in plan.tasks] == [
        ("say-hello", "Say hello"),
        ("7", "7"),
        ("story-3", "story 3"),
        ("say-hello-2", "Say hello"),
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"userStories": [\n{"id": "US-1",\n', "prd.json is not JSON: "),
        ("", "prd.json is not JSON: "),
        ("[" * 100_000, "prd.json is not JSON"),
        ("9" * 10_000, "prd.json is not JSON"),
        ('{"stories": []}', 'prd.json holds no list "userStories"'),
        ('{"userStories": {}}', 'prd.json holds no list "userStories"'),
        ("null", 'prd.json holds no list "userStories"'),
        ('[{"passes": true}, "two"]', "prd.json holds a story, number 2, that is not an object"),
    ],
)
def test_a_broken_file_is_a_fault_in_words_and_never_complete(text: str, fault: str) -> None:
    plan = parse("prd.json", text)

    assert plan.fault is not None
    assert plan.fault.startswith(fault)
    assert plan.tasks == ()
    assert not is_complete(plan, promised=True)


def test_more_tasks_than_anyone_could_want_are_a_fault() -> None:
    plans = [
        parse("TASKS.md", "- [x] a\n" * (MAX_TASKS + 1)),
        parse("PLAN.md", "## Task 1: a\n" * (MAX_TASKS + 1)),
        stories([{"passes": True}] * (MAX_TASKS + 1)),
    ]

    assert [plan.fault for plan in plans] == [
        f"{plan.file} lists more than 5000 tasks" for plan in plans if not plan.tasks
    ]
    assert parse("TASKS.md", "- [x] a\n" * MAX_TASKS).fault is None


@pytest.mark.parametrize("priority", [True, "high", None, float("nan"), float("inf"), 10**400, -1, [1]])
def test_any_priority_is_taken(priority: object) -> None:
    plan = stories([{"id": "a", "priority": priority}, {"id": "b", "priority": 0}])

    assert sorted(task.id for task in plan.tasks) == ["a", "b"]


# Ids


def test_an_id_is_the_lists_own_or_made_of_the_title_and_always_unique() -> None:
    titles = ["T001 [P] Create", "**Task 2:** Go", "US-7: Go on", "Add a `parser`!", "Add a parser"]
    titles += ["解析する", "🎉", "Add a parser 2", "HTTP2 support"]
    plan = parse("a.md", "".join(f"- [ ] {title}\n" for title in titles))

    assert [task.id for task in plan.tasks] == [
        *("T001", "task-2", "US-7", "add-a-parser", "add-a-parser-2"),
        *("解析する", "task", "add-a-parser-2-2", "http2-support"),
    ]


def test_an_id_stays_when_others_come_and_go_or_are_ticked() -> None:
    before = parse("a.md", "- [ ] one\n- [ ] two\n")
    after = parse("a.md", "# Plan\n- [ ] zero\n- [x] two\n")

    assert before.tasks[1].id == after.tasks[1].id


# Anything at all

MARKS = ["- [ ] ", "- [x] ", "* [", "] ", "```", "~~~", "<!--", "-->", "## Task 1", "# ", "1. ", "Status: "]
OTHERS = [
    "\n",
    "\n",
    "done",
    ": ",
    "**",
    " ",
    "\t",
    "\0",
    "\ud800",
    "\u2028",
    "\r",
    "{",
    '"userStories": [',
    "✅",
]
TEXT = st.lists(st.sampled_from([*MARKS, *OTHERS, "Optional"]), max_size=60).map("".join)


@given(TEXT, st.sampled_from(["a.md", "a.json", "PLAN"]))
def test_whatever_a_list_holds_its_tasks_have_ids_and_titles_of_their_own(text: str, file: str) -> None:
    plan = parse(file, text)

    assert len({task.id for task in plan.tasks}) == len(plan.tasks)
    assert all(task.id and task.title and task.title.isprintable() for task in plan.tasks)
    assert plan.fault is None or not plan.tasks


@given(TEXT)
def test_no_text_hides_a_task_that_follows_outside_of_code_and_comments(text: str) -> None:
    for hides in ("```", "~~~", "<!--", "Optional"):
        text = text.replace(hides, "")
    plan = parse("a.md", f"{text}\n# Last\n- [ ] the last one\n")

    assert plan.tasks[-1].title == "the last one"


# Marked parallel


@pytest.mark.parametrize(
    ("heading", "task"),
    [
        ("## Task 2 (parallel)", Task("task-2", "Task 2", PENDING, parallel=True)),
        ("## Task 2 (Parallel): build it", Task("task-2", "build it", PENDING, parallel=True)),
        ("## Task 2: build it (PARALLEL)", Task("task-2", "build it", PENDING, parallel=True)),
        ("### Task 2 [parallel] - build it", Task("task-2", "build it", PENDING, parallel=True)),
        ("## US-001 (parallel): build it", Task("US-001", "build it", PENDING, parallel=True)),
        ("## Task 2 (parallel): build it (parallel)", Task("task-2", "build it", PENDING, parallel=True)),
        ("## [ ] build it (parallel)", Task("build-it", "build it", PENDING, parallel=True)),
        ("## Task 2: build it (parallel) ✅", Task("task-2", "build it", DONE, parallel=True)),
        ("## Task 2: build it (done) (parallel)", Task("task-2", "build it", DONE, parallel=True)),
        ("## Task 2: build it", Task("task-2", "build it", PENDING)),
        ("## Task 2: the (parallel) port", Task("task-2", "the (parallel) port", PENDING)),
        ("## Task 2: b (parallel to 1)", Task("task-2", "b (parallel to 1)", PENDING)),
    ],
)
def test_a_heading_may_say_that_its_task_is_parallel(heading: str, task: Task) -> None:
    assert parse("PLAN.md", f"{heading}\n") == Plan("PLAN.md", (task,))


def test_a_mark_alone_is_no_task() -> None:
    assert markdown("## (parallel)\n## [ ] (parallel)\n## Parallel\n") == []


def tasks_in(*found: dict[str, object]) -> tuple[Task, ...]:
    """The tasks of a list in JSON."""
    return parse("prd.json", json.dumps({"userStories": found})).tasks


@pytest.mark.parametrize(
    ("title", "id_"),
    [
        ("(Add a login!)", "add-a-login"),
        ("x" * 47 + " y", "x" * 47),  # cut at 48, and no dash is left at its end
        ("x" * 46 + " yz", "x" * 46 + "-y"),
    ],
)
def test_an_id_made_from_a_title_neither_begins_nor_ends_with_a_dash(title: str, id_: str) -> None:
    assert [task.id for task in parse("TASKS.md", f"- [ ] {title}\n").tasks] == [id_]


@pytest.mark.parametrize("key", ["title", "description", "name"])
def test_a_story_is_called_by_whatever_key_it_has(key: str) -> None:
    (story,) = tasks_in({"id": "US-7", key: "Add a login"})

    assert story == Task("US-7", "Add a login", PENDING)


def test_a_story_without_passes_is_as_far_as_its_status_says() -> None:
    (story,) = tasks_in({"id": "US-7", "title": "Add a login", "status": "done"})

    assert story == Task("US-7", "Add a login", DONE)


def test_a_heading_that_says_itself_how_far_it_is_counts_beside_its_parts() -> None:
    plan = parse("TASKS.md", "## Task 1: All of it (done)\n### Task 1.1: A part\n- [ ] do it\n")

    assert [(task.id, task.status) for task in plan.tasks] == [("task-1", DONE), ("task-1.1", PENDING)]


def test_a_text_with_more_task_headings_than_can_be_has_task_headings() -> None:
    assert has_task_headings("# Task 1\n" * (MAX_TASKS + 1))


@pytest.mark.parametrize(
    "word", ["x", "Done", "complete", "completed", "finished", "implemented", "passed", "passes", "CLOSED"]
)
def test_these_words_say_that_a_task_is_done(word: str) -> None:
    (task,) = parse("TASKS.md", f"## Task 1: Add a login\nStatus: {word}\n").tasks

    assert task.status is DONE


def test_a_letter_before_a_heading_is_no_mark() -> None:
    assert parse("TASKS.md", "## X Task 1: Add a login\n").tasks == ()


@pytest.mark.parametrize(("spaces", "titles"), [(989, ["a"]), (990, ["a <!-", "b"])])
def test_of_a_line_1000_characters_are_read(spaces: int, titles: list[str]) -> None:
    text = "- [ ] a" + " " * spaces + "<!--\n- [ ] b\n-->\n"

    assert [task.title for task in parse("TASKS.md", text).tasks] == titles
