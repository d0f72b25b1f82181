"""Read and move the branch that everything lands on (M3).

With a remote the remote's branch is the target: it moves by a push with a lease, and the local branch follows
where that changes nobody's work. Without one the local branch moves; where a checkout of it holds work, or
cannot take the change, ``ralph/landed`` moves instead and the branch follows later. Each act may be repeated.
"""

import re
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Final

from ralphd import diagnostics
from ralphd.core.gate.verdict import CarriedOut
from ralphd.core.landing import model
from ralphd.core.landing.model import BranchPushed, Hindered, LandingFact, Target, TargetMoved, TargetTaken
from ralphd.core.text import short_sha
from ralphd.dataclass import dataclass
from ralphd.git import remote
from ralphd.git.landing.merge import KEPT_REFS, Tip, is_ancestor
from ralphd.git.locks import wait_for_lock
from ralphd.git.repo import Repository, trace
from ralphd.git.rewrite.move_branch import HEADS, Move, carry_out, move, refuse_trouble
from ralphd.git.runner import GitRunner, NotDone, isolated
from ralphd.plain_files import open_plain

LANDED: Final = "refs/heads/ralph/landed"
_FETCHED: Final = f"{KEPT_REFS}remote"
_LOCAL_URL: Final = re.compile(r"[^/:]+:|[a-z+.-]+://")
NETWORK_RETRY_S: Final = 60.0
REJECTED_RETRY_S: Final = 3600.0
"""Each further try costs a test run, and the remote has refused."""
REASON: Final = "ralph: landed"
MOVED: Final = (
    "; .git/config has another address since then: if it is yours, ralphctl regent stop, and remove the"
    " queue.json of this repository below landing/ in the state directory"
)


class Follow(StrEnum):
    """Whether something waits on ``ralph/landed``. ``diverged``: the target has commits that it lacks."""

    DONE = "done"
    WAITS = "waits"
    DIVERGED = "diverged"


