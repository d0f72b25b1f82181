"""Branches that wait for a person, and branches that are pushed for a pull request (M1)."""

import os
from pathlib import Path

import pytest

from tests.helpers import wait_for
from tests.template import ralphctl
from tests.whole.harness import Daemon, View
from tests.whole.person import Person, Said
from tests.whole.test_landing import LAND_S, TOML, Yard

GH = '#!/bin/sh\nprintf "%s\\n" "$PWD" "$@" > "$HOME/gh-was-asked"\necho https://example.invalid/pull/1\n'


def configured(daemon: Daemon, text: str, *, remote: bool = True) -> Yard:
    return Yard.of(daemon, remote=remote, toml=TOML + text)


def done(yard: Yard, name: str, *, branch: str = "", **files: str) -> Path:
    """A ralph whose command has nothing to do, so that it is done with what is committed now."""
    place = yard.daemon.home / name
    yard.git("worktree", "add", "-q", "-b", branch or f"ralph/{name}", str(place), "main")
    for file, text in files.items():
        yard.commit(place, file, text)
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(yard.daemon.home)}
    body = {"directory": str(place), "name": name, "command": ["true"], "environment": environment}
    yard.daemon.ask("POST", "/v1/ralphs", body)
    return place


def candidate(yard: Yard, number: int, state: str) -> View:
    """The candidate of that number, once it is in this state."""

    def reached() -> View:
        known = {each["number"]: each for each in yard.queue()["candidates"]}
        return known[number] if number in known and known[number]["state"] == state else {}

    return wait_for(reached, timeout_s=LAND_S, what=f"{number} to be {state}: {yard.queue()}")


def with_path(person: Person, path: str, *words: str) -> Said:
    """What a person types whose PATH is another one than the daemon's."""
    return ralphctl(words, person.environment | {"PATH": path}, person.daemon.home, LAND_S)


def remote_heads(yard: Yard) -> dict[str, str]:
    lines = (line.split() for line in yard.git("ls-remote", "--heads", "origin").splitlines())
    return {ref.removeprefix("refs/heads/"): sha for sha, ref in lines}


def in_worktree(yard: Yard, name: str, *words: str) -> None:
    """``ralphctl start --worktree`` with a command that commits, and waits until it is done."""
    commits = f"touch {name} && git add -A && git -c user.name=R -c user.email=r@x commit -qm {name}"
    said = Person(yard.daemon)(
        "start", str(yard.main), "--worktree", name, *words, "--", "/bin/sh", "-c", commits, timeout_s=LAND_S
    )
    assert said.returncode == 0, said
    yard.daemon.becomes(name, "done", timeout_s=LAND_S)


def test_a_worktree_waits_for_a_person_by_default(daemon: Daemon) -> None:
    yard, person = Yard.of(daemon), Person(daemon)
    daemon.start()
    in_worktree(yard, "fix")
    waiting = candidate(yard, 1, "waiting")
    assert (waiting["branch"], waiting["why"]) == ("ralph/fix", "you decide")
    assert waiting["next"] == "ralphctl land fix"
    assert "you decide; ralphctl land fix" in person("queue").stdout
    assert not (yard.main / "fix").exists()
    assert person("land", "fix").returncode == 0
    assert yard.ended(2)[2]["state"] == "landed"
    assert (yard.main / "fix").exists()


def test_an_explicit_off_stays_off(daemon: Daemon) -> None:
    yard = configured(daemon, '[landing]\nmode = "off"\n', remote=False)
    daemon.start()
    in_worktree(yard, "fix")
    (yard.main / "ralph.toml").write_text(TOML)
    yard.git("commit", "-q", "-a", "-m", "not set")
    in_worktree(yard, "next")
    assert candidate(yard, 1, "waiting")["ralph"] == "next"
    assert len(yard.queue()["candidates"]) == 1


