"""What has to hold after any scene of ``fleet_stage.py``: each broken rule as a line for people.

All of it is read from the repositories: the reflogs of the remotes have each push in its order.
"""

import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ralphd.core.fleet.model import Lease
from ralphd.git.fence.lease_ref import decode_lease
from tests.whole.fleet_stage import FleetScene

RULES = ("lost", "stale", "shared", "unaccounted", "fsck", "left", "open", "held", "bug")
NO_COMMIT, ROOT = "0" * 40, Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Figures:
    """The result of a scene. ``places``: where commits of agents were found."""

    seed: int
    machines: int
    items: int
    pushes: int
    moves: int
    holdings: int
    takeovers: int
    files: int
    places: Counter[str]
    troubles: Counter[str]
    faults: tuple[str, ...]

    def __str__(self) -> str:
        names = [name for name in self.__slots__ if name not in ("faults", "places", "troubles")]
        words = [f"{name} {getattr(self, name)}" for name in names]
        words += [f"commits {sum(self.places.values())} ({_counts(self.places)})", _counts(self.troubles)]
        counts = {what: sum(fault.startswith(what) for fault in self.faults) for what in RULES}
        return f"fleet torture: {', '.join(words)}; " + ", ".join(f"{what} {n}" for what, n in counts.items())


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{what} {n}" for what, n in sorted(counter.items()))


