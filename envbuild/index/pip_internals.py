"""The parts of pip's own code that envbuild uses. No other module imports ``pip._internal``.

None of pip's modules is public: https://pip.pypa.io/en/stable/user_guide/#using-pip-from-your-program. So pyproject.toml sets
an upper bound on pip's version. Raise this bound after the unit tests of ``index`` have passed with a newer pip.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from optparse import Values
from typing import TYPE_CHECKING

from envbuild.errors import UsageError

if TYPE_CHECKING:
    from requests.auth import AuthBase


def read_options() -> Values:
    """Return the options of ``pip download`` on this machine, from configuration files and ``PIP_*`` variables.

    ``pip config list`` is the public way to read them, but it shows them unparsed and unmerged. Only pip's parser knows which
    section, file or variable has priority, and how lists and booleans are written.
    """
    from pip._internal.commands import create_command

    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint), contextlib.redirect_stdout(complaint):
            options, _ = create_command("download").parser.parse_args([])
    except (SystemExit, Exception) as error:
        said = complaint.getvalue().strip().splitlines()
        raise UsageError(
            f"pip's configuration on this machine cannot be read: {said[-1] if said else error}",
            code="pip-configuration",
            hint="`pip config debug` shows which file or PIP_* variable it comes from.",
        ) from error
    return options


def default_index() -> str:
    """Return the URL of pip's default index. pip itself shows it only in its help text."""
    from pip._internal.models.index import PyPI

    return PyPI.simple_url


def public_hosts() -> tuple[str, str]:
    """Return the host of pip's default index and the host of its files. pip itself shows only the host of the index, in its
    help text."""
    from pip._internal.models.index import PyPI

    return PyPI.netloc, PyPI.file_storage_domain


def credentials(index_urls: Sequence[str], keyring_provider: str) -> AuthBase:
    """Return pip's own authentication for ``requests``. For each index, it takes credentials from the URL, from netrc or from a
    keyring.

    ``requests`` itself knows only the URL and netrc. The rules for indexes and keyrings exist only inside pip.
    """
    from pip._internal.network.auth import MultiDomainBasicAuth

    return MultiDomainBasicAuth(  # type: ignore[return-value]  # its base class is in pip's own copy of requests
        prompting=False, index_urls=list(index_urls), keyring_provider=keyring_provider
    )
