"""Make, examine and remove worktrees: git's part of running several ralphs on one repository (W1 to W5).

Each step finds out what an earlier, killed one has left, and continues there. No program of the repository
runs: what needs one (LFS, submodules) is refused before anything is made. Nothing is removed by force unless
all of it is saved under a ref.
"""

import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from ralphd import wire
from ralphd.core.worktrees.rules import Worktree, WorktreeFacts
from ralphd.dataclass import dataclass
from ralphd.diagnostics import reach
from ralphd.errors import RalphdError, UsageError, WrongState
from ralphd.git import repo
from ralphd.git.diagnostics import unfinished
from ralphd.git.locks import remove_own_lock, wait_for_lock
from ralphd.git.repo import Repository
from ralphd.git.rewrite.reapply import REBASED
from ralphd.git.runner import GitRunner, NotDone, name_list, readable, ref_name
from ralphd.git.vault import size_of
from ralphd.plain_files import read_plain

LIMIT_S: Final = 600.0
LOOK_LIMIT_S: Final = 20.0
KEPT_REFS: Final = "refs/ralph/trees/"
_SETTINGS: Final = (
    *("checkout.workers=0", "core.splitIndex=false", "core.untrackedCache=false"),
    *("core.ignoreStat=false", "core.sparseCheckout=false"),
)
_POINTER_BYTES: Final = 8192
_RESTORING: Final = "ralphd-restoring"
"""There as long as the files of a worktree that was deleted are not all back."""


@dataclass(frozen=True, slots=True)
class WorktreeSource:
    """The work tree that a worktree is made from. ``branch`` is empty for a detached HEAD."""

    top: Path
    common: Path
    inside: str
    branch: str
    start: str

    @property
    def name(self) -> str:
        """The repository's name: that of its main work tree, or of a bare repository without ``.git``."""
        return (self.common.parent if self.common.name == ".git" else self.common).name.removesuffix(".git")


def source_of(directory: Path, start: str | None) -> WorktreeSource:
    """Return from where worktrees are made; ``start`` is a revision, None: HEAD (W1).

    Raise RalphdError for what cannot have one (W5), NotDone where git fails.
    """
    is_bare = repo.line(directory, "rev-parse", "--is-bare-repository") == "true"
    if is_bare or Repository.find(directory) is None:
        do = "worktree add PATH, and start in PATH" if is_bare else "init"
        raise UsageError(f"{directory} is not in a work tree of git", mend=f"git -C {directory} {do}")
    git = GitRunner(directory, limit_s=LOOK_LIMIT_S)
    if (commit := git.commit(start or "HEAD")) is None:
        mend = "git log --all --oneline" if start else f"make a first commit in {git.top}"
        raise UsageError(f"{start or 'HEAD'} is not a commit of {git.top}", mend=mend)
    if git.output("ls-tree", commit, ".gitmodules"):
        raise _unfit(git, "it has submodules, which a new worktree lacks", "--recurse-submodules")
    if git.filters:
        names = git.output("ls-tree", "-r", "-z", "--name-only", commit).split(b"\0")
        if found := git.filtered([name for name in names if name]):
            name, driver = next(iter(found.items()))
            why = f"{readable(name)} needs the filter {readable(driver)}, which ralphd does not run"
            raise _unfit(git, why)
    branch = (git.branch() or "").removeprefix("refs/heads/")
    inside = directory.resolve().relative_to(git.top)
    return WorktreeSource(git.top, git.repository.common.resolve(), str(inside), branch, commit)


def _unfit(git: GitRunner, why: str, *words: str) -> UsageError:
    clone = shlex.join(["git", "clone", *words, str(git.top), f"{git.top}-2"])
    return UsageError(f"{git.top} cannot have worktrees of ralphd", why=f"{why}: use a clone", mend=clone)


