"""Measures the wheels of new releases, so that the rows of these releases state the GPU code and the glibc version of the
wheels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from packaging.utils import parse_wheel_filename

from envbuild.index.client import Index
from envbuild.index.project_pages import IndexFile
from envbuild.matrix.online.new_row import MeasuredNeeds
from envbuild.measure import answer_json, comparison, measured_files, published
from envbuild.model.progress import OnProgress
from envbuild.workspace import Workspace


class WheelNeeds:
    """Measures each wheel once. ``summaries`` maps file names to measurements, in the form that is stored with the matrix.

    ``known`` are earlier measurements. Their wheels are not measured again.
    """

    def __init__(self, index: Index, folder: Path, on_progress: OnProgress, known: Iterable[dict[str, Any]] = ()) -> None:
        self.summaries = {each["filename"]: each for each in known}
        self._index, self._folder, self._on_progress = index, folder, on_progress

    def __call__(self, file: IndexFile) -> MeasuredNeeds | None:
        """Return the GPU code and the glibc version of a wheel; None if the file name says that the wheel has no compiled code.

        Raises :class:`InvalidInputError` for a damaged wheel, and the errors of the index.
        """
        if all(tag.platform == "any" for tag in parse_wheel_filename(file.filename)[3]):
            return None
        if file.filename not in self.summaries:
            measured = published.measure_published(self._index, file, self._folder, self._on_progress)
            self.summaries[file.filename] = answer_json.summary(measured)
        summary = self.summaries[file.filename]
        code = summary["gpu_code"]
        if code is None:
            return MeasuredNeeds(native=(), ptx=(), glibc=summary["glibc"])
        if code["certainty"] == "unclear":
            return MeasuredNeeds(native=None, ptx=None, glibc=summary["glibc"])
        native, ptx = (comparison.as_in_rows(code[field], field) for field in ("native", "ptx"))
        return MeasuredNeeds(native=native, ptx=ptx, glibc=summary["glibc"])


@contextmanager
def opened(index: Index, workspace: Workspace, on_progress: OnProgress) -> Iterator[WheelNeeds]:
    """Yield a :class:`WheelNeeds` that knows the stored measurements of ``workspace``. Remove its temporary files at the end.

    Raises :class:`InvalidInputError` for a damaged file of measurements.
    """
    with published.room(workspace.downloads) as folder:
        yield WheelNeeds(index, folder, on_progress, measured_files.read(workspace.measured))
