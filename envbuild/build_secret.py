"""The single secret of a build: a file that step.sh reads, with the settings for access to the package index and the apt
mirror.

People who build without envbuild can write such a file themselves. Usually ``export NAME=value`` lines are enough.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

ID = "envbuild"
FOLDER = "/dev/shm/envbuild"  # noqa: S108 - inside the build; images/partials/step.sh keeps files there that no layer may contain
VARIABLES = "envbuild-env"  # `export NAME=value` lines
# The other parts of the secret: name of the part → file in which step.sh looks for the part.
_FILES = {"envbuild-ca": "ca", "envbuild-apt": "sources.list", "envbuild-apt-conf": "apt.conf"}
CA = f"{FOLDER}/ca"


# The folder of the build context with all files of a build without a network. Build steps see it as /mnt/offline.
OFFLINE = "step/offline"
_OFFLINE_SCRIPT = """\
export UV_OFFLINE=1 UV_FIND_LINKS=/mnt/offline/files UV_NO_CONFIG=1 UV_PYTHON_DOWNLOADS=never
export PIP_NO_INDEX=1 PIP_FIND_LINKS=/mnt/offline/files PIP_CONFIG_FILE=/dev/null PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
eval "locked_$(declare -f installer)"
# With a network the secret has certificates, for which bash makes a temporary file, so that /tmp is an entry of the layer.
rm "$(mktemp)"
# uv notes in each installed package when its local wheel was made. Packages from an index have no such note, and both ways must
# give the same layers.
# --no-index: the builder's cache may have pages of the package index from earlier builds. Without this option, uv reads these
# pages, and may choose a file that it would have to download. There is no environment variable for this option, and uv fails if
# it is given twice.
installer() {
  if [[ " $* " != *" --no-index "* ]]; then
    set -- "$@" --no-index
  fi
  locked_installer "$@"
  local record
  find "$1" -path '*.dist-info/uv_cache.json' | while read -r record; do
    sed -i '/[.]dist-info\\/uv_cache[.]json,/d' "${record%/*}/RECORD"
    rm "${record}"
  done
}
# curl -o FILE ... URL: copies the file of the bundle that has this address. The caller checks its hash.
curl() {
  local file=
  while [[ $# -gt 1 ]]; do
    if [[ "$1" == -o ]]; then
      file=$2
    fi
    shift
  done
  cp "/mnt/offline/fetched/$(printf %s "$1" | sha256sum | cut -d' ' -f1)" "${file}"
}
"""


def offline() -> dict[str, bytes]:
    """Return the secret of a build without a network. All files that the build's steps need are in the folder ``step/offline``
    of the build context.

    Python packages are in the subfolder ``files``. The subfolder ``fetched`` has the files that steps would download; each file
    has the name that :func:`fetched_name` returns.
    """
    return {VARIABLES: _OFFLINE_SCRIPT.encode()}


def fetched_name(url: str) -> str:
    """Return the name that the file at ``url`` has in ``step/offline/fetched``. Steps read that file instead of downloading."""
    return hashlib.sha256(url.encode()).hexdigest()


def joined(parts: Mapping[str, bytes]) -> dict[str, bytes]:
    """Join the named parts into the single secret. If there are no parts, there is no secret. An unknown name is an error."""
    if not parts:
        return {}
    script = [parts.get(VARIABLES, b"")]
    for name in sorted(parts.keys() - {VARIABLES}):
        content = parts[name].rstrip(b"\n") + b"\n"
        end = b"end-" + hashlib.sha256(content).hexdigest().encode()
        script.append(b"cat > %s/%s <<'%s'\n%s%s\n" % (FOLDER.encode(), _FILES[name].encode(), end, content, end))
    return {ID: b"".join(script)}
