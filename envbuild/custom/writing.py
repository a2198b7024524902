"""Write the text of a new ``envbuild.yaml``: the chosen keys, and every other key as a comment."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from envbuild.jinja_settings import jinja_environment

_TEMPLATE = "envbuild.yaml.j2"
_NOT_OF_A_NAME = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Wishes:
    """The values with which a new recipe starts."""

    name: str
    frameworks: tuple[str, ...]
    python: str
    pip: tuple[str, ...]
    apt: tuple[str, ...]
    services: tuple[str, ...]


def name_for(folder: Path) -> str:
    """Return a valid recipe name that is close to the name of ``folder``."""
    return _NOT_OF_A_NAME.sub("-", folder.absolute().name.lower()).strip("-") or "my-environment"


def text(wishes: Wishes, services: tuple[str, ...]) -> str:
    """Return the text of the file. ``services`` are all services that exist. Pure."""
    source = resources.files("envbuild.custom").joinpath(_TEMPLATE).read_text(encoding="utf-8")
    environment = jinja_environment({_TEMPLATE: source}, autoescape=False)  # every value is a JSON string
    environment.filters["quoted"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.filters["listed"] = lambda values: json.dumps(list(values), ensure_ascii=False)
    return environment.get_template(_TEMPLATE).render(wishes=wishes, services=services)