def has_branch(source: WorktreeSource, branch: str, start: str | None, path: Path) -> bool:
    """Return whether the branch exists. Raise RalphdError where it cannot be that of a new worktree."""
    git, ref = GitRunner(source.top, limit_s=LOOK_LIMIT_S), f"refs/heads/{branch}"
    if branch.startswith("-") or git.run("check-ref-format", ref)[0] != 0:
        raise UsageError(f"{branch!r} is not a name for a branch", mend="--branch NAME")
    if f"{branch}/".startswith(f"{wire.LANDED_BRANCH}/"):
        why = "the landing queue keeps there what landed, until the target's checkout can take it"
        mend = "another name: --worktree NAME"
        raise UsageError(f"the branch {branch} is the landing queue's", why=why, mend=mend)
    outer = branch.partition("/")[0]
    if outer != branch and git.ref(f"refs/heads/{outer}"):
        why = f"git cannot have {branch} beside the branch {outer}"
        raise UsageError(f"the branch {branch} cannot be made", why=why, mend="--branch NAME")
    if (known := git.commit(ref)) is None:
        return False
    blocks = git.text("worktree", "list", "--porcelain").split("\n\n")
    used = next((block.partition("\n")[0] for block in blocks if f"branch {ref}" in block.split("\n")), "")
    if used and used != f"worktree {path}":
        what = f"the branch {branch} is checked out in {used.removeprefix('worktree ')}"
        raise WrongState(what, why="two worktrees cannot share a branch", mend="--branch NAME")
    if start is not None and known != source.start:
        why = f"it is at {known[:7]}, not at {start}"
        raise WrongState(f"the branch {branch} exists", why=why, mend="leave out --from, or --branch NAME")
    return True


def make(tree: Worktree) -> None:
    """Make a worktree, or what is missing of it, with its lock (W1, W2, W7). Can be repeated at any point.

    A worktree that was deleted gets the files of its index, and none that is there is changed. Raise NotDone,
    OSError, RalphdError.
    """
    path, ref = Path(tree.path), f"refs/heads/{tree.branch}"
    git = GitRunner(_place(tree), limit_s=LIMIT_S, settings=_SETTINGS)
    if git.commit(ref) is None:
        if tree.stage != "making" or tree.has_branch:
            mend = f"ralphctl vault restore {tree.source}, or git -C {tree.source} branch {tree.branch} SHA"
            raise WrongState(f"the branch {tree.branch} of {tree.name} is gone", mend=mend)
        git.update_refs(f"create {ref} {tree.start}", reason=tree.reason)
    reach("worktree.branch_made")
    own = _own_directory(tree)
    is_new = own is None or (tree.stage == "making" and not (own / "index").exists())
    if own is None:
        if path.exists() and any(path.iterdir()):
            raise WrongState(f"{path} is in the way of a worktree", mend=f"mv {path} {path}.old")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        words = ("worktree", "add", "--no-checkout", "--lock", "--reason", tree.reason)
        git.output(*words, str(path), tree.branch)
    elif not (path / ".git").exists():
        repo.make_folders(path)
        (own / _RESTORING).touch()
        (path / ".git").write_text(f"gitdir: {own}\n")
    reach("worktree.added")
    if own is not None and not (own / "locked").exists():
        git.output("worktree", "lock", "--reason", tree.reason, str(path))
    _fill(path, is_new=is_new)


def _fill(path: Path, *, is_new: bool) -> None:
    git = GitRunner(path, limit_s=LIMIT_S, settings=_SETTINGS)
    if is_new:  # without an index nothing in it is anybody's work
        wait_for_lock(git.repository.git)
        remove_own_lock(git.repository, path)
        git.output("reset", "--hard", "--quiet")
    elif (mark := git.repository.git / _RESTORING).exists():
        if missing := git.output("ls-files", "-z", "--deleted"):
            git.output("checkout-index", "--quiet", "-z", "--stdin", given=missing)
        mark.unlink()


def _own_directory(tree: Worktree) -> Path | None:
    """Return the directory that git keeps for the worktree, whether that is there or not."""
    place = os.path.realpath(tree.path)  # a link may lead there, or may have been put there later
    return next((own for own, path in _linked(tree.repository) if os.path.realpath(path) == place), None)


def _linked(repository: str) -> Iterator[tuple[Path, Path]]:
    """Yield the repository's linked worktrees: what git keeps of each, and its path."""
    for pointer in sorted(Path(repository).glob("worktrees/*/gitdir")):
        with suppress(OSError):
            name = os.fsdecode(read_plain(pointer, _POINTER_BYTES)).strip()
            yield pointer.parent, (pointer.parent / name).parent


