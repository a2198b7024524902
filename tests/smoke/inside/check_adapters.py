from __future__ import absolute_import, division, print_function

import os
import re
import shutil
import sys
import tempfile
import unittest

import boot  # noqa: F401
import numpy as np

from envbuild_smoke import adapters
from envbuild_smoke.networks import building, nets
from envbuild_smoke.rank import schemes, worker
from envbuild_smoke.rank.context import exactly

RECIPES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', '..', 'images', 'recipes')
FOLDER = tempfile.mkdtemp(prefix='envbuild-smoke-adapters-')


def _of(recipe):
    """The adapter class of a recipe; its framework is not imported."""
    return adapters.load(os.path.join(RECIPES, recipe, 'smoke.py'))


def setUpModule():
    adapters.__path__.append(FOLDER)
    shutil.copy(os.path.join(RECIPES, 'tensorflow', 'smoke.py'), os.path.join(FOLDER, 'tensorflow.py'))   # Keras imports it


def tearDownModule():
    adapters.__path__.remove(FOLDER)
    shutil.rmtree(FOLDER)


class GpuCodeTest(unittest.TestCase):
    def test_tensorflow_lists_one_entry_for_native_code_and_ptx(self):
        self.assertEqual(_of('tensorflow')._gpu_code(['sm_35', 'sm_75', 'compute_80']), ['compute_80', 'sm_35', 'sm_75', 'sm_80'])
        self.assertEqual(_of('tensorflow')._gpu_code([]), [])


class WrittenNetworksTest(unittest.TestCase):
    """The network descriptions for Caffe and Torch 7. Only an image shows whether these frameworks accept them, and its build
    takes long.
    """

    NETS = [nets.of(name) for name in nets.NAMES] + [nets.REFERENCE]

    def test_torch_7_has_a_part_for_every_layer(self):
        module = sys.modules[_of('torch7').__module__]
        for net in self.NETS:
            for layer in net.layers:
                self.assertIn('\nfunction parts.%s(' % layer.op, module.LUA)
                self.assertTrue(re.match(r'[a-z]+ \S+ \S+( \d+){8}$', module._words(net, layer)))
        self.assertIn('parts.average() return nn.SpatialAveragePooling(2, 2, 2, 2) end', module.LUA)
        self.assertIn('parts.tanh() return nn.Tanh() end', module.LUA)

    def test_caffe_has_words_for_every_layer(self):
        module = sys.modules[_of('caffe').__module__]
        for net in self.NETS:
            text = module._words(net)
            for layer in net.layers:
                self.assertIn('name: "%s" type: "%s"' % (layer.name, module.TYPES[layer.op][0]), text)
        text = module._words(nets.REFERENCE)
        self.assertIn('name: "tanh1" type: "TanH" bottom: "conv1" top: "tanh1"', text)
        self.assertIn('name: "average1" type: "Pooling" bottom: "tanh1" top: "average1" '
                      'pooling_param { pool: AVE kernel_size: 2 stride: 2 }', text)

    def test_what_is_halved_is_even(self):
        """Caffe rounds up where other frameworks round down:
        https://github.com/BVLC/caffe/blob/1.0/src/caffe/layers/pooling_layer.cpp
        """
        for net in self.NETS:
            shapes = dict((layer.name, layer.shape) for layer in net.layers)
            for layer in net.layers:
                if layer.op in ('pool', 'average'):
                    self.assertEqual([size % 2 for size in shapes[layer.of[0]][1:]], [0, 0])


class _Named(object):
    def __init__(self, **values):
        self.__dict__.update(values)


