"""The networks that the smoke test trains, as data: a list of layers from which each adapter builds its framework's network.

The layout is the same for all: images NCHW, kernels OIHW, dense weights (out, in), images flattened in the order C, H, W. The
random start weights use only operations that IEEE 754 rounds exactly, so a seed gives the same bits everywhere.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

CLASSES = 10
EPSILON = 1e-5              # of batch normalisation
KEPT = 0.9                  # share of the running mean and variance that is kept at each step; the rest comes from the batch


class Layer(object):
    """One layer. `of` names the layers that it reads ('images' for the input); `shape` is the shape of its output without the
    batch.

    conv     `kernel`, `stride`, `pad` (zeros on every side); NAME_w (out, in, kernel, kernel), and NAME_b if `bias`
    norm     batch normalisation over batch, height and width; NAME_w (the factor) and NAME_b
    relu
    tanh
    pool     the maximum of each 2 x 2 block, stride 2
    average  the mean of each 2 x 2 block, stride 2
    mean     the mean over height and width: (channels,)
    flatten  in the order C, H, W
    dense    NAME_w (out, in) and NAME_b; `folded` is (C, H, W) if it reads flattened images, else None
    add      the sum of two layers
    """

    def __init__(self, op, name, of, shape, kernel=None, stride=1, pad=0, bias=True, folded=None):
        self.op, self.name, self.of, self.shape = op, name, of, shape
        self.kernel, self.stride, self.pad, self.bias, self.folded = kernel, stride, pad, bias, folded


class Net(object):
    """A network. In `layers`, each layer comes after the layers that it reads; the output of the last one is the logits.

    `parameters` are the trained arrays, [(name, shape)] in the order of the layers. Running means and variances are not among
    them: they belong to the framework's own model.
    """

    def __init__(self, name, shape, workload):
        self.name, self.shape, self.workload = name, shape, workload
        self.layers, self.parameters = [], []
        self._shapes = {'images': shape}

    @property
    def names(self):
        """The names of the parameters, in order."""
        return [name for name, _ in self.parameters]

    @property
    def kernels(self):
        """The names of the weights of convolutions."""
        return [layer.name + '_w' for layer in self.layers if layer.op == 'conv']

    def limits(self, kind, usual, kernel_on_gpu):
        """Return {parameter: limit}: `kernel_on_gpu` for kernels if `kind` is 'cuda', else `usual`."""
        kernels = self.kernels if kind == 'cuda' else ()
        return dict((name, kernel_on_gpu if name in kernels else usual) for name in self.names)

    @property
    def bytes(self):
        """Size of all parameters in float32, which is the size of a gradient too."""
        return 4 * sum(int(np.prod(shape)) for _, shape in self.parameters)

    @property
    def normalised(self):
        """Whether the network has batch normalisation: then its training depends on how the batch is divided among devices."""
        return any(layer.op == 'norm' for layer in self.layers)

    def initial(self, seed):
        """Return start weights in float32: uniform with He's variance. Biases are small but not 0, to reveal a missing bias."""
        draw, norms, weights = np.random.RandomState(seed), set(layer.name for layer in self.layers if layer.op == 'norm'), {}
        for name, shape in self.parameters:
            if name[:-2] in norms:
                weights[name] = (np.ones if name.endswith('_w') else np.zeros)(shape, 'float32')
                continue
            fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 0
            bound = np.sqrt(6.0 / fan_in) if fan_in else 0.05
            weights[name] = ((2.0 * draw.random_sample(shape) - 1.0) * bound).astype('float32')
        return weights

    # Methods that build the networks below. Each adds a layer that reads the previous layer, or the layers in `of`, and returns
    # the name of the new layer.

    def _add(self, op, name, shape, of=None, **settings):
        of = of or ((self.layers[-1].name,) if self.layers else ('images',))
        self.layers.append(Layer(op, name, of, shape, **settings))
        self._shapes[name] = shape
        return name

    def _reads(self, of):
        return self._shapes[of[0]] if of else self.layers[-1].shape if self.layers else self.shape

    def conv(self, name, out, kernel, stride=1, pad=0, bias=True, of=None):
        channels, height, width = self._reads(of)
        rows, cols = ((size + 2 * pad - kernel) // stride + 1 for size in (height, width))
        self.parameters.append((name + '_w', (out, channels, kernel, kernel)))
        if bias:
            self.parameters.append((name + '_b', (out,)))
        return self._add('conv', name, (out, rows, cols), of, kernel=kernel, stride=stride, pad=pad, bias=bias)

    def norm(self, name, of=None):
        shape = self._reads(of)
        self.parameters += [(name + '_w', shape[:1]), (name + '_b', shape[:1])]
        return self._add('norm', name, shape, of)

    def relu(self, name):
        return self._add('relu', name, self._reads(None))

    def tanh(self, name):
        return self._add('tanh', name, self._reads(None))

    def pool(self, name):
        return self._add('pool', name, self._halved())

    def average(self, name):
        return self._add('average', name, self._halved())

    def _halved(self):
        channels, height, width = self._reads(None)
        return channels, height // 2, width // 2

    def mean(self, name):
        return self._add('mean', name, self._reads(None)[:1])

    def flatten(self, name):
        return self._add('flatten', name, (int(np.prod(self._reads(None))),))

    def dense(self, name, out):
        last = self.layers[-1]
        folded = self._shapes[last.of[0]] if last.op == 'flatten' else None
        self.parameters += [(name + '_w', (out, last.shape[0])), (name + '_b', (out,))]
        return self._add('dense', name, (out,), folded=folded)

    def add(self, name, first, second):
        return self._add('add', name, self._shapes[first], (first, second))


def _lenet():
    """The network of the `mnist` workload, small enough for NumPy: two convolutions and two dense layers."""
    return _two_and_two('lenet', 'relu', 'pool')


def _reference():
    """The network of the reference phase: it has LeNet's parameters, but smooth functions.

    A ReLU switches if its input is near zero, and a maximum switches if two inputs are nearly equal. One rounding error can
    cause a switch, which changes a parameter by 1e-3 or more. Tanh and averages do not switch, so errors stay small.
    """
    return _two_and_two('reference', 'tanh', 'average')


def _two_and_two(name, activation, pooling):
    """Two convolutions and two dense layers, with this activation and this pooling."""
    net = Net(name, (1, 28, 28), 'mnist')
    for number, out in ((1, 16), (2, 32)):
        net.conv('conv%d' % number, out, 5)
        getattr(net, activation)('%s%d' % (activation, number))
        getattr(net, pooling)('%s%d' % (pooling, number))
    net.flatten('flat')
    net.dense('fc1', 128)
    getattr(net, activation)(activation + '3')
    net.dense('fc2', CLASSES)
    return net


def _wide():
    """A network with 40 MB of dense layers, which NumPy trains in a second.

    A bucket of DistributedDataParallel holds 25 MB, so several buckets are exchanged during the backward pass. Horovod fuses up
    to 128 MB into one exchange, so its adapter sets the same limit of 25 MB.
    """
    net = Net('wide', (1, 28, 28), 'mnist')
    net.flatten('flat')
    for number in range(1, 4):
        net.dense('fc%d' % number, 2048)
        net.tanh('tanh%d' % number)
    net.dense('fc4', CLASSES)
    return net


def _resnet(blocks, name):
    """A residual network for 32 x 32 images, with three stages of `blocks` pairs of convolutions: https://arxiv.org/abs/1512.03385.

    If a stage halves the size of the images, its shortcut is a 1 x 1 convolution.
    """
    net = Net(name, (3, 32, 32), 'cifar')
    net.conv('conv0', 16, 3, pad=1, bias=False)
    net.norm('norm0')
    last = net.relu('relu0')
    for stage, out in enumerate((16, 32, 64), 1):
        for block in range(1, blocks + 1):
            at, stride = '%d_%d' % (stage, block), 2 if stage > 1 and block == 1 else 1
            net.conv('conv%sa' % at, out, 3, stride, 1, False, (last,))
            net.norm('norm%sa' % at)
            net.relu('relu%sa' % at)
            net.conv('conv%sb' % at, out, 3, 1, 1, False)
            long_way, short = net.norm('norm%sb' % at), last
            if stride == 2:
                net.conv('short%s' % at, out, 1, stride, 0, False, (last,))
                short = net.norm('shortnorm%s' % at)
            net.add('add%s' % at, long_way, short)
            last = net.relu('relu%sb' % at)
    net.mean('mean')
    net.dense('fc', CLASSES)
    return net


def _vgg19():
    """VGG19 with batch normalisation, its head cut to one dense layer for 32 x 32 images: https://arxiv.org/abs/1409.1556."""
    net = Net('vgg19_bn', (3, 32, 32), 'cifar')
    for stage, (out, depth) in enumerate(((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)), 1):
        for number in range(1, depth + 1):
            at = '%d_%d' % (stage, number)
            net.conv('conv' + at, out, 3, pad=1)
            net.norm('norm' + at)
            net.relu('relu' + at)
        net.pool('pool%d' % stage)
    net.flatten('flat')
    net.dense('fc', CLASSES)
    return net


LENET, REFERENCE, WIDE = _lenet(), _reference(), _wide()
_MAKERS = {'lenet': lambda: LENET, 'resnet20': lambda: _resnet(3, 'resnet20'), 'vgg19_bn': _vgg19}
NAMES = tuple(sorted(_MAKERS))                          # the choices of --net
_MAKERS.update(reference=lambda: REFERENCE, wide=lambda: WIDE)
DEFAULT = {'mnist': 'lenet', 'cifar': 'resnet20'}       # workload -> its network unless --net names another


def of(name):
    """Return the network with this name."""
    return _MAKERS[name]()
