"""An agent with the official client library, over stdio, in front of a real daemon."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from ralphctl.mcp.server import MOST_CALLS
from tests.helpers import eventually, is_alive, wait_for
from tests.whole.guarded import Guarded
from tests.whole.harness import Daemon
from tests.whole.test_landing import Yard
from tests.whole.witnesses import Witness

LIMIT_S = 60.0
MOST_TOKENS = 1200
COMMAND = ("-m", "ralphctl", "mcp")
BOTH = ("--allow", "act,start")
HANDSHAKE = (
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
)  # fmt: skip
CLIENT = """\
import subprocess, sys
server = subprocess.Popen([sys.executable, *sys.argv[1:]])
print(server.pid, flush=True)
server.wait()
"""
WITHIN = """\
import sys, anyio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
import os
async def main():
    given = {name: text for name, text in os.environ.items() if name[:6] != "RALPH_"}  # as codex does
    server = StdioServerParameters(command=sys.executable, args=sys.argv[1:], env=given)
    async with Client(stdio_client(server)) as client:
        for action in ("stop", "land"):
            reply = await client.call_tool("act", {"name": "demo", "action": action})
            print("refused" if reply.is_error else "done", reply.content[0].text, flush=True)
        reply = await client.call_tool("get_status", {"name": "demo"})
        print("read", reply.content[0].text, flush=True)
