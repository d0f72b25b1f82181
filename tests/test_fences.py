"""Every fenced block of the README and of ``docs/`` is of a known kind, and each kind is held to something.

``console`` and ``sh`` are typed into a shell, by ``tests/whole/test_docs.py`` or a test that ELSEWHERE names;
``output`` shows what a ``sh`` prints, ``bash`` is run by a test named there. A ``sh`` that sets up a clone
may hold nothing else, and is not typed; ``usage`` is made.
Data is read by what reads it in earnest. ``text`` is shown, and holds no command.
"""

import configparser
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ralphd.config.configuration import load
from ralphd.errors import ConfigFaults
from tests.pages import (
    DOCS,
    PAGES,
    ROOT,
    SET_UP,
    Fence,
    fences_of,
    misspelled,
    prose_of,
    spelled_in,
    spelled_on,
    title,
)

ELSEWHERE: Mapping[str, str] = {
    "docs/own-loop.md": "tests/whole/test_reports.py",
    "docs/systemd.md": "tests/systemd/under_systemd.py",
    "docs/files.md": "tests/test_documents.py",
    "docs/container.md": "tests/install/installed.py",
}
"""What runs, or reads, the blocks of a page that no test here does; it names the page."""
COMMAND = re.compile(
    r"^\s*(\$ |(sudo|ralph|ralphctl|ralphd|git|make|curl|export|ssh|systemctl|docker|npm|pip) )"
)


def all_fences() -> list[Fence]:
    """The blocks of all pages."""
    return [fence for page in PAGES for fence in fences_of(page)]


# --- what each kind is held to: the fault, or nothing ---------------------------------------------------


def elsewhere(fence: Fence) -> str:
    other = ELSEWHERE.get(title(fence.page), "")
    return "" if other else "no test runs it: a `console` block is typed"


USERS_OWN = "# ~/.config/ralph/config.toml\n"


def toml(fence: Fence, home: Path) -> str:
    """A configuration without a fault; or data that opens with its version."""
    if fence.text.startswith("version = "):
        tomllib.loads(fence.text)  # what it says of an agent is read by the tests of agents
        return ""
    is_users_own = fence.text.startswith(USERS_OWN)
    path = home / ".config" / "ralph" / "config.toml" if is_users_own else home / "ralph.toml"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(fence.text)
    path.chmod(0o600)
    try:
        load(home, environ={"HOME": str(home)})
    except ConfigFaults as faults:
        return str(faults)
    finally:
        path.unlink()
    return ""


def json_text(fence: Fence) -> str:
    """One value, or one on each line."""
    try:
        json.loads(fence.text)
    except ValueError:
        for line in fence.text.splitlines():
            json.loads(line)
    return ""


def ini(fence: Fence) -> str:
    configparser.ConfigParser(strict=False).read_string(fence.text)
    return ""


def python(fence: Fence) -> str:
    compile(fence.text, str(fence), "exec")
    return ""


def set_up(fence: Fence) -> str:
    """Lines that a clone is set up by, with targets and modules that there are; or commands to be typed."""
    if not SET_UP.match(fence.text):
        is_typed = title(fence.page) not in ELSEWHERE and not re.search("^(make|pipx|uv) ", fence.text, re.M)
        return "" if is_typed else "no test types it"
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    for line in filter(None, (line.partition("#")[0].strip() for line in fence.text.splitlines())):
        found = SET_UP.fullmatch(line)
        if found is None:
            return f"{line}: it does not set a clone up: put it into a block of its own"
        if found["target"] and found["target"] not in targets:
            return f"{line}: there is no such target"
        if found["module"] and not list(ROOT.glob(found["module"].replace(".", "/") + "*")):
            return f"{line}: there is no such module"
    return ""


def text(fence: Fence) -> str:
    held = [line for line in fence.text.splitlines() if COMMAND.match(line)]
    return f"a command that no test types: {held[0]}" if held else ""


def typed(fence: Fence) -> str:
    """Nothing, here: it is typed with its whole page."""
    return "" if re.match(r"\$ ", fence.text) else "it begins with no command"


def generated(fence: Fence) -> str:
    """Lines of help, whose commands and options are there; nobody writes them by hand."""
    return "" if fence.page.name == "commands.md" else "make it a `console` block: it is typed then"


KINDS: Mapping[str, Callable[[Fence], str]] = {
    "console": typed,
    "bash": elsewhere,
    "sh": set_up,
    "usage": generated,
    "json": json_text,
    "ini": ini,
    "python": python,
    "text": text,
    "output": lambda fence: "",  # compared with what the ``sh`` before it prints
    "log": elsewhere,
    "cursor": elsewhere,
}


# --- the tests ------------------------------------------------------------------------------------------


