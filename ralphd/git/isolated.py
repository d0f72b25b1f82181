"""Hide a repository's own settings from git: any run can write them (M2, M3).

``.git/config`` can send a push elsewhere and start programs, ``info/`` can hide files, and both are shared by
all work trees. So git gets a temporary common directory: no setting, exclude, attribute, hook or ref of the
repository counts, only its objects. The user's own configuration counts, its ``includeIf`` as well: git still
knows the real git directory.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from ralphd.git.runner import GitRunner
from ralphd.plain_files import read_plain

_PREFIX: Final = "git."
_SHALLOW_BYTES: Final = 16 << 20
_CONFIG: Final = """\
[core]
repositoryformatversion = {version}
bare = false
excludesFile = /dev/null
attributesFile = /dev/null
sparseCheckout = false
splitIndex = false
untrackedCache = false
autocrlf = false
eol = lf
fileMode = true
symlinks = true
ignoreCase = false
"""


@contextmanager
def isolated(git: GitRunner, scratch: Path | None = None) -> Iterator[dict[str, str]]:
    """Provide variables for git; the index is that of the work tree, fetched objects are the repository's.

    ``scratch`` is a directory that no run can write. Refs are copies: new ones are gone at the end.
    """
    for each in () if scratch is None else scratch.glob(f"{_PREFIX}*"):  # of daemons that were killed
        if not Path("/proc", each.name.split(".")[1]).exists():
            shutil.rmtree(each, ignore_errors=True)
    with TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}.", dir=scratch) as name:
        common, real = Path(name), git.repository.common
        is_sha256 = git.line("rev-parse", "--show-object-format") == "sha256"
        extension = "[extensions]\nobjectFormat = sha256\n" if is_sha256 else ""
        (common / "config").write_text(_CONFIG.format(version=int(is_sha256)) + extension)
        (common / "refs").mkdir()
        refs = git.output("for-each-ref", "--format=%(objectname) %(refname)")  # what a fetch need not bring
        (common / "packed-refs").write_bytes(refs)
        with suppress(OSError):
            (common / "shallow").write_bytes(read_plain(real / "shallow", _SHALLOW_BYTES))
        yield {
            "GIT_DIR": str(git.repository.git),
            "GIT_COMMON_DIR": name,
            "GIT_WORK_TREE": str(git.top),
            "GIT_OBJECT_DIRECTORY": str(real / "objects"),
        }
