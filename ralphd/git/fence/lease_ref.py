"""Store a lease as a git object: names of its refs, encoding, decoding.

Whoever can push can put anything under such a ref: what is too large, not JSON or of a newer version reads as
None, which is never a lease of ours.
"""

import json
from enum import StrEnum
from typing import Final

from ralphd.core.fleet.checked import read_value, write_value
from ralphd.core.fleet.model import Lease, LeaseForm
from ralphd.dataclass import dataclass
from ralphd.git.runner import OWN_IDENTITY, GitRunner

MOST_LEASE_BYTES: Final = 16 << 10


class Aside(StrEnum):
    """Why commits are saved outside of their branch: their holder was fenced, or HEAD was rewound."""

    STALE = "stale"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The lease ref and the tip of the branch on the remote; empty: absent.

    ``lease`` is None where the ref is absent or what it points to cannot be read as a lease.
    """

    sha: str = ""
    lease: Lease | None = None
    tip: str = ""

    def lease_of(self, lease: Lease) -> Lease | None:
        """Return the lease if it is of the same host since the same claim; what was pushed may differ."""
        present, same = self.lease, (lease.host, lease.boot, lease.token)
        return present if present and (present.host, present.boot, present.token) == same else None


def write_lease(git: GitRunner, form: LeaseForm, lease: Lease) -> str:
    """Create the object of a lease in the local repository and return its sha. Raises NotDone."""
    text = json.dumps(write_value(lease), sort_keys=True, separators=(",", ":"))
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
    """Return the lease in a JSON text; None where it is none."""
    try:
        lease = read_value(Lease, json.loads(content))
    except (ValueError, RecursionError):
        return None
    return lease if isinstance(lease, Lease) else None
