"""The known faults of training as switches of `simulate`, each with an id and a sentence for the report."""
from __future__ import absolute_import, division, print_function

from ..networks import rounding

REPLICAS_NAMED = 8      # at most so many replicas are examined one by one
WORDS = {'tf32': 'TF32', 'bf16': 'bfloat16', 'fp16': 'float16'}


def known(case, suspects=()):
    """Return [(id, sentence, switches)] of all faults that need no fitted size and are possible in this case.

    Faults of a single parameter are listed only for the parameters in `suspects`.
    """
    found = _of_several(case.replicas) if case.replicas > 1 else []
    for name in suspects:
        found += _of_one_parameter(case.replicas, name)
    return found if case.is_large else found + _of_labels(case) + _of_any(case.net)


def _of_any(net):
    found = [
        ('first-update-skipped', 'the first update was skipped', dict(skip=1)),
        ('late-gradients', 'each update uses the gradients of the step before (asynchronous updates, one step late)', dict(late=True)),
        ('nesterov', 'the optimizer uses Nesterov momentum instead of classical momentum', dict(nesterov=True)),
        ('no-momentum', 'momentum is not applied', dict(momentum=0.0)),
        ('frozen-biases', 'the biases are never updated', dict(other=(None, dict(never='_b')))),
        ('loss-summed', 'the loss is summed over the batch, not averaged', dict(loss_sum=True)),
        ('input-not-scaled', 'the input is not scaled to 0..1', dict(divisor=1.0)),
        ('input-by-256', 'the input is divided by 256, not by 255', dict(divisor=256.0)),
    ]
    if any(layer.op == 'conv' for layer in net.layers):
        found.append(('kernels-flipped', 'convolution kernels are flipped: true convolution instead of cross-correlation', dict(flip=True)))
    if any(layer.folded and layer.folded[0] > 1 for layer in net.layers):
        found.append(('dense-order', 'the dense layer reads its input in H, W, C order, but its weights are for C, H, W '
                                     'order',
                      dict(nhwc=True)))
    return found


def _of_labels(case):
    labels = case.labels[:case.steps * case.batch]
    return [('labels-plus-one', 'every label is one class too high', dict(labels=(labels + 1) % 10)),
            ('labels-minus-one', 'every label is one class too low', dict(labels=(labels - 1) % 10))]


def _of_several(replicas):
    found = [
        ('gradients-summed', ('gradients are summed instead of averaged, so the effective learning rate is %d times as '
                              'high') % replicas,
         dict(exchange='sum')),
        ('averaged-twice', 'gradients are averaged twice, so the effective learning rate is divided by %d' % replicas,
         dict(exchange='twice')),
        ('no-exchange', 'gradients are not exchanged: each replica trains alone on its own part of the batch', dict(exchange='own')),
        ('same-shard', 'only the first part of every batch counts: all replicas read this part, or only the gradients of '
                       'the first replica are used',
         dict(shard='same')),
    ]
    for r in range(min(replicas, REPLICAS_NAMED)):
        found += [('stale-rank-%d' % r, 'replica %d contributes the gradients of the step before' % r, dict(stale=(r, first)))
                  for first in ('zero', 'fresh')]
    return found + [('silent-rank-%d' % r, 'replica %d contributes no gradient to the mean' % r, dict(exchange=('without', r)))
                    for r in range(min(replicas, REPLICAS_NAMED))]


def of_one_replica(replica):
    """Return [(id, sentence, switches)] for faults in the updates of one replica alone, which make replicas differ."""
    return [('%s-rank-%d' % (key, replica), 'replica %d %s' % (replica, words), dict(other=(replica, other))) for key, words, other in (
        ('no-momentum', 'does not apply momentum: its optimizer loses its state', dict(momentum=0.0)),
        ('frozen', 'never updates its parameters', dict(never='')),
        ('frozen-biases', 'never updates its biases', dict(never='_b')))]


def _of_one_parameter(replicas, name):
    found = [('frozen-' + name, 'parameter %s is never updated' % name, dict(frozen=(name, None)))]
    if name.endswith('_b'):
        found.append(('without-' + name, 'the network does not add bias %s' % name, dict(without=(name, None))))
    if replicas == 1:
        return found
    found.append(('not-exchanged-' + name, 'the gradient of parameter %s is not exchanged' % name, dict(unexchanged=(name,))))
    for r in range(min(replicas, REPLICAS_NAMED)):
        found += [
            ('silent-%s-rank-%d' % (name, r), 'replica %d contributes no gradient of parameter %s' % (r, name), dict(silent=(name, r))),
            ('frozen-%s-rank-%d' % (name, r), 'replica %d never updates parameter %s' % (r, name), dict(frozen=(name, r))),
        ]
        if name.endswith('_b'):
            found.append(('without-%s-rank-%d' % (name, r), 'replica %d does not add bias %s' % (r, name), dict(without=(name, r))))
    return found


def rounded(replicas):
    """Return [(id, sentence, switches)] for weights or gradients in half precision, with every way of averaging gradients."""
    ways = ('divided', 'summed', 'each', 'after', 'both') if replicas > 1 else ('divided',)
    where = 'exchanged' if replicas > 1 else 'kept'
    found = []
    for kind in ('float16', 'bfloat16'):
        found += [('gradients-in-' + kind, 'gradients are %s in %s' % (where, kind), dict(cast=(kind, way))) for way in ways]
        found += [('weights-in-' + kind, 'weights are kept in ' + kind, dict(kept=kind)),
                  ('start-in-' + kind, 'training starts from weights that were rounded to ' + kind, dict(start=kind))]
    return found


def reduced(kind, every_way):
    """Return [(id, sentence, switches)] for arithmetic in 'tf32', 'bf16' or 'fp16'.

    With `every_way`, the list has all combinations of rounded layers, kinds of rounding, and rounded outputs; else only two of
    them, in which all layers and all outputs are rounded.
    """
    layers = (('conv', 'dense'), ('conv',), ('dense',))
    ways = [(layers[0], True, True), (layers[0], False, True)]
    if every_way:
        ways = [(ops, nearest, mixed) for ops in layers for nearest in (True, False) for mixed in (True, False)[:1 if kind == 'tf32' else 2]]
    return [('reduced-' + kind, 'layers compute in %s' % WORDS[kind], dict(numbers=rounding.Reduced(kind, *way))) for way in ways]
