"""Judges environments by the site's policy, for ``check``, and for ``publish`` before it pushes an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from envbuild.errors import ConflictError, InvalidInputError, PolicyError, UsageError
from envbuild.model.progress import counted
from envbuild.pipeline import policy_facts, policy_upgrades, resolving, trusted_sources
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.stored_locks import Locked, read_locked
from envbuild.pipeline.tools import Tools
from envbuild.policy import judging, reading
from envbuild.policy.model import Exempted, Judgement, NotChecked, Policy, PolicyFinding

if TYPE_CHECKING:
    from envbuild.errors import Alternative
    from envbuild.model.environment import Environment
    from envbuild.pipeline.policy_facts import Questions


def require_policy(tools: Tools) -> Policy:
    """Return the site's policy. A policy with an expired exception is refused.

    Raises :class:`UsageError` (``no-policy``) if there is no policy.
    """
    if tools.policy is None:
        raise UsageError(
            "No policy is named.",
            code="no-policy",
            hint="Name the file with --policy FILE or in ENVBUILD_POLICY; docs/how-to/policy.md shows one.",
        )
    reading.require_current(tools.policy, policy_facts.today())
    return tools.policy


def name_to_check(tools: Tools, text: str, constraints: Constraints) -> str:
    """Return the name of the environment that the request ``text`` means.

    If the site rules of the policy refuse the request, its environment is found without them: the check then reports these
    rules as findings. If ``text`` names a damaged lock, it is the name, and the check reports this lock.
    """
    try:
        return tools.cli_name(_environment(tools, [text], constraints)[0].name)
    except InvalidInputError as error:
        if error.code != "broken-lock":
            raise
        return tools.cli_name(text)


def _environment(tools: Tools, texts: Sequence[str], constraints: Constraints) -> tuple[Environment, Sequence[Alternative]]:
    """Return the environment that ``texts`` mean. If the site rules exclude it, also return requests that they allow.

    If it would not exist without site rules either, raise the error with the site rules: its alternatives obey them.
    """
    try:
        return resolving.resolve_buildable(tools, texts, constraints).environment, ()
    except ConflictError as error:
        if tools.policy is None or not tools.policy.site:
            raise
        try:
            found = resolving.resolve_buildable(tools.without_policy(), texts, constraints)
        except ConflictError:
            raise error from None
        return found.environment, error.alternatives


def check(tools: Tools, policy: Policy, name: str, questions: Questions, *, upgrades: bool) -> Judgement:
    """Judge the lock of ``name``. With ``upgrades``, also look for the smallest upgrade that fixes each finding.

    The search for upgrades asks the package index. Without a lock, nothing is judged, and the result is "not checked". A
    damaged lock is a finding, and nothing else is judged.
    """
    own = tools.at([name])
    canonical = own.user_recipe.name if own.user_recipe is not None else name
    try:
        locked = read_locked(own, canonical)
    except InvalidInputError as error:
        if error.code != "broken-lock":
            raise
        return _damaged(own, canonical, error)
    if locked is None:
        why = f"there is no lock, and only a lock can be judged; `envbuild lock {own.cli_name(name)}` makes one"
        missing = NotChecked(rule="lock", message=why, is_allowed=False)
        return Judgement(name=canonical, findings=(), excused=(), unchecked=(missing,), warnings=())
    judged = judging.judge(policy, policy_facts.of_lock(own, policy, locked, questions), policy_facts.today())
    if not upgrades:
        return judged
    return policy_upgrades.with_upgrades(own, policy, locked, judged, today=policy_facts.today())


def _damaged(tools: Tools, name: str, error: InvalidInputError) -> Judgement:
    path, line = tools.workspace.lock_file(name), error.problems[0].line if error.problems else 0
    more = f" {error.problems[0].message}." if error.problems and error.problems[0].message not in error.message else ""
    finding = PolicyFinding(
        rule="lock",
        subject=name,
        message=f"{error.message}{more}",
        at=f"{path}:{line}" if line else str(path),
        upgrade=f"`envbuild lock {tools.cli_name(name)} --relock`, or by restoring the file from your repository",
    )
    unread = NotChecked(rule="lock", message="all other rules, because the lock cannot be read", is_allowed=False)
    return Judgement(name=name, findings=(finding,), excused=(), unchecked=(unread,), warnings=())


def with_unused(policy: Policy, judged: Sequence[Judgement], known: Sequence[str]) -> list[Judgement]:
    """Return ``judged``, with one more judgement about the policy itself if the policy has unused exceptions.

    An exception is unused if it accepts no finding. An exception is left out if it also applies to an environment of
    ``known`` that was not judged.
    """
    names = {each.name for each in judged}

    def is_whole(exception: Exempted) -> bool:
        return all(name in names for name in known if judging.is_about(exception, name))

    whole = replace(policy, exceptions=tuple(each for each in policy.exceptions if is_whole(each)))
    found = judging.unused(whole, judged)
    if not found:
        return list(judged)
    return [*judged, Judgement(name="policy", findings=tuple(found), excused=(), unchecked=(), warnings=())]


def require_repository(tools: Tools, repository: str) -> None:
    """Raise :class:`PolicyError` if the policy does not allow ``repository``. Call this before hours of building."""
    policy = tools.policy
    if policy is None:
        return
    reading.require_current(policy, policy_facts.today())
    trusted_sources.require_repository(policy, repository, "Publish to an allowed repository", is_judged_again=True)


def require_allowed_before_making(
    tools: Tools, texts: Sequence[str], constraints: Constraints, questions: Questions, repository: str
) -> None:
    """Raise :class:`PolicyError` if the policy allows no image of the environment that ``texts`` mean to be published.

    Only facts count that making the image cannot change. So call this before hours of building, and in a dry run; and call
    :func:`require_allowed` when the image is made. Without a policy, do nothing.
    """
    if tools.policy is None:
        return
    policy = require_policy(tools)
    environment, alternatives = _environment(tools, texts, constraints)
    lasting = tuple(each for each in policy.evidence if each.kind not in _kinds_made(environment))
    policy = replace(policy, licences=None, sizes=None, evidence=lasting)
    locked = read_locked(tools, environment.name)
    if locked is not None and tools.workspace.user_recipe is None:
        environment = locked.lock.environment  # `make` keeps the lock, also where the matrix has a newer image of the base
    facts = policy_facts.before_making(tools, policy, environment, locked, questions, repository=repository)
    if facts.advisories is None:  # the audit of the finished image decides
        policy = replace(policy, vulnerabilities=None)
    judged = judging.judge(policy, facts, policy_facts.today())
    if not judged.is_clean:
        raise _refusal(tools, policy, judged, alternatives)


def _kinds_made(environment: Environment) -> set[str]:
    """Return the kinds of proof that a run of `make` can add to the evidence of the environment."""
    return {"locked", "rendered", "built", "verified", "linked", "smoke-cpu", *(["smoke-gpu"] if environment.cuda else [])}


def require_allowed(tools: Tools, locked: Locked, questions: Questions, repository: str) -> None:
    """Raise :class:`PolicyError` unless the policy allows to publish the image of a lock. Without a policy, do nothing."""
    if tools.policy is None:
        return
    policy = require_policy(tools)
    facts = policy_facts.of_lock(tools, policy, locked, questions, repository=repository)
    judged = judging.judge(policy, facts, policy_facts.today())
    if not judged.is_clean:
        raise _refusal(tools, policy, judged)


def _refusal(tools: Tools, policy: Policy, judged: Judgement, alternatives: Sequence[Alternative] = ()) -> PolicyError:
    open_points = [each for each in judged.unchecked if not each.is_allowed]
    counts = [counted(len(judged.findings), "finding")] if judged.findings else []
    counts += [f"{counted(len(open_points), 'point')} not checked"] if open_points else []
    return PolicyError(
        f"The policy {policy.where} does not allow {judged.name} to be published: {', '.join(counts)}.",
        hint=f"`envbuild check {tools.cli_name(judged.name)}` also shows what fixes each finding.",
        details=[f"{each.rule}: {each.message} [{each.at}]" for each in judged.findings] + judging.unchecked_lines(open_points),
        alternatives=alternatives,
    )