def test_without_tests_a_worktree_is_not_queued(daemon: Daemon) -> None:
    yard = Yard.of(daemon, toml="")
    daemon.start()
    in_worktree(yard, "fix")
    why = "not queued to land: nothing lands untested"
    wait_for(lambda: why in daemon.words(), timeout_s=LAND_S, what="the reason in the log")
    assert daemon.words().count(why) == 1
    assert yard.queue() == {"candidates": []}
    assert daemon.events("ralph.escalated") == []
    assert not list(daemon.state.glob("landing/*/tree"))
    assert "not queued" in str(daemon.view("fix")["notes"])
    (yard.main / "ralph.toml").write_text(TOML)
    yard.git("commit", "-q", "-a", "-m", "tests")
    assert Person(daemon)("land", "fix").returncode == 0
    assert "not queued" not in str(daemon.view("fix")["notes"])


def test_a_done_branch_is_pushed_and_pushed_again(daemon: Daemon) -> None:
    yard = configured(daemon, '[landing]\nmode = "branch"\n')
    before = remote_heads(yard)
    daemon.start()
    place = done(yard, "api", api="1\n")
    pushed = candidate(yard, 1, "pushed")
    assert pushed["next"] == "ralphctl land api --pr opens a pull request"
    assert remote_heads(yard) == before | {"ralph/api": yard.git("rev-parse", "ralph/api")}
    (event,) = daemon.events("landing.pushed")
    assert event["data"]["message"] == "ralph/api is pushed to origin"

    second = yard.commit(place, "more", "2\n")
    daemon.ask("POST", "/v1/ralphs/api/start")
    candidate(yard, 2, "pushed")
    assert remote_heads(yard) == before | {"ralph/api": second}
    assert yard.tests() == 0


def test_a_push_is_never_forced(daemon: Daemon) -> None:
    yard = configured(daemon, '[landing]\nmode = "branch"\n')
    yard.git("push", "-q", "origin", f"{yard.commit(yard.main, 'theirs', '1')}:refs/heads/ralph/api")
    yard.git("reset", "-q", "--hard", "HEAD~1")
    before = remote_heads(yard)
    daemon.start()
    done(yard, "api", api="1\n")
    refused = candidate(yard, 1, "refused")
    assert "rejected, since the upstream has commits that are not here" in refused["why"]
    yard.ended(1)
    assert len(daemon.events("ralph.escalated")) == 1
    assert yard.queue()["candidates"][0]["next"] == "needs you: fix ralph/api, then ralphctl land api --pr"
    assert remote_heads(yard) == before


def test_a_rejected_branch_shows_the_remotes_words(daemon: Daemon) -> None:
    yard = configured(daemon, '[landing]\nmode = "branch"\n')
    hook = yard.main.parent / "origin/hooks/pre-receive"
    hook.write_text("#!/bin/sh\necho no ticket is named >&2\necho x >> pushes\nexit 1\n")
    hook.chmod(0o755)
    daemon.start()
    done(yard, "api", api="1\n")
    assert "remote: no ticket is named" in candidate(yard, 1, "refused")["why"]
    assert "no ticket is named" in Person(daemon)("queue").stdout
    assert yard.queue()["blocked"] is None
    assert (hook.parent.parent / "pushes").read_text() == "x\n"


def test_a_branch_that_is_not_the_ralphs_own_waits(daemon: Daemon) -> None:
    yard = configured(daemon, '[landing]\nmode = "branch"\n')
    before = remote_heads(yard)
    daemon.start()
    done(yard, "api", branch="release", api="1\n")
    waiting = candidate(yard, 1, "waiting")
    assert (waiting["why"], waiting["next"]) == ("it is not ralph/api", "ralphctl land api --pr")
    said = Person(daemon)("land", "api", "--pr")
    assert said.returncode == 1, said
    assert "ralphctl land api --pr --branch release" in said.stderr
    done(yard, "ci", Jenkinsfile="1\n")
    assert candidate(yard, 2, "waiting")["why"] == "it changes Jenkinsfile: land it yourself"
    assert remote_heads(yard) == before


