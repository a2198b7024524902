"""``run``: finds the image of an environment, in a registry or on this machine, and makes the command that starts the image."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from envbuild import files, procs
from envbuild.errors import EngineError, InvalidInputError, SmokeFailedError, SmokeInconclusiveError, UsageError
from envbuild.pipeline import container_gpus, image_labels, own_images, plan
from envbuild.pipeline.batch import Job
from envbuild.pipeline.plan import Buildable
from envbuild.pipeline.tools import Tools
from envbuild.run_commands import commands
from envbuild.run_commands.model import SHM_SIZE, ContainerRun, Port, Program

if TYPE_CHECKING:
    from envbuild.attest.keys import PublicKey
    from envbuild.model.environment import Environment

Origin = Literal["registry", "engine", "built"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """The options of the user. ``repository`` is ``HOST/REPOSITORY`` or empty. ``folder`` is None if no folder is mounted.

    ``key_file`` is the file of ``key``. ``gpus`` is ``auto``, ``none``, ``all``, or a list of indexes and UUIDs. ``user`` is
    ``auto``, ``image``, or ``UID:GID``.
    """

    command: tuple[str, ...] = ()
    program: Program = "docker"
    repository: str = ""
    key: PublicKey | None = None
    key_file: Path | None = None
    gpus: str = "auto"
    cdi: bool = False
    user: str = "auto"
    folder: Path | None = None
    shm_size: str = SHM_SIZE
    ports: tuple[Port, ...] = ()
    variables: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    is_interactive: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """An image. ``reference`` is its name for the chosen program.

    ``steps`` are commands that must run before this program can start the image. ``origin`` says where the image comes from.
    An image from a registry has a ``digest``. ``missing`` is true if no image was built or published yet.
    """

    reference: str
    origin: Origin
    digest: str = ""
    steps: tuple[tuple[str, ...], ...] = ()
    missing: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """A container that is ready to start with the command ``argv``. The command needs the environment variables ``variables``.

    The steps of ``found`` must run before this command.
    """

    name: str
    found: Found
    argv: tuple[str, ...]
    variables: Mapping[str, str]
    notes: tuple[str, ...]


def candidate(tools: Tools, request: str, environment: Environment) -> Buildable:
    """Return the environment with the tags of its image.

    Raises :class:`InvalidInputError` (``no-lock``) if the environment has no lock, and :class:`UsageError` if its image cannot
    be built for another reason.
    """
    found, skipped = plan.candidates(tools, [Job(name=environment.name, request=request)])
    if not found:
        error = InvalidInputError if skipped[0].code == "no-lock" else UsageError
        raise error(f"{environment.name} cannot be run: {skipped[0].message}.", code=skipped[0].code)
    return found[0]


def published(tools: Tools, each: Buildable, options: RunOptions) -> Found | None:
    """Return the image in the registry, by its digest. Return None if no registry was named, or if the registry lacks it.

    The image must have the signature that the policy or the key in the options requires, and labels that name this environment
    and lock. Raises :class:`PublishError`, and :class:`PolicyError` if the policy does not allow the registry or the image.
    """
    if not options.repository:
        return None
    from envbuild.pipeline import trusted_sources

    asked = (options.key,) if options.key is not None else ()
    keys = trusted_sources.trusted(tools, options.repository, asked)
    image = image_labels.published(options.repository, own_images.fixed_tag(each.tags))
    if image is None:
        return None
    digest, labels = image
    reference = f"{options.repository}@{digest}"
    trusted_sources.require_signed(tools, options.repository, digest, keys)
    image_labels.require(labels, each.locked, reference)
    scheme = "docker://" if options.program == "apptainer" else ""
    return Found(reference=f"{scheme}{reference}", origin="registry", digest=digest)


def local(tools: Tools, each: Buildable, options: RunOptions) -> Found:
    """Return the image that was built on this machine, or that a build would make.

    Podman gets the image as an archive file, and Apptainer gets it as an OCI folder.
    """
    reference = each.tags[2]
    missing = not _is_built(tools, each, options)
    if options.program == "docker":
        return Found(reference=reference, origin="engine", missing=missing)
    save = ("envbuild", *tools.workspace.options, "save", tools.cli_name(each.name), "--to")
    folder = tools.workspace.home / "saved"
    if options.program == "podman":
        file = folder / f"{own_images.fixed_tag(each.tags)}.tar"
        load = ("podman", "load", "--quiet", "--input", str(file))
        steps = ((*save, f"docker-archive:{file}"), load)
        return Found(reference=f"localhost/{reference}", origin="engine", steps=steps, missing=missing)
    layout = folder / own_images.fixed_tag(each.tags)
    return Found(reference=f"oci:{layout}", origin="engine", steps=((*save, f"oci:{layout}"),), missing=missing)


def planned(tools: Tools, each: Buildable, options: RunOptions) -> Found:
    """Return the image that ``run`` uses. Nothing is pulled or built.

    For Docker, the image on this machine is used first. If there is none, envbuild pulls the published image and verifies it.
    For Podman and Apptainer, the published image is used first, and these programs pull it themselves.

    Raises :class:`SmokeFailedError` for an image of this machine that failed its smoke test.
    """
    if options.program != "docker" and (found := published(tools, each, options)) is not None:
        return found
    if _is_built(tools, each, options):
        _require_not_failed(tools, each)
        return local(tools, each, options)
    if options.program == "docker" and (found := published(tools, each, options)) is not None:
        pull = ("envbuild", *tools.workspace.options, "pull", tools.cli_name(each.name), "--from", options.repository)
        key = ("--key", str(options.key_file)) if options.key_file is not None else ()
        return replace(found, reference=each.tags[2], steps=((*pull, *key),))
    return local(tools, each, options)


def obtain(tools: Tools, each: Buildable, options: RunOptions, make: Callable[[], object]) -> Found:
    """Provide the image that :func:`planned` names: pull it, or call ``make`` if there is none.

    Raises :class:`SmokeFailedError` for an image of this machine that failed its smoke test.
    """
    if options.program != "docker" and shutil.which(options.program) is None:
        raise procs.missing_program(options.program)
    found = planned(tools, each, options)
    if found.missing:
        make()
        return replace(local(tools, each, options), origin="built", missing=False)
    if found.origin == "registry" and options.program == "docker":
        from envbuild.pipeline import pulling

        pulled = pulling.pull(tools, each.name, options.repository, "", None, options.key)
        return replace(found, digest=pulled.pulled.digest, steps=())
    return found


def _require_not_failed(tools: Tools, each: Buildable) -> None:
    """Raise :class:`SmokeFailedError` if the image failed the smoke test of an earlier ``run``.

    A failed test leaves the image in the engine, where the next ``run`` would find it.
    """
    from envbuild.pipeline import image_checks
    from envbuild.smoketest import SmokeOptions

    image = tools.engine.image(each.tags[2])
    if image is None:
        return
    smoked = image_checks.stored_verdict(tools, each.name, each.locked.digest, image.id, SmokeOptions())
    if smoked is not None and smoked.exit_code not in (0, SmokeInconclusiveError.exit_code):
        raise SmokeFailedError(smoked.sentence, hint=smoked.hint)


def start(tools: Tools, each: Buildable, options: RunOptions, found: Found) -> Start:
    """Return the command that starts the image. Raises :class:`UsageError` for options that cannot be used here."""
    notes: list[str] = []
    environment = each.lock.environment
    gpus, is_rootless = container_gpus.chosen(environment, options.gpus, notes), _is_rootless(tools, options)
    run = ContainerRun(
        image=found.reference,
        command=options.command,
        folder=_folder(tools, options),
        user=_user(options, is_rootless=is_rootless),
        gpus=gpus,
        gpu_option=container_gpus.option(tools, cdi=options.cdi) if gpus else "gpus",
        shm_size=options.shm_size,
        ports=_ports(environment, options, notes),
        variables=options.variables,
        mounts=_mounts(tools, options),
        is_interactive=options.is_interactive,
        is_rootless=is_rootless,
        tls=found.origin != "registry" or _has_tls(options.repository),
    )
    engine = tools.engine_or_none() if options.program == "docker" else None
    path = engine.cli.path if engine is not None and engine.cli.path else ""
    return Start(
        name=each.name,
        found=found,
        argv=tuple(commands.argv(options.program, run, path)),
        # Set DOCKER_HOST even for the default socket, because the current context of the docker program may name another
        # engine.
        variables={"DOCKER_HOST": engine.endpoint}
        if engine is not None and engine.origin != "DOCKER_HOST"
        else commands.apptainer_variables(run)
        if options.program == "apptainer"
        else {},
        notes=tuple(notes),
    )


def _is_built(tools: Tools, each: Buildable, options: RunOptions) -> bool:
    """Whether the engine has the image. For Podman and Apptainer, the image must also be the one that was built last.

    These programs get the files that ``save`` writes, and ``save`` writes the image that was built last.
    """
    from envbuild import build

    engine = tools.engine_or_none()
    image = engine.image(each.tags[2]) if engine is not None else None
    if image is None or options.program == "docker":
        return image is not None
    record = build.read_record(tools.workspace, each.name)
    return record is not None and record.image == image.id


def _folder(tools: Tools, options: RunOptions) -> Path | None:
    """Return the folder to mount. An engine on another machine is refused, because it would mount a folder of that machine."""
    folder = options.folder
    if folder is None:
        return None
    _require_mountable(options, str(folder), ":")
    if endpoint := _elsewhere(tools, options):
        raise UsageError(
            f"The engine at {endpoint} is on another machine, which does not have the folder {folder}.",
            code="remote-engine",
            hint="Use --no-mount, or --mount with a folder of that machine.",
        )
    return folder


def _require_mountable(options: RunOptions, mount: str, *signs: str) -> None:
    """Raise :class:`UsageError` for a mount that contains one of the characters ``signs``.

    Apptainer splits the values of its options at commas and quotes. So these characters are refused for Apptainer, too.
    """
    for sign in (*signs, *((",", '"') if options.program == "apptainer" else ())):
        if sign in mount:
            raise UsageError(f"{mount} cannot be mounted: it contains the sign {sign}", hint="Use a folder with another name.")


def _mounts(tools: Tools, options: RunOptions) -> tuple[str, ...]:
    """Return the mounts of ``--mount``. A missing folder is refused, because Docker would create it, owned by root."""
    for mount in options.mounts:
        folder = mount.partition(":")[0]
        _require_mountable(options, mount)
        if not Path(folder).exists() and not _elsewhere(tools, options):
            raise UsageError(f"{folder} cannot be mounted: it does not exist.", hint="Make the folder, or correct --mount.")
    return options.mounts


def _elsewhere(tools: Tools, options: RunOptions) -> str:
    """Return the address of the engine if it is on another machine; empty if the container runs on this machine."""
    engine = tools.engine_or_none() if options.program == "docker" else None
    return engine.endpoint if engine is not None and not engine.endpoint.startswith("unix://") else ""


def _user(options: RunOptions, *, is_rootless: bool) -> str:
    """Return the user of the container, who owns new files in the mounted folder; empty for the user that the image names.

    By default, this is the user who runs the command. If root runs the command, it is the owner of the folder.
    """
    if options.user == "image" or options.program == "apptainer":
        return ""
    if options.user != "auto":
        return options.user
    if options.folder is None:
        return ""
    if is_rootless and options.program == "docker":
        return "0:0"  # rootless Docker maps root in the container to the user who runs Docker
    if os.geteuid() == 0:
        owner = options.folder.stat()
        return f"{owner.st_uid}:{owner.st_gid}"
    return f"{os.getuid()}:{os.getgid()}"


def _is_rootless(tools: Tools, options: RunOptions) -> bool:
    if options.program == "podman":
        return os.geteuid() != 0
    engine = tools.engine_or_none() if options.program == "docker" else None
    return engine is not None and engine.info.is_rootless


def _ports(environment: Environment, options: RunOptions, notes: list[str]) -> tuple[Port, ...]:
    """Map each port of the image and its services to the same port of this machine or, if that is in use, to a free port."""
    if options.program == "apptainer":
        if options.ports:
            notes.append(
                "Apptainer uses this machine's network: --port has no effect, and each service has the same port "
                "here as in the container."
            )
        return ()
    asked = {port.container for port in options.ports}
    custom = environment.custom
    own = dict.fromkeys((*custom.ports, *(port for service in custom.services for port in service.ports))) if custom else {}
    found = list(options.ports)
    taken = {port.host for port in options.ports}
    for port in own:
        if port not in asked:
            host = free_port(0 if port in taken else port)
            if host != port:
                notes.append(f"Port {port} of this machine is in use, so the container's port {port} is at 127.0.0.1:{host}.")
            found.append(Port(host=host, container=port))
    return tuple(found)


def free_port(port: int) -> int:
    """Return ``port`` if no process listens on it, else a free port."""
    for number in (port, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", number))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    return port


def _has_tls(repository: str) -> bool:
    from envbuild.compose.outputs.registry_trust import is_local

    return not is_local(repository.partition("/")[0])


def run_steps(tools: Tools, each: Buildable, found: Found, tell: Callable[[str], None]) -> None:
    """Run the commands that must run before the container starts, unless Podman has the image already.

    Raises the errors of ``save``. If another program fails, raises :class:`EngineError` (``step-failed``) with its output.
    """
    from envbuild.pipeline import saving

    saved: Path | None = None
    if not found.steps or (found.steps[-1][0] == "podman" and _podman_has(tools, each, found.reference)):
        return
    with files.locked(tools.workspace.running(each.name, "run"), lambda message: tools.say("run", message)):
        for step in found.steps:
            if step[0] == "envbuild":
                target = saving.parse_target(step[-1])
                saving.save(tools, each.name, target, None)
                saved = target.path
                continue
            done = procs.run(step, on_line=tell)
            if done.code:
                raise EngineError(
                    f"`{' '.join(step)}` ended with exit code {done.code}.",
                    code="step-failed",
                    hint=f"To try the commands one by one, print them with `envbuild run --dry-run --with {step[0]}`.",
                    details=done.output.splitlines()[-20:],
                )
            if saved is not None:
                saved.unlink(missing_ok=True)  # the program has loaded its own copy


def _podman_has(tools: Tools, each: Buildable, reference: str) -> bool:
    """Whether Podman's image ``reference`` is the image that was built last. Both then have the same id."""
    from envbuild import build

    record = build.read_record(tools.workspace, each.name)
    if record is None:
        return False
    shown = procs.run(("podman", "image", "inspect", "--format", "{{.Id}}", reference), split=True)
    return shown.code == 0 and shown.output.strip() == record.image.removeprefix("sha256:")