anyio.run(main)
"""


@asynccontextmanager
async def served(daemon: Daemon, *options: str) -> AsyncIterator[Client]:
    server = StdioServerParameters(
        command=sys.executable, args=[*COMMAND, *options], env=daemon.environment, cwd=daemon.home
    )
    async with Client(stdio_client(server)) as client:
        yield client


def register(daemon: Daemon, name: str, *command: str) -> None:
    directory = daemon.home / name
    directory.mkdir()
    words = {"directory": str(directory), "command": command, "name": name, "start": True}
    daemon.ask("POST", "/v1/ralphs", {**words, "environment": daemon.environment})


async def answer(client: Client, tool: str, **arguments: Any) -> Any:
    reply = await client.call_tool(tool, arguments)
    assert not reply.is_error, reply
    return json.loads(text_of(reply))


def text_of(reply: Any) -> str:
    (content,) = reply.content
    return str(content.text)


@contextmanager
def raw_server(environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A server that has shaken hands, to be sent anything."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, *COMMAND], env=environment, stdin=pipe, stdout=pipe) as server:
        try:
            for each in HANDSHAKE:
                send(server, json.dumps(each).encode())
            assert replies_of(server, until=1)
            yield server
        finally:
            server.kill()


def send(server: subprocess.Popen[bytes], line: bytes) -> None:
    assert server.stdin
    server.stdin.write(line + b"\n")
    server.stdin.flush()


def replies_of(server: subprocess.Popen[bytes], *, until: int) -> list[Any]:
    assert server.stdout
    got = [json.loads(server.stdout.readline())]
    while got[-1]["id"] != until:
        got.append(json.loads(server.stdout.readline()))
    return got


def peak_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


async def at_rest(client: Client) -> str:
    """What ``get_status`` answers twice in a row: soon after the event, what the run left is still read."""
    shown = [""]
    while len(shown) < 2 or shown[-1] != shown[-2]:
        assert len(shown) < 50, shown[-2:]
        shown.append(text_of(await client.call_tool("get_status", {"name": "demo", "explain": True})))
    return shown[-1]


def test_an_agent_reads_and_steers_a_ralph(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    witness.register()
    daemon.becomes("demo", "running")

    async def session() -> None:
        async with served(daemon, *BOTH) as client:
            (row,) = (await answer(client, "get_status"))["ralphs"]
            assert (row["name"], row["state"], row["actions"]) == ("demo", "Running", ["stop", "pause"])
            begin = await answer(client, "wait", name="demo", cursor=0, kind="ralph.started")
            assert begin["events"][0]["type"] == "ralph.started"
            every = (await answer(client, "wait", cursor=0))["events"]
            assert [each["id"] for each in every] == sorted({each["id"] for each in every})
            assert every[0]["type"] == "daemon.started" and every[0]["text"].startswith("pid ")
            paused = await answer(client, "act", name="demo", action="pause")
            assert paused["state"] in ("Pausing", "Paused")
            event = await answer(client, "wait", name="demo", cursor=begin["cursor"], kind="ralph.paused")
            assert event["events"][0]["text"]
            view = json.loads(await at_rest(client))
            assert (view["state"], view["reason"]) == ("Paused", "as requested")
            assert view["actions"] == event["actions"]["demo"] == ["stop", "resume"]
            assert view["why"]["request"] == "pause"
            assert (await answer(client, "get_status", state="Paused"))["total"] == 1
            assert (await answer(client, "get_status", state="Failed"))["ralphs"] == []
            assert (await answer(client, "act", name="demo", action="resume"))["state"] != "Paused"
            await answer(client, "act", name="demo", action="stop")
            await answer(client, "wait", name="demo", cursor=event["cursor"], kind="ralph.stopped")
            refused = await client.call_tool("act", {"name": "demo", "action": "resume"})
            assert refused.is_error and "start it instead" in text_of(refused)
            assert (await answer(client, "act", name="demo", action="ack"))["state"] == "Stopped"
            for action, why in (("undo", "nothing of demo"), ("skip-wait", "not waiting"), ("land", "git")):
                refused = await client.call_tool("act", {"name": "demo", "action": action})
                assert refused.is_error and why in text_of(refused), refused
            started = await answer(client, "start", target=str(witness.directory))
            assert started["name"] == "demo" and started["state"] in ("Starting", "Running")
            unknown = await client.call_tool("wait", {"name": "other"})
            assert unknown.is_error and "other" in text_of(unknown)
            refused = await client.call_tool("start", {"target": "demo", "command": ["rm"]})
            assert refused.is_error and "takes no 'command'" in text_of(refused)
            assert "demo" in text_of(await client.call_tool("report", {"since": "1h"}))
            figures = await answer(client, "report", name="demo", since="1h", form="figures")
            assert figures["ralphs"][0]["counts"]["runs"] >= 1

    anyio.run(session)


def test_an_agent_skips_a_wait_acknowledges_undoes_and_lands(daemon: Daemon) -> None:
    daemon.start()
    waiter, guarded, yard = Witness.of(daemon, "waiter"), Guarded.of(daemon), Yard.of(daemon)
    waiter.register(retry_backoff_seconds=3600, max_retries=2)
    guarded.register()
    guarded.does(1, "broken")
    yard.ralph("api", new="text\n")
    waiter.end(1)
    daemon.becomes("waiter", "waiting_for_retry")
    assert guarded.verdict(1)["kind"] == "reverted"
    guarded.ends(75)
    daemon.becomes("demo", "paused")

    async def session() -> None:
        async with served(daemon, *BOTH) as client:

            async def act(name: str, action: str) -> Any:
                shown = await answer(client, "get_status", name=name)
                assert action in shown["actions"] or action == "land", shown  # offered when its work is done
                return await answer(client, "act", name=name, action=action)

            waits = await answer(client, "get_status", name="waiter")
            assert waits["state"] == "WaitingForRetry" and waits["until"] and waits["reason"]
            await act("waiter", "skip-wait")
            waiter.started(2)
            waiter.end(1)
            daemon.becomes("waiter", "failed")
            assert (await act("waiter", "ack"))["alert"]["acknowledged_at"]
            assert daemon.view("waiter")["incident"]["acknowledged_at"]
            assert "ack" not in (await answer(client, "get_status", name="waiter"))["actions"]

            assert "undo" not in (await act("demo", "undo"))["actions"]
            assert guarded.subjects()[:2] == ['Reapply "broken"', 'Revert "broken"']

            assert (await act("api", "land"))["landing"]
            yard.ended(1)
            assert yard.git("show", "main:new") == "text"
            again = await client.call_tool("act", {"name": "api", "action": "land"})
            assert again.is_error and text_of(again), again

    anyio.run(session)


def test_of_40_calls_at_once_16_are_made_and_each_is_answered(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    witness.register()
    refusals: list[str] = []
    events: list[str] = []

    async def session() -> None:
        async with served(daemon) as client, anyio.create_task_group() as calls:

            async def wait() -> None:
                reply = await client.call_tool("wait", {"name": "demo", "kind": "ralph.paused", "cursor": 0})
                if reply.is_error:
                    refusals.append(text_of(reply))
                else:
                    events.append(json.loads(text_of(reply))["events"][0]["type"])

            for _ in range(40):
                calls.start_soon(wait)
            await eventually(lambda: len(refusals) == 40 - MOST_CALLS, what="the refusals")
            assert not events
            daemon.ask("POST", "/v1/ralphs/demo/pause", {})

    anyio.run(session)
    assert {text.split(":")[0] for text in refusals} == {f"{MOST_CALLS} calls are under way"}
    assert events == ["ralph.paused"] * MOST_CALLS


def test_a_hostile_log_is_read_page_by_page(daemon: Daemon) -> None:
    daemon.start()
    line = r"\033[31m%s\033[0m \033]0;evil\007bell\a %060d\n"
    register(daemon, "loud", "sh", "-c", f"for i in $(seq 400); do printf '{line}' $i 0; done")
    daemon.becomes("loud", "done")

    async def session() -> None:
        async with served(daemon) as client:
            last = await client.call_tool("logs", {"name": "loud", "tail": 500})
            assert len(text_of(last).encode()) <= 8192
            assert "\\u001b" not in text_of(last) and "\\u0007" not in text_of(last)
            assert json.loads(text_of(last))["older_left_out"]
            run = daemon.view("loud")["run_id"]
            reply = {"cursor": f"{run}:1:0:0", "more": True}
            lines: list[str] = []
            while reply.get("more"):
                reply = await answer(client, "logs", name="loud", cursor=reply["cursor"])
                lines += reply["lines"]
            numbers = [line.split()[0] for line in lines if "bell" in line]
            assert numbers == [str(number) for number in range(1, 401)]
            assert not any("\x1b" in line or "evil" in line for line in lines)

    anyio.run(session)


def test_the_tools_are_few_short_and_read_only_at_first(daemon: Daemon) -> None:
    async def session() -> None:
        async with served(daemon, *BOTH) as client:
            tools = (await client.list_tools()).tools
            listed = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
            # A token is about four characters of JSON; the instructions are in the context, too.
            words = json.dumps(listed, separators=(",", ":")) + str(client.instructions)
            assert len(words) / 4 <= MOST_TOKENS, f"{len(words) / 4} tokens"
            assert [tool.name for tool in tools] == ["get_status", "logs", "report", "wait", "act", "start"]
            hints = {tool.name: tool.annotations for tool in tools if tool.annotations}
            assert [name for name, hint in hints.items() if not hint.read_only_hint] == ["act", "start"]
            assert [name for name, hint in hints.items() if hint.destructive_hint] == ["act"]
        async with served(daemon) as client:
            assert len((await client.list_tools()).tools) == 4
            refused = await client.call_tool("act", {"name": "demo", "action": "stop"})
            assert refused.is_error and "ralphctl mcp --allow act" in text_of(refused)
            away = await client.call_tool("get_status", {})
            assert away.is_error and "ralphctl regent start" in text_of(away)

    anyio.run(session)


def test_within_a_run_the_daemon_refuses(daemon: Daemon, tmp_path: Path) -> None:
    daemon.start()
    (tmp_path / "within.py").write_text(WITHIN)
    register(daemon, "demo", sys.executable, str(tmp_path / "within.py"), *COMMAND, *BOTH)
    daemon.becomes("demo", "done", timeout_s=LIMIT_S)
    printed = daemon.ask("GET", "/v1/ralphs/demo/logs?format=text&stream=stdout").decode().splitlines()
    results = [line for line in printed if line.split()[0] in ("refused", "done", "read")]
    assert [line.split()[0] for line in results] == ["refused", "refused", "read"], printed
    assert results[0].startswith("refused refused: this is a supervised run")
    assert json.loads(results[2].removeprefix("read "))["actions"] == []


def test_a_message_of_10_mb_is_an_error(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    witness.register(start=False)

    async def session() -> None:
        async with served(daemon) as client:
            with pytest.raises(MCPError, match="longer than 1048576 bytes"):
                await client.call_tool("get_status", {"name": "x" * 10_000_000})
            refused = await client.call_tool("get_status", {"name": "x" * 1_000_000})
            assert refused.is_error and len(text_of(refused)) < 1000
            assert (await answer(client, "get_status"))["total"] == 1

    anyio.run(session)
    with raw_server(daemon.environment) as server:
        grown = [-peak_kb(server.pid)]
        for line in (b"x" * 10_000_000, b"[" * 500_000, b"{}", b"\xff\x00"):
            send(server, line)
        send(server, json.dumps({"id": 7, "method": "tools/call", "params": "y" * 10_000_000}).encode())
        found = [reply["id"] for reply in replies_of(server, until=7)]
        assert found[0] is None and found[-1] == 7
        grown.append(peak_kb(server.pid))
        assert sum(grown) < 20_000


def test_the_server_ends_with_its_client(daemon: Daemon) -> None:
    daemon.start()
    with raw_server(daemon.environment) as server:  # stdin is closed in the middle of a wait
        call = {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "wait", "arguments": {}},
        }
        send(server, json.dumps(call).encode())
        assert server.stdin
        server.stdin.close()
        assert server.wait(LIMIT_S) == 0

    reading, writing = os.pipe()  # the client is killed, and somebody else still holds the other end
    command = [sys.executable, "-c", CLIENT, *COMMAND]
    parent = subprocess.Popen(command, env=daemon.environment, stdin=reading, stdout=subprocess.PIPE)
    try:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        os.write(writing, json.dumps(HANDSHAKE[0]).encode() + b"\n")
        assert b"protocolVersion" in parent.stdout.readline()
        parent.kill()
        wait_for(lambda: not is_alive(pid), what="the end of the server")
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()  # type: ignore[union-attr]
        os.close(reading)
        os.close(writing)
