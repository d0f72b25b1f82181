"""``webhooks.json``: the webhooks that were added over the API, and who wants nothing more.

Addresses are in it, since they are sent to; secrets never are: one that ralphd made up lies in a file of its
own, ``webhooks/ID.secret``.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from ralphd.config.values import an_address, event_patterns
from ralphd.core.delivery import Destination, Format
from ralphd.core.time import Moment, parse_rfc3339, rfc3339
from ralphd.store.files import as_json, make_private_directory, read_versioned, set_aside_as, write_whole

WEBHOOKS_FILE: Final = "webhooks.json"
WEBHOOKS_VERSION: Final = 1
MOST_WEBHOOKS: Final = 100
MOST_GONE: Final = 200


@dataclass(frozen=True, slots=True)
class Added:
    """A webhook that was added over the API. ``is_made``: its secret was made up here."""

    destination: Destination
    added_at: Moment
    is_made: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """A destination, of whatever origin, answered that it wants nothing more."""

    why: str
    at: Moment


@dataclass(frozen=True, slots=True)
class Webhooks:
    """What the file holds, by the destinations' ids."""

    added: Mapping[str, Added] = field(default_factory=dict)
    gone: Mapping[str, Gone] = field(default_factory=dict)

    def with_added(self, one: Added) -> "Webhooks":
        """With one more, which is wanted again if it had gone."""
        return replace(self, added={**self.added, one.destination.id: one}).without_gone(one.destination.id)

    def without(self, id: str) -> "Webhooks":
        """Without that one."""
        return replace(self, added=_less(self.added, id)).without_gone(id)

    def with_gone(self, id: str, gone: Gone) -> "Webhooks":
        """With the word of a destination that is gone; of too many, the oldest are forgotten."""
        every = {**_less(self.gone, id), id: gone}
        return replace(self, gone=dict(list(every.items())[-MOST_GONE:]))

    def without_gone(self, id: str) -> "Webhooks":
        """Somebody wants it tried again."""
        return replace(self, gone=_less(self.gone, id)) if id in self.gone else self


class WebhooksFile:
    """The file and the secrets beside it. All calls block."""

    def __init__(self, state_directory: Path) -> None:
        self.path = state_directory / WEBHOOKS_FILE
        self._secrets = state_directory / "webhooks"

    def load(self) -> Webhooks:
        """What it holds; nothing where it is not there. Raises Broken (it is set aside then), NewerState."""
        found = read_versioned(self.path, WEBHOOKS_VERSION)
        if found is None:
            return Webhooks()
        try:
            added = [_added(each) for each in found["webhooks"]]
            gone = {
                str(id): Gone(str(it["why"]), parse_rfc3339(it["at"])) for id, it in found["gone"].items()
            }
        except (ValueError, TypeError, KeyError, AttributeError) as fault:
            raise set_aside_as(self.path, f"not what it should be: {type(fault).__name__}") from fault
        return Webhooks({one.destination.id: one for one in added}, gone)

    def save(self, held: Webhooks) -> None:
        """Replace it. Raises OSError; then it is as it was."""
        content = {
            "version": WEBHOOKS_VERSION,
            "webhooks": [_object(one) for one in held.added.values()],
            "gone": {id: {"why": gone.why, "at": rfc3339(gone.at)} for id, gone in held.gone.items()},
        }
        write_whole(self.path, as_json(content))

    def secret_path(self, id: str) -> Path:
        """Where the secret of a webhook lies that was made up here."""
        return self._secrets / f"{id}.secret"

    def keep_secret(self, id: str, text: str) -> Path:
        """Write a secret that was made up; where it is then. Raises OSError, DirectoryUnusable."""
        make_private_directory(self._secrets)
        path = self.secret_path(id)
        write_whole(path, f"{text}\n".encode())
        return path

    def forget_secret(self, id: str) -> None:
        """Remove it; one that cannot be removed is of no use to anybody."""
        with suppress(OSError):
            self.secret_path(id).unlink(missing_ok=True)


def _object(one: Added) -> dict[str, Any]:
    to = one.destination
    return {
        "url": to.url,
        "on": list(to.on),
        "format": to.format.value,
        "allow_private": to.allow_private,
        "secret_file": to.secret_file,
        "secret_env": to.secret_env,
        "is_made": one.is_made,
        "added_at": rfc3339(one.added_at),
    }


def _added(found: Mapping[str, Any]) -> Added:
    destination = Destination(
        url=an_address(found["url"]),
        on=event_patterns(tuple(found["on"])),
        format=Format(found["format"]),
        allow_private=found["allow_private"] is True,
        secret_file=_text(found["secret_file"]),
        secret_env=_text(found["secret_env"]),
    )
    return Added(destination, parse_rfc3339(found["added_at"]), found["is_made"] is True)


def _text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError("not a text")
    return value


def _less(some: Mapping[str, Any], id: str) -> dict[str, Any]:
    return {key: value for key, value in some.items() if key != id}
