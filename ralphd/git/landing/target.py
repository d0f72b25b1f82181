"""Read and move the branch that everything lands on (M3).

With a remote the remote's branch is the target: it moves by a push with a lease, and the local branch follows
where that changes nobody's work. Without one the local branch moves; where a checkout of it holds work, or
cannot take the change, ``ralph/landed`` moves instead and the branch follows later. Each act may be repeated.
"""

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from ralphd import diagnostics
from ralphd.core.gate.verdict import CarriedOut
from ralphd.core.landing.model import (
    BranchPushed,
    Hindered,
    LandingFact,
    Target,
    TargetMoved,
    TargetTaken,
)
from ralphd.core.text import short_sha
from ralphd.git import remote
from ralphd.git.diagnostics import trouble_of
from ralphd.git.facts import uncommitted
from ralphd.git.landing.merge import KEPT_REFS, Tip, is_ancestor
from ralphd.git.locks import wait_for_lock
from ralphd.git.repo import trace
from ralphd.git.rewrite.move_branch import HEADS, Move, carry_out, move
from ralphd.git.runner import GitRunner, NotDone
from ralphd.plain_files import open_plain

LANDED: Final = "refs/heads/ralph/landed"
_FETCHED: Final = f"{KEPT_REFS}remote"
_LOCAL_URL: Final = re.compile(r"[^/:]+:|[a-z+.-]+://")
NETWORK_RETRY_S: Final = 60.0
REJECTED_RETRY_S: Final = 3600.0
"""Each further try costs a test run, and the remote has refused."""
REASON: Final = "ralph: landed"


class Follow(StrEnum):
    """Whether something waits on ``ralph/landed``. ``diverged``: the target has commits that it lacks."""

    DONE = "done"
    WAITS = "waits"
    DIVERGED = "diverged"