@dataclass(frozen=True, slots=True)
class TargetBranch:
    """The target in one repository. ``work_tree`` is any of its work trees.

    ``busy`` are work trees in which a run lives: they are left alone. ``environment`` is that of
    the ralphs' owner, whose credentials a push needs. ``landed`` are the commits that the queue has left on
    ``ralph/landed``, the last one at the end: any run can write the branch, and nothing else on it is taken
    (None: anything is). ``scratch`` is a directory that no run can write. ``push`` moves a shared target from
    one commit to another under its lease, and returns why not; None: the lease is another's.
    """

    target: Target
    work_tree: Path
    busy: Container[Path] = ()
    environment: Mapping[str, str] | None = None
    landed: Sequence[str] | None = None
    scratch: Path | None = None
    push: Callable[[str, str], str | None] | None = None

    @property
    def _ref(self) -> str:
        return HEADS + self.target.branch

    def read(self, git: GitRunner, *, fetches: bool, also: str = "") -> Tip:
        """Return the target's commit; with ``fetches`` the remote is asked first. Raises NotDone.

        ``also`` may be on ``ralph/landed``, too: a daemon that was killed there did not record it.
        """
        if self.target.url and fetches:
            return Tip(self._fetched(git))
        if (tip := git.commit(_FETCHED if self.target.url else self._ref)) is None:
            raise NotDone(f"the branch {self.target.branch} does not exist")
        return Tip(tip, "" if self.target.url else self._waiting(git, also))

    def _fetched(self, git: GitRunner) -> str:
        with isolated(git, self.scratch) as inside:
            words = ("fetch", "--no-tags", "--", self.target.url, f"+{self._ref}:{_FETCHED}")
            if why := remote.exchange(self.work_tree, *words, outside=self.environment, inside=inside):
                is_moved = not self.target.is_shared and redirected(self.work_tree, self.target)
                raise NotDone(why + (MOVED if is_moved else ""))
            git = GitRunner(git.directory)  # the network had a time limit of its own
            tip = git.text("rev-parse", "--verify", f"{_FETCHED}^{{commit}}", env=inside)
        git.update_refs(f"update {_FETCHED} {tip}")
        return tip

    def _pushed_to_remote(self, git: GitRunner, *words: str) -> str:
        """Push to the remote. Return why it failed; empty if it did not."""
        with isolated(git, self.scratch) as inside:
            return remote.exchange(self.work_tree, "push", *words, outside=self.environment, inside=inside)

    def _waiting(self, git: GitRunner, also: str) -> str:
        """Return what has landed and waits for the target's checkout; empty for nothing."""
        if (there := git.commit(LANDED)) is None or there == also or self._is_queues(there):
            return there or ""
        last = self.landed[-1] if self.landed else ""
        return (last and git.commit(last)) or ""

    def _is_queues(self, commit: str) -> bool:
        return self.landed is None or commit in self.landed

    def advance(self, git: GitRunner, old: Tip, new: str) -> LandingFact:
        """Move the target from ``old`` to ``new``, unless that was done. Raises NotDone."""
        for place in self._checkouts(git):
            if place not in self.busy:
                carry_out(place, lambda _: "")  # rolls back what a killed daemon began; needs no remote
        if not is_ancestor(git, old.tip, new):
            return Hindered(f"{short_sha(new)} does not contain {short_sha(old.tip)}")
        current = self.read(git, fetches=True, also=new)
        git = GitRunner(git.directory) if self.target.url else git
        if is_ancestor(git, new, current.tip) or (current.landed and is_ancestor(git, new, current.landed)):
            return self._moved(git, current, new)
        if current.tip != old.tip:
            return TargetTaken()
        if self.target.url:
            return self._pushed(git, current, new)
        if why := self.move_local(git, current.tip, new):
            there = git.commit(LANDED)
            if there and not self._is_queues(there):
                raise NotDone(f"{why}; ralph/landed is not the queue's: git branch -m ralph/landed NAME")
            if places := self._checkouts(git, LANDED):
                raise NotDone(f"{why}; ralph/landed is checked out: git -C {places[0]} switch --detach")
            git.update_refs(f"update {LANDED} {new} {there or '0' * len(new)}", reason=REASON)
            diagnostics.reach("landing.moved")
            return TargetMoved(f"on ralph/landed: {why}")
        diagnostics.reach("landing.moved")
        return self._moved(git, Tip(new, current.landed), new)

    def _moved(self, git: GitRunner, current: Tip, new: str) -> TargetMoved:
        if self.target.url:
            self._follow_remote(git, current.tip)
        elif current.landed and is_ancestor(git, current.landed, current.tip):
            self._forget(git, current.landed)
        elif not is_ancestor(git, new, current.tip):
            return TargetMoved("on ralph/landed")
        return TargetMoved()

    def _forget(self, git: GitRunner, landed: str) -> None:
        """Delete ``ralph/landed`` if it is there still, and nobody has it checked out."""
        if not self._checkouts(git, LANDED):
            with suppress(NotDone):
                git.update_refs(f"delete {LANDED} {landed}")

    def _pushed(self, git: GitRunner, current: Tip, new: str) -> LandingFact:
        words = (f"--force-with-lease={self._ref}:{current.tip}", "--", self.target.url, f"{new}:{self._ref}")
        if self.target.is_shared:
            why = self.push(current.tip, new) if self.push else None
        else:
            why = self._pushed_to_remote(git, *words)
        git = GitRunner(git.directory)
        diagnostics.reach("landing.moved")
        if why == "":
            self._follow_remote(git, new)
            return TargetMoved()
        again = self.read(git, fetches=True)
        if is_ancestor(git, new, again.tip):
            return self._moved(git, again, new)
        if why is None or again.tip != current.tip:
            return TargetTaken()
        retry_s = REJECTED_RETRY_S if remote.is_rejection(why) else NETWORK_RETRY_S
        return Hindered(f"not pushed: {why}", retry_s)

    def publish(self, git: GitRunner, branch: str, head: str) -> LandingFact:
        """Push a commit to the remote's branch of that name, which only moves forward (M1)."""
        if git.commit(head) is None:
            return BranchPushed(f"the commit {short_sha(head)} is not in the repository any more")
        why = self._pushed_to_remote(git, "--", self.target.url, f"{head}:{branch}")
        if why and not remote.is_rejection(why):
            return Hindered(f"not pushed: {why}", NETWORK_RETRY_S)
        if not why:  # as git push does: the commits are known to be safe
            tracking = f"refs/remotes/{self.target.remote}/{branch.removeprefix(HEADS)}"
            with suppress(NotDone):
                GitRunner(git.directory).update_refs(f"update {tracking} {head}", reason=REASON)
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
        self._forget(git, tip.landed)
        return Follow.DONE

    def move_local(self, git: GitRunner, old: str, new: str) -> str:
        """Move the local branch forward. Return why it is left as it is; empty if it moved."""
        if self._is_half_done(git):
            return f"a rebase of {self.target.branch} is under way"
        if not (places := self._checkouts(git)):
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
        if not place.exists():  # its disk may be back later
            return f"{place} is missing; if it is gone for good: git worktree prune"

        def act(git: GitRunner) -> str:
            if refuse_trouble(git).names:
                raise NotDone("there are changes that are not committed")
            move(git, Move(self._ref, old, new, f"merge {short_sha(new)}: Fast-forward"))
            return new

        done = carry_out(place, act)
        return "" if isinstance(done, CarriedOut) else f"{place}: {done.why}"

    def _checkouts(self, git: GitRunner, ref: str = "") -> list[Path]:
        """Return the work trees that have a branch checked out, by default the target. Raises NotDone."""
        places, place, common = [], None, git.repository.common.resolve()
        for line in git.output("worktree", "list", "--porcelain", "-z").split(b"\0"):
            key, _, value = line.partition(b" ")
            if key == b"worktree":
                place = Path(value.decode(errors="surrogateescape"))
                if place == common:  # so git lists a submodule; any run can write what its configuration says
                    top = (place / (git.line("config", "core.worktree") or "")).resolve()
                    place = top if (its := Repository.find(top)) and its.git.resolve() == common else place
            elif key == b"branch" and place and value.decode(errors="replace") == (ref or self._ref):
                places.append(place)
        return places

    def _is_half_done(self, git: GitRunner) -> bool:
        places = (git.repository.common, *git.repository.common.glob("worktrees/*"))
        heads = (each / kind / "head-name" for each in places for kind in ("rebase-merge", "rebase-apply"))
        return any(_text(each) == self._ref for each in heads)


