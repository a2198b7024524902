"""Another adapter with a stopwatch in it: loaded by the guest, for smoke_stopwatch.py."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from . import load  # the guest's, where this file is loaded


class Adapter(load(os.environ["STOPWATCH_OF"])):  # type: ignore[misc]
    """Writes down [begin of the first step, end of drain] of everything that is stepped."""

    _begun: float | None = None

    def setup(self, ctx: Any) -> None:
        self._laps: list[tuple[float, float]] = []
        super().setup(ctx)

    def step(self, handle: Any, batch: Any, lr: float) -> Any:
        if self._begun is None:
            self._begun = time.time()
        return super().step(handle, batch, lr)

    def drain(self) -> None:
        super().drain()
        if self._begun is not None:
            self._laps.append((self._begun, time.time()))
            self._begun = None

    def close(self) -> None:
        target = Path(os.environ["STOPWATCH_TO"], f"rank-{self.ctx.rank}.json")
        target.write_text(json.dumps({"rank": self.ctx.rank, "laps": self._laps}))
        super().close()
