"""The task list is found in the directory, read within bounds, and never believed beyond it."""

import errno
import os
import socket
from pathlib import Path

import pytest

from ralphd.core.plan import HEADED_LISTS, LISTS, Plan, TaskStatus, is_complete
from ralphd.errors import ConfigFaults
from ralphd.loop import workdir_files
from ralphd.loop.workdir_files import MAX_BYTES, PlanReader, read_plan, read_prompt

OPEN_JSON = '{"userStories": [{"id": "US-1", "title": "one", "passes": false}]}'


def put(directory: Path, name: str, text: str) -> Path:
    """Write a file, with its directory."""
    path = directory / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def fault_of(plan: Plan | None) -> str:
    """The fault of a plan that has one, and is not complete for all the promises."""
    assert plan is not None
    assert plan.fault is not None
    assert not is_complete(plan, promised=True)
    return plan.fault


def test_without_a_list_there_is_no_plan(tmp_path: Path) -> None:
    put(tmp_path, "README.md", "- [ ] not a list of tasks")

    assert read_plan(tmp_path, "auto") is None
    assert read_plan(tmp_path / "not there", "auto") is None


def test_auto_takes_the_first_list_that_is_there(tmp_path: Path) -> None:
    for name in reversed((*LISTS, *HEADED_LISTS)):
        put(tmp_path, name, OPEN_JSON if name == "prd.json" else f"## Task 1: {name}\n")
        plan = read_plan(tmp_path, "auto")

        assert plan is not None
        assert (plan.file, len(plan.open), plan.fault) == (name, 1, None)


def test_auto_takes_a_plan_only_with_task_headings(tmp_path: Path) -> None:
    put(tmp_path, "PLAN.md", "- [ ] a box")
    put(tmp_path, "PRD.md", "### T1: Retry\n")
    plan = read_plan(tmp_path, "auto")

    assert plan is not None
    assert plan.file == "PRD.md"


def test_a_first_list_that_is_broken_is_a_fault_and_not_passed_over(tmp_path: Path) -> None:
    put(tmp_path, "prd.json", OPEN_JSON[:-5])
    put(tmp_path, "TASKS.md", "- [x] all done")

    assert fault_of(read_plan(tmp_path, "auto")).startswith("prd.json is not JSON: ")


def test_a_named_file_is_read_by_its_own_form(tmp_path: Path) -> None:
    put(tmp_path, "docs/PLAN.md", "\ufeff- [x] one\n")
    put(tmp_path, "stories.json", OPEN_JSON)
    put(tmp_path, "prd.json", "broken")
    listed, told = read_plan(tmp_path, "docs/PLAN.md"), read_plan(tmp_path, "stories.json")

    assert listed is not None
    assert told is not None
    assert [task.status for task in listed.tasks] == [TaskStatus.DONE]
    assert [task.id for task in told.open] == ["US-1"]


def test_a_named_file_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    assert fault_of(read_plan(tmp_path, "PLAN.md")) == "PLAN.md is not there"


def test_what_was_changed_is_read_anew(tmp_path: Path) -> None:
    put(tmp_path, "TASKS.md", "- [ ] one")
    before = read_plan(tmp_path, "auto")
    put(tmp_path, "TASKS.md", "- [x] one")

    assert not is_complete(before, promised=False)
    assert is_complete(read_plan(tmp_path, "auto"), promised=False)


def test_links_within_the_directory_are_followed(tmp_path: Path) -> None:
    work = tmp_path / "work"
    put(work.parent, "work/plan.md", "- [ ] one")
    (work / "TASKS.md").symlink_to("plan.md")
    (tmp_path / "also").symlink_to(work)
    plan = read_plan(tmp_path / "also", "auto")

    assert plan is not None
    assert len(plan.open) == 1


@pytest.mark.parametrize("name", ["TASKS.md", "fix_plan.md", ".ralph/fix_plan.md"])
def test_a_link_that_leaves_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    secret = put(tmp_path, "secret", "- [x] all done")
    work = tmp_path / "work"
    (work / name).parent.mkdir(parents=True)
    (work / name).symlink_to(secret)

    assert fault_of(read_plan(work, "auto")) == f"{name} lies outside the working directory"


