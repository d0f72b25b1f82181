"""Parsers of requests, of messages of a hub and of other machines, of replies, and of texts of the kernel."""

import io
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from unittest import mock

from pydantic import TypeAdapter, ValidationError

from ralphctl.client.client import batches_of, events_of
from ralphctl.client.transport import error_of
from ralphctl.format.event_text import event_words
from ralphctl.format.log_text import LogPrinter
from ralphctl.format.output import clean, neutralise
from ralphctl.live.keys import _SEQUENCES
from ralphctl.mcp import replies
from ralphctl.mcp.server import _too_long
from ralphctl.web.guard import _cookie
from ralphd.api import bodies, report_models
from ralphd.api.door import _device
from ralphd.api.routes.reports import digest_of
from ralphd.core import delivery
from ralphd.core.alert import AlertFacts
from ralphd.core.fleet import checked, names
from ralphd.core.fleet import model as fleet
from ralphd.core.fleet.model import HostName, ItemId
from ralphd.core.supervision.door import requested
from ralphd.core.text import one_line
from ralphd.core.time import rfc3339
from ralphd.daemon.fleet.sharing.events import _shared
from ralphd.daemon.fleet.sharing.logs import _unpacked
from ralphd.errors import RalphdError, UsageError
from ralphd.fleet import entries
from ralphd.fleet.fabric import EventEntry
from ralphd.fleet.hub.joining import read_token
from ralphd.git import remote
from ralphd.git.fence.lease_ref import decode_lease
from ralphd.notify.payloads import posted
from ralphd.process import peer_run, shim
from ralphd.process.activity import probe, proc_stats
from ralphd.process.log.records import Gap, LogRecord, _valid_time
from ralphd.process.log.rendered import shown
from ralphd.wire import DEVICE_HEADER, EVENT_TYPES
from tests.fuzz.agent_texts import NOW
from tests.fuzz.parsers import (
    JSON_TOKENS,
    KIB,
    MIB,
    TEXT_TOKENS,
    Parser,
    every_text,
    is_kind,
    is_showable,
    must,
    text_of,
)

ZONES = ("UTC", "America/New_York", "Asia/Tokyo")


@contextmanager
def zone(name: str) -> Iterator[None]:
    """Local time is that of a zone."""
    with mock.patch.dict(os.environ, {"TZ": name}):
        time.tzset()
        try:
            yield
        finally:
            os.environ["TZ"] = "UTC"
            time.tzset()


