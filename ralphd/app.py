"""Build the parts of the daemon, serve, and stop them in the reverse order."""

import asyncio
import errno
import gc
import json
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, closing, nullcontext, suppress
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from ralphd import __version__
from ralphd.api.server import Listener
from ralphd.daemon.host import Host
from ralphd.daemon.services import EventPublisher, Services
from ralphd.dataclass import dataclass
from ralphd.diagnostics import LogLimit
from ralphd.errors import PROBLEM_PREFIX, DaemonBusy, DirectoryBusy, DirectoryUnusable, RalphdError
from ralphd.git import repo
from ralphd.notify.client import WebhookClient
from ralphd.notify.desktop import show_alerts
from ralphd.notify.hub import Hub
from ralphd.notify.worker import DeliveryWorker
from ralphd.plain_files import reason, status_of
from ralphd.process.lock import DirectoryLock
from ralphd.process.machine import Clock, raise_own_limit, share_freed_memory
from ralphd.store.events import EventStore
from ralphd.store.files import Held, Lock, make_private_directory, remove_leftovers, set_aside, write_whole
from ralphd.systemd import Systemd

logger = logging.getLogger(__name__)

OWNERSHIP_EVERY_S = 5.0
WORKERS, HUNG_S = 256, 5.0
"""A thread that hangs in a dead file system must keep neither the others' work waiting nor the end."""


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """Where the daemon lives. ``umask`` is the one it was started under, and its runs are.

    ``tied`` is the descriptor of a pipe: at its end of file the daemon ends, and all its runs (P5).
    A socket that ``systemd`` has handed over is used instead of ``socket_path``. With ``undo`` (NAME, NAME:N,
    NAME:rN for repair N) it only does that, prints the result as JSON, and ends.
    """

    state_directory: Path
    socket_path: Path
    umask: int
    tied: int | None = None
    undo: str | None = None
    systemd: Systemd = field(default_factory=Systemd)


@dataclass(slots=True)
class Ownership:
    """The locks on the state directory: on itself, and on ``lock`` in it, which names the owner.

    A run can delete the file. The lock on the directory keeps a second daemon out all the same.
    """

    directory: DirectoryLock
    file: Lock

    async def keep(self) -> None:
        """Restore a deleted lock file, and the commands that runs call, until cancelled."""
        while True:
            await asyncio.sleep(OWNERSHIP_EVERY_S)
            if not self.file.in_place():
                logger.warning("%s was deleted; it is restored", self.file.path)
                self.file.release()
                with suppress(OSError, Held):
                    self.file = Lock.acquire(self.file.path, f"{os.getpid()}\n")
            if status_of((commands := self.file.path.with_name("bin")) / "ralphctl") is None:
                _write_commands(commands)

    def release(self) -> None:
        self.directory.release()
        self.file.release()  # last: who waits for the next daemon looks at the file


def own(state_directory: Path) -> Ownership:
    """Lock the state directory. What is in place of its lock or log and is no regular file is set aside.

    Raise DaemonBusy, which names the owner, or DirectoryUnusable.
    """
    make_private_directory(state_directory)
    with ExitStack() as undo:
        try:
            directory = DirectoryLock.acquire(state_directory)
            undo.callback(directory.release)
            for name in ("lock", "ralphd.log"):  # a run can put there what blocks or cannot be written
                if os.path.lexists(path := state_directory / name) and status_of(path) is None:
                    set_aside(path)
            owned = Ownership(directory, Lock.acquire(state_directory / "lock", f"{os.getpid()}\n"))
        except (DirectoryBusy, Held) as held:
            text = held.owner_text if isinstance(held, Held) else held.why.removeprefix("held by pid ")
            mend = "ralphctl regent status; or give this one its own RALPHD_STATE_DIR"
            what = f"another ralphd (pid {text.strip() or 'unknown'}) owns {state_directory}"
            raise DaemonBusy(what, mend=mend) from held
        except OSError as fault:
            what = f"nothing can be written in {state_directory}, where ralphd keeps its state"
            mend = f"make it writable: findmnt -T {state_directory}; or give ralphd another RALPHD_STATE_DIR"
            raise DirectoryUnusable(what, why=reason(fault), mend=mend) from fault
        undo.pop_all()
    remove_leftovers(state_directory)
    return owned


def _write_commands(folder: Path) -> None:
    """Write the ``ralphctl`` and ``ralph`` that runs call, of this installation and whatever its place is."""
    text = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m ralphctl "$@"\n'
    try:
        make_private_directory(folder)
        for name in ("ralphctl", "ralph"):
            write_whole(folder / name, text.encode(), durable=False, mode=0o700)
    except (OSError, DirectoryUnusable) as fault:
        logger.warning("runs may not find ralphctl: %s", fault)


class Workers(ThreadPoolExecutor):
    """Threads for what blocks. Where none can be started, those that there are do it, once."""

    def _adjust_thread_count(self) -> None:
        # Without this, ``submit`` raises, and a thread that is idle later does what was reported as not done.
        with suppress(RuntimeError) if self._threads else nullcontext():
            super()._adjust_thread_count()


