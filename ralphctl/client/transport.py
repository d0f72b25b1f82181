"""One request to the daemon: connect to the first socket that answers, send, and map failures to errors.

Loaded by ``status``. A refusal becomes the error that its problem document names (RFC 9457).
"""

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

from ralphd import errors, wire
from ralphd.errors import DaemonBusy, DaemonNotRunning, InternalError, RalphdError
from ralphd.unix_http import BadReply, CutOff, HttpReply, UnixConnection

ANSWER_S = 10.0
_QUIET_S = 1.0
OnSlow = Callable[[], None] | None


def get(paths: Sequence[str], target: str, *, timeout_s: float = ANSWER_S, on_slow: OnSlow = None) -> bytes:
    """Return the body of the reply to a GET request. Raise as ``connect`` and ``exchange`` do."""
    with exchange(connect(paths, timeout_s=timeout_s), "GET", target, on_slow=on_slow) as response:
        return response.read()


@contextmanager
def exchange(
    connection: UnixConnection, method: str, target: str, body: str | None = None, *,
    headers: Mapping[str, str] = MappingProxyType({}), on_slow: OnSlow = None,
) -> Iterator[HttpReply]:  # fmt: skip
    """Yield the response to one request; the connection ends with the block.

    ``on_slow`` is called once if the reply takes longer than a second. Raise DaemonNotRunning if the daemon
    ends meanwhile, and the RalphdError that its problem document names if it refuses.
    """
    sent = {"Accept": "application/json", **headers} | ({"Content-Type": "application/json"} if body else {})
    try:
        connection.request(method, wire.API + target, None if body is None else body.encode(), sent)
        if on_slow is not None and not connection.replies_within(_QUIET_S):
            on_slow()
        with connection.getresponse() as response:
            if response.status >= 400:
                raise error_of(response.status, response.read())
            yield response
    except TimeoutError:
        raise _silent(connection) from None
    except CutOff as fault:
        raise _went_away("the reply was cut short") from fault
    except BadReply as fault:
        what = "what answers on the socket does not speak HTTP"
        raise InternalError(what, mend="ralphctl regent status") from fault
    except OSError as fault:
        raise _went_away(_in_words(fault)) from fault
    finally:
        connection.close()


def connect(paths: Sequence[str], *, timeout_s: float = ANSWER_S) -> UnixConnection:
    """Connect to the first of ``paths`` where somebody listens.

    Raise DaemonNotRunning with all that was tried, DaemonBusy for a daemon that does not answer, and
    Forbidden for one of another user.
    """
    tried = []
    for path in paths:
        connection = UnixConnection(path, timeout_s)
        try:
            connection.connect()
        except (TimeoutError, BlockingIOError):
            raise _silent(connection) from None
        except OSError as fault:
            tried.append(f"{path}: {_in_words(fault)}")
        else:
            _check_peer(connection)
            return connection
    why = "\n".join(f"looked at {line}" for line in tried)
    raise DaemonNotRunning("no ralphd is running", why=why, mend="ralphctl regent start")


def _check_peer(connection: UnixConnection) -> None:
    uid = connection.peer_uid()
    if os.geteuid() in (0, uid) or uid == 0:
        return
    connection.close()
    what = f"the daemon at {connection.path} belongs to another user"
    why = f"it runs as uid {uid}, you are uid {os.geteuid()}; nothing was sent to it"
    mend = "ralphctl regent start  (a daemon of your own), or --socket PATH"
    raise errors.Forbidden(what, why=why, mend=mend)


def _in_words(fault: OSError) -> str:
    words = {errno.ECONNREFUSED: "nobody listens"}
    words |= dict.fromkeys((errno.ENOENT, errno.ENOTDIR), "nothing is there")
    return words.get(fault.errno or 0) or fault.strerror or str(fault) or type(fault).__name__


def _silent(connection: UnixConnection) -> DaemonBusy:
    what = f"ralphd did not answer within {connection.timeout_s:g} s"
    kill = f"kill -9 $(cat '{wire.state_directory(os.environ)}/lock')  (if it hangs: its runs continue)"
    is_own = connection.path == wire.socket_path(os.environ)
    mend = "ralphctl regent logs" + (f"\n{kill}\nralphctl regent start" if is_own else "")
    return DaemonBusy(what, why=f"it listens at {connection.path}", mend=mend)


def _went_away(why: str) -> DaemonNotRunning:
    return DaemonNotRunning("ralphd went away while it answered", why=why, mend="ralphctl regent start")


def error_of(status: int, body: bytes) -> RalphdError:
    """Return the error that a problem document describes; InternalError if ``body`` is not one."""
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        return InternalError(f"ralphd answered {status} without saying why", mend="ralphctl regent logs")
    slug = str(document.get("type", "")).removeprefix(errors.PROBLEM_PREFIX)
    kind = errors.BY_SLUG.get(slug) or (InternalError if status >= 500 else RalphdError)
    why = [str(document["why"])] if document.get("why") else []
    faults = document.get("errors")
    if isinstance(faults, list):
        why += [line for line in map(_fault_line, faults) if line not in "\n".join(why)]
    what = str(document.get("detail") or document.get("title") or f"ralphd answered {status}")
    return kind(what, why="\n".join(why), mend=str(document.get("try") or ""))


def _fault_line(entry: object) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    return ": ".join(str(entry[key]) for key in ("place", "key", "detail", "message") if entry.get(key))
