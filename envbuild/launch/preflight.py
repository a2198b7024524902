"""Find what each host of a launch lacks, from the output of images/launchers/preflight.sh on that host. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from envbuild.host.doctor import HostFinding
from envbuild.launch.hosts import Host
from envbuild.launch.launchers import Kind
from envbuild.launch.rendering import LaunchOrder
from envbuild.model.progress import counted_each

SCRIPT = "preflight.sh"
_LITTLE_SHM_KIB = 1024 * 1024
_LITTLE_DISK_KIB = 15 * 1024 * 1024  # the size of one GPU image, unpacked
_CLOCK_S = 60
_LAST = "end"

Fits = Callable[[str, str], Sequence[str]]
"""A function of a driver's version and a GPU's name. It returns the reasons why they cannot run the image, or none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Looked:
    """What the script found on one host. ``lines`` is its output. ``failure`` is the reason why the script could not run.

    ``at`` is the time when the script ran, according to this machine's clock.
    """

    host: Host
    lines: tuple[str, ...]
    failure: str = ""
    at: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class HostReport:
    """The findings about one host. A finding with the status ``missing`` prevents the launch."""

    host: Host
    findings: tuple[HostFinding, ...]

    @property
    def is_ready(self) -> bool:
        """Whether the host lacks nothing that the launch needs."""
        return all(each.status != "missing" for each in self.findings)


def questions(kind: Kind, order: LaunchOrder, host: Host) -> list[str]:
    """Return the arguments of the script for ``host``."""
    is_first = host == order.hosts[0]
    asked = {
        "image": _plain(order.image) if kind.pulls else "",
        "runtime": _runtime(kind, order),
        "programs": " ".join(kind.on_hosts),
        "gpus": "yes" if order.gpus else "",
        "first": "yes" if is_first else "",
        "master": order.hosts[0].name,
        "port": str(order.port),
        "interface": order.interface,
        "rdma": "yes" if order.rdma else "",
        "folder": order.report if is_first else "",
    }
    return [f"{name}={value}" for name, value in asked.items() if value]


def judge(order: LaunchOrder, looked: Sequence[Looked], fits: Fits) -> list[HostReport]:
    """Return a report for each host, in the order of ``looked``."""
    facts = [_facts(each.lines) for each in looked]
    reports = []
    for each, own in zip(looked, facts, strict=True):
        found = list(_alone(order, each, own, fits))
        reports.append(HostReport(host=each.host, findings=tuple([*found, *_beside_others(each, own, facts)])))
    return reports


def _plain(image: str) -> str:
    return image.removeprefix("file://")


def _runtime(kind: Kind, order: LaunchOrder) -> str:
    if not kind.pulls:
        return ""
    if "docker" in kind.on_hosts:
        return "docker"
    return "file" if order.image.endswith(".sif") else ""


