"""Record the digests of the layers of huge wheels: make these layers for all committed locks.

    python benchmarks/recorded_layers.py [NAME…] [--jobs 2] [--minutes 0]

A huge wheel has more than 50 MB. For each huge wheel that a committed lock pins, this program downloads the wheel, makes its
layer with all checks, and adds the digests of the layer to images/recorded-layers.json. With NAME, it does so only for the
wheels of these environments. The wheel and the layer are not kept. Layers that the file has already are not made again. Layers
that no committed lock needs any more are removed from the file. Exits with 1 if a layer could not be made.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from envbuild import workspace, wrong_records
from envbuild.compose import downloads, layer_plan, recorded_layers, wheel_layer
from envbuild.compose.layer_plan import WheelLayer
from envbuild.compose.model import InstallPlace, Layer
from envbuild.errors import EnvbuildError
from envbuild.lock import lock_file
from envbuild.model.lock import Artifact
from envbuild.model.progress import ignore_progress
from envbuild.pipeline import composing
from envbuild.pipeline.tools import Tools


class Nowhere:
    """A stream that keeps nothing."""

    def write(self, data: bytes) -> int:
        """Forget ``data``."""
        return len(data)


def planned(tools: Tools, names: list[str]) -> dict[str, tuple[WheelLayer, Artifact]]:
    """The layers of huge wheels of the environments, by their keys, each with its wheel."""
    found = {}
    for name in names:
        lock = lock_file.read(tools.workspace.lock_file(name))
        if not composing.is_possible(tools, lock):
            continue
        for prefix in lock.prefixes:
            artifacts = {each.sha256: each for each in prefix.artifacts if each.filename.endswith(".whl")}
            wheels = [downloads.wheel(artifact) for artifact in artifacts.values()]
            for layer in layer_plan.wheel_layers(prefix, wheels, ""):
                if layer.holds == "files":
                    found[layer.key] = layer, artifacts[layer.wheels[0].sha256]
    return found


def make(tools: Tools, layer: WheelLayer, artifact: Artifact) -> Layer:
    """Download the wheel, and make its layer with all checks."""
    prefix = layer.prefix
    place = InstallPlace(prefix=prefix.path, python=prefix.python.version, installer=prefix.backend)
    wrong = wrong_records.load(tools.workspace.images)
    with tempfile.TemporaryDirectory() as folder, wheel_layer.OpenWheels(wrong) as opened:
        file = tools.index.fetch_artifact(artifact, Path(folder), ignore_progress)
        return wheel_layer.write(Nowhere(), [(file, True)], place, {}, opened)  # type: ignore[arg-type]


def kept(before: Mapping[str, Layer], wanted: Mapping[str, tuple[WheelLayer, Artifact]]) -> dict[str, tuple[str, Layer]]:
    """The recorded layers that a committed lock still needs."""
    return {key: (wanted[key][0].title, layer) for key, layer in before.items() if key in wanted}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=0, help="begin no new layer after this many minutes")
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
    tools = Tools(workspace.find())
    images = tools.workspace.images
    every = planned(tools, sorted(each.parent.name for each in tools.workspace.environments.glob("*/lock.json")))
    found = kept(recorded_layers.load(images), every)
    lacking = planned(tools, options.names) if options.names else every
    left = {key: each for key, each in lacking.items() if key not in found}

    def run(layer: WheelLayer, artifact: Artifact) -> Layer | None:
        return make(tools, layer, artifact) if time.monotonic() < until else None

    failed: list[str] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = {pool.submit(functools.partial(run, *each)): key for key, each in left.items()}
        for number, job in enumerate(as_completed(jobs), 1):
            title = left[jobs[job]][0].title
            try:
                layer = job.result()
            except EnvbuildError as error:
                failed.append(title)
                print(f"{title}: {error.message}", file=sys.stderr, flush=True)
                continue
            if layer is not None:
                found[jobs[job]] = title, layer
                recorded_layers.write(images, found)
                print(f"{number} of {len(left)}: {title}, {layer.size / 1e6:.0f} MB", flush=True)
    recorded_layers.write(images, found)
    print(f"{len(found)} of {len(every)} layers are recorded in {recorded_layers.FILE}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