def work_tree_of(repository: str, known: str, *, but: str = "") -> Path:
    """Return ``known``; if that is gone, another work tree of the repository, except ``but``, if any."""
    common, linked = Path(repository), (path for _, path in _linked(repository) if str(path) != but)
    places = (Path(known), *linked, common.parent)  # that one is no work tree if the repository is bare
    found = ((each, Repository.find(each)) for each in places if each.is_dir())
    return next((each for each, its in found if its and its.common.resolve() == common), places[0])


def _place(tree: Worktree) -> Path:
    """Return a work tree of the repository: the one that this was made from may be gone."""
    return work_tree_of(tree.repository, tree.source, but=tree.path)


def facts_of(tree: Worktree) -> WorktreeFacts:
    """Return what git and the disk know of a worktree. Raise NotDone where git fails or is slow."""
    is_there = (Path(tree.path) / ".git").exists()
    place = Path(tree.path) if is_there else _place(tree)
    git = GitRunner(place, limit_s=LOOK_LIMIT_S, settings=_SETTINGS)
    head, tip = _heads(git, tree)  # HEAD: it may have commits of its own
    tips, target = list(filter(None, (tip, head))), f"refs/heads/{tree.target}" if tree.target else ""
    unlanded, ahead, behind = 0, 0, 0
    if tips:
        others = (f"--exclude={tree.branch}", "--branches", "--remotes", f"--glob={REBASED}")
        unlanded = int(git.text("rev-list", "--count", *tips, "--not", *others))
    if tips and target and git.commit(target):
        counts = git.text("rev-list", "--left-right", "--count", f"{target}...{tips[0]}").split()
        behind, ahead = map(int, counts)
    facts = WorktreeFacts(is_there, ahead=ahead, behind=behind, unlanded=unlanded, head=head, tip=tip)
    if not is_there:
        return facts
    dirty = tuple(map(readable, _uncommitted(git)))
    doing = next((line for line, _ in unfinished(git.repository)), "")
    return replace(facts, size_bytes=size_of(Path(tree.path)), dirty=dirty, doing=doing)


def _heads(git: GitRunner, tree: Worktree) -> tuple[str, str]:
    """Return the commits of the worktree's HEAD, also where its files are gone, and of its branch."""
    own = _own_directory(tree)
    head = None if own is None else git.commit(f"worktrees/{own.name}/HEAD")
    return head or "", git.commit(f"refs/heads/{tree.branch}") or ""


def _uncommitted(git: GitRunner) -> list[bytes]:
    with _plain_index(git) as variables:
        return [entry[3:] for entry in git.status(env=variables)]


@contextmanager
def _plain_index(git: GitRunner, scratch: Path | None = None) -> Iterator[dict[str, str]]:
    """Provide a copy of the index, as variables for git, in which no flag hides what is in a file.

    The flags are assume-unchanged and skip-worktree; the latter stays where a sparse checkout has no file.
    """
    with tempfile.TemporaryDirectory("", "worktree-", scratch) as folder:
        index = Path(folder) / "index"
        git.copy_index(index)
        variables = {"GIT_INDEX_FILE": str(index)}
        lines = git.output("ls-files", "-s", "-v", "-z", env=variables).split(b"\0")
        hidden = [line[2:] for line in lines if line[:1] == b"S" or line[:1].islower()]
        plain = [each for each in hidden if os.path.lexists(git.path(each.partition(b"\t")[2]))]
        if plain:
            git.output("update-index", "-z", "--index-info", given=plain, env=variables)
        yield variables


def _refuse_repositories(git: GitRunner, names: set[bytes]) -> None:
    """Raise NotDone for repositories within the work tree: they would be lost, with all of their commits."""
    if names:
        what = "are repositories of their own" if len(names) > 1 else "is a repository of its own"
        raise NotDone(f"{name_list(names)} {what}, which git does not save: move it out of {git.top}")


def _inner_repositories(git: GitRunner) -> set[bytes]:
    """Return the folders in the work tree that are repositories, unless git ignores them."""
    top, inner = os.fsencode(git.top), []
    for folder, folders, names in os.walk(top):
        if folder != top and b".git" in (*folders, *names):
            inner.append(b"./" + os.path.relpath(folder, top))
            folders.clear()
    how = {"GIT_LITERAL_PATHSPECS": "0"}  # check-ignore refuses it; with ./ all names are literal
    ignored = git.run("check-ignore", "-z", "--stdin", given=inner, env=how)[1] if inner else b""
    return {name[2:] for name in {*inner} - {*ignored.split(b"\0")}}


