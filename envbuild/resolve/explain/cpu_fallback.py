"""The same request on the CPU: offered wherever a request for a GPU is refused, since it works on any machine."""

from __future__ import annotations

from dataclasses import replace

from envbuild.errors import Alternative
from envbuild.resolve.environment import environment_of
from envbuild.resolve.request.model import Request
from envbuild.resolve.search.search import Search


def on_cpu(search: Search) -> Alternative | None:
    """The environment for CPUs of a request for GPUs that keeps all its other parts; None where there is none."""
    request = search.request
    if request.device != "gpu":
        return None
    without_gpu = replace(
        request,
        device="cpu",
        cuda="",
        cudnn="",
        nccl="",
        driver="",
        gpus=(),
        wanted=tuple(replace(wanted, cuda="") for wanted in request.wanted),
    )
    # A provider of CUDA is no base for CPUs.
    for attempt in (without_gpu, replace(without_gpu, base="", image="")):
        candidate = Search(search.lookup, attempt).first()
        if candidate is not None:
            name = environment_of(search.lookup, attempt, candidate).name
            return Alternative(name=name, changes=f"CPU instead of {_instead_of(request)}")
    return None


def _instead_of(request: Request) -> str:
    cuda = request.cuda or next((wanted.cuda for wanted in request.wanted if wanted.cuda), "")
    return f"CUDA {cuda.lstrip('=')}" if cuda and not (request.driver or request.gpus) else "a GPU"
