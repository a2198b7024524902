"""Docker with containerd's image store, from Debian's packages of the suite sid: newer than the Docker of most test machines.

Only root can start it. The suite is unpacked into a folder; in the engine's own mount namespace, this folder's /usr takes the
place of the machine's /usr. So the engine sees all other folders of this machine, and the tests can pass it files.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild import procs
from envbuild.engine import daemon, host_apt, private_engine
from envbuild.workspace import Workspace

SUITE = "sid"
PACKAGES = "docker.io,docker-cli,docker-buildx,containerd,runc,iptables,iproute2,util-linux,mount,coreutils,dash"
STORE = {"features": {"containerd-snapshotter": True}}


def unpack(root: Path) -> str:
    """Unpack the packages of Docker, and all that they need, into the folder ``root``. Return why this failed; "" if it did
    not."""
    sources = host_apt.sources_for(SUITE, host_apt.host_sources(), codename=host_apt.codename())
    uri = next((each.root for each in sources if each.suite == SUITE), "")
    program = procs.find("mmdebstrap")
    if not uri or program is None:
        return "mmdebstrap is not installed" if uri else "apt of this machine names no Debian mirror"
    dates = '--aptopt=Acquire::Check-Valid-Until "false"'  # a mirror that is some days behind is good enough here
    words = [program, "--quiet", "--variant=extract", dates, f"--include={PACKAGES}", SUITE, str(root), uri]
    done = procs.run(words, timeout_s=600)
    return "" if done.code == 0 else f"mmdebstrap did not unpack {SUITE}: {done.output.strip()[-500:]}"


@contextlib.contextmanager
def running(root: Path, workspace: Workspace) -> Iterator[str]:
    """Start the engine whose programs are in ``root``. Its data is in the cache folder of ``workspace``. Yield its address."""
    unshare = root / "unshare"
    inside = f'mount --bind {shlex.quote(str(root))}/usr /usr && exec unshare "$@"'
    unshare.write_text(f'#!/bin/sh\nexec unshare --mount sh -c {shlex.quote(inside)} unshare "$@"\n')
    unshare.chmod(0o755)
    programs = daemon.Programs(dockerd="/usr/sbin/dockerd", unshare=str(unshare), proxy="/usr/sbin/docker-proxy")
    settings = json.dumps(json.loads(daemon.configuration()) | STORE)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(daemon.Programs, "find", staticmethod(lambda: programs))
        patched.setattr(daemon, "configuration", lambda: settings)
        private_engine.up(workspace)
    try:
        yield f"unix://{private_engine.status(workspace).socket}"
    finally:
        private_engine.down(workspace, purge=True)
