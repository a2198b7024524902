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


def test_the_threads_of_a_dropped_pool_finish_their_work_and_end() -> None:
    before, begun, go = set(threading.enumerate()), threading.Event(), threading.Event()
    pool = DaemonPool(2)
    first = pool.submit(lambda: begun.set() or go.wait(60))
    rest = [pool.submit(int, number) for number in range(5)]
    assert begun.wait(60)
    threads = set(threading.enumerate()) - before
    assert len(threads) == 2
    del pool
    go.set()
    assert [result_of(each) for each in (first, *rest)] == [True, 0, 1, 2, 3, 4]
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
