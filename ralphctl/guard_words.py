"""The guard in words, as ``status`` says it."""

from __future__ import annotations

from ralphctl.show import since_words
from ralphctl.tell import clean
from ralphctl.words import ago, clock, moment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralphctl.show import View

_LIVING = frozenset({"running", "pausing", "stopping"})
_SHOWN_COMMITS = 3


def rows(view: View, now: float) -> list[tuple[str, str]]:
    """What ``status`` says: what the tests say of the tree, and what was reverted last."""
    guard = view.get("guard")
    if not isinstance(guard, dict):
        return []
    found = [("tests", _baseline(guard, now, is_living=view.get("state") in _LIVING))]
    if last := guard.get("reverted"):
        found.append(("reverted", _reverted(last, now)))
    if view.get("pause_reason") == "guard" and view.get("message"):
        found.append(("look at", clean(str(view["message"]))))
    return [(label, text) for label, text in found if text]


def testing_words(view: View, now: float) -> str:
    """Since when the tests run: continues ``running the tests``."""
    guard = view.get("guard")
    return since_words(" for ", guard.get("testing_since"), now) if isinstance(guard, dict) else ""


def _baseline(guard: View, now: float, *, is_living: bool) -> str:
    at = moment(guard.get("since"))
    since = "" if at is None else f" since {clock(at, now)}"
    match guard.get("baseline"):
        case "green":
            return "green" + (" before this iteration," if is_living and since else "") + since
        case "red":
            return f"red{since}: commits are not judged"
        case _ if guard.get("testing_since"):
            return ""
        case _:
            return "" if is_living else "not known: they run once before the next start"


def _reverted(last: View, now: float) -> str:
    of = "" if last.get("iteration") is None else f" of iteration {last['iteration']}"
    return (
        f"{commit_words(last.get('reverted'))}{of}, {ago(last.get('at'), now)}: {clean(str(last.get('why')))}"
    )


def commit_words(shas: object) -> str:
    """``3fa9c1d``, ``3fa9c1d, 1a2b3c4, 5d6e7f8 and 2 more``."""
    some = [clean(str(sha)) for sha in shas] if isinstance(shas, list) else []
    more = f" and {len(some) - _SHOWN_COMMITS} more" if len(some) > _SHOWN_COMMITS else ""
    return ", ".join(some[:_SHOWN_COMMITS]) + more
