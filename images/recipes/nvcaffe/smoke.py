"""NVCaffe for the smoke test: one GPU, by the solver of its Python interface.

The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

from . import caffe


class Adapter(caffe.Adapter):
    name = 'nvcaffe'

    @staticmethod
    def limits(options):
        return {'devices': 'several GPUs belong to its program, caffe train -gpu 0,1: its Python interface has no exchange'}

    def claim(self, ctx):
        if not self.on_gpu:
            raise RuntimeError('NVCaffe has no CPU build')
        self.caffe.set_device(ctx.devices[0])
        self.caffe.set_mode_gpu()
        return 'none: one device'

    @staticmethod
    def begin(blobs):
        """Means of 0 and variances of 1, plain averages here. The first two batches take their place whatever they are:
        https://github.com/NVIDIA/caffe/blob/v0.17.4/src/caffe/layers/batch_norm_layer.cpp
        """
        mean, variance, correction = blobs
        mean.data[...] = 0
        variance.data[...] = correction.data[...] = 1

    def listen(self, handle):
        """Nothing to listen to: the learning rate stays what the solver was made with."""
