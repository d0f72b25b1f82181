"""What wrappers print in their own words when the agent within fails: the classes that are easily missed."""

import pytest

from ralphctl.offline.classify import FAILED, finding_of, plain_agent
from ralphd.agents.known import KNOWN

NOW = 1_800_000_000.0
NODE = """\
Error: connect ETIMEDOUT 203.0.113.7:443
    at TCPConnectWrap.afterConnect [as oncomplete] (node:net:1555:16) {
  errno: -110,
  code: 'ETIMEDOUT',
  syscall: 'connect',
  address: '203.0.113.7',
  port: 443
}"""
LINES = {
    "fatal": [
        "Your session has expired, run `acme login` again.",
        "Session expired. Sign in again to continue.",
        "acme: credentials are no longer valid (expired 2 days ago); re-authenticate with: acme auth",
        "The stored token is expired; please re-login.",
        "ERR auth: login required",
        "You have been signed out. Log in to continue.",
        "The SSO session of this profile has expired or is otherwise invalid.",
        "error: your sign-in is too old, run acme auth login",
        "HTTP 403",
        "403 Forbidden",
        "Request blocked (403)",
        "Error: request was blocked by the network policy of your organization",
        "upstream answered 403: blocked by administrator",
        "Access to this service has been blocked for your account",
        "Your IP address is blocked",
        "HTTP/2 403\nserver: front",
    ],
    "transient": [
        NODE,
        "{\n  errno: -104,\n  code: 'ECONNRESET',\n  syscall: 'read'\n}",
        "FetchError: request failed\n    at main (cli.js:1) {\n  type: 'system',\n  code: 'ETIMEDOUT'\n}",
        "TypeError: terminated\n    at x (y.js:1) {\n  [cause]: Error\n    code: 'UND_ERR_SOCKET'\n}",
        "  code: 'ENOTFOUND',",
        "    triggerUncaughtException(err, true);\n\n[Error: read ECONNRESET] {\n  errno: -104,\n}",
        "dial tcp 203.0.113.7:443: connect: connection refused",
        "curl: (7) Failed to connect to api.vendor.example port 443 after 12 ms: Connection refused",
        "Could not reach api.vendor.example: refused",
        "The vendor's server refused the connection",
        "urllib3 NewConnectionError('<x>: Failed to establish a new connection: [Errno 111] refused')",
        "connect to api.vendor.example:443 refused",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "Something went wrong, please try again later.",
        "Service is busy. Try again later.",
        "Error: the assistant is not available right now, try again later",
    ],
    "rate_limit": [
        "Limit reached. Wait 45 seconds, or upgrade to Pro for higher limits.",
        "You're sending requests too fast: try again in 20s. Upgrade your plan for more.",
        "Request limit hit, retry in 30 seconds (upgrade: https://acme.example/plans)",
        "Free plan limit reached, try again in 90 seconds or upgrade",
        "Limit reached, try again later",
        "Too many requests, try again later",
    ],
    "usage_limit": [
        "usage limit",
        "plan limit",
        "Plan limit exceeded",
        "Claude plan limit reached",
        "Your plan limit was reached",
        "You are over your plan's limit",
        "error: plan usage exhausted until Monday",
        "You've used all the requests in your plan",
        'error: usage limit, {"resets_in_seconds": 4}',
    ],
    "agent_crash": [
        "I added a test for the case where the session has expired.",
        "The login form now says: Your session has expired",
        "Fixed: 403 pages are blocked by robots.txt",
        "tests failed: expected 403, got 200",
        "Blocked requests are now logged.",
        "The plan limit is documented.",
        "If it fails, try again later.",
        "Implemented a retry: wait 45 seconds when the limit is reached",
        "const error = { code: 'ETIMEDOUT' }",
        "The server refused the connection because of my change, so I fixed the port.",
    ],
}


def kind_of(text: str, agent: str, *, code: int = FAILED) -> str:
    finding = finding_of(text.split("\n"), plain_agent(agent), code=code, stream="stderr", now=NOW)
    return finding.kind.value if finding.kind else "ok"


@pytest.mark.parametrize("agent", ["general", *KNOWN])
def test_a_wrapper_s_own_words_have_their_kind(agent: str) -> None:
    found = {text: kind_of(text, agent) for texts in LINES.values() for text in texts}

    assert found == {text: kind for kind, texts in LINES.items() for text in texts}


def test_the_seconds_of_a_limit_are_read_from_json_within_a_line() -> None:
    text = 'error: usage limit, {"resets_in_seconds": 4}'
    finding = finding_of([text], plain_agent("general"), code=FAILED, stream="stderr", now=NOW)

    assert finding.reset is not None
    assert (finding.reset.until, finding.reset.source) == (NOW + 4, "resets_in_seconds")
