"""Words (types of fixed texts) that matrix rows, environments and locks share."""

from __future__ import annotations

from typing import Literal

Status = Literal["ok", "known-bad", "unknown", "base-deleted", "end-of-life"]
PythonFrom = Literal["distribution", "uv", "conda", "base"]
CudaLibraries = Literal["none", "system", "bundled", "wheels"]
Provider = Literal["distribution", "tag", "apt", "wheels", "conda", "debian", "local"]

SCHEMA = 1
