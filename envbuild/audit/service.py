"""Query the public advisory services, through pip-audit."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Sequence
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from envbuild import guard, procs
from envbuild.errors import PublishError, UsageError
from envbuild.model.lock import Artifact
from envbuild.model.vulnerabilities import Audit, Vulnerability

_LIMIT_S = 600  # pip-audit sends one request per package, each with a limit of 20 s
_SERVICES = {"osv": "OSV (osv.dev)", "pypi": "the Python Packaging Advisory Database (PyPI)"}


def ask(service: str, packages: Sequence[Artifact]) -> Audit:
    """Return the service's advisories about ``packages``.

    The service is asked about versions without a local part: ``2.6.0+cu126`` is a build of the public version 2.6.0.

    Raises :class:`PublishError` (``advisories-unreachable``) if the service does not answer.
    """
    if importlib.util.find_spec("pip_audit") is None:
        raise UsageError(
            "pip-audit, which asks the advisory services, is not installed.",
            code="no-pip-audit",
            hint="Install it: pip install 'envbuild[audit]'. Or name a local OSV database with --database.",
        )
    if not packages:
        return Audit(database=_SERVICES[service], checked=0, findings=(), unchecked=())
    pinned = {(canonicalize_name(each.name), Version(each.version).public): each for each in packages}
    with guard.temporary_folder("envbuild-audit-") as folder:
        listed = folder / "requirements.txt"
        listed.write_text("".join(f"{name}=={version}\n" for name, version in sorted(pinned)))
        argv = [sys.executable, "-m", "pip_audit", "--requirement", str(listed), "--vulnerability-service", service]
        argv += ["--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off", "--timeout", "20"]
        done = procs.run(argv, split=True, timeout_s=_LIMIT_S)
    try:
        answer = json.loads(done.output)["dependencies"]
    except (ValueError, LookupError, TypeError) as error:
        told = [line for line in done.errors.splitlines() if line.strip()] or ["it gave no reason"]
        raise PublishError(
            f"{_SERVICES[service]} did not answer, so {len(pinned)} packages were not checked: {told[-1]}",
            code="advisories-unreachable",
            hint="Try again with a network, ask the other service (--service), or name a local OSV database (--database).",
        ) from error
    found, skipped = [], []
    for package in answer:
        name = canonicalize_name(package["name"])
        if "skip_reason" in package:
            skipped.append(f"{name}: {package['skip_reason']}")
            continue
        found += [_finding(pinned[name, package["version"]], each) for each in package["vulns"]]
    answered = {(canonicalize_name(package["name"]), package["version"]) for package in answer if "skip_reason" not in package}
    named = {canonicalize_name(package["name"]) for package in answer}
    skipped += [f"{name}: the service gave no answer" for name, _ in sorted(pinned) if name not in named]
    return Audit(database=_SERVICES[service], checked=len(answered), findings=tuple(found), unchecked=tuple(skipped))


def _finding(artifact: Artifact, told: dict[str, Any]) -> Vulnerability:
    return Vulnerability(
        package=artifact.name,
        version=artifact.version,
        advisory=told["id"],
        aliases=tuple(sorted(told.get("aliases", ()))),
        fixed_in=tuple(told.get("fix_versions", ())),
        summary=next(iter(told.get("description", "").strip().splitlines()), ""),
    )