def _facts(lines: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in lines:
        key, _, value = line.partition(" ")
        found.setdefault(key, []).append(value.strip())
    return found


def _alone(order: LaunchOrder, looked: Looked, facts: Mapping[str, list[str]], fits: Fits) -> Iterator[HostFinding]:
    if looked.failure or _LAST not in facts:
        why = looked.failure or "the check ended early: " + " ".join(looked.lines[-1:] or ["it wrote nothing"])
        hint = f"Make `ssh {looked.host.name} true` work without a password, or set ENVBUILD_RSH to another remote shell."
        yield _missing("reach", "access", why, hint)
        return
    yield from _programs(facts)
    yield from _image(order, facts)
    yield from _gpus(order, looked.host, facts, fits)
    yield from _network(order, facts)
    yield from _rest(order, looked, facts)


def _programs(facts: Mapping[str, list[str]]) -> Iterator[HostFinding]:
    for name in facts.get("no-program", ()):
        hint = f"Install {name}, or add its folder to the PATH that non-login ssh shells get."
        yield _missing("program", name, "not on this host", hint)
    for said in facts.get("no-engine", ()):
        yield _missing("engine", "Docker", said, "Start the engine on that host, and add the user to the group `docker`.")
    for version in facts.get("engine", ()):
        yield HostFinding(id="engine", status="ok", title="Docker", message=version)


def _image(order: LaunchOrder, facts: Mapping[str, list[str]]) -> Iterator[HostFinding]:
    if "image" in facts:
        yield HostFinding(id="image", status="ok", title="image", message="on this host")
    elif "image-pullable" in facts:
        yield HostFinding(id="image", status="ok", title="image", message="not on this host yet; the registry has it")
        free = int(facts.get("engine-free-kib", ["0"])[0])
        if 0 < free < _LITTLE_DISK_KIB:
            message = f"{free / 1024**2:.1f} GiB free for images"
            hint = "Free some with `docker system prune`, or move the engine's data root."
            yield HostFinding(id="engine-disk", status="warn", title="disk", message=message, hint=hint)
    for said in facts.get("no-image", ()):
        hint = f"Pull it on that host: docker pull {order.image}. A private registry needs `docker login` first."
        yield _missing("image", "image", f"not on this host, and it cannot be pulled: {said}", hint)


def _gpus(order: LaunchOrder, host: Host, facts: Mapping[str, list[str]], fits: Fits) -> Iterator[HostFinding]:
    if not order.gpus:
        return
    for said in facts.get("no-gpu", ()):
        yield _missing("gpu", "GPUs", f"no GPU is visible: {said}", "Install the NVIDIA driver, or leave this host out.")
    found = [tuple(map(str.strip, line.split(",", 1))) for line in facts.get("gpu", ()) if "," in line]
    if not found:
        return
    names = [name for _, name in found]
    driver = found[0][0]
    message = f"driver {driver}, {counted_each(names)}"
    yield HostFinding(id="gpu", status="ok", title="GPUs", message=message)
    if len(found) < host.slots:
        hint = f"Ask for {host.name}:{len(found)}, or leave this host out."
        yield _missing("gpu-count", "GPUs", f"{len(found)} of the {host.slots} that the launch requires", hint)
    reasons = list(dict.fromkeys(reason for name in dict.fromkeys(names) for reason in fits(driver, name)))
    for reason in reasons:
        hint = f"`envbuild resolve {order.name} --driver {driver} --gpu '{found[0][1]}'` shows which version of the image fits."
        yield _missing("fits", "image on this GPU", reason, hint)
    if "engine" in facts and "toolkit" not in facts and "nvidia" not in " ".join(facts.get("runtimes", ())):
        hint = "Install nvidia-container-toolkit, run `nvidia-ctk runtime configure --runtime=docker`, restart the engine."
        yield _missing("toolkit", "NVIDIA container toolkit", "none: containers get no GPU", hint)


def _network(order: LaunchOrder, facts: Mapping[str, list[str]]) -> Iterator[HostFinding]:
    first = order.hosts[0].name
    for state in facts.get("interface", ()):
        if state == "down":
            yield _missing("interface", order.interface, "the interface is down", f"ip link set {order.interface} up")
    for names in facts.get("no-interface", ()):
        yield _missing(
            "interface", order.interface, f"no such interface; there are: {names}", "Name one of these with --interface."
        )
    if "no-rdma" in facts:
        hint = "Load the adapter's driver (ib_uverbs), or leave --rdma out."
        yield _missing("rdma", "RDMA", "/dev/infiniband has no adapter", hint)
    if "taken" in facts.get("port", ()):
        yield _missing("port", f"port {order.port}", "another program uses this port", "Choose another with --port.")
    for name in facts.get("no-name", ()):
        hint = "Add it to DNS or /etc/hosts, or give --hosts addresses."
        yield _missing("name", "name", f"this host finds no address for {name}, the host of rank 0", hint)
    for said in facts.get("no-reach", ()):
        hint = f"Open port {order.port} of {first}, and the ports above 1024 between the hosts, or choose another with --port."
        yield _missing("port", "network", f"this host cannot reach port {order.port} of {first}: {said}", hint)


def _rest(order: LaunchOrder, looked: Looked, facts: Mapping[str, list[str]]) -> Iterator[HostFinding]:
    for said in facts.get("no-folder", ()):
        hint = f"Create it on that host, where you can write to it: mkdir -p {order.report}"
        yield _missing("folder", "report folder", f"{order.report}: {said}", hint)
    shm = int(facts.get("shm-kib", ["0"])[0] or 0)
    if 0 < shm < _LITTLE_SHM_KIB:
        message = f"only {shm / 1024:.0f} MiB in /dev/shm; the containers may need more"
        hint = "Mount a larger one: mount -o remount,size=2G /dev/shm"
        yield HostFinding(id="shm", status="warn", title="shared memory", message=message, hint=hint)
    for text in facts.get("clock", ()):
        off = float(text) - looked.at
        if abs(off) > _CLOCK_S:
            message = f"{abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} this machine"
            hint = "Synchronise its clock with a time server."
            yield HostFinding(id="clock", status="warn", title="clock", message=message, hint=hint)


def _beside_others(
    looked: Looked, own: Mapping[str, list[str]], all_facts: Sequence[Mapping[str, list[str]]]
) -> Iterator[HostFinding]:
    """Yield a finding for each value of this host that differs from the value on most hosts."""
    told = {
        "machine": ("processor", "the image runs on one processor architecture only", "missing"),
        "mpirun": ("Open MPI", "mpirun needs the same release on all hosts", "warn"),
    }
    for key, (title, why, status) in told.items():
        usual = Counter(value for facts in all_facts for value in facts.get(key, ())).most_common(1)
        for value in own.get(key, ()):
            if usual and value != usual[0][0]:
                message = f"{value}, but {usual[0][0]} on the other hosts; {why}"
                hint = f"Leave {looked.host.name} out, or give {looked.host.name} the same {title} as the other hosts."
                yield HostFinding(
                    id=key, status="missing" if status == "missing" else "warn", title=title, message=message, hint=hint
                )


def _missing(id_: str, title: str, message: str, hint: str) -> HostFinding:
    return HostFinding(id=id_, status="missing", title=title, message=message, hint=hint)
