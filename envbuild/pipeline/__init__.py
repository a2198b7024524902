"""The order of the stages, and what makes a second run do nothing: the only place that knows both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbuild.lazily import exported

if TYPE_CHECKING:
    from envbuild.pipeline.adding import Added, Additions, add, sort_words
    from envbuild.pipeline.fetching import Fetched, fetch
    from envbuild.pipeline.judge import (
        Smoked,
        Verified,
        read_report,
        require_image,
        smoke_image,
        sources_of_image,
        verify_image,
    )
    from envbuild.pipeline.launching import Launch, image_of, launch_text, require_launcher, run_launch
    from envbuild.pipeline.listing import catalogue, doubts
    from envbuild.pipeline.named import list_stacks
    from envbuild.pipeline.order import Made, MakeOptions, StageNote, make
    from envbuild.pipeline.portfolio import listed
    from envbuild.pipeline.preflight import can_look, look, rehearse
    from envbuild.pipeline.proving import held_kinds, prove_image, prove_lock, prove_rendering
    from envbuild.pipeline.recording import EvidenceRow, evidence_names, prune_evidence, record_evidence, survey_evidence
    from envbuild.pipeline.rendering import Difference
    from envbuild.pipeline.reproving import Attempt, prove_again
    from envbuild.pipeline.stages import (
        Constraints,
        Locked,
        Rendered,
        build_environment,
        check_lock,
        explain_request,
        lock_environment,
        read_locked,
        render_environment,
        render_text,
        require_lock,
        resolve_buildable,
        resolve_request,
        todays_decision,
    )
    from envbuild.pipeline.starting import Started, first_choice, start
    from envbuild.pipeline.sweep import check_all, check_one, kept, names, standing, stored_reports
    from envbuild.pipeline.tools import Tools
    from envbuild.pipeline.upgrading import Upgraded, upgrade_environment

__all__ = [
    "Added",
    "Additions",
    "Attempt",
    "Constraints",
    "Difference",
    "EvidenceRow",
    "Fetched",
    "Launch",
    "Locked",
    "Made",
    "MakeOptions",
    "Rendered",
    "Smoked",
    "StageNote",
    "Started",
    "Tools",
    "Upgraded",
    "Verified",
    "add",
    "build_environment",
    "can_look",
    "catalogue",
    "check_all",
    "check_lock",
    "check_one",
    "doubts",
    "evidence_names",
    "explain_request",
    "fetch",
    "first_choice",
    "held_kinds",
    "image_of",
    "kept",
    "launch_text",
    "list_stacks",
    "listed",
    "lock_environment",
    "look",
    "make",
    "names",
    "prove_again",
    "prove_image",
    "prove_lock",
    "prove_rendering",
    "prune_evidence",
    "read_locked",
    "read_report",
    "record_evidence",
    "rehearse",
    "render_environment",
    "render_text",
    "require_image",
    "require_launcher",
    "require_lock",
    "resolve_buildable",
    "resolve_request",
    "run_launch",
    "smoke_image",
    "sort_words",
    "sources_of_image",
    "standing",
    "start",
    "stored_reports",
    "survey_evidence",
    "todays_decision",
    "upgrade_environment",
    "verify_image",
]

__getattr__ = exported(
    __name__,
    adding="Added Additions add sort_words",
    fetching="Fetched fetch",
    listing="catalogue doubts",
    launching="Launch image_of launch_text require_launcher run_launch",
    judge="Smoked Verified read_report require_image smoke_image sources_of_image verify_image",
    named="list_stacks",
    order="Made MakeOptions StageNote make",
    portfolio="listed",
    preflight="can_look look rehearse",
    proving="held_kinds prove_image prove_lock prove_rendering",
    recording="EvidenceRow evidence_names prune_evidence record_evidence survey_evidence",
    rendering="Difference",
    reproving="Attempt prove_again",
    stages="Constraints Locked Rendered build_environment check_lock explain_request lock_environment "
    "read_locked render_environment render_text require_lock resolve_buildable resolve_request todays_decision",
    starting="Started first_choice start",
    sweep="check_all check_one kept names standing stored_reports",
    tools="Tools",
    upgrading="Upgraded upgrade_environment",
)
