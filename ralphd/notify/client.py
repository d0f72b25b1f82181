"""Brings one message to one destination, signed, within a limit, and says what came back."""

import asyncio
import logging
import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from ralphd.core.delivery import (
    Answer,
    BadSecret,
    Destination,
    StoredEvent,
    Unreached,
    secret_key,
    signature_headers,
)
from ralphd.core.time import Moment
from ralphd.core.webhook_payloads import posted

# The signing secret of a destination, read when it is needed and kept nowhere.

_SECRET_BYTES = 4096


def key_of(destination: Destination, environ: Mapping[str, str]) -> bytes | None:
    """The signing key as it is now; None for a destination without a secret. Blocks.

    Raises BadSecret, whose text says what is wrong with it, and never what it is.
    """
    if destination.secret_file is not None:
        return secret_key(_text(Path(destination.secret_file).expanduser()))
    if destination.secret_env is not None:
        if destination.secret_env not in environ:
            raise BadSecret(f"the environment of ralphd has no {destination.secret_env}")
        return secret_key(environ[destination.secret_env])
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


class Post(Protocol):
    """``ralphd.notify.http.post``, which is imported at first use."""

    async def __call__(
        self, url: str, *, headers: dict[str, str], payload: bytes, allow_private: bool
    ) -> Answer:
        """Post and say what came back."""


class WebhookClient:
    """Makes one try at a time; it neither repeats nor remembers anything.

    Secrets are read from their file or from ``environ`` for each message.
    """

    def __init__(
        self, *, clock: Callable[[], Moment] = time.time, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._clock = clock
        self._environ = environ

    async def ask(self, destination: Destination, event: StoredEvent, message_id: str) -> Answer:
        """Bring ``event`` there under this ``webhook-id``. Raises nothing but a cancel."""
        try:
            async with asyncio.timeout(SEND_LIMIT_S):
                return await self._post(destination, event, message_id)
        except TimeoutError:
            return Unreached(f"no answer within {SEND_LIMIT_S:g} s")
        except Exception as error:  # one message that trips over a bug must not end all sending
            logger.exception("webhook could not be sent to %s", destination.label)
            return Unreached(f"internal error: {type(error).__name__}")

    async def why_unusable(self, destination: Destination) -> str | None:
        """What is wrong with the destination's secret, if anything is."""
        try:
            await asyncio.to_thread(key_of, destination, self._environ)
        except BadSecret as error:
            return str(error)
        return None

    async def _post(self, destination: Destination, event: StoredEvent, message_id: str) -> Answer:
        # httpx costs the daemon 6 MB and 0.1 s, which is paid by those who use webhooks, and not by the loop.
        post = await asyncio.to_thread(_load_post)
        try:
            key = await asyncio.to_thread(key_of, destination, self._environ)
        except BadSecret as error:
            return Unreached(f"the secret cannot be used: {error}")
        message = posted(event, destination.format)
        signed = signature_headers(message_id, self._clock(), message.payload, key)
        return await post(
            destination.url,
            headers={**message.headers, **signed},
            payload=message.payload,
            allow_private=destination.allow_private,
        )


def _load_post() -> Post:
    from ralphd.notify.http import post

    return post
