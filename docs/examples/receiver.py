import base64
import hashlib
import hmac
import time


def is_from_ralphd(secret: str, headers: dict[str, str], body: bytes) -> bool:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    fresh = abs(time.time() - int(headers["webhook-timestamp"])) < 300
    given = [word.removeprefix("v1,") for word in headers["webhook-signature"].split(" ")]
    return fresh and any(hmac.compare_digest(digest, each) for each in given)
