"""An agent that turns on its supervision and on the repository (A12): nothing is lost, the night goes on."""

import pytest

from tests.whole.guarded import Guarded
from tests.whole.harness import Daemon


@pytest.fixture
def guarded(daemon: Daemon) -> Guarded:
    return Guarded.of(daemon)


GARBAGE = {
    "index": "printf garbage >.git/index",
    "core.bare": "git config core.bare true",
}


@pytest.mark.parametrize("what", GARBAGE)
def test_an_index_or_a_configuration_that_git_cannot_use_is_restored(
    daemon: Daemon, guarded: Guarded, what: str
) -> None:
    daemon.start()
    guarded.register()
    guarded.does(1, "one")
    guarded.told(1)
    (guarded.place / "mine").write_text("mine\n")
    guarded.does(2, "two", ends=GARBAGE[what])
    assert guarded.told(2)["next"] == "continue"
    guarded.does(3, "three")
    assert guarded.verdict(3)["kind"] == "kept"
    assert guarded.subjects() == ["three", "two", "one", "first"]
    assert guarded.git("status", "--porcelain") == "?? mine"
    assert len(daemon.events("repository.repaired")) == 1


def test_a_revert_survives_a_removed_git_directory(daemon: Daemon, guarded: Guarded) -> None:
    daemon.start()
    guarded.register()
    guarded.does(1, "one")
    guarded.told(1)
    guarded.does(2, "broken")
    assert guarded.verdict(2)["kind"] == "reverted"
    tip = guarded.git("rev-parse", "HEAD")
    guarded.does(3, script="rm -rf .git; git init -q -b main; git add .; git commit -q -m fresh")
    assert guarded.told(3)["next"] == "continue"
    assert guarded.git("rev-parse", "HEAD") == tip
