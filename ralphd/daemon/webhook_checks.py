"""Whether a webhook may be added over the API: its address, its events, its secret, and nothing private."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ralphd.config.checks import an_address, event_patterns, storable
from ralphd.config.files import user_file
from ralphd.core.addresses import why_not
from ralphd.core.delivery import Destination, Format
from ralphd.errors import UsageError, WebhookRefused

MOST_URL_CHARS = 2048


@dataclass(frozen=True, slots=True)
class NewWebhook:
    """What is to be added. Of ``secret_file``, an absolute path, and ``secret_env`` one at most."""

    url: str
    on: tuple[str, ...] = ("ralph.escalated",)
    format: Format = Format.JSON
    secret_file: str | None = None
    secret_env: str | None = None
    allow_private: bool = False


def checked(asked: NewWebhook, *, may_be_private: bool) -> Destination:
    """The destination that is asked for. Raises UsageError, WebhookRefused.

    ``may_be_private``: the user's own file allows private addresses to those who ask for one.
    """
    try:
        url = an_address(storable(asked.url))
    except ValueError as fault:
        raise UsageError(f"the address {fault}", mend="ralphctl webhooks add https://HOST/PATH") from fault
    if len(url) > MOST_URL_CHARS:
        raise UsageError(f"the address is longer than {MOST_URL_CHARS} characters")
    try:
        on = event_patterns(asked.on)
    except ValueError as fault:
        raise UsageError(str(fault), mend="ralphctl webhooks add URL --on 'ralph.*'") from fault
    if not on:
        raise UsageError("the webhook would be told of nothing", mend="leave --on out, or name an event")
    if asked.secret_file and asked.secret_env:
        raise UsageError("there are two secrets, one in a file and one in a variable", mend="give one")
    _refuse_private(url, is_asked=asked.allow_private, is_allowed=may_be_private)
    return Destination(
        url, on, asked.format, asked.allow_private, asked.secret_file or None, asked.secret_env or None
    )


def _refuse_private(url: str, *, is_asked: bool, is_allowed: bool) -> None:
    file = user_file(os.environ, Path(os.environ.get("HOME", "/")))
    if is_asked and not is_allowed:
        raise WebhookRefused(
            "private addresses are not allowed for webhooks that are added",
            why=f"whoever reaches the socket could have ralphd talk to what only this machine can reach;"
            f"\nonly {file} allows it: [notify] allow_private = true",
            mend="write that there, then ralphctl regent reload",
        )
    host = urlsplit(url).hostname or ""
    addresses = _written_addresses(host)
    if why := why_not(addresses, allow_private=is_asked):
        allow = f"[notify] allow_private = true in {file}, ralphctl regent reload, then add --allow-private"
        is_never = why_not(addresses, allow_private=True) is not None
        mend = "the address of a receiver: https://HOST/PATH" if is_never else allow
        raise WebhookRefused(f"nothing is sent to {host}", why=why, mend=mend)


def _written_addresses(host: str) -> list[str]:
    """The addresses that a host is, without asking anybody: a number in any form, or this machine's name."""
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return ["127.0.0.1"]
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return []
    return [str(info[4][0]) for info in found]
