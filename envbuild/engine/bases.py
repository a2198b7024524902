"""Pin base images, and provide them when a build needs them."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from envbuild import files
from envbuild.engine import bootstrap, package_check
from envbuild.engine.client import Engine
from envbuild.engine.package_store import Store, mirror_servers
from envbuild.errors import BuildError, EngineError, EnvbuildError, Problem
from envbuild.files import tell_nobody
from envbuild.index.deadlines import Clock, TookTooLongError, watched
from envbuild.model.environment import Environment
from envbuild.model.lock import BaseLock, Bootstrap, DebianPackage, Missing
from envbuild.model.progress import OnProgress, Progress, as_news, ignore_progress
from envbuild.workspace import Workspace

How = Literal["pulled", "bootstrapped", "local"]
Debs = Callable[[Sequence[DebianPackage]], Store]  # fetches missing files of packages, and returns the store with all of them
_SHOWN = 5  # differences that a message shows; the error object has all of them


@dataclass(frozen=True, kw_only=True, slots=True)
class RealisedBase:
    """The base that a build really starts from.

    ``reference`` is the name for FROM. For a pulled base, ``digest`` is the registry's digest; for any other base, it is the
    image id. ``notes`` are lines for the user.
    """

    reference: str
    image_id: str
    how: How
    digest: str
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownBase:
    """The matrix's facts about an image. ``digest`` is the digest of its tag, or empty. ``archive`` has apt sources that
    replace the image's own sources if the own sources no longer exist."""

    digest: str = ""
    archive: tuple[str, ...] = ()


NOTHING_KNOWN = KnownBase()


def pin(
    environment: Environment,
    engine: Engine | None,
    workspace: Workspace,
    on_progress: OnProgress,
    known: KnownBase = NOTHING_KNOWN,
) -> BaseLock | Missing:
    """Return the pin of this environment's base (a digest or a package list). If there is no pin, return what is missing and
    why.

    If a base can be bootstrapped and a mirror lists its packages, these packages and their hashes are the pin. This pin is
    preferred, because an image can disappear from a registry. Otherwise, a digest in the matrix is preferred to the registry's
    digest, so that all users get the same lock.

    Nothing is pulled or installed. Without an engine, no registry is queried. The lock records what is missing, but nothing
    about this machine: errors with hosts and addresses are only shown as progress.
    """
    image = environment.base.image
    on_progress(Progress(stage="lock", message=f"pinning the base {image}"))
    pulled = BaseLock(image=image, digest=known.digest or None, bootstrap=None, archive=known.archive)
    if known.digest and not _bootstrappable(environment):
        return pulled
    reasons: list[str] = []
    if _bootstrappable(environment):
        try:
            found = bootstrap.plan(workspace, environment.system.bootstrap_suite, environment.base.components)
            return BaseLock(image=image, digest=None, bootstrap=found)
        except EnvbuildError as error:
            on_progress(Progress(stage="lock", message=error.message, log=True))
            reasons.append("no Debian mirror provided its package list")
    if engine is None:
        reasons.append("there is no container engine with which to ask its registry")
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
    """Return the registry's digest of an image. If the digest cannot be read, show the reason as progress and return None."""
    try:
        return engine.registry_digest(image) if engine else None
    except EnvbuildError as error:
        on_progress(Progress(stage="lock", message=error.message, log=True))
        return None


