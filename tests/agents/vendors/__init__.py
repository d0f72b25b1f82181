"""The vendors' APIs on loopback, as far as the real agent CLIs need them, and their failures by script.

One server plays them all: Anthropic's Messages (claude), OpenAI's Responses (codex) and Chat Completions
(opencode, and whoever has an address of its own), Gemini's generateContent (gemini). A good answer is one
call of the CLI's own shell tool, then closing words. ``Vendors`` is the handle: what each answers next, and
how often each was asked.
"""

from tests.agents.vendors.answers import (
    HANG,
    OK,
    OVERLOADED,
    RESET,
    UNAUTHORISED,
    UNAVAILABLE,
    Answer,
    rate_limit,
    usage_limit,
)
from tests.agents.vendors.server import Vendors

__all__ = [
    "HANG",
    "OK",
    "OVERLOADED",
    "RESET",
    "UNAUTHORISED",
    "UNAVAILABLE",
    "Answer",
    "Vendors",
    "rate_limit",
    "usage_limit",
]
