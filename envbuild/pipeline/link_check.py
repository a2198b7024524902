"""The stage ``linkcheck``: checks whether the shared libraries of an image fit together."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from envbuild import codec, files
from envbuild.errors import InvalidInputError, Problem, VerifyError
from envbuild.linkcheck.model import NO_DRIVER, RequiredDriver
from envbuild.matrix import cache
from envbuild.model.progress import Progress, counted
from envbuild.pipeline import link_check_sources, proofs, stage_cache
from envbuild.pipeline.tools import Tools
from envbuild.workspace import COMPILING_RULES, DRIVER_SYMBOLS, HOST_LIBRARIES, IMPORT_RULES, LINK_RULES

if TYPE_CHECKING:
    from envbuild.linkcheck.model import LayerFacts, LinkReport
    from envbuild.linkcheck.rules import LinkRules
    from envbuild.model.lock import Lock
    from envbuild.pipeline.link_check_sources import Image

_CHECKS = 12  # increase this number when `linkcheck` gets more checks, so that older stored results do not count
_SHOWN = 40
# The first CUDA version with minor-version compatibility. From this version on, matrix/drivers.yaml has the lowest drivers.
_MINOR_FROM = 11
# NVIDIA's images and those of envbuild have this variable, and the container runtime compares it with the host's driver:
# https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html#constraints
_NEEDS_CUDA = "NVIDIA_REQUIRE_CUDA"


@dataclass(frozen=True, kw_only=True, slots=True)
class Linked:
    """The result of a link check; ``report`` is its JSON. ``replayed`` is true if it is a stored result of an earlier run."""

    report: Mapping[str, Any]
    replayed: bool
    seconds: float = 0.0


def link_image(
    tools: Tools, lock: Lock, digest: str, image: str, *, replay: bool, driver: str = "", may_have_gaps: bool = False
) -> Linked:
    """Check the image that was built from ``lock``, and record the proof.

    With ``replay``, a stored result for this image and lock is used. Without ``driver``, the image must work with the lowest
    driver that the matrix has for the environment. A check for a given ``driver`` proves nothing about the lock, and is not
    recorded. Raises :class:`VerifyError` (``not-linked``, exit code 8) with the gaps, unless ``may_have_gaps`` is true. The
    caller then calls :func:`raise_for`.
    """
    from envbuild import build

    began = time.monotonic()
    name = lock.environment.name
    if driver:
        source, wanted = link_check_sources.of_engine(tools, image), named_driver(tools, driver)
        named = codec.encode(check(tools, source, driver=wanted, **_properties(tools, lock)))
        if not may_have_gaps:
            raise_for(named, f"the image of {name}")
        return Linked(report=named, replayed=False, seconds=time.monotonic() - began)
    key = key_of(tools, digest, image)
    known = stage_cache.recall(tools.workspace, name, "linkcheck", key) if replay else None
    replayed = known is not None
    if known is None:
        lowest = RequiredDriver(
            version=lock.environment.driver_min or "", whose="the lowest driver of the matrix for this environment"
        )
        source = link_check_sources.of_engine(tools, image)
        known = dict(codec.encode(check(tools, source, driver=lowest, **_properties(tools, lock))))
        stage_cache.keep(tools.workspace, name, "linkcheck", key, known)
    if known["gaps"]:
        proofs.contradict(tools, name, "linked")
    else:
        proofs.prove_image(tools, build.read_record(tools.workspace, name), image, "linked", replayed=replayed)
    if not may_have_gaps:
        raise_for(known, f"the image of {name}")
    return Linked(report=known, replayed=replayed, seconds=time.monotonic() - began)


def key_of(tools: Tools, digest: str, image: str) -> dict[str, Any]:
    """Return the key of a stored result: the image, the lock's ``digest``, and everything else that the result depends on."""
    return {
        "image": image,
        "lock": digest,
        "checks": _CHECKS,
        "rules": _rules_digest(tools),
        "matrix": cache.fingerprint(tools.workspace),  # the matrix has the drivers and the GPUs
    }


class _Properties(TypedDict):
    features: Collection[str]
    is_for_gpus: bool


def _properties(tools: Tools, lock: Lock) -> _Properties:
    """What the check of an image must know of its environment."""
    return {"features": features_of(tools, lock), "is_for_gpus": lock.environment.require_cuda is not None}


def features_of(tools: Tools, lock: Lock) -> frozenset[str]:
    """Return the names of the features that the recipes have for the framework releases in the lock."""
    recipes = tools.recipes_of(lock.environment)
    frameworks = lock.environment.frameworks
    return frozenset(
        each.name for framework in frameworks for each in recipes[framework.recipe].features if each.applies_to(framework)
    )


def link_and_warn(tools: Tools, lock: Lock, digest: str, image: str) -> Linked | None:
    """Check the image as :func:`link_image` does. If there are gaps, report them as a warning and return None.

    A gap does not always matter, because some wheels contain libraries that no program loads. So the smoke test decides.
    """
    try:
        return link_image(tools, lock, digest, image, replay=True)
    except VerifyError as error:
        if error.code != "not-linked":
            raise
        words = f"{str(error).rstrip('.')}; `envbuild linkcheck {lock.environment.name}` lists them"
        tools.on_progress(Progress(stage="linkcheck", message=words, warning=True))
        return None


