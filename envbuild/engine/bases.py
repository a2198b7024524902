"""Base images: how one is pinned, and where it comes from when a build needs it."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from envbuild.engine import bootstrap, package_check
from envbuild.engine.client import Engine
from envbuild.engine.debs import Store, mirror_servers
from envbuild.errors import BuildError, EngineError, EnvbuildError, Problem
from envbuild.files import tell_nobody
from envbuild.index.deadlines import Clock, TookTooLongError, watched
from envbuild.model import BaseLock, Bootstrap, DebianPackage, Environment, Missing, OnProgress, Progress, ignore_progress
from envbuild.workspace import Workspace

How = Literal["pulled", "bootstrapped", "local"]
Debs = Callable[[Sequence[DebianPackage]], Store]  # has the files of packages, fetching them where need be
_SHOWN = 5  # differences that a message names; the error holds all of them


@dataclass(frozen=True, kw_only=True, slots=True)
class RealisedBase:
    """The base that a build really starts from.

    ``reference`` is what FROM names, ``digest`` the registry's for a pulled base and the image id for any other. ``notes``
    tell, a line each, what a user should know of it.
    """

    reference: str
    image_id: str
    how: How
    digest: str
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What the matrix says of an image: the digest that its tag had, empty for none, and apt sources that outlive its own."""

    digest: str = ""
    archive: tuple[str, ...] = ()


def pin(
    environment: Environment,
    engine: Engine | None,
    workspace: Workspace,
    on_progress: OnProgress,
    known: Known = Known(),
) -> BaseLock | Missing:
    """How to find this environment's base again: a digest, or a package list, or what is missing and why.

    A base that can be bootstrapped is pinned by its packages, each with its hash, wherever a mirror tells them: a registry's
    image can disappear. Else a known digest comes before the registry's, so that everybody's lock is the same. Nothing is
    pulled or installed. Without an engine no registry is asked. What is missing goes into a lock, which holds nothing of this
    machine: the errors themselves, with hosts and addresses, are told as progress alone.
    """
    image = environment.base.image
    on_progress(Progress(stage="lock", message=f"pinning the base {image}"))
    pulled = BaseLock(image=image, digest=known.digest or None, bootstrap=None, archive=known.archive)
    if known.digest and not _bootstrappable(environment):
        return pulled
    reasons: list[str] = []
    if _bootstrappable(environment):
        try:
            found = bootstrap.plan(workspace, environment.system.bootstrap_suite)
            return BaseLock(image=image, digest=None, bootstrap=found)
        except EnvbuildError as error:
            on_progress(Progress(stage="lock", message=error.message, log=True))
            reasons.append("no Debian mirror gave its package list")
    if engine is None:
        reasons.append("no container engine to ask its registry")
    else:
        if environment.base.provider == "local" and (held := engine.image(image)) is not None:
            return BaseLock(image=image, digest=held.id, bootstrap=None)
        try:
            answered = engine.registry_digest(image)
            return replace(pulled, digest=known.digest or answered)
        except EnvbuildError as error:
            on_progress(Progress(stage="lock", message=error.message, log=True))
            reasons.append("its registry gave no digest when this was locked")
    if known.digest:
        return pulled
    return Missing(what=f"base {image}", why="; ".join(reasons))


def digest_of(image: str, engine: Engine | None, on_progress: OnProgress) -> str | None:
    """The registry's digest of an image, None where it cannot be had; why is told as progress."""
    try:
        return engine.registry_digest(image) if engine else None
    except EnvbuildError as error:
        on_progress(Progress(stage="lock", message=error.message, log=True))
        return None


def provide(  # noqa: PLR0917 - what having a base takes
    base: BaseLock,
    environment: Environment,
    engine: Engine,
    workspace: Workspace,
    on_progress: OnProgress,
    debs: Debs | None = None,
) -> RealisedBase:
    """Have the engine hold the base, pulling or bootstrapping it where it does not.

    ``debs`` has the files of the packages that a bootstrap takes; without it this machine's mirror is asked.

    Raises :class:`BuildError`: ``base-unreachable`` names the source, its provider and the other providers, ``base-differs``
    what is not as pinned, ``package-gone`` a package that nobody has any more.
    """
    try:
        if base.bootstrap is not None:
            debs = debs or functools.partial(_of_mirror, workspace, base, on_progress)
            return _bootstrapped(base.bootstrap, base, engine, workspace, on_progress, debs)
        if base.digest is not None:
            return _by_digest(base, base.digest, environment, engine, on_progress)
        return _unpinned(base, environment, engine, workspace, on_progress)
    except BuildError as error:
        if error.code != "base-unreachable":
            raise
        raise unreachable(environment, error.message) from error


