"""A ralph whose commits are judged: a repository, tests in it, and a loop that does what a test says."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ralphd.git.facts import RUN_SETTING
from tests.helpers import wait_for
from tests.players import player
from tests.whole.harness import Daemon, View

TESTS = "! test -e broken"
"""The tree is red as long as there is a file ``broken``."""
ANSWER_S = 30.0


@dataclass(frozen=True, slots=True)
class Guarded:
    """The ralph ``demo`` with the gate on; ``place`` is its repository, ``scripts`` what iterations do."""

    daemon: Daemon
    place: Path
    scripts: Path

    @classmethod
    def of(cls, daemon: Daemon) -> "Guarded":
        """A repository with one commit and a green tree."""
        guarded = cls(daemon, daemon.home / "demo", daemon.root / "scripts")
        guarded.place.mkdir()
        guarded.scripts.mkdir()
        guarded.git("init", "-q", "-b", "main")
        guarded.git("config", "user.name", "Ralph")
        guarded.git("config", "user.email", "ralph@example.invalid")
        guarded.commit("first")
        return guarded

    def git(self, *words: str) -> str:
        """What git prints."""
        done = subprocess.run(
            ["git", *words],
            cwd=self.place,
            env=self.daemon.environment | {"GIT_CONFIG_NOSYSTEM": "1"},
            capture_output=True,
            text=True,
            check=True,
            timeout=ANSWER_S,
        )
        return done.stdout.strip()

    def commit(self, name: str, *, as_run: bool = False) -> str:
        """Commit a file of this name, ``as_run`` with the mark of a run; the sha."""
        (self.place / name).write_text(f"{name}\n")
        self.git("add", "--", name)
        mark = ("-c", RUN_SETTING.strip("'")) if as_run else ()
        self.git(*mark, "commit", "-q", "-m", name)
        return self.git("rev-parse", "HEAD")

    def register(
        self,
        *more: str,
        tests: str = TESTS,
        start: bool = True,
        route: str = "/v1/ralphs",
        own_loop: dict[str, str] | None = None,
        **settings: object,
    ) -> View:
        """Register it, its player with these arguments; in the names of ``settings`` is ``__`` a dot.

        With ``own_loop``, an environment, it has the built-in loop instead.
        """
        flags: dict[str, object] = {
            "regent.rollback_on_test_failure": True,
            "regent.test_command": tests,
            "regent.retry_backoff_seconds": 0.05,
            "regent.test_retries": 0,
            "ralph.iteration_pause_seconds": 0,
        }
        flags |= {key.replace("__", "."): value for key, value in settings.items()}
        home = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.daemon.home)}
        home["TMPDIR"] = str(self.scripts)  # a run may write it at each level of the sandbox
        return dict(
            self.daemon.ask(
                "POST",
                route,
                {
                    "directory": str(self.place),
                    **({} if own_loop else {"command": list(player("iterator", self.scripts, *more))}),
                    "name": "demo",
                    "flags": flags,
                    "environment": home | (own_loop or {}),
                    "start": start,
                },
            )
        )

    def does(self, number: int, *commits: str, script: str = "", ends: str = "") -> None:
        """Have iteration ``number`` commit files of these names, after ``script`` and before ``ends``."""
        made = "".join(
            f"echo {name} >{name} && git add {name} && git commit -q -m {name}\n" for name in commits
        )
        new = self.scripts / "new"
        new.write_text(f"cd '{self.place}' || exit 1\n{script}\n{made}{ends}\n")
        new.rename(self.scripts / str(number))

    def told(self, count: int = 1) -> View:
        """The answer that the loop got at its boundary, the ``count``-th of all."""

        def answers() -> list[str]:
            path = self.scripts / "TOLD"
            lines = path.read_text().splitlines() if path.exists() else []
            return lines if len(lines) >= count else []

        lines = wait_for(answers, timeout_s=ANSWER_S, what=f"answer {count}:\n{self.daemon.words()[-3000:]}")
        return dict(json.loads(lines[count - 1]))

    def verdict(self, count: int = 1) -> View:
        """What the loop was told of its commits."""
        return dict(self.told(count)["verdict"])

    def ends(self, code: int) -> None:
        """Have the loop end before its next iteration."""
        new = self.scripts / "new"
        new.write_text(str(code))
        new.rename(self.scripts / "END")

    def subjects(self) -> list[str]:
        """The subjects of all commits of HEAD, newest first."""
        return self.git("log", "--format=%s").splitlines()

    def subject(self, revision: str) -> str:
        """The subject of one commit."""
        return self.git("log", "-1", "--format=%s", revision)

    def judged(self, count: int) -> list[View]:
        """The verdicts of the record, once there are so many."""
        path = self.daemon.files("demo") / "history.jsonl"

        def entries() -> list[View]:
            found = self.daemon.history("demo", "verdict") if path.exists() else []
            return found if len(found) >= count else []

        return wait_for(entries, timeout_s=ANSWER_S, what=f"verdict {count}:\n{self.daemon.words()[-3000:]}")

    def said(self) -> list[str]:
        """The Regent's own lines about the guard."""
        kinds = ("commit.kept", "commit.reverted", "guard.blocked", "tests.failed", "tests.passed")
        told = [event["data"].get("message") for event in self.daemon.events() if event["type"] in kinds]
        return [str(line) for line in told if line]

    def runs_of_tests(self) -> int:
        """How often the tests were run."""
        return len(list((self.daemon.files("demo") / "tests").glob("r*")))
