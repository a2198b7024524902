"""The NumPy adapter with a compiler: it compiles a C++ function and calls it. Runs inside the guest.

`--option slow=SECONDS` waits first, `wrong=1` makes the result wrong, and `none=WHY` says that there is nothing to compile.
"""
from __future__ import absolute_import, division, print_function

import ctypes
import os
import subprocess
import time

from .numpy_ import Adapter as Healthy

SOURCE = '#include <cmath>\nextern "C" double smoke(double x) { return std::fabs(x) * 2 + 1; }\n'


class Adapter(Healthy):
    name = 'compiled'
    compile_needs = ('compiler', 'setuptools')

    def compile_and_run(self):
        options = self.ctx.options
        if 'none' in options:
            raise NotImplementedError(options['none'])
        time.sleep(float(options.get('slow', 0)))
        source, library = (os.path.join(self.ctx.folder, name) for name in ('smoke.cpp', 'smoke.so'))
        with open(source, 'w') as stream:
            stream.write(SOURCE)
        subprocess.check_call([os.environ.get('CXX') or 'g++', '-shared', '-fPIC', '-o', library, source])
        function = ctypes.CDLL(library).smoke
        function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double]
        right = function(-2.5) == (7 if 'wrong' in options else 6)
        return [{'what': 'a function in C++', 'right': right, 'detail': '%r' % function(-2.5)}]