class Proof:
    """Reads the repositories after a scene, when its daemons have ended or not."""

    def __init__(self, scene: FleetScene) -> None:
        self.scene, self.places = scene, Counter[str]()
        self.pushes = self.moves = self.holdings = self.takeovers = self.files = 0

    def figures(self) -> Figures:
        """Return the figures, with all faults."""
        scene, faults = self.scene, [*self._bugs()]
        for bare in scene.bares:
            for ref in scene.git("for-each-ref", "--format=%(refname)", "refs/ralph/lease", at=bare).split():
                faults += self._branch(bare, ref.removeprefix("refs/ralph/lease/"))
        faults += [*self._unaccounted(), *self._fsck()]
        faults += [f"held: {each}" for each in scene.held]
        items = {each: scene.views().get(each, {}) for each in scene.items}
        faults += [f"open: {each}: {view}" for each, view in items.items() if view.get("state") != "done"]
        return Figures(
            scene.seed, len(scene.machines), len(scene.items), self.pushes, self.moves, self.holdings,
            self.takeovers, self.files, self.places, scene.faults, tuple(faults),
        )  # fmt: skip

    def _branch(self, bare: Path, branch: str) -> Iterator[str]:
        """Check each push to one branch against the leases at that time."""
        moves = _log(bare / "logs/refs/ralph/lease" / branch)
        leases = [decode_lease(self.scene.git("cat-file", "blob", new, at=bare).encode()) for _, new in moves]
        steps, tip = _log(bare / "logs/refs/heads" / branch), f"refs/heads/{branch}"
        history = set(self.scene.git("rev-list", tip, at=bare).split()) if steps else set()
        before: Lease | None = None
        owners: dict[int, str] = {}
        pushed: list[str] = []
        for lease in leases:
            if lease is None:
                yield f"stale: {branch} has a lease that cannot be read"
                continue
            yield from _turn(branch, before, lease)
            if lease.host and owners.setdefault(lease.token, lease.host) != lease.host:
                yield f"shared: token {lease.token} of {branch}: {owners[lease.token]}, {lease.host}"
            if lease.pushed and lease.pushed not in history:
                yield f"lost: {lease.pushed} was acknowledged to {lease.host}, but is not in {branch}"
            is_claim = before is None or before.token != lease.token
            if lease.pushed and not is_claim and before is not None and before.pushed != lease.pushed:
                pushed.append(lease.pushed)
            self.takeovers += is_claim and before is not None and before.host not in ("", lease.host)
            before = lease
        if [new for _, new in steps] != pushed:
            yield f"stale: {branch} moved {steps}, but its leases say {pushed}"
        for old, new in steps:
            if old != NO_COMMIT and old not in self.scene.git("rev-list", new, at=bare).split():
                yield f"lost: {branch} was moved back from {old} to {new}"
        self.pushes, self.moves = self.pushes + len(steps), self.moves + len(moves)
        self.holdings += len(owners)

    def _unaccounted(self) -> Iterator[str]:
        """Check that each commit of an agent is on its branch, aside on a remote, or in a clone."""
        scene = self.scene
        known: dict[str, str] = {}
        for machine in scene.machines:
            for clone in _clones(machine.work):
                known |= dict.fromkeys(scene.git("rev-list", "--all", at=clone).split(), "in a clone")
        for bare in scene.bares:
            for place, refs in (("left", "refs/ralph/left/*"), ("stale", "refs/ralph/stale/*")):
                known |= dict.fromkeys(scene.git("rev-list", f"--glob={refs}", at=bare).split(), place)
            known |= dict.fromkeys(scene.git("rev-list", "--branches", at=bare).split(), "on the branch")
        for line in scene.ledger.read_text().splitlines():
            branch, commit = line.split()
            self.places[known.get(commit, "nowhere")] += 1
            if commit not in known:
                yield f"unaccounted: {commit} of {branch} is nowhere"
        yield from self._unaccounted_files()

    def _unaccounted_files(self) -> Iterator[str]:
        """Check that each file that was never committed is in a worktree, or in a commit made of it."""
        scene, ledger = self.scene, self.scene.ledger.with_suffix(".files")
        wanted = set(ledger.read_text().split()) if ledger.exists() else set[str]()
        self.files = len(wanted)
        left = [str(path) for path in scene.root.rglob("scratch-*") if path.is_file()]
        if left:
            wanted -= set(scene.git("hash-object", *left).split())
        clones = [clone for machine in scene.machines for clone in _clones(machine.work)]
        for directory in (*scene.bares, *clones):
            lines = scene.git("rev-list", "--objects", "--all", at=directory).splitlines()
            wanted -= {line.partition(" ")[0] for line in lines}
        yield from (f"unaccounted: the uncommitted file {sha} is nowhere" for sha in sorted(wanted))

    def _fsck(self) -> Iterator[str]:
        clones = [clone for machine in self.scene.machines for clone in _clones(machine.work)]
        for directory in (*self.scene.bares, *clones):
            words = ["git", "-C", str(directory), "fsck", "--full", "--no-dangling"]
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
            if done.returncode:
                yield f"fsck: {directory}: {done.stderr}{done.stdout}"
        for bare in self.scene.bares:
            yield from (f"left: {lock}" for lock in bare.rglob("*.lock"))

    def _bugs(self) -> Iterator[str]:
        """Find tracebacks of ours; nats-py leaves some of its own in the log when a connection breaks."""
        for machine in self.scene.machines:
            for text in machine.daemon.words().split("Traceback (most recent call last):")[1:]:
                trace = text.partition("Z INFO")[0][:2000]
                if f"{ROOT}/ralphd/" in trace:
                    yield f"bug: {machine.name}: {trace}"


def _turn(branch: str, before: Lease | None, lease: Lease) -> Iterator[str]:
    """Check that a lease follows from the one before it: only a claim changes the host, with a new token."""
    if before is None:
        return
    old, new = (f"{each.token} of {each.host or 'nobody'}" for each in (before, lease))
    what = f"{branch}: {old}, then {new}"
    is_same = lease.token == before.token
    if lease.token < before.token or (is_same and lease.host not in ("", before.host)):
        yield f"stale: {what}"
    if not is_same and lease.pushed != before.pushed:
        yield f"lost: {what}: the claim is at {lease.pushed}, not {before.pushed}"


def _clones(work: Path) -> list[Path]:
    return [path for path in (work / "clones").glob("*") if (path / ".git").exists()]


def _log(path: Path) -> list[tuple[str, str]]:
    """Return each move of a ref: from, to."""
    if not path.exists():
        return []
    return [(words[0], words[1]) for line in path.read_text().splitlines() if (words := line.split(" "))]
