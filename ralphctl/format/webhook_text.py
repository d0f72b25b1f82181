"""Webhooks and their deliveries as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ralphctl.format.humanize import View, ago, count, until
from ralphctl.format.output import BOLD, DIM, clean, paint, wrapped_table

NONE_YET = "no webhooks\n  next: ralphctl webhooks add URL  (or a [[webhooks]] entry in ralph.toml)"
NO_MESSAGES = "no messages yet\n  next: ralphctl webhooks test NAME  (ralphctl webhooks list shows the names)"
_LABEL = 9
_HEADS = ("NAME", "FORMAT", "HOST", "EVENTS", "LAST MESSAGE")
_COLUMNS = 80


def table(hooks: Sequence[View], now: float, *, colour: bool = False) -> str:
    """Return the webhooks as a table of at most 80 columns, in which long cells wrap."""
    rows = [_HEADS, *(_cells(hook, now) for hook in hooks)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    while sum(widths) > _COLUMNS - 2 * (len(widths) - 1):  # names, which people type, shrink last
        widths[max(range(len(widths)), key=lambda i: (widths[i] > 6 and i > 1, widths[i]))] -= 1
    return "\n".join(wrapped_table(rows, widths, colour=colour)) + "\n  next: ralphctl webhooks show NAME"


def _cells(hook: View, now: float) -> tuple[str, ...]:
    last = state_words(hook["last"], now).partition(" (")[0] if hook["last"] else "none yet"
    last = f"disabled: {hook['gone']['why']}" if hook["gone"] else last
    host, events = hook["where"].removeprefix("https://"), " ".join(hook["on"])
    return tuple(map(clean, (hook["name"], hook["format"], host, events, last)))


def hook_lines(hook: View, now: float, *, colour: bool = False) -> Iterator[str]:
    """Yield a webhook's name and host, then its settings and last delivery."""
    yield f"{paint(clean(hook['name']), BOLD, on=colour)}  {clean(hook['where'])}"
    for label, words in _known(hook, now):
        yield f"  {paint(f'{label:<{_LABEL}}', DIM, on=colour)}{words}"


def _known(hook: View, now: float) -> Iterator[tuple[str, str]]:
    yield "id", clean(hook["id"])
    yield "format", clean(hook["format"])
    whose = f" of {', '.join(map(clean, hook['ralphs']))}" if hook["ralphs"] else ""
    yield "events", ", ".join(map(clean, hook["on"])) + whose
    yield "from", clean(hook["place"]) if hook["place"] else f"added {ago(hook['added_at'], now)}"
    yield "secret", _secret(hook["secret"])
    if hook["allow_private"]:
        yield "private", "private addresses allowed"
    if gone := hook["gone"]:
        yield "disabled", f"{clean(gone['why'])} {ago(gone['at'], now)}"
        yield "", f"ralphctl webhooks test {clean(hook['name'])}  (enables it if it succeeds)"
    last = hook["last"]
    yield "last", "no message yet" if last is None else f"{_event_words(last)}: {state_words(last, now)}"


def _secret(secret: View | None) -> str:
    if secret is None:
        return "none: messages are not signed"
    name = clean(secret["name"])
    words = {"environment": "in the environment of ralphd, ", "command": "printed by "}
    return words.get(secret["origin"], "in ") + name


def delivery_lines(delivery: View, now: float, *, colour: bool = False) -> Iterator[str]:
    """Yield a delivery and its state."""
    where = f"{delivery['name']} ({delivery['where']})" if delivery["name"] else None
    to = clean(where or f"{delivery['webhook']} (no longer configured)")
    yield f"{paint(str(delivery['id']), BOLD, on=colour)}  {_event_words(delivery)} → {to}"
    yield f"  {state_words(delivery, now)}"
    if delivery["state"] == "given_up" and delivery["where"] and not delivery.get("replayed"):
        yield f"  ralphctl webhooks replay {delivery['id']}  (sends it again)"


def with_replays(deliveries: Sequence[View]) -> list[View]:
    """Mark deliveries that were sent again later. The newest comes first."""
    keys = [(each["webhook"], each["message_id"]) for each in deliveries]
    return [{**each, "replayed": keys[i] in keys[:i]} for i, each in enumerate(deliveries)]


def _event_words(delivery: View) -> str:
    event = delivery["event"]
    return clean(event["type"]) + (f" of {clean(event['ralph'])}" if event["ralph"] else "")


def state_words(delivery: View, now: float) -> str:
    """Return the state of a delivery."""
    why = f": {clean(delivery['why'])}" if delivery["why"] else ""
    match delivery["state"]:
        case "delivered":
            return f"delivered {ago(delivery['done_at'], now)}"
        case "given_up":
            return f"given up {ago(delivery['done_at'], now)}{why}"
        case "pending" if delivery["failures"]:
            tries = count(int(delivery["failures"]), "failure")
            return f"retry {until(delivery['next_at'], now)} after {tries}{why}"
        case "pending":
            return f"queued {ago(delivery['queued_at'], now)}"
        case other:
            return clean(other)


def line_of_test(tested: View) -> str:
    """Return the result of a test."""
    to, took = clean(f"{tested['name']} ({tested['where']})"), f"{tested['took_s']:.2f} s"
    if tested["arrived"]:
        return f"{to} accepted the test: HTTP {tested['status']} after {took}"
    return f"{to} did not accept the test: {clean(tested['why'])} (after {took})"
