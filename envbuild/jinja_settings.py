"""The settings that all Jinja templates of this package share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2

# The comment marks for templates of shell code: in Jinja's default syntax, bash's ``${#array[@]}`` would open a comment.
SHELL_COMMENTS = {"comment_start_string": "{##", "comment_end_string": "##}"}


def jinja_environment(source: Mapping[str, str] | Path, *, autoescape: bool, **more: Any) -> jinja2.Environment:
    """Return a Jinja environment for the templates in ``source``. ``source`` is a folder, or a map from names to texts.

    In a template, an undefined value is an error.
    """
    import jinja2

    loader = jinja2.FileSystemLoader(source) if isinstance(source, Path) else jinja2.DictLoader(source)
    return jinja2.Environment(
        loader=loader,
        autoescape=autoescape,  # noqa: S701 - the caller decides: not all templates are HTML
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **more,
    )
