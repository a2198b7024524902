"""Framework errors with a misleading text, and their known causes."""
from __future__ import absolute_import, division, print_function

import re

# Error messages of a driver that gets PTX for a newer CUDA than its own; the error code is 222:
# https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html
_NEWER_PTX = re.compile(r'UNSUPPORTED_PTX_VERSION|PTX was compiled with an unsupported toolchain|PTX JIT compiler library.*too old|'
                        r'Unsupported \.version \d', re.IGNORECASE)
_NEWER_PTX_WORDS = ('PTX that XLA, Triton or NVRTC generated at run time is for a newer CUDA than this driver supports',
                    'Update the driver to the CUDA version that the check DRIVER names, or use an environment with an '
                    'older CUDA. A driver of the same major version runs native code of a newer CUDA, but cannot compile '
                    'its PTX.')


def cause(error):
    """Return (the cause, what to do) for the text of an error; ('', '') if the error is unknown."""
    return _NEWER_PTX_WORDS if _NEWER_PTX.search(error) else ('', '')
