"""What an adapter is told about its process and its devices."""
from __future__ import absolute_import, division, print_function

import socket


class Context(object):
    """`rank` of `world` processes; `devices` are the numbers of this process's devices, `kind` is 'cpu' or 'cuda'.

    `replicas` is the number of devices of all processes, `threads` the number of CPU threads that one device may use. `options`
    are the options of the framework's row in the matrix. `group` is the TCP process group, `host` the address at which all
    ranks reach rank 0. `hosts` is the number of machines and `node` the number of this machine. This machine has `local_world`
    of the ranks, and this rank is number `local_rank` of them. `interface` is the network interface to the other machines.
    `folder` is removed when the launch ends, however it ends. `shared` is true if several ranks use the same GPU, which NCCL
    refuses. `plain` is true if the speed of a plain script is measured: then the adapter keeps the framework's own precision and
    choice of algorithms.
    """

    def __init__(self, rank, world, kind, devices, replicas, threads, options, seed, group, host='127.0.0.1', place=None,
                 folder=None, shared=False, plain=False):
        self.rank, self.world = rank, world
        self.kind, self.devices, self.replicas = kind, devices, replicas
        self.threads, self.options, self.seed = threads, options, seed
        self.group, self.host, self.folder, self.shared, self.plain = group, host, folder, shared, plain
        place = place or {'hosts': 1, 'node': 0, 'local_rank': rank, 'local_size': world, 'interface': 'lo'}
        self.hosts, self.node, self.interface = place['hosts'], place['node'], place['interface']
        self.local_rank, self.local_world = place['local_rank'], place['local_size']

    def meeting_place(self):
        """Return (host, port) for a framework's own rendezvous, the same on every rank.

        The port was free on rank 0 just before.
        """
        port = 0
        if self.rank == 0:
            probe = socket.socket()
            probe.bind((self.host, 0))
            port = probe.getsockname()[1]
            probe.close()
        return self.host, self.group.broadcast(port)

    def start(self, weights):
        """Return the start weights for a model, if the framework must send the weights of rank 0 to all ranks.

        Rank 0 gets the right weights. The other ranks get wrong ones, so that training goes wrong if the framework sends nothing.
        """
        return weights if self.rank == 0 else dict((name, weights[name] + 1) for name in weights)

    @staticmethod
    def shard(array, place, parts):
        """Part number `place` of an array that is cut into `parts` equal, contiguous parts."""
        size = len(array) // parts
        return array[place * size:(place + 1) * size]


def exactly(measure):
    """Make the adapter use deterministic algorithms, if it can, while a phase is measured."""
    def measured(session):
        switch = getattr(session.adapter, 'exact', lambda wanted: None)
        switch(True)
        try:
            return measure(session)
        finally:
            switch(False)
    return measured