def _submodules(git: GitRunner, variables: Mapping[str, str] | None = None) -> set[bytes]:
    """Return the repositories that the index names: git neither saves nor reports what is in them."""
    lines = git.output("ls-files", "-s", "-z", env=variables).split(b"\0")
    return {line.partition(b"\t")[2] for line in lines if line.startswith(b"160000")}


def keep(tree: Worktree, scratch: Path) -> str:
    """Save commits and files of a worktree, ignored ones excepted, under a ref, and return the ref (W4)."""
    git = GitRunner(Path(tree.path), limit_s=LIMIT_S, settings=_SETTINGS)
    heads = dict.fromkeys(sha for name in ("HEAD", f"refs/heads/{tree.branch}") if (sha := git.commit(name)))
    saved = git.commit_tree(_whole(git, scratch), f"worktree {tree.name}\n", *heads)
    refs = (f"{KEPT_REFS}{ref_name(tree.name)}{more}" for more in ("", *(f"-{n}" for n in range(2, 10_000))))
    ref = next(ref for ref in refs if git.ref(ref) is None)
    git.update_refs(f"create {ref} {saved}", reason=tree.reason)
    return ref


def _whole(git: GitRunner, scratch: Path) -> str:
    """Write a tree of all files that are not ignored, and return its sha; the index stays as it is."""
    _refuse_repositories(git, _inner_repositories(git))
    with _plain_index(git, scratch) as variables:
        git.output("add", "--all", env=variables)
        _refuse_repositories(git, _submodules(git, variables))
        return git.text("write-tree", env=variables)


def remove(tree: Worktree, judged: WorktreeFacts, *, kept_as: str = "", scratch: Path | None = None) -> None:
    """Remove a worktree that has nothing of its own, or that is whole under ``kept_as`` (W4).

    Its branch goes too if ralphd made it. It has to be as ``judged``: what was committed since stays, and git
    refuses once more what is not committed. Raise NotDone.
    """
    git = GitRunner(_place(tree), limit_s=LIMIT_S)
    own, path = _own_directory(tree), Path(tree.path)
    force: tuple[str, ...] = ()
    if (path / ".git").exists():
        if own is None:
            raise NotDone(f"git does not know {path}: git -C {git.top} worktree repair {path}")
        inner = GitRunner(path, limit_s=LIMIT_S, settings=_SETTINGS)
        if kept_as and scratch is not None:
            if _whole(inner, scratch) != inner.line("rev-parse", f"{kept_as}^{{tree}}"):
                raise NotDone(f"files changed since they were saved as {kept_as}")
            force = ("--force",)
        else:
            _refuse_repositories(inner, _inner_repositories(inner) | _submodules(inner))
            if names := _uncommitted(inner):
                raise NotDone(f"not committed: {name_list(names)}")
    if _heads(git, tree) != (judged.head, judged.tip):
        raise NotDone(f"commits were made in it meanwhile: ralphctl trees rm {tree.name} looks again")
    if own is not None:
        if (own / "locked").exists():
            git.output("worktree", "unlock", str(path))
        reach("worktree.unlocked")
        try:
            git.output("worktree", "remove", *force, str(path))
        except NotDone:
            if own.exists():
                git.run("worktree", "lock", "--reason", tree.reason, str(path))
            raise
    reach("worktree.removed")
    if judged.tip and not tree.has_branch:  # refused if it has moved: what is new on it stays
        git.update_refs(f"delete refs/heads/{tree.branch} {judged.tip}", reason=tree.reason)


def unlock(tree: Worktree) -> None:
    """Unlock a worktree whose ralph is removed (W2). Raise NotDone."""
    own = _own_directory(tree)
    if own is not None and (own / "locked").exists():
        GitRunner(_place(tree), limit_s=LOOK_LIMIT_S).output("worktree", "unlock", tree.path)


def not_made(why: NotDone | OSError, name: str) -> RalphdError:
    """Return the error for a worktree that git did not make or remove."""
    return WrongState(f"the worktree of {name} is as it was", why=str(why))