def parsed(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


# --- requests --------------------------------------------------------------------------------------------

REPORT: TypeAdapter[report_models.ReportHead] = TypeAdapter(report_models.ReportBody)
REQUESTS = tuple(kind for kind in bodies.Strict.__subclasses__() if "run_id" not in kind.model_fields)


def report_body(data: bytes) -> None:
    """Read a report as the API does; what the core gets has times that can be written."""
    try:
        body = REPORT.validate_python(parsed(data))
    except ValidationError as refused:
        for fault in refused.errors():
            is_kind(fault["msg"], str)
        return
    report = report_models.in_core(body)
    for name in ("ended_at", "until", "reset_at", "resume_at"):
        moment = getattr(report, name, None)
        must(moment is None or rfc3339(moment), "a moment that cannot be written")
    must(len(digest_of(body)) == 64, "a digest")
    json.dumps(body.model_dump(mode="json"), allow_nan=False).encode()


def request_body(data: bytes) -> None:
    """Read a body as each route would."""
    value = parsed(data)
    for kind in REQUESTS:
        try:
            body = kind.model_validate(value)
        except (ValidationError, RalphdError):
            continue
        json.dumps(body.model_dump(mode="json"), allow_nan=False).encode(errors="surrogateescape")


def request_head(data: bytes) -> None:
    """Read what of a request's head is read by hand: path, device, cookies."""
    line, _, rest = data.partition(b"\n")
    is_kind(requested("POST", text_of(line)), object)
    device = _device({"headers": [(DEVICE_HEADER.lower().encode(), rest)]})
    is_showable(device)
    must('"' not in device and len(device) <= 40, f"a device {device!r}")
    cookie = _cookie(rest, "ralphd")
    must(";" not in cookie and cookie == cookie.rstrip(), f"a cookie {cookie!r}")


def mcp_message(data: bytes) -> None:
    """Answer a message that is too long by its edges, and clean what a tool answers."""
    answer = json.loads(_too_long(data[:4096], data[-4096:]))
    must(isinstance(answer["id"], int | str | None), "an id of another kind")
    text = text_of(data)
    is_showable(replies.plain(text))
    must(len(replies.cut(text).encode()) <= replies.MOST_BYTES, "an answer is not cut")
    value = parsed(data)
    if isinstance(value, dict):
        answered = json.loads(replies.answer(value))
        for each in every_text(answered):
            is_showable(each)


# --- the fleet -------------------------------------------------------------------------------------------

SHAPES = (fleet.HostRecord, fleet.Item, fleet.Lease, fleet.AccountLimit, fleet.Want)


def fleet_value(data: bytes) -> None:
    """Read a value of each shape; what is taken is written as it was read, and can be shown."""
    value = entries.from_bytes(data)
    lease = decode_lease(data)
    is_kind(lease, fleet.Lease, None)
    for shape in SHAPES:
        found = checked.read_value(shape, value)
        if isinstance(found, checked.Rejected):
            is_kind(found.why, str)
            continue
        plain = checked.write_value(found)
        again = checked.read_value(shape, {"v": 1, **plain})
        must(again == found, f"a {shape.__name__} changes when it is written: {found} {again}")
        for text in every_text(plain):
            is_showable(text)


def fleet_names(data: bytes) -> None:
    """Read URLs, keys and tokens; keys and names survive."""
    text = text_of(data)[: 64 * KIB]
    with suppress(ValueError):
        url = names.normalized_url(text)
        is_showable(url)
        names.repo_id(text)
        names.is_allowed(text, ["github.com/a/*", text])
    with suppress(ValueError):
        must(names.decoded_name(names.encoded_name(text)) == text, "a name changes")
    with suppress(ValueError):
        names.decoded_name(text)
    with suppress(ValueError):
        must(entries.unescaped_key(entries.escaped_key(text)) == text, "a key changes")
    entries.unescaped_key(text)
    with suppress(UsageError):
        read_token(text, now=NOW)
    names.is_branch(text)


def shared_items(data: bytes) -> None:
    """Read a log line and an event that another machine sent."""
    value = parsed(data)
    with suppress(ValueError, TypeError, UsageError):
        item = _unpacked(value)
        is_kind(item, LogRecord, Gap)
        json.dumps(shown(item))
        print_record(dict(shown(item)))
    if isinstance(value, dict):
        event = _shared(EventEntry(1, text_of(data[:50]), value))
        if event is not None:
            must(rfc3339(0) and event.type in EVENT_TYPES, "an event of another type")
            json.dumps(event.as_object())
            is_showable(event.host)


# --- what people see -------------------------------------------------------------------------------------


def print_record(record: Mapping[str, object]) -> None:
    """Print a line of a log on a terminal, in several time zones."""
    for name in ZONES:
        with zone(name):
            out = io.BytesIO()
            LogPrinter(out, safe=True, timestamps=True).put(dict(record))
            shown_text = out.getvalue().decode()
            for line in shown_text.split("\n"):
                is_showable(line.replace("\x1b[", "").replace("\t", ""))


def log_record(data: bytes) -> None:
    """Print a line with any time that the log lets pass, and any text."""
    at, _, text = data.partition(b" ")
    stamp = _valid_time(at) if len(at) == 30 else ""
    for stream in ("stdout", "regent"):
        record = {
            "at": stamp or "2026-11-21T20:00:00Z",
            "stream": stream,
            "text": text_of(text),
            "partial": False,
        }
        print_record(record)
    is_showable(neutralise(text_of(text).replace("\n", "")).replace("\x1b[", ""))
    is_showable(clean(text_of(text)))


def event_of_run(data: bytes) -> None:
    """Word an event, and make the body of each kind of webhook."""
    kind, _, rest = data.partition(b"\n")
    value = parsed(rest)
    name = EVENT_TYPES[kind[0] % len(EVENT_TYPES)] if kind else "ralph.escalated"
    if not isinstance(value, dict):
        return
    is_showable(clean(event_words(name, value)))
    event = delivery.StoredEvent(1, name, "2026-11-21T20:00:00.000000Z", "demo", None, value)
    facts = AlertFacts("host", last_lines=(text_of(rest)[:500],))
    for form in delivery.Format:
        sent = posted(event, form, facts)
        for header, content in sent.headers.items():
            must((header + content).isascii() and content.isprintable(), f"a header {content!r}")
        sent.payload.decode()


def stream_of_events(data: bytes) -> None:
    """Read server-sent events in pieces, and an error of the daemon."""
    third = max(1, len(data) // 3)
    parts = [data[at : at + third] for at in range(0, len(data), third)]
    lines = [line for batch in batches_of(parts) for line in batch]
    must(lines == data.split(b"\n")[:-1], "the lines depend on the pieces")
    with suppress(ValueError, RecursionError):
        list(events_of(lines))
    with suppress(RecursionError):
        fault = error_of(500, data)
        is_kind(fault, RalphdError)
        one_line(str(fault), 200)


def keys_typed(data: bytes) -> None:
    for at in range(0, len(data), 64):
        _SEQUENCES.sub(b"", data[at : at + 64])


# --- what answers ----------------------------------------------------------------------------------------


def webhook_answer(data: bytes) -> None:
    status = int.from_bytes(data[:2].ljust(2, b"\0"), "big") % 600
    answer = delivery.ReceiverReply(status, data[2:].decode("latin-1"))
    must(0 <= delivery._asked_for_s(answer, NOW) <= delivery.LONGEST_RETRY_AFTER_S, "a wait that is too long")
    delivery.why_failed(answer)


def git_words(data: bytes) -> None:
    """Read what git and a remote printed."""
    why = remote._reason(io.BytesIO(data))
    is_showable(why)
    remote.is_rejection(why)
    remote._REF.findall(text_of(data))


# --- the kernel ------------------------------------------------------------------------------------------

STAT = b"S 1 2 3 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 99 1 2 3 4 5 6 7 8 9"


def kernel_texts(data: bytes) -> None:
    """Read files of /proc in which a run has a say: names, arguments, environment, cgroups."""
    flat = data.replace(b"\n", b" ")
    texts = {
        "stat": b"7 (" + data[:64].replace(b"\0", b"") + b") " + STAT,
        "cgroup": b"0::/a/" + flat + b"/ralphd-r000001-12345678\n",
        "environ": data,
        "cmdline": data,
        "io": data,
        "netstat": data,
        "snmp6": data,
        "status": data,
    }
    with mock.patch.object(shim, "read_bytes", lambda path: texts[path.rpartition("/")[2]]):
        stat = shim.process_stat(7)
        must(stat is not None and stat[0] == "S" and stat[2] == 99, f"a name hides the fields: {stat}")
        is_kind(shim.command_line(7), str)
        list(peer_run._by_group(7))
        list(peer_run._by_cookie(7, 0))
        peer_run.first_ender([7], time.monotonic() + 5)
        shim.carries(7, "r000001-12345678")
    with mock.patch.object(proc_stats, "read_bytes", lambda path: texts[path.rpartition("/")[2]]):
        is_kind(proc_stats._io_bytes(7), int, None)
    with mock.patch.object(probe, "read_bytes", lambda path: texts[path.rpartition("/")[2]]):
        is_kind(probe._octets(7), int, None)


def socket_messages(data: bytes) -> None:
    for _, body in probe._split(data):
        is_kind(probe._received_bytes(body), int)


REPORTS = [
    b'{"run_id":"r","id":"1","kind":"hello","signals":true,"agent":"a"}',
    b'{"run_id":"r","id":"2","kind":"iteration-finished","iteration":1,"task":{"id":"US-1","title":"t"},"commits":'
    b'["abcd"],"summary":"s","ended_at":"2026-11-22T03:00:00Z","wait":false}',
    b'{"run_id":"r","id":"3","kind":"attempt-finished","agent":"a","outcome":"done","exit_code":0,"cost_usd":0.2,'
    b'"cost_source":"told","duration_s":1.5,"ended_at":"2026-11-22T03:00:00+01:00","tokens_in":1}',
    b'{"run_id":"r","id":"4","kind":"waiting","until":"2100-01-01T00:00:00Z","reason":"limit"}',
    b'{"run_id":"r","id":"5","kind":"agent-exhausted","agent":"a","reason":"r","until":null}',
    b'{"run_id":"r","id":"6","kind":"ending","code":1,"reason":"x","why":"y"}',
]
BODIES = [
    b'{"directory":"/a","command":["b"],"name":"c","flags":{"d":1},"environment":{"e":"f"},"start":true,"resume":null}',
    b'{"url":"https://h/p","on":["*"],"format":"json","name":"n","allow_private":false}',
    b'{"text":"x"}',
    b'{"repo":"git@h:a/b","base":"main","priority":1,"need":{"labels":["gpu"],"cpus":1},"flags":{"max_cost_usd":1.5}}',
    b'{"ralph":"a","number":1}',
    b'{"iteration":1,"repair":0}',
    b'{"directory":"/a","branch":"b","tasks":["t"],"count":2}',
]
FLEET_VALUES = [
    fleet.Item(
        ItemId("i-abcd"),
        "git@host:team/app.git",
        "main",
        "ralph/i-abcd",
        need=fleet.Need(("gpu",), cpus=1),
        prefer=(HostName("beta"),),
        last=fleet.LastTry(HostName("alpha"), "why"),
        not_before=NOW,
    ),
    fleet.Lease(HostName("alpha"), "boot", 3, 1, ItemId("i-abcd"), "1" * 40, NOW),
    fleet.HostRecord(
        HostName("alpha"),
        "boot",
        "1.0",
        ("gpu",),
        (fleet.Login("claude", "a", NOW),),
        ("github.com/a/*",),
        declines=(fleet.Decline(ItemId("i-abcd"), "no space"),),
        ralphs=("demo",),
        at=NOW,
    ),
    fleet.AccountLimit("claude", "a", "limited", NOW, "five_hour", HostName("alpha"), NOW),
    fleet.Want("1", "stop", "somebody", NOW),
]
SHARED = [
    b'["2026-11-21T20:00:00.000000000Z","stdout","aGVsbG8=",false,"r000001-12345678:1:0:0"]',
    b'["gone","r000001-12345678:1:0:0"]',
    b'{"type":"ralph.done","at":"2026-11-21T20:00:00Z","ralph":"a","run_id":"r","data":{"message":"m"}}',
]
EVENTS = [
    b'a\n{"message":"it failed","iteration":3,"until":"2026-11-21T20:00:00Z"}',
    b'\x10\n{"iteration":1,"task":{"id":"a","title":"b"}}',
    b'\x1c\n{"iteration":1,"commits":["abc"],"tests":["red","green"],"verdict":"kept","why":"w","reverted":[]}',
    b'\x09\n{"code":1,"signal":null,"outcome":"failed","agent":"a","cost_usd":0.5,"duration_s":3,"failure_kind":"crash"}',
]
GIT_OUTPUT = [
    b"To https://user:secret@h/x\n ! [rejected]        main -> main (fetch first)\nerror: failed to push\n",
    b"remote: \x1b[31mno\x1b[0m\nfatal: unable to access 'https://a:b@h/': no\n",
    b"1" * 40 + b"\trefs/heads/main\n",
]
SSE = [
    b'retry: 1000\n\nid: 1\nevent: a\ndata: {"id":1}\n\n: ping\n\n',
    b'{"type":"urn:x","detail":"d","errors":[{"key":"k"}]}',
]
KERNEL = [
    b"name) S 1 (",
    b"A=1\0RALPH_RUN_ID=r000001-12345678\0B=2\0",
    b"rchar: 5\nwchar: 7\n",
    b"sudo\0systemctl\0stop\0x\0",
    b"TcpExt: A\nTcpExt: 1\nIpExt: InOctets X\nIpExt: 12 3\n",
    b"Ip6InOctets 12\n",
]
HEADS = [
    b"/v1/ralphs/a/stop\nPhone%20of%20%22me%22",
    b"/v1/webhooks/x/test\na=b; ralphd=secret ; c",
    b"/x\nralphd=1; ralphd=2",
]
MCP = [
    b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"status","arguments":{"x":"\x1b[2J"}}}',
    b'{"method":"x","params":{},"jsonrpc":"2.0","id":"a-b"}',
]
NETLINK = [bytes([76, 0, 0, 0, 20, 0]) + bytes(10) + bytes(60), bytes([16, 0, 0, 0, 3, 0]) + bytes(10)]
TOKENS = [
    b"ralph-fleet-1.eyJhZGRyZXNzZXMiOlsiaDoxIl19",
    b"git@github.com:a/b.git",
    b"https://h:443/a//b/../c%2f",
    b"/srv/git/x",
    b"ssh://u@h:22/p",
    b"=C3=A9.a",
    b"mfrgg",
]

