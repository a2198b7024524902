"""Finds the folder with the matrix and the recipes, and a writable folder for results. Also defines the path of every file."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from envbuild.errors import UsageError

PRIVATE = ".envbuild"
# Files in images/ that the packages envbuild.verify and envbuild.linkcheck read. The names are here because every run of `make`
# hashes these files, and `make` need not import the two packages for that.
IMPORT_RULES = "imports.yaml"
WRONG_RECORDS = "wrong-records.yaml"
LINK_RULES = "linking.yaml"
DRIVER_SYMBOLS = "driver-symbols.json"
COMPILING_RULES = "compiling.yaml"
HOST_LIBRARIES = "host-libraries.json"
_MARKER = "matrix.yaml"
_DATA = "_data"  # the folder of an installed package that has the matrix, recipes and locks
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Workspace:
    """The folders that envbuild uses.

    ``root`` has the matrix and the recipes, and may be read-only. ``home`` is envbuild's cache folder. Locks and renderings are
    written to ``output``: a writable checkout or, with an installed package, a folder below ``home``. Evidence is written below
    ``state``. Evidence is written to the checkout only if the user asks for that. ``overlays`` are the user's files that add or
    replace rows of the matrix; if several overlays replace a row, the last overlay counts. ``user_recipe`` is the path of a
    user's own recipe, or None. The lock of this recipe is next to the recipe; everything else is written to the folder
    ``.envbuild/`` next to the recipe. ``policy`` is the file of the site's policy, or None. ``options`` are the options of the
    command line that chose these folders and files; a command that envbuild prints needs them, too.
    """

    root: Path
    output: Path
    home: Path
    overlays: tuple[Path, ...] = ()
    user_recipe: Path | None = None
    policy: Path | None = None
    options: tuple[str, ...] = ()

    def beside(self, recipe: Path) -> Workspace:
        """Return a workspace with the same matrix and recipes that writes next to ``recipe``, a user's own recipe."""
        return replace(self, user_recipe=recipe, output=recipe.parent / PRIVATE)

    @property
    def is_packaged(self) -> bool:
        """Whether nothing is written below the root: it belongs to an installed package, or is a read-only checkout."""
        return self.user_recipe is None and self.output != self.images

    @property
    def is_installed(self) -> bool:
        """Whether the matrix, recipes and locks are those inside an installed package, and not a checkout."""
        return self.is_packaged and _DATA in self.root.parts

    @property
    def is_read_only(self) -> bool:
        """Whether the root is a checkout to which this user may not write. Locks and renderings are then written elsewhere."""
        return self.is_packaged and not self.is_installed

    @property
    def state(self) -> Path:
        """The folder of results that are valid for this machine only, unlike ``output``: builds, contexts, verdicts,
        reports."""
        return self.home if self.user_recipe is None else self.output

    @property
    def matrix(self) -> Path:
        """The main file of the matrix, which includes the other files."""
        return self.root / _MARKER

    @property
    def images(self) -> Path:
        """The folder of partials, recipes and stacks."""
        return self.root / "images"

    @property
    def measured(self) -> Path:
        """The folder of files that ``matrix measure`` writes: one file for each project."""
        return self.root / "matrix" / "measured"

    @property
    def unpacked_sizes(self) -> Path:
        """The file with measured ratios of unpacked to packed sizes."""
        return self.images / "unpacked-sizes.json"

    @property
    def recipes(self) -> Path:
        """The folder of recipes: it has one folder for each framework."""
        return self.images / "recipes"

    @property
    def stacks(self) -> Path:
        """The folder of stacks: it has one file for each stack."""
        return self.images / "stacks"

    def stack_file(self, name: str) -> Path:
        """The path of the file of the stack ``name``."""
        return self.stacks / f"{name}.yaml"

    @property
    def services(self) -> Path:
        """The folder of services that users' images can start. It has a YAML file and a script for each service."""
        return self.images / "services"

    @property
    def overlay(self) -> Path:
        """The folder of files with which users of an image add packages to the locked packages."""
        return self.images / "overlay"

    @property
    def launchers(self) -> Path:
        """The folder of launchers. It has a folder with a YAML file and templates for each launcher."""
        return self.images / "launchers"

    @property
    def pipelines(self) -> Path:
        """The folder of templates for CI systems."""
        return self.images / "pipelines"

    @property
    def partials(self) -> Path:
        """The folder of Dockerfile blocks that all recipes share."""
        return self.images / "partials"

    @property
    def guest(self) -> Path:
        """The folder of the smoke package, which is copied into every image."""
        return Path(__file__).parent / "smoke"

    @property
    def matrix_cache(self) -> Path:
        """The file of the compiled matrix; its name has the hash of the matrix files."""
        return self.home / "compiled-matrix"

    @property
    def list_cache(self) -> Path:
        """The file of the cached list of environments; its name has the matrix's fingerprint."""
        return self.home / "list"

    @property
    def engine(self) -> Path:
        """The folder of the private engine: its data root, socket, pid file and log."""
        return self.home / "engine"

    @property
    def bases(self) -> Path:
        """The folder of bootstrapped root file systems and their manifests."""
        return self.home / "bases"

    @property
    def downloads(self) -> Path:
        """The folder of files that were downloaded from package indexes, by hash."""
        return self.home / "downloads"

    @property
    def layers(self) -> Path:
        """The folder of layers of composed images, by digest."""
        return self.home / "layers"

    @property
    def layer_facts(self) -> Path:
        """The folder of facts that `linkcheck` read from layers. The folder can be deleted."""
        return self.home / "linkcheck"

    @property
    def composed_images(self) -> Path:
        """The folder of records of images that were composed, pulled or pushed, by image id. A record lists the layers."""
        return self.home / "images"

    @property
    def built_wheels(self) -> Path:
        """The folder of wheels that were built from pinned sources. The folder of each wheel has the wheel's sha256 as name."""
        return self.home / "wheels"

    @property
    def data(self) -> Path:
        """The folder of public data sets for the smoke test."""
        return self.home / "data"

    @property
    def environments(self) -> Path:
        """The folder of committed environments: it has one folder, written by envbuild, for each canonical name."""
        return self.output / "environments"

    @property
    def committed_environments(self) -> Path:
        """The folder of environments below the root. It differs from ``environments`` if nothing is written below the root."""
        return self.images / "environments"

    def environment(self, name: str) -> Path:
        """The folder to which the files of ``name`` are written."""
        return self.environments / name

    def rendering(self, name: str) -> Path:
        """The folder with the rendering of ``name``. It is the folder of the lock or, for a user's own recipe, the writable
        folder."""
        return self.environment(name) if self.user_recipe else self.lock_file(name).parent

    def lock_file(self, name: str) -> Path:
        """The lock of ``name``: the lock in the writable folder if it exists, else the lock that came with the root."""
        ours = self.written_lock(name)
        shipped = self.committed_environments / name / "lock.json"
        return ours if self.user_recipe or ours.exists() or not shipped.exists() else shipped

    def written_lock(self, name: str) -> Path:
        """The path to which a lock of ``name`` is written. The lock of a user's own recipe is next to the recipe."""
        return self.user_recipe.with_suffix(".lock.json") if self.user_recipe else self.environment(name) / "lock.json"

    def evidence_file(self, name: str) -> Path:
        """The file with this machine's evidence for ``name``."""
        return self.state / "evidence" / f"{name}.json"

    def committed_evidence(self, name: str) -> Path:
        """The committed evidence of ``name``; a user's own recipe has none."""
        return self.images / "evidence" / f"{name}.json"

    def gathered_file(self, name: str) -> Path:
        """The reports about ``name`` that were gathered from registries."""
        return self.state / "gathered" / f"{name}.json"

    def gathered_names(self) -> tuple[str, ...]:
        """The environments about which reports were gathered from registries, sorted. The reports may be stale."""
        return tuple(sorted(path.stem for path in (self.state / "gathered").glob("*.json")))

    def has_evidence(self, name: str) -> bool:
        """Whether there is evidence for ``name`` on this machine or in the repository. The evidence may be stale."""
        return self.committed_evidence(name).exists() or self.evidence_file(name).exists()

    def with_same_build(self, name: str) -> list[str]:
        """The other environments with evidence in the repository that have the frameworks and the CUDA of ``name``, sorted.

        They differ in Python, system or base. The part of a canonical name before its Python says all of this.
        """
        build = f"{name.rpartition('-py')[0]}-py"
        found = (path.stem for path in self.committed_evidence(name).parent.glob(f"{glob.escape(build)}*.json"))
        return sorted(each for each in found if each != name and each.rpartition("-py")[0] == build.removesuffix("-py"))

    def build_record(self, name: str) -> Path:
        """The record of the last build of ``name`` on this machine: its result and its inputs."""
        return self.state / "builds" / f"{name}.json"

    def context(self, name: str) -> Path:
        """The assembled build context of ``name``."""
        return self.state / "contexts" / name

    def stored_answer(self, name: str, stage: str) -> Path:
        """The last stored answer of a stage that checks an image."""
        return self.state / "stages" / name / f"{stage}.json"

    def running(self, name: str, stage: str) -> Path:
        """The lock file for ``stage`` and ``name``: only one process at a time runs this stage for this environment."""
        return self.state / "locks" / f"{name}.{stage}"

    def device_lock(self, device: str) -> Path:
        """The lock file for ``device``: only one smoke test at a time, of any environment, runs on this device."""
        return self.home / "locks" / "devices" / re.sub(r"[^A-Za-z0-9-]", "_", device)

    def report_folder(self, name: str) -> Path:
        """The folder of the smoke reports of ``name``."""
        return self.state / "reports" / name


