"""The pages that people read, taken apart: their fenced blocks, and the commands that they have one type.

A ``sh`` block has no prompts, so that it can be pasted: each line is a command, a here-document too; an
``output`` block after it shows what its last command prints. If its first line is of SET_UP, it is not typed.
In a ``console`` block ``$`` begins a command, ``>`` goes on with it, the rest is what it prints: a number
stands for any, one of four digits or more (a pid) for the same one throughout, ``…`` for any text, a ``…``
alone for any lines, ``^C`` for a person who has seen enough.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from ralphctl.cli.click_ext import LazyGroup
from ralphctl.cli.root import cli

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
_FENCE = re.compile(r"^(?P<mark>```+|~~~+)(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=mark)[ ]*$", re.M | re.S)
_SLOW = "waiting for "
_SPAN = re.compile(r"(?<!`)`((?:ralph|ralphctl)\s[^`]+)`")
_TOLD = re.compile(r'f?"(ralphctl [a-z-][^"\\]*)"')
_COMMAND = re.compile(r"^[^\n]*?<<'(?P<end>\w+)'\n(?:.*\n)*?(?P=end)$|^.+$", re.M)
SET_UP = re.compile(
    r"""
    make\ (?P<target>[\w-]+)(\ [A-Z]+=("[^"$`]*"|[\w./-]+))*
    | (pipx | uv\ tool)\ install\ \.
    | export\ PATH="\$HOME/\.local/bin:\$PATH"
    | python\ -m\ (?P<module>tests(\.\w+)+)(\ [\w./-]+)*
    """,
    re.VERBOSE,
)
"""What sets a clone up."""
_ENDS_A_COMMAND = frozenset({"|", "||", "&&", ";", "&", ")"})


def title(page: Path) -> str:
    """How a page is called where a test fails."""
    return str(page.relative_to(ROOT))


# --- fences ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced block: on which page, from which line on, of which language, and what it holds."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{title(self.page)}:{self.line}: ```{self.language}"


def fences_of(page: Path, language: str | None = None) -> list[Fence]:
    """The blocks of a page; those of one language, where one is named."""
    text = page.read_text(encoding="utf-8")
    found = [
        Fence(page, text.count("\n", 0, each.start()) + 1, each["language"].strip(), each["text"])
        for each in _FENCE.finditer(text)
    ]
    return [fence for fence in found if language in (None, fence.language)]


def prose_of(page: Path) -> str:
    """A page without its blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


# --- what is typed --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Typed:
    """A command of a page, and the lines that it prints there."""

    command: str
    printed: tuple[str, ...]

    @property
    def is_interrupted(self) -> bool:
        """Whether the page has its reader press Ctrl-C."""
        return "^C" in self.printed

    @property
    def expected(self) -> list[str]:
        """What the page shows of its output."""
        return [line for line in self.printed if line != "^C"]

    @property
    def enough(self) -> tuple[int, str]:
        """After how many lines its reader presses Ctrl-C, and a pattern of the last one of these."""
        shown = [line for line in self.printed[: self.printed.index("^C")] if line != "…"]
        return (len(shown), _pattern(shown[-1])) if shown else (1, "")


def commands_of(page: Path) -> list[Typed]:
    """All commands of a page that are to be run, in order."""
    typed: list[Typed] = []
    for fence in fences_of(page):
        if fence.language == "sh" and not SET_UP.match(fence.text):
            typed += [Typed(each[0], ()) for each in _COMMAND.finditer(fence.text)]
        elif fence.language == "output":
            typed[-1] = Typed(typed[-1].command, tuple(fence.text.splitlines()))
        if fence.language != "console":
            continue
        for line in fence.text.splitlines():
            if line.startswith("$ "):
                typed.append(Typed(line[2:], ()))
            elif line.startswith("> ") or line == ">":
                typed[-1] = Typed(f"{typed[-1].command}\n{line[2:]}", ())
            else:
                typed[-1] = Typed(typed[-1].command, (*typed[-1].printed, line))
    return typed


def is_as_told(expected: Sequence[str], lines: Sequence[str], known: dict[str, str]) -> bool:
    """Whether ``lines`` are what ``expected`` says; ``known`` has the pids that are bound already."""
    pattern = "".join(r"(?:.*\n)*" if line == "…" else _pattern(line) + r"\n" for line in expected)
    if not any(line.startswith(_SLOW) for line in expected):  # a busy machine prints it
        lines = [line for line in lines if not line.startswith(_SLOW)]
    match = re.fullmatch(pattern, "".join(f"{line}\n" for line in lines))
    pids = re.findall(r"\d{4,}", "\n".join(expected))
    return match is not None and all(
        known.setdefault(pid, actual) == actual for pid, actual in zip(pids, match.groups(), strict=True)
    )


def _pattern(line: str) -> str:
    def one(part: str) -> str:
        if part == "…":
            return ".*"
        if not part.isdigit():
            return re.escape(part)
        return r"(\d+)" if len(part) > 3 else r"\d+"

    return "".join(map(one, re.split(r"(\d+|…)", line)))


# --- what is spelled ------------------------------------------------------------------------------------


def spelled_on(page: Path) -> Iterator[str]:
    """Every command line of ``ralphctl`` that stands anywhere on a page."""
    for span in _SPAN.findall(prose_of(page)):
        yield " ".join(span.replace("\\|", "|").split())
    for fence in fences_of(page):
        if fence.language in ("console", "usage", "bash", "sh", "text"):
            text = fence.text.replace("\\\n", " ")
            yield from (line for line in text.splitlines() if re.search(r"(^|[\s(])ralph(ctl)? [a-z-]", line))


def spelled_in(source: Path) -> Iterator[str]:
    """Every command line of ``ralphctl`` that a module tells people to type: texts that begin with one."""
    for found in _TOLD.findall(source.read_text(encoding="utf-8")):
        yield re.sub(r"\{[^}]*\}", "NAME", found)


def misspelled(line: str) -> str:
    """What is wrong with a command line of ``ralphctl``: a command or an option that is not there."""
    words = _words(line)
    place = next((number for number, word in enumerate(words) if word in ("ralph", "ralphctl")), None)
    if place is None:
        return ""
    command: click.Command = cli
    given = iter(words[place + 1 :])
    for written in given:
        word = written.rstrip(",")
        if word == "--" or word in _ENDS_A_COMMAND:
            return ""
        if word.startswith("-") and word != "-":
            option = _option(command, word.partition("=")[0])
            if option is None:
                return f"{line}: {command.name} has no {word}"
            if not option.is_flag and "=" not in word:
                next(given, None)
        elif isinstance(command, LazyGroup):
            if not word.islower():
                return ""  # a word that stands for any
            if word not in command.table:
                return f"{line}: {command.name} has no {word}"
            below = command.get_command(click.Context(command), word)
            assert below is not None
            command = below
        if written != word:
            return ""  # prose goes on
    return ""


def _words(line: str) -> list[str]:
    plain = re.sub(r"[\[\]…]", " ", re.sub(r"\$\(", " ", line))
    lexer = shlex.shlex(plain, posix=True, punctuation_chars="|&;)")
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # half of a quotation
        return plain.split()


def _option(command: click.Command, word: str) -> click.Option | None:
    wanted = {word, word[:2]} if not word.startswith("--") else {word}
    options = [each for each in command.params if isinstance(each, click.Option)]
    helps = click.Option(["-h", "--help"], is_flag=True)
    return next((each for each in (*options, helps) if wanted & {*each.opts, *each.secondary_opts}), None)
