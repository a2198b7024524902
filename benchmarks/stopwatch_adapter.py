"""An adapter with a stopwatch, which the guest loads for smoke_stopwatch.py. STOPWATCH_OF names the real adapter."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from . import load  # the loader of the guest, which imports this file as one of its modules


class Adapter(load(os.environ["STOPWATCH_OF"])):  # type: ignore[misc]
    """Records two times for each lap: before the first step, and after the devices had finished the last step."""

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
