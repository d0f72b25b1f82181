"""Put the earlier versions of changed test files into the work tree, for one run of the tests (A9).

``stash.put_back`` restores the present files.
"""

# Theory of operation
#
# As in ``stash``: the present files are saved under a ref before the first one is overwritten. The entry that
# the list has as HEAD's is the version that is shown. So ``put_back`` accepts a file that is as saved, as
# shown or absent, whatever a crash has left, and refuses to overwrite anything else. The index never changes.
#
# A renamed file gets its earlier content at its new path, where its imports work. A file that was renamed to
# something that is no test file counts as deleted.
#
# A script of the test command that was replaced passes every later commit, and a boundary at which the code
# was good accepts it. So its version is that of the ralph's start, at each boundary where it differs.

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from ralphd import diagnostics
from ralphd.core.gate.verdict import CarriedOut, Moved, Ran, Refused, Result, Shown
from ralphd.core.gate.weakened import hiding_runner, is_protected, script_files
from ralphd.dataclass import dataclass
from ralphd.git import tree_diff
from ralphd.git.rewrite import file_snapshots, stash
from ralphd.git.rewrite.file_snapshots import PathKind, SavedFile, SavedState
from ralphd.git.rewrite.move_branch import carry_out, refuse_filtered
from ralphd.git.runner import GitRunner, NotDone, name_list, readable
from ralphd.git.tree_diff import Sides, TreeEntry, entry_of

MOST_FILES = 2000
_FILE_MODES = ("100644", "100755")

Answer: TypeAlias = Shown | Ran | Refused | Moved


@dataclass(frozen=True, slots=True)
class OldTest:
    """A test file to show: where, its earlier version, and the present one (None: deleted)."""

    path: bytes
    old: TreeEntry
    new: TreeEntry | None


def show_old(
    directory: Path, label: str, before: str, patterns: Sequence[str], command: str = "", *, start: str = ""
) -> Answer:
    """Show the earlier versions of the test files that differ between ``before`` and HEAD.

    Those of the scripts of ``command`` are the versions at ``start``. Return their names, or that the tests
    are green with them, where no test file differs.
    """
    shown: list[Shown] = []

    def act(git: GitRunner) -> str:
        head, ref, saved = stash.load(git, label)
        base = before or git.text("mktree")  # before the first commit of the repository
        old_tests = _old_tests(git, base, head, patterns, command, start=start)
        hiding = hiding_runner(command, _added(git, base, head))
        if not old_tests:
            shown.extend([Shown((), (), hiding)] if hiding else ())
            return head
        if saved is None:
            saved = _save(git, head, old_tests, ref)
        elif saved.head != head:
            raise NotDone(f"other work is still set aside under {ref}")
        diagnostics.reach("guard.old_tests.kept")
        if changed := stash.changes(git, saved, head)[1]:
            raise NotDone(f"{name_list(changed)} changed meanwhile")
        modes = {each.path: each.mode for each in saved.files if each.kind is PathKind.FILE}
        contents = file_snapshots.read_blobs(git, [each.old.sha for each in old_tests])
        for each, data in zip(old_tests, contents, strict=True):
            mode = modes.get(each.path, 0o755 if each.old.mode == _FILE_MODES[1] else 0o644)
            file_snapshots.write_file(git, each.path, PathKind.FILE, mode, data)
            diagnostics.reach("guard.old_tests.file")
        shown.append(_shown(git, old_tests, hiding))
        return head

    done = carry_out(directory, act)
    if not isinstance(done, CarriedOut):
        return done
    return shown[0] if shown else Ran(Result.GREEN)


def show_in_own_tree(git: GitRunner, before: str, head: str, patterns: Sequence[str], command: str) -> Shown:
    """Show the earlier versions in a work tree at ``head`` that holds nobody's work. Raises NotDone."""
    if old_tests := _old_tests(git, before, head, patterns, command):
        tree_diff.put_entries(git, [(each.path, each.old) for each in old_tests])
        git.output("checkout-index", "-f", "-z", "--stdin", given=[each.path for each in old_tests])
    return _shown(git, old_tests, hiding_runner(command, _added(git, before, head)))


def _shown(git: GitRunner, old_tests: Sequence[OldTest], hiding: tuple[str, ...]) -> Shown:
    return Shown(tuple(readable(each.path) for each in old_tests), _gone(git, old_tests), hiding)


def _old_tests(
    git: GitRunner, before: str, head: str, patterns: Sequence[str], command: str, *, start: str = ""
) -> list[OldTest]:
    scripts = script_files(command)

    def is_test(path: str) -> bool:
        return path not in scripts and is_protected(path, patterns)

    old_tests = list(_changed(git, before, head, is_test))
    if scripts:
        trusted = start if start and git.commit(start) else before
        old_tests += _changed(git, trusted, head, scripts.__contains__)
    return old_tests


def _added(git: GitRunner, before: str, head: str) -> list[str]:
    words = ("diff-tree", "-r", "-z", "--no-renames", "--name-only", "--diff-filter=A", before, head, "--")
    return [readable(path) for path in git.output(*words).split(b"\0") if path]


def _changed(git: GitRunner, before: str, head: str, is_test: Callable[[str], bool]) -> Iterator[OldTest]:
    words = ("diff-tree", "-r", "-z", "-M", "--raw", "--diff-filter=MDRT")
    fields = iter(git.output(*words, before, head, "--").split(b"\0"))
    for header in fields:
        if not header:
            return
        old_mode, new_mode, old_sha, new_sha, status = header.removeprefix(b":").split(b" ")
        path = next(fields)
        current = next(fields) if status.startswith(b"R") else path
        old, new = entry_of(old_mode, old_sha), entry_of(new_mode, new_sha)
        if old is None or old.mode not in _FILE_MODES or not is_test(readable(path)):
            continue
        if new is None or not is_test(readable(current)):
            yield OldTest(path, old, None)
        elif old.sha != new.sha and new.mode in _FILE_MODES:
            yield OldTest(current, old, new)


def _save(git: GitRunner, head: str, old_tests: Sequence[OldTest], ref: str) -> SavedState:
    """Save the present files under the ref. Raises NotDone."""
    paths = [each.path for each in old_tests]
    if len(paths) > MOST_FILES:
        raise NotDone(f"{len(paths)} test files were changed: too many to test in their earlier version")
    refuse_filtered(git, paths)
    states = {path: file_snapshots.state_of(git, path) for path in paths}
    if way := tree_diff.obstructing(git, paths, states):
        raise NotDone(f"files are in the way: {name_list(way)}")
    staged = tree_diff.staged_at(git, paths)
    sides = {each.path: Sides(each.old, staged.get(each.path)) for each in old_tests}
    files = (SavedFile.of(path, states[path], each, like=head) for path, each in sides.items())
    saved = SavedState(head, "", 0, tuple(files))
    file_snapshots.save(git, saved, states, b"", ref)
    return saved


def _gone(git: GitRunner, old_tests: Sequence[OldTest]) -> tuple[str, ...]:
    """Return the names of those that were deleted, or emptied."""
    present = [each for each in old_tests if each.new is not None]
    contents = file_snapshots.read_blobs(git, [each.new.sha for each in present if each.new is not None])
    emptied = {each.path for each, data in zip(present, contents, strict=True) if not data.strip()}
    return tuple(readable(each.path) for each in old_tests if each.new is None or each.path in emptied)
