"""Finds how a system gets a Python: from its distribution, as a standalone build, from conda, or in the user's own base."""

from __future__ import annotations

from envbuild.errors import InvalidInputError
from envbuild.matrix.placement import supplies_on
from envbuild.matrix.platform import SystemRow
from envbuild.model.environment import Python, RemoteFile
from envbuild.resolve.request.model import PYTHON, PYTHON_FROM
from envbuild.resolve.search.lookup import Lookup
from envbuild.resolve.search.objections import Objection, objection, status_objection


def python_on(lookup: Lookup, version: str, system: SystemRow, image: str, supply: str = "") -> Python | Objection:
    """Return how Python ``version`` comes into an image of ``system``, or why it cannot.

    If the request names a supply, Python comes from that ``supply`` alone. Otherwise the package of the distribution is
    preferred to other supplies.

    In a user's own image, the folder of the interpreter is not known: official Python images have it in /usr/local/bin,
    distributions in /usr/bin, other images elsewhere. So the interpreter is searched for on the image's PATH by its name
    without a folder, such as ``python3.6``.
    """
    key = (version, system.name, bool(image), supply)
    return lookup.once("python", key, lambda: _python_on(lookup, version, system, image, supply))


def _python_on(lookup: Lookup, version: str, system: SystemRow, image: str, supply: str) -> Python | Objection:
    row = lookup.pythons.get(version)
    if row is not None and (bad := status_objection(row.key, row.origin, PYTHON)):
        return bad
    usual = ("base",) if image else ("distribution", *lookup.matrix.policy.python_from)
    for way in (supply,) if supply else usual:
        if found := _supplied(lookup, way, version, system, image):
            return found
    if supply not in ("", "distribution"):
        return _not_supplied(lookup, version, system, supply)
    carried = ", ".join(python.version for python in system.pythons) or "none"
    part = PYTHON_FROM if supply else PYTHON
    return objection(part, system.key, f"has Python {carried}, not {version}", system.origin.source_of("pythons"))


def _not_supplied(lookup: Lookup, version: str, system: SystemRow, supply: str) -> Objection:
    row = lookup.pythons.get(version)
    least = [each.glibc for each in (row.supplies if row else ()) if each.by == supply]
    if supply == "base":
        reason = "is a plain system without a Python of its own: use an image of yours (--base IMAGE)"
        return objection(PYTHON_FROM, system.key, reason, system.origin.source)
    if row is None or not least:
        return objection(PYTHON_FROM, f"python {version}", f"{supply} does not provide it", row.origin.source if row else "")
    reason = f"has glibc {system.glibc}; Python {version} from {supply} needs {least[0]}"
    return objection(PYTHON_FROM, system.key, reason, system.origin.source_of("glibc"))


def _supplied(lookup: Lookup, way: str, version: str, system: SystemRow, image: str) -> Python | None:
    """The Python that the supply ``way`` has for a system, or None if ``way`` has no such Python for that system."""
    if way == "base":
        return Python(version=version, provided_by="base", executable=f"python{version}", packages=()) if image else None
    if way == "distribution":
        for ours in system.pythons:
            if ours.version == version:
                return Python(version=version, provided_by="distribution", executable=ours.executable, packages=ours.packages)
        return None
    row = lookup.pythons.get(version)
    for supply in supplies_on(row, system) if row and way in lookup.matrix.policy.python_from else ():
        if supply.by == way:
            return Python(
                version=version,
                provided_by=supply.by,
                executable=supply.executable,
                packages=(),
                files=tuple(remote_file(lookup, name) for name in supply.files),
                installer=remote_file(lookup, supply.installer) if supply.installer else None,
            )
    return None


def remote_file(lookup: Lookup, name: str) -> RemoteFile:
    """Return the address and hash of the archive with that name, as a value for an environment."""
    row = lookup.archives.get(name)
    if row is None:
        raise InvalidInputError(
            f"The matrix names the file {name}, but its table `archives` has no such row.",
            code="invalid-matrix",
            hint="Correct the name; `envbuild matrix check` lists all such names.",
        )
    return RemoteFile(url=row.url, sha256=row.sha256)
