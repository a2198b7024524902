"""A pool of threads that end with the process, so that Ctrl-C does not wait for a slow index."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, as_completed
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
PIECE_S = 0.5


_Job = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


class DaemonPool:
    """A thread pool like ``ThreadPoolExecutor``, but the interpreter can end before the queued work is finished.

    When nothing refers to the pool any more, its threads finish the queued work and then end.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._started = False
        self._guard = threading.Lock()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Run ``function(*args)`` in a thread. The returned future gets the result or the exception."""
        with self._guard:
            if not self._started:
                for number in range(self._workers):
                    # The threads refer only to the queue, so that the pool itself can be freed while they wait.
                    threading.Thread(target=_work, args=(self._jobs,), name=f"index-{number}", daemon=True).start()
                weakref.finalize(self, _end, self._jobs, self._workers).atexit = False
                self._started = True
        future: Future[T] = Future()
        self._jobs.put((future, function, args))
        return future


def _work(jobs: SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        future, function, args = job
        try:
            future.set_result(function(*args))
        except BaseException as error:  # raised again where the result is read
            future.set_exception(error)
        del job, future, function, args  # free these objects before the thread waits for its next job


def _end(jobs: SimpleQueue[_Job | None], workers: int) -> None:
    for _ in range(workers):
        jobs.put(None)


def finished(futures: Iterable[Future[T]]) -> Iterator[Future[T]]:
    """Yield the futures, each as soon as it is done.

    The wait is divided into half seconds. A Ctrl-C that arrives just before Python waits for a lock does not end the wait:
    Python notices it only after the wait.
    """
    left = set(futures)
    while left:
        with contextlib.suppress(TimeoutError):
            for future in as_completed(left, timeout=PIECE_S):
                left.discard(future)
                yield future


def result_of(future: Future[T]) -> T:
    """Return the result of ``future``, or raise its exception."""
    return next(finished([future])).result()
