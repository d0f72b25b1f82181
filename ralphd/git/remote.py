"""Push to the upstream, and pull from it by rebase, as a person would, but never prompt (L9).

The user's hooks and credential helpers run, without a terminal and with a time limit. Nothing is forced. A
rebase that fails or is too slow is aborted: no agent may find a half-done rebase that it did not begin.
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
from pathlib import Path
from typing import IO, Final

from ralphd.config.values import GIT_PLACES
from ralphd.core.text import truncate
from ralphd.dataclass import dataclass
from ralphd.git import repo
from ralphd.git.diagnostics import half_done
from ralphd.git.repo import Repository

PULL_LIMIT_S: Final = 60.0
PUSH_LIMIT_S: Final = 120.0
_ABORT_LIMIT_S: Final = 20.0
_END_GRACE_S: Final = 5.0
_TAIL_BYTES: Final = 8192
_REFS_BYTES: Final = 1 << 20
_REASON_CHARS: Final = 300
_REDIRECTING: Final = (*GIT_PLACES, "SSH_ASKPASS")
"""Variables that would lead git to another repository, or open a window to prompt in."""
_QUIET: Final = (
    *("-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "advice.detachedHead=false"),
    *("-c", "rebase.autoStash=false", "-c", "rebase.autoSquash=false", "-c", "rebase.updateRefs=false"),
)
_EXCHANGE: Final = {
    "fetch": ("--quiet", "--no-write-fetch-head"), "push": ("--porcelain", "--no-follow-tags")
}  # fmt: skip
_NO_HOOKS: Final = ("-c", "core.hooksPath=/dev/null")
_NO_PROMPT: Final = {
    **{"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "GIT_SEQUENCE_EDITOR": "true"},
    **{"SSH_ASKPASS_REQUIRE": "never", "GCM_INTERACTIVE": "never"},
}
_HEADS: Final = "refs/heads/"
_REASONS: Final = (r"!(?!.*\(atomic push fail)|CONFLICT", r"!", r"fatal:|error:|remote: error")
"""The lines that give the reason, the plainest first."""
_BEHIND: Final = "rejected, since the upstream has commits that are not here: git pull --rebase"
_REFUSAL: Final = re.compile(r"\[(remote )?rejected\]|end does not support --atomic")
_REF: Final = re.compile(r"^([0-9a-f]{40}|[0-9a-f]{64})\t(refs/\S+)$", re.MULTILINE)
_SECRET: Final = re.compile(r"://[^/@\s]+@")
_FIELDS: Final = ("upstream:short", "upstream", "upstream:remotename", "upstream:remoteref", "upstream:track")


@dataclass(frozen=True, slots=True)
class _Upstream:
    """Where the present branch is pushed to; ``branch`` and ``tracking`` are full local refs.

    ``ahead`` and ``behind`` count commits, as of the last fetch.
    """

    branch: str
    name: str
    tracking: str
    remote: str
    ref: str
    ahead: int
    behind: int


class _Failed(Exception):
    """Why nothing is to be done, or could be done."""


def pull_rebase(directory: Path, *, limit_s: float = PULL_LIMIT_S) -> str:
    """Fetch, and rebase what is not pushed onto the upstream; merges are kept. Return a line for people.

    Skipped without an upstream, with tracked files changed, and in the middle of something. Where it fails,
    conflicts included, branch and files are unchanged. Blocks for ``limit_s`` and some seconds at most.
    """
    deadline = time.monotonic() + limit_s
    try:
        if lines := half_done(directory):
            raise _Failed(lines[0])
        upstream = _upstream(directory)
        answer = repo.answer(directory, "status", "--porcelain", "-z", "-uno", limit_s=PULL_LIMIT_S)
        if answer is None or answer[0] != 0:
            raise _Failed("git status did not end in time")
        if answer[1]:
            raise _Failed("tracked files have changes that are not committed")
        _run(directory, "fetch", "--quiet", limit_s=limit_s)
        behind = _upstream(directory).behind
        if behind == 0:
            return f"nothing new on {upstream.name}"
        _rebase(directory, upstream, limit_s=deadline - time.monotonic())
    except _Failed as why:
        return f"not pulled: {why}"
    return f"pulled {behind} commit{'s' * (behind != 1)} of {upstream.name}"


def push(directory: Path, *, limit_s: float = PUSH_LIMIT_S, outside: Mapping[str, str] | None = None) -> str:
    """Push the present branch to its upstream only, if it has one. Return a line for people.

    ``outside`` is the user's environment if it is not our own. Blocks for ``limit_s`` and some seconds at
    most.
    """
    try:
        upstream = _upstream(directory)
        if upstream.ahead == 0:
            return f"nothing to push to {upstream.name}"
        words = ("push", "--porcelain", "--", upstream.remote, f"{upstream.branch}:{upstream.ref}")
        _run(directory, *words, limit_s=limit_s, outside=outside)
    except _Failed as why:
        return f"not pushed: {why}"
    return f"pushed {upstream.ahead} commit{'s' * (upstream.ahead != 1)} to {upstream.name}"


def unpushed(directory: Path) -> str:
    """Return a line about commits that the upstream lacks, with the next step; empty if it has all."""
    try:
        upstream = _upstream(directory)
    except _Failed as why:
        return f"its commits are not pushed: {why}"
    lacks = f"{upstream.name} lacks {upstream.ahead} of the commits; next: git pull --rebase && git push"
    return lacks if upstream.ahead else ""


def exchange(
    directory: Path, command: str, *words: str, outside: Mapping[str, str] | None = None,
    inside: Mapping[str, str] | None = None, limit_s: float = PUSH_LIMIT_S,
) -> str:  # fmt: skip
    """Run ``git fetch``, or ``git push`` for exactly these refs, without hooks. Blocks as ``push``.

    Return why it failed; empty if it did not. ``inside`` are variables that say which repository it is, and
    which settings count.
    """
    words = (command, *_EXCHANGE[command], "--recurse-submodules=no", *words)
    try:
        _run(directory, *words, limit_s=limit_s, outside=outside, inside=inside, settings=_NO_HOOKS)
    except _Failed as why:
        return str(why)
    return ""


def remote_refs(
    directory: Path, url: str, *names: str, outside: Mapping[str, str] | None = None,
    inside: Mapping[str, str] | None = None, limit_s: float = PULL_LIMIT_S,
) -> tuple[str, dict[str, str]]:  # fmt: skip
    """Return the shas of those refs (full names) that the remote has. Blocks as ``push``.

    The first value is why they could not be read; empty if they could. ``inside``: as for ``exchange``.
    """
    words = ("ls-remote", "--quiet", "--", url, *names)
    with tempfile.TemporaryFile() as output:
        try:
            who = {"outside": outside, "inside": inside}
            _run(directory, *words, limit_s=limit_s, settings=_NO_HOOKS, stdout=output, **who)
        except _Failed as why:
            return str(why), {}
        output.seek(0)
        text = output.read(_REFS_BYTES + 1).decode(errors="replace")
    if len(text) > _REFS_BYTES:
        return "git ls-remote: too many refs have such names", {}
    # ls-remote also lists refs whose names only end in one of these.
    return "", {name: sha for sha, name in _REF.findall(text) if name in names}


def is_rejection(why: str) -> bool:
    """Whether a push failed because the remote refused it, not because it could not be reached."""
    return why.startswith(("git push: !", f"git push: {_BEHIND}"))


def is_refusal(why: str) -> bool:
    """Whether a refusal arrived as the answer to a push.

    The refs may have moved nevertheless: curl repeats a request when the connection breaks, and the second
    one is refused because the first was carried out.
    """
    return _REFUSAL.search(why) is not None


def _rebase(directory: Path, upstream: _Upstream, *, limit_s: float) -> None:
    try:
        _run(directory, "rebase", "--quiet", "--rebase-merges", upstream.tracking, limit_s=limit_s)
    except _Failed as why:
        if half_done(directory):
            with suppress(_Failed):
                _run(directory, "rebase", "--abort", limit_s=_ABORT_LIMIT_S)
        if half_done(directory):
            raise _Failed(f"{why}; the rebase is still under way: git rebase --abort") from why
        raise _Failed(f"{why}; the branch is as it was: git pull --rebase") from why


def _upstream(directory: Path) -> _Upstream:
    """Raise _Failed without an upstream, with the command that sets one."""
    if Repository.find(directory) is None:
        raise _Failed("this is not a git repository")
    branch = repo.line(directory, "symbolic-ref", "--quiet", "HEAD") or ""
    if not branch.startswith(_HEADS):
        raise _Failed("HEAD is on no branch: git switch BRANCH")
    form = "--format=" + "%00".join(f"%({field})" for field in _FIELDS)
    values = (repo.line(directory, "for-each-ref", form, branch) or "").split("\0")
    name, tracking, remote, ref, track = values if len(values) == len(_FIELDS) else [""] * len(_FIELDS)
    short = branch.removeprefix(_HEADS)
    if not (tracking and remote and ref):
        raise _Failed(f"{short} has no upstream: git push -u origin {short} sets one")
    if remote == ".":
        raise _Failed(f"the upstream of {short} is a branch of this repository")
    if track == "[gone]":
        raise _Failed(f"the upstream {name} is gone")
    counts = {word: int(number) for word, number in re.findall(r"\b(ahead|behind) (\d+)", track)}
    return _Upstream(branch, name, tracking, remote, ref, counts.get("ahead", 0), counts.get("behind", 0))


def _run(
    directory: Path, *words: str, limit_s: float, outside: Mapping[str, str] | None = None,
    inside: Mapping[str, str] | None = None, settings: tuple[str, ...] = (), stdout: IO[bytes] | None = None,
) -> None:  # fmt: skip
    """Run git as the user would. Raises _Failed with the line of output that gives the reason."""
    with tempfile.TemporaryFile() as output:
        try:
            # A session of its own has no terminal to prompt at. A file, not a pipe: a daemon that a hook
            # starts would hold a pipe open and keep us waiting.
            argv = ["git", *_QUIET, *settings, "-C", str(directory), *words]
            env = _environment(directory, os.environ if outside is None else outside, inside or {})
            git = subprocess.Popen(
                argv, env=env, stdin=subprocess.DEVNULL, stdout=stdout or output, stderr=output,
                start_new_session=True, umask=repo.umask,
            )  # fmt: skip
        except OSError as error:
            raise _Failed(f"git cannot be started ({error.strerror})") from error
        try:
            code = git.wait(max(0.0, limit_s))
        except subprocess.TimeoutExpired:
            raise _Failed(f"git {words[0]} did not end within {limit_s:.0f} s") from None
        finally:
            _terminate(git)
        if code != 0:
            raise _Failed(f"git {words[0]}: {_reason(output) or f'ended with {code}'}")


def _terminate(git: "subprocess.Popen[bytes]") -> None:
    for signal_ in (signal.SIGTERM, signal.SIGKILL):  # after SIGTERM git removes its lock files
        if git.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(git.pid, signal_)
        with suppress(subprocess.TimeoutExpired):
            git.wait(_END_GRACE_S)


def _environment(directory: Path, outside: Mapping[str, str], inside: Mapping[str, str]) -> dict[str, str]:
    user = {name: value for name, value in outside.items() if name not in _REDIRECTING}
    # An empty GIT_ASKPASS keeps git from core.askPass and SSH_ASKPASS.
    settings = {"GIT_ASKPASS": user.get("GIT_ASKPASS", ""), **_NO_PROMPT}
    # ssh prompts on /dev/tty unless in batch mode; another program may not know that option.
    ssh = user.get("GIT_SSH_COMMAND", "")
    if not ssh and "GIT_SSH" not in user:
        code, line = repo.answer(directory, "config", "--get", "core.sshCommand", env=inside) or (1, b"")
        ssh = os.fsdecode(line).removesuffix("\n") if code == 0 and line else "ssh"
    with suppress(ValueError, IndexError):
        if Path(shlex.split(ssh)[0]).name == "ssh":
            settings["GIT_SSH_COMMAND"] = f"{ssh} -o BatchMode=yes"
    return {**user, **settings, **inside}


def _reason(output: IO[bytes]) -> str:
    """Return a rejection, an error, or else the last line, without secrets and control characters."""
    output.seek(max(0, output.seek(0, os.SEEK_END) - _TAIL_BYTES))
    text = output.read().decode(errors="replace").replace("\t", " ")
    # Before this sentence, which says nothing, ssh or the server gave the reason.
    text = text.partition("fatal: Could not read from remote repository.")[0].strip() or text
    lines = [row.strip() for row in text.splitlines() if row.removeprefix("remote:").strip(" =")]
    ranked = [line for form in _REASONS for line in lines if re.match(form, line)]
    line = (ranked or lines[-1:] or [""])[0]
    if re.search(r"\[rejected\] \((fetch first|non-fast-forward)\)", line):
        return _BEHIND
    if line.startswith("!"):  # the hook's own words, or those of the branch's protection
        line = "; ".join((line, *(each for each in lines if each.startswith("remote: "))))
    printable = "".join(char for char in line if char.isprintable())
    return truncate(_SECRET.sub("://", printable), _REASON_CHARS)
