"""What an adapter may know about where it runs."""
from __future__ import absolute_import, division, print_function


class Context(object):
    """`rank` of `world` processes; `devices` are the numbers of this process's devices, `kind` is 'cpu' or 'cuda'.

    `replicas` counts the devices of all processes. `threads` is how many CPU threads one device may use. `options` are
    the matrix row's own words for this framework. `group` is the TCP process group.
    """

    def __init__(self, rank, world, kind, devices, replicas, threads, options, seed, group):
        self.rank, self.world = rank, world
        self.kind, self.devices, self.replicas = kind, devices, replicas
        self.threads, self.options, self.seed = threads, options, seed
        self.group = group

    @staticmethod
    def shard(array, place, parts):
        """The contiguous part number `place` of an array cut into `parts` equal ones."""
        size = len(array) // parts
        return array[place * size:(place + 1) * size]
