"""Pair a device: a code from the terminal, a number to compare, and a yes that only the terminal can give.

``ralphctl web pair`` connects to a socket of the page in the state directory. The kernel tells who connects,
so that a process of a run is refused whatever it removed from its environment. Nothing of it is on disk.
"""

import asyncio
import base64
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from ralphctl.web.devices import Devices, Role, device_name, public_point
from ralphctl.web.guard import Rates, Site, problem_document
from ralphd.errors import DaemonBusy, Forbidden, NotFound, RalphdError, UsageError, WithinRun
from ralphd.process.peer_run import peer_of, run_of

CODE_S: Final = 120.0
TRIES: Final = 5
POLL_S: Final = 20.0
_MOST_TICKETS: Final = 8
_LINE_BYTES: Final = 4096
Paired = tuple[Role, str]


@dataclass(eq=False)
class _Offer:
    """A code that a terminal shows; ``asked`` is the device that typed it, ``outcome`` what became of it."""

    role: Role
    code: str = field(default_factory=lambda: base64.b32encode(secrets.token_bytes(10)).decode())
    number: str = field(default_factory=lambda: f"{secrets.randbelow(10_000):04}")
    ticket: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    tries: int = 0
    asked: asyncio.Future[tuple[str, str | None]] = field(default_factory=asyncio.Future)
    outcome: asyncio.Future[Paired | None] = field(default_factory=asyncio.Future)


class PairingDesk:
    """Where a terminal and a browser meet. ``about`` returns what ``ralphctl web`` shows."""

    def __init__(self, site: Site, devices: Devices, about: Callable[[], Mapping[str, Any]]) -> None:
        self._site, self._devices, self._about = site, devices, about
        self._offer: _Offer | None = None
        self._tickets: dict[str, _Offer] = {}
        self._rate = Rates(per_s=1, burst=30)

    # --- the browser's side ---------------------------------------------------------------------------

    def ask(self, code: object, name: object, key: object) -> tuple[str, str]:
        """Use a code. Return the ticket and the number of the attempt. Raise RalphdError."""
        self._rate.take("")
        offer, wrong = self._offer, Forbidden("the code is not valid, or no longer", mend="ralphctl web pair")
        if not isinstance(code, str) or not isinstance(name, str) or len(name) > 200:
            raise UsageError("a code and a name are text")
        if offer is None or offer.asked.done():
            raise wrong
        typed = code.strip().replace("-", "").upper().encode(errors="replace")
        if not secrets.compare_digest(typed, offer.code.encode()):
            offer.tries += 1
            if offer.tries >= TRIES:
                offer.asked.set_exception(Forbidden(f"{TRIES} wrong codes: nobody is paired"))
            raise wrong
        point = public_point(key) if offer.role == "act" else None
        offer.asked.set_result((device_name(name), point))
        self._tickets[offer.ticket] = offer
        while len(self._tickets) > _MOST_TICKETS:
            del self._tickets[next(iter(self._tickets))]
        return offer.ticket, offer.number

    async def outcome(self, ticket: str) -> Paired | None:
        """Return role and session, once; None: no answer within POLL_S. Raise Forbidden, NotFound."""
        if (offer := self._tickets.get(ticket)) is None:
            raise NotFound("the ticket is not known")
        await asyncio.wait([offer.outcome], timeout=POLL_S)
        if not offer.outcome.done():
            return None
        if self._tickets.pop(ticket, None) is None or (paired := offer.outcome.result()) is None:
            raise Forbidden("the terminal did not let this device in", mend="ralphctl web pair")
        return paired

    # --- the terminal's side --------------------------------------------------------------------------

    async def serve_terminal(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one terminal: each message is an object in a line."""

        async def send(content: Mapping[str, Any]) -> None:
            writer.write(json.dumps(content).encode() + b"\n")
            await asyncio.wait_for(writer.drain(), 5)

        try:
            peer = peer_of(writer.get_extra_info("socket"))
            if not peer.is_welcome or run_of(peer.pid, peer.uid, peer.ticks, lambda run_id: True) is not None:
                raise WithinRun
            asked = json.loads(await asyncio.wait_for(reader.readline(), 5))
            if asked.get("do") == "pair" and asked.get("role") in ("look", "act"):
                await self._pair(asked["role"], reader, send)
            else:
                await send(self._about())
        except RalphdError as fault:
            with suppress(OSError, TimeoutError):
                await send(problem_document(fault))
        except (OSError, TimeoutError, ValueError, AttributeError, RecursionError):
            pass
        finally:
            writer.close()

    async def _pair(
        self, role: Role, reader: asyncio.StreamReader, send: Callable[[Mapping[str, Any]], Awaitable[None]]
    ) -> None:
        if self._offer is not None:
            raise DaemonBusy("another terminal pairs a device", mend="end that one, or wait two minutes")
        offer = self._offer = _Offer(role)
        answer = asyncio.ensure_future(reader.readline())  # or the end of the terminal
        paired: Paired | None = None
        try:
            await send({"code": offer.code, "url": self._site.url})
            waited: list[asyncio.Future[Any]] = [offer.asked, answer]
            await asyncio.wait(waited, timeout=CODE_S, return_when=asyncio.FIRST_COMPLETED)
            if not offer.asked.done():
                raise Forbidden("nobody has used the code", mend="ralphctl web pair")
            name, key = offer.asked.result()
            await send({"asks": name, "number": offer.number})
            await asyncio.wait([answer], timeout=CODE_S)
            if not answer.done() or not _is_yes(answer.result()):
                raise Forbidden(f"{name} is not paired")
            device, session = await asyncio.to_thread(self._devices.add, name, role, key)
            paired = role, session
            await send({"paired": device.name, "role": role})
        finally:
            answer.cancel()
            offer.asked.cancel()
            offer.outcome.set_result(paired)
            self._offer = None


def _is_yes(line: bytes) -> bool:
    answer = json.loads(line or b"null")
    return isinstance(answer, dict) and answer.get("yes") is True
