"""Speaks to circusd for the bench, since its protocol needs pyzmq; run by the peers' Python, by path.

    circus_asks.py ENDPOINT

Reads requests from stdin, a JSON line each: ``{"message": …, "count": N}``; answers each by a line,
``{"reply": …, "took_s": […]}``, or ``{"error": …}``. Says ``{}`` when it is ready. ``ENDPOINT`` is an ipc
address.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import zmq  # type: ignore[import-not-found]  # installed beside circus, not beside ralphd

ANSWER_MS = 35_000


def main(endpoint: str) -> None:
    """Answer until stdin ends."""
    context = zmq.Context()
    link = None
    print("{}", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            _await_file(Path(endpoint.removeprefix("ipc://")))
            link = link or _connected(context, endpoint)
            answer = _answer(link, request["message"], request["count"])
        except (zmq.ZMQError, TimeoutError) as fault:
            answer = {"error": f"{type(fault).__name__}: {fault}"}
            link = None
        print(json.dumps(answer), flush=True)


def _await_file(path: Path) -> None:
    deadline = time.monotonic() + ANSWER_MS / 1e3
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError("circusd did not open its socket")
        time.sleep(0.001)


def _connected(context: Any, endpoint: str) -> Any:
    link = context.socket(zmq.DEALER)
    link.setsockopt(zmq.LINGER, 0)
    link.setsockopt(zmq.RECONNECT_IVL, 1)
    link.setsockopt(zmq.RCVTIMEO, ANSWER_MS)
    link.setsockopt(zmq.SNDTIMEO, ANSWER_MS)
    link.connect(endpoint)
    return link


def _answer(link: Any, message: dict[str, Any], count: int) -> dict[str, Any]:
    took_s = []
    reply: Any = None
    for number in range(count):
        data = json.dumps({**message, "id": str(number)}).encode()
        begun = time.perf_counter()
        link.send(data)
        raw = link.recv()
        took_s.append(time.perf_counter() - begun)
        reply = json.loads(raw)
    return {"reply": reply, "took_s": took_s}


if __name__ == "__main__":
    main(sys.argv[1])
