"""NVCaffe for the smoke test: one GPU, trained by the solver of its Python interface.

The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

from . import caffe

ONLY_GPUS = 'NVCaffe computes on GPUs only'


class Adapter(caffe.Adapter):
    name = 'nvcaffe'

    @staticmethod
    def limits(options):
        return {'training': {'cpu': ONLY_GPUS},
                'devices': 'several GPUs belong to its program, caffe train -gpu 0,1: its Python interface has no exchange'}

    def claim(self, ctx):
        if not self.on_gpu:
            return 'none: ' + ONLY_GPUS
        self.caffe.set_device(ctx.devices[0])
        self.caffe.set_mode_gpu()
        return 'none: one device'

    def exercise(self):
        raise NotImplementedError(ONLY_GPUS + ', so without a GPU only its import was tested')

    @staticmethod
    def begin(blobs):
        """Set running means to 0 and variances to 1. Unlike Caffe, NVCaffe keeps plain averages, which its first two batches
        replace: https://github.com/NVIDIA/caffe/blob/v0.17.4/src/caffe/layers/batch_norm_layer.cpp
        """
        mean, variance, correction = blobs
        mean.data[...] = 0
        variance.data[...] = correction.data[...] = 1

    def listen(self, handle):
        """Register nothing: gradients are not exchanged, and the learning rate stays that of the solver."""