def unreachable(environment: Environment, why: str) -> BuildError:
    """The one error for a base, or a source that a base needs, that cannot be reached."""
    base = environment.base
    others = ", ".join(base.other_providers)
    steps = [f"Other providers of the same environment: {others} (choose with --base)."] if others else []
    steps.append("A base image that you have serves with --base IMAGE.")
    if environment.prefixes:  # a stack, whose base nobody can choose
        steps = ["Build it where an engine can pull that image."]
    return BuildError(
        f"{environment.name} cannot be built here: its base {base.image} (provider `{base.provider}`) is out of reach. {why}",
        code="base-unreachable",
        hint=" ".join((*steps, "The plan, the lock and the rendering stay valid.")),
        details=(f"source: {base.image}", f"provider: {base.provider}", f"other providers: {others or 'none'}"),
    )


def check_repositories(environment: Environment, timeout_s: float = 6.0) -> None:
    """Find out within seconds whether the apt repositories that the base needs can be reached at all.

    Only a missing connection counts: an answer of any kind, an error page included, is left to apt to judge. Raises
    :class:`BuildError` (``base-unreachable``).
    """
    import requests

    def ask(url: str) -> object:
        # Closed unread: a server may add a body to any answer.
        with requests.head(url, timeout=timeout_s, allow_redirects=False, stream=True) as answer:
            return answer.status_code

    for repository in environment.base.repositories:
        # `requests` bounds the time between two bytes; the clock bounds the whole answer.
        clock = Clock(repository.url, "its answer", time.monotonic() + 2 * timeout_s, tell_nobody, endless=False)
        try:
            watched(lambda _, url=repository.url: ask(url), clock)  # type: ignore[misc]
        except (requests.RequestException, TookTooLongError) as error:
            why = f"The repository {repository.name} at {repository.url} does not answer ({_cause(error)})."
            raise unreachable(environment, why) from error


def _of_mirror(workspace: Workspace, base: BaseLock, on_progress: OnProgress, wanted: Sequence[DebianPackage]) -> Store:
    sources = bootstrap.mirror(workspace, base.bootstrap.suite if base.bootstrap else "")
    store = Store(workspace)
    store.collect(wanted, mirror_servers(sources), on_progress)
    return store


def _bootstrappable(environment: Environment) -> bool:
    return bool(environment.system.bootstrap_suite) and environment.base.image == environment.system.image


def root_file_system(
    wanted: Bootstrap, workspace: Workspace, on_progress: OnProgress, debs: Debs, engine: Engine | None = None
) -> bootstrap.Rootfs:
    """The base of exactly the packages of ``wanted``, whose files ``debs`` has. Its file is whole, unless ``engine`` holds it.

    Raises :class:`EngineError` (``missing-program``) without mmdebstrap and :class:`BuildError` (``package-gone``,
    ``base-differs``) where the packages cannot be had, or become another base.
    """
    if not all(package.path for package in wanted.packages):
        raise BuildError(
            "The lock does not say where the packages of its base are: it was made by an earlier envbuild.",
            code="incomplete-lock",
            hint="`envbuild lock NAME` completes it; the Python packages stay as they are.",
        )
    rootfs = bootstrap.cached(workspace, wanted)
    held = rootfs is not None and engine is not None and engine.image(bootstrap.reference(rootfs.bootstrap)) is not None
    if rootfs is None or not (held or bootstrap.is_whole(rootfs)):
        rootfs = bootstrap.make(workspace, wanted, debs(wanted.packages), on_progress)
    require_same(wanted, rootfs.bootstrap)
    return rootfs


def _bootstrapped(  # noqa: PLR0917 - as of provide
    wanted: Bootstrap, base: BaseLock, engine: Engine, workspace: Workspace, on_progress: OnProgress, debs: Debs
) -> RealisedBase:
    try:
        rootfs = root_file_system(wanted, workspace, on_progress, debs, engine)
    except (BuildError, EngineError) as error:
        if error.code not in ("missing-program", "package-gone"):
            raise
        return _pulled_instead(wanted, base, engine, on_progress, error)
    name = bootstrap.reference(rootfs.bootstrap)
    found = engine.image(name)
    if found is not None and found.layers != (f"sha256:{rootfs.archive_sha256}",):
        raise misnamed(name)
    image_id = (
        found.id
        if found is not None
        else engine.import_rootfs(
            rootfs.path,
            name,
            created=bootstrap.CREATED,
            comment=f"envbuild: {rootfs.bootstrap.suite} {rootfs.bootstrap.variant} by mmdebstrap",
            on_progress=on_progress,
        )
    )
    return RealisedBase(reference=name, image_id=image_id, how="bootstrapped", digest=image_id, notes=())


def _pulled_instead(
    wanted: Bootstrap, base: BaseLock, engine: Engine, on_progress: OnProgress, why: EnvbuildError
) -> RealisedBase:
    """The distribution's own image, where it holds the very packages of the lock; raises ``why`` where it cannot be had."""
    on_progress(Progress(stage="base", message=f"{why.message} Trying {base.image} instead.", log=True))
    try:
        digest = engine.pull(base.image, on_progress)
    except EnvbuildError:
        raise why from None
    reference = f"{repository_of(base.image)}@{digest}"
    held = package_check.installed(engine, reference) or {}
    found = tuple(DebianPackage(name=name, version=version, sha256="") for name, version in held.items())
    require_same(wanted, replace(wanted, packages=found))
    return _realised(engine, reference, "pulled", digest)


