"""The one secret of a build: what its steps need to reach index and mirror from this machine, as a file that step.sh reads.

People who build without envbuild can write such a file themselves: its ``export NAME=value`` lines are all that most need.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

ID = "envbuild"
FOLDER = "/dev/shm/envbuild"  # noqa: S108 - inside the build, where images/partials/step.sh keeps what no layer may hold
VARIABLES = "envbuild-env"  # `export NAME=value` lines
# Each other part, and the file that step.sh looks for.
_FILES = {"envbuild-ca": "ca", "envbuild-apt": "sources.list", "envbuild-apt-conf": "apt.conf"}
CA = f"{FOLDER}/ca"


def joined(parts: Mapping[str, bytes]) -> dict[str, bytes]:
    """The parts by their names as the one secret; nothing where there are none, and a part of another name is an error."""
    if not parts:
        return {}
    script = [parts.get(VARIABLES, b"")]
    for name in sorted(parts.keys() - {VARIABLES}):
        content = parts[name].rstrip(b"\n") + b"\n"
        end = b"end-" + hashlib.sha256(content).hexdigest().encode()
        script.append(b"cat > %s/%s <<'%s'\n%s%s\n" % (FOLDER.encode(), _FILES[name].encode(), end, content, end))
    return {ID: b"".join(script)}