def test_every_block_is_of_a_known_kind_and_is_what_its_kind_has_to_be(tmp_path: Path) -> None:
    faults = []
    for fence in all_fences():
        try:
            if fence.language == "toml":
                fault = toml(fence, tmp_path)
            elif fence.language in KINDS:
                fault = KINDS[fence.language](fence)
            else:
                fault = "a block without a language, or of one that no test knows"
        except (ValueError, SyntaxError, configparser.Error) as broken:
            fault = str(broken)
        if fault:
            faults.append(f"{fence}: {fault}")

    assert faults == []


@pytest.mark.parametrize(
    ("language", "held"),
    [
        ("sh", "make dev\nrm -rf /"),
        ("sh", "rm -rf /\nmake dev"),
        ("sh", "make nothing-of-the-kind"),
        ("text", "$ ralphctl status"),
        ("text", "  sudo reboot"),
        ("bash", "#!/bin/bash\nralphctl status"),
        ("usage", "ralphctl status"),
        ("console", "ralphctl status"),
        ("json", "{"),
        ("python", "def"),
    ],
)
def test_a_block_that_is_held_to_nothing_is_a_fault(language: str, held: str) -> None:
    fence = Fence(DOCS / "glossary.md", 1, language, held)

    try:
        fault = KINDS[language](fence)
    except (ValueError, SyntaxError) as broken:
        fault = str(broken)

    assert fault


def test_a_configuration_with_a_fault_is_one(tmp_path: Path) -> None:
    fence = Fence(DOCS / "glossary.md", 1, "toml", "[regent]\nmax_retrys = 1\n")
    assert "did you mean" in toml(fence, tmp_path)


def test_no_page_hides_a_command_in_an_indented_block() -> None:
    hidden = [
        f"{title(page)}: {line}"
        for page in PAGES
        for line in re.findall(r"\n\n((?: {4}|\t)\S.*)", prose_of(page))
        if COMMAND.match(line)
    ]

    assert hidden == []


def test_every_command_and_option_that_is_named_anywhere_is_there() -> None:
    lines = [(page, line) for page in PAGES for line in spelled_on(page)]

    assert len(lines) > 100
    assert [f"{title(page)}: {fault}" for page, line in lines if (fault := misspelled(line))] == []


def test_every_command_that_a_message_tells_people_to_type_is_there() -> None:
    sources = [path for place in ("ralphctl", "ralphd") for path in (ROOT / place).rglob("*.py")]
    lines = [(source, line) for source in sources for line in spelled_in(source)]

    assert len(lines) > 50
    assert [f"{title(source)}: {fault}" for source, line in lines if (fault := misspelled(line))] == []


@pytest.mark.parametrize(
    "line",
    [
        "ralphctl strat",
        "ralphctl stop --nwo",
        "ralphctl -C ~/try regent strat",
        "cat log | ralphctl classify --agnet claude -",
    ],
)
def test_a_slip_in_a_command_is_found(line: str) -> None:
    assert misspelled(line)


@pytest.mark.parametrize(
    "line",
    [
        "ralphctl regent stop --now; make",
        "ralphctl start ~/x -- ./loop.sh --more",
        "ralphctl NAME",
        "ralphctl build, or ralphctl status --all",
    ],
)
def test_what_is_right_in_a_command_is_no_slip(line: str) -> None:
    assert not misspelled(line)


def test_what_a_page_leaves_to_another_test_is_done_there() -> None:
    assert all(Path(page).name in (ROOT / test).read_text() for page, test in ELSEWHERE.items())


def test_every_link_leads_to_a_file_and_to_a_heading_of_it() -> None:
    broken = []
    for page in PAGES:
        for link in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", prose_of(page)):
            path, _, heading = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (heading and heading not in anchors(target)):
                broken.append(f"{title(page)}: {link}")

    assert broken == []


def anchors(page: Path) -> set[str]:
    """The names of the headings of a page, as links write them."""
    headings = re.findall(r"^#+ (.+)$", prose_of(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_reached_from_the_index() -> None:
    index = (DOCS / "README.md").read_text()
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page.parent.name != "decisions"}

    assert {page for page in pages - {"README.md"} if f"]({page})" not in index} == set()
    assert "](decisions/README.md)" in index


def test_the_readme_is_short_and_names_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()

    assert len(readme.splitlines()) < 120
    assert "make demo" in readme and "make test" in readme


def test_each_threat_names_a_test_that_exists() -> None:
    table = (ROOT / "docs" / "security.md").read_text().split("## Threats", 1)[1]
    rows = [
        row for row in table.splitlines() if row.startswith("| ") and not row.startswith(("| who", "| ---"))
    ]
    for row in rows:
        named = re.search(r"`([a-z_/]+\.py)(?:::(test_\w+))?` \|$", row)
        assert named is not None, row
        source = (ROOT / "tests" / named[1]).read_text()
        assert not named[2] or f"def {named[2]}(" in source, row
    assert len(rows) > 50