def _text(path: Path) -> str:
    with suppress(OSError), open_plain(path) as file:
        return file.read(4096).decode(errors="replace").strip()
    return ""


def recorded(queue: model.LandingQueue) -> tuple[str, ...]:
    """Return what the queue has left on ``ralph/landed``, the last one at the end."""
    waiting = [each for each in queue.standing(model.Standing.LANDED) if each.commit and each.why]
    commits = [each.commit for each in sorted(waiting, key=lambda each: (each.ended_at or 0.0, each.id))]
    return (*commits, queue.left) if queue.left else tuple(commits)


def find_target(work_tree: Path, branch: str, *, known: Target | None = None) -> Target:
    """Return the target as the repository has it, its remote pinned by its URL. Raises NotDone.

    ``known`` is the present one of the queue. If it is a remote's branch of that name, it stays: any run can
    write ``.git/config``. A branch may exist at the remote only.
    """
    git = GitRunner(work_tree)
    if branch.startswith("-") or git.run("check-ref-format", HEADS + branch)[0]:
        raise NotDone(f"[landing] target: {branch!r} cannot be the name of a branch")
    if known is not None and known.url and known.branch == branch:
        return known
    name, url = _address(git, branch)
    if url is None and git.commit(HEADS + branch) is None:
        raise NotDone(f"[landing] target: no branch {branch} here or at {name}, as of the last git fetch")
    return Target(branch) if url is None else Target(branch, name, url)


def redirected(work_tree: Path, target: Target) -> str:
    """Return where the repository would push to now; empty if that is the target's URL. Raises NotDone."""
    _, url = _address(GitRunner(work_tree), target.branch)
    return url if url and url != target.url else ""


def _address(git: GitRunner, branch: str) -> tuple[str, str | None]:
    """Return the name of the branch's remote, and its URL if it is known to have the branch."""
    name = git.line("config", "--get", f"branch.{branch}.remote") or "origin"
    has_remote = git.commit(f"refs/remotes/{name}/{branch}") is not None
    url = git.line("remote", "get-url", "--push", name) if has_remote and name != "." else None
    if url is None:
        return name, None
    url = url.partition("\n")[0]
    if not (_LOCAL_URL.match(url) or url.startswith("/")):
        url = str((git.top / url).resolve())
    return name, url
