"""Settings of the long random searches.

They use the same examples every time, a twentieth of what a search asks for. ``ENVBUILD_FUZZ_TIMES=1`` makes all of them, as
`make prove` does, and ``ENVBUILD_FUZZ_SEED=1`` selects other examples.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy, tuples


def fuzz(examples: int, *strategies: SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Turn a check into a test that runs it on this number of examples, and fails if it ran on fewer."""
    times = float(os.environ.get("ENVBUILD_FUZZ_TIMES", "0.05"))
    number = os.environ.get("ENVBUILD_FUZZ_SEED")
    count = max(1, int(examples * times))
    # No shrinking: it can take longer than the whole search, and an example is only a line of text.
    phases = (Phase.explicit, Phase.generate)
    common = settings(max_examples=count, deadline=None, database=None, phases=phases, suppress_health_check=list(HealthCheck))

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        name = check.__name__

        def test() -> None:
            ran = 0

            @seed(int(number) if number else zlib.crc32(name.encode()))
            @common
            @given(tuples(*strategies))
            def one(drawn: tuple[Any, ...]) -> None:
                nonlocal ran
                ran += 1
                check(*drawn)

            one()
            assert ran >= count

        test.__name__, test.__doc__ = name, check.__doc__
        return test

    return decorate
