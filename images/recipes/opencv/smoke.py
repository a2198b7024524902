"""OpenCV for the smoke test: OpenCV trains nothing, so the results of small tasks are compared with NumPy's.

The tasks use functions that exist in 2.4 and in 5.0.
The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import os
import re

import numpy as np


class Adapter(object):
    name = 'opencv'
    style = 'single'
    semantics = {}

    @staticmethod
    def limits(options):
        return {'training': 'OpenCV works on images and trains no network on several devices'}

    def setup(self, ctx):
        import cv2
        self.cv2, self.ctx = cv2, ctx
        cv2.setNumThreads(ctx.threads)

    def versions(self):
        # The versions of wheels end in a build number: 4.5.5.64 is OpenCV 4.5.5. Not all wheels have a module with the full
        # number.
        site = os.path.dirname(os.path.dirname(os.path.abspath(self.cv2.__file__)))
        names = (re.match(r'opencv_[a-z_]+-([0-9.]+)[.]dist-info$', name) for name in sorted(os.listdir(site)))
        numbers = [name.group(1) for name in names if name and name.group(1).startswith(self.cv2.__version__ + '.')]
        version = numbers[0] if numbers else self.cv2.__version__
        return {'name': 'opencv', 'version': version, 'cuda_build': None, 'cudnn': None, 'nccl': None, 'arch_list': []}

    def exercise(self):
        picture = np.random.RandomState(self.ctx.seed).randint(0, 256, (48, 64, 3)).astype('uint8')
        tasks = (('a PNG written and read', self._png), ('a mean filter', self._mean), ('a change of colours', self._grey),
                 ('finding a part in a picture', self._find))
        return [dict(task(picture), what=what) for what, task in tasks]

    def _png(self, picture):
        done, data = self.cv2.imencode('.png', picture)
        back = self.cv2.imdecode(data, 1) if done else None
        return _apart(back, picture, 0)

    def _mean(self, picture):
        """Compare OpenCV's mean over 3 by 3 pixels with NumPy's, without the border."""
        rows, columns = picture.shape[:2]
        wanted = sum(picture[y:rows - 2 + y, x:columns - 2 + x].astype('float64') for y in range(3) for x in range(3)) / 9
        return _apart(self.cv2.blur(picture, (3, 3))[1:-1, 1:-1], wanted, 0.51)

    def _grey(self, picture):
        """Compare OpenCV's conversion to grey with NumPy's, which uses the weights of ITU-R BT.601."""
        return _apart(self.cv2.cvtColor(picture, self.cv2.COLOR_BGR2GRAY), picture.dot([0.114, 0.587, 0.299]), 0.6)

    def _find(self, picture):
        scores = self.cv2.matchTemplate(picture, picture[17:29, 31:47], self.cv2.TM_SQDIFF)
        place = self.cv2.minMaxLoc(scores)[2]
        return {'right': tuple(place) == (31, 17), 'detail': 'found at %s' % (tuple(place),)}

    def close(self):
        pass


def _apart(got, wanted, limit):
    if got is None or got.shape != wanted.shape:
        return {'right': False, 'detail': 'no picture of that size came out'}
    largest = float(np.abs(got.astype('float64') - wanted).max())
    return {'right': largest <= limit, 'detail': 'largest difference %g, limit %g' % (largest, limit)}
