"""Show the result of a smoke test: its table, the files of its report, and the reason if it did not pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from envbuild import errors
from envbuild.cli import wording
from envbuild.cli.session import Session, describe

if TYPE_CHECKING:
    from envbuild.pipeline.image_checks import Smoked


def show(session: Session, document: dict[str, Any], smoked: Smoked) -> int:
    """Print the verdict and return its exit code. If the verdict is not pass, the JSON document also has an ``error``."""
    error = _error(smoked)
    session.document(complete(document, smoked))
    if smoked.report and not session.json:
        from envbuild.report import plain_text

        session.out(plain_text.table(smoked.report).rstrip("\n"))
        session.out("")
    files = [(kind, smoked.paths[kind]) for kind in ("json", "html", "markdown", "junit") if kind in smoked.paths]
    session.out(wording.columns([[kind, str(path)] for kind, path in files]))
    if error is not None:
        session.failure(describe(error, session.options))
    return smoked.exit_code


def complete(document: Mapping[str, Any], smoked: Smoked) -> dict[str, Any]:
    """Return the document with the verdict added. If the verdict is not pass, the document also gets an ``error``."""
    error = _error(smoked)
    told = {
        **document,
        "status": smoked.status,
        "replayed": smoked.replayed,
        "reports": {kind: str(path) for kind, path in smoked.paths.items()},
        "report": smoked.report,
    }
    return told if error is None else {**told, "error": error.to_json()}


def _error(smoked: Smoked) -> errors.EnvbuildError | None:
    if smoked.exit_code == errors.SmokeFailedError.exit_code:
        return errors.SmokeFailedError(smoked.sentence, hint=smoked.hint)
    if smoked.exit_code == errors.SmokeInconclusiveError.exit_code:
        return errors.SmokeInconclusiveError(smoked.sentence, hint=smoked.hint)
    return None
