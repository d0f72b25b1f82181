"""Serve tools to one client over stdin and stdout, and end with it.

The library ``mcp`` has no bound for a line, and waits for threads at its end; both are bounded here.
"""

import os
import re
import select
import threading
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import suppress
from typing import Any, cast

import anyio
import anyio.to_thread
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.stdio import stdio_server
from mcp.types import CallToolResult, TextContent, Tool, ToolAnnotations
from pydantic import ValidationError

from ralphctl.mcp.replies import cut, plain
from ralphd import __version__, wire
from ralphd.errors import RalphdError

MOST_CALLS = 16
"""Calls at a time; what comes on top is refused."""
_GRACE_S = 0.5
_CHUNK = 1 << 16
_EDGE = 4096
_WORDS = rb'"(?:jsonrpc|method)"\s*:\s*"[^"\\]{0,100}"\s*'
_ID = rb'"id"\s*:\s*(-?(?:0|[1-9]\d{0,17})|"[^"\\\x00-\x1f]{0,100}")\s*'
_ID_FIRST = re.compile(rb"\s*\{\s*(?:%s,\s*){0,2}%s," % (_WORDS, _ID))
_ID_LAST = re.compile(rb",\s*%s(?:,\s*%s){0,2}\}\s*\Z" % (_ID, _WORDS))


def run(
    tools: Collection[tuple[Callable[..., Any], ToolAnnotations]], allowed: Collection[str], instructions: str
) -> None:
    """Serve ``tools`` until the client closes stdin or ends; list only those that are ``allowed``."""
    server = GuardedServer("ralphd", version=__version__, log_level="ERROR", instructions=instructions)
    server.allowed = allowed
    for function, annotations in tools:
        server.add_tool(function, annotations=annotations, structured_output=False)
    try:
        anyio.run(_serve, server)
    except KeyboardInterrupt:
        os._exit(wire.EXIT_INTERRUPTED)  # a thread still reads stdin


async def _serve(server: "GuardedServer") -> None:
    lines = _Lines()
    low = server._lowlevel_server  # its public methods build the streams themselves
    async with stdio_server(cast("Any", lines), cast("Any", lines)) as (reading, writing):
        await low.run(reading, writing, low.create_initialization_options())


class GuardedServer(MCPServer[Any]):
    """Lists only the allowed tools, in few words; answers with an error that says what to do."""

    allowed: Collection[str] = ()
    _calls = 0

    async def list_tools(self) -> list[Tool]:
        """Return the allowed tools, without the titles that pydantic adds."""
        tools = [tool for tool in await super().list_tools() if tool.name in self.allowed]
        for tool in tools:
            tool.input_schema = _untitled(tool.input_schema)
        return tools

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """Call a tool. A refusal is a result that is marked as an error, for the agent to read."""
        if (refusal := self._refusal(name, arguments)) or self._calls >= MOST_CALLS:
            return _error(refusal or f"{MOST_CALLS} calls are under way: wait for one of them to end")
        self._calls += 1
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as fault:
            match fault.__cause__:
                case RalphdError() as cause:
                    return _error(str(cause))
                case ValidationError() as cause:
                    wrong = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in cause.errors())
                    return _error(f"{name}: {'; '.join(wrong)}")
            raise
        finally:
            self._calls -= 1

    def _refusal(self, name: str, arguments: dict[str, Any]) -> str:
        if (schema := self._tool_input_schema(name)) is None:
            return f"unknown tool {name[:100]!r}; the tools: {', '.join(self.allowed)}"
        if name not in self.allowed:
            return f"{name} is not allowed here; to allow it: ralphctl mcp --allow {name}"
        known = schema["properties"]
        unknown = sorted(arguments.keys() - known.keys())
        return f"{name} takes no {unknown[0][:100]!r}, only {', '.join(known)}" if unknown else ""


def _untitled(schema: Any) -> Any:
    """Return a schema without titles. No argument of a tool is named ``title``."""
    if isinstance(schema, dict):
        return {key: _untitled(each) for key, each in schema.items() if key != "title"}
    return schema


def _error(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=cut(plain(text)))], is_error=True)


class _Lines:
    """The lines of stdin, each of bounded length, and stdout, for ``stdio_server``.

    File descriptors 0 and 1 are led elsewhere, so that nothing else reads or writes between the messages.
    """

    def __init__(self) -> None:
        self._in, self._out = os.dup(0), os.dup(1)
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)
        os.dup2(2, 1)
        os.close(nowhere)
        self._writing = anyio.Lock()
        self._poll = select.poll()
        self._poll.register(self._in, select.POLLIN)
        self._parent = -1
        with suppress(OSError):  # without pidfds the end of stdin has to do
            self._parent = os.pidfd_open(os.getppid())
            self._poll.register(self._parent, select.POLLIN)

    async def write(self, text: str) -> None:
        """Write a message. A client that reads no more is one that has ended."""
        async with self._writing:
            try:
                await anyio.to_thread.run_sync(self._write, text.encode(errors="replace"))
            except OSError:
                os._exit(wire.EXIT_OK)

    async def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._out, data) :]

    def _read(self) -> bytes:
        ready = {descriptor for descriptor, _ in self._poll.poll()}
        return b"" if self._parent in ready else os.read(self._in, _CHUNK)

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield lines until the client closes stdin or its process ends; then end this process soon."""
        rest, head = b"", b""
        while chunk := await anyio.to_thread.run_sync(self._read, abandon_on_cancel=True):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if head or len(line) > wire.MAX_BODY_BYTES:
                    await self.write(_too_long(head or line[:_EDGE], line[-_EDGE:]))
                else:
                    yield line.decode(errors="replace")
                head = b""
            if head or len(rest) > wire.MAX_BODY_BYTES:
                head, rest = head or rest[:_EDGE], rest[-_EDGE:]
        # A thread may wait for the daemon; an interpreter that ends waits for its threads.
        end = threading.Timer(_GRACE_S, os._exit, (wire.EXIT_OK,))
        end.daemon = True
        end.start()


def _too_long(head: bytes, tail: bytes) -> str:
    """Return the error for a message that is too long, with the id of its request if an edge shows it."""
    found = _ID_FIRST.match(head) or _ID_LAST.search(tail)
    id = found[1].decode(errors="replace") if found else "null"
    message = f"the message is longer than {wire.MAX_BODY_BYTES} bytes; nothing was done"
    return f'{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32600,"message":"{message}"}}}}\n'
