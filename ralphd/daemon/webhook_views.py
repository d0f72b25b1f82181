"""Webhooks from wherever they come, and how the API shows them: never an address in full, never a secret.

What stands behind the host in an address is what Slack and ntfy take for a password.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ralphd.config import Configuration
from ralphd.core.delivery import Answer, Answered, DeliveryState, Destination, KeptDelivery, why_failed
from ralphd.core.moments import rfc3339
from ralphd.store.webhooks_file import Added, Gone

View = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Hook:
    """A webhook and where it comes from: a file and line (``place``), or the API (``added``).

    ``ralphs`` are those whose files name it; None: it is told of all, and of the daemon.
    """

    destination: Destination
    place: str | None = None
    ralphs: tuple[str, ...] | None = None
    added: Added | None = None


def configured(
    users: Configuration, ralphs: Iterable[tuple[str, Path, Configuration]], added: Mapping[str, Added]
) -> dict[str, Hook]:
    """Every webhook there is, by id.

    One that is in several places is sent to as the user's own file says, else as it was added: a repository
    that names the same address must not change how its messages are signed. Of ralphs' files the last holds.
    """
    found = {id: Hook(one.destination, added=one) for id, one in added.items()}
    found |= {to.id: Hook(to, place, added=added.get(to.id)) for to, place in _of_files(users, None)}
    of_all = frozenset(found)
    for name, directory, configuration in ralphs:
        for to, place in _of_files(configuration, directory):
            if to.id in of_all:
                continue
            known = found.get(to.id)
            names = (*(known.ralphs or () if known else ()), name)
            found[to.id] = Hook(to, (known.place if known else None) or place, names)
    return found


def _of_files(configuration: Configuration, directory: Path | None) -> list[tuple[Destination, str]]:
    """The webhooks of a configuration with the file and line of each."""
    places = []
    for index, to in enumerate(configuration.destinations()):
        origin = configuration.origins.get(f"webhooks[{index}]")
        text = origin.text if origin else "its configuration"
        is_whole = directory is None or text.startswith("/") or origin is None
        places.append((to, text if is_whole else f"{directory}/{text}"))
    return places


def hook_view(hook: Hook, gone: Gone | None, last: KeptDelivery | None) -> View:
    """One webhook."""
    to = hook.destination
    return {
        "id": to.id,
        "where": to.label,
        "on": list(to.on),
        "format": to.format.value,
        "allow_private": to.allow_private,
        "secret": _secret_view(hook),
        "origin": "file" if hook.place else "added",
        "place": hook.place,
        "ralphs": None if hook.ralphs is None else list(hook.ralphs),
        "added_at": None if hook.added is None else rfc3339(hook.added.added_at),
        "gone": None if gone is None else {"why": gone.why, "at": rfc3339(gone.at)},
        "last": None if last is None else delivery_view(last, to),
    }


def _secret_view(hook: Hook) -> View | None:
    """Where the secret is, never what it is."""
    to = hook.destination
    if to.secret_file is not None:
        is_made = hook.added is not None and hook.added.is_made and hook.place is None
        return {"origin": "made" if is_made else "file", "name": to.secret_file}
    return None if to.secret_env is None else {"origin": "environment", "name": to.secret_env}


def delivery_view(kept: KeptDelivery, to: Destination | None) -> View:
    """One delivery, and what became of it so far."""
    delivery, waits = kept.delivery, kept.state is DeliveryState.PENDING
    return {
        "id": delivery.id,
        "webhook": delivery.destination,
        "where": None if to is None else to.label,
        "message_id": delivery.message_id,
        "event": {
            "id": delivery.event.id,
            "type": delivery.event.type,
            "at": delivery.event.at,
            "ralph": delivery.event.ralph,
        },
        "state": kept.state.value,
        "queued_at": rfc3339(delivery.queued_at),
        "failures": delivery.failures,
        "next_at": rfc3339(delivery.next_at) if waits else None,
        "why": None if kept.state is DeliveryState.DELIVERED else kept.last_error,
        "done_at": None if kept.done_at is None else rfc3339(kept.done_at),
    }


def view_of_test(to: Destination, answer: Answer, *, took_s: float, is_back: bool) -> View:
    """What came of a test. ``is_back``: it had gone, and is sent to again."""
    why = why_failed(answer)
    return {
        "id": to.id,
        "where": to.label,
        "arrived": why is None,
        "status": answer.status if isinstance(answer, Answered) else None,
        "why": why,
        "took_s": round(took_s, 3),
        "back": is_back,
    }