def raise_for(report: Mapping[str, Any], subject: str) -> None:
    """Raise :class:`VerifyError` (``not-linked``) with the gaps of a report, if it has gaps."""
    gaps = report["gaps"]
    if not gaps:
        return
    problems = [Problem(where=each["object"], line=0, message=_sentence(each)) for each in gaps[:_SHOWN]]
    more = [f"and {len(gaps) - _SHOWN} more"] if len(gaps) > _SHOWN else []
    remedies = list(dict.fromkeys(each["remedy"] for each in gaps if each["remedy"]))
    is_damaged = all(each["kind"] == "damaged" for each in gaps)
    otherwise = "Build or pull the image again." if is_damaged else "Add the packages that contain them."
    raise VerifyError(
        f"In {subject}, {_counted(gaps)}.",
        code="not-linked",
        problems=problems,
        details=more,
        hint=f"What fills the gaps: {'; '.join(remedies[:4])}." if remedies else otherwise,
    )


# For each kind of gap: the text for one gap, and the text for several gaps.
_WORDS = {
    "library": ("a library is missing", "{} libraries are missing"),
    "version": ("a version of symbols is missing", "{} versions of symbols are missing"),
    "symbol": ("a symbol is missing", "{} symbols are missing"),
    "damaged": ("an object is damaged", "{} objects are damaged"),
    "driver": ("the driver is too old", "the driver is too old for {} objects"),
    "compiler": ("a file for compiling is missing", "{} files for compiling are missing"),
}


def _counted(gaps: Sequence[Mapping[str, Any]]) -> str:
    """Describe how many gaps of each kind there are, as in "2 libraries are missing, and the driver is too old"."""
    counts = Counter(each["kind"] for each in gaps)
    *parts, last = [words[count > 1].format(count) for kind, words in _WORDS.items() if (count := counts[kind])]
    return f"{', '.join(parts)}, and {last}" if parts else last


def _sentence(gap: Mapping[str, Any]) -> str:
    needs = f"needs {gap['needs']}: " if gap["needs"] else ""
    remedy = f"; what fills the gap: {gap['remedy']}" if gap["remedy"] else ""
    return f"{needs}{gap['cause']}{remedy}"


def named_driver(tools: Tools, text: str) -> RequiredDriver:
    """Return the driver that the user named; no driver for an empty text. Raises :class:`UsageError` (``bad-driver``)."""
    from envbuild.resolve.request import names

    version = names.find_driver(tools.matrix, text)[0] if text else ""
    return RequiredDriver(version=version, whose="the driver that you named", is_named=True)


def check(
    tools: Tools,
    image: Image,
    *,
    driver: RequiredDriver = NO_DRIVER,
    features: Collection[str] = (),
    is_for_gpus: bool | None = None,
) -> LinkReport:
    """Check an image. Facts about its layers are stored, so that another image with the same layers needs less time.

    It is a gap if the image cannot run with ``driver``. ``features`` are the names of the features that its recipes have.
    ``is_for_gpus`` says whether its environment is for GPUs; None if this is unknown. An image whose variables name a CUDA
    version for the driver is for GPUs. Libraries that a package opens by name are checked only in an image for GPUs if the
    package also works without a GPU, and are only notes if it is unknown whether the image is for GPUs.
    """
    from envbuild.linkcheck import checking, compiling, gpus, hardware, hosts, image_driver, opened, rules
    from envbuild.linkcheck.model import LinkReport
    from envbuild.linkcheck.tree import Tree
    from envbuild.verify import rules as import_rules

    if not image.layers:
        raise VerifyError(f"{image.name} has no layers, so nothing can be checked.", code="layer-missing")
    if is_for_gpus is None and _NEEDS_CUDA in image.environment:
        is_for_gpus = True
    images = tools.workspace.images
    known, libraries = rules.load(images), import_rules.load(images)
    layers = facts_of(tools, image, known)
    tree = Tree(layers)
    opening = opened.find(tree, known, has_gpu=is_for_gpus is not False)
    if opening:
        layers = opened.added(layers, opening)
        tree = Tree(layers)
    system = link_check_sources.system_of(tree.texts)
    tools.on_progress(Progress(stage="linkcheck", message="resolving the libraries of all objects"))
    links = checking.check(
        tree,
        image.environment,
        known,
        is_of_driver=libraries.is_of_the_driver,
        package_of=lambda library: libraries.own_package_of(library, system),
    )
    excuse = "" if is_for_gpus else "only GPUs need it"
    gaps = opened.explained(links.gaps, opening, excuse=excuse)
    objects = dict(tree.objects())
    in_image = image_driver.loaded(layers, objects, image.environment, known)
    needs = hardware.driver_needs(objects, known, hardware.load(images), toolkits(tools), in_image)
    floors = _floors(tools)
    names = {path: each.libraries for path, each in opening.items() if is_for_gpus or not each.works_without_gpu}
    cuda = hardware.cuda_of(objects, floors, in_image, names)
    code = gpus.gpu_code(objects, known)
    compiled, lacking = compiling.check(
        tree, image.environment, compiling.load(images), has_gpu_code=bool(code), features=features
    )
    bound = hosts.check(objects, hosts.load(images))
    return LinkReport(
        objects=len(objects),
        libraries=len({each.real for process in links.processes.values() for each in process.order}),
        gaps=(
            *(each for each in gaps if not each.excuse),
            *lacking,
            *hardware.driver_gaps(needs, driver),
            *hardware.cuda_gaps(cuda, floors, driver),
        ),
        excused=(*links.excused, *(each for each in gaps if each.excuse)),
        duplicates=links.duplicates,
        facts={
            "driver": needs,
            "lowest_driver": {
                "cuda": [each for each in cuda if each in floors],
                "unknown": [each for each in cuda if each not in floors],
                "driver": hardware.lowest_driver(cuda, floors),
                "matrix": "" if driver.is_named else driver.version,
            },
            "gpu_code": code,
            "gpus": gpus.gpus(code, _capabilities(tools) if code else {}),
            "compilers": gpus.compilers(objects, known),
            "compiling": compiled,
            "hosts": bound,
        },
        notes=(
            *hardware.driver_notes(needs, driver),
            *hardware.cuda_notes(cuda, floors),
            *compiling.notes(compiled),
            *hosts.notes(bound),
        ),
    )


