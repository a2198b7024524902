"""The hosts from which builds download files, and the variables that name their mirrors.

The first two variables are settings of uv and conda themselves. A build gets the values of the variables as a secret. Every
download is checked by its hash.
"""

from __future__ import annotations

PREFIXES = {
    "UV_PYTHON_INSTALL_MIRROR": "https://github.com/astral-sh/python-build-standalone/releases/download",
    "CONDA_CHANNEL_ALIAS": "https://conda.anaconda.org",
    "ENVBUILD_ANACONDA_MIRROR": "https://repo.anaconda.com",
    "ENVBUILD_GITHUB_MIRROR": "https://github.com",
}


def split(url: str) -> tuple[str, str, str]:
    """Split ``url`` into the part that a mirror replaces, and the rest. Return (variable, part, rest).

    In Dockerfiles, the variable names a mirror. If no variable names a mirror of the URL's host, variable and part are empty.
    """
    for variable, prefix in PREFIXES.items():
        if url.startswith(f"{prefix}/"):
            return variable, prefix, url.removeprefix(f"{prefix}/")
    return "", "", url
