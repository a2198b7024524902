"""Phase `schemes`: trains with other parallel schemes than averaging gradients, using only the methods that every adapter has.

An adapter supports the sync modes 'mean' and 'none'. Here a scheme (listed in `sync`) replaces 'mean': the devices train alone,
and their parameters are read, exchanged and assigned. `Schemed` has the interface of an adapter, so that other phases run
unchanged with it.
"""
from __future__ import absolute_import, division, print_function

import contextlib
import copy as copying

import numpy as np

from .. import sync
from . import bench, match, train
from .context import exactly
from .parameters import Client, Server

PHASES = (('oracle', exactly(match.measure)), ('train', train.measure), ('bench', bench.measure))


def measure(session):
    """Return {scheme: the measurements of its phases, and the facts of the scheme}."""
    out = {}
    for name in session.plan['schemes']:
        out[name] = entry = {}
        with _under(session, name) as under:
            for phase, work in PHASES:
                if phase in session.plan['phases'] and (phase != 'oracle' or name in sync.EQUIVALENT):
                    session.heart.enter('%s under %s' % (phase, name))
                    session.ctx.group.barrier()
                    entry[phase] = work(under)
            entry['facts'] = under.adapter.facts()
    return out


@contextlib.contextmanager
def _under(session, name):
    """Give a copy of the session whose adapter follows the scheme, for a `with` statement.

    The speed of the scheme is measured only with the first scaling. The mode `input` is left out, because it was measured with
    averaged gradients already.
    """
    under = copying.copy(session)
    under.adapter = Schemed(session.adapter, session.ctx, name)
    if 'oracle' in session.plan:
        under.plan = dict(session.plan, oracle=dict(session.plan['oracle'], more=0))
    if 'train' in session.plan:
        # In most schemes the replicas differ during training, and gradients are never averaged, so these checks do not apply.
        under.plan = dict(under.plan, train=dict(session.plan['train'], checked=False))
    if 'bench' in session.plan:
        plan = session.plan['bench']
        under.plan = dict(under.plan, bench=dict(plan, scaling=plan['scaling'][:1], input=False, checked=False))
    under.path = lambda file: session.path('%s-%s' % (name.replace(':', '-'), file))
    try:
        yield under
    finally:
        under.adapter.end()


class Schemed(object):
    """An adapter whose sync 'mean' applies the scheme. All other attributes come from the real adapter."""

    def __init__(self, adapter, ctx, name):
        self._adapter, self._ctx = adapter, ctx
        kind, number = name.split(':')
        self._kind, self._number = {'parameters': Averaged, 'async': Stale}[kind], int(number)
        self._made = []

    def __getattr__(self, name):
        return getattr(self._adapter, name)

    def make(self, net, weights, lr, momentum, replicas, sync):
        alone = self._adapter.make(net, weights, lr, momentum, replicas, 'none')
        if sync != 'mean':
            return alone
        self.end()
        self._made.append(self._kind(self._adapter, self._ctx, alone, weights, self._number))
        return self._made[-1]

    def put(self, handle, images, labels):
        if isinstance(handle, _Together):
            images, labels = (self._ctx.shard(array, self._ctx.rank, self._ctx.world) for array in (images, labels))
        return self._adapter.put(_alone(handle), images, labels)

    def step(self, handle, batch, lr):
        token = self._adapter.step(_alone(handle), batch, lr)
        if isinstance(handle, _Together):
            handle.stepped()
        return token

    def predict(self, handle, images):
        """Return logits.

        The result of a scheme is the mean of its replicas, so they are averaged before the first prediction.
        """
        if isinstance(handle, _Together):
            handle.settle()
        return self._adapter.predict(_alone(handle), images)

    def copies(self, handle):
        return self._adapter.copies(_alone(handle))

    def weights(self, handle, copy):
        return self._adapter.weights(_alone(handle), copy)

    def assign(self, handle, copy, weights):
        return self._adapter.assign(_alone(handle), copy, weights)

    def evidence(self, handle):
        return self._adapter.evidence(_alone(handle))

    def facts(self):
        """Return the last measured distance between replicas, and the largest staleness; None for what was not measured."""
        distances = [each.distance for each in self._made if each.distance is not None]
        seen = [each.staleness() for each in self._made if each.staleness()]
        return {'distance': distances[-1] if distances else None,
                'staleness': max(seen, key=lambda each: each['largest']) if seen else None}

    def end(self):
        """Close the connections of all handles that were made."""
        for each in self._made:
            each.end()


