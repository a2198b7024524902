"""The workloads, each with its data, its networks and its amount of training, and the table of required accuracies."""
from __future__ import absolute_import, division, print_function

from ..networks import nets
from ..check_record import check
from . import shapes, synth

BEATS_GUESSING = 0.2        # the required accuracy if LIMITS has no entry, after training on at least LEAST_IMAGES images
LEAST_IMAGES = 8192
CALIBRATED_IMAGES, CALIBRATED_EPOCHS = 8192, 2      # the training for which LIMITS were measured


class Workload(object):
    """One workload.

    `dataset` is the name of the public data set. `generate(n, seed)` makes images that replace it; `generated` is their name.
    """

    def __init__(self, name, dataset, generate, generated, images, epochs, batches):
        self.name, self.dataset, self.generate, self.generated = name, dataset, generate, generated
        self.train_images, self.test_images, self.epochs = images[0], images[1], epochs
        self.batches = batches          # images per device for measurements of speed, by kind of device


WORKLOADS = dict((each.name, each) for each in (
    Workload('mnist', 'mnist', synth.digits, synth.NAME, (CALIBRATED_IMAGES, 2048), CALIBRATED_EPOCHS, {'cpu': 64, 'cuda': 256}),
    Workload('cifar', 'cifar10', shapes.shapes, shapes.NAME, (CALIBRATED_IMAGES, 2048), CALIBRATED_EPOCHS, {'cpu': 16, 'cuda': 256}),
))
NAMES = ('mnist', 'cifar')
LR = {'lenet': .05, 'resnet20': .1, 'vgg19_bn': .05}        # at first; the learning rate falls to a tenth during training

# (data, network) -> (required accuracy, largest final loss as a share of the first loss). The real MNIST and CIFAR-10 were not
# available for calibration, so they have no entry. With them, the accuracy must only reach BEATS_GUESSING, and the check says so.
LIMITS = {
    # 12 seeds: 98.6 to 99.3 %
    (synth.NAME, 'lenet'): (.97, .25),
    # 6 seeds on 1, 2, 4 and 8 replicas, each normalising its own part of the batch: 97.0 to 98.2 %; the loss falls to 5 %
    (shapes.NAME, 'resnet20'): (.93, .25),
}


class Part(object):
    """One workload of a run, with its network and its settings from the options or by default."""

    def __init__(self, workload, net, options, kind):
        self.workload, self.name, self.net, self.lr = workload, workload.name, net, LR[net.name]
        self.epochs = options['epochs'] or workload.epochs
        self.train_images = options['train_images'] or workload.train_images
        self.test_images = options['test_images'] or workload.test_images
        self.batch = options['batch'] or workload.batches[kind]

    def limit(self, data, images, different, asked):
        """Return the limits of the checks LOSS and ACC: {'accuracy', 'loss', 'note'}.

        `accuracy` is the required accuracy. `loss` is the largest final loss, as a share of the first loss. Both are None if
        there was too little training to judge. `images` is the number of trained images, counted over all epochs, `different`
        the number of images in one epoch. `asked` is the accuracy that the user demands, or None.
        """
        known = (data, self.net.name) in LIMITS
        accuracy, loss = LIMITS[data, self.net.name] if known else (BEATS_GUESSING, 1.0)
        enough, variety = (CALIBRATED_EPOCHS * CALIBRATED_IMAGES, CALIBRATED_IMAGES) if known else (LEAST_IMAGES, 1)
        if asked is not None:
            return {'accuracy': asked, 'loss': loss, 'note': ''}
        if images < enough:
            return {'accuracy': None, 'loss': None, 'note': ('not judged: trained on only %d images in all epochs, but '
                                                             'the limits are for at least %d') % (images, enough)}
        if different < variety:
            return {'accuracy': None, 'loss': None, 'note': ('not judged: trained on only %d different images, but the limits '
                                                             'are for at least %d') % (different, variety)}
        return {'accuracy': accuracy, 'loss': loss,
                'note': '' if known else ('no accuracy limit was measured for %s on %s: the accuracy only has to be '
                                          'better than guessing') % (self.net.name, data)}


def names(options, kind):
    """Return the names of the workloads to train.

    `auto` means the workloads of the networks in --net. Without --net it means mnist, and on GPUs also cifar.
    """
    text, asked = options['workload'], set(nets.of(name).workload for name in options['net'])
    if text == 'auto':
        return [name for name in NAMES if name in (asked or (NAMES if kind == 'cuda' else ('mnist',)))]
    return [name for name in NAMES if name in text.split(',')]


def choose(chosen, options, kind, adapter):
    """Return ([Part] of the workloads to run, checks for the workloads whose network the adapter cannot build)."""
    parts, left_out = [], []
    for name in chosen:
        net = nets.of(network(name, options['net']))
        reason = getattr(adapter, 'without', {}).get(net.name)
        if not reason:
            parts.append(Part(WORKLOADS[name], net, options, kind))
            continue
        asked = options['workload'] != 'auto' or len(chosen) == 1
        left_out.append(dict(check('NET', None, 'inconclusive' if asked else 'skip', '%s was not trained: %s' % (net.name, reason),
                                   next_step='Choose another --net or --workload.' if asked else ''), workload=name))
    return parts, left_out


def network(workload, asked):
    """Return the name of the network that a workload trains.

    `asked` lists the networks in --net. Each network belongs to one workload.
    """
    mine = [name for name in asked if nets.of(name).workload == workload]
    return mine[0] if mine else nets.DEFAULT[workload]
