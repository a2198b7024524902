"""Example orders for launchers (plain, and with every option), and the text that a launcher is rendered to for an order."""

import dataclasses

from envbuild import workspace
from envbuild.launch.hosts import read_hosts
from envbuild.launch.launchers import load_launchers
from envbuild.launch.rendering import LaunchOrder, render

HERE = workspace.find()
LAUNCHERS = load_launchers(HERE)
KINDS = [(launcher, kind) for launcher in LAUNCHERS.values() for kind in launcher.kinds]
TEMPLATES = {str(path.relative_to(HERE.launchers)): path.read_text() for path in HERE.launchers.glob("*/*.j2")}
PLAIN = LaunchOrder(name="x-1.0", image="registry/x:1", hosts=read_hosts("a:4,b:4"), gpus=True, port=29617)
FULL = dataclasses.replace(
    PLAIN,
    rdma=True,
    interface="ib0",
    variables=(("NCCL_IB_HCA", "mlx5_0:1"), ("NOTE", "it's $HOME")),
    arguments=("--counts", "1,8", "--option", "a=b c"),
)


def text_of(launcher, kind, order):
    return render(launcher, kind, order, TEMPLATES)


def found(value, key):
    """All values of `key`, at any depth."""
    if isinstance(value, dict):
        return [v for k, v in value.items() if k == key] + [each for v in value.values() for each in found(v, key)]
    return [each for v in value for each in found(v, key)] if isinstance(value, list) else []
