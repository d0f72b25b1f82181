"""Webhooks and their deliveries in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ralphctl.format.humanize import View, ago, count, until
from ralphctl.format.output import BOLD, DIM, clean, paint

NONE_YET = "no webhooks\n  next: ralphctl webhooks add URL  (or a [[webhooks]] entry in ralph.toml)"
NO_DELIVERIES = (
    "nothing was sent yet\n  next: ralphctl webhooks test ID  (ralphctl webhooks list has the ids)"
)
_LABEL = 8


def hook_lines(hook: View, now: float, *, colour: bool = False) -> Iterator[str]:
    """Yield a webhook's id and address, then its settings and last delivery."""
    head = paint(clean(hook["id"]), BOLD, on=colour)
    form = "" if hook["format"] == "json" else f"  as {hook['format']}"
    yield f"{head}  {clean(hook['where'])}{form}"
    for label, words in _known(hook, now):
        yield f"  {paint(f'{label:<{_LABEL}}', DIM, on=colour)}{words}"


def _known(hook: View, now: float) -> Iterator[tuple[str, str]]:
    yield "told of", ", ".join(map(clean, hook["on"])) + _whose(hook)
    yield "from", clean(hook["place"]) if hook["place"] else f"added {ago(hook['added_at'], now)}"
    yield "secret", _secret(hook["secret"])
    if hook["allow_private"]:
        yield "private", "its address may be private"
    if gone := hook["gone"]:
        yield "gone", f"{clean(gone['why'])} {ago(gone['at'], now)}: nothing is sent there"
        yield "", f"ralphctl webhooks test {clean(hook['id'])}  (asks it again)"
    last = hook["last"]
    yield "last", "nothing was sent yet" if last is None else f"{_event_words(last)} {state_words(last, now)}"


def _whose(hook: View) -> str:
    return f" of {', '.join(map(clean, hook['ralphs']))}" if hook["ralphs"] else ""


def _secret(secret: View | None) -> str:
    if secret is None:
        return "none: what is sent is not signed"
    name = clean(secret["name"])
    return f"in ralphd's environment, {name}" if secret["origin"] == "environment" else f"in {name}"


def delivery_lines(delivery: View, now: float, *, colour: bool = False) -> Iterator[str]:
    """Yield a delivery and its state."""
    where = clean(delivery["where"] or f"{delivery['webhook']}, which is not configured any more")
    yield f"{paint(str(delivery['id']), BOLD, on=colour)}  {_event_words(delivery)} to {where}"
    yield f"  {state_words(delivery, now)}"
    if delivery["state"] == "given_up" and delivery["where"] and not delivery.get("replayed"):
        yield f"  ralphctl webhooks replay {delivery['id']}  (sends it again)"


def with_replays(deliveries: Sequence[View]) -> list[View]:
    """Mark, in deliveries that are newest first, those that were sent again."""
    later: set[tuple[object, object]] = set()
    marked: list[View] = []
    for each in deliveries:
        key = each["webhook"], each["message_id"]
        marked.append({**each, "replayed": key in later})
        later.add(key)
    return marked


def _event_words(delivery: View) -> str:
    event = delivery["event"]
    return clean(event["type"]) + (f" of {clean(event['ralph'])}" if event["ralph"] else "")


def state_words(delivery: View, now: float) -> str:
    """Return the state of a delivery."""
    why = f": {clean(delivery['why'])}" if delivery["why"] else ""
    match delivery["state"]:
        case "delivered":
            return f"arrived {ago(delivery['done_at'], now)}"
        case "given_up":
            return f"given up {ago(delivery['done_at'], now)}{why}"
        case "pending" if delivery["failures"]:
            tries = count(int(delivery["failures"]), "try", "tries")
            return f"waits after {tries}{why}; again {until(delivery['next_at'], now)}"
        case "pending":
            return f"waits for its turn since {ago(delivery['queued_at'], now)}".replace(" ago", "", 1)
        case other:
            return clean(other)


def line_of_test(tested: View) -> str:
    """Return the response to a test."""
    where, took = clean(tested["where"]), f"after {tested['took_s']:.2f} s"
    if tested["arrived"]:
        return f"{where} took it: {tested['status']} {took}"
    return f"{where} did not take it: {clean(tested['why'])} ({took})"
