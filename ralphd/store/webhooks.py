"""``webhooks.json``: the webhooks that were added over the API, and the destinations that are gone (410).

It holds addresses, which may contain a token, but no secrets: a generated secret has a file of its own,
``webhooks/ID.secret``.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final

from ralphd.config.values import an_address, event_patterns, hook_name
from ralphd.core.delivery import Destination
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass
from ralphd.store.codec import Codec, load_file
from ralphd.store.files import as_json, make_private_directory, write_whole

WEBHOOKS_FILE: Final = "webhooks.json"
WEBHOOKS_VERSION: Final = 2
"""Version 1 had no names; it is still read."""
MOST_WEBHOOKS: Final = 100
MOST_GONE: Final = 200


@dataclass(frozen=True, slots=True)
class Added:
    """A webhook that was added over the API. ``is_made``: ralphd generated its secret."""

    destination: Destination
    added_at: Moment
    is_made: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """Why and since when a destination, from the API or the configuration, accepts nothing more."""

    why: str
    at: Moment


@dataclass(frozen=True, slots=True)
class Webhooks:
    """The content of the file, by the destinations' ids."""

    added: Mapping[str, Added] = field(default_factory=dict)
    gone: Mapping[str, Gone] = field(default_factory=dict)

    def with_added(self, one: Added) -> "Webhooks":
        """Return them with one more, which is not gone any longer."""
        id = one.destination.id
        return replace(self.without_gone(id), added={**self.added, id: one})

    def without(self, id: str) -> "Webhooks":
        added = {key: each for key, each in self.added.items() if key != id}
        return replace(self.without_gone(id), added=added)

    def with_gone(self, id: str, gone: Gone) -> "Webhooks":
        """Return them with a mark for a destination that is gone. The last 200 marks are kept."""
        marks = [*self.without_gone(id).gone.items(), (id, gone)]
        return replace(self, gone=dict(marks[-MOST_GONE:]))

    def without_gone(self, id: str) -> "Webhooks":
        return replace(self, gone={key: each for key, each in self.gone.items() if key != id})


_ADDED: Final = Codec[Added](Added, moments=("added_at",), last="is_made added_at", newer=("name",))
_GONE: Final = Codec[Gone](Gone, moments=("at",))


class WebhooksFile:
    """The file and the generated secrets. All calls block."""

    def __init__(self, state_directory: Path) -> None:
        self.path = state_directory / WEBHOOKS_FILE
        self._secrets = state_directory / "webhooks"

    def load(self) -> Webhooks:
        """Return what the file holds. Raises Broken (it is set aside) or NewerState."""
        return load_file(self.path, WEBHOOKS_VERSION, _webhooks_of) or Webhooks()

    def save(self, webhooks: Webhooks) -> None:
        """Replace the file. Raises OSError; then it is as it was."""
        entries = [plain.pop("destination") | plain for plain in map(_ADDED.dump, webhooks.added.values())]
        gone = {id: _GONE.dump(each) for id, each in webhooks.gone.items()}
        write_whole(self.path, as_json({"version": WEBHOOKS_VERSION, "webhooks": entries, "gone": gone}))

    def secret_path(self, id: str) -> Path:
        return self._secrets / f"{id}.secret"

    def keep_secret(self, id: str, text: str) -> Path:
        """Write a generated secret and return its path. Raises OSError, DirectoryUnusable."""
        make_private_directory(self._secrets)
        path = self.secret_path(id)
        write_whole(path, f"{text}\n".encode())
        return path

    def forget_secret(self, id: str) -> None:
        """Remove a generated secret. If that fails, the file stays; nothing refers to it any longer."""
        with suppress(OSError):
            self.secret_path(id).unlink(missing_ok=True)


def _webhooks_of(stored: dict[str, Any]) -> Webhooks:
    added = {}
    for entry in stored["webhooks"]:
        one = _ADDED.load({**entry, "destination": entry})
        to = one.destination
        checked = replace(to, url=an_address(to.url), on=event_patterns(to.on), name=hook_name(to.name))
        added[checked.id] = replace(one, destination=checked)
    return Webhooks(added, {id: _GONE.load(each) for id, each in stored["gone"].items()})
