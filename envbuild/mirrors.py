"""The hosts that builds fetch files from by themselves, and the variables that name a mirror of each.

The first two are those of uv and conda. Their values travel into a build as a secret; what is fetched is known by its hash.
"""

from __future__ import annotations

PREFIXES = {
    "UV_PYTHON_INSTALL_MIRROR": "https://github.com/astral-sh/python-build-standalone/releases/download",
    "CONDA_CHANNEL_ALIAS": "https://conda.anaconda.org",
    "ENVBUILD_ANACONDA_MIRROR": "https://repo.anaconda.com",
    "ENVBUILD_GITHUB_MIRROR": "https://github.com",
}


def split(url: str) -> tuple[str, str, str]:
    """The variable that names a mirror of where ``url`` begins, that beginning, and the rest; no variable if none does."""
    for variable, prefix in PREFIXES.items():
        if url.startswith(f"{prefix}/"):
            return variable, prefix, url.removeprefix(f"{prefix}/")
    return "", "", url
