"""What tests of the guard share: repositories with an upstream, and all that an act must leave alone."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from ralphd.core.gate.verdict import CarriedOut, Moved, Refused
from tests.git.work_tree import WorkTree, copy_of


def head(tree: WorkTree, revision: str = "HEAD") -> str:
    return tree.git("rev-parse", revision).strip()


def subjects(tree: WorkTree, revision: str = "HEAD") -> list[str]:
    return tree.git("log", "--format=%s", revision).splitlines()


def write(tree: WorkTree, name: str, text: str) -> None:
    path = tree.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def committed(tree: WorkTree, subject: str, **files: str | None) -> str:
    """Commit these files (None: remove it), ``__`` in a name being a slash; the sha."""
    for name, text in files.items():
        path = tree.path / name.replace("__", "/")
        if text is None:
            path.unlink()
            if path.parent != tree.path and not any(path.parent.iterdir()):
                path.parent.rmdir()
        else:
            write(tree, name.replace("__", "/"), text)
    tree.git("add", "-A")
    tree.git("commit", "--quiet", "--allow-empty", "-m", subject)
    return head(tree)


@dataclass(frozen=True, slots=True)
class Everything:
    """A repository as it is: what is staged, every file but git's own, branch, refs, stashes, git's own."""

    staged: str
    files: dict[str, tuple[int, bytes]]
    branch: str
    refs: str
    stashes: str
    own: tuple[str, ...]
    status: str


def everything(tree: WorkTree, *, refs: bool = True) -> Everything:
    """Without our own refs. ``refs`` False: also without the branches."""
    pattern = (
        ("refs/heads", "refs/tags", "refs/remotes", "refs/stash") if refs else ("refs/tags", "refs/remotes")
    )
    git = tree.path / tree.git("rev-parse", "--git-dir").strip()
    return Everything(
        tree.git("ls-files", "-s"),
        files(tree),
        tree.git("rev-parse", "--symbolic-full-name", "HEAD"),
        tree.git("for-each-ref", "--format=%(refname) %(objectname)", *pattern),
        tree.git("stash", "list"),
        tuple(sorted(entry.name for entry in git.iterdir() if entry.name not in _CHANGING)),
        tree.git("--no-optional-locks", "status", "--porcelain", "--ignored"),
    )


_CHANGING = {"COMMIT_EDITMSG", "ORIG_HEAD", "FETCH_HEAD", "packed-refs", "ralph-guard"}


def files(tree: WorkTree) -> dict[str, tuple[int, bytes]]:
    """Every file that is not git's own: mode and content."""
    found = {}
    for path in sorted(tree.path.rglob("*")):
        name = path.relative_to(tree.path)
        if ".git" not in name.parts and (path.is_symlink() or path.is_file()):
            data = os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes()
            found[repr(str(name))] = (stat.S_IMODE(path.lstat().st_mode), data)
    return found


def carried_out(found: object) -> str:
    """The head after an act that was carried out."""
    assert isinstance(found, CarriedOut), found
    assert found.head is not None
    return found.head


def refusal(found: object) -> str:
    """Why an act was refused."""
    assert isinstance(found, Refused), found
    return found.why


def movement(found: object) -> str:
    """Why an act found HEAD elsewhere."""
    assert isinstance(found, Moved), found
    return found.why


def clone_with_upstream(tmp_path: Path) -> tuple[WorkTree, WorkTree]:
    """A clone with the branch ``main``, and its bare origin."""
    copy_of(_clone_with_upstream, tmp_path)
    return WorkTree(tmp_path / "tree"), WorkTree(tmp_path / "origin.git")


def _clone_with_upstream(root: Path) -> None:
    seed = WorkTree.new(root / "seed")
    seed.commit("first")
    seed.git("clone", "--quiet", "--bare", str(seed.path), str(root / "origin.git"))
    tree = WorkTree.clone(WorkTree(root / "origin.git"), root / "tree")
    tree.git("remote", "set-url", "origin", "../origin.git")  # as true in a copy


def others_push(tmp_path: Path, origin: WorkTree, subject: str, *, branch: str = "main") -> str:
    """Somebody else pushes a commit; its sha."""
    other = WorkTree.clone(origin, tmp_path / f"other-{subject}")
    if branch != "main":
        other.git("checkout", "--quiet", "-b", branch)
    other.commit(subject)
    other.git("push", "--quiet", "origin", branch)
    return head(other)