PARSERS = (
    Parser("report-body", report_body, REPORTS, JSON_TOKENS, weight=3, most_bytes=MIB),
    Parser("request-body", request_body, BODIES, JSON_TOKENS, weight=2, most_bytes=MIB),
    Parser("request-head", request_head, HEADS, (b"%", b"%0a", b";", b"="), most_bytes=64 * KIB),
    Parser(
        "mcp-message",
        mcp_message,
        MCP,
        (*JSON_TOKENS, b'"id":', b"\x1b"),
        weight=2,
        units=(b'"jsonrpc":"a",', b'"id": ', b"\x1b]", b"\x1b[1", b"{ ", b"\\n"),
    ),
    Parser(
        "fleet-value",
        fleet_value,
        [json.dumps(checked.write_value(each)).encode() for each in FLEET_VALUES],
        JSON_TOKENS,
        weight=3,
        most_bytes=MIB,
    ),
    Parser("fleet-names", fleet_names, TOKENS, (*TEXT_TOKENS, b"=", b"..", b"//", b"%00", b"@", b":")),
    Parser("shared-items", shared_items, SHARED, JSON_TOKENS, weight=2, most_bytes=MIB),
    Parser(
        "log-record",
        log_record,
        [
            b"0001-01-01T00:00:00.000000000Z a\tb",
            b"2026-11-21T20:00:00.000000000Z \x1b[31mx\x1b[2J",
            b"9999-12-31T23:59:59.000000000Z x",
        ],
        (*TEXT_TOKENS, b"9999", b"0001"),
        most_bytes=MIB,
    ),
    Parser("event-of-run", event_of_run, EVENTS, JSON_TOKENS, weight=3, most_bytes=MIB),
    Parser(
        "stream-of-events", stream_of_events, SSE, (*JSON_TOKENS, b"\ndata: ", b"\n\n"), most_bytes=4 * MIB
    ),
    Parser("keys-typed", keys_typed, [b"\x1b[A\x1bOPq\x1b[1;2R"], (b"\x1b[", b"\x1bO")),
    Parser(
        "webhook-answer",
        webhook_answer,
        [b"\x01\xf7120", b"\x01\xf7Sun, 22 Nov 2026 01:00:00 GMT", b"\x00\xc8"],
        (b"9" * 400, b"-1", b"+9999", b"99999"),
        most_bytes=64 * KIB,
    ),
    Parser(
        "git-words",
        git_words,
        GIT_OUTPUT,
        TEXT_TOKENS,
        most_bytes=MIB,
        units=(b"://a", b"://a@", b" ! [rejected] a\n", b"fatal: "),
    ),
    Parser(
        "kernel-texts",
        kernel_texts,
        KERNEL,
        (b"\0", b")", b"(", b"IpExt:", b"\nvoluntary_ctxt_switches:"),
        most_bytes=MIB,
    ),
    Parser("socket-messages", socket_messages, NETLINK, (b"\0\0", b"\xff\xff"), most_bytes=64 * KIB),
)
