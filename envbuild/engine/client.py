"""A client of a container engine, which the rest of the project uses."""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from envbuild import cdi
from envbuild import network as network_use
from envbuild.engine import buildkit, containers, docker_program, download_cache, image_tar, registry, unix_socket
from envbuild.engine.model import BuiltImage, EngineInfo, ImageInfo, ImageStore, LayerFile, Mount, Origin, Product, RunResult
from envbuild.errors import EngineError
from envbuild.model.progress import OnProgress, ignore_progress

if TYPE_CHECKING:
    from docker import DockerClient

_PATIENCE_S = 86400  # seconds between two answers of the engine; training in a container may print nothing for hours


class Engine:
    """A client of one container engine. To make one, call :func:`envbuild.engine.choice.connect`."""

    def __init__(
        self, *, open_client: Callable[[], DockerClient], endpoint: str, origin: Origin, docker_programs: Sequence[str]
    ) -> None:
        """``docker_programs`` are the paths of docker programs to try for builds on this engine, in order of preference."""
        self._open_client = open_client
        self.endpoint = endpoint
        self.origin = origin
        self._docker_programs = docker_programs

    @functools.cached_property
    def client(self) -> DockerClient:
        """The client of this engine from the Docker SDK. It is opened on first use."""
        found = self._open_client()
        found.api.timeout = _PATIENCE_S
        return found

    @functools.cached_property
    def cli(self) -> docker_program.DockerCli:
        """The docker program for builds. It is searched for on first use, because the search takes a tenth of a second."""
        return docker_program.choose(self.endpoint, self._docker_programs)

    @functools.cached_property
    def product(self) -> Product:
        """The product that the engine belongs to: Docker or Podman."""
        version: dict[str, Any] = self.client.version()
        named = [str(part.get("Name", "")) for part in version.get("Components") or ()]
        return "Podman" if any(name.startswith("Podman") for name in named) else "Docker"

    @functools.cached_property
    def image_store(self) -> ImageStore:
        """Who keeps the engine's images: Docker itself, containerd or Podman."""
        if self.product == "Podman":
            return "podman"
        facts: dict[str, Any] = self.client.info()
        status = facts.get("DriverStatus") or ()
        return "containerd" if any("containerd.snapshotter" in str(value) for _, value in status) else "docker"

    def require_builder(self) -> None:
        """Raise :class:`EngineError` (``no-buildkit``) if no program on this machine can build on this engine."""
        if self.cli.builder == "classic":
            raise buildkit.no_buildkit(self.endpoint, self.product)

    def make_room(self, on_progress: OnProgress) -> None:
        """If the engine's disk is nearly full, remove files that earlier builds downloaded: see
        :mod:`envbuild.engine.download_cache`."""
        if download_cache.make_room(self.client, self._free(self.info.data_root), on_progress):
            del self.info  # its free bytes are no longer right

    @functools.cached_property
    def info(self) -> EngineInfo:
        """Return which engine this is, and what it can do."""
        facts: dict[str, Any] = self.client.info()
        version: dict[str, Any] = self.client.version()
        return EngineInfo(
            endpoint=self.endpoint,
            origin=self.origin,
            product=self.product,
            version=version.get("Version", ""),
            api_version=version.get("ApiVersion", ""),
            builder=self.cli.builder,
            builder_version=self.cli.version,
            cli=self.cli.path,
            storage_driver=facts.get("Driver", ""),
            data_root=facts.get("DockerRootDir", ""),
            free_bytes=self._free(facts.get("DockerRootDir", "")),
            runtimes=tuple(sorted(facts.get("Runtimes") or {})),
            cgroup_driver=facts.get("CgroupDriver", ""),
            cgroup_version=str(facts.get("CgroupVersion", "1")),
            operating_system=facts.get("OperatingSystem", ""),
            architecture=facts.get("Architecture", ""),
            kernel=facts.get("KernelVersion", ""),
            cpus=int(facts.get("NCPU", 0)),
            memory_bytes=int(facts.get("MemTotal", 0)),
            has_cdi_gpus=has_cdi_gpus(self.endpoint, facts),
            is_rootless=any("rootless" in str(each) for each in facts.get("SecurityOptions") or ()),
        )

    def build(
        self,
        context: Path,
        *,
        tag: str | Sequence[str],
        secrets: Mapping[str, bytes] | None = None,
        build_args: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        on_progress: OnProgress = ignore_progress,
        no_cache: bool = False,
        dockerfile: str = "Dockerfile",
        target: str = "",
    ) -> BuiltImage:
        """Build the folder ``context``, and give the image the name or all names in ``tag``. ``target`` is a stage of
        ``dockerfile``; empty means the last stage.

        ``secrets`` are never written to a disk, to the command line or into the image. Ctrl-C cancels the build in the engine.
        Raises :class:`BuildError` with the last lines of the failing step, and :class:`EngineError` (``no-buildkit``) if no
        docker program on this machine can build with BuildKit.
        """
        self.require_builder()
        self.make_room(on_progress)
        return buildkit.build(
            buildkit.BuildSpec(
                context=context,
                tags=(tag,) if isinstance(tag, str) else tuple(tag),
                secrets=dict(secrets or {}),
                build_args=dict(build_args or {}),
                labels=dict(labels or {}),
                no_cache=no_cache,
                dockerfile=dockerfile,
                target=target,
                has_network=not network_use.is_forbidden(),
            ),
            cli=self.cli,
            endpoint=self.endpoint,
            find_image=self.image,
            on_progress=on_progress,
        )

    def image(self, reference: str) -> ImageInfo | None:
        """The image with the tag, id or digest ``reference``; None if the engine does not have this image."""
        raw = self._inspected(reference)
        if raw is None:
            return None
        config: dict[str, Any] = raw.get("Config") or {}
        return ImageInfo(
            id=raw["Id"],
            tags=tuple(raw.get("RepoTags") or ()),
            labels=dict(config.get("Labels") or {}),
            env=tuple(config.get("Env") or ()),
            entrypoint=tuple(config.get("Entrypoint") or ()),
            cmd=tuple(config.get("Cmd") or ()),
            user=config.get("User") or "",
            layers=tuple((raw.get("RootFS") or {}).get("Layers") or ()),
            size=int(raw.get("Size") or 0),
            created=raw.get("Created") or "",
            architecture=raw.get("Architecture") or "",
        )

    def image_ids(self) -> dict[str, str]:
        """Return a mapping from the names of the images in the engine to their ids. The names of an image are its tags and its
        id. One request returns them all."""
        if self.endpoint.startswith(unix_socket.SCHEME):
            raw = json.loads(self._asked("/images/json")[1])
        else:
            api: Any = self.client.api
            raw = api.images()
        held: dict[str, str] = {}
        for each in raw:
            held |= dict.fromkeys((each["Id"], *(each.get("RepoTags") or ())), each["Id"])
        return held

    def settings(self, image: str) -> dict[str, Any]:
        """The settings of ``image`` for containers (user, variables, command, labels), as Docker's API returns them."""
        return dict((self._inspected(image) or {}).get("Config") or {})

    def _inspected(self, reference: str) -> dict[str, Any] | None:
        if not self.endpoint.startswith(unix_socket.SCHEME):
            from docker.errors import ImageNotFound

            api: Any = self.client.api
            try:
                told: dict[str, Any] = api.inspect_image(reference)
            except ImageNotFound:
                return None
            return told
        status, body = self._asked(f"/images/{quote(reference, safe='/:@')}/json")
        return dict(json.loads(body)) if status == 200 else None

    def _asked(self, target: str) -> tuple[int, bytes]:
        """Send a GET request through the engine's socket, without the SDK. Return the status (200 or 404) and the body."""
        try:
            status, body = unix_socket.get(self.endpoint, target, _PATIENCE_S)
        except OSError as error:
            raise EngineError.gone(str(error)) from error
        if status not in (200, 404):
            raise EngineError.gone(body.decode(errors="replace").strip())
        return status, body

    def run(
        self,
        image: str,
        argv: Sequence[str],
        *,
        mounts: Sequence[Mount] = (),
        env: Mapping[str, str] | None = None,
        gpus: str | Sequence[str] | None = None,
        shm_size: str | None = None,
        ulimits: Mapping[str, int] | None = None,
        network: str | None = None,
        user: str | None = None,
        read_only: bool = False,
        timeout_s: float | None = None,
        stdin: bytes | None = None,
        entrypoint: Sequence[str] | None = None,
        collect: Sequence[str] = (),
        deliver: Mapping[str, Path] | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> RunResult:
        """Run ``argv`` in a new container of ``image``. Return how the container ended, whatever the exit code is.

        ``gpus`` is ``all``, or a list of indexes or UUIDs of GPUs. Before the start, the files in ``deliver`` (path in the
        container → file on this machine) are copied into the container. At the end, the files or folders in ``collect`` are
        copied out. Copying in both directions also works if the engine is on another machine.

        The container is always removed, also after Ctrl-C. Raises :class:`TimedOutError` after ``timeout_s`` seconds, with the
        last lines of output in ``details``.
        """
        containers.remove_if_killed(self.endpoint)
        return containers.run(
            self.client,
            containers.ContainerSpec(
                image=image,
                argv=tuple(argv),
                mounts=tuple(mounts),
                env=dict(env or {}),
                gpus=gpus,
                by_cdi=bool(gpus) and self.info.by_cdi,
                shm_size=shm_size,
                ulimits=dict(ulimits or {}),
                network=network,
                user=user,
                read_only=read_only,
                timeout_s=timeout_s,
                stdin=stdin,
                entrypoint=None if entrypoint is None else tuple(entrypoint),
                collect=tuple(collect),
                deliver=tuple((deliver or {}).items()),
            ),
            on_line,
        )

    @contextlib.contextmanager
    def workshop(self, image: str) -> Iterator[containers.Workshop]:
        """Yield a running container of ``image``, which has no network. Until the block ends, root can run any number of
        commands in the container.

        Raises :class:`EngineError` if the container does not start.
        """
        containers.remove_if_killed(self.endpoint)
        with containers.workshop(self.client, image) as found:
            yield found

    def tag(self, image: str, reference: str) -> None:
        """Give ``image`` the additional name ``reference``. If another image has this name, that image loses it."""
        repository, _, tag = reference.rpartition(":")
        if not self.client.api.tag(image, repository, tag):
            raise EngineError(f"The engine did not accept the name {reference}.", code="refused")

    def import_rootfs(
        self, rootfs: Path, reference: str, *, created: str, comment: str, on_progress: OnProgress = ignore_progress
    ) -> str:
        """Make an image with one layer from a tar file, and return the id that it has in this engine. The same bytes give the
        same id."""
        image_tar.load_rootfs(self.client, rootfs, reference, created=created, comment=comment, on_progress=on_progress)
        made = self.image(reference)
        if made is None:
            raise EngineError(f"The engine loaded {reference}, but does not have it.", code="refused")
        return made.id

    def registry_digest(self, reference: str) -> str:
        """Return the digest that ``reference`` has in its registry now. The engine queries the registry; nothing is pulled."""
        return registry.digest(self.client, reference)

    def pull(self, reference: str, on_progress: OnProgress = ignore_progress) -> str:
        """Pull ``reference`` (a tag or ``name@sha256:…``) and return its digest."""
        return registry.pull(self.client, reference, on_progress)

    def remove_image(self, reference: str) -> None:
        """Remove the name ``reference``. If the image has no other name, remove the image, too. If the name is absent, do
        nothing."""
        from docker.errors import ImageNotFound

        try:
            self.client.api.remove_image(reference, force=True)
        except ImageNotFound:
            return

    def remove_unused(self, image: str) -> bool:
        """Remove ``image``, unless a container or another image needs it. Return whether the image is gone."""
        from docker.errors import APIError, ImageNotFound

        try:
            self.client.api.remove_image(image)
        except ImageNotFound:
            return True
        except APIError:  # the image is in use
            return False
        return True

    def layer_files(self, image: str) -> Iterator[LayerFile]:
        """Yield every entry of every layer of ``image``. The lowest layer comes first if the format of the engine keeps this
        order."""
        return image_tar.layer_files(self.client, image)

    def blobs(self, image: str) -> Iterator[tuple[Path, str]]:
        """Yield the layers of ``image`` as tar files, and its configuration; see :func:`envbuild.engine.image_tar.blobs`."""
        return image_tar.blobs(self.client, image)

    def layer_tars(self, image: str, wanted: Collection[str]) -> Iterator[image_tar.LayerTar]:
        """Yield the layers of ``image`` without temporary files; see :func:`envbuild.engine.image_tar.layer_tars`."""
        return image_tar.layer_tars(self.client, image, wanted)

    def history(self, image: str) -> list[str]:
        """Return the full commands in the image's history, newest first."""
        api: Any = self.client.api
        entries: list[dict[str, Any]] = api.history(image)
        return [str(entry.get("CreatedBy") or "") for entry in entries]

    def _free(self, data_root: str) -> int | None:
        local = self.endpoint.startswith("unix://") and data_root and Path(data_root).is_dir()
        return shutil.disk_usage(data_root).free if local else None


def has_cdi_gpus(endpoint: str, facts: Mapping[str, Any]) -> bool:
    """Whether an engine with these facts can give GPUs by their CDI names. Docker lists the devices that it found since 28.2,
    its CDI folders since 25 (only if CDI is on); folders of another machine cannot be read here."""
    if any(cdi.is_gpu(str(each.get("ID"))) for each in facts.get("DiscoveredDevices") or ()):
        return True
    return endpoint.startswith("unix://") and bool(cdi.gpu_files(map(Path, facts.get("CDISpecDirs") or ())))
