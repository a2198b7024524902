"""A user's own recipe, ``envbuild.yaml``: read strictly, and written by ``envbuild init``."""

from typing import TYPE_CHECKING

from envbuild.lazily import exported

if TYPE_CHECKING:
    from envbuild.custom.editing import edit_list
    from envbuild.custom.places import FILE, find, path_in
    from envbuild.custom.reading import UserRecipe, load, read
    from envbuild.custom.requirements import NoRequirementError, project_of, read_requirement
    from envbuild.custom.services import load_services
    from envbuild.custom.writing import Wishes, name_for, text

__all__ = [
    "FILE",
    "NoRequirementError",
    "UserRecipe",
    "Wishes",
    "edit_list",
    "find",
    "load",
    "load_services",
    "name_for",
    "path_in",
    "project_of",
    "read",
    "read_requirement",
    "text",
]

__getattr__ = exported(
    __name__,
    editing="edit_list",
    places="FILE find path_in",
    reading="UserRecipe load read",
    requirements="NoRequirementError project_of read_requirement",
    services="load_services",
    writing="Wishes name_for text",
)
