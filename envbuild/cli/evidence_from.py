"""``envbuild evidence NAME --from HOST/REPOSITORY``: gather smoke reports of other machines, signed with trusted keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild.cli import options, wording
from envbuild.cli.session import Session
from envbuild.errors import UsageError

if TYPE_CHECKING:
    from envbuild.pipeline.gathered_reports import AcceptedReport
    from envbuild.pipeline.gathering import GatheredStatements, Judged
    from envbuild.pipeline.tools import Tools


def run(session: Session, names: Sequence[str], repository: str, key_files: Sequence[Path], others: Sequence[str]) -> int:
    """Gather the statements about each NAME, store the accepted smoke reports, and show all statements.

    ``others`` are the options on the command line that cannot be combined with ``--from``.
    """
    from envbuild import codec
    from envbuild.attest import keys
    from envbuild.compose.outputs import registry_client
    from envbuild.pipeline import gathering, resolving, trusted_sources

    if repository and others:
        raise UsageError(
            f"--from cannot be combined with {', '.join(others)}.",
            hint="For example: envbuild evidence NAME --from HOST/REPOSITORY --key cosign.pub",
        )
    if not repository or not names:
        raise UsageError(
            "--from needs NAME…; --key needs --from.",
            hint="For example: envbuild evidence NAME --from HOST/REPOSITORY --key cosign.pub",
        )
    policy = session.tools().policy
    if not key_files and (policy is None or not policy.signers):
        raise UsageError(
            "--from needs the public keys that you trust.",
            hint="Name each key with --key FILE, for example --key cosign.pub, or list the keys under `signers` in a policy.",
        )
    registry_client.parse(repository)
    trusted = [keys.public_key(path) for path in key_files]
    signers = dict(zip((key.hint for key in trusted), map(str, key_files), strict=True))
    if policy is not None and policy.signers:
        signers = {key.hint: each.key for each, key in trusted_sources.current_signers(policy)}
    answers = []
    for name in names:
        tools = session.tools([name])
        canonical = resolving.resolve_request(tools, [name], options.chosen({})).environment.name
        answers.append(gathering.gather(tools, canonical, repository, trusted))
        session.out(_text(answers[-1], signers))  # print now, because the next NAME may fail
    session.document({"schema": 1, "gathered": codec.encode(answers)})
    return 0


def known(tools: Tools, name: str) -> tuple[AcceptedReport, ...]:
    """Return the stored reports about ``name`` that still count.

    Tests on GPUs come before tests on the CPU. Within each of these groups, passed tests come before other tests, and newer
    tests come before older tests.
    """
    from envbuild.pipeline import gathered_reports

    newest_first = sorted(gathered_reports.held(tools, name), key=lambda each: each.date, reverse=True)
    return tuple(sorted(newest_first, key=lambda each: (each.kind != "smoke-gpu", each.status != "pass")))


def proofs_of(tools: Tools, name: str) -> dict[str, Any]:
    """Return the fields about proofs for the JSON documents of `show` and `resolve`.

    These are the proofs of ``name`` (``evidence``), those of them that only an earlier smoke test made (``earlier``), and, if
    ``name`` passed no smoke test, the environments with the same frameworks and CUDA that did (``proved_instead``).
    """
    from envbuild.pipeline import proofs

    held, renewed = proofs.held_kinds(tools, name), proofs.renewed_kinds(tools, name)
    earlier = [kind for kind in held if kind not in renewed]
    instead = [{"name": each, "evidence": list(kinds)} for each, kinds in proofs.proved_instead(tools, name).items()]
    more = {"earlier": earlier, "proved_instead": instead}
    return {"evidence": list(held), **{field: found for field, found in more.items() if found}}


def document(reports: Sequence[AcceptedReport]) -> dict[str, Any]:
    """Return the fields about the reports for the JSON documents of `show` and `resolve`. Without reports, return no fields."""
    from envbuild import codec

    return {"elsewhere": codec.encode(list(reports))} if reports else {}


def rows(tools: Tools, reports: Sequence[AcceptedReport], gpu: str | None) -> list[list[str]]:
    """Return a table row for each report. Reports about the requested GPUs come first, and are marked."""
    told = [(False, each) for each in reports]
    if gpu:
        from envbuild.pipeline import gpu_proofs

        wanted = gpu_proofs.wanted(tools.matrix, gpu)
        told = [(any(gpu_proofs.is_about(tools.matrix, each, one) for one in wanted), each) for each in reports]
        told.sort(key=lambda each: not each[0])
    return [
        ["elsewhere", each.kind, f"{line(each)}, signed by {each.signer[:12]}" + (" (your GPU)" if yours else "")]
        for yours, each in told
    ]


def line(report: AcceptedReport) -> str:
    """Describe the verdict, the machine and the date of a report in one line."""
    on = ", ".join(report.gpus) or report.processor or "an unknown machine"
    return f"{report.status} on {on}" + (f", driver {report.driver}" if report.driver else "") + f", {report.date}"


def _text(answer: GatheredStatements, known: dict[str, str]) -> str:
    rows = [["STATEMENT", "SIGNED BY", "RESULT", ""], *(_row(each, known) for each in answer.statements)]
    kept = sum(each.report is not None for each in answer.statements)
    end = f"{kept} smoke report{'s' if kept != 1 else ''} kept." if kept else "No smoke report was accepted."
    if answer.unread:
        end += f" Not read, because they are damaged, too large, of another type, or too many: {answer.unread}."
    return f"{answer.repository}@{answer.digest}\n{wording.columns(rows, indent='  ')}\n{answer.name}: {end}"


def _row(each: Judged, known: dict[str, str]) -> list[str]:
    kind = each.kind.removeprefix("https://").removeprefix("envbuild.invalid/attestations/")
    signer = known.get(each.signer) or (f"unknown key {each.signer[:12]}" if each.signer else "nobody")
    told: Any = line(each.report) if each.report else each.why
    return [kind or "unknown", signer, each.verdict, told]
