"""The command lines that start a container. Pure.

Docker: https://docs.docker.com/reference/cli/docker/container/run/. Podman:
https://docs.podman.io/en/latest/markdown/podman-run.1.html. Apptainer:
https://apptainer.org/docs/user/1.4/cli/apptainer_exec.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from envbuild import cdi
from envbuild.run_commands.model import WORKSPACE, ContainerRun, Program

# Collectives of several GPUs need pinned memory and large stacks. Collectives also need more shared memory than the default
# of 64 MB; ContainerRun.shm_size sets it.
_ULIMITS = ("memlock=-1", "stack=67108864")

_SPLIT = re.compile('[,"\\n]')  # Apptainer reads the value of --env as a line of CSV


def argv(program: Program, run: ContainerRun, path: str = "") -> list[str]:
    """Return the command line of ``program``. If ``path`` is empty, the command has only the name of the program, and the shell
    finds it."""
    parts = _apptainer(run) if program == "apptainer" else _engine(program, run)
    return [path or program, *parts]


def apptainer_variables(run: ContainerRun) -> dict[str, str]:
    """Return variables to set when Apptainer is started. Apptainer passes them on to the container. These variables are needed
    for values that the option --env would split at commas or quotes.

    https://apptainer.org/docs/user/1.4/environment_and_metadata.html#overriding-environment-variables
    """
    given = (variable.partition("=") for variable in run.variables if _SPLIT.search(variable))
    return {f"APPTAINERENV_{name}": value for name, _, value in given}


def _engine(program: Program, run: ContainerRun) -> Iterator[str]:
    yield from ("run", "--rm", "--interactive")
    if run.is_interactive:
        yield "--tty"
    if program == "podman" and not run.tls:
        yield "--tls-verify=false"
    yield from _user(program, run)
    yield f"--shm-size={run.shm_size}"
    if run.gpus:
        yield from _gpus(program, run)
        yield from (f"--ulimit={limit}" for limit in _ULIMITS)
    if program == "podman" and run.folder is not None:
        yield "--security-opt=label=disable"  # else SELinux denies access; relabelling would change the user's files
    if run.folder is not None:
        yield from (f"--volume={run.folder}:{WORKSPACE}", f"--workdir={WORKSPACE}")
    yield from (f"--volume={mount}" for mount in run.mounts)
    yield from (f"--env={variable}" for variable in run.variables)
    yield from (f"--publish=127.0.0.1:{port.host}:{port.container}" for port in run.ports)
    yield from (run.image, *run.command)


def _user(program: Program, run: ContainerRun) -> Iterator[str]:
    """Yield the options that make ``run.user`` the owner of files that the container makes in a mounted folder."""
    if not run.user:
        return
    if run.is_rootless and program == "podman":
        yield "--userns=keep-id"
    yield f"--user={run.user}"


def _gpus(program: Program, run: ContainerRun) -> Iterator[str]:
    if program == "podman" or run.gpu_option == "cdi":
        yield from (f"--device={name}" for name in cdi.gpu_names(run.gpus))
    else:
        # Docker reads the value as a line of CSV, so a list of devices needs quotes inside the value.
        yield "--gpus=all" if run.gpus == ("all",) else f'--gpus="device={",".join(run.gpus)}"'


def _apptainer(run: ContainerRun) -> Iterator[str]:
    """Yield the arguments for Apptainer.

    Apptainer always runs as the user, uses the machine's shared memory and network, and passes signals on. So no options are
    needed for the user, the size of the shared memory, ports and signals.
    """
    yield from ("exec", "--cleanenv", "--no-home")
    if run.gpus:
        yield "--nv"
    if run.gpus and run.gpus != ("all",):
        yield f"--env=CUDA_VISIBLE_DEVICES={','.join(run.gpus)}"
    if not run.tls:
        yield "--no-https"
    if run.folder is not None:
        yield from (f"--bind={run.folder}:{WORKSPACE}", f"--pwd={WORKSPACE}")
    yield from (f"--bind={mount}" for mount in run.mounts)
    yield from (f"--env={variable}" for variable in run.variables if not _SPLIT.search(variable))
    yield from (run.image, *(run.command or ("bash",)))