def can_be_name(text: str) -> bool:
    """Whether the text has the form of a canonical name. Any other text, such as a condition, has no folder."""
    return _NAME.fullmatch(text) is not None


def options_of(root: str | None, overlays: Sequence[str], policy: str | None) -> tuple[str, ...]:
    """Return ``--root``, ``--matrix`` and ``--policy`` as words of a command line, with absolute paths."""
    given = [("--root", root), *(("--matrix", path) for path in overlays), ("--policy", policy)]
    return tuple(f"{option}={Path(path).expanduser().absolute()}" for option, path in given if path)


def find(
    root: str | None = None, overlays: Sequence[str] = (), environ: Mapping[str, str] = os.environ, policy: str | None = None
) -> Workspace:
    """Return the workspace for ``root`` (from the option), else for ENVBUILD_ROOT, else for the surrounding checkout, else for
    the packaged copy.

    ``overlays`` (from options) take precedence over the overlays in ENVBUILD_MATRIX, which are separated as in PATH. ``policy``
    (from the option) takes precedence over ENVBUILD_POLICY.

    The surrounding checkout is the nearest folder with a matrix, at or above the working folder. Raises :class:`UsageError` if
    a root was named that has no matrix.
    """
    named = root or environ.get("ENVBUILD_ROOT")
    _require_working_folder()
    home = _home(environ)
    _refuse_strangers(home, environ)
    if named:
        folder = Path(named).expanduser().resolve()
        if not (folder / _MARKER).is_file():
            raise UsageError(
                f"{folder} contains no {_MARKER}.",
                code="no-matrix",
                hint="Name the folder that contains matrix.yaml and images/, or unset ENVBUILD_ROOT.",
            )
    else:
        folder = _upward(Path.cwd()) or _packaged()
    checkout = folder / "images"
    writable = _DATA not in folder.parts and os.access(checkout, os.W_OK)
    named_overlays = [*filter(None, environ.get("ENVBUILD_MATRIX", "").split(os.pathsep)), *overlays]
    return Workspace(
        root=folder,
        output=checkout if writable else home / "images",
        home=home,
        overlays=tuple(dict.fromkeys(Path(name).expanduser().absolute() for name in named_overlays)),
        policy=Path(found).expanduser().absolute() if (found := policy or environ.get("ENVBUILD_POLICY")) else None,
        options=options_of(root, overlays, policy),
    )


