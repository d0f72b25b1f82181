"""What each CLI says when it gives up, in its own words."""

import time


class Failure:
    """What a CLI says when it gives up. ``wait_s``, ``resets_in_s``: None where it does not say."""

    def __init__(self, kind: str, *, wait_s: float | None = None, resets_in_s: float | None = None) -> None:
        self.kind = kind
        self.wait_s = wait_s
        self.resets_in_s = resets_in_s

    @property
    def status(self) -> int | None:
        """The HTTP status behind it; None: there was no answer."""
        known = {"rate_limit": 429, "usage_limit": 429, "overloaded": 529, "econnreset": None, "fatal": 401}
        return known.get(self.kind, 400)

    @property
    def again(self) -> str:
        """What the vendor adds on when to come back."""
        return "Please try again later." if self.wait_s is None else f"Please try again in {self.wait_s:g}s."


def message(failure: Failure) -> str:
    """The vendor's words, as those who pass them on print them."""
    after = "" if failure.resets_in_s is None else f" Try again in {failure.resets_in_s:.3f}s."
    return {
        "rate_limit": f"Rate limit reached for played-1 on tokens per min: Limit 30000. {failure.again}",
        "usage_limit": f"The usage limit has been reached.{after}",
        "overloaded": "Overloaded",
        "econnreset": "Unable to connect to API (ECONNRESET)",
        "fatal": "Incorrect API key provided: sk-played.",
        "context": "Your input exceeds the context window of this model.",
    }[failure.kind]


def claude_text(failure: Failure) -> str:
    """What claude says of it."""
    if failure.kind == "usage_limit":
        if failure.resets_in_s is None:
            return "You've hit your limit"
        at = time.gmtime(time.time() + failure.resets_in_s)
        clock = f"{at.tm_hour % 12 or 12}{time.strftime(':%M%p', at).lower()}"
        return f"You've hit your 5-hour limit · resets {clock} (UTC)"
    return {
        "rate_limit": f"API Error: Request rejected (429) · It would exceed your rate limit. {failure.again}",
        "overloaded": "API Error: 529 Overloaded. This is a server-side issue, usually temporary.",
        "econnreset": "API Error: Connection dropped (ECONNRESET). Check the gateway, then try again.",
        "fatal": "Invalid API key · Fix external API key",
        "context": "Prompt is too long",
    }[failure.kind]


def codex_text(failure: Failure) -> str:
    """What codex says of it."""
    if failure.kind == "usage_limit":
        when = "later" if failure.resets_in_s is None else f"in {failure.resets_in_s:.3f} seconds"
        return f"You’ve hit your usage limit. Upgrade to Pro or try again {when}."
    if failure.kind == "rate_limit" and failure.wait_s is None:
        return "exceeded retry limit, last status: 429 Too Many Requests"
    return {
        "rate_limit": f"rate limit exceeded: {message(failure)}",
        "overloaded": "unexpected status 529 <unknown status code>: Overloaded, url: http://localhost/v1",
        "econnreset": "stream disconnected before completion: error sending request (ECONNRESET)",
        "fatal": f"unexpected status 401 Unauthorized: {message(failure)}",
        "context": "Codex ran out of room in the model's context window. Start a new thread before retrying.",
    }[failure.kind]


def gemini_text(failure: Failure) -> str:
    """What gemini says of it."""
    if failure.kind == "usage_limit":
        if failure.resets_in_s is None:
            return "You have exhausted your daily quota on this model."
        return f"You have exhausted your daily limit. Your quota will reset after {failure.resets_in_s:.3f}s."
    hint = "" if failure.wait_s is None else f"\nPlease retry in {failure.wait_s:g}s."
    return {
        "rate_limit": f"Resource has been exhausted (e.g. check quota).{hint}",
        "overloaded": "The model is overloaded. Please try again later.",
        "econnreset": "exception TypeError: fetch failed sending request",
        "fatal": '{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}',
        "context": '{"error":{"code":400,"message":"The input token count exceeds the maximum."}}',
    }[failure.kind]
