"""The single secret of a build: settings with which steps reach the index and the mirror, in a file that step.sh reads.

People who build without envbuild can write such a file themselves. Usually ``export NAME=value`` lines are enough.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

ID = "envbuild"
FOLDER = "/dev/shm/envbuild"  # noqa: S108 - inside the build; images/partials/step.sh keeps files there that no layer may contain
VARIABLES = "envbuild-env"  # `export NAME=value` lines
# Each other part, and the file in which step.sh looks for it.
_FILES = {"envbuild-ca": "ca", "envbuild-apt": "sources.list", "envbuild-apt-conf": "apt.conf"}
CA = f"{FOLDER}/ca"


def joined(parts: Mapping[str, bytes]) -> dict[str, bytes]:
    """Join the named parts into the single secret. No parts give no secret; an unknown name is an error."""
    if not parts:
        return {}
    script = [parts.get(VARIABLES, b"")]
    for name in sorted(parts.keys() - {VARIABLES}):
        content = parts[name].rstrip(b"\n") + b"\n"
        end = b"end-" + hashlib.sha256(content).hexdigest().encode()
        script.append(b"cat > %s/%s <<'%s'\n%s%s\n" % (FOLDER.encode(), _FILES[name].encode(), end, content, end))
    return {ID: b"".join(script)}
