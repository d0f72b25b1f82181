"""A scene for the landing queue: eight ralphs, a person, a remote with failures, a daemon that is killed.

All decisions come from the seed; the timing does not. ``landing_proof.py`` checks what became of it.
"""

import http.client
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.helpers import is_alive, wait_for
from tests.players import agents
from tests.whole.harness import Daemon, Reply, View

PLAIN, LOOPS = 6, 2
SETTLE_S, PATIENCE_S, GIT_S = 150.0, 40.0, 30.0
FAILPOINTS = (
    *("write.queue.json.before_rename", "write.queue.json.after_rename", "events.before_commit"),
    *("landing.merging.ordered", "landing.merging.done", "landing.testing.ordered", "landing.testing.done"),
    *("landing.baseline.ordered", "landing.baseline.done", "landing.moving.ordered", "landing.moved"),
    *("landing.moving.done", "landing.told", "gate.tests_run", "spawn.after_intent", "spawn.after_popen"),
    *("guard.move.begun", "guard.move.tree", "guard.move.branch", "account.state_saved"),
)
KINDS = (
    *("green", "conflict", "red", "flaky", "together", "conflict", "together", "ticks", "ticks", "weakened"),
    *("protected", "deleted", "amended", "rebased"),
)
"""What the branches are. ``together``: two that are red only together."""
TOML = """[regent]
test_command = "sh tests/run"
test_retries = 1
protect = ["guarded/*"]
[landing]
mode = "auto"
"""
TESTS = """
test -n "$PROOF" || echo run >> "{ledger}/runs"
red=0
for file in broken-*; do test -e "$file" && echo "$file is broken" && red=1; done
for file in pair-*-left; do test -e "${{file%left}}right" && echo "$file and right" && red=1; done
for file in tests/check-*.sh; do sh "$file" || red=1; done
test -z "$PROOF" || exit $red
commit=$(git rev-parse HEAD)
for file in flaky-*; do
  test -e "$file" || continue
  mkdir -p "{ledger}/$file"
  test -e "{ledger}/$file/$commit" -o "$(ls "{ledger}/$file" | wc -l)" -ge 2 && continue
  : > "{ledger}/$file/$commit"; echo "$file fails the first time"; red=1
done
exit $red
"""
HOOK = """#!/bin/sh
cat > /dev/null
! test -e "{refuse}" || {{ echo "refused for a while" >&2; exit 1; }}
"""
RECEIVED = """#!/bin/sh
while read -r old new ref; do echo "$old $new $ref ${{WHO:-ralphd}}" >> "{log}"; done
"""
BUSY = (".lock", "cannot lock ref", "another git", "would be overwritten", "Unable to write index")
"""What git prints while another git works, or a move that a kill cut off is not rolled back yet."""
FIRST_WORK = """
echo '{name}' > work/{name}; {mischief}
sed -i 's/\\[ \\]/[x]/' plans/{name}.md
git add -A; git commit -qm '{name}: work'
"""
REPAIR = """
git fetch -q origin 2>/dev/null
for target in main ralph/landed origin/main; do
  git rev-parse -q --verify "$target" >/dev/null || continue
  git merge -q --no-edit "$target" || {{ git checkout -q --ours . ; git add -A; git commit -q --no-edit; }}
done
git rm -q --ignore-unmatch 'broken-{name}'
date +%s%N >> work/{name}; git add -A; git commit -qm '{name}: repaired'
"""


@dataclass(slots=True)
class Branch:
    """A branch that is to land. ``heads`` are the commits that were queued, the last one last.

    ``file`` is a file that it adds, ``task`` the one that it ticks.
    """

    name: str
    ralph: str
    kind: str
    file: str = ""
    task: str = ""
    heads: list[str] = field(default_factory=list)
    is_deleted: bool = False
    is_asked: bool = False


@dataclass(frozen=True, slots=True)
class Pace:
    """How much happens: branches of the plain ralphs, the time for all, and between two kills."""

    branches: int
    play_s: float
    kill_s: float


