"""Let only the holder of a lease push to its branch: each push moves the lease ref by compare-and-swap.

Git decides who may write, whatever the hub has lost. ``--force-with-lease`` decides nothing where the ref
does not change, so each push carries a new lease object. Where the answer to a push is lost, the refs show
what happened: a lease there of this holding (host, boot, token) is continued, any other one fences.
"""

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from ralphd.core.fleet.model import HostName, Lease, LeaseForm
from ralphd.core.text import short_sha
from ralphd.dataclass import dataclass
from ralphd.git import remote
from ralphd.git.fence.lease_ref import Aside, LeaseState, is_stored, read_lease, write_lease
from ralphd.git.rewrite.move_branch import HEADS
from ralphd.git.runner import GitRunner, NotDone, error_text, isolated

TRIES: Final = 3
MOST_ASIDE: Final = 20
PUSH_URL: Final = "/dev/null/ralphd-pushes-this-branch-after-each-kept-iteration-so-commit-and-do-not-push"
"""No path below /dev/null exists, so git prints this address as the reason."""
_TRUE_HISTORY: Final = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": "/dev/null"}
"""What is pushed has the history without replacements and grafts, which an agent may have made."""
_CONTENDED: Final = re.compile(r"cannot lock ref|failed to update ref|stale info|atomic transaction failed")
"""A push that met another one, perhaps to another ref: the refs say whether trying again makes sense."""

Update: TypeAlias = tuple[str, str, str]
"""A ref, its sha on the remote (empty: absent), and the sha to push (empty: delete)."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The remote, or git here, did not answer. A push may still be carried out: repeat the call."""

    why: str


@dataclass(frozen=True, slots=True)
class RemoteRefused:
    """The remote was reached and refused, and nothing moved: a hook, a protection, a missing feature."""

    why: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """The lease is ours; ``sha`` is its ref now."""

    sha: str
    lease: Lease


@dataclass(frozen=True, slots=True)
class ClaimLost:
    """Somebody else was faster, or the lease is not where it was expected."""

    present: LeaseState


@dataclass(frozen=True, slots=True)
class Pushed:
    """The lease moved to ``sha``, with the branch if one was pushed: both or none."""

    sha: str
    lease: Lease


@dataclass(frozen=True, slots=True)
class Fenced:
    """The lease is another's (``by`` None: unreadable).

    Where the answer to a push was lost, it may have been carried out before the takeover.
    """

    sha: str
    by: Lease | None


@dataclass(frozen=True, slots=True)
class BranchMoved:
    """The lease is ours, but somebody without a lease moved the branch, or deleted it (``tip`` empty)."""

    tip: str


@dataclass(frozen=True, slots=True)
class Rewound:
    """HEAD does not contain ``last``, which was pushed: a reset, an amend or a rebase. Nothing was pushed."""

    last: str


@dataclass(frozen=True, slots=True)
class LeaseGone:
    """The lease ref was deleted; it can be claimed again with ``expected`` empty."""


@dataclass(frozen=True, slots=True)
class SavedAside:
    """The refs on the remote that have the commits, in their order."""

    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Usable:
    """The remote takes leases in this form. ``why``: it refused better ones, or keeps the trial refs."""

    form: LeaseForm
    why: str = ""


Failure: TypeAlias = RemoteRefused | Unreachable
LeaseMove: TypeAlias = Pushed | Fenced | LeaseGone | Failure
WorkPush: TypeAlias = LeaseMove | BranchMoved | Rewound


