"""Keras on CNTK for the smoke test: one device.

The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import os
import warnings

from ..machine import mapped
from . import keras


class Adapter(keras.Compiled):
    name = 'keras_cntk'
    style = 'single'
    semantics = {'gradient': 'mean over the batch', 'exchange': 'none: one device'}

    @staticmethod
    def limits(options):
        return {'devices': 'Keras trains on several devices with TensorFlow only; CNTK\'s own data parallelism it does not reach'}

    def setup(self, ctx):
        os.environ['KERAS_BACKEND'] = 'cntk'
        os.environ['OMPI_MCA_ess_singleton_isolated'] = '1'     # without it, mpirun would start a daemon for this one process
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')                     # about missing GPUs and image readers
            import cntk
            import keras as framework
        self.device = cntk.gpu(ctx.devices[0]) if ctx.kind == 'cuda' else cntk.cpu()
        if not cntk.try_set_default_device(self.device):
            raise RuntimeError('CNTK does not take the device %s' % self.device)
        self.keras, self.cntk, self.ctx = framework, cntk, ctx

    def versions(self):
        # CNTK does not report its CUDA version. A build with CUDA has loaded the CUDA runtime by now, even without a GPU.
        cuda = 'unknown' if mapped.paths('libcudart') else None
        return {'name': 'keras', 'version': self.keras.__version__, 'cuda_build': cuda, 'cudnn': None, 'nccl': None, 'arch_list': []}

    def model(self, network, replicas, compiled):
        made = network()
        return {'network': made, 'run': compiled(made)}

    def places(self, handle):
        place = ['gpu %d' % self.ctx.devices[0] if self.ctx.kind == 'cuda' else 'cpu']
        return {'parameters': place, 'compute': place}