class ExactTest(unittest.TestCase):
    """Algorithms are deterministic between exact(True) and exact(False), and afterwards as before."""

    def test_the_phases_of_the_reference_ask_for_it_and_take_it_back_whatever_happens(self):
        asked = []
        session = _Named(adapter=_Named(exact=asked.append))
        self.assertEqual(exactly(lambda session: list(asked))(session), [True])
        self.assertRaises(ZeroDivisionError, exactly(lambda session: 1 / 0), session)
        self.assertEqual(asked, [True, False, True, False])
        self.assertEqual(exactly(lambda session: 7)(_Named(adapter=object())), 7)
        for phase, measure in worker.COMMON + schemes.PHASES:
            self.assertEqual(measure.__name__ == 'measured', phase in ('oracle', 'buckets'), phase)

    def test_pytorch_chooses_by_timing_only_outside_and_only_on_gpus(self):
        side = _of('pytorch')()
        for on_gpu in (True, False):
            cudnn = _Named()
            side.on_gpu, side.torch = on_gpu, _Named(backends=_Named(cudnn=cudnn))
            side.exact(True)
            self.assertEqual((cudnn.deterministic, cudnn.benchmark), (True, False))
            side.exact(False)
            self.assertEqual((cudnn.deterministic, cudnn.benchmark), (False, on_gpu))

    def test_tensorflow_s_variable_is_what_it_was(self):
        self.addCleanup(os.environ.pop, building.AUTOTUNE, None)
        for before in (None, '1'):
            os.environ.update({building.AUTOTUNE: before} if before else {})
            building.exact(None, True)
            self.assertEqual(os.environ[building.AUTOTUNE], '0')
            building.exact(None, False)
            self.assertEqual(os.environ.get(building.AUTOTUNE), before)

    def test_mxnet_says_it_for_each_convolution(self):
        side = _of('mxnet')()
        self.assertIsNone(side.chosen)
        side.exact(True)
        self.assertEqual(side.chosen, 'off')
        side.exact(False)
        self.assertIsNone(side.chosen)

    def test_theano_compiles_with_the_deterministic_ones_and_then_as_it_was_told(self):
        side = _of('theano')()
        conv = _Named(algo_bwd_filter='none', algo_bwd_data='time_once')
        side.where, side.usual, side.theano = 'cuda0', {}, _Named(config=_Named(dnn=_Named(conv=conv)))
        side.exact(True)
        self.assertEqual((conv.algo_bwd_filter, conv.algo_bwd_data), ('deterministic',) * 2)
        side.exact(False)
        self.assertEqual((conv.algo_bwd_filter, conv.algo_bwd_data), ('none', 'time_once'))

    def test_jax_s_options_go_only_to_what_is_compiled_for_it(self):
        module = sys.modules[_of('jax').__module__]
        try:
            options = module._options(_Named(jit=lambda function, compiler_options=None: None))
        except AttributeError:
            return                          # Python 2, which JAX does not support
        self.assertTrue(options['compiler_options']['xla_gpu_deterministic_ops'])
        self.assertEqual(module._options(_Named(jit=lambda function: None)), {})


class OpenCvTest(unittest.TestCase):
    def told(self, version, *installed):
        """The version that the adapter reports for OpenCV if these distributions are installed beside it."""
        site = tempfile.mkdtemp(dir=FOLDER)
        for name in ('cv2',) + installed:
            os.mkdir(os.path.join(site, name))
        side = _of('opencv')()
        side.cv2 = type('Cv2', (object,), {'__version__': version, '__file__': os.path.join(site, 'cv2', '__init__.py')})
        return side.versions()['version']

    def test_a_wheel_s_own_number_is_that_of_its_metadata(self):
        self.assertEqual(self.told('4.0.0', 'numpy-1.16.6.dist-info', 'opencv_python-4.0.0.21.dist-info'), '4.0.0.21')
        self.assertEqual(self.told('3.4.18', 'opencv_contrib_python_headless-3.4.18.65.dist-info'), '3.4.18.65')

    def test_without_metadata_of_the_same_release_it_is_opencv_s_own(self):
        self.assertEqual(self.told('2.4.9.1'), '2.4.9.1')
        self.assertEqual(self.told('4.5.5', 'opencv_python-4.5.50.1.dist-info'), '4.5.5')