@dataclass(frozen=True, slots=True)
class TargetBranch:
    """The target in one repository. ``work_tree`` is any of its work trees.

    ``busy`` are work trees in which a run lives: they are left alone. ``environment`` is that of
    the ralphs' owner, whose credentials a push needs.
    """

    target: Target
    work_tree: Path
    busy: Collection[Path] = ()
    environment: Mapping[str, str] | None = None

    @property
    def _ref(self) -> str:
        return HEADS + self.target.branch

    def read(self, git: GitRunner, *, fetches: bool) -> Tip:
        """Return the target's commit; with ``fetches`` the remote is asked first. Raises NotDone."""
        if self.target.url:
            if fetches:
                self._fetch()
            ref = _FETCHED
        else:
            ref = self._ref
        if (tip := git.commit(ref)) is None:
            raise NotDone(f"the branch {self.target.branch} does not exist")
        landed = None if self.target.url else git.commit(LANDED)
        return Tip(tip, landed or "")

    def _fetch(self) -> None:
        words = ("--no-tags", "--", self.target.url, f"+{self._ref}:{_FETCHED}")
        if why := remote.fetch(self.work_tree, *words, outside=self.environment):
            raise NotDone(why)

    def advance(self, git: GitRunner, old: Tip, new: str) -> LandingFact:
        """Move the target from ``old`` to ``new``, unless that was done. Raises NotDone."""
        for place in self._checkouts(git):
            if place not in self.busy:
                carry_out(place, lambda _: "")  # rolls back what a killed daemon began; needs no remote
        if not is_ancestor(git, old.tip, new):
            return Hindered(f"{short_sha(new)} does not contain {short_sha(old.tip)}")
        current = self.read(git, fetches=True)
        if is_ancestor(git, new, current.tip) or (current.landed and is_ancestor(git, new, current.landed)):
            return self._moved(git, current, new)
        if current.tip != old.tip:
            return TargetTaken()
        if self.target.url:
            return self._pushed(git, current, new)
        if why := self.move_local(git, current.tip, new):
            zero = "0" * len(new)
            git.update_refs(f"update {LANDED} {new} {current.landed or zero}", reason=REASON)
            diagnostics.reach("landing.moved")
            return TargetMoved(f"on ralph/landed: {why}")
        diagnostics.reach("landing.moved")
        return self._moved(git, Tip(new, current.landed), new)

    def _moved(self, git: GitRunner, current: Tip, new: str) -> TargetMoved:
        if self.target.url:
            self._follow_remote(git, current.tip)
        elif current.landed and is_ancestor(git, current.landed, current.tip):
            with suppress(NotDone):
                git.update_refs(f"delete {LANDED} {current.landed}")
        elif not is_ancestor(git, new, current.tip):
            return TargetMoved("on ralph/landed")
        return TargetMoved()

    def _pushed(self, git: GitRunner, current: Tip, new: str) -> LandingFact:
        words = (f"--force-with-lease={self._ref}:{current.tip}", "--", self.target.url, f"{new}:{self._ref}")
        why = remote.push_commit(self.work_tree, *words, outside=self.environment)
        diagnostics.reach("landing.moved")
        if not why:
            self._follow_remote(git, new)
            return TargetMoved()
        again = self.read(git, fetches=True)
        if is_ancestor(git, new, again.tip):
            return self._moved(git, again, new)
        retry_s = REJECTED_RETRY_S if remote.is_rejection(why) else NETWORK_RETRY_S
        return TargetTaken() if again.tip != current.tip else Hindered(f"not pushed: {why}", retry_s)

    def publish(self, git: GitRunner, branch: str, head: str) -> LandingFact:
        """Push a commit to the remote's branch of that name, which only moves forward (M1)."""
        if git.commit(head) is None:
            return BranchPushed(f"the commit {short_sha(head)} is not in the repository any more")
        words = ("--", self.target.url, f"{head}:{branch}")
        why = remote.push_commit(self.work_tree, *words, outside=self.environment)
        if why and not remote.is_rejection(why):
            return Hindered(f"not pushed: {why}", NETWORK_RETRY_S)
        return BranchPushed(why)

    def _follow_remote(self, git: GitRunner, tip: str) -> None:
        """Have the local branches follow the remote's where nobody's work changes."""
        tracking = f"refs/remotes/{self.target.remote}/{self.target.branch}"
        with suppress(NotDone):
            if (seen := git.commit(tracking)) is not None and is_ancestor(git, seen, tip):
                git.update_refs(f"update {tracking} {tip} {seen}", reason=REASON)
        local = git.commit(self._ref)
        if local is not None and local != tip and is_ancestor(git, local, tip):
            self.move_local(git, local, tip)

    def signature(self, common: Path) -> tuple[object, ...]:
        """Return what differs once a ref or the index of a checkout has changed; costs a few stats."""
        names = (self._ref, LANDED, "packed-refs", "reftable/tables.list", "index")
        return tuple(map(trace, (*(common / name for name in names), *common.glob("worktrees/*/index"))))

    def follow(self, git: GitRunner) -> Follow:
        """Move the target to what waits on ``ralph/landed``, if its checkout can take it (M3)."""
        tip = self.read(git, fetches=False)
        if not tip.landed:
            return Follow.DONE
        if not is_ancestor(git, tip.landed, tip.tip):
            if not is_ancestor(git, tip.tip, tip.landed):
                return Follow.DIVERGED
            if self.move_local(git, tip.tip, tip.landed):
                return Follow.WAITS
        git.update_refs(f"delete {LANDED} {tip.landed}")
        return Follow.DONE

    def move_local(self, git: GitRunner, old: str, new: str) -> str:
        """Move the local branch forward. Return why it is left as it is; empty if it moved."""
        if self._is_half_done(git):
            return f"a rebase of {self.target.branch} is under way"
        places = self._checkouts(git)
        if not places:
            try:
                git.update_refs(f"update {self._ref} {new} {old}", reason=REASON)
            except NotDone as why:
                return str(why)
            self._catch_up(git, old, new)
            return ""
        if len(places) > 1:
            return f"{self.target.branch} is checked out in {len(places)} places"
        return self._move_checkout(places[0], old, new)

    def _catch_up(self, git: GitRunner, old: str, new: str) -> None:
        """Have a checkout follow that was switched to the branch as it moved: git had read the old commit."""
        for directory in (git.repository.common, *git.repository.common.glob("worktrees/*")):
            wait_for_lock(directory)
        with suppress(NotDone):
            for place in self._checkouts(git):
                there = GitRunner(place)
                with there.exclusive():
                    if place not in self.busy and there.run("diff-index", "--cached", "--quiet", old)[0] == 0:
                        there.run("read-tree", "-m", "-u", old, new)  # refuses where files have changed

    def _move_checkout(self, place: Path, old: str, new: str) -> str:
        if place in self.busy:
            return f"a ralph works in {place}"

        def act(git: GitRunner) -> str:
            dirty = uncommitted(git)
            if trouble := trouble_of(git, dirty.unmerged):
                raise NotDone(trouble)
            if dirty.names:
                raise NotDone("there are changes that are not committed")
            move(git, Move(self._ref, old, new, f"merge {short_sha(new)}: Fast-forward"))
            return new

        done = carry_out(place, act)
        return "" if isinstance(done, CarriedOut) else f"{place}: {done.why}"

    def _checkouts(self, git: GitRunner) -> list[Path]:
        """Return the work trees that have the branch checked out. Raises NotDone."""
        places, place = [], None
        for line in git.output("worktree", "list", "--porcelain", "-z").split(b"\0"):
            key, _, value = line.partition(b" ")
            if key == b"worktree":
                place = Path(value.decode(errors="surrogateescape"))
            elif key == b"branch" and place is not None and value.decode(errors="replace") == self._ref:
                places.append(place)
        return places

    def _is_half_done(self, git: GitRunner) -> bool:
        common = git.repository.common
        heads = (
            git_directory / kind / "head-name"
            for git_directory in (common, *common.glob("worktrees/*"))
            for kind in ("rebase-merge", "rebase-apply")
        )
        return any(_text(each) == self._ref for each in heads)


def _text(path: Path) -> str:
    with suppress(OSError), open_plain(path) as file:
        return file.read(4096).decode(errors="replace").strip()
    return ""


def find_target(work_tree: Path, branch: str) -> Target:
    """Return the target as the repository has it, its remote pinned by its URL. Raises NotDone."""
    git = GitRunner(work_tree)
    name = git.line("config", "--get", f"branch.{branch}.remote") or "origin"
    has_remote = git.commit(f"refs/remotes/{name}/{branch}") is not None
    url = git.line("remote", "get-url", "--push", name) if has_remote and name != "." else None
    if url is None:
        return Target(branch)
    url = url.partition("\n")[0]
    if not (_LOCAL_URL.match(url) or url.startswith("/")):
        url = str((git.top / url).resolve())
    return Target(branch, name, url)