@dataclass(frozen=True, slots=True)
class Fence:
    """The leases of one remote, through one local clone.

    The clone's own settings, which a run can write, do not count; no run can write ``scratch``.
    Every call can be repeated, blocks for a small multiple of ``limit_s`` at most, and returns what the world
    does as data. ``url`` is the real address; the clone's own pushurl may be dead. ``environment`` is that of
    the user whose credentials a push needs. All hosts must use the same ``form`` for a remote.
    """

    directory: Path
    url: str
    environment: Mapping[str, str] | None = None
    form: LeaseForm = LeaseForm.BLOB
    limit_s: float = remote.PUSH_LIMIT_S
    scratch: Path | None = None

    def read(self, branch: str) -> LeaseState | Unreachable:
        """Return who has a branch, from the remote."""
        try:
            return self._state(branch)
        except (NotDone, OSError) as error:
            return Unreachable(error_text(error))

    def claim(self, branch: str, lease: Lease, expected: str) -> Claimed | ClaimLost | Failure:
        """Take the lease whose ref is at ``expected``; empty: which must not exist."""
        try:
            ref, _ = self._names(branch)
            sha = write_lease(self._git(), self.form, lease)
            for _ in range(TRIES):
                if not (why := self._send((ref, expected, sha))):
                    return Claimed(sha, lease)
                present = self._state(branch)
                if ours := present.lease_of(lease):
                    return Claimed(present.sha, ours)
                if present.sha != expected:
                    return ClaimLost(present)
                if not _CONTENDED.search(why):
                    break
        except (NotDone, OSError) as error:
            return Unreachable(error_text(error))
        return _failure(why)

    def push(self, branch: str, head: str, lease: Lease, mine: str, last: str) -> WorkPush:
        """Push a commit, and the lease from ``mine`` to a new one, both or none; never a rewind.

        ``last`` is the tip of the branch when it was last pushed or fetched; empty: it does not exist yet.
        After a push whose answer was lost, ``mine`` and ``last`` may still be those from before it.
        """
        try:
            return self._push(branch, self._commit(head), lease, mine, last) if mine else LeaseGone()
        except (NotDone, OSError) as error:
            return Unreachable(error_text(error))

    def bump(self, branch: str, lease: Lease, mine: str) -> LeaseMove:
        """Move the lease alone, which shows that its holder lives although the hub does not hear it."""
        return self._move_lease(branch, lease, mine, lease.host)

    def release(self, branch: str, lease: Lease, mine: str) -> LeaseMove:
        """Move the lease alone, to one without a host: anybody may claim it."""
        return self._move_lease(branch, lease, mine, HostName(""))

    def save_aside(self, kind: Aside, branch: str, token: int, *commits: str) -> SavedAside | Failure:
        """Push commits to refs beside the branch, as BRANCH/TOKEN, BRANCH/TOKEN-2 …; overwrite none."""
        base, refs = f"{self.form.prefix}{kind}/{branch}/{token}", []
        try:
            self._names(branch)
            for commit in commits:
                free = self._save(base, self._commit(commit))
                if not isinstance(free, str):
                    return free
                refs.append(free)
        except (NotDone, OSError) as error:
            return Unreachable(error_text(error))
        return SavedAside(tuple(refs))

    def check(self) -> Usable | Failure:
        """Find out with trial refs, which are removed, in which form the remote takes leases."""
        refusals: list[str] = []
        try:
            for form in LeaseForm:
                why, left = replace(self, form=form)._try_form()
                if not why:
                    return Usable(form, "; ".join(filter(None, (*refusals[:1], left))))
                if not remote.is_refusal(why):
                    return Unreachable(why)
                refusals.append(why)
        except (NotDone, OSError) as error:
            return Unreachable(error_text(error))
        return RemoteRefused(refusals[0])

    def _push(self, branch: str, head: str, lease: Lease, mine: str, last: str) -> WorkPush:
        lease_ref, ref = self._names(branch)
        why = ""
        for _ in range(TRIES):
            if not self._contains(head, last):
                return Rewound(last)
            lease = replace(lease, n=lease.n + 1, pushed=head)
            sha = write_lease(self._git(), self.form, lease)
            if not (why := self._send((ref, last, head), (lease_ref, mine, sha))):
                return Pushed(sha, lease)
            present = self._state(branch)
            if (present.sha, present.tip) == (sha, head):
                return Pushed(sha, lease)
            if (ours := present.lease_of(lease)) is None:
                return _loss(present)
            # A server that is killed between two refs leaves half a push: a tip in between is still ours.
            if not self._contains(present.tip, last):
                return BranchMoved(present.tip)
            if not self._contains(head, present.tip):
                return Rewound(present.tip) if present.tip == ours.pushed else BranchMoved(present.tip)
            if (present.sha, present.tip) == (mine, last) and not _CONTENDED.search(why):
                break
            mine, last, lease = present.sha, present.tip, replace(lease, n=ours.n)
        return _failure(why)

    def _move_lease(self, branch: str, lease: Lease, mine: str, host: HostName) -> LeaseMove:
        why = ""
        if not mine:
            return LeaseGone()
        try:
            ref, _ = self._names(branch)
            for _ in range(TRIES):
                new = replace(lease, n=lease.n + 1, host=host)
                sha = write_lease(self._git(), self.form, new)
                if not (why := self._send((ref, mine, sha))):
                    return Pushed(sha, new)
                present = self._state(branch)
                if (moved := present.lease_of(new)) and (present.sha == sha or not host):
                    return Pushed(present.sha, moved)
                if (ours := present.lease_of(lease)) is None:
                    return _loss(present)
                if present.sha == mine and not _CONTENDED.search(why):
                    break
                mine, lease = present.sha, ours
        except (NotDone, OSError) as error:
            return Unreachable(error_text(error))
        return _failure(why)

    def _save(self, base: str, sha: str) -> str | Failure:
        """Return the ref that has the commit now."""
        for number in range(1, MOST_ASIDE + 1):
            ref = base if number == 1 else f"{base}-{number}"
            if not (why := self._send((ref, "", sha))):
                return ref
            present = self._remote_refs(ref).get(ref)
            if present == sha:
                return ref
            if present is None:
                return _failure(why)
        return RemoteRefused(f"{base} and {MOST_ASIDE - 1} refs after it have other commits")

    def _try_form(self) -> tuple[str, str]:
        """Return why a lease cannot be created and moved, and why the trial refs are still there."""
        git, name = self._git(), f"ralph-trial-{secrets.token_hex(6)}"
        ref, other = self._names(name)[0], f"{self.form.prefix}{Aside.STALE}/{name}/0"
        first, second = (Lease(HostName("trial"), name, token=0, n=n) for n in range(2))
        old, new = (write_lease(git, self.form, lease) for lease in (first, second))
        commit = write_lease(git, LeaseForm.COMMIT, first)
        if why := self._send((ref, "", old), (other, "", commit)):
            if remote.is_refusal(why):
                return why, ""
        else:
            why = self._send((ref, old, new))
        present = self._remote_refs(ref, other)
        left = self._send(*((each, sha, "") for each, sha in present.items())) if present else ""
        return why, left and f"the trial refs of {name} are still there: {left}"

    def _state(self, branch: str) -> LeaseState:
        (ref, head_ref), git = self._names(branch), self._git()
        for _ in range(TRIES):
            shas = self._remote_refs(ref, head_ref)
            sha, tip = shas.get(ref, ""), shas.get(head_ref, "")
            if not sha:
                return LeaseState(tip=tip)
            if not is_stored(git, sha):
                words = ("--no-tags", "--no-recurse-submodules", "--", self.url, ref)
                with self._isolated() as (directory, how):
                    why = remote.exchange(directory, "fetch", *words, **how)
                if why:
                    raise NotDone(why)
                git = self._git()
            if is_stored(git, sha):  # else it has moved in between
                return LeaseState(sha, read_lease(git, sha), tip)
        raise NotDone(f"{ref} moves while it is read")

    def _remote_refs(self, *refs: str) -> Mapping[str, str]:
        with self._isolated() as (directory, how):
            why, shas = remote.remote_refs(directory, self.url, *refs, **how)
        if why:
            raise NotDone(why)
        return shas

    def _send(self, *updates: Update) -> str:
        """Push all updates or none, each only if its ref is as expected. Return why it failed, if it did."""
        leases = (f"--force-with-lease={ref}:{old}" for ref, old, _ in updates)
        words = ["--atomic"] * (len(updates) > 1) + ["--no-follow-tags", "--no-recurse-submodules", *leases]
        refspecs = (f"{new}:{ref}" for ref, _, new in updates)
        with self._isolated() as (directory, how):
            return remote.exchange(directory, "push", *words, "--", self.url, *refspecs, **how)

    @contextmanager
    def _isolated(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        with isolated(self._git(), self.scratch) as variables:
            yield self.directory, {"outside": self.environment, "inside": variables, "limit_s": self.limit_s}

    def _contains(self, newer: str, older: str) -> bool:
        if not older or newer == older:
            return True
        words = ("merge-base", "--is-ancestor", older, newer)
        return bool(newer) and self._git().run(*words, env=_TRUE_HISTORY)[0] == 0

    def _commit(self, revision: str) -> str:
        if (sha := self._git().commit(revision)) is None:
            raise NotDone(f"the commit {short_sha(revision)} is not in the repository")
        return sha

    def _names(self, branch: str) -> tuple[str, str]:
        """Return the refs of the lease and of the branch. Raises NotDone for a name that cannot be one."""
        ref = HEADS + branch
        if "\0" in ref or self._git().run("check-ref-format", ref)[0] != 0:
            raise NotDone(f"{branch!r} is not a name for a branch")
        return f"{self.form.prefix}lease/{branch}", ref

    def _git(self) -> GitRunner:
        return GitRunner(self.directory)


def dead_pushurl(directory: Path) -> str:
    """Have ``git push origin`` in a clone fail with the reason. Return why not; empty if it will."""
    try:
        GitRunner(directory).output("config", "--local", "--replace-all", "remote.origin.pushurl", PUSH_URL)
    except (NotDone, OSError) as error:
        return error_text(error)
    return ""


def _loss(present: LeaseState) -> Fenced | LeaseGone:
    return Fenced(present.sha, present.lease) if present.sha else LeaseGone()


def _failure(why: str) -> Failure:
    return RemoteRefused(why) if remote.is_refusal(why) else Unreachable(why)
