"""Writes a lock as a software bill of materials (CycloneDX 1.6, JSON). Pure: the same lock gives the same bytes.

The bill of materials lists what the lock pins: files of package indexes, Debian packages, CUDA packages. The image's properties
list what the lock could not pin; such a bill is incomplete. For a built image, the bill of materials also lists the
distribution's packages, in the versions that the mirror had on the day of the build.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbuild.model.environment import AptPackage, System
from envbuild.model.lock import Artifact, DebianPackage, Lock, Prefix

if TYPE_CHECKING:
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """An image, and the (name, version, architecture) of each package of the distribution that it contains."""

    image: str
    packages: Sequence[tuple[str, str, str]]


def dumps(lock: Lock, digest: str, built: Built | None = None) -> str:
    """Return the bill of materials of ``lock``, whose hash is ``digest``, or that of the image ``built`` if it is given.

    The bill of materials has no time stamp. Its serial number is made from the hash of the lock and the id of the image.
    """
    from cyclonedx.model.bom import Bom
    from cyclonedx.output.json import JsonV1Dot6

    image = _image(lock, digest, built)
    address = f"https://cyclonedx.org/envbuild/{digest}" + (f"/{built.image}" if built else "")
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, address))
    bom.metadata.component = image
    parts = list(_components(lock, built))
    for part in parts:
        bom.components.add(part)
    bom.register_dependency(image, parts)
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    document["metadata"].pop("timestamp", None)  # optional; with a time stamp, two bills of one lock would differ
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _image(lock: Lock, digest: str, built: Built | None) -> Component:
    from cyclonedx.model.component import ComponentType

    environment = lock.environment
    known = {"envbuild:lock": digest, "envbuild:base": environment.base.provider}
    if built is not None:
        known["envbuild:image"] = built.image
    for name, value in (("cuda", environment.cuda), ("cudnn", environment.cudnn), ("nccl", environment.nccl)):
        if value:
            known[f"envbuild:{name}"] = value
    properties = [*known.items(), *(("envbuild:not-pinned", f"{item.what}: {item.why}") for item in lock.missing)]
    return _component(ComponentType.CONTAINER, environment.name, digest[:8], f"image/{environment.name}", properties=properties)


def _components(lock: Lock, built: Built | None) -> Iterator[Component]:
    from cyclonedx.model.component import ComponentType

    system = lock.environment.system
    yield _component(ComponentType.OPERATING_SYSTEM, system.family, system.version, f"os/{system.name}")
    if lock.base.digest:
        kind, _, value = lock.base.digest.partition(":")
        image = lock.base.image
        yield _component(ComponentType.CONTAINER, image, value, f"base/{image}", sha256=value if kind == "sha256" else "")
    packages: Iterable[DebianPackage | AptPackage] = lock.environment.base.packages
    pinned = [*lock.image_packages(), *packages]
    if built is None:
        for package in pinned:
            architecture = package.architecture if isinstance(package, DebianPackage) and package.architecture else "amd64"
            yield _debian(package.name, package.version, architecture, package.sha256, system)
    else:
        hashes = {(package.name, package.version): package.sha256 for package in pinned}
        for name, version, architecture in built.packages:
            of_lock = [] if (name, version) in hashes else [("envbuild:pinned", "no")]
            yield _debian(name, version, architecture, hashes.get((name, version), ""), system, of_lock)
    for prefix in lock.prefixes:
        for artifact in prefix.installed:
            yield _python(artifact, prefix)


def _debian(  # noqa: PLR0917 - the fields of a package in dpkg
    name: str, version: str, architecture: str, sha256: str, system: System, properties: Iterable[tuple[str, str]] = ()
) -> Component:
    from cyclonedx.model.component import ComponentType
    from packageurl import PackageURL

    where = {"arch": architecture, "distro": f"{system.family}-{system.version}"}
    url = PackageURL(type="deb", namespace=system.family, name=name, version=version, qualifiers=where)
    return _component(ComponentType.LIBRARY, name, version, str(url), url=url, sha256=sha256, properties=properties)


def _python(artifact: Artifact, prefix: Prefix) -> Component:
    from cyclonedx.model.component import ComponentType
    from packageurl import PackageURL

    where = {"file_name": artifact.filename} | ({} if artifact.index == "default" else {"repository_url": artifact.index})
    url = PackageURL(type="pypi", name=artifact.name, version=artifact.version, qualifiers=where)
    properties = [("envbuild:prefix", prefix.name), ("envbuild:python", prefix.python.version)]
    return _component(
        ComponentType.LIBRARY,
        artifact.name,
        artifact.version,
        f"{prefix.name}/{artifact.name}@{artifact.version}",
        url=url,
        sha256=artifact.sha256,
        properties=properties,
    )


def _component(
    kind: ComponentType,
    name: str,
    version: str,
    reference: str,
    *,
    url: PackageURL | None = None,
    sha256: str = "",
    properties: Iterable[tuple[str, str]] = (),
) -> Component:
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.component import Component

    return Component(
        type=kind,
        name=name,
        version=version,
        bom_ref=reference,
        purl=url,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)] if sha256 else [],
        properties=[Property(name=key, value=value) for key, value in properties],
    )