class Scene:
    """One repository with everybody who works in it. ``faults`` are violations that were seen in passing."""

    def __init__(self, daemon: Daemon, seed: int, pace: Pace) -> None:
        self.daemon, self.seed, self.pace = daemon, seed, pace
        self.main, self.origin = daemon.home / "project", daemon.home / "origin"
        self.bare = daemon.home / "origin.git"
        self.colleague, self.ledger = daemon.home / "colleague", daemon.root / "ledger"
        self.has_remote = bool(seed % 2)
        self.branches: list[Branch] = []
        self.loops = [f"loop{number}" for number in range(1, LOOPS + 1)]
        self.plain = [f"r{number}" for number in range(1, PLAIN + 1)]
        self.commits: list[str] = []
        self.faults: list[str] = []
        self.kills = self.absorbed = 0
        self.tips: dict[str, None] = {}
        self.pushed_log = daemon.root / "pushed"
        self._over = threading.Event()
        self._watched = threading.Event()
        self._prepare()

    # --- the place --------------------------------------------------------------------------------------

    def git(self, *words: str, at: Path | None = None, who: str = "actor") -> str:
        """Return what git prints. Raises CalledProcessError."""
        environment = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "WHO": who}
        environment |= {
            f"GIT_{role}_{what}": who for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
        }
        done = subprocess.run(
            ["git", *words],
            cwd=at or self.main,
            env=self.daemon.environment | environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=GIT_S,
        )
        return done.stdout.rstrip("\n")

    def patient(self, *words: str, at: Path | None = None, who: str = "person") -> str:
        """Do the same again while another git holds a lock or moves the branch, as a person would."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.git(*words, at=at, who=who)
            except subprocess.CalledProcessError as fault:
                is_busy = any(sign in fault.stderr for sign in BUSY)
                if not is_busy or time.monotonic() > until:
                    raise AssertionError(f"git {words} in {at}: {fault.stderr}{fault.stdout}") from fault
                if "Automatic merge failed" in fault.stdout:  # another git had the index at its end
                    with suppress(subprocess.CalledProcessError):
                        self.git("merge", "--abort", at=at, who=who)
                time.sleep(0.05)

    def _prepare(self) -> None:
        self.ledger.mkdir()
        self.main.mkdir()
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "owner")
        self.git("config", "user.email", "owner@example.invalid")
        self._write_first_files()
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "first")
        if self.has_remote:
            self._make_remote()
        hook = self.main / ".git" / "hooks" / "pre-commit"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\n")
        hook.chmod(0o755)
        self.own = {path: path.read_bytes() for path in (hook, self.main / ".git" / "config")}
        for name in (*self.plain, *self.loops):
            self.git("worktree", "add", "-q", "-b", f"ralph/{name}", str(self.place(name)), "main")

    def _write_first_files(self) -> None:
        files = {
            "ralph.toml": TOML, "tests/run": TESTS.format(ledger=self.ledger), "shared": "first\n",
            "notes": "notes\n", "PROMPT.md": "Do the next task.\n", ".gitignore": ".ralph/\n",
            "guarded/rules": "rules\n", "work/first": "first\n",
            "TASKS.md": "".join(f"- [ ] task {number}\n" for number in range(60)),
        }  # fmt: skip
        files |= {f"tests/check-{n}.sh": "test -e work/first\n" for n in range(5)}
        files |= {f"plans/{name}.md": f"- [ ] {name}\n" for name in self.loops}
        for name, text in files.items():
            (self.main / name).parent.mkdir(exist_ok=True)
            (self.main / name).write_text(text)

    def _make_remote(self) -> None:
        self.git("init", "-q", "--bare", "-b", "main", str(self.bare))
        self.origin.symlink_to(self.bare)  # a rename of the directory would keep git from removing its locks
        self.git("remote", "add", "origin", str(self.origin))
        self.git("push", "-q", "-u", "origin", "main")
        self.git("clone", "-q", str(self.origin), str(self.colleague))
        for name, text in (("pre-receive", HOOK), ("post-receive", RECEIVED)):
            hook = self.origin / "hooks" / name
            hook.parent.mkdir(exist_ok=True)
            hook.write_text(text.format(log=self.pushed_log, refuse=self.daemon.root / "refuse"))
            hook.chmod(0o755)

    def place(self, name: str) -> Path:
        return self.daemon.home / name

    # --- the daemon -------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: View | None = None) -> Reply:
        """Ask until some daemon answers."""
        until = time.monotonic() + PATIENCE_S
        while True:
            with suppress(OSError, http.client.HTTPException, ValueError):
                return self.daemon.api(method, path, body)
            assert time.monotonic() < until, f"no answer to {method} {path}: {self.daemon.words()[-2000:]}"
            time.sleep(0.03)

    def queue(self) -> View:
        queues = self.ask("GET", "/v1/landing").body["queues"]
        return dict(queues[0]) if queues else {"candidates": [], "batch": None, "blocked": None}

    def _register(self, rng: random.Random) -> None:
        bin_directory = agents.install(self.daemon.root / "bin", ["claude"])
        for name in self.plain:
            body = {"directory": str(self.place(name)), "name": name, "command": ["true"], "start": False}
            self._registered(body | {"environment": {"PATH": os.environ["PATH"]}})
        for name in self.loops:
            script = self.daemon.root / f"{name}.json"
            mischief = rng.choice((f": > broken-{name}", f"echo {name} > shared", ":"))
            first = FIRST_WORK.format(name=name, mischief=mischief)
            steps = [{"do": "claim", "runs": first, "says": "done"}]
            repair = {"do": "claim", "runs": REPAIR.format(name=name), "says": "repaired"}
            agents.write_script(script, steps, otherwise=repair)
            flags = {"ralph.tasks": f"plans/{name}.md"}
            body = {"directory": str(self.place(name)), "name": name, "start": True, "flags": flags}
            self._registered(body | {"environment": agents.environment(bin_directory, script)})
            self.branches.append(Branch(f"ralph/{name}", name, "loop", is_asked=True))

    def _registered(self, body: dict[str, Any]) -> None:
        body["environment"]["HOME"] = str(self.daemon.home)
        reply = self.ask("POST", "/v1/ralphs", body)
        assert reply.status in (200, 201, 202, 409), reply

    def _kill(self, rng: random.Random) -> None:
        """Kill the daemon at random times, or where a failpoint is, and start it again."""
        while not self._over.is_set():
            if rng.random() < 0.8:
                self._wait_until_up()
            until = time.monotonic() + rng.uniform(0.3, 1.7) * self.pace.kill_s
            while is_alive(self.daemon.pid) and time.monotonic() < until and not self._over.wait(0.02):
                pass
            self.daemon.kill()
            self.kills += 1
            points = [rng.choice(FAILPOINTS)] if rng.random() < 0.6 else []
            self.daemon.start(failpoints=points, wait=False)
        self.daemon.kill()
        self.daemon.start()

    def _wait_until_up(self) -> None:
        while is_alive(self.daemon.pid) and not self._over.is_set():
            with suppress(OSError, http.client.HTTPException):
                if self.daemon.api("GET", "/v1/ready").status == 200:
                    return
            self._over.wait(0.03)

    # --- the ralphs -------------------------------------------------------------------------------------

    def _work(self, rng: random.Random) -> None:
        """Make one branch after the other in the worktrees of the plain ralphs, and have it land."""
        kinds = [KINDS[number % len(KINDS)] for number in range(self.pace.branches - 1)]
        rng.shuffle(kinds)
        for number, kind in enumerate([*kinds, "done"]):
            name = self.plain[-1] if kind == "done" else rng.choice(self.plain[:-1])
            self._branch(rng, number, kind, name)
            if rng.random() < 0.1:
                loop = rng.choice(self.loops)
                self.ask("POST", f"/v1/ralphs/{loop}/tasks", {"text": f"more work {number}"})
                self.ask("POST", f"/v1/ralphs/{loop}/start")
            self._over.wait(rng.uniform(0, 1.2) * self.pace.play_s / self.pace.branches)

    def _branch(self, rng: random.Random, number: int, kind: str, name: str) -> None:
        branch = Branch(f"ralph/{name}-{number}", name, kind, file=f"work/{number}")
        place = self.place(name)
        self._begin(branch.name, place, name)
        for path, text in self._changes(rng, number, branch).items():
            (place / path).write_text(text)
        self.patient("add", "-A", at=place, who=name)
        self.patient("commit", "-q", "-m", f"{branch.name}: {kind}", at=place, who=name)
        branch.heads.append(self.git("rev-parse", "HEAD", at=place))
        self.branches.append(branch)
        if kind == "done":
            assert self.ask("POST", f"/v1/ralphs/{name}/start").status < 300
            branch.is_asked = True
            return
        self.land(branch)
        if kind in ("deleted", "amended", "rebased"):
            self._over.wait(rng.uniform(0, 0.5))
            self._change_queued(rng, branch, place)

    def _begin(self, branch: str, place: Path, who: str) -> None:
        """Switch to a new branch, from a sha: git reads a name twice, for the files and for the branch."""
        self.patient("switch", "-q", "-c", branch, self.git("rev-parse", "main"), at=place, who=who)

    def _changes(self, rng: random.Random, number: int, branch: Branch) -> dict[str, str]:
        kind, files = branch.kind, {branch.file: f"{number} {branch.kind}\n"}
        seen = sum(each.kind == kind for each in self.branches)
        match kind:
            case "red":
                files[f"broken-{number}"] = "broken\n"
            case "conflict":
                files["shared"] = f"{number}\n"
            case "flaky":
                files[f"flaky-{number}"] = "flaky\n"
            case "weakened":
                files[f"tests/check-{rng.randrange(5)}.sh"] = ""
            case "together":
                files[f"pair-{seen // 2}-{('left', 'right')[seen % 2]}"] = "half\n"
            case "ticks":
                branch.task, text = f"task {seen}", self.git("show", "main:TASKS.md") + "\n"
                files["TASKS.md"] = text.replace(f"[ ] {branch.task}\n", f"[x] {branch.task}\n")
            case "protected" | "done" if kind == "protected" or self.seed % 3:
                path = rng.choice(("ralph.toml", "guarded/rules", "PROMPT.md"))
                files[path] = self.git("show", f"main:{path}") + f"\n# {number}\n"
        return files

    def _change_queued(self, rng: random.Random, branch: Branch, place: Path) -> None:
        if branch.kind == "deleted":
            if branch.is_asked:
                self.patient("switch", "-q", "--detach", at=place, who=branch.ralph)
                self.patient("branch", "-q", "-D", branch.name, who=branch.ralph)
                branch.is_deleted = True
            return
        if branch.kind == "amended":
            with (place / branch.file).open("a") as file:
                file.write("amended\n")
            self.patient("commit", "-q", "-a", "--amend", "-m", "amended", at=place, who=branch.ralph)
        else:
            self.patient("rebase", "-q", "main", at=place, who=branch.ralph)
        if rng.random() < 0.6:
            branch.heads.append(self.git("rev-parse", "HEAD", at=place))
            self.land(branch)

    def land(self, branch: Branch) -> None:
        """Type ``land``; where it cannot be now, the same words are typed again at the end."""
        head = self.git("rev-parse", branch.name)
        reply = self.ask("POST", "/v1/landing", {"ralph": branch.ralph, "branch": branch.name})
        branch.is_asked = reply.status == 202 or "has all of" in str(reply.body)
        if branch.is_asked and head not in branch.heads:
            branch.heads.append(head)

    # --- the person -------------------------------------------------------------------------------------

    def _live(self, rng: random.Random) -> None:
        """Work in the main checkout: commit, edit, switch, pull and push."""
        acts: list[Callable[[random.Random, int], None]] = [self._commit, self._edit, self._edit, self._visit]
        acts += [self._exchange, self._colleague_pushes] if self.has_remote else []
        number = 0
        while not self._over.wait(rng.uniform(0.1, 0.6)):
            number += 1
            if self._is_clean(""):
                rng.choice(acts)(rng, number)

    def status(self) -> str:
        return self.git("status", "--porcelain", "-uall", who="person")

    def _is_clean(self, expected: str, what: str = "at rest") -> bool:
        """Whether the checkout has exactly these changes, once an act that was cut off is rolled back."""
        until = time.monotonic() + PATIENCE_S
        while (now := self.status()) != expected:
            if time.monotonic() > until:
                self.faults.append(f"checkout: {what} it is {now!r}, not {expected!r}")
                self._over.set()
                return False
            time.sleep(0.05)
        return True

    def _commit(self, rng: random.Random, number: int, name: str = "person") -> None:
        path = self.main / name / str(number)
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{number}\n")
        self.patient("add", f"{name}/{number}")
        self._commit_staged(f"{name} {number}", 1)

    def _commit_staged(self, message: str, files: int) -> None:
        self.patient("commit", "-q", "-m", message)
        sha = self.git("log", "-1", "--format=%H", "--author=person", "--grep", f"^{message}$", "HEAD")
        self.commits.append(sha)
        names = self.git("diff-tree", "--no-commit-id", "--name-only", "-r", sha).splitlines()
        self.absorbed += len(names) != files  # the index of a move that a kill cut off

    def _edit(self, rng: random.Random, number: int) -> None:
        """Have uncommitted changes for a while: they stay as they are, in the file and in the index."""
        kind = rng.choice(("changed", "staged", "both", "untracked", "added", "shared"))
        name = {"untracked": f"scratch-{number}", "added": f"added-{number}", "shared": "shared"}.get(
            kind, "notes"
        )
        path, text, staged = self.main / name, f"{kind} {number}\n", None
        if kind in ("staged", "both", "added"):
            staged = text
            path.write_text(text)
            self.patient("add", name)
        if kind != "staged" and kind != "added":
            text += "more\n"
            path.write_text(text)
        head = self._head_of_dirty(rng) if kind != "untracked" else ""
        codes = {
            "changed": " M",
            "staged": "M ",
            "both": "MM",
            "untracked": "??",
            "added": "A ",
            "shared": " M",
        }
        self._over.wait(rng.uniform(0.2, 1.5))
        if head and self.git("rev-parse", "HEAD") != head:
            self.faults.append(f"checkout: it was moved from {head} though it had {kind} edits")
        if not self._is_clean(f"{codes[kind]} {name}", f"with {kind} edits"):
            return
        if path.read_text() != text or (staged and self.git("show", f":{name}") != staged.rstrip("\n")):
            self.faults.append(
                f"checkout: the {kind} edit of {name} was changed: {path.read_text()!r}, not {text!r}"
            )
        if kind == "untracked":
            path.unlink()
        elif kind == "shared" or (kind != "added" and rng.random() < 0.5):
            self.patient("restore", "--staged", "--worktree", name)
        else:
            self.patient("add", name)
            self._commit_staged(f"edit {number}", 1)

    def _head_of_dirty(self, rng: random.Random) -> str:
        """Return HEAD once a move that began before the edit has ended; empty where nobody waits for that."""
        if rng.random() < 0.7:
            return ""
        self._over.wait(2)
        return self.git("rev-parse", "HEAD")

    def _visit(self, rng: random.Random, number: int) -> None:
        """Work on a branch of one's own, and merge it."""
        topic = f"person/topic-{number}"
        self.patient("switch", "-q", "-c", topic)
        self._commit(rng, number, "topic")
        self._over.wait(rng.uniform(0, 0.8))
        if self._is_clean("", f"on {topic}"):
            self.patient("switch", "-q", "main")
            self.patient("merge", "-q", "--no-edit", topic)

    def _exchange(self, rng: random.Random, number: int) -> None:
        """Pull and push. The remote may be away, or refuse, or have moved."""
        with suppress(subprocess.CalledProcessError):
            self.git("pull", "-q", "--no-rebase", "--no-edit", "origin", "main", who="person")
            self.git("push", "-q", "origin", "main", who="person")

    def _colleague_pushes(self, rng: random.Random, number: int) -> None:
        with suppress(subprocess.CalledProcessError):
            self.git("fetch", "-q", at=self.colleague)
            self.git("reset", "-q", "--hard", "origin/main", at=self.colleague)
            (self.colleague / f"colleague-{number}").write_text("here\n")
            self.git("add", "-A", at=self.colleague, who="person")
            self.git("commit", "-q", "-m", f"colleague {number}", at=self.colleague, who="person")
            self.git("push", "-q", "origin", "main", at=self.colleague, who="person")
            self.commits.append(self.git("rev-parse", "HEAD", at=self.colleague))

    # --- the weather ------------------------------------------------------------------------------------

    def _trouble_remote(self, rng: random.Random) -> None:
        """Have the remote be away, or refuse what is pushed, for a while."""
        refuse = self.daemon.root / "refuse"
        while self.has_remote and not self._over.wait(rng.uniform(0.5, 3)):
            if rng.random() < 0.5:
                self.origin.unlink()
                self._over.wait(rng.uniform(0.2, 1.5))
                self.origin.symlink_to(self.bare)
            else:
                refuse.touch()
                self._over.wait(rng.uniform(0.2, 1.5))
                refuse.unlink()

    def _watch_landed(self) -> None:
        """Note each commit that ``ralph/landed`` had: its reflog goes with it."""
        log = self.main / ".git/logs/refs/heads/ralph/landed"
        while not self._watched.wait(0.01):
            self.note_tips(log)

    def note_tips(self, log: Path) -> None:
        """Note the commits of a reflog that nobody but ralphd made."""
        with suppress(OSError):
            for line in log.read_text().splitlines():
                who, _, _ = line.partition("\t")
                if " owner <" in who and "0" * 40 not in who.split()[1]:
                    self.tips[who.split()[1]] = None

    # --- the play ---------------------------------------------------------------------------------------

    def play(self) -> None:
        """Have everybody work at the same time, then wait until the queue has nothing to do."""
        self.daemon.start()
        self._register(random.Random(f"{self.seed} register"))
        ends_at = time.monotonic() + self.pace.play_s
        watch = threading.Thread(target=self._watch_landed)
        watch.start()
        roles = (self._kill, self._work, self._live, self._trouble_remote)
        threads = {role.__name__: threading.Thread(target=self._as, args=(role,)) for role in roles}
        try:
            for thread in threads.values():
                thread.start()
            threads["_work"].join(self.pace.play_s * 4)
            self._over.wait(max(0.0, ends_at - time.monotonic()))
        finally:
            self._over.set()
            for thread in threads.values():
                thread.join(PATIENCE_S * 3)
        try:
            if not self.faults:
                self._settle()
        finally:
            self._watched.set()
            watch.join()

    def _as(self, role: Callable[[random.Random], None]) -> None:
        try:
            role(random.Random(f"{self.seed} {role.__name__}"))
        except Exception as fault:
            self.faults.append(f"{role.__name__}: {fault!r}")
            self._over.set()

    def _settle(self) -> None:
        """Type the words again that could not be answered, and wait for the last end."""
        for branch in self.branches:
            if not branch.is_asked:
                self.land(branch)
        self._is_clean("", "at the end")
        last = Branch("ralph/r1-last", "r1", "green", is_asked=True)
        self._begin(last.name, self.place("r1"), "r1")
        self.patient("commit", "-q", "--allow-empty", "-m", "last", at=self.place("r1"), who="r1")
        last.heads.append(self.git("rev-parse", last.name))
        self.branches.append(last)
        self.land(last)
        wait_for(
            self._is_settled,
            timeout_s=SETTLE_S,
            what=f"a rest: {self.queue()}\n{self.daemon.words()[-4000:]}",
        )
        self._take_what_landed()

    def _is_settled(self) -> bool:
        queue = self.queue()
        if queue["batch"] or any(each["state"] == "queued" for each in queue["candidates"]):
            return False
        known = {each["branch"]: each for each in reversed(queue["candidates"])}
        views = {view["name"]: view["state"] for view in self.ask("GET", "/v1/status").body["ralphs"]}
        for each in (branch for branch in self.branches if branch.kind in ("loop", "done")):
            if each.name not in known or views[each.ralph] != "done":
                return False
            head = self.git("rev-parse", each.name)
            newest = max(
                (c for c in queue["candidates"] if c["branch"] == each.name), key=lambda c: c["number"]
            )
            if not head.startswith(newest["head"]) or newest["state"] == "queued":
                return False
            each.heads = [head]
        ends = {
            each["data"]["number"]
            for each in self.daemon.events()
            if each["type"] in ("landing.landed", "landing.refused")
        }
        return all(
            each["number"] in ends for each in queue["candidates"] if each["state"] in ("landed", "refused")
        )

    def _take_what_landed(self) -> None:
        """Bring the local and the remote branch together, as the documentation says."""
        landed = self.main / ".git/refs/heads/ralph/landed"
        with suppress(AssertionError):
            wait_for(lambda: not landed.exists(), timeout_s=8)
        if landed.exists():
            self.patient("merge", "-q", "--no-edit", "ralph/landed")
        if self.has_remote:
            self.patient("pull", "-q", "--no-rebase", "--no-edit", "origin", "main")
            self.patient("push", "-q", "origin", "main")