def _require_working_folder() -> None:
    try:
        Path.cwd()
    except OSError as error:
        raise UsageError(
            "The working folder no longer exists, or cannot be read.",
            code="no-working-folder",
            hint="Change to a folder that exists, and run the command again.",
        ) from error


def _home(environ: Mapping[str, str]) -> Path:
    named = environ.get("ENVBUILD_HOME")
    try:
        if named:
            return Path(named).expanduser().resolve()
        return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "envbuild"
    except RuntimeError as error:  # raised by Path.home() and expanduser() if the password database does not have the user
        raise UsageError(
            "There is no place for envbuild's cache: this user has no home folder and HOME is not set.",
            code="no-home",
            hint="Set ENVBUILD_HOME to a folder that this user may write to.",
        ) from error
    except OSError as error:  # such as symbolic links that form a loop
        raise UsageError(
            f"The cache folder {named} cannot be found: {error.strerror or error}.",
            code="no-home",
            hint="Correct ENVBUILD_HOME.",
        ) from error


def _is_telling(folder: os.stat_result, ours: set[int]) -> bool:
    """Whether the permissions of this folder show who can make folders in it: everybody, or only trusted users."""
    return bool(folder.st_mode & stat.S_IWOTH) or folder.st_uid in ours


def _refuse_strangers(home: Path, environ: Mapping[str, str]) -> None:
    """Refuse a cache folder in which another user may have put files or links.

    A folder of another user is refused only in a place where everybody may make folders (/tmp). In other places, an
    administrator must have made the folder, such as a cache that is mounted into a container.
    """
    ours = {os.geteuid(), 0, *map(int, filter(str.isdigit, [environ.get("SUDO_UID", "")]))}
    try:
        found = home.stat()
        above = next((each for parent in home.parents if _is_telling(each := parent.stat(), ours)), found)
    except OSError:
        return  # the folder does not exist yet
    shared = bool(above.st_mode & stat.S_IWOTH)
    if found.st_mode & stat.S_IWOTH:
        why = "every user of this machine may write to it"
    elif shared and found.st_uid not in ours:
        why = "it belongs to another user, who could have made it there before you"
    else:
        return
    raise UsageError(
        f"The cache folder {home} cannot be trusted: {why}.",
        code="unsafe-home",
        hint="Set ENVBUILD_HOME to a folder of your own.",
    )


def _upward(start: Path) -> Path | None:
    for folder in (start, *start.parents):
        if (folder / _MARKER).is_file() and (folder / "images" / "recipes").is_dir():
            return folder
    return None


def _packaged() -> Path:
    here = Path(__file__).parent
    for folder in (here / _DATA, here.parent):  # the second folder is the checkout of an editable install
        if (folder / _MARKER).is_file():
            return folder
    raise UsageError(
        "No matrix.yaml was found.", code="no-matrix", hint="Reinstall envbuild, or set ENVBUILD_ROOT to a checkout."
    )
