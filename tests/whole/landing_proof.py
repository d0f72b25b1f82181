"""What has to hold after any scene of ``landing_stage.py`` (M8): each broken rule as a line for people."""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.whole.landing_stage import Branch, Scene

OWN_WORKTREES = 1
"""That of the queue, beside the person's checkout and one for each ralph."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The result of a scene. ``refused``: with a task that is not done; ``tasks``: that loops were given.

    ``absorbed``: a person's commits that have the files of a move that a kill cut off.
    """

    seed: int
    remote: bool
    branches: int
    landed: int
    refused: int
    tasks: int
    alerted: int
    waiting: int
    kills: int
    tips: int
    test_runs: int
    persons_commits: int
    absorbed: int
    faults: tuple[str, ...]

    def __str__(self) -> str:
        names = [name for name in self.__slots__ if name != "faults"]
        words = ", ".join(f"{name.replace('_', ' ')} {getattr(self, name)}" for name in names)
        counts = {what: sum(fault.startswith(what) for fault in self.faults) for what in RULES}
        return f"landing torture: {words}, " + ", ".join(f"{what} {n}" for what, n in counts.items())


MERGE = re.compile(r" Merge branch 'ralph/[^']+'$")
"""The subject of a merge of the queue's; git itself adds where it merged into."""
RULES = ("red", "lost", "twice", "checkout", "unaccounted", "left")


