"""What is stated of a published image: its contents, its origin, and what was proved of it on this machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from envbuild.attest import provenance, statements
from envbuild.attest.statements import Statement
from envbuild.errors import VerifyError
from envbuild.pipeline import changed_since, image_checks, stage_cache
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from collections.abc import Mapping

    from envbuild.pipeline.make import Made


def of_image(tools: Tools, made: Made) -> list[Statement]:
    """The statements about the image that was made.

    They are the same each time for one image and its verdicts, so that publishing it again adds nothing.
    """
    verified = image_checks.verify_image(tools, made.lock, made.digest, made.record.image, replay=True)
    subject = {"image": made.record.image, "lock": made.digest}
    return [
        Statement(kind=statements.SIGNED, predicate={}),
        Statement(kind=statements.SBOM, predicate=_contents(tools, made)),
        Statement(kind=statements.PROVENANCE, predicate=_origin(tools, made)),
        Statement(kind=statements.VERIFIED, predicate={**subject, "status": "pass", "report": verified.report}),
        statements.smoke(made.record.image, made.digest, made.smoked.status, made.smoked.report),
    ]


def _contents(tools: Tools, made: Made) -> Mapping[str, Any]:
    """The bill of materials of the image. The image is asked once which Debian packages are installed."""
    from envbuild import sbom
    from envbuild.verify import installed

    name, image = made.environment.name, made.record.image
    key = {"image": image, "lock": made.digest}
    known = stage_cache.recall(tools.workspace, name, "packages", key)
    if known is None:
        try:
            known = {"packages": installed.packages(tools.engine, image)}
        except VerifyError:  # an image without dpkg: what the lock says is all that is known
            known = {"packages": []}
        stage_cache.keep(tools.workspace, name, "packages", key, known)
    built = sbom.Built(image=image, packages=[tuple(each) for each in known["packages"]]) if known["packages"] else None
    document: Mapping[str, Any] = json.loads(sbom.dumps(made.lock, made.digest, built))
    return document


def _origin(tools: Tools, made: Made) -> Mapping[str, Any]:
    """The provenance. The commit is the one at which the image was published first: its inputs are the same at later ones."""
    import envbuild

    record = made.record
    key = {"image": record.image, "inputs": record.inputs}
    known = stage_cache.recall(tools.workspace, record.name, "origin", key)
    if known is None:
        commit, is_modified = changed_since.head(tools.workspace)
        known = {"commit": commit, "is_modified": is_modified, "version": envbuild.__version__}
        stage_cache.keep(tools.workspace, record.name, "origin", key, known)
    build = provenance.Build(
        name=record.name,
        lock=record.lock,
        inputs=record.inputs,
        rendering=record.rendering,
        guest=record.guest,
        builder=record.builder,
        engine=record.engine,
        built_at=record.built_at,
        **known,
    )
    return provenance.predicate(made.lock, build)