async def serve(settings: DaemonSettings, owned: Ownership, ready: Callable[[], None]) -> None:
    """Be the daemon until asked to end. ``ready`` is called once it has adopted what lives and answers.

    The caller holds the state directory (``owned``). Raises RalphdError.
    """
    raise_own_limit()
    share_freed_memory()
    repo.umask = settings.umask
    loop = asyncio.get_running_loop()
    loop.set_default_executor(Workers(WORKERS, "worker"))
    async with AsyncExitStack() as parts:
        sockets = settings.systemd.sockets
        handed_over = parts.enter_context(closing(Listener.handed_over(sockets))) if sockets else None
        clock = Clock()
        events = await EventStore.open(settings.state_directory / "events.db")
        parts.push_async_callback(events.close)
        courier = WebhookClient(lambda event: host.webhooks.facts_of(event))
        sender = DeliveryWorker(events, lambda: host.webhooks, courier)
        services = Services(
            state_directory=settings.state_directory,
            socket_path=handed_over.path if handed_over else settings.socket_path,
            umask=settings.umask,
            clock=clock,
            news=EventPublisher(events, Hub(), clock, sender.nudge),
            refusals=lambda: host.webhooks.refusals(),
            tied=settings.tied,
            systemd=settings.systemd,
        )
        host = Host(services, courier)
        if settings.undo is not None:
            await _undo(settings.undo, settings.state_directory / "ralphs", host)
            return
        _obey_signals(host)
        _report_exhaustion()
        if settings.tied is not None:
            _end_with(settings.tied, host)
        _write_commands(services.commands)
        await host.recover()
        listener = handed_over or Listener.bind(settings.socket_path)
        keeper = asyncio.create_task(owned.keep())
        parts.callback(keeper.cancel)
        await _serve_until_shutdown(host, services, sender, listener, ready)
    loop.call_later(HUNG_S, os._exit, 0)


async def _undo(what: str, homes: Path, host: Host) -> None:
    name, _, which = what.partition(":")
    number = int(which.removeprefix("r") or 0) if which else None
    try:
        is_repair = which.startswith("r")
        answer = await host.undo_alone(homes / name, *((None, number) if is_repair else (number, None)))
    except RalphdError as fault:
        kind = PROBLEM_PREFIX + fault.slug
        answer = {"type": kind, "detail": fault.what, "why": fault.why, "try": fault.mend}
    print(json.dumps(answer))  # noqa: T201 - ralphctl reads it


async def _serve_until_shutdown(
    host: Host, services: Services, sender: DeliveryWorker, listener: Listener, ready: Callable[[], None]
) -> None:
    # Imported this late: runs are watched again before half a second of imports.
    from ralphd.api.app import create_app
    from ralphd.api.server import ApiServer

    server = ApiServer(create_app(host), listener, is_within=host.callers.is_within)
    works = {
        "reachability": lambda: server.keep_reachable(lambda problem: services.trouble("socket", problem)),
        "webhooks": sender.run, "supervision": host.look_round, "pruning": host.prune,
    }  # fmt: skip
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(server.run_until_asked())
        others = [tasks.create_task(services.endure(topic, work)) for topic, work in works.items()]
        others.append(tasks.create_task(show_alerts(host.hub, host.webhooks.facts_of, os.environ)))
        await services.news.tell("daemon.started", {"pid": os.getpid(), "version": __version__})
        # A full collection waits for a quarter as many new objects as the last one has left: now few.
        gc.freeze()
        gc.collect()
        host.say_ready()
        logger.info("ready: pid %d, socket %s", os.getpid(), listener.path)
        ready()
        how = await host.wait_for_shutdown()
        await host.end(how)
        host.hub.close()
        server.ask_to_exit()
        await serving
        for task in others:
            task.cancel()
    logger.info("ended")


def _end_with(tied: int, host: Host) -> None:
    """End at once, with all runs, when the process at the other end of ``tied`` has ended (P5)."""
    os.set_inheritable(tied, False)  # only a shim gets it, by name
    loop = asyncio.get_running_loop()
    ending: list[asyncio.Task[None]] = []

    def end() -> None:
        if not os.read(tied, 1):
            loop.remove_reader(tied)
            ending.append(loop.create_task(host.shutdown("now")))

    loop.add_reader(tied, end)


def _report_exhaustion() -> None:
    """Log once a minute, without a traceback, that no descriptor is left for another connection."""
    limit = LogLimit(logger)

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        fault = context.get("exception")
        if isinstance(fault, OSError) and fault.errno in (errno.EMFILE, errno.ENFILE):
            limit.warn("no descriptor is left for another connection; it is accepted when one is free")
        else:
            loop.default_exception_handler(context)

    asyncio.get_running_loop().set_exception_handler(handle)


def _obey_signals(host: Host) -> None:
    """The daemon's column of docs/signals.md."""
    meanings: dict[signal.Signals, Literal["finish", "leave", "now"]] = {
        signal.SIGTERM: "finish",
        signal.SIGINT: "finish",
        signal.SIGQUIT: "now",
        signal.SIGUSR2: "leave",
    }
    loop = asyncio.get_running_loop()
    seen: set[signal.Signals] = set()

    def obey(number: signal.Signals) -> None:
        how = "now" if seen and meanings[number] == "finish" else meanings[number]
        seen.add(number)
        task = loop.create_task(host.shutdown(how, by_signal=number == signal.SIGTERM))
        pending.add(task)
        task.add_done_callback(pending.discard)

    pending: set[asyncio.Task[None]] = set()
    for number in meanings:
        loop.add_signal_handler(number, obey, number)
    loop.add_signal_handler(signal.SIGHUP, host.reload)
    loop.add_signal_handler(signal.SIGUSR1, lambda: None)  # a handler, since what is ignored is inherited
    with suppress(ValueError):
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
