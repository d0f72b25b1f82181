"""Names that all machines of a fleet spell alike: repositories, branches, keys, hosts, items.

A repository is its URL without what differs between hosts: user, password, transport, ``.git``. Transports
that do not authenticate the server keep their scheme: ``github.com/team/*`` does not allow ``http://``.
"""

import base64
import fnmatch
import hashlib
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

from ralphd.core.fleet.model import HostName, ItemId

MOST_URL_CHARS: Final = 1000
MOST_BRANCH_BYTES: Final = 200
_PORTS: Final = {"ssh": "22", "https": "443", "http": "80", "git": "9418"}
_PRIVATE: Final = ("ssh", "https")
_URL: Final = re.compile(
    # What curl ends a host with (? # \) is in no user name here: both have to find the same host.
    r"(?P<scheme>[a-z]+)://(?:[^/@?#\\]*@)?(?P<host>[^/@:]+)(?::(?P<port>\d{1,5}))?/(?P<path>[^?#]+)"
)
_SCP_LIKE: Final = re.compile(r"(?:[^/@:]+@)?(?P<host>[^/@:]+):(?P<path>(?!//|:).*)")
_SERVER: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,252}")
_HOST: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_ITEM: Final = re.compile(r"i-[a-z2-7]{4,26}")
_NOT_IN_BRANCHES: Final = re.compile(
    r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)|^[-./]|[./]$|^@$|^HEAD$"
)
"""git check-ref-format(1), and ``HEAD``."""


def normalized_url(url: str) -> str:
    """Return ``host[:port]/path``, or an absolute path. Raises ValueError for what is neither."""
    if url.isprintable() and len(url) <= MOST_URL_CHARS and not url.startswith("-") and "\\" not in url:
        if url.startswith("file:///"):
            return "/" + _path(unquote(url.removeprefix("file://")))
        if url.startswith("/"):
            return "/" + _path(url)
        match = _URL.fullmatch(url) or _SCP_LIKE.fullmatch(url)
        if match and _SERVER.fullmatch(host := match["host"].lower()):
            return _remote(match.groupdict(), host)
    raise ValueError(f"not the URL of a git remote: {url[:80]!r}")


def _remote(url: dict[str, str | None], host: str) -> str:
    path, scheme, port = url["path"] or "", url.get("scheme"), url.get("port")
    if scheme is None:
        return f"{host}/{_path(path)}"
    if scheme not in _PORTS:
        raise ValueError(f"not a transport of a fleet: {scheme}")
    its_port = "" if port in (None, _PORTS[scheme]) else f":{port}"
    return f"{'' if scheme in _PRIVATE else scheme + '://'}{host}{its_port}/{_path(unquote(path))}"


def _path(path: str) -> str:
    parts = [part for part in path.split("/") if part]
    if parts:
        parts[-1] = parts[-1].removesuffix(".git")
    if not all(parts) or not parts or {".", ".."} & set(parts) or not path.isprintable():
        raise ValueError(f"not the path of a repository: {path[:80]!r}")
    return "/".join(parts)


def repo_id(url: str) -> str:
    """Return the short id of a repository, the same for each of its URLs. Raises ValueError."""
    return hashlib.sha256(normalized_url(url).encode()).hexdigest()[:16]


def is_allowed(url: str, globs: Iterable[str]) -> bool:
    """Return whether a glob (``github.com/team/*``) matches a repository.

    A ``*`` of the host never reaches into the path; a glob without a path allows the whole host.
    """
    try:
        scheme, host, path = _parts(normalized_url(url))
    except ValueError:
        return False
    for glob in globs:
        its_scheme, its_host, its_path = _parts(_normalized_glob(glob))
        hosts_match = its_scheme == scheme and fnmatch.fnmatchcase(host, its_host)
        if hosts_match and fnmatch.fnmatchcase(path, its_path or "*"):
            return True
    return False


def _normalized_glob(glob: str) -> str:
    try:
        return normalized_url(glob)
    except ValueError:
        return glob.strip().removesuffix("/").removesuffix(".git")


def _parts(normalized: str) -> tuple[str, str, str]:
    scheme, _, rest = normalized.rpartition("://")
    return scheme, *rest.partition("/")[::2]


def is_host_name(text: str) -> bool:
    """Return whether ``text`` names a host: ``^[a-z0-9][a-z0-9-]{0,62}$``."""
    return _HOST.fullmatch(text) is not None


def is_item_id(text: str) -> bool:
    """Return whether ``text`` is the id of an item."""
    return _ITEM.fullmatch(text) is not None


def is_branch(text: str) -> bool:
    """Return whether git takes ``text`` as the name of a branch, and a key has room for it."""
    is_short = 0 < len(text) <= MOST_BRANCH_BYTES and len(text.encode(errors="replace")) <= MOST_BRANCH_BYTES
    return is_short and text.isprintable() and not _NOT_IN_BRANCHES.search(text)


def new_item_id(random_bytes: bytes) -> ItemId:
    """Return an id made of at least five random bytes."""
    return ItemId(f"i-{encoded_name(random_bytes[:10])}")


def encoded_name(name: str | bytes) -> str:
    """Return ``name`` in characters that keys, subjects and refs have: lower-case base32, ``-`` if empty."""
    data = name.encode() if isinstance(name, str) else name
    return base64.b32encode(data).decode().rstrip("=").lower() or "-"


def decoded_name(text: str) -> str:
    """Return the name that was encoded. Raises ValueError."""
    padded = "" if text == "-" else text.upper() + "=" * (-len(text) % 8)
    name = base64.b32decode(padded).decode()
    if encoded_name(name) != text:
        raise ValueError(f"not an encoded name: {text[:80]!r}")
    return name


def lease_key(repository_id: str, branch: str) -> str:
    """Return the key of a branch's lease."""
    return f"{repository_id}.{encoded_name(branch)}"


def branch_of(key: str) -> str:
    """Return the branch of a lease's key. Raises ValueError."""
    return decoded_name(key.partition(".")[2])


def account_key(agent: str, account: str) -> str:
    """Return the key of an account's limit."""
    return f"{encoded_name(agent)}.{encoded_name(account)}"


def want_key(host: HostName, ralph: str) -> str:
    """Return the key of what a person wants of a ralph."""
    return f"{host}.{encoded_name(ralph)}"
