"""Which registries and which signing keys count, by the policy of the site and by the command line.

All commands that take images from a registry ask this module: `pull`, `run`, `export`, `evidence --from`, `attest` and
`catalogue --registry`. `launch --registry` only asks it for the repository, because the hosts pull the image. `publish` and
`attest` ask it whether their key is the key of a signer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.errors import InvalidInputError, PolicyError, Problem, PublishError
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.attest.keys import PublicKey
    from envbuild.policy.model import Policy, Signer


def keys_that_count(tools: Tools, asked: Sequence[PublicKey] = ()) -> tuple[PublicKey, ...]:
    """Return the public keys whose signatures count now. ``asked`` are the keys that the command line or a variable names.

    If the policy has signers, these are the keys of all signers that have not expired, or ``asked``, which must be among them.
    Otherwise, they are ``asked``. If no key is returned, no signature is needed. Raises :class:`PolicyError`
    (``expired-signer``, ``unknown-signer``), and :class:`InvalidInputError` if the file of a signer cannot be read.
    """
    policy = tools.policy
    if policy is None or not policy.signers:
        return tuple(asked)
    known = tuple(key for _, key in current_signers(policy))
    hints = {each.hint for each in known}
    for key in asked:
        if key.hint not in hints:
            raise _not_a_signer(policy, key)
    return tuple(asked) or known


def current_signers(policy: Policy) -> tuple[tuple[Signer, PublicKey], ...]:
    """Return the signers of the policy that have not expired, each with its key. Raises the errors of ``keys_that_count``."""
    from envbuild.pipeline.policy_facts import today

    current = [each for each in policy.signers if each.expires >= today()]
    if not current:
        last = max(policy.signers, key=lambda each: each.expires)
        raise PolicyError(
            f"All signers of the policy have expired, the last one on {last.expires} ({policy.where}:{last.line}). So no image "
            "of a registry is trusted.",
            code="expired-signer",
            hint=f"Add a new key to `signers`, or {_renewal(last)}.",
        )
    return tuple((each, _key(policy, each)) for each in current)


def trusted(tools: Tools, repository: str, asked: Sequence[PublicKey] = ()) -> tuple[PublicKey, ...]:
    """Return the keys that count for images of ``repository`` (``HOST/REPOSITORY``).

    Raises :class:`PolicyError` if the policy does not allow the repository, and the errors of :func:`keys_that_count`.
    """
    if tools.policy is not None:
        require_repository(tools.policy, repository, "Take the image from an allowed repository")
    return keys_that_count(tools, asked)


def require_repository(policy: Policy, repository: str, way_on: str, *, is_judged_again: bool = False) -> None:
    """Raise :class:`PolicyError` if the policy does not allow ``repository``. ``way_on`` is the advice for this command.

    An exception for some environments counts only with ``is_judged_again``: each environment is then judged by itself later.
    """
    from envbuild.policy import judging

    rule = policy.registries
    if rule is None or judging.is_allowed_repository(rule, repository):
        return
    if any(is_judged_again or not each.environments for each in judging.exceptions_for(policy, "registries", repository)):
        return
    raise PolicyError(
        f"The policy does not allow the repository {repository}: it is not one of {', '.join(rule.allowed)}.",
        hint=f"{way_on}, or change {policy.where}, line {rule.line}.",
    )


def require_signed(tools: Tools, repository: str, digest: str, keys: Sequence[PublicKey]) -> None:
    """Raise an error unless the image ``digest`` is signed with one of ``keys``, the result of :func:`trusted`.

    Without keys, do nothing. If the policy has signers, the error is a :class:`PolicyError` (``unsigned-image``,
    ``unknown-signer``, ``expired-signer``), otherwise it is that of :func:`envbuild.pipeline.signatures.require_signed`.
    """
    from envbuild.pipeline import signatures

    if not keys:
        return
    try:
        signatures.require_signed(repository, digest, *keys)
    except PublishError as error:
        policy = tools.policy
        if policy is None or not policy.signers or error.code not in ("unsigned", "wrong-signature"):
            raise
        raise _not_trusted(policy, repository, digest, error) from error


def _not_trusted(policy: Policy, repository: str, digest: str, error: PublishError) -> PolicyError:
    """Return the error for an image without a signature of a current signer. It says whether an expired signer signed it."""
    from envbuild.pipeline import signatures

    image, at = f"{repository}@{digest}", f"{policy.where}:{policy.signers[0].line}"
    if error.code == "unsigned":
        return PolicyError(
            f"{image} is not signed, but the policy accepts only images of its signers ({at}).",
            code="unsigned-image",
            hint="Ask the publisher to sign the image: `envbuild publish` does so with the key of a signer.",
        )
    for signer, key in _expired_signers(policy):
        with contextlib.suppress(PublishError):
            signatures.require_signed(repository, digest, key)
            return PolicyError(
                f"{image} is signed with {signer.key}, but this key of the policy expired on {signer.expires} "
                f"({policy.where}:{signer.line}).",
                code="expired-signer",
                hint=f"Publish the image again with the key of a current signer. Or: {_renewal(signer)}.",
            )
    return PolicyError(
        f"{image} is not signed with a key that counts by the policy ({at}).",
        code="unknown-signer",
        hint="Do not use the image until a signer of the policy has signed it, or you trust its key and add it to `signers`.",
        details=[error.message, *error.details],
    )


def _not_a_signer(policy: Policy, key: PublicKey) -> PolicyError:
    """Return the error for a key that the user named, and that is not the key of a current signer."""
    for signer, expired in _expired_signers(policy):
        if expired.hint == key.hint:
            return PolicyError(
                f"The key that you named is {signer.key} of the policy, which expired on {signer.expires} "
                f"({policy.where}:{signer.line}).",
                code="expired-signer",
                hint=f"Name the key of a current signer. Or: {_renewal(signer)}.",
            )
    return PolicyError(
        f"The key that you named ({key.hint[:12]}…) is not the key of a signer of the policy "
        f"({policy.where}:{policy.signers[0].line}).",
        code="unknown-signer",
        hint="With --key or ENVBUILD_KEY, name the key of a signer, or add the public key to `signers` in the policy.",
    )


def _renewal(signer: Signer) -> str:
    return f"let {signer.owner} extend the date in the policy" if signer.owner else "extend the date in the policy"


def _expired_signers(policy: Policy) -> Iterator[tuple[Signer, PublicKey]]:
    """Yield the expired signers, each with its key. Signers whose key file cannot be read are left out."""
    from envbuild.pipeline.policy_facts import today

    for each in policy.signers:
        if each.expires < today():
            with contextlib.suppress(InvalidInputError):
                yield each, _key(policy, each)


def _key(policy: Policy, signer: Signer) -> PublicKey:
    """Read the key of a signer. Raises :class:`InvalidInputError` (``bad-policy``), which names the line of the policy."""
    from envbuild.attest import keys

    try:
        return keys.public_key(Path(policy.where).parent / signer.key)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"The key of a signer of the policy cannot be used: {error.message}",
            code="bad-policy",
            hint="Correct the path, which is relative to the folder of the policy, or remove the signer.",
            problems=[Problem(where=policy.where, line=signer.line, message=f"signers: {signer.key} is no usable public key")],
        ) from error