def require_same(wanted: Bootstrap, real: Bootstrap) -> None:
    """Raise :class:`BuildError` (``base-differs``) unless ``real`` holds the very packages that the lock pins."""
    if problems := differences(wanted, real):
        told = "; ".join(map(str, problems[:_SHOWN])) + (f"; and {len(problems) - _SHOWN} more" if problems[_SHOWN:] else "")
        raise BuildError(
            f"The base {wanted.suite} that can be made here is not the one that the lock pins: {told}. No tag was moved.",
            code="base-differs",
            hint="`envbuild lock NAME --upgrade --base-image` pins the packages of today.",
            problems=problems,
        )


def misnamed(reference: str) -> BuildError:
    """The error for another image under the name of a base: anybody who may use the engine can give it that name."""
    return BuildError(
        f"The engine holds another image under the name {reference} than the base that was made for it. No tag was moved.",
        code="base-differs",
        hint=f"Remove that name (`docker image rm --force {reference}`); the next build loads the right base.",
    )


def differences(wanted: Bootstrap, real: Bootstrap) -> list[Problem]:
    """Where the packages of ``real`` differ from the pinned ones, by name."""
    locked = {package.name: package for package in wanted.packages}
    present = {package.name: package for package in real.packages}
    told: dict[str, str] = {}
    for name in sorted(locked.keys() | present.keys()):
        before, now = locked.get(name), present.get(name)
        if before is None:
            told[name] = f"not pinned, found {now.version if now else ''}"
        elif now is None:
            told[name] = f"pinned {before.version}, found none"
        elif before.version != now.version:
            told[name] = f"pinned {before.version}, found {now.version}"
        elif now.sha256 and before.sha256 and before.sha256 != now.sha256:
            told[name] = f"pinned {before.version} with sha256 {before.sha256}, found it with sha256 {now.sha256}"
    return [Problem(where=name, line=0, message=message) for name, message in told.items()]


def _by_digest(base: BaseLock, digest: str, environment: Environment, engine: Engine, on_progress: OnProgress) -> RealisedBase:
    local = engine.image(base.image)
    if local is not None and local.id == digest:
        return _realised(engine, base.image, "local", digest)
    if environment.base.provider == "local" and (by_id := engine.image(digest)) is not None:
        return _realised(engine, _named(engine, by_id.id, "local", digest), "local", digest)
    pinned = f"{repository_of(base.image)}@{digest}"
    found = engine.image(pinned)
    if found is None:
        on_progress(Progress(stage="base", message=f"pulling {base.image}"))
        engine.pull(pinned, on_progress)
        found = engine.image(pinned)
    if found is None:
        raise EngineError(f"The engine pulled {pinned} and does not hold it.")
    return _realised(engine, _named(engine, found.id, "pulled", digest), "pulled", digest)


def _unpinned(
    base: BaseLock, environment: Environment, engine: Engine, workspace: Workspace, on_progress: OnProgress
) -> RealisedBase:
    """A base that the lock could not pin: taken as it is now, which the record says."""
    now = pin(environment, engine, workspace, ignore_progress)
    if isinstance(now, Missing):
        raise BuildError(now.why, code="base-unreachable")
    real = provide(now, environment, engine, workspace, on_progress)
    note = f"{base.image}: not pinned in the lock, now {real.digest}"
    return RealisedBase(
        reference=real.reference,
        image_id=real.image_id,
        how=real.how,
        digest=real.digest,
        notes=(note,),
    )


def _named(engine: Engine, image_id: str, how: str, digest: str) -> str:
    # FROM by digest makes a builder ask the registry again even where the engine holds the image; a local name does not.
    name = f"envbuild/base:{how}-{digest.partition(':')[2][:12]}"
    engine.tag(image_id, name)
    return name


def _realised(engine: Engine, reference: str, how: How, digest: str) -> RealisedBase:
    found = engine.image(reference)
    return RealisedBase(
        reference=reference,
        image_id=found.id if found is not None else "",
        how=how,
        digest=digest,
        notes=(),
    )


def repository_of(image: str) -> str:
    """``image`` without its tag and digest."""
    name = image.partition("@")[0]
    return name.rpartition(":")[0] if ":" in name.rsplit("/", 1)[-1] else name


def _cause(error: Exception) -> str:
    text = str(error)
    for phrase, meaning in (
        ("NameResolutionError", "its name cannot be resolved"),
        ("timed out", "no answer in time"),
        ("refused", "connection refused"),
        ("CERTIFICATE", "its certificate is not trusted here"),
    ):
        if phrase in text:
            return meaning
    return " ".join(text.split())[:200]
