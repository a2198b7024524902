"""Framework errors with a misleading text, and their known causes."""
from __future__ import absolute_import, division, print_function

import re

# Error messages of a driver that gets PTX for a newer CUDA than its own; the error code is 222:
# https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html
_NEWER_PTX = re.compile(r'UNSUPPORTED_PTX_VERSION|PTX was compiled with an unsupported toolchain|PTX JIT compiler library.*too old|'
                        r'Unsupported \.version \d', re.IGNORECASE)
_NEWER_PTX_WORDS = ('what XLA, Triton or NVRTC made at run time is PTX for a newer CUDA than this driver knows',
                    'Update the driver to the CUDA that DRIVER names, or use an environment with an older CUDA: minor versions of CUDA '
                    'are compatible for native code only, not for PTX.')


def cause(error):
    """Return (the cause, what to do) for the text of an error; ('', '') if the error is unknown."""
    return _NEWER_PTX_WORDS if _NEWER_PTX.search(error) else ('', '')