def test_without_a_remote_nothing_is_pushed(daemon: Daemon) -> None:
    yard = configured(daemon, '[landing]\nmode = "branch"\n', remote=False)
    daemon.start()
    done(yard, "api", api="1\n")
    waiting = candidate(yard, 1, "waiting")
    assert (waiting["why"], waiting["next"]) == (
        "no remote has main: git push -u origin main", "ralphctl land api --pr",
    )  # fmt: skip
    said = Person(daemon)("land", "api", "--pr")
    assert said.returncode == 1, said
    assert "git push -u origin main" in said.stderr


@pytest.mark.parametrize("place", ["pushing.ordered", "pushing.done", "told"])
def test_a_push_is_repeated_wherever_the_daemon_dies(daemon: Daemon, place: str) -> None:
    yard = Yard.of(daemon, remote=True)
    daemon.start(failpoints=[f"landing.{place}"])
    yard.ralph("api", api="1\n")
    daemon.ask_the_dying("POST", "/v1/landing", {"ralph": "api", "pr": True})
    daemon.start()
    candidate(yard, 1, "pushed")
    yard.ended(1)
    assert remote_heads(yard)["ralph/api"] == yard.git("rev-parse", "ralph/api")
    assert len(daemon.events("landing.pushed")) == 1


def test_a_branch_is_pushed_without_tests(daemon: Daemon) -> None:
    yard = Yard.of(daemon, remote=True, toml="[landing]\nmode = 'branch'\n")
    daemon.start()
    done(yard, "api", api="1\n")
    candidate(yard, 1, "pushed")
    assert Person(daemon)("land", "api").returncode == 78


def test_a_pull_request_is_the_way_past_a_protected_target(daemon: Daemon) -> None:
    yard, person = Yard.of(daemon, remote=True), Person(daemon)
    hook = yard.main.parent / "origin/hooks/update"
    hook.write_text('#!/bin/sh\ntest "$1" != refs/heads/main\n')
    hook.chmod(0o755)
    daemon.start()
    for name in ("api", "web"):
        yard.ralph(name, **{name: "1\n"})
    yard.land("api")
    wait_for(lambda: yard.queue().get("blocked"), timeout_s=LAND_S, what="the refusal")
    for name in ("api", "web"):
        assert person("land", name, "--pr", timeout_s=LAND_S).returncode == 0
    assert {*remote_heads(yard)} == {"main", "ralph/api", "ralph/web"}
    assert [each["state"] for each in yard.queue()["candidates"]] == ["pushed", "pushed"]


def test_gh_opens_the_pull_request(daemon: Daemon) -> None:
    yard, person = Yard.of(daemon, remote=True), Person(daemon)
    daemon.start()
    place = yard.ralph("api", api="1\n")
    said = person("land", "--pr", cwd=place)
    assert said.returncode == 0, said
    by_hand = f"cd {yard.main} && gh pr create --base main --head ralph/api --fill"
    assert said.stdout.splitlines()[0] == "ralph/api is pushed to origin"
    assert by_hand in said.stdout

    gh = daemon.home / "bin" / "gh"
    gh.write_text(GH)
    gh.chmod(0o755)
    path = f"{gh.parent}:{os.environ.get('PATH', os.defpath)}"
    said = with_path(person, path, "land", "api", "--pr")
    assert said.returncode == 0, said
    assert "https://example.invalid/pull/1" in said.stdout
    asked = (daemon.home / "gh-was-asked").read_text().splitlines()
    assert asked == [str(yard.main), "pr", "create", "--base", "main", "--head", "ralph/api", "--fill"]
    assert remote_heads(yard)["ralph/api"] == yard.git("rev-parse", "ralph/api")
    assert yard.tests() == 0

    gh.write_text("#!/bin/sh\necho not logged in >&2\nexit 4\n")
    said = with_path(person, path, "land", "api", "--pr")
    assert said.returncode == 1, said
    assert "not logged in" in said.stderr
    assert by_hand in said.stderr
