"""The lease of a branch in git: claimed, moved with each push, not lost by a lost answer (rows 13, 17-20)."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from ralphd.core.fleet.model import HostName, ItemId, Lease, LeaseForm
from ralphd.git.fence.fence import (
    BranchMoved,
    Claimed,
    ClaimLost,
    Fence,
    Fenced,
    LeaseGone,
    Pushed,
    RemoteRefused,
    Rewound,
    SavedAside,
    Unreachable,
    Usable,
    dead_pushurl,
)
from ralphd.git.fence.lease_ref import MOST_LEASE_BYTES, Aside, LeaseState, decode_lease
from tests.git.fence_world import BRANCH, HEAD_REF, LEASE_REF, Holder, World, environment, world
from tests.git.work_tree import WorkTree

REFUSES_CUSTOM_REFS = "#!/bin/sh\ncase $1 in refs/heads/*) ;; *) echo 'only branches here'; exit 1;; esac\n"
REFUSES_BLOBS = (
    "#!/bin/sh\n[ $3 = 0000000000000000000000000000000000000000 ] || git cat-file -e $3^{commit}\n"
)
REFUSES_DELETIONS = "#!/bin/sh\n[ $3 != 0000000000000000000000000000000000000000 ]\n"
REFUSES_ALL = "#!/bin/sh\necho 'frozen until Monday'\nexit 1\n"


@pytest.fixture(params=["file", "http"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, request.param) as made:
        yield made


@pytest.fixture
def holder(remote: World) -> Holder:
    """A host that has the lease and has pushed one commit."""
    host = remote.host("h1")
    host.take(token=1)
    host.pushes("one")
    return host


# Claim, push, release


def test_a_claim_creates_the_lease_ref(remote: World) -> None:
    host = remote.host("h1")
    assert host.state() == LeaseState()
    lease = Lease(HostName("h1"), "b", 4, item=ItemId("i-7f3k"), at=1.5)

    claimed = host.fence.claim(BRANCH, lease, "")

    assert isinstance(claimed, Claimed)
    assert remote.refs()[LEASE_REF] == claimed.sha
    assert json.loads(remote.bare.git("cat-file", "blob", LEASE_REF)) == asdict(lease)
    assert remote.host("h2").state() == LeaseState(claimed.sha, lease)


def test_a_lost_claim_names_the_holder(remote: World, holder: Holder) -> None:
    other = remote.host("h2")

    for expected in ("", "1" * 40):
        lost = other.fence.claim(BRANCH, replace(other.lease, token=9), expected)
        assert lost == ClaimLost(LeaseState(holder.mine, holder.lease, holder.last))
    assert remote.refs()[LEASE_REF] == holder.mine


def test_a_push_moves_branch_and_lease_together(remote: World, holder: Holder) -> None:
    before, head = holder.mine, holder.commit("two")

    pushed = holder.push()

    assert isinstance(pushed, Pushed)
    assert pushed.sha != before
    assert pushed.lease == replace(holder.lease, pushed=head, n=2)
    assert (remote.refs()[HEAD_REF], remote.refs()[LEASE_REF]) == (head, pushed.sha)


def test_each_push_has_a_new_lease_object(remote: World, holder: Holder) -> None:
    before = holder.mine

    assert isinstance(holder.push(), Pushed)  # of the same commit
    assert holder.mine != before
    assert remote.refs()[LEASE_REF] == holder.mine


def test_a_bump_moves_the_lease_alone(remote: World, holder: Holder) -> None:
    bumped = holder.bump()

    assert isinstance(bumped, Pushed)
    assert bumped.lease == replace(holder.lease, n=2)
    assert (remote.refs()[HEAD_REF], remote.refs()[LEASE_REF]) == (holder.last, bumped.sha)


def test_a_released_lease_can_be_claimed_by_anybody(remote: World, holder: Holder) -> None:
    released = holder.fence.release(BRANCH, holder.lease, holder.mine)
    assert isinstance(released, Pushed)
    assert released.lease.host == ""
    again = holder.fence.release(BRANCH, replace(holder.lease, at=9.0), holder.mine)
    assert again == released

    other = remote.host("h2")
    other.take_over()

    assert other.lease.token == 2
    assert isinstance(holder.fence.release(BRANCH, holder.lease, holder.mine), Fenced)
    holder.commit("late")
    assert holder.push() == Fenced(other.mine, other.lease)


def test_a_push_after_the_own_release_is_fenced(holder: Holder) -> None:
    released = holder.fence.release(BRANCH, holder.lease, holder.mine)
    assert isinstance(released, Pushed)

    assert holder.push() == Fenced(released.sha, released.lease)


# Rewinds


@pytest.mark.parametrize("rewind", ["reset", "amend", "rebase", "replace"])
def test_a_rewound_branch_is_not_pushed(remote: World, holder: Holder, rewind: str) -> None:
    holder.pushes("two")
    git, before = holder.tree.git, remote.refs()
    if rewind == "reset":
        git("reset", "--quiet", "--hard", "HEAD~1")
        holder.commit("other")
    elif rewind == "amend":
        git("commit", "--quiet", "--amend", "--allow-empty", "-m", "two, better")
    elif rewind == "rebase":
        git(
            "rebase",
            "--quiet",
            "--keep-empty",
            "--force-rebase",
            "HEAD~2",
            "--exec",
            "git commit --amend --allow-empty -m x",
        )
    else:  # for local git alone the history is as it was
        old = holder.head
        git("reset", "--quiet", "--hard", "HEAD~1")
        git("replace", "--graft", holder.commit("other"), old)

    assert holder.push() == Rewound(holder.last)
    assert remote.refs() == before
    assert isinstance(holder.fence.save_aside(Aside.LEFT, BRANCH, 1, "HEAD"), SavedAside)


def test_a_rewind_after_a_lost_answer_is_noticed(remote: World, holder: Holder) -> None:
    mine, last = holder.mine, holder.last
    two = holder.pushes("two")
    holder.tree.git("reset", "--quiet", "--hard", last)
    holder.commit("other")

    assert holder.push(mine=mine, last=last) == Rewound(two)
    assert remote.refs()[HEAD_REF] == two


# Lost answers


def test_a_push_with_a_lost_answer_is_known(remote: World, holder: Holder) -> None:
    head = holder.commit("two")

    pushed = holder.push(fault="after")

    assert isinstance(pushed, Pushed)
    assert (remote.refs()[HEAD_REF], remote.refs()[LEASE_REF]) == (head, pushed.sha)
    holder.pushes("three")


def test_a_push_that_never_began_is_not_reported(remote: World, holder: Holder) -> None:
    before = remote.refs()
    holder.commit("two")

    answer = holder.push(fault="before")

    assert isinstance(answer, Unreachable)
    assert remote.refs() == before
    assert isinstance(holder.push(), Pushed)


def test_a_repeated_request_is_not_a_refusal(tmp_path: Path) -> None:
    with world(tmp_path, "http") as remote:
        host = remote.host("h1")
        host.take(token=1)
        head = host.commit("one")

        assert isinstance(host.push(fault="once"), Pushed)
        assert remote.refs()[HEAD_REF] == head
        moves = (remote.bare.path / "logs" / LEASE_REF).read_text().splitlines()
        assert len(moves) == 2


def test_a_holder_continues_from_an_unknown_push(remote: World, holder: Holder) -> None:
    mine, last, lease = holder.mine, holder.last, holder.lease
    holder.pushes("two")
    holder.pushes("three")
    holder.lease = lease  # as if it knew of none of them
    head = holder.commit("four")

    answer = holder.push(mine=mine, last=last)

    assert isinstance(answer, Pushed)
    assert answer.lease.n == 4
    assert remote.refs()[HEAD_REF] == head
    bumped = holder.fence.bump(BRANCH, lease, mine)
    assert isinstance(bumped, Pushed)
    assert (bumped.lease.n, bumped.lease.pushed) == (5, head)


@pytest.mark.parametrize("fault", ["before", "after"])
def test_lost_answers_of_claim_bump_and_release(remote: World, fault: str) -> None:
    host = remote.host("h1")
    lease = replace(host.lease, token=1)
    good, lossy = host.fence, host.with_fault(fault)

    claimed = lossy.claim(BRANCH, lease, "")
    assert isinstance(claimed, Claimed if fault == "after" else Unreachable)
    claimed = good.claim(BRANCH, replace(lease, at=2.0), "")
    assert isinstance(claimed, Claimed)
    bumped = lossy.bump(BRANCH, claimed.lease, claimed.sha)
    assert isinstance(bumped, Pushed if fault == "after" else Unreachable)
    bumped = good.bump(BRANCH, claimed.lease, claimed.sha)
    assert isinstance(bumped, Pushed)
    released = lossy.release(BRANCH, bumped.lease, bumped.sha)
    assert isinstance(released, Pushed if fault == "after" else Unreachable)
    released = good.release(BRANCH, bumped.lease, bumped.sha)
    assert isinstance(released, Pushed)
    assert host.state() == LeaseState(released.sha, released.lease)


def test_half_a_push_is_completed(remote: World, holder: Holder) -> None:
    """A repository of files moves refs one by one: a crash in between leaves one moved."""
    for moved in (LEASE_REF, HEAD_REF):
        mine, last, lease = holder.mine, holder.last, holder.lease
        holder.pushes(f"with {moved}")
        other = {LEASE_REF: (HEAD_REF, last), HEAD_REF: (LEASE_REF, mine)}[moved]
        remote.bare.git("update-ref", *other)
        holder.lease = lease
        head = holder.commit("next")

        answer = holder.push(mine=mine, last=last)

        assert isinstance(answer, Pushed)
        assert (remote.refs()[HEAD_REF], remote.refs()[LEASE_REF]) == (head, answer.sha)


def test_a_server_killed_between_two_refs_is_noticed(remote: World, holder: Holder) -> None:
    once = remote.root / "once"
    remote.hook(
        "reference-transaction",
        f"#!/bin/sh\n[ $1 = committed ] && [ ! -e {once} ] || exit 0\ntouch {once}\n"
        f"git update-ref {HEAD_REF} {holder.last}\nkill -9 $PPID\n",
    )
    head = holder.commit("two")

    answer = holder.push()

    assert once.exists()
    assert isinstance(answer, Pushed)
    assert answer.lease.n == 3
    assert (remote.refs()[HEAD_REF], remote.refs()[LEASE_REF]) == (head, answer.sha)


def test_a_locked_ref_is_tried_again(remote: World, holder: Holder) -> None:
    lock, once = remote.bare.path / f"{HEAD_REF}.lock", remote.root / "once"
    lock.touch()
    remote.hook("pre-receive", f"#!/bin/sh\n[ -e {once} ] && rm -f {lock}\ntouch {once}\n")
    holder.commit("two")

    assert isinstance(holder.push(), Pushed)


@pytest.mark.parametrize("other", [{"boot": "later"}, {"token": 2}, {"host": "h2"}], ids=repr)
def test_another_holding_of_the_host_fences(remote: World, holder: Holder, other: dict[str, Any]) -> None:
    claimed = holder.fence.claim(BRANCH, replace(holder.lease, **other), holder.mine)
    assert isinstance(claimed, Claimed)
    holder.commit("two")

    assert holder.push() == Fenced(claimed.sha, claimed.lease)
    assert holder.bump() == Fenced(claimed.sha, claimed.lease)
    assert remote.subjects()[0] == "one"


# People


def test_a_branch_that_a_person_moved_is_left(remote: World, holder: Holder) -> None:
    person = WorkTree.clone(remote.bare, remote.root / "person")
    person.git("checkout", "--quiet", "-b", "mine", "origin/main")
    person.commit("theirs")
    person.git("push", "--quiet", "--force", "origin", f"HEAD:{HEAD_REF}")
    tip, before = person.git("rev-parse", "HEAD").strip(), remote.refs()
    holder.commit("two")

    assert holder.push() == BranchMoved(tip)
    assert remote.refs() == before
    bumped = holder.bump()
    assert isinstance(bumped, Pushed)  # the lease is still ours


def test_a_branch_that_a_person_rewound_is_left(remote: World, holder: Holder) -> None:
    one = holder.last
    holder.pushes("two")
    remote.bare.git("update-ref", HEAD_REF, one)
    holder.commit("three")

    assert holder.push() == BranchMoved(one)
    assert remote.subjects()[0] == "one"


def test_a_branch_that_a_person_deleted_stays_deleted(remote: World, holder: Holder) -> None:
    remote.bare.git("update-ref", "-d", HEAD_REF)
    holder.commit("two")

    assert holder.push() == BranchMoved("")
    assert HEAD_REF not in remote.refs()


def test_a_persons_commits_that_were_merged_are_pushed(remote: World, holder: Holder) -> None:
    person = WorkTree.clone(remote.bare, remote.root / "person")
    person.git("checkout", "--quiet", BRANCH)
    person.commit("theirs")
    person.git("push", "--quiet", "origin", BRANCH)
    tip = person.git("rev-parse", "HEAD").strip()
    holder.commit("two")
    assert holder.push() == BranchMoved(tip)
    holder.tree.git("fetch", "--quiet")
    assert holder.push() == BranchMoved(tip)

    holder.tree.git("pull", "--quiet", "--no-rebase", "--no-edit", remote.url, BRANCH)

    assert isinstance(holder.push(), Pushed)
    assert {"theirs", "two"} < set(remote.subjects())


def test_a_deleted_lease_is_claimed_again(remote: World, holder: Holder) -> None:
    remote.bare.git("update-ref", "-d", LEASE_REF)
    before = remote.refs()
    holder.commit("two")

    assert holder.push() == LeaseGone()
    assert holder.bump() == LeaseGone()
    assert holder.fence.release(BRANCH, holder.lease, holder.mine) == LeaseGone()
    assert holder.fence.push(BRANCH, holder.head, holder.lease, "", holder.last) == LeaseGone()
    assert holder.fence.bump(BRANCH, holder.lease, "") == LeaseGone()
    assert remote.refs() == before

    last = holder.last
    claimed = holder.fence.claim(BRANCH, replace(holder.lease, token=2), "")
    assert isinstance(claimed, Claimed)
    assert isinstance(holder.fence.push(BRANCH, holder.head, claimed.lease, claimed.sha, last), Pushed)


# Remotes that are away, refuse, or hold garbage


def test_a_remote_that_is_away_says_why(remote: World, holder: Holder) -> None:
    gone = "http://user:secret@127.0.0.1:9/x.git" if remote.url.startswith("http") else f"{remote.url}.away"
    fence = replace(holder.fence, url=gone)

    answers = [
        fence.read(BRANCH),
        fence.claim(BRANCH, holder.lease, ""),
        fence.push(BRANCH, "HEAD", holder.lease, holder.mine, holder.last),
        fence.bump(BRANCH, holder.lease, holder.mine),
        fence.release(BRANCH, holder.lease, holder.mine),
        fence.save_aside(Aside.STALE, BRANCH, 1, "HEAD"),
        fence.check(),
    ]

    for answer in answers:
        assert isinstance(answer, Unreachable)
        assert answer.why.startswith("git ls-remote: fatal: ")
        assert "secret" not in answer.why


def test_a_remote_that_hangs_is_given_up(remote: World, holder: Holder) -> None:
    holder.commit("two")
    pause = remote.root / "pause"
    pause.mkdir()
    holder.fence = replace(holder.fence, limit_s=1.0)

    answer = holder.push(fault=f"pause:{pause}")
    (pause / "go").touch()

    assert isinstance(answer, Unreachable)
    holder.fence = replace(holder.fence, limit_s=30.0)
    assert isinstance(holder.push(), Pushed)  # whether or not the server carried out the first one


def test_a_hook_that_refuses_is_quoted(remote: World, holder: Holder) -> None:
    remote.hook("pre-receive", REFUSES_ALL)
    before = remote.refs()
    holder.commit("two")

    for answer in (holder.push(), holder.bump(), holder.fence.check()):
        assert isinstance(answer, RemoteRefused)
        assert "frozen until Monday" in answer.why
    assert remote.refs() == before


def test_a_protected_branch_keeps_the_lease(remote: World, holder: Holder) -> None:
    remote.hook("update", f"#!/bin/sh\n[ $1 != {HEAD_REF} ] || {{ echo 'protected'; exit 1; }}\n")
    before = remote.refs()
    holder.commit("two")

    answer = holder.push()

    assert isinstance(answer, RemoteRefused)
    assert "protected" in answer.why
    assert remote.refs() == before


def test_a_remote_without_atomic_is_refused(remote: World, holder: Holder) -> None:
    remote.bare.git("config", "receive.advertiseAtomic", "false")
    before = remote.refs()
    holder.commit("two")

    for answer in (holder.push(), holder.fence.check()):
        assert answer == RemoteRefused("git push: fatal: the receiving end does not support --atomic push")
    assert remote.refs() == before


@pytest.mark.parametrize("kind", ["garbage", "huge", "commit", "tree", "newer", "symbols"])
def test_a_lease_that_cannot_be_read_fences(remote: World, holder: Holder, kind: str) -> None:
    newer = json.dumps({**asdict(holder.lease), "v": 2}).encode()
    symbols = json.dumps({**asdict(holder.lease), "host": "\ud800"}).encode()
    contents = {"garbage": b"\xff{", "huge": b"[" * (5 << 20), "newer": newer, "symbols": symbols}
    if kind in contents:
        sha = remote.put(LEASE_REF, contents[kind])
    else:
        sha = remote.bare.git("rev-parse", "main" if kind == "commit" else "main^{tree}").strip()
        remote.bare.git("update-ref", LEASE_REF, sha)
    holder.commit("two")

    assert holder.state() == LeaseState(sha, None, holder.last)
    assert holder.push() == Fenced(sha, None)
    assert remote.subjects()[0] == "one"
    other = remote.host("h2")
    other.take(token=7, expected=sha)
    assert other.state().lease == other.lease


# Beside the branch


def test_commits_saved_aside_overwrite_nothing(remote: World, holder: Holder) -> None:
    two, base = holder.commit("two"), f"refs/ralph/stale/{BRANCH}/1"
    three = holder.commit("three")

    for _ in range(2):
        saved = holder.fence.save_aside(Aside.STALE, BRANCH, 1, two, three)
        assert saved == SavedAside((base, f"{base}-2"))
    assert (remote.refs()[base], remote.refs()[f"{base}-2"]) == (two, three)
    lost = holder.with_fault("after").save_aside(Aside.LEFT, BRANCH, 1, "HEAD")
    assert lost == SavedAside((f"refs/ralph/left/{BRANCH}/1",))
    unknown = holder.fence.save_aside(Aside.LEFT, BRANCH, 1, "1" * 40)
    assert unknown == Unreachable("the commit 1111111 is not in the repository")


def test_names_that_are_no_branches_reach_nothing(remote: World, holder: Holder) -> None:
    before = remote.refs()
    for name in ("x:refs/heads/main", "a..b", "", "*", "a b", "x\0y", "-x/../y"):
        assert isinstance(holder.fence.read(name), Unreachable)
        assert isinstance(holder.fence.push(name, "HEAD", holder.lease, holder.mine, ""), Unreachable)
        assert isinstance(holder.fence.claim(name, holder.lease, ""), Unreachable)
        assert isinstance(holder.fence.save_aside(Aside.LEFT, name, 1, "HEAD"), Unreachable)
    assert remote.refs() == before


def test_an_agents_own_push_says_why_it_fails(remote: World, holder: Holder) -> None:
    assert dead_pushurl(holder.tree.path) == ""
    assert dead_pushurl(remote.root) == "this is not a git repository"
    holder.commit("two")

    with pytest.raises(subprocess.CalledProcessError) as failed:
        holder.tree.git("push", "origin", "HEAD")

    assert "commit-and-do-not-push" in failed.value.stderr
    assert isinstance(holder.push(), Pushed)


# What a remote takes


def test_a_remote_is_checked_without_a_trace(remote: World, holder: Holder) -> None:
    before = remote.refs()

    assert holder.fence.check() == Usable(LeaseForm.BLOB)
    assert remote.refs() == before


@pytest.mark.parametrize(("script", "form", "ref"), [
    (REFUSES_BLOBS, LeaseForm.COMMIT, LEASE_REF),
    (REFUSES_CUSTOM_REFS, LeaseForm.BRANCH, f"refs/heads/ralph-lease/{BRANCH}"),
], ids=["commit", "branch"])  # fmt: skip
def test_other_forms_follow_the_same_protocol(remote: World, script: str, form: LeaseForm, ref: str) -> None:
    remote.hook("update", script)
    host, other = remote.host("h1"), remote.host("h2")
    refused = host.fence.claim(BRANCH, host.lease, "")
    assert isinstance(refused, RemoteRefused)

    usable = host.fence.check()
    assert isinstance(usable, Usable)
    assert (usable.form, usable.why != "") == (form, True)
    assert list(remote.refs()) == ["refs/heads/main"]
    for each in (host, other):
        each.fence = replace(each.fence, form=form)
    host.take(token=1)
    host.pushes("one")
    assert remote.refs()[ref] == host.mine
    other.take_over()
    host.commit("late")
    assert host.push() == Fenced(other.mine, other.lease)
    other.pushes("two")
    saved = host.fence.save_aside(Aside.STALE, BRANCH, 1, "HEAD")
    assert saved == SavedAside((f"{form.prefix}stale/{BRANCH}/1",))


def test_trial_refs_that_cannot_be_removed_are_named(remote: World, holder: Holder) -> None:
    remote.hook("update", REFUSES_DELETIONS)

    usable = holder.fence.check()

    assert isinstance(usable, Usable)
    assert "are still there" in usable.why


@pytest.mark.parametrize("call", ["read", "push", "bump", "save_aside"])
def test_the_settings_of_a_clone_start_nothing(holder: Holder, tmp_path: Path, call: str) -> None:
    mark, git = tmp_path / "mark", holder.tree.git
    holder.commit("one")
    url = holder.fence.url
    for key, value in (
        ("protocol.ext.allow", "always"),
        (f"url.ext::touch {mark} .insteadOf", url),
        (f"url.ext::touch {mark} .pushInsteadOf", url),
        ("core.sshCommand", f"touch {mark}"),
        ("core.fsmonitor", f"touch {mark}"),
        ("credential.helper", f"!touch {mark}"),
    ):
        git("config", "--local", key, value)
    match call:
        case "read":
            assert isinstance(holder.fence.read(BRANCH), LeaseState)
        case "push":
            assert isinstance(holder.push(), Pushed)
        case "bump":
            assert isinstance(holder.fence.bump(BRANCH, holder.lease, holder.mine), Pushed)
        case _:
            assert isinstance(holder.fence.save_aside(Aside.STALE, BRANCH, 1, "HEAD"), SavedAside)
    assert not mark.exists()


# The value of a lease


def test_only_a_whole_lease_is_decoded() -> None:
    good = asdict(Lease(HostName("h"), "b", 3, n=2, item=ItemId("i-aaaa"), pushed="a" * 40, at=1.0))
    assert decode_lease(json.dumps({**good, "unknown": [1]}).encode()) == Lease(**good)
    bad: list[dict[str, object]] = [
        {"v": 2}, {"host": 1}, {"host": "x" * 300}, {"boot": None}, {"token": True}, {"token": -1},
        {"token": 1.0}, {"n": 1 << 60}, {"item": "\x1b"}, {"pushed": "HEAD"},
        {"at": float("nan")}, {"at": 10**400}, {"at": False},
    ]  # fmt: skip
    for each in bad:
        assert decode_lease(json.dumps({**good, **each}).encode()) is None, each
    for text in (b"", b"[]", b"null", b"[" * MOST_LEASE_BYTES, b"1" * 5000, b"{}"):
        assert decode_lease(text) is None


def test_without_a_repository_nothing_is_raised(tmp_path: Path) -> None:
    fence = Fence(tmp_path, "/nowhere", environment())

    assert fence.read(BRANCH) == Unreachable("this is not a git repository")
