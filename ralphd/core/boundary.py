"""The facts of a boundary: where the repository was and is, and what lies in between (R1, R2, R4, R8)."""

from dataclasses import dataclass
from enum import StrEnum


class Baseline(StrEnum):
    """What the tests said of the tree before the iteration: the last verdict (R4)."""

    UNKNOWN = "unknown"
    GREEN = "green"
    RED = "red"


@dataclass(frozen=True, slots=True)
class Position:
    """Where a repository stands: the full sha of HEAD, None before the first commit; its branch."""

    head: str | None
    branch: str | None


@dataclass(frozen=True, slots=True)
class JudgedCommit:
    """A commit of the range. ``pulled``: it came by fetch or pull. ``upstream``: it is in the upstream."""

    sha: str
    subject: str = ""
    pulled: bool = False
    upstream: bool = False


@dataclass(frozen=True, slots=True)
class Boundary:
    """The facts of a boundary (R1, R2).

    ``before`` is where HEAD was after our own pull, ``now`` where it is. ``descends``: the one is an ancestor
    of the other. ``commits`` are those of the range along its first parents, newest first: a merge is one of
    them, what it merged is not. ``trouble`` says what is half done in the repository, in words (R8).
    ``dirty`` are tracked files that are not committed.
    """

    before: Position
    now: Position
    descends: bool = True
    commits: tuple[JudgedCommit, ...] = ()
    trouble: str = ""
    dirty: tuple[str, ...] = ()

    @property
    def doubt(self) -> str:
        """Why nothing of this range may be reverted, in words (R2); empty: it may."""
        if self.before.head is None:
            return "the iteration made the repository's first commit"
        if not self.descends:
            began = f"{self.before.head[:7]}, where the iteration began"
            return f"HEAD does not lead back to {began} (amend, rebase, reset, merge)"
        if self.before.branch != self.now.branch:
            was, now = self.before.branch or "none", self.now.branch or "none"
            return f"the branch is another: it was {was}, now it is {now}"
        if pulled := [commit.sha[:7] for commit in self.commits if commit.pulled]:
            return f"commits in it came by fetch or pull: {', '.join(pulled[:3])}"
        return ""