def test_a_directory_that_links_elsewhere_is_no_way_out(tmp_path: Path) -> None:
    put(tmp_path, "elsewhere/fix_plan.md", "- [x] all done")
    work = tmp_path / "work"
    work.mkdir()
    (work / ".ralph").symlink_to(tmp_path / "elsewhere")

    assert fault_of(read_plan(work, "auto")) == ".ralph/fix_plan.md lies outside the working directory"


@pytest.mark.parametrize("name", ["../TASKS.md", "{}/TASKS.md", "sub/../../TASKS.md"])
def test_a_name_that_leaves_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    put(tmp_path, "TASKS.md", "- [x] all done")
    work = tmp_path / "work"
    (work / "sub").mkdir(parents=True)

    assert fault_of(read_plan(work, name.format(tmp_path))).endswith("lies outside the working directory")


def test_a_name_that_is_no_path_is_a_fault(tmp_path: Path) -> None:
    assert "cannot be read" in fault_of(read_plan(tmp_path, "a\0b"))
    assert "cannot be read" in fault_of(read_plan(tmp_path, "x" * 5000))


def test_links_in_a_circle_are_a_fault(tmp_path: Path) -> None:
    (tmp_path / "TASKS.md").symlink_to("other.md")
    (tmp_path / "other.md").symlink_to("TASKS.md")

    assert "cannot be read" in fault_of(read_plan(tmp_path, "auto"))


def test_a_directory_a_pipe_and_a_socket_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.md").mkdir()
    os.mkfifo(tmp_path / "b.md")
    monkeypatch.chdir(tmp_path)  # the path of a socket has 108 bytes at most
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("c.md")

        assert [fault_of(read_plan(tmp_path, name)) for name in ("a.md", "b.md", "c.md")] == [
            "a.md is not a regular file",
            "b.md is not a regular file",
            "c.md is not a regular file",
        ]


def test_a_file_in_the_place_of_the_directory_is_no_list(tmp_path: Path) -> None:
    put(tmp_path, ".ralph", "a file")

    assert read_plan(tmp_path, "auto") is None


def test_more_than_a_mebibyte_is_not_read(tmp_path: Path) -> None:
    put(tmp_path, "TASKS.md", "- [x] one\n" + " " * MAX_BYTES)

    assert fault_of(read_plan(tmp_path, "auto")) == "TASKS.md is larger than 1 MiB"


def test_bytes_that_are_no_text_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    (tmp_path / "TASKS.md").write_bytes(b"\xff\xfe\0\n- [ ] caf\xe9\n")
    plan = read_plan(tmp_path, "auto")

    assert plan is not None
    assert [task.title for task in plan.open] == ["caf\ufffd"]


def test_what_may_not_be_read_is_a_fault(tmp_path: Path) -> None:
    put(tmp_path, "TASKS.md", "- [x] one").chmod(0)
    plan = read_plan(tmp_path, "auto")

    # Root may read everything.
    assert os.geteuid() == 0 or fault_of(plan) == "TASKS.md cannot be read: Permission denied"


@pytest.mark.parametrize("junk", ["```a\n", "<!--\n", "- [ ] a\n", "# Task 1: a\n", "<!--", "`" * 200 + "\n"])
def test_a_file_made_to_be_slow_is_read_all_the_same(tmp_path: Path, junk: str) -> None:
    put(tmp_path, "TASKS.md", (junk * (MAX_BYTES // len(junk)))[:MAX_BYTES])
    plan = read_plan(tmp_path, "auto")

    assert plan is not None
    assert not is_complete(plan, promised=False)


async def test_a_claim_that_cannot_be_written_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [OSError(errno.ENOSPC, "no space left"), OSError(errno.ENOSPC, "no space left")]

    def own(plan: Plan) -> Plan:
        if faults:
            raise faults.pop()
        return plan

    monkeypatch.setattr(workdir_files, "CLAIM_AGAIN_S", 0.01)
    (tmp_path / "TASKS.md").write_text("- [ ] one\n")
    plan = await PlanReader(tmp_path, "auto", lambda: (), own).read(None)

    assert plan is not None and [task.title for task in plan.tasks] == ["one"]
    assert faults == []


def test_of_a_directory_that_is_gone_the_repair_is_named_and_no_prompt(tmp_path: Path) -> None:
    with pytest.raises(ConfigFaults, match=r"the directory .* is gone") as fault:
        read_prompt(tmp_path / "my work", "PROMPT.md")
    assert fault.value.mend == f"ralphctl vault restore '{tmp_path / 'my work'}'"
