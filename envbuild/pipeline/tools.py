"""The objects that the stages of one run share. Each object is made when it is used for the first time."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from envbuild.errors import EngineError
from envbuild.model.progress import ignore_progress

if TYPE_CHECKING:
    from envbuild.custom.reading import UserRecipe
    from envbuild.engine.client import Engine
    from envbuild.image_inputs import BuildInputs
    from envbuild.index.client import Index
    from envbuild.matrix.platform import BuildTool
    from envbuild.matrix.types import Matrix
    from envbuild.model.environment import Environment
    from envbuild.model.lock import Artifact, Lock, SourceArchive
    from envbuild.model.progress import OnProgress
    from envbuild.pipeline.unpacked_sizes import UnpackedSizes
    from envbuild.policy.model import Policy
    from envbuild.recipes import Recipe
    from envbuild.workspace import Workspace


class Bundle(Protocol):
    """A bundle that is used in place of the network. :class:`envbuild.pipeline.offline.Offline` implements this protocol."""

    recipes: dict[str, Path]

    def names(self) -> list[str]:
        """Return the names of the environments in the bundle, sorted."""

    def require(self, name: str) -> object:
        """Raise :class:`BuildError` (``not-in-bundle``) if the bundle does not have the environment ``name``."""

    def supply(self, tools: Tools, lock: Lock, *, wheels: bool) -> Mapping[str, Path]:
        """Return every file that a build of ``lock`` needs, as a mapping: path in the build context → file."""


class _LateIndex:
    """Stands in for the index of ``tools``.

    The index is made on first use, because a build that keeps the earlier image needs no index.
    """

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def fetch_artifact(self, artifact: Artifact, folder: Path, on_progress: OnProgress = ignore_progress) -> Path:
        return self._tools.index.fetch_artifact(artifact, folder, on_progress)

    def build_secrets(self) -> dict[str, bytes]:
        return self._tools.index.build_secrets()


class Tools:
    """The matrix, the recipes, the index and the engine of one run. Verbs that only plan use no index and no engine."""

    def __init__(
        self,
        workspace: Workspace,
        *,
        on_progress: OnProgress = lambda _news: None,
        start_engine: bool = False,
        space_is_checked: bool = False,
    ) -> None:
        self.workspace = workspace
        self.space_is_checked = space_is_checked  # a batch has compared the free space with the need of all its builds
        self.on_progress = on_progress
        self._start_engine = start_engine
        self.offline: Bundle | None = None

    def at(self, texts: Sequence[str]) -> Tools:
        """Return the tools for ``texts``. If ``texts`` name a user's recipe, return new tools that write next to this recipe.

        With a bundle, the name of a user's environment means the recipe's copy from the bundle. Raises :class:`UsageError` if
        ``texts`` are a path without a recipe.
        """
        from envbuild.custom.paths import path_in

        recipe = path_in(texts)
        if recipe is None and self.offline is not None and len(texts) == 1:
            recipe = self.offline.recipes.get(texts[0])
        if recipe is None:
            return self
        return self.for_recipe(recipe)

    def for_recipe(self, path: Path, recipe: UserRecipe | None = None) -> Tools:
        """Return tools for the user's recipe at ``path``. If ``recipe`` is given, the file is not read."""
        tools = copy.copy(self)  # a shallow copy, which shares the objects that exist already
        tools.workspace = self.workspace.beside(path)
        tools.__dict__.pop("user_recipe", None)
        if recipe is not None:
            tools.__dict__["user_recipe"] = recipe
        return tools

    @functools.cached_property
    def user_recipe(self) -> UserRecipe | None:
        """The user's recipe; None if the tools are for no recipe."""
        path = self.workspace.user_recipe
        if path is None:
            return None
        from envbuild.custom import reading, services

        return reading.load(path, services.load_services(self.workspace))

    def cli_name(self, name: str) -> str:
        """Return the word that names the environment on a command line.

        For a user's recipe, this is the path of the recipe, unless the recipe comes from a bundle. Otherwise it is ``name``.
        """
        path = self.workspace.user_recipe
        if self.offline is not None and name in self.offline.recipes:
            return name
        return name if path is None else str(path) if path.is_absolute() else f"./{path}"

    @functools.cached_property
    def matrix(self) -> Matrix:
        """The matrix, after the site rules of the policy were applied to it."""
        if self.policy is None or not self.policy.site:
            return self.matrix_without_site
        from envbuild.policy import site_rules

        return site_rules.apply(self.matrix_without_site, self.policy.site)

    @functools.cached_property
    def matrix_without_site(self) -> Matrix:
        """The matrix, without the site rules of the policy."""
        from envbuild.matrix import cache

        return cache.load(self.workspace)

    def without_policy(self) -> Tools:
        """Return tools to which no policy applies, so that their matrix also has the rows that the site excludes."""
        tools = copy.copy(self)
        tools.__dict__["policy"] = None
        tools.__dict__["matrix"] = self.matrix_without_site
        return tools

    @functools.cached_property
    def policy(self) -> Policy | None:
        """The site's policy; None if there is no policy."""
        if self.workspace.policy is None:
            return None
        from envbuild.policy import reading

        return reading.load(self.workspace.policy)

    @property
    def build_tools(self) -> tuple[Artifact, ...]:
        """The wheels of the programs that the matrix pins for use in builds."""
        return tuple(_wheel(row) for row in self.matrix.build_tools if not row.pythons)

    @property
    def pips(self) -> Mapping[str, Artifact]:
        """For each version of Python: the wheel of the pip that images with this Python contain."""
        return {python: _wheel(row) for row in self.matrix.build_tools for python in row.pythons}

    @property
    def source_archives(self) -> tuple[SourceArchive, ...]:
        """The source archives for which the matrix has a hash."""
        from envbuild.model.lock import SourceArchive

        return tuple(
            SourceArchive(repository=row.repository, revision=row.revision, sha256=row.sha256)
            for row in self.matrix.source_archives
        )

    @functools.cached_property
    def unpacked_sizes(self) -> UnpackedSizes:
        """How large the files of a lock get when they are unpacked."""
        from envbuild.pipeline import unpacked_sizes

        return unpacked_sizes.load(self.workspace.unpacked_sizes)

    @functools.cached_property
    def recipes(self) -> Mapping[str, Recipe]:
        """All recipes, by name. A recipe says how a framework is installed and tested."""
        from envbuild import recipes

        return recipes.load(self.workspace)

    def recipes_of(self, environment: Environment) -> Mapping[str, Recipe]:
        """Return at least the recipes of ``environment``, by name.

        Other recipes are included only if all recipes were read before.
        """
        from envbuild import recipes

        if "recipes" in self.__dict__:
            return self.recipes
        return recipes.load_some(self.workspace, {framework.recipe for framework in environment.frameworks})

    @functools.cached_property
    def templates(self) -> Mapping[str, str]:
        """The texts of the partials, which are shared parts of Dockerfiles, and of the recipes' templates."""
        from envbuild import recipes

        return recipes.templates(self.workspace)

    def sharing(self, earlier: Tools) -> Tools:
        """Return ``self``, which uses the index of the ``earlier`` tools from now on, if they have one.

        That index remembers the hosts that did not answer.
        """
        if "index" in earlier.__dict__:
            earlier.index.on_progress = self.on_progress
            self.__dict__["index"] = earlier.index
        return self

    @functools.cached_property
    def index(self) -> Index:
        """The client for package indexes, with the configuration of this machine's pip."""
        from envbuild.index.client import Index

        return Index(on_progress=self.on_progress)

    def build_inputs(self, lock: Lock, rendering: Mapping[str, str]) -> BuildInputs:
        """Return all inputs of a build of ``lock``."""
        from envbuild.image_inputs import BuildInputs

        return BuildInputs(
            workspace=self.workspace,
            lock=lock,
            recipes=self.recipes,
            rendering=rendering,
            index=_LateIndex(self),
            on_progress=self.on_progress,
        )

    @functools.cached_property
    def engine(self) -> Engine:
        """The container engine that answers. If none answers and ``--start-engine`` was given, start the private engine."""
        from envbuild.engine import choice

        try:
            return choice.connect(self.workspace)
        except EngineError as error:
            if not self._start_engine or error.code != "no-engine":
                raise
        from envbuild.engine import private_engine

        self.say("engine", "starting the private engine, because no other engine responds")
        private_engine.up(self.workspace)
        return choice.connect(self.workspace)

    @property
    def engine_name(self) -> str:
        """The origin and the address of the engine. The origin says why this engine was chosen."""
        return f"{self.engine.origin} ({self.engine.endpoint})"

    def engine_or_none(self) -> Engine | None:
        """Return the engine, or None if no engine answers, for callers that can work without an engine."""
        try:
            return self.engine
        except EngineError:
            return None

    def say(self, stage: str, message: str) -> None:
        """Report a step of progress of ``stage``."""
        from envbuild.model.progress import Progress

        self.on_progress(Progress(stage=stage, message=message))


def _wheel(row: BuildTool) -> Artifact:
    from envbuild.model.lock import Artifact

    return Artifact(
        name=row.name,
        version=row.version,
        filename=row.filename,
        sha256=row.sha256,
        index="default",
        project=row.name,
        size=row.size,
    )
