"""Push to the upstream, and pull from it by rebase: as a person would, but never asking one (L9).

The user's hooks and helpers run, without a terminal to ask at and with a time limit. Nothing is forced.
"""

import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Final

from ralphd.git import repo
from ralphd.git.diagnostics import half_done
from ralphd.git.repo import Repository

PULL_LIMIT_S: Final = 60.0
PUSH_LIMIT_S: Final = 120.0
_ABORT_LIMIT_S: Final = 20.0
_END_GRACE_S: Final = 5.0
_TAIL_BYTES: Final = 8192
_SAID_CHARS: Final = 300
_ELSEWHERE: Final = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_NAMESPACE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "SSH_ASKPASS"),
)
"""Variables that would lead git to another repository, or open a window and ask."""
_QUIET: Final = (
    *("-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "advice.detachedHead=false"),
    *("-c", "rebase.autoStash=false", "-c", "rebase.autoSquash=false", "-c", "rebase.updateRefs=false"),
)
_HEADS: Final = "refs/heads/"
_TELLING: Final = (r"!|CONFLICT", r"fatal:|error:|remote: error")
"""The lines that say why, the plainest first."""
_SECRET: Final = re.compile(r"://[^/@\s]+@")


class Went(StrEnum):
    """How it went."""

    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Pulled:
    """What became of a pull, in a line for people."""

    outcome: Went
    words: str


@dataclass(frozen=True, slots=True)
class Pushed:
    """What became of a push, in a line for people."""

    outcome: Went
    words: str


@dataclass(frozen=True, slots=True)
class _Upstream:
    """Where the present branch is pushed to; ``branch`` and ``tracking`` are refs of ours, in full.

    ``ahead`` and ``behind`` count commits, as of the last fetch.
    """

    branch: str
    name: str
    tracking: str
    remote: str
    ref: str
    ahead: int
    behind: int


class _Not(Exception):
    """Why nothing is to be done, or could be done, in words."""


def pull_rebase(directory: Path, *, limit_s: float = PULL_LIMIT_S) -> Pulled:
    """Fetch, and put what is not pushed on top of the upstream; merges are kept.

    Skipped without an upstream, with tracked files changed, and in the middle of something. Where it fails,
    conflicts included, branch and files are as they were. Blocks for ``limit_s`` and some seconds at most.
    """
    deadline = time.monotonic() + limit_s
    try:
        _refuse_half_done(directory)
        upstream = _upstream(directory)
        _refuse_changes(directory)
    except _Not as why:
        return Pulled(Went.SKIPPED, f"not pulled: {why}")
    try:
        _done(directory, "fetch", "--quiet", limit_s=limit_s)
        behind = _upstream(directory).behind
        if behind == 0:
            return Pulled(Went.DONE, f"nothing new on {upstream.name}")
        _rebase(directory, upstream, limit_s=deadline - time.monotonic())
    except _Not as why:
        return Pulled(Went.FAILED, f"not pulled: {why}")
    commits = "1 commit" if behind == 1 else f"{behind} commits"
    return Pulled(Went.DONE, f"pulled {commits} of {upstream.name}")


def push(
    directory: Path, *, limit_s: float = PUSH_LIMIT_S, outside: Mapping[str, str] | None = None
) -> Pushed:
    """Push the present branch to its upstream, nowhere else; skipped without one or with nothing to push.

    ``outside`` is the user's environment, where it is not our own. Never forced. Blocks for ``limit_s`` and
    some seconds at most.
    """
    try:
        upstream = _upstream(directory)
    except _Not as why:
        return Pushed(Went.SKIPPED, f"not pushed: {why}")
    if upstream.ahead == 0:
        return Pushed(Went.SKIPPED, f"nothing to push to {upstream.name}")
    words = ("push", "--porcelain", "--", upstream.remote, f"{upstream.branch}:{upstream.ref}")
    try:
        _done(directory, *words, limit_s=limit_s, outside=outside)
    except _Not as why:
        return Pushed(Went.FAILED, f"not pushed: {why}")
    commits = "1 commit" if upstream.ahead == 1 else f"{upstream.ahead} commits"
    return Pushed(Went.DONE, f"pushed {commits} to {upstream.name}")


def _rebase(directory: Path, upstream: _Upstream, *, limit_s: float) -> None:
    """Raises _Not, with the repository as it was."""
    try:
        _done(directory, "rebase", "--quiet", "--rebase-merges", upstream.tracking, limit_s=limit_s)
    except _Not as why:
        if half_done(directory):
            with suppress(_Not):
                _done(directory, "rebase", "--abort", limit_s=_ABORT_LIMIT_S)
        if half_done(directory):
            raise _Not(f"{why}; the rebase is still under way: git rebase --abort") from why
        raise _Not(f"{why}; the branch is as it was: git pull --rebase") from why


def _refuse_half_done(directory: Path) -> None:
    if lines := half_done(directory):
        raise _Not(lines[0])


def _refuse_changes(directory: Path) -> None:
    answer = repo.answer(directory, "status", "--porcelain", "-z", "-uno", limit_s=PULL_LIMIT_S)
    if answer is None or answer[0] != 0:
        raise _Not("git status did not end in time")
    if answer[1]:
        raise _Not("tracked files have changes that are not committed")


def _upstream(directory: Path) -> _Upstream:
    """Where the present branch is pushed to. Raises _Not, with what a person can do about it."""
    if Repository.find(directory) is None:
        raise _Not("there is no git repository here")
    branch = _text(directory, "symbolic-ref", "--quiet", "HEAD")
    if not branch.startswith(_HEADS):
        raise _Not("HEAD is on no branch: git switch BRANCH")
    fields = ("upstream:short", "upstream", "upstream:remotename", "upstream:remoteref", "upstream:track")
    form = "--format=" + "%00".join(f"%({field})" for field in fields)
    found = _text(directory, "for-each-ref", form, branch).split("\0")
    name, tracking, remote, ref, track = found if len(found) == len(fields) else [""] * len(fields)
    short = branch.removeprefix(_HEADS)
    if not (tracking and remote and ref):
        raise _Not(f"{short} has no upstream: git push -u origin {short} sets one")
    if remote == ".":
        raise _Not(f"the upstream of {short} is a branch of this repository")
    if track == "[gone]":
        raise _Not(f"the upstream {name} is gone")
    return _Upstream(branch, name, tracking, remote, ref, _number(track, "ahead"), _number(track, "behind"))


def _text(directory: Path, *words: str) -> str:
    """The first line that git prints, empty where it does not go well."""
    code, printed = repo.answer(directory, *words) or (1, b"")
    return "" if code else printed.decode(errors="surrogateescape").partition("\n")[0]


def _number(track: str, word: str) -> int:
    found = re.search(rf"\b{word} (\d+)", track)
    return int(found[1]) if found else 0


def _done(directory: Path, *words: str, limit_s: float, outside: Mapping[str, str] | None = None) -> None:
    """Run git as the user would. Raises _Not when it does not go well, with the line that says why."""
    with tempfile.TemporaryFile() as said:
        try:
            # A session of its own: no terminal to ask at. A file: a hook's daemon cannot keep us waiting.
            git = subprocess.Popen(
                ["git", *_QUIET, "-C", str(directory), *words],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=_environment(directory, os.environ if outside is None else outside),
                start_new_session=True,
            )
        except OSError as error:
            raise _Not(f"git cannot be started ({error.strerror})") from error
        try:
            code = git.wait(max(0.0, limit_s))
        except subprocess.TimeoutExpired:
            raise _Not(f"git {words[0]} did not end within {limit_s:.0f} s") from None
        finally:
            _end(git)
        if code != 0:
            raise _Not(f"git {words[0]}: {_reason(said) or f'ended with {code}'}")


def _end(git: "subprocess.Popen[bytes]") -> None:
    """End git where it is still at work: first by asking, since then it takes its lock files away."""
    for signal_ in (signal.SIGTERM, signal.SIGKILL):
        if git.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(git.pid, signal_)
        with suppress(subprocess.TimeoutExpired):
            git.wait(_END_GRACE_S)


def _environment(directory: Path, outside: Mapping[str, str]) -> dict[str, str]:
    """The user's own, in which nobody is asked for anything."""
    kept = {name: value for name, value in outside.items() if name not in _ELSEWHERE}
    quiet = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "GIT_SEQUENCE_EDITOR": "true"}
    quiet |= {"SSH_ASKPASS_REQUIRE": "never", "GCM_INTERACTIVE": "never"}
    if "GIT_ASKPASS" not in kept:
        quiet["GIT_ASKPASS"] = ""  # so that git asks no other program either
    if ssh := _ssh(directory, kept):
        quiet["GIT_SSH_COMMAND"] = ssh
    return kept | quiet


def _ssh(directory: Path, environment: dict[str, str]) -> str:
    """The user's ssh, told not to ask; empty for another program, which may not know the option."""
    command = environment.get("GIT_SSH_COMMAND", "")
    if not command and "GIT_SSH" in environment:
        return ""
    if not command:
        command = _text(directory, "config", "--get", "core.sshCommand") or "ssh"
    try:
        is_ssh = Path(shlex.split(command)[0]).name == "ssh"
    except (ValueError, IndexError):
        return ""
    return f"{command} -o BatchMode=yes" if is_ssh else ""


def _reason(said: IO[bytes]) -> str:
    """The line that says most: a rejection, an error, else the last one. Without secrets and controls."""
    said.seek(max(0, said.seek(0, os.SEEK_END) - _TAIL_BYTES))
    text = said.read().decode(errors="replace").replace("\t", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ranked = [line for form in _TELLING for line in lines if re.match(form, line)]
    line = (ranked or lines[-1:] or [""])[0]
    if re.search(r"\[rejected\] \((fetch first|non-fast-forward)\)", line):
        return "rejected, since the upstream has commits that are not here: git pull --rebase"
    return _SECRET.sub("://", "".join(char for char in line if char.isprintable()))[:_SAID_CHARS]