def provide(  # noqa: PLR0917 - all of them are needed to provide a base
    base: BaseLock,
    environment: Environment,
    engine: Engine,
    workspace: Workspace,
    on_progress: OnProgress,
    debs: Debs | None = None,
) -> RealisedBase:
    """Make sure that the engine has the base: pull or bootstrap the base if necessary.

    ``debs`` provides the package files for a bootstrap. Without ``debs``, the files come from this machine's mirror.

    Raises :class:`BuildError`. The error ``base-unreachable`` names the source, its provider and the other providers. The error
    ``base-differs`` names the differences from the lock. The error ``package-gone`` names a package that is no longer
    available.
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
    """Return the error for a base that cannot be reached, or for a source of a base that cannot be reached."""
    base = environment.base
    others = ", ".join(base.other_providers)
    steps = [f"This environment can also be built with the base providers {others} (choose one with --base)."] if others else []
    steps.append("To use a base image that you have, add --base IMAGE.")
    if environment.prefixes:  # a user cannot choose the base of a stack
        steps = ["Build it on a machine whose engine can pull that image."]
    return BuildError(
        f"{environment.name} cannot be built here: its base {base.image} (provider `{base.provider}`) cannot be reached. {why}",
        code="base-unreachable",
        hint=" ".join((*steps, "The lock and the rendering remain valid.")),
        details=(f"source: {base.image}", f"provider: {base.provider}", f"other providers: {others or 'none'}"),
    )


def check_repositories(environment: Environment, timeout_s: float = 6.0) -> None:
    """Check within seconds whether the apt repositories that the base needs can be reached.

    Only a failed connection counts as unreachable. Any answer counts as reachable, even an error page; apt then reports the
    error. Raises :class:`BuildError` (``base-unreachable``).
    """
    import requests

    def ask(url: str) -> object:
        # The body is not read, because a server may add a body to any answer.
        with requests.head(url, timeout=timeout_s, allow_redirects=False, stream=True) as answer:
            return answer.status_code

    for repository in environment.base.repositories:
        # `requests` limits the time between two bytes; this clock limits the time of the whole answer.
        clock = Clock(repository.url, "its answer", time.monotonic() + 2 * timeout_s, tell_nobody, endless=False)
        try:
            watched(lambda _, url=repository.url: ask(url), clock)  # type: ignore[misc]
        except (requests.RequestException, TookTooLongError) as error:
            why = f"The repository {repository.name} at {repository.url} does not respond ({_cause(error)})."
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
    """Return the root file system with exactly the packages of ``wanted``, made from the files that ``debs`` provides.

    The tar file of the root file system is checked, unless ``engine`` already has its image.

    Raises :class:`EngineError` (``missing-program``) if mmdebstrap is needed and not installed. Raises :class:`BuildError` if
    packages are unavailable (``package-gone``) or the result is another base (``base-differs``).
    """
    if not all(package.path for package in wanted.packages):
        raise BuildError(
            "The lock does not list the files of its base's packages, because an earlier envbuild made it.",
            code="incomplete-lock",
            hint="To complete it, run `envbuild lock NAME`; the Python packages stay the same.",
        )
    rootfs = bootstrap.cached(workspace, wanted)
    held = rootfs is not None and engine is not None and engine.image(bootstrap.reference(rootfs.bootstrap)) is not None
    if rootfs is None or not (held or bootstrap.is_whole(rootfs)):
        rootfs = bootstrap.make(workspace, wanted, debs(wanted.packages), on_progress)
    require_same(wanted, rootfs.bootstrap)
    return rootfs


def _bootstrapped(  # noqa: PLR0917 - all of them are needed, as in `provide`
    wanted: Bootstrap, base: BaseLock, engine: Engine, workspace: Workspace, on_progress: OnProgress, debs: Debs
) -> RealisedBase:
    try:
        rootfs = root_file_system(wanted, workspace, on_progress, debs, engine)
    except (BuildError, EngineError) as error:
        if error.code not in ("missing-program", "package-gone"):
            raise
        return _pulled_instead(wanted, base, engine, on_progress, error)
    name = bootstrap.reference(rootfs.bootstrap)
    image_id = _loaded(name, rootfs, engine)
    if image_id is None:
        # Another run may be loading the same base. The file lock makes sure that the base is loaded only once.
        with files.locked(workspace.bases / "loading", as_news("base", on_progress)):
            image_id = _loaded(name, rootfs, engine) or engine.import_rootfs(
                rootfs.path,
                name,
                created=bootstrap.CREATED,
                comment=f"envbuild: {rootfs.bootstrap.suite} {rootfs.bootstrap.variant} by mmdebstrap",
                on_progress=on_progress,
            )
    return RealisedBase(reference=name, image_id=image_id, how="bootstrapped", digest=image_id, notes=())


def _loaded(name: str, rootfs: bootstrap.Rootfs, engine: Engine) -> str | None:
    """The id of the base's image in the engine, or None. Raises :class:`BuildError` if another image has the name."""
    found = engine.image(name)
    if found is not None and found.layers != (f"sha256:{rootfs.archive_sha256}",):
        raise misnamed(name)
    return found.id if found is not None else None


def _pulled_instead(
    wanted: Bootstrap, base: BaseLock, engine: Engine, on_progress: OnProgress, why: EnvbuildError
) -> RealisedBase:
    """Return the distribution's own image if it contains exactly the locked packages. If it is unavailable, raise ``why``."""
    on_progress(Progress(stage="base", message=f"{why.message} Using {base.image} instead.", log=True))
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
    """Raise :class:`BuildError` (``base-differs``) unless ``real`` contains exactly the pinned packages of ``wanted``."""
    if problems := differences(wanted, real):
        told = "; ".join(map(str, problems[:_SHOWN])) + (f"; and {len(problems) - _SHOWN} more" if problems[_SHOWN:] else "")
        raise BuildError(
            f"The base {wanted.suite} that was made on this machine differs from the one that the lock pins: {told}. No "
            "tag was moved.",
            code="base-differs",
            hint="To pin today's packages, run `envbuild lock NAME --upgrade --base-image`.",
            problems=problems,
        )


def misnamed(reference: str) -> BuildError:
    """Return the error for another image that has the name of a base. Anybody who may use the engine can give an image that
    name."""
    return BuildError(
        f"The engine has a different image under the name {reference} than the base that was made. No tag was moved.",
        code="base-differs",
        hint=f"Remove this name (`docker image rm --force {reference}`); the next build loads the right base.",
    )


def differences(wanted: Bootstrap, real: Bootstrap) -> list[Problem]:
    """Return the differences between the packages of ``real`` and the pinned packages, sorted by name."""
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
        raise EngineError(f"The engine reported that it pulled {pinned}, but it does not have this image.")
    return _realised(engine, _named(engine, found.id, "pulled", digest), "pulled", digest)


def _unpinned(
    base: BaseLock, environment: Environment, engine: Engine, workspace: Workspace, on_progress: OnProgress
) -> RealisedBase:
    """Provide the current state of a base that the lock does not pin. The result has a note for the build record."""
    now = pin(environment, engine, workspace, ignore_progress)
    if isinstance(now, Missing):
        raise BuildError(now.why, code="base-unreachable")
    real = provide(now, environment, engine, workspace, on_progress)
    note = f"{base.image}: not pinned in the lock; the registry now has {real.digest}"
    return RealisedBase(
        reference=real.reference,
        image_id=real.image_id,
        how=real.how,
        digest=real.digest,
        notes=(note,),
    )


def _named(engine: Engine, image_id: str, how: str, digest: str) -> str:
    # If FROM named a digest, the builder would query the registry even if the engine has the image. It does not query the
    # registry for a local name.
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
    """Return ``image`` without its tag and digest."""
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
