"""The headers of Standard Webhooks, and the key that a secret stands for. Pure: the moment comes in."""

import base64
import binascii
import hashlib
import hmac

from ralphd.core.model import Moment

SECRET_PREFIX = "whsec_"  # noqa: S105 - the name of a form, not a secret
SECRET_BYTES = 32
"""How many bytes of chance a secret that we make holds."""


class BadSecret(ValueError):
    """A ``whsec_`` secret whose rest is not base64, or an empty one."""


def secret_key(text: str) -> bytes:
    """The key that a secret stands for: ``whsec_<base64>``, or any other text as it is. Raises BadSecret."""
    text = text.strip()
    if not text.startswith(SECRET_PREFIX):
        key = text.encode()
    else:
        try:
            key = base64.b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
        except binascii.Error as error:
            raise BadSecret("the part after whsec_ is not base64") from error
    if not key:
        raise BadSecret("it is empty")
    return key


def secret_text(chance: bytes) -> str:
    """The secret that holds ``chance``, as receivers take it."""
    return SECRET_PREFIX + base64.b64encode(chance).decode()


def signature_headers(message: str, at: Moment, payload: bytes, key: bytes | None) -> dict[str, str]:
    """Who sent a message, and when; without a key it goes out unsigned."""
    timestamp = str(int(at))
    plain = {"webhook-id": message, "webhook-timestamp": timestamp}
    if key is None:
        return plain
    digest = hmac.new(key, f"{message}.{timestamp}.".encode() + payload, hashlib.sha256).digest()
    return plain | {"webhook-signature": f"v1,{base64.b64encode(digest).decode()}"}
