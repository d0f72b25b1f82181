"""Send one message to one destination, signed, within a limit.

The signing secret is read for each message and kept nowhere.
"""

import asyncio
import logging
import os
import stat
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from ralphd.core import delivery
from ralphd.core.delivery import Answer, BadSecret, Destination, StoredEvent, Unreached
from ralphd.core.time import Moment
from ralphd.notify.payloads import posted

_SECRET_BYTES = 4096


def key_of(destination: Destination, environ: Mapping[str, str]) -> bytes | None:
    """Return the signing key; None for a destination without a secret. Blocks.

    Raises BadSecret, whose text says what is wrong with it, and never what it is.
    """
    if destination.secret_file is not None:
        return delivery.secret_key(_text(Path(destination.secret_file).expanduser()))
    if destination.secret_env is not None:
        if destination.secret_env not in environ:
            raise BadSecret(f"the environment of ralphd has no {destination.secret_env}")
        return delivery.secret_key(environ[destination.secret_env])
    return None


def _text(path: Path) -> str:
    try:
        # O_NONBLOCK: a FIFO without a writer must not hold the thread.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadSecret(f"{path}: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise BadSecret(f"{path} is not a plain file")
        return os.read(fd, _SECRET_BYTES).decode()
    except UnicodeDecodeError as error:
        raise BadSecret(f"{path} is not text") from error
    except OSError as error:
        raise BadSecret(f"{path}: {error.strerror}") from error
    finally:
        os.close(fd)


logger = logging.getLogger(__name__)

SEND_LIMIT_S = 10.0
"""From the look-up of the name to the end of the answer."""


class WebhookClient:
    """Makes one attempt; it neither retries nor remembers anything."""

    def __init__(
        self, *, clock: Callable[[], Moment] = time.time, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._clock = clock
        self._environ = environ

    async def ask(self, destination: Destination, event: StoredEvent, message_id: str) -> Answer:
        """Send ``event`` under this ``webhook-id``. Raises nothing but a cancel."""
        try:
            async with asyncio.timeout(SEND_LIMIT_S):
                return await self._post(destination, event, message_id)
        except TimeoutError:
            return Unreached(f"no answer within {SEND_LIMIT_S:g} s")
        except Exception as error:  # a bug in one message must not end all sending
            logger.exception("webhook could not be sent to %s", destination.label)
            return Unreached(f"internal error: {type(error).__name__}")

    async def why_unusable(self, destination: Destination) -> str | None:
        """Return what is wrong with the destination's secret, if anything is."""
        try:
            await asyncio.to_thread(key_of, destination, self._environ)
        except BadSecret as error:
            return str(error)
        return None

    async def _post(self, destination: Destination, event: StoredEvent, message_id: str) -> Answer:
        # httpx costs the daemon 6 MB and 0.1 s: loaded at the first message, and not on the event loop.
        http = await asyncio.to_thread(import_module, "ralphd.notify.http")
        try:
            key = await asyncio.to_thread(key_of, destination, self._environ)
        except BadSecret as error:
            return Unreached(f"the secret cannot be used: {error}")
        message = posted(event, destination.format)
        signed = delivery.signature_headers(message_id, self._clock(), message.payload, key)
        answer: Answer = await http.post(
            destination.url,
            headers={**message.headers, **signed},
            payload=message.payload,
            allow_private=destination.allow_private,
        )
        return answer
