"""Which worktrees a request asks for, and whether they can be: name, branch, ports, disk (W1, W3, W6)."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ralphd import wire
from ralphd.config.configuration import data_home, load
from ralphd.config.values import fit_name
from ralphd.core.worktrees import rules
from ralphd.core.worktrees.rules import Worktree, WorktreeFacts, Worktrees
from ralphd.daemon.registration import Registration, free_name
from ralphd.dataclass import dataclass
from ralphd.errors import BadName, NameTaken, UsageError, WrongState
from ralphd.git.runner import NotDone
from ralphd.git.worktrees import worktree as worktrees
from ralphd.git.worktrees.worktree import WorktreeSource
from ralphd.process.machine import are_free
from ralphd.store.shared import claims

if TYPE_CHECKING:
    from ralphd.daemon.lifecycle import Roster
    from ralphd.daemon.services import Services


@dataclass(frozen=True, slots=True)
class WorktreeOrder:
    """A request for ``count`` ralphs in worktrees of the repository around the registration's directory.

    ``start``: a revision, None: HEAD. ``tasks``: only these.
    """

    registration: Registration
    branch: str | None = None
    start: str | None = None
    tasks: tuple[str, ...] = ()
    count: int = 1


@dataclass(frozen=True, slots=True)
class WorktreePlanner:
    """Turns requests into records of worktrees. Its methods block, and change nothing."""

    roster: "Roster"
    services: "Services"

    def wanted(self, order: WorktreeOrder, measured: Mapping[str, WorktreeFacts]) -> list[Worktree]:
        """Return the records of the worktrees to be made. Raise RalphdError; changes nothing."""
        asked = order.registration
        directory, environ = Path(asked.directory), asked.environment
        configuration = load(directory, flags=asked.flags, environ=environ)
        source = worktrees.source_of(directory, order.start)
        known = claims.load_worktrees(self.services.state_directory)
        name = asked.name or self._free(configuration.project.name or directory.name, known, source)
        names = rules.names_of(name, order.count)
        for each in names:
            self._check_name(each, known, source)
        if order.branch is not None and order.count > 1:
            raise UsageError("--branch is for one worktree", mend="leave out --branch, or --count")
        living = {regent.name for regent in self.roster.busy()}
        others = [each for each in known.values() if each.name not in names]
        facts = {each.name: measured.get(each.name) or facts_of(each) for each in others}
        resting = [name for name in facts if name not in living]
        if full := rules.over_limit(facts, configuration.worktree.max_total_bytes, resting):
            mend = "ralphctl trees, then ralphctl trees rm NAME"
            raise WrongState(f"no room for the worktree of {name}", why=full, mend=mend)
        trees = dict(known)
        for each in names:
            trees[each] = replace(
                known.get(each) or self._record(each, order, source, trees),
                tasks=order.tasks, shares=order.count > 1, starts=order.registration.start,
            )  # fmt: skip
        return [trees[each] for each in names]

    def facts(self) -> dict[str, WorktreeFacts]:
        """Return what is known of each worktree, by name."""
        known = claims.load_worktrees(self.services.state_directory)
        return {name: facts_of(tree) for name, tree in known.items()}

    def _free(self, name: str, known: Worktrees, source: WorktreeSource) -> str:
        """Return a name that no ralph has; one whose worktree was begun here is continued."""
        others = {each.name for each in known.values() if each.repository != str(source.common)}
        return free_name(fit_name(name), lambda each: each in others or each in self.roster.directories())

    def _check_name(self, name: str, known: Worktrees, source: WorktreeSource) -> None:
        if not wire.is_name(name):
            raise BadName(f"{name[:80]!r} is not a name for a ralph", mend=f"--worktree {fit_name(name)}")
        if name in self.roster.directories():
            mend = f"ralphctl start {name}, or another name: --worktree NAME"
            raise NameTaken(f"there is a ralph {name} already", mend=mend)
        if name in known and known[name].repository != str(source.common):
            what = f"the worktree {name} is one of {known[name].source}"
            raise NameTaken(what, mend="another name: --worktree NAME")

    def _record(self, name: str, order: WorktreeOrder, source: WorktreeSource, known: Worktrees) -> Worktree:
        common = str(source.common)
        digest = hashlib.sha256(os.fsencode(common)).hexdigest()[:8]
        folder = rules.folder_of(fit_name(source.name), common, digest, known.values())
        path = (data_home(order.registration.environment) / "trees" / folder).resolve() / name
        branch = order.branch or f"ralph/{name}"
        return Worktree(
            name, str(path), common, str(source.top), branch, source.start,
            made_at=self.services.clock.now(),
            port_base=next(filter(are_free, rules.port_bases(tree.port_base for tree in known.values())), 0),
            target=source.branch,
            inside="" if source.inside == "." else source.inside,
            has_branch=worktrees.has_branch(source, branch, order.start, path),
        )  # fmt: skip


def facts_of(tree: Worktree) -> WorktreeFacts:
    """Return what is known of a worktree; what git cannot answer counts as work that is nowhere else."""
    try:
        return worktrees.facts_of(tree)
    except (NotDone, OSError) as fault:
        return WorktreeFacts((Path(tree.path) / ".git").exists(), doing=f"not known: {fault}")
