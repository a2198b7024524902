"""Several simulated machines on one: each is a network namespace with its own name, address, /tmp, and cable to a switch.

Needs root and iproute2. Nothing outside the namespaces changes; they are removed at the end.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path
from types import TracebackType

SUBNET = "10.214.77"
_ENTER = 'hostname "$0" && mount --bind "$HOSTS" /etc/hosts && mount -t tmpfs none "$SCRATCH" && exec "$@"'


def why_not() -> str:
    """The reason why this machine cannot simulate several machines; '' if it can."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    for program in ("ip", "unshare"):
        if shutil.which(program) is None:
            return f"{program} is missing"
    probe = ["unshare", "--net", "--mount", "--uts", "true"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"no namespaces here: {done.stderr.strip()}"


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


class Machines:
    """Machines of these names, connected by one switch. The folder `scratch` has separate contents on each machine."""

    def __init__(self, scratch: Path, *names: str) -> None:
        self.scratch, self.names = scratch, names
        self._switch = f"eb{os.getpid()}sw"
        self._hosts = scratch.with_name("hosts")

    def __enter__(self) -> Machines:
        known = "".join(f"{self.address(name)} {name}\n" for name in self.names)
        self._hosts.write_text(f"127.0.0.1 localhost\n{known}")
        try:
            _ip("netns", "add", self._switch)
            _ip("-n", self._switch, "link", "add", "br0", "type", "bridge")
            _ip("-n", self._switch, "link", "set", "br0", "up")
            for name in self.names:
                self._plug_in(name)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        for space in (self._switch, *map(self.space, self.names)):
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)

    def _plug_in(self, name: str) -> None:
        space, port = self.space(name), f"port{self.names.index(name)}"
        _ip("netns", "add", space)
        _ip("-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", self._switch)
        _ip("-n", self._switch, "link", "set", port, "master", "br0", "up")
        _ip("-n", space, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        _ip("-n", space, "link", "set", "lo", "up")

    def space(self, name: str) -> str:
        """The network namespace of a machine."""
        return f"eb{os.getpid()}{name}"

    def address(self, name: str) -> str:
        """The IP address of a machine."""
        return f"{SUBNET}.{self.names.index(name) + 1}"

    def enter(self, name: str, clock: int = 0) -> tuple[str, ...]:
        """The words to put before a command so that it runs on the machine; `clock` seconds are added to its monotonic time."""
        into = ("ip", "netns", "exec", self.space(name), "unshare", "--mount", "--uts")
        into += ("--time", "--monotonic", str(clock), "--fork", "--kill-child") if clock else ()
        folders = (f"SCRATCH={self.scratch}", f"TMPDIR={self.scratch}", f"HOSTS={self._hosts}")
        return (*into, "env", *folders, "sh", "-c", _ENTER, name)

    def remote_shell(self, folder: Path) -> Path:
        """Write a program that runs a command on another machine, as `ssh ADDRESS COMMAND` does."""
        script = folder / "remote-shell"
        cases = "".join(f'{self.address(name)}) set -- {shlex.join(self.enter(name))} sh -c "$*" ;;\n' for name in self.names)
        script.write_text(f'#!/bin/sh\nhost=$1\nshift\ncase "$host" in\n{cases}esac\nexec "$@"\n')
        script.chmod(0o755)
        return script

    def cut(self, name: str) -> None:
        """Pull the network cable of a machine."""
        _ip("-n", self._switch, "link", "set", f"port{self.names.index(name)}", "down")
