"""Readers of the tables about GPUs: architectures, boards, and vendors whose GPUs CUDA does not run on."""

from __future__ import annotations

import re

from envbuild.matrix.gpu_rows import Architecture, Gpu, GpuVendor
from envbuild.matrix.platform import Provenance
from envbuild.matrix.reading.context import NAME, Context, date, minor, minors
from envbuild.matrix.versions import BRANCH
from envbuild.yaml_reader import Table

HOSTS = ("aarch64", "armv7")  # processors that images are not built for
GPU_CLASSES = ("datacenter", "workstation", "consumer", "soc")


def architecture(context: Context, table: Table, defaults: Provenance) -> Architecture:
    """A row of ``architectures``."""
    return Architecture(
        name=table.text("name"),
        capabilities=minors(table, "capabilities", required=True),
        first_cuda=minor(table, "first_cuda"),
        last_cuda=minor(table, "last_cuda", ""),
        last_driver_branch=table.text("last_driver_branch", "", pattern=BRANCH),
        ptx_from=minor(table, "ptx_from", ""),
        origin=context.origin(table, defaults),
    )


def gpu(context: Context, table: Table, defaults: Provenance) -> Gpu:
    """A row of ``gpus``."""
    return Gpu(
        name=table.text("name"),
        aliases=table.texts("aliases", pattern=NAME),
        architecture=table.text("architecture"),
        capability=minor(table, "capability"),
        kind=table.choice("class", GPU_CLASSES, ""),
        host=table.choice("host", HOSTS, ""),
        memory_gb=table.number("memory_gb", most=10_000),
        memory_bandwidth_gb_s=table.number("memory_bandwidth_gb_s", most=1_000_000),
        fp32_gflops=table.number("fp32_gflops", most=1_000_000_000),
        fp64_gflops=table.number("fp64_gflops", most=1_000_000_000),
        fp16_gflops=table.number("fp16_gflops", most=1_000_000_000),
        tensor_gflops=table.number("tensor_gflops", most=1_000_000_000),
        power_w=table.number("power_w", most=100_000),
        gpus_per_board=table.integer("gpus_per_board", 1, least=1, most=64),
        nvlink=table.boolean("nvlink"),
        released=date(table, "released", ""),
        origin=context.origin(table, defaults),
    )


def gpu_vendor(context: Context, table: Table, defaults: Provenance) -> GpuVendor:
    """A row of ``gpu_vendors``."""
    names = table.texts("names", required=True, pattern=".+")
    for name in names:
        try:
            re.compile(name)
        except re.error as error:
            table.problem(f"{name!r} is not a regular expression: {error}", "names")
    return GpuVendor(
        vendor=table.text("vendor"), needs=table.text("needs"), names=names, origin=context.origin(table, defaults)
    )
