"""Any text made fit to be a ralph's name."""

import unicodedata

from ralphd.wire import is_name

_ROOM_FOR_A_NUMBER = 60


def fit_name(text: str) -> str:
    """A name as the API accepts it, near to ``text``: lower case, no accents, ``-`` for the rest.

    A name that fits already is given back as it is. Anything else is cut to 60 characters, so that a taken
    name has room for ``-2``. Where nothing is left the name is ``ralph``.
    """
    if is_name(text):
        return text
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    marks = [mark if mark.isalnum() or mark in "._-" else " " for mark in plain]
    name = "-".join("".join(marks).split()).lstrip("._-")
    return name[:_ROOM_FOR_A_NUMBER].rstrip("._-") or "ralph"
