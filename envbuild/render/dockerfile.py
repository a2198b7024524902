"""Writes the Dockerfile in the baseline dialect, which BuildKit 0.8 (Docker 20.10) builds without a ``# syntax`` line."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from envbuild import codec
from envbuild.errors import BuildError, InvalidInputError
from envbuild.jinja_settings import SHELL_COMMENTS, jinja_environment
from envbuild.model.environment import AptPackage, Framework
from envbuild.model.lock import Lock
from envbuild.recipes import Recipe
from envbuild.render import filters
from envbuild.render.apt_steps import AptSteps
from envbuild.render.prefixes import site_packages, variables
from envbuild.render.python_downloads import fetched_pythons, file_of
from envbuild.render.requirements import PrefixFiles, unpinned

if TYPE_CHECKING:
    import jinja2

_MAIN = "partials/Dockerfile.j2"
# A container has no display. Without a display, old versions of Matplotlib can be imported only if this variable selects
# drawing into files.
_NO_DISPLAY = {"MPLBACKEND": "Agg"}
_LONGEST = 200  # characters: the longest RUN that is written on one line
_FIRST_COMMAND = re.compile(r"^(?P<mounts>RUN .*) \\\n    (?P<command>.*)\n", re.MULTILINE)
_NETWORK_ALONE = (
    "target=/mnt --mount=type=secret,id=envbuild,target=/mnt/secret --mount=type=cache,id=envbuild,target=/mnt/cache"
)
# The mount points below /mnt. The folder of step.sh is mounted at /mnt read-only, so the mount points must already exist in
# that folder.
MOUNT_FILES = ("envbuild-start", "packages", "requirements-build.txt", "requirements.txt", "secret", "source.tar")
MOUNT_FOLDERS = (
    "cache", "cuda", "debs", *(f"debs-{number}" for number in range(2, 10)), "envbuild", "files", "from", "services", "tools",
    "wheels",
)  # fmt: skip
STAGES = frozenset({
    "os", "python", "cuda-files", "cuda", "libraries", "sdists", "packages", "cuda-devel", "built-files", "built", "frameworks",
    "added-sdists", "added", "custom", "image",
})  # fmt: skip


def _header(lock: Lock, titles: Sequence[str]) -> list[str]:
    """The header of a Dockerfile. It has no date and no tool version, so that the text is the same on every day and with every
    version of envbuild."""
    name, custom = lock.environment.name, lock.environment.custom is not None
    again = "PATH of the envbuild.yaml" if custom else name
    evidence = f"`envbuild evidence {name}`" if not custom else "`envbuild show` of the same PATH"
    return [
        f"The image {name}: {_description(lock, titles)}.",
        f"Rendered from lock.json by envbuild, do not edit. Make it again with: envbuild render {again}",
        f"Build it by hand: `envbuild render {again} --context DIR`, then `DOCKER_BUILDKIT=1 docker build DIR`",
        f"What was proved of it, and of which bytes: {evidence}",
        "Each RUN is run by step.sh of the build context, at /mnt: it has the commands with a dash, and cleans up after them.",
    ]


def dockerfile(
    lock: Lock,
    recipes: Mapping[str, Recipe],
    templates: Mapping[str, str],
    files: Sequence[PrefixFiles],
    steps: AptSteps,
    *,
    skeleton: bool = False,
) -> str:
    """Return the text of the Dockerfile, which depends only on the arguments. The packages that apt installs are added to
    ``steps``.

    A ``skeleton`` lacks the steps that install wheels. Raises :class:`BuildError` (``not-composable``) if another step needs
    these wheels.
    """
    import jinja2

    def cannot_compose(why: str) -> None:
        if skeleton:
            raise _not_composable(lock.environment.name, why)

    values = {**_values(lock, recipes, files), "apt": steps, "skeleton": skeleton, "cannot_compose": cannot_compose}
    try:
        text = _jinja(tuple(sorted(templates.items()))).get_template(_MAIN).render(**values)
    except jinja2.TemplateError as error:
        where = f"{getattr(error, 'name', None) or 'the templates'}, line {getattr(error, 'lineno', None) or '?'}"
        raise InvalidInputError(
            f"A Dockerfile template is wrong ({where}): {error.message or error}.",
            code="invalid-template",
            hint="Correct the template below images/partials or images/recipes.",
        ) from error
    return _tidy(text)


def _not_composable(name: str, why: str) -> BuildError:
    return BuildError(
        f"The image {name} cannot be composed from its wheels: {why}.",
        code="not-composable",
        hint=f"`envbuild build {name} --builder docker` builds it by its Dockerfile.",
    )


@functools.lru_cache(maxsize=4)
def _jinja(templates: tuple[tuple[str, str], ...]) -> jinja2.Environment:
    """Return the compiled templates. They are cached for the next rendering with the same templates.

    ``finalize`` refuses every value that is not Markup, because no quoting filter has handled it. Escaping is on so that the
    results of macros are Markup, too.
    """
    made = jinja_environment(dict(templates), autoescape=True, finalize=filters.only_filtered, **SHELL_COMMENTS)
    made.filters.update(word=filters.word, comment=filters.comment, sh=filters.sh, quoted=filters.quoted, json=filters.as_json)
    return made


def _values(lock: Lock, recipes: Mapping[str, Recipe], files: Sequence[PrefixFiles]) -> dict[str, Any]:
    environment = lock.environment
    used = [recipes[framework.recipe] for framework in environment.frameworks]
    base = environment.base
    return {
        "environment": environment,
        "header": _header(lock, [recipe.title for recipe in used]),
        "base_image": lock.base.image + (f"@{digest}" if (digest := _digest(lock)) else ""),
        "archive": lock.base.archive,
        "os_packages": _unique([*environment.system.packages, environment.system.init_package]),
        "apt_cuda": base.apt if base.components else (),
        "apt_runtime": _unique(
            [
                *(() if base.components else base.apt),
                *_apt(lock, {f.name: recipes[f.recipe].apt_of(f) for f in environment.frameworks}),
            ]
        ),
        "apt_build": _unique(
            [
                *_apt(lock, {f.name: _to_build(f, recipes[f.recipe]) for f in environment.frameworks}),
                *(_compilers(lock) if files[0].sdists else ()),
            ]
        ),
        "added_apt_build": _compilers(lock),
        "fetched_packages": [package for package in base.packages if _is_fetched(package)],
        "fetched_to_build": [package for package in base.build_packages if _is_fetched(package)],
        "package_argument": _package_argument,
        "build_image": base.build_image + (f"@{lock.base.build_digest}" if lock.base.build_digest else ""),
        "nvcc": any(f.nvcc and _builds(f, recipes[f.recipe]) for f in environment.frameworks),
        "pythons": list(dict.fromkeys(prefix.python for prefix in lock.prefixes)),
        "fetched": fetched_pythons(lock),
        "cuda_files": [file_of(file) for file in base.files],
        "cuda_installer": base.installer and file_of(base.installer),
        "prefixes": [_prefix(each) for each in files],
        "has_pip": any(prefix.pip for prefix in lock.prefixes),
        "has_sdists": any(each.sdists for each in files),
        "has_added": any(each.added or each.added_sdists for each in files),
        "added": [file for each in files for file in each.added],
        "large": [file for each in files for file in each.large],
        "small": [file for each in files for file in each.small],
        "frameworks": [_framework(framework, recipes[framework.recipe], files) for framework in environment.frameworks],
        "unpinned": {file.framework.name: file for file in unpinned(lock.prefixes, environment)},
        "has_builds": any(_builds(framework, recipes[framework.recipe]) for framework in environment.frameworks),
        "custom": environment.custom,
        "copied": [_copied(file.target) for file in environment.custom.files] if environment.custom else [],
        "toolkit": _toolkit(lock),
        "env": _env(lock, recipes),
        "labels": _labels(lock, used),
    }


def _builds(framework: Framework, recipe: Recipe) -> bool:
    """Whether the recipe's build.j2 compiles something: the repository that the matrix row names, or the packages that the
    recipe lists under ``compiled``."""
    return recipe.builds and bool(recipe.compiled or "repository" in framework.options)


def _to_build(framework: Framework, recipe: Recipe) -> tuple[str, ...]:
    """The Debian packages for building a framework. There are none if the recipe has a build.j2, but build.j2 compiles nothing
    for this version."""
    return recipe.apt_build if _builds(framework, recipe) or not recipe.builds else ()


def _prefix(each: PrefixFiles) -> dict[str, Any]:
    """The values that templates use for a prefix."""
    prefix = each.prefix
    return {
        "name": prefix.name,
        "path": prefix.path,
        "python": prefix.python,
        "backend": prefix.backend,
        "sdists": each.sdists,
        "compiled": each.compiled,
        "build": each.build,
        "added_sdists": each.added_sdists,
        "pip": prefix.pip is not None,
    }


def _framework(framework: Framework, recipe: Recipe, files: Sequence[PrefixFiles]) -> dict[str, Any]:
    """The values that templates use for a framework. The prefix is None if the lock pins no file of the framework."""
    return {
        "install": f"recipes/{recipe.name}/install.j2",
        "build": f"recipes/{recipe.name}/build.j2" if _builds(framework, recipe) else None,
        "framework": framework,
        "prefix": next((_prefix(each) for each in files if framework.name in each.prefix.frameworks), None),
    }


def _is_fetched(package: AptPackage) -> bool:
    """Whether the package is fetched as a file with a known hash.

    Such a package needs no apt repository. The hash proves more than the signature of a repository.
    """
    return bool(package.url and package.sha256)


def _package_argument(package: AptPackage) -> str:
    if _is_fetched(package):
        return f"/mnt/cuda/packages/{package.name}.deb"
    return f"{package.name}={package.version}"


def _toolkit(lock: Lock) -> list[dict[str, str]]:
    """The links in CUDA's usual folder to the wheels of the first prefix that has CUDA's wheels."""
    environment = lock.environment
    for plan, prefix in zip(environment.plans(), lock.prefixes, strict=True):
        if environment.part(plan).cuda_wheels():
            site = site_packages(prefix)
            return [{"name": link.name, "target": f"{site}/{link.target}"} for link in environment.base.toolkit]
    return []


def _env(lock: Lock, recipes: Mapping[str, Recipe]) -> list[tuple[str, str]]:
    """The image's variables. If the image has several prefixes, envbuild-use sets the variables of a prefix instead: a prefix
    must not see the variables of another prefix."""
    environment = lock.environment
    plans = environment.plans()
    values = dict(_NO_DISPLAY)
    if len(plans) == 1:
        values |= variables(environment, plans[0], recipes, lock.prefixes[0])
    if environment.cuda is not None:
        values.update(NVIDIA_VISIBLE_DEVICES="all", NVIDIA_DRIVER_CAPABILITIES="compute,utility")
        if environment.require_cuda:
            values["NVIDIA_REQUIRE_CUDA"] = environment.require_cuda
    return sorted(values.items())


def _labels(lock: Lock, used: Sequence[Recipe]) -> list[tuple[str, str]]:
    """The OCI labels whose values are in the lock. Labels about the publisher and the build time are left out, because the lock
    does not have these values.

    https://github.com/opencontainers/image-spec/blob/main/annotations.md
    """
    environment = lock.environment
    labels = {
        "org.envbuild.lock": hashlib.sha256(codec.dumps(lock).encode()).hexdigest(),
        "org.envbuild.name": environment.name,
        "org.envbuild.sbom": "/opt/envbuild/sbom.cdx.json",
        "org.opencontainers.image.base.name": lock.base.image,
        "org.opencontainers.image.description": _description(lock, [recipe.title for recipe in used]),
        "org.opencontainers.image.title": environment.name,
        "org.opencontainers.image.version": "+".join(f.version for f in environment.frameworks),
    }
    if digest := _digest(lock):
        labels["org.opencontainers.image.base.digest"] = digest
    if len(environment.frameworks) == 1 and "repository" in (options := environment.frameworks[0].options):
        labels["org.opencontainers.image.source"] = options["repository"]
        labels["org.opencontainers.image.revision"] = options["revision"]
    return sorted(labels.items())


def _description(lock: Lock, titles: Sequence[str]) -> str:
    """The titles and versions of the frameworks, then CUDA or CPU, then Python."""
    environment = lock.environment
    holds = [f"{title} {framework.version}" for framework, title in zip(environment.frameworks, titles, strict=True)]
    holds.append(f"CUDA {environment.cuda}" if environment.cuda else "CPU")
    holds.append(f"Python {' and '.join(dict.fromkeys(plan.python.version for plan in environment.plans()))}")
    return ", ".join(holds)


def _digest(lock: Lock) -> str:
    """The registry's digest of the base. It is empty for a local image: such an image is pinned by its id, and FROM cannot name
    an id."""
    return "" if lock.environment.base.provider == "local" else lock.base.digest or ""


def _apt(lock: Lock, wanted: Mapping[str, Sequence[str]]) -> list[str]:
    """The Debian packages of each framework. ``{python}`` in a name is replaced by the version of Python; such packages are
    left out if the distribution does not have that Python."""
    named: list[str] = []
    for plan, prefix in zip(lock.environment.plans(), lock.prefixes, strict=True):
        for name in (name for framework in plan.frameworks for name in wanted[framework]):
            if "{python}" not in name:
                named.append(name)
            elif prefix.python.provided_by == "distribution":
                named.append(name.replace("{python}", prefix.python.version))
    return _unique(named)


def _copied(target: str) -> dict[str, str]:
    """The target of a user's file. ``users`` is the topmost folder of the path that belongs to the image's user; it is empty if
    no folder belongs to that user."""
    parts = target.rstrip("/").split("/")
    depth = {"workspace": 3, "home": 4}.get(parts[1], 0)
    return {"target": "/".join(parts), "parent": "/".join(parts[:-1]) or "/", "users": "/".join(parts[:depth])}


def _compilers(lock: Lock) -> list[str]:
    """The Debian packages for compiling the source packages of a user's recipe: compilers, and packages that the recipe names.
    Compilers are always included, because it is unknown which source packages need a compiler."""
    custom = lock.environment.custom
    if custom is None:
        return []
    python = lock.prefixes[0].python
    return ["g++", *([f"python{python.version}-dev"] if python.provided_by == "distribution" else []), *custom.apt_build]


def _unique(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(name for name in names if name))


def _tidy(text: str) -> str:
    """Remove trailing spaces, repeated blank lines, and blank lines at the start and the end of the text.

    So templates need not avoid them. A RUN with one short command is put on the same line as its mounts.
    """
    lines: list[str] = []
    for line in (each.rstrip() for each in text.splitlines()):
        if line or (lines and lines[-1]):
            lines.append(line)
    while lines and not lines[-1]:
        lines.pop()
    return _FIRST_COMMAND.sub(_joined, "\n".join(lines) + "\n")


def _joined(match: re.Match[str]) -> str:
    mounts, command = match["mounts"], match["command"]
    line = f"{mounts} {command}\n"
    if len(line) <= _LONGEST and not command.endswith("\\"):
        return line
    if not mounts.endswith(_NETWORK_ALONE):
        return match[0]
    # Many steps have only these mounts. The first words of the command stay on the line of the mounts, so that the lines of
    # different steps differ.
    space = command.rfind(" ", 0, _LONGEST - len(mounts))
    if len(line) <= _LONGEST or "'" in command or space < 0:
        return line
    return f"{mounts} {command[:space]} \\\n      {command[space + 1 :]}\n"
