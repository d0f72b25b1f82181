"""Attacks on the page, by name. Each yields the statuses of its replies, which have to be refusals."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tests.helpers import wait_for
from tests.whole.browser import Browser, exchange
from tests.whole.web_stage import CTL, WebStage
from tests.whole.witnesses import Witness

ROUTES = (
    *(
        ("GET", path)
        for path in ("/", "/ralphs/demo", "/ralphs/demo/log", "/ralphs/demo/iterations/1", "/news")
    ),
    *(("GET", path) for path in ("/pair", "/pair/TICKET", "/static/page.js")),
    *(("POST", path) for path in ("/pair", "/act")),
)
PRIVATE = (*ROUTES[:5], ROUTES[-1])
EVIL = "http://evil.example"
REFUSED = {0, 400, 401, 403, 404, 405, 408, 409, 411, 413, 415, 421, 422, 431}
"""0: the connection is closed."""


@dataclass(frozen=True, slots=True)
class Attackers:
    """``owner`` may act, ``looker`` may look; both are paired."""

    stage: WebStage
    owner: Browser
    looker: Browser

    @property
    def port(self) -> int:
        return self.stage.port

    def everywhere(self, **changed: str | None) -> Iterator[int]:
        """The same strange request of the owner on each route."""
        for method, path in ROUTES:
            yield self.owner.request(method, path, b"{}" if method == "POST" else b"", **changed).status

    def raw(self, line: str, *more: str, body: bytes = b"") -> int:
        """A request of the owner whose lines are given."""
        head = [line, f"Host: ralphd.localhost:{self.port}", f"Cookie: {self.owner.cookie}", *more, "", ""]
        return exchange(self.port, "\r\n".join(head).encode("latin-1") + body).status

    def raw_everywhere(self, *more: str, body: bytes = b"") -> Iterator[int]:
        for method, path in ROUTES:
            yield self.raw(f"{method} {path} HTTP/1.1", *more, body=body)

    def private(self, browser: Browser) -> Iterator[int]:
        for method, path in PRIVATE:
            yield browser.request(method, path, b"{}" if method == "POST" else b"").status


Attack = Callable[[Attackers], Iterator[int]]
ATTACKS: dict[str, Attack] = {}


def attack(function: Attack) -> Attack:
    ATTACKS[function.__name__] = function
    return function


# --- under another name, or from another page ------------------------------------------------------------


@attack
def rebinding_host(by: Attackers) -> Iterator[int]:
    hosts = ("evil.example", "127.0.0.1", "localhost", "ralphd.localhost.evil.example", "[::1]")
    for host in (*(f"{each}:{by.port}" for each in hosts), "localhost", "ralphd.localhost", ""):
        yield from by.everywhere(Host=host)
    yield from by.everywhere(Host=f"ralphd.localhost:{by.port + 1}")


@attack
def missing_host(by: Attackers) -> Iterator[int]:
    yield from by.everywhere(Host=None)
    for method, path in ROUTES:
        yield exchange(
            by.port, f"{method} {path} HTTP/1.0\r\nCookie: {by.owner.cookie}\r\n\r\n".encode()
        ).status


@attack
def two_hosts(by: Attackers) -> Iterator[int]:
    yield from by.raw_everywhere("Host: evil.example")


@attack
def absolute_target(by: Attackers) -> Iterator[int]:
    for target in (
        f"{EVIL}/",
        f"http://ralphd.localhost:{by.port}/",
        "//evil.example/",
        "*",
        "evil.example:80",
    ):
        yield by.raw(f"GET {target} HTTP/1.1")


@attack
def foreign_origin(by: Attackers) -> Iterator[int]:
    for origin in (EVIL, f"http://127.0.0.1:{by.port}", "http://ralphd.localhost", "HTTP://ralphd.localhost"):
        yield from by.everywhere(Origin=origin)
    yield from by.everywhere(Origin=f"https://ralphd.localhost:{by.port}")


@attack
def null_origin(by: Attackers) -> Iterator[int]:
    yield from by.everywhere(Origin="null")


@attack
def post_without_origin(by: Attackers) -> Iterator[int]:
    yield by.owner.act(by.owner.order("stop"), Origin=None).status
    yield by.owner.request("POST", "/pair", b"{}", Origin=None).status


@attack
def cross_site_fetch(by: Attackers) -> Iterator[int]:
    for site in ("cross-site", "same-site", "evil"):
        yield from by.everywhere(Sec_Fetch_Site=site)


@attack
def cross_site_visit(by: Attackers) -> Iterator[int]:
    yield from by.everywhere(
        Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document"
    )
    visit = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    reply = by.owner.get("/ralphs/demo%22%3E%3Cscript%3E", **visit)
    assert b"<script>" not in reply.body
    yield reply.status


@attack
def forged_form(by: Attackers) -> Iterator[int]:
    kinds = ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None)
    for kind in kinds:
        yield by.owner.act(by.owner.order("stop"), Content_Type=kind).status
        yield by.owner.request("POST", "/pair", b"{}", Content_Type=kind).status


@attack
def json_as_text(by: Attackers) -> Iterator[int]:
    for kind in ("text/plain", "text/plain; application/json", "application/jsonp"):
        yield by.owner.act(by.owner.order("stop"), Content_Type=kind).status


@attack
def preflight(by: Attackers) -> Iterator[int]:
    for method, path in ROUTES:
        yield by.raw(
            f"OPTIONS {path} HTTP/1.1", f"Origin: {EVIL}", f"Access-Control-Request-Method: {method}"
        )


# --- without a key, or with another one ------------------------------------------------------------------


@attack
def no_session(by: Attackers) -> Iterator[int]:
    yield from by.private(Browser(by.port))


@attack
def guessed_session(by: Attackers) -> Iterator[int]:
    given = by.owner.cookie
    others = ("ralphd=", "ralphd=x", given[:-1], f"{given}x", f"__Host-{given}", f"{given}; ralphd=x")
    for cookie in (*others, given.replace("ralphd", "Ralphd"), given.swapcase(), "ralphd=" + "A" * 43):
        yield from by.private(Browser(by.port, cookie))


@attack
def hash_as_session(by: Attackers) -> Iterator[int]:
    for each in json.loads((by.stage.daemon.state / "web" / "devices.json").read_text())["devices"]:
        yield from by.private(Browser(by.port, f"ralphd={each['session']}"))


@attack
def revoked_session(by: Attackers) -> Iterator[int]:
    gone = by.stage.browser()
    by.stage.let_in(gone, name="gone")
    assert gone.get("/").status == 200
    assert by.stage.person("web", "revoke", "gone").returncode == 0
    yield from by.private(gone)
    yield gone.act(gone.order("stop")).status


@attack
def no_signature(by: Attackers) -> Iterator[int]:
    for signature in (None, " ", "x", "A" * 86, "=" * 86, "\xff" * 86):
        yield by.owner.act(by.owner.order("stop"), signature).status


@attack
def wrong_key(by: Attackers) -> Iterator[int]:
    stranger = Browser(by.port, by.owner.cookie)
    yield stranger.act(stranger.order("stop")).status


@attack
def key_of_another_device(by: Attackers) -> Iterator[int]:
    body = by.looker.order("stop")
    yield by.owner.act(body, by.looker.sign(body)).status
    yield by.looker.act(body, by.owner.sign(body)).status


@attack
def replayed_nonce(by: Attackers) -> Iterator[int]:
    body = by.owner.order("ack")
    assert by.owner.act(body).status == 200
    yield by.owner.act(body).status
    yield by.owner.act(by.owner.order("stop", nonce=json.loads(body)["nonce"])).status


@attack
def replayed_after_a_crash(by: Attackers) -> Iterator[int]:
    body, pid = by.owner.order("ack"), by.stage.ready()
    assert by.owner.act(body).status == 200
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: by.stage.page_pid() not in (None, pid), what="another process of the page")
    by.stage.ready()
    yield by.owner.act(body).status


@attack
def old_timestamp(by: Attackers) -> Iterator[int]:
    for skew_s in (-61, 62, -1e9, 1e300):
        yield by.owner.act(by.owner.order("stop", at=time.time() + skew_s)).status
    for at in (None, "now", True, float("nan"), float("inf"), [1], 10**400):
        yield by.owner.act(by.owner.order("stop", at=at)).status


@attack
def changed_body(by: Attackers) -> Iterator[int]:
    body = by.owner.order("ack")
    signature = by.owner.sign(body)
    for changed in (body.replace(b"ack", b"stop"), body + b" ", body.replace(b"demo", b"web1"), b"", b"{}"):
        yield by.owner.act(changed, signature).status


@attack
def signed_for_another_page(by: Attackers) -> Iterator[int]:
    body = by.owner.order("stop")
    yield by.owner.act(body, by.owner.sign(body, EVIL)).status


@attack
def bad_nonce(by: Attackers) -> Iterator[int]:
    for nonce in ("", "short", "x" * 4000, 22, None, ["x" * 22], "\u00e4" * 22):
        yield by.owner.act(by.owner.order("stop", nonce=nonce)).status


# --- more than a device may ------------------------------------------------------------------------------


@attack
def looking_device_acts(by: Attackers) -> Iterator[int]:
    for action in ("stop", "pause", "ack"):
        yield by.looker.act(by.looker.order(action)).status


@attack
def action_start(by: Attackers) -> Iterator[int]:
    for action in ("start", "restart", "rm", "reload", "shutdown", "tasks", "notes", "../start", "", "STOP"):
        yield by.owner.act(by.owner.order(action)).status
    for no_text in (b"null", b"1", b'["stop"]', b'{"stop": 1}'):
        yield by.owner.act(by.owner.order("stop").replace(b'"stop"', no_text)).status


@attack
def more_than_an_action(by: Attackers) -> Iterator[int]:
    changes: dict[str, Any] = {"now": True, "command": ["rm"], "environment": {}, "flags": {}}
    for key, value in changes.items():
        yield by.owner.act(by.owner.order("stop", "demo", **{key: value})).status


@attack
def ralph_name_with_html(by: Attackers) -> Iterator[int]:
    names = ("<script>alert(1)</script>", 'demo"><img src=x>', "demo\r\nSet-Cookie: x=y", "../demo", "a/b")
    for name in names:
        yield by.owner.act(by.owner.order("stop", name)).status
        quoted = quote(name, safe="")
        for path in (f"/ralphs/{quoted}", f"/ralphs/{quoted}/log", f"/ralphs/{quoted}/iterations/1"):
            reply = by.owner.get(path)
            assert b"<script>alert" not in reply.body and b"<img" not in reply.body
            assert "x=y" not in reply.headers.get("set-cookie", "")
            yield reply.status


@attack
def traversal(by: Attackers) -> Iterator[int]:
    for up in ("../", "..%2f", "%2e%2e/", "..\\", "....//", "/etc/", "%00", "%5c..%5c"):
        for path in (f"/static/{up}app.py", f"/ralphs/{up}demo", f"/ralphs/demo/{up}log", f"/pair/{up}"):
            yield by.owner.get(path).status
    for number in ("0x1", "-1", "1e3", "9" * 30, "%D9%A1", "1/2", "latest"):
        yield by.owner.get(f"/ralphs/demo/iterations/{number}").status


@attack
def method_override(by: Attackers) -> Iterator[int]:
    for name in ("X-HTTP-Method-Override", "X-Method-Override"):
        yield by.raw("GET /act HTTP/1.1", f"{name}: POST")
    yield by.owner.get("/act?_method=POST&action=stop&ralph=demo").status


@attack
def trace_and_other_methods(by: Attackers) -> Iterator[int]:
    for method in ("TRACE", "PUT", "DELETE", "PATCH", "CONNECT", "PROPFIND", "get"):
        for _, path in ROUTES:
            yield by.raw(f"{method} {path} HTTP/1.1")


# --- too much, or ambiguous ------------------------------------------------------------------------------


@attack
def oversized_body(by: Attackers) -> Iterator[int]:
    for path in ("/pair", "/act"):
        yield by.owner.request("POST", path, b" " * 70_000).status
        yield by.owner.request("POST", path, b"{}", Content_Length="99999999999").status
    yield by.owner.act(b"[" * 60_000).status


@attack
def oversized_head(by: Attackers) -> Iterator[int]:
    yield from by.everywhere(X_Padding="x" * 20_000)
    for size in (20_000, 1000):
        yield by.raw(f"GET /ralphs/{'x' * size} HTTP/1.1")


@attack
def chunks_without_end(by: Attackers) -> Iterator[int]:
    words = (f"Origin: {by.owner.origin}", "Transfer-Encoding: chunked", "Content-Type: application/json")
    for path in ("/pair", "/act"):
        yield by.raw(f"POST {path} HTTP/1.1", *words, body=b"1\r\n{\r\n" * 100)


@attack
def smuggled_request(by: Attackers) -> Iterator[int]:
    second = b"0\r\n\r\nPOST /act HTTP/1.1\r\nHost: x\r\n\r\n"
    for lines in (
        ("Content-Length: 5", "Transfer-Encoding: chunked"), ("Content-Length: 0", "Content-Length: 5"),
        ("Transfer-Encoding: identity",), ("Transfer-Encoding: chunked, identity",), ("Content-Length: +5",),
        ("Transfer-Encoding : chunked",), ("Content-Length: 5, 6",), ("X: y\nContent-Length: 5",),
        ("Content-Length: 5",), ("Transfer-Encoding:\x0bchunked",), ("Content-Length: -1",),
    ):  # fmt: skip
        yield from by.raw_everywhere(*lines, body=second)


@attack
def upgrade(by: Attackers) -> Iterator[int]:
    for protocol in ("websocket", "h2c"):
        words = (
            f"Upgrade: {protocol}",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            "Cookie: ralphd=x",
        )
        yield by.raw("GET /news HTTP/1.1", *words)


@attack
def not_http(by: Attackers) -> Iterator[int]:
    for data in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n",
        b"GET /\r\n\r\n",
        b"\x00" * 99 + b"\r\n\r\n",
    ):
        yield exchange(by.port, data).status


# --- pairing ---------------------------------------------------------------------------------------------


@attack
def guessed_code(by: Attackers) -> Iterator[int]:
    with by.stage.offer() as offer:
        for guess in ("", "A" * 16, "\ud800" * 16, offer.code[:-1], "B" * 9000):
            yield by.looker.begin_pairing(guess).status
        assert offer.said()["detail"].startswith("5 wrong codes")
        yield by.looker.begin_pairing(offer.code).status


@attack
def replayed_code(by: Attackers) -> Iterator[int]:
    with by.stage.offer() as offer:
        first, thief = by.stage.browser().begin_pairing(offer.code, "first"), by.stage.browser()
        assert first.status == 202
        yield thief.begin_pairing(offer.code, "thief").status
        yield thief.finish_pairing("x" * 32).status
        assert offer.said()["asks"] == "first"
        offer.answer(yes=False)
        yield by.stage.browser().finish_pairing(first.value["ticket"]).status
        yield thief.begin_pairing(offer.code).status


@attack
def code_of_a_closed_terminal(by: Attackers) -> Iterator[int]:
    with by.stage.offer() as offer:
        offer.control.shutdown(socket.SHUT_WR)
        assert "detail" in offer.said()
        yield by.looker.begin_pairing(offer.code).status


@attack
def bad_key(by: Attackers) -> Iterator[int]:
    good = by.owner.jwk
    wrong = ({**good, "y": good["x"]}, {**good, "crv": "P-384"}, {**good, "x": "AA"}, {**good, "d": "secret"})
    with by.stage.offer() as offer:
        for key in (None, {}, [1], "x", *wrong):
            yield by.looker.begin_pairing(offer.code, key=key).status
        assert by.stage.browser().begin_pairing(offer.code).status == 202  # none of them has used it up


@attack
def ticket_fetched_twice(by: Attackers) -> Iterator[int]:
    with by.stage.offer("look") as offer:
        ticket = by.looker.begin_pairing(offer.code, "twice").value["ticket"]
        offer.answer(yes=True)
        assert by.stage.browser().finish_pairing(ticket).status == 200
        yield by.stage.browser().finish_pairing(ticket).status
    assert by.stage.person("web", "revoke", "twice").returncode == 0


@attack
def without_the_terminals_yes(by: Attackers) -> Iterator[int]:
    piped = subprocess.run(
        [*CTL, "web", "pair"], input="y\n" * 9, env=by.stage.person.environment, cwd="/",
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert piped.returncode == 2 and "needs a terminal" in piped.stderr, piped
    for answer in (b'{"yes": "true"}\n', b'{"yes": 1}\n', b"y\n", b"\n", b"[" * 3000 + b"\n", b"x" * 9000):
        with by.stage.offer() as offer:
            begun = by.stage.browser().begin_pairing(offer.code)
            with suppress(ConnectionError):
                offer.lines.write(answer)
            yield by.stage.browser().finish_pairing(begun.value["ticket"]).status


@attack
def yes_before_the_question(by: Attackers) -> Iterator[int]:
    with by.stage.offer() as offer:
        offer.answer(yes=True)
        assert "detail" in offer.said()
        yield by.stage.browser().begin_pairing(offer.code).status


WITHIN = """
import json, os, pathlib, subprocess, sys
seen = {word: subprocess.run([sys.executable, "-m", "ralphctl", "web", *words]).returncode
        for word, *words in (("pair", "pair"), ("revoke", "revoke", "all"))}