class Proof:
    """Reads the repositories and the daemon's answers after a scene."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.daemon = scene, scene.daemon
        self.candidates = scene.queue()["candidates"]
        self.events = self.daemon.events()
        self.ends = {"landed": 0, "task": 0, "alerted": 0, "waiting": 0}

    def figures(self) -> Figures:
        """Return the figures, with all faults. Ends the daemon."""
        scene = self.scene
        tips = self._tips()
        faults = [*scene.faults, *self._red(tips), *self._lost(), *self._twice(), *self._checkout()]
        faults += [*self._unaccounted(), *self._left()]
        runs = (scene.ledger / "runs").read_text().splitlines()
        return Figures(
            scene.seed, scene.has_remote, len(scene.branches), self.ends["landed"], self.ends["task"],
            sum(each["state"] == "refused" and each["ralph"] in scene.loops for each in self.candidates),
            self.ends["alerted"], self.ends["waiting"], scene.kills, len(tips), len(runs),
            len(scene.commits), scene.absorbed, tuple(faults),
        )  # fmt: skip

    def _tips(self) -> list[str]:
        """Return each commit that the target got from ralphd."""
        scene = self.scene
        if scene.has_remote:
            lines = [line.split() for line in scene.pushed_log.read_text().splitlines()]
            return [new for _, new, ref, who in lines if (ref, who) == ("refs/heads/main", "ralphd")]
        for name in ("main", "ralph/landed"):
            scene.note_tips(scene.main / ".git/logs/refs/heads" / name)
        return list(scene.tips)

    def _red(self, tips: list[str]) -> Iterator[str]:
        clone = self.daemon.root / "proof"
        self.scene.git("clone", "-q", "--shared", "--no-checkout", str(self.scene.main), str(clone))
        for tip in tips:
            self.scene.git("checkout", "-q", "--detach", tip, at=clone)
            environment = {"PATH": os.environ["PATH"], "PROOF": "1"}
            ran = subprocess.run(
                ["sh", "tests/run"], cwd=clone, env=environment, capture_output=True, text=True, check=False
            )
            if ran.returncode:
                yield f"red: {tip} was landed: {ran.stdout}{ran.stderr}"

    def _lost(self) -> Iterator[str]:
        for path, data in self.scene.own.items():
            if not path.exists() or path.read_bytes() != data:
                yield f"lost: {path} of the person's is not as it was"
        for sha in self.scene.commits:
            if not self._has(sha):
                yield f"lost: the person's {self.scene.git('log', '-1', '--oneline', sha)}"
        for branch in self.scene.branches:
            if self._has(branch.heads[-1]) and (missing := self._missing(branch)):
                yield f"lost: {branch.kind} {branch.name} landed, but main has no {missing}"
            if not branch.is_deleted and branch.kind not in ("amended", "rebased"):
                head = self.scene.git("for-each-ref", "--format=%(objectname)", f"refs/heads/{branch.name}")
                if head != branch.heads[-1]:
                    yield f"lost: {branch.name} is at {head or 'nothing'}, not {branch.heads[-1]}"

    def _missing(self, branch: Branch) -> str:
        """Return what a landed branch has and the target has not."""
        paths = self.scene.git("ls-tree", "-r", "--name-only", "main").splitlines()
        if branch.file and branch.file not in paths:
            return branch.file
        tasks = self.scene.git("show", "main:TASKS.md")
        return "" if not branch.task or f"[x] {branch.task}\n" in tasks else f"tick of {branch.task}"

    def _has(self, sha: str) -> bool:
        try:
            self.scene.git("merge-base", "--is-ancestor", sha, "main")
        except subprocess.CalledProcessError:
            return False
        return True

    def _twice(self) -> Iterator[str]:
        lines = self.scene.git("log", "--merges", "--format=%P %s", "--author=owner", "main").splitlines()
        merged = [line.split()[1] for line in lines if MERGE.search(line)]
        yield from (f"twice: {sha} was merged again" for sha in merged if merged.count(sha) > 1)

    def _checkout(self) -> Iterator[str]:
        """Check that ralphd moved HEAD of the person's checkout forward only."""
        for line in (self.scene.main / ".git/logs/HEAD").read_text().splitlines():
            who, _, what = line.partition("\t")
            old, new = who.split()[:2]
            is_forward = what.endswith(": Fast-forward") and self._is_ancestor(old, new)
            if " owner <" in who and not is_forward:
                yield f"checkout: HEAD was moved from {old} to {new}: {what}"
        if (status := self.scene.status()) != "":
            yield f"checkout: at the end it has {status!r}"

    def _is_ancestor(self, old: str, new: str) -> bool:
        return self.scene.git("merge-base", old, new) == old

    # --- each branch ------------------------------------------------------------------------------------

    def _unaccounted(self) -> Iterator[str]:
        for branch in self.scene.branches:
            if why := self._unaccounted_branch(branch):
                yield f"unaccounted: {branch.kind} {branch.name}: {why}"

    def _unaccounted_branch(self, branch: Branch) -> str:
        """Return why nobody knows what became of a branch; empty where it landed or somebody has it."""
        if self._has(branch.heads[-1]):
            self.ends["landed"] += 1
            return ""
        known = [each for each in self.candidates if each["branch"] == branch.name]
        newest = max(known, key=lambda each: int(each["number"]), default=None)
        if newest is None or not branch.heads[-1].startswith(newest["head"]):
            return f"it is not in the queue: {newest}"
        if newest["state"] == "waiting" and newest["why"]:
            self.ends["waiting"] += 1
            return ""
        if newest["state"] != "refused" or not newest["why"]:
            return f"it is {newest}"
        if self._has_task(branch, newest["number"]):
            self.ends["task"] += 1
        elif self._has_alert(branch):
            self.ends["alerted"] += 1
        else:
            return f"nobody was told: {newest}"
        return ""

    def _has_task(self, branch: Branch, number: int) -> bool:
        path = self.daemon.files(branch.ralph) / "inbox.json"
        return path.exists() and f"Landing {number}: " in path.read_text()

    def _has_alert(self, branch: Branch) -> bool:
        """Whether its ralph called a person; while that incident is open, further calls are only counted."""
        alerts = (each for each in self.events if each["type"] == "ralph.escalated")
        return any(
            each["ralph"] == branch.ralph and " does not land on " in each["data"]["message"]
            for each in alerts
        )

    # --- what is left -----------------------------------------------------------------------------------

    def _left(self) -> Iterator[str]:
        self.daemon.ask("POST", "/v1/shutdown", {"runs": "now"})
        if code := self.daemon.exit_code():
            yield f"left: the daemon ended with {code}"
        yield from (f"left: process {each}" for each in self.daemon.leftovers())
        scene = self.scene
        directories = [scene.main / ".git", *([scene.bare] if scene.has_remote else [])]
        for directory in directories:
            yield from (f"left: {path}" for path in _crumbs(directory))
            for line in self._fsck(directory):
                yield f"left: git fsck: {line}"
        listed = scene.git("worktree", "list", "--porcelain").count("worktree ")
        wanted = 1 + len(scene.plain) + len(scene.loops) + OWN_WORKTREES
        if listed != wanted:
            yield f"left: {listed} worktrees, not {wanted}"

    def _fsck(self, directory: Path) -> list[str]:
        try:
            self.scene.git("fsck", "--full", "--no-dangling", at=directory)
        except subprocess.CalledProcessError as fault:
            return [*fault.stderr.splitlines(), *fault.stdout.splitlines()]
        return []


def _crumbs(directory: Path) -> Iterator[Path]:
    """Yield locks, indexes and journals that nobody needs any more."""
    patterns = ("*.lock", "ralph-landing-index.*", "ralph-guard", "tmp-journal", "tmp_obj_*")
    for pattern in patterns:
        yield from directory.rglob(pattern)