def _alone(handle):
    return handle.alone if isinstance(handle, _Together) else handle


class _Together(object):
    """A handle whose devices train alone, and the exchange of their parameters."""

    def __init__(self, adapter, ctx, alone, start):
        self.alone, self.distance = alone, None
        self._adapter, self._ctx = adapter, ctx
        self._shapes = [(name, np.shape(start[name])) for name in sorted(start)]
        self._start = self._flat(start)
        self._steps, self._settled, self._apart = 0, False, None

    def _flat(self, weights):
        return np.concatenate([np.asarray(weights[name], 'float32').reshape(-1) for name, _ in self._shapes])

    def _named(self, flat):
        out, at = {}, 0
        for name, shape in self._shapes:
            size = int(np.prod(shape))
            out[name] = flat[at:at + size].reshape(shape)
            at += size
        return out

    def _mine(self):
        """Return the parameters of every replica in this process, each as one flat array."""
        self._adapter.drain()
        copies = range(self._adapter.copies(self.alone))
        return [self._flat(self._adapter.weights(self.alone, copy)) for copy in copies]

    def _take(self, flat):
        named = self._named(flat)
        for copy in range(self._adapter.copies(self.alone)):
            self._adapter.assign(self.alone, copy, named)

    def _mean(self, mine):
        """Return the mean over the replicas of all processes; every process gets the same bits."""
        total, ctx = sum(mine[1:], mine[0]), self._ctx
        if ctx.world > 1:
            own = 'float32' in getattr(self._adapter, 'collective_types', ()) and ctx.kind != 'cpu'
            total = np.asarray(self._adapter.collective('allreduce', total, 0) if own else ctx.group.allreduce(total))
        return total.reshape(-1) / np.float32(ctx.replicas)

    def _whole(self, mine):
        """Return the common parameters of all replicas: their mean, unless the scheme has others."""
        return self._mean(mine)

    def stepped(self):
        """Count a step, and exchange parameters if the scheme does so after this step."""
        raise NotImplementedError

    def settle(self):
        """Measure how far apart the replicas are, then give the common parameters to all replicas. Later calls do nothing.

        `distance` is the largest distance of a replica from the mean, divided by the distance of the mean from the start.
        """
        if self._settled:
            return
        self._settled, mine = True, self._mine()
        whole = self._whole(mine)
        mine, mean = self._apart or (mine, whole)
        way = float(np.linalg.norm(mean - self._start)) or 1.0
        here = max(float(np.linalg.norm(flat - mean)) for flat in mine) / way
        self.distance = max(self._ctx.group.gather(here))
        self._take(whole)

    def staleness(self):
        return None

    def end(self):
        pass


class Averaged(_Together):
    """The scheme parameters:k. Every k steps, the parameters of all replicas are averaged."""

    def __init__(self, adapter, ctx, alone, start, every):
        _Together.__init__(self, adapter, ctx, alone, start)
        self._every = every

    def stepped(self):
        self._steps += 1
        if self._steps % self._every == 0:
            mine = self._mine()
            mean = self._mean(mine)
            self._apart = mine, mean
            self._take(mean)


class Stale(_Together):
    """The scheme async:s. Rank 0 runs the parameter server in a thread."""

    def __init__(self, adapter, ctx, alone, start, bound):
        _Together.__init__(self, adapter, ctx, alone, start)
        self._bound, self._server, port = bound, None, None
        if ctx.rank == 0:
            self._server = Server(self._start, ctx.world, bound)
            port = self._server.listen(ctx.host)
            self._server.start()
        port = ctx.group.broadcast(port)
        self._client = Client(ctx.host, port, ctx.rank)
        self._base = self._start

    def stepped(self):
        now, = self._mine()
        self._base = self._client.exchange(now - self._base)
        self._take(self._base)

    def _whole(self, mine):
        """Return the server's parameters after all workers have stopped."""
        self._ctx.group.barrier()
        return self._client.exchange(np.zeros_like(self._start))

    def staleness(self):
        return self._server.ledger() if self._server else None

    def end(self):
        """Close the connection. The server ends with its last connection."""
        if self._client is not None:
            self._client.close()
            self._client = None