class _OldVariable(object):
    """The part of a variable of TensorFlow 1.0 that the smoke test uses. It has no `shape`."""

    def __init__(self, shape):
        self._shape, self.initializer = list(shape), self
        self.inputs = (self, object())

    def get_shape(self):
        return self

    def as_list(self):
        return self._shape


class _Session(object):
    def run(self, fetches, feed):
        self.fetches, self.feed = fetches, feed


class OldTensorFlowTest(unittest.TestCase):
    def test_weights_are_assigned_in_the_shapes_of_the_variables(self):
        side, session = object.__new__(_of('tensorflow').sides[0]), _Session()
        weights = nets.LENET.initial(1)
        turned = [(5, 5, 1, 16), (16,), (5, 5, 16, 32), (32,), (512, 128), (128,), (128, 10), (10,)]
        variables = [_OldVariable(shape) for shape in turned]
        side.assign({'net': nets.LENET, 'variables': [variables], 'session': session}, 0, weights)
        self.assertEqual(session.fetches, variables)
        given = [session.feed[variable.inputs[1]] for variable in variables]
        self.assertEqual([array.shape for array in given], turned)
        np.testing.assert_array_equal(given[0], np.transpose(weights[nets.LENET.names[0]], (2, 3, 1, 0)))


class NewerKerasTest(unittest.TestCase):
    def test_the_optimizer_is_asked_for_by_its_name(self):
        """Keras 2.6.0 offers only keras.optimizers.get."""
        side = object.__new__(_of('keras').sides[1])
        side.keras = type('Keras', (object,), {'optimizers': type('Optimizers', (object,), {'get': staticmethod(dict)})})
        self.assertEqual(side.sgd(0.1, 0.9), {'class_name': 'SGD', 'config': {'learning_rate': 0.1, 'momentum': 0.9}})


class _OldKeras(object):
    """The part of Keras before 2.0.9 that the smoke test uses: no multi_gpu_model, and the loss takes its arguments in reverse
    order.
    """

    utils = None

    def __init__(self):
        self.backend = self.optimizers = self.layers = self.models = self

    def sparse_categorical_crossentropy(self, output, target, from_logits=False):
        return ('loss', target, output, from_logits)

    def SGD(self, lr, momentum):
        return lr, momentum

    def Lambda(self, function, output_shape=None):
        return lambda x: function(x)

    def concatenate(self, parts, axis):
        return np.concatenate(parts, axis)

    def Model(self, inputs, outputs):
        return outputs


class _Placing(object):
    """TensorFlow's devices, and its split for arrays."""

    def __init__(self):
        self.places = []

    def device(self, place):
        self.places.append(place)
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def split(self, x, count):
        return np.split(x, count)


class _Made(object):
    """A model that doubles its images and records the size of each batch."""

    def __init__(self):
        self.inputs, self.input_shape, self.seen = [np.arange(12.0).reshape(4, 3)], (None, 3), []

    def __call__(self, x):
        self.seen.append(len(x))
        return 2 * x

    def compile(self, optimizer, loss):
        self.loss = loss


class OldKerasTest(unittest.TestCase):
    def setUp(self):
        self.side = object.__new__(_of('keras').sides[0])
        self.side.keras, self.side.tf, self.side.kind = _OldKeras(), _Placing(), 'cpu'

    def test_the_loss_knows_labels_from_logits(self):
        made = _Made()
        self.side._compile(0.1, 0.9)(made)
        self.assertEqual(made.loss('labels', 'logits'), ('loss', 'labels', 'logits', True))

    def test_without_multi_gpu_model_each_device_has_its_slice(self):
        made, self.side.ctx = _Made(), type('Context', (object,), {'devices': [0, 1]})
        model = self.side.model(lambda: made, [0, 1], lambda joined: joined)
        np.testing.assert_array_equal(model['run'], 2 * made.inputs[0])
        self.assertEqual(made.seen, [2, 2])
        self.assertEqual(self.side.tf.places, ['/cpu:0', '/cpu:0', '/cpu:1', '/cpu:0'])


if __name__ == '__main__':
    unittest.main()
