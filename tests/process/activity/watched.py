"""What the tests of the watch share: an observer of a run, and a run that does what it is told."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ralphd.core.stall_detector import Changes, Window
from ralphd.process.activity.probe import Observer, RunTree
from ralphd.process.spawn import Run
from tests.helpers import eventually
from tests.players import player
from tests.process.runs import Stage, output


class NoFiles:
    """A working directory in which nothing ever changes."""

    def changes(self) -> Changes:
        """Nothing."""
        return Changes()

    def close(self) -> None:
        """Nothing is held."""


def observer_of(run: Run) -> Observer:
    """The observer of a run's tree alone."""
    assert run.record is not None
    return Observer(RunTree(run.record), NoFiles())


@dataclass
class Obedient:
    """A run of ``watch_spawner``, that does one thing after the other."""

    run: Run
    orders: int
    told: int = 0

    async def do(self, thing: str) -> None:
        """Have it do one thing, and wait until it is done."""
        self.told += 1
        os.write(self.orders, f"{thing}\n".encode())
        await eventually(lambda: output(self.run.directory).count(b"\n") == self.told + 1, what=thing)


async def obedient(stage: Stage, *, allow_cgroup: bool = True) -> Obedient:
    """Start one. ``closing`` lets go of it."""
    fifo = stage.home.parent / "orders"
    os.mkfifo(fifo)
    run = await stage.spawn(player("watch_spawner", fifo), allow_cgroup=allow_cgroup)
    await eventually(lambda: output(run.directory) == b"ready\n", what="ready")
    return Obedient(run, os.open(fifo, os.O_RDWR))


@contextmanager
def closing(obedient: Obedient) -> Iterator[Obedient]:
    """Let go of its orders at the end."""
    try:
        yield obedient
    finally:
        os.close(obedient.orders)


async def look_until(observer: Observer, sign: str) -> Window:
    """Look until a window shows something of this sign; fail when none does."""

    def seen() -> Window | None:
        window = observer.look()
        return window if getattr(window, sign) else None

    window = await eventually(seen, timeout_s=20, what=sign)
    assert window is not None
    return window


async def window_of(observer: Observer, length_s: float) -> Window:
    """What is seen between two looks that are at least ``length_s`` apart."""
    observer.look()
    end = time.monotonic() + length_s
    await eventually(lambda: time.monotonic() >= end, timeout_s=length_s + 30, what="the window's end")
    return observer.look()
