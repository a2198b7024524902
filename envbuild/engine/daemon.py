"""The programs, configuration and command line of the private engine's daemon."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild import cdi, procs
from envbuild.errors import EngineError

# dockerd uses the containerd that it finds at /run/containerd/containerd.sock
# (https://github.com/moby/moby/blob/v20.10.24/cmd/dockerd/daemon_unix.go). So the private engine would share this containerd,
# and the containerd namespace, with the machine's own engine. containerd's shims put their sockets into this folder, too. So
# the private engine mounts its own tmpfs over the folder. This separates the two engines, and keeps the paths of sockets below
# their length limit.
HIDDEN = Path("/run/containerd")

# The first process of the namespace. It reaps orphans, passes SIGTERM to dockerd, and ends when dockerd ends. The kernel then
# ends all other processes in the namespace.
INIT = f"""set -eu
mkdir -p {HIDDEN}
mount -t tmpfs -o mode=0711 envbuild {HIDDEN}
"$@" & child=$!
trap 'kill -TERM $child' TERM INT
code=0
while kill -0 $child 2>/dev/null; do code=0; wait $child || code=$?; done
exit $code
"""

_HOST_CONFIGURATION = Path("/etc/docker/daemon.json")
# Settings that an administrator makes for every engine of this machine. Other settings (addresses, storage, data-root) are not
# copied.
_TAKEN_OVER = (
    "default-runtime",
    "dns",
    "dns-opts",
    "dns-search",
    "insecure-registries",
    "mtu",
    "proxies",
    "registry-mirrors",
    "runtimes",
)
_CACHE_LIMIT = "30GB"
_LOOPBACK = "127.0.0.1"
# Folders that may contain docker-proxy. Debian's package docker.io has it in /usr/sbin, Docker's packages in /usr/bin or
# /usr/libexec/docker.
_PROXY_FOLDERS = ("/usr/sbin", "/sbin", "/usr/libexec/docker", "/usr/lib/docker")


@dataclass(frozen=True, kw_only=True, slots=True)
class Programs:
    """The paths of the programs that the daemon needs."""

    dockerd: str
    unshare: str
    proxy: str | None

    @staticmethod
    def find() -> Programs:
        """Find the programs. If a program is missing, raises :class:`EngineError` (``missing-program``), which names the
        package to install."""
        packages = {
            "dockerd": "docker.io",
            "containerd": "containerd",
            "runc": "runc",
            "iptables": "iptables",
            "ip": "iproute2",
            "unshare": "util-linux",
        }
        found: dict[str, str] = {}
        for program, package in packages.items():
            path = procs.find(program)
            if path is None:
                raise EngineError(
                    f"The private engine needs the program {program}, which is not installed.",
                    code="missing-program",
                    hint=f"Install it: apt-get install --no-install-recommends docker.io iproute2 (missing: {package}). "
                    "`make demo` does this by itself.",
                )
            found[program] = path
        proxy = procs.find("docker-proxy", extra=_PROXY_FOLDERS)
        return Programs(dockerd=found["dockerd"], unshare=found["unshare"], proxy=proxy)


def data_option(data: Path) -> str:
    """Return the option by which the command line of this daemon can be recognised."""
    return f"--data-root={data}"


def argv(programs: Programs, *, config: Path, data: Path, endpoint: str, bridge: str, cgroup: str) -> list[str]:
    """Return the command line that starts the daemon in its own namespaces."""
    return [
        programs.unshare,
        "--mount",
        "--pid",
        "--fork",
        "--kill-child=KILL",
        "--mount-proc",
        "--propagation=slave",  # disks mounted later on the host become visible inside; mounts made inside stay inside
        "sh",
        "-c",
        INIT,
        "envbuild-engine",
        programs.dockerd,
        f"--config-file={config}",
        data_option(data),
        f"--exec-root={HIDDEN}/envbuild",
        f"--pidfile={HIDDEN}/dockerd.pid",
        f"--host={endpoint}",
        "--group=root",
        f"--bridge={bridge}",
        "--iptables=false",
        "--ip6tables=false",
        "--ip-masq=false",
        *_publishing(programs.proxy),
        f"--cgroup-parent={cgroup}",
        # The systemd driver would see process numbers of another namespace.
        "--exec-opt=native.cgroupdriver=cgroupfs",
    ]


def _publishing(proxy: str | None) -> list[str]:
    """Return the options for published ports. dockerd's port forwarder (docker-proxy) listens on the host, on loopback by
    default.

    The daemon writes no firewall rules (see ``private_network``), so only the forwarder can publish a port. dockerd starts one
    forwarder for each port in its PID namespace, so the forwarders end with the engine. If the program docker-proxy is missing,
    the option ``--userland-proxy`` is off, and published ports do not answer. If this option were on without the program,
    Docker 28 would not even start.
    """
    if proxy is None:
        return ["--userland-proxy=false"]
    return ["--userland-proxy=true", f"--userland-proxy-path={proxy}", f"--ip={_LOOPBACK}"]


def configuration(host: Path = _HOST_CONFIGURATION, cdi_folders: Iterable[Path] = cdi.FOLDERS) -> str:
    """Return the daemon's configuration file: settings copied from the host's engine, GPU support, and a limited build
    cache."""
    try:
        given = json.loads(host.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        given = {}
    config: dict[str, Any] = {key: given[key] for key in _TAKEN_OVER if isinstance(given, dict) and key in given}
    runtime = procs.find("nvidia-container-runtime")
    if runtime is not None:
        config.setdefault("runtimes", {}).setdefault("nvidia", {"path": runtime, "runtimeArgs": []})
    if cdi.gpu_files(cdi_folders):
        config["features"] = {"cdi": True}  # Docker 26.1 uses CDI only with this; releases without CDI ignore it
    config["builder"] = {"gc": {"enabled": True, "defaultKeepStorage": _CACHE_LIMIT}}
    config["shutdown-timeout"] = 5
    return json.dumps(config, indent=2, sort_keys=True) + "\n"
