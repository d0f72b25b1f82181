"""One POST to an address that was checked first. The only place of the daemon that imports httpx."""

import asyncio
import concurrent.futures
import logging
import socket
import ssl
import threading
from contextlib import suppress

import certifi
import httpx

from ralphd import __version__
from ralphd.core.delivery import Answer, ReceiverReply, Unreached, why_not

CONNECT_LIMIT_S = 3.0
READ_LIMIT_S = 8.0
REPLY_LIMIT_S = 2.0
MAX_REPLY_BYTES = 64 << 10
_PORTS = {"http": 80, "https": 443}
_HEADERS = {"user-agent": f"ralphd/{__version__}", "accept-encoding": "identity"}

for _name in ("httpx", "httpcore"):  # they log whole addresses and headers, and both may hold secrets
    logging.getLogger(_name).setLevel(logging.WARNING)


async def post(url: str, *, headers: dict[str, str], payload: bytes, allow_private: bool) -> Answer:
    """Post ``payload`` and return the answer.

    Resolve the name once, check each of its addresses, and connect to a checked address: a second lookup
    could return another one (DNS rebinding). Follow no redirects and use no proxies. Read at most
    MAX_REPLY_BYTES of the reply and discard them. The caller limits the total time.
    """
    try:
        target = httpx.URL(url)
        if target.userinfo:  # httpx would make it an Authorization header
            return Unreached("user names and passwords in a URL are not supported")
        addresses = await _resolve(target.raw_host.decode("ascii"), target.port or _PORTS[target.scheme])
    except (httpx.InvalidURL, KeyError, UnicodeError):
        return Unreached("the URL is not of the form https://HOST/PATH")
    except OSError as error:
        return Unreached(f"the host name cannot be resolved: {error.strerror}")
    if why := why_not(addresses, allow_private=allow_private):
        return Unreached(why)
    return await _post_to_first(target, addresses, headers, payload)


async def _post_to_first(
    target: httpx.URL, addresses: list[str], headers: dict[str, str], payload: bytes
) -> Answer:
    # Without TLS nothing is trusted, and loading no authorities saves 20 ms.
    trust = await asyncio.to_thread(_trust) if target.scheme == "https" else False
    answer: Answer = Unreached("the host name has no address")
    async with httpx.AsyncClient(verify=trust, trust_env=False, follow_redirects=False) as client:
        for address in addresses:
            try:
                return await _post_to(client, target, address, headers, payload)
            except httpx.ConnectTimeout:  # its own text names no time
                answer = Unreached(f"no connection: timed out after {CONNECT_LIMIT_S:g} s")
            except httpx.ConnectError as error:
                answer = Unreached(f"no connection: {str(error) or type(error).__name__}")
            except httpx.TimeoutException:
                return Unreached(f"no reply within {READ_LIMIT_S:g} s")
            except httpx.RemoteProtocolError:
                return Unreached("the receiver closed the connection or did not answer with HTTP")
            except httpx.HTTPError as error:
                return Unreached(f"the connection failed: {type(error).__name__}")
    return answer


async def _post_to(
    client: httpx.AsyncClient, target: httpx.URL, address: str, headers: dict[str, str], payload: bytes
) -> Answer:
    url, sent = target.copy_with(host=address), {"host": target.netloc.decode("ascii"), **_HEADERS, **headers}
    limit, sni = httpx.Timeout(READ_LIMIT_S, connect=CONNECT_LIMIT_S), target.raw_host.decode("ascii")
    async with client.stream(
        "POST", url, content=payload, headers=sent, extensions={"sni_hostname": sni}, timeout=limit
    ) as response:
        await _drain(response)
    return ReceiverReply(response.status_code, response.headers.get("retry-after"))


async def _drain(response: httpx.Response) -> None:
    # Read a little, so that a receiver does not see its reply cut off; the answer is the status.
    read = 0
    with suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(REPLY_LIMIT_S):
            async for chunk in response.aiter_raw():
                read += len(chunk)
                if read >= MAX_REPLY_BYTES:
                    return


async def _resolve(host: str, port: int) -> list[str]:
    # A thread of its own that nobody joins: a resolver that hangs must not delay the end of the daemon.
    result: concurrent.futures.Future[list[str]] = concurrent.futures.Future()
    result.set_running_or_notify_cancel()  # from now on a cancelled attempt leaves it to the thread

    def look_up() -> None:
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            result.set_result(list(dict.fromkeys(str(info[4][0]) for info in infos)))
        except (OSError, UnicodeError) as error:
            result.set_exception(error)

    threading.Thread(target=look_up, name="resolve", daemon=True).start()
    return await asyncio.wrap_future(result)


def _trust() -> ssl.SSLContext:
    # The system's own authorities, and certifi's for systems that have none.
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context
