"""Store a lease as a git object: names of its refs, encoding, decoding.

Whoever can push can put anything under such a ref: what is too large, not JSON or of a newer version reads as
None, which is never a lease of ours.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict
from enum import StrEnum
from typing import Any, Final

from ralphd.core.fleet.model import VERSION, HostName, ItemId, Lease
from ralphd.git.rewrite.move_branch import HEADS
from ralphd.git.runner import OWN_IDENTITY, GitRunner

MOST_LEASE_BYTES: Final = 16 << 10
_MOST_CHARS: Final = 256
_MOST_COUNT: Final = 1 << 53
_SHA: Final = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64})?")


class LeaseForm(StrEnum):
    """What a remote takes as a lease: a blob, only a commit, or only a commit as a branch."""

    BLOB = "blob"
    COMMIT = "commit"
    BRANCH = "branch"

    @property
    def prefix(self) -> str:
        """How the full names of the fleet's refs begin."""
        return f"{HEADS}ralph-" if self is LeaseForm.BRANCH else "refs/ralph/"


class Aside(StrEnum):
    """Why commits are saved outside of their branch: their holder was fenced, or HEAD was rewound."""

    STALE = "stale"
    LEFT = "left"


def write_lease(git: GitRunner, form: LeaseForm, lease: Lease) -> str:
    """Create the object of a lease in the local repository and return its sha. Raises NotDone."""
    text = json.dumps(asdict(lease), sort_keys=True, separators=(",", ":"))
    if form is LeaseForm.BLOB:
        return git.text("hash-object", "-w", "--stdin", given=text.encode())
    return git.commit_tree(git.text("mktree"), text, identity=OWN_IDENTITY)


def is_stored(git: GitRunner, sha: str) -> bool:
    """Whether the local repository has an object."""
    return git.run("cat-file", "-e", sha)[0] == 0


def read_lease(git: GitRunner, sha: str) -> Lease | None:
    """Return the lease in a local object; None if this version finds none in it. Raises NotDone."""
    kind, _, size = git.text(
        "cat-file", "--batch-check=%(objecttype) %(objectsize)", given=sha.encode()
    ).partition(" ")
    if kind not in ("blob", "commit") or not size.isdecimal() or int(size) > MOST_LEASE_BYTES:
        return None
    content = git.output("cat-file", kind, sha)
    return decode_lease(content.partition(b"\n\n")[2] if kind == "commit" else content)


def decode_lease(content: bytes) -> Lease | None:
    """Return the lease in a JSON text; None where a value is missing or of another type."""
    try:
        value: Mapping[str, Any] = json.loads(content)
        if not isinstance(value, dict) or value.get("v") != VERSION:
            return None
        item = value.get("item")
        return Lease(
            host=HostName(_text(value["host"])),
            boot=_text(value["boot"]),
            token=_count(value["token"]),
            n=_count(value["n"]),
            item=None if item is None else ItemId(_text(item)),
            pushed=_sha(value.get("pushed", "")),
            at=_moment(value.get("at", 0.0)),
        )
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > _MOST_CHARS or not value.isprintable():
        raise TypeError
    return value


def _sha(value: object) -> str:
    if not isinstance(value, str) or not _SHA.fullmatch(value):
        raise TypeError
    return value


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _MOST_COUNT:
        raise TypeError
    return value


def _moment(value: object) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]  # a number
        raise TypeError
    return float(value)  # type: ignore[arg-type]  # a number
