"""The NumPy adapter with limits that a test chooses. Runs inside the guest.

`--adapter .../alone.py --option devices=WHY` limits it to one device, `training=WHY` to no training, and `gpus=WHY` to one
device if the devices are GPUs. `cannot=WHY` lets the framework that trains nothing compute nothing either.
"""
from __future__ import absolute_import, division, print_function

import time

from .numpy_ import Adapter as Healthy


class Adapter(Healthy):
    name = 'alone'
    style = {'cpu': 'process', 'cuda': 'single'}

    @staticmethod
    def limits(options):
        limits = dict((key, options[key]) for key in ('devices', 'training') if key in options)
        return dict(limits, devices={'cuda': options['gpus']}) if 'gpus' in options else limits

    def prepare(self, beat):
        time.sleep(float(self.ctx.options.get('prepare', 0)))

    def exercise(self):
        if 'cannot' in self.ctx.options:
            raise NotImplementedError(self.ctx.options['cannot'])
        wrong = self.ctx.options.get('wrong', '')
        return [{'what': what, 'right': what != wrong, 'detail': '41 instead of 42'} for what in ('adding', 'subtracting')]