def _floors(tools: Tools) -> dict[str, str]:
    """Map each version of CUDA to its lowest driver. From CUDA 11 on, the keys are major versions."""
    minor = {row.version: row.driver_min for row in tools.matrix.cuda if int(row.version.partition(".")[0]) < _MINOR_FROM}
    return {**minor, **{rule.cuda_major: rule.driver_min for rule in tools.matrix.driver_rules}}


def toolkits(tools: Tools) -> dict[str, str]:
    """Return the driver that came with the first release of each CUDA version. The matrix has the newest release first."""
    return {
        row.version: next((each.driver_min for each in reversed(row.releases) if each.driver_min), row.driver_min)
        for row in tools.matrix.cuda
    }


def facts_of(tools: Tools, image: Image, known: LinkRules) -> list[LayerFacts]:
    """Return the facts about the layers of an image, lowest layer first. Only layers without stored facts are read."""
    from envbuild.linkcheck import layer_facts

    wanted = known.wanted()
    kept = layer_facts.LayerFactStore(tools.workspace.layer_facts, wanted)
    found = {diff_id: facts for diff_id in image.layers if (facts := kept.find(diff_id)) is not None}
    lacking = [diff_id for diff_id in dict.fromkeys(image.layers) if diff_id not in found]
    if lacking:
        told = _Counter(tools, len(lacking))
        folder = tools.workspace.downloads
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(image.read(lacking)) as contents:
            for layer in contents:
                facts = layer_facts.read(layer.pieces, wanted, image.name, told.file, folder=folder)
                if (diff_id := layer.diff_id()) in lacking:
                    found[diff_id] = facts
                    told.layer()
                    kept.keep(diff_id, facts)
    if gone := [diff_id for diff_id in image.layers if diff_id not in found]:
        raise VerifyError(
            f"{counted(len(gone), 'layer')} of {image.name} absent or damaged: the first one is sha256:{gone[0]}.",
            code="layer-missing",
            hint="Build or pull the image again.",
        )
    return [found[diff_id] for diff_id in image.layers]


class _Counter:
    """Reports progress: the finished layers, and the megabytes of the files that were read."""

    def __init__(self, tools: Tools, layers: int) -> None:
        self._tools = tools
        self._layers = layers
        self._done = self._bytes = 0
        self._next = 0.0

    def file(self, size: int) -> None:
        """Count a file of ``size`` bytes that was read."""
        self._bytes += size
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 0.5
            self._say()

    def layer(self) -> None:
        """Count a finished layer."""
        self._done += 1
        self._say()

    def _say(self) -> None:
        message = f"reading layers, {self._bytes >> 20} MB"
        done, total = float(self._done), float(self._layers)
        self._tools.on_progress(Progress(stage="linkcheck", message=message, done=done, total=total, unit="layers"))


def _capabilities(tools: Tools) -> dict[str, list[str]]:
    """Map each compute capability to the names of the GPUs in the matrix that have it."""
    found: dict[str, list[str]] = {}
    for gpu in tools.matrix.gpus:
        found.setdefault(gpu.capability, []).append(gpu.name)
    return found


def _rules_digest(tools: Tools) -> str:
    names = (LINK_RULES, IMPORT_RULES, DRIVER_SYMBOLS, COMPILING_RULES, HOST_LIBRARIES)
    paths = [tools.workspace.images / name for name in names]
    try:
        return "-".join(files.sha256_of(path)[:12] for path in paths)
    except OSError as error:
        raise InvalidInputError(f"Cannot read {error.filename}: {error.strerror}.", hint="Restore the file.") from error
