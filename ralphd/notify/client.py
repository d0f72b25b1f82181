"""Send one message to one destination, signed, within a limit.

The signing secret is read for each message and kept nowhere.
"""

import asyncio
import logging
import os
import select
import signal
import stat
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

from ralphd.core import alert, delivery
from ralphd.core.delivery import SECRET_PREFIX, Answer, BadSecret, Destination, StoredEvent, Unreached
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass
from ralphd.notify.payloads import posted
from ralphd.plain_files import Descriptor

_SECRET_BYTES = 4096
SECRET_LIMIT_S = 2.0


def key_of(destination: Destination, environ: Mapping[str, str]) -> bytes | None:
    """Return the signing key; None for a destination without a secret. Blocks.

    Raise BadSecret, whose text has the reason and never the secret.
    """
    if (text := _secret(destination, environ)) is None:
        return None
    if isinstance(destination, delivery.ProjectsDestination) and not text.startswith(SECRET_PREFIX):
        raise BadSecret(f"it has to be of the form {SECRET_PREFIX}…, since ralph.toml names it")
    return delivery.secret_key(text)


def _secret(destination: Destination, environ: Mapping[str, str]) -> str | None:
    if destination.secret_cmd:
        return _printed(destination.secret_cmd)
    if destination.secret_file is not None:
        return _text(_secret_path(destination.secret_file, environ))
    if (name := destination.secret_env) is not None and name not in environ:
        raise BadSecret(f"{name} is not set in the environment of ralphd")
    return None if name is None else environ[name]


def _secret_path(named: str, environ: Mapping[str, str]) -> Path:
    if not named.startswith(delivery.CREDENTIAL):
        return Path(named).expanduser()
    name = named.removeprefix(delivery.CREDENTIAL)
    if "CREDENTIALS_DIRECTORY" not in environ:
        raise BadSecret(f"{named}: the unit of ralphd has no LoadCredential=")
    if not name or "/" in name:
        raise BadSecret(f"{named} is not the name of a credential")
    return Path(environ["CREDENTIALS_DIRECTORY"], name)


def _printed(argv: Sequence[str]) -> str:
    """Return what a command prints; kill it, with its process group, after its end or at its limit."""
    until, printed = time.monotonic() + SECRET_LIMIT_S, b""
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        raise BadSecret(f"secret_cmd: {argv[0]}: {error.strerror}") from error
    assert process.stdout is not None
    with process.stdout as out:
        try:
            while select.select([out], [], [], max(until - time.monotonic(), 0))[0]:
                piece = os.read(out.fileno(), _SECRET_BYTES)
                printed += piece
                if not piece or len(printed) > _SECRET_BYTES:
                    break
            code = process.wait(max(until - time.monotonic(), 0.01))
        except subprocess.TimeoutExpired as error:
            raise BadSecret(f"secret_cmd: {argv[0]} did not end within {SECRET_LIMIT_S:g} s") from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code != 0 or len(printed) > _SECRET_BYTES:
        why = f"exits with {code}" if code else f"prints more than {_SECRET_BYTES} bytes"
        raise BadSecret(f"secret_cmd: {argv[0]} {why}")
    return printed.decode(errors="replace")


def _text(path: Path) -> str:
    try:
        # O_NONBLOCK: a FIFO without a writer must not hold the thread.
        with Descriptor(path, os.O_RDONLY | os.O_NONBLOCK) as fd:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise BadSecret(f"{path} is not a regular file")
            return os.read(fd, _SECRET_BYTES).decode()
    except UnicodeDecodeError as error:
        raise BadSecret(f"{path} is not text") from error
    except OSError as error:
        raise BadSecret(f"{path}: {error.strerror}") from error


logger = logging.getLogger(__name__)

SEND_LIMIT_S = 10.0
"""From the name lookup to the end of the reply."""
FactsOf: TypeAlias = Callable[[StoredEvent], Awaitable[alert.AlertFacts]]


@dataclass(frozen=True)
class WebhookClient:
    """Make one attempt to send; keep no state.

    ``facts_of`` returns the facts to send with an event, and raises nothing.
    """

    facts_of: FactsOf
    clock: Callable[[], Moment] = time.time
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    async def ask(self, destination: Destination, event: StoredEvent, message_id: str) -> Answer:
        """Send ``event`` under this ``webhook-id``. Raise nothing except for a cancellation."""
        try:
            async with asyncio.timeout(SEND_LIMIT_S):
                return await self._post(destination, event, message_id)
        except TimeoutError:
            return Unreached(f"no reply within {SEND_LIMIT_S:g} s")
        except Exception as error:  # a bug in one message must not end all sending
            logger.exception("webhook could not be sent to %s", destination.label)
            return Unreached(f"internal error: {type(error).__name__}")

    async def why_unusable(self, destination: Destination) -> str | None:
        """Return why the destination's secret cannot be used, or None."""
        try:
            await asyncio.to_thread(key_of, destination, self.environ)
        except BadSecret as error:
            return str(error)
        return None

    async def _post(self, destination: Destination, event: StoredEvent, message_id: str) -> Answer:
        # httpx costs the daemon 6 MB and 0.1 s: loaded at the first message, and not on the event loop.
        http = await asyncio.to_thread(import_module, "ralphd.notify.http")
        try:
            key = await asyncio.to_thread(key_of, destination, self.environ)
        except BadSecret as error:
            return Unreached(f"the secret cannot be used: {error}")
        message = posted(event, destination.format, await self.facts_of(event))
        signed = delivery.signature_headers(message_id, self.clock(), message.payload, key)
        headers, private = {**message.headers, **signed}, destination.allow_private
        answer: Answer = await http.post(
            destination.url, headers=headers, payload=message.payload, allow_private=private
        )
        return answer