child = '''
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(b'{"do": "pair", "role": "act"}' + bytes([10]))
print(connection.makefile().readline())
'''
bare = {name: value for name, value in os.environ.items() if not name.startswith("RALPH")}
os.chdir(os.path.dirname(sys.argv[1]))
command = [sys.executable, "-c", child, os.path.basename(sys.argv[1])]
said = subprocess.run(command, env=bare, capture_output=True, text=True).stdout
new = pathlib.Path(sys.argv[2] + ".new")
new.write_text(json.dumps(seen | {"socket": json.loads(said)}))
new.rename(sys.argv[2])
"""


@attack
def pairing_from_within_a_run(by: Attackers) -> Iterator[int]:
    run = Witness.of(by.stage.daemon, "within")
    (run.directory / "pairs.py").write_text(WITHIN)
    control, record = by.stage.daemon.state / "web" / "control.sock", run.record / "seen"
    words = [sys.executable, str(run.directory / "pairs.py"), str(control), str(record)]
    by.stage.daemon.ask("POST", "/v1/ralphs", run.registration() | {"command": words})
    wait_for(record.exists, timeout_s=60, what=f"the attempt of a run: {by.stage.daemon.words()}")
    seen = json.loads(record.read_text())
    assert seen["pair"] == seen["revoke"] == 77, seen
    assert seen["socket"]["type"] == "urn:ralphd:problem:from-within-a-run", seen
    yield 0
