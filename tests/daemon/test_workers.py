"""What blocks is done once, also where no further thread can be started."""

import threading

import pytest

from ralphd.app import Workers


def test_what_no_thread_can_be_started_for_is_done_once_by_those_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over, done = threading.Event(), list[str]()
    with Workers(4) as workers:
        workers.submit(over.wait, 30)

        def refuse(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as lacks:
            lacks.setattr(threading.Thread, "start", refuse)
            waits = workers.submit(done.append, "revert")
        assert not waits.done()
        over.set()
        waits.result(30)
    assert done == ["revert"]


def test_without_any_thread_the_lack_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    workers = Workers(4)
    with monkeypatch.context() as lacks:
        lacks.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            workers.submit(print)
    workers.shutdown()
