"""Webhooks from all sources, their checks, and their views, which have no full URL and no secret.

The path of a URL serves as the password for Slack and ntfy.
"""

import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ralphd.config.configuration import Configuration
from ralphd.config.files import user_file
from ralphd.config.values import an_address, event_patterns, hook_name, storable
from ralphd.core import delivery as outgoing
from ralphd.core.delivery import Answer, DeliveryState, Destination, KeptDelivery, ReceiverReply
from ralphd.core.time import rfc3339
from ralphd.dataclass import dataclass
from ralphd.errors import PrivateAddress, UsageError, WebhookRefused
from ralphd.store.webhooks import Added, Gone

View = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Hook:
    """A webhook and where it comes from: a file and line (``place``), or the API (``added``).

    ``ralphs`` are those whose files name it; None: it gets all events, also those of the daemon.
    """

    destination: Destination
    place: str | None = None
    ralphs: tuple[str, ...] | None = None
    added: Added | None = None

    def with_(self, **changes: Any) -> "Hook":
        """Return the same webhook with these changes of its destination."""
        return replace(self, destination=replace(self.destination, **changes))


def configured(
    users: Configuration, ralphs: Iterable[tuple[str, Path, Configuration]], added: Mapping[str, Added],
    own_file: str | None = None,
) -> dict[str, Hook]:  # fmt: skip
    """Return every webhook, by id. What ralphs are pinned to of ``own_file`` does not count.

    Of several sources the user's own file wins, then the request that added it: a repository that names the
    same URL must not change how its messages are signed. Of several ralphs' files the last one wins.
    """
    hooks = {id: Hook(one.destination, added=one) for id, one in added.items()}
    hooks |= {to.id: Hook(to, place, added=added.get(to.id)) for to, place in users.hooks()}
    of_all = frozenset(hooks)
    for name, directory, configuration in ralphs:
        for to, place in configuration.hooks(without=own_file):
            if to.id in of_all:
                continue
            if own_file and isinstance(to, outgoing.ProjectsDestination):  # that file allows it no longer
                to = replace(to, allow_private=False)
            known = hooks.get(to.id, Hook(to, str(directory / place)))
            hooks[to.id] = Hook(to, known.place, (*(known.ralphs or ()), name))
    return _named(hooks)


def _named(hooks: Mapping[str, Hook]) -> dict[str, Hook]:
    """Give each webhook its own name: the first one that asks for a name gets it, the others a free one."""
    names: dict[str, str] = {}
    for id, hook in sorted(hooks.items(), key=lambda item: not item[1].destination.name):
        to, taken = hook.destination, names.values()
        names[id] = to.name if to.name and to.name not in taken else outgoing.default_name(to, taken)
    return {id: hook.with_(name=names[id]) for id, hook in hooks.items()}


def hook_view(hook: Hook, gone: Gone | None, last: KeptDelivery | None) -> View:
    """Return one webhook as the API shows it."""
    to = hook.destination
    secret = None
    if to.secret_file is not None:
        is_made = hook.added is not None and hook.added.is_made and hook.place is None
        secret = {"origin": "made" if is_made else "file", "name": to.secret_file}
    elif to.secret_cmd:
        secret = {"origin": "command", "name": to.secret_cmd[0]}
    elif to.secret_env is not None:
        secret = {"origin": "environment", "name": to.secret_env}
    return {
        "id": to.id,
        "name": to.name,
        "where": to.label,
        "on": list(to.on),
        "format": to.format.value,
        "allow_private": to.allow_private,
        "secret": secret,
        "origin": "file" if hook.place else "added",
        "place": hook.place,
        "ralphs": None if hook.ralphs is None else list(hook.ralphs),
        "added_at": None if hook.added is None else rfc3339(hook.added.added_at),
        "gone": None if gone is None else {"why": gone.why, "at": rfc3339(gone.at)},
        "last": None if last is None else delivery_view(last, to),
    }


def delivery_view(kept: KeptDelivery, to: Destination | None) -> View:
    """Return one delivery and its state."""
    delivery, event = kept.delivery, kept.delivery.event.as_object()
    return {
        "id": delivery.id, "webhook": delivery.destination,
        "name": None if to is None else to.name,
        "where": None if to is None else to.label,
        "message_id": delivery.message_id,
        "event": {key: event[key] for key in ("id", "type", "at", "ralph")},
        "state": kept.state.value, "queued_at": rfc3339(delivery.queued_at), "failures": delivery.failures,
        "next_at": rfc3339(delivery.next_at) if kept.state is DeliveryState.PENDING else None,
        "why": None if kept.state is DeliveryState.DELIVERED else kept.last_error,
        "done_at": None if kept.done_at is None else rfc3339(kept.done_at),
    }  # fmt: skip


def view_of_test(to: Destination, answer: Answer, *, took_s: float, is_back: bool) -> View:
    """Return the result of a test. ``is_back``: it had answered 410 and is enabled again."""
    why = outgoing.why_failed(answer)
    return {
        "id": to.id, "name": to.name, "where": to.label, "arrived": why is None,
        "status": answer.status if isinstance(answer, ReceiverReply) else None,
        "why": why, "took_s": round(took_s, 3), "back": is_back,
    }  # fmt: skip


MOST_URL_CHARS = 2048


def checked(asked: Destination, *, may_be_private: bool) -> Destination:
    """Return a webhook as it can be stored. Raise UsageError, WebhookRefused, PrivateAddress.

    ``may_be_private``: the user's own file allows private addresses for webhooks that ask for them.
    """
    what = "the URL "
    try:
        if len(asked.url) > MOST_URL_CHARS:
            raise ValueError(f"has {len(asked.url)} characters, more than {MOST_URL_CHARS}")
        url = an_address(storable(asked.url))
        what = "the name "
        hook_name(asked.name)
        what = ""
        on = event_patterns(asked.on)
    except ValueError as fault:
        raise UsageError(f"{what}{fault}", mend="ralphctl webhooks add --help") from fault
    if not on:
        raise UsageError("no event is selected", mend="omit --on, or name an event")
    if asked.secret_file and asked.secret_env:
        raise UsageError("--secret-file and --secret-env exclude each other", mend="use one of them")
    _refuse_private(url, is_asked=asked.allow_private, is_allowed=may_be_private)
    file, variable = asked.secret_file or None, asked.secret_env or None
    return replace(asked, url=url, on=on, secret_file=file, secret_env=variable)


def _refuse_private(url: str, *, is_asked: bool, is_allowed: bool) -> None:
    host = urlsplit(url).hostname or ""
    addresses = _written_addresses(host)
    if why := outgoing.why_not(addresses, allow_private=True):
        raise WebhookRefused(f"nothing is sent to {host}", why=why, mend="use the URL of a receiver")
    if is_asked and not is_allowed:
        file = user_file(os.environ, Path(os.environ.get("HOME", "/")))
        raise PrivateAddress(
            "private addresses are not allowed for webhooks that a command adds",
            why=f"only you can allow them: notify.allow_private = true in {file}",
            mend="in your own shell, not in a run: ralphctl webhooks add --allow-private URL",
        )
    if not is_asked and outgoing.why_not(addresses, allow_private=False):
        raise WebhookRefused(f"{host} is a private address", mend="ralphctl webhooks add --allow-private URL")


def _written_addresses(host: str) -> list[str]:
    # Without a lookup: an address as a number in any notation, or the name of this machine.
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return ["127.0.0.1"]
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return []
    return [str(info[4][0]) for info in infos]
