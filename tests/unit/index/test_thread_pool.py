"""A pool of threads. Waiting for its results is done in short pieces, so that Ctrl-C always works."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from envbuild.index import thread_pool
from envbuild.index.thread_pool import DaemonPool, finished, result_of


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_pool, "PIECE_S", 0.001)


def test_answers_come_as_they_are_done_however_many_pieces_that_takes() -> None:
    pool, first, second = DaemonPool(2), threading.Event(), threading.Event()
    early, late = pool.submit(first.wait, 60), pool.submit(second.wait, 60)
    came = []
    first.set()
    for future in finished([late, early]):
        came.append(future)
        threading.Timer(0.05, second.set).start()  # dozens of waiting pieces later
    assert came == [early, late]


def test_nothing_to_wait_for_is_nothing() -> None:
    assert list(finished([])) == []


@pytest.mark.parametrize("error", [TimeoutError("of the job itself"), KeyError("x")])
def test_what_a_job_raises_is_raised(error: Exception) -> None:
    future: Future[None] = Future()
    future.set_exception(error)
    with pytest.raises(type(error)):
        result_of(future)
