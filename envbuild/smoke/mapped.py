"""Which shared libraries a process has really mapped, and the versions that cuDNN and NCCL themselves tell.

Names in a lock, on a search path or in a package say what should be loaded; the kernel's list of mappings says what is.
"""
from __future__ import absolute_import, division, print_function

import ctypes
import io
import os
import re

WATCHED = ('libcuda', 'libcudart', 'libcublas', 'libcudnn', 'libnccl')
MAPS = '/proc/self/maps'


def paths(name, maps=MAPS):
    """The files of a library that are mapped, as libNAME.so*; each once, in order of their names."""
    pattern = re.compile(r'(/.*/%s(?:[-_]stub)?\.so(?:\.[\d.]+)?)$' % re.escape(name))
    try:
        with io.open(maps, encoding='utf-8', errors='replace') as stream:
            found = (pattern.search(line.rstrip('\n')) for line in stream)
            return sorted(set(str(match.group(1)) for match in found if match))
    except (IOError, OSError):
        return []


def facts():
    """{library: [{'path', 'version'}]} of those watched that this process has mapped; version None where it tells none."""
    out = {}
    for name in WATCHED:
        found = [{'path': path, 'version': _version(name, path)} for path in paths(name)]
        if found:
            out[name] = found
    return out


def _version(name, path):
    try:
        lib = ctypes.CDLL(path)         # mapped already: this is the same one again
        if name == 'libcudnn':
            lib.cudnnGetVersion.restype = ctypes.c_size_t
            return cudnn(lib.cudnnGetVersion())
        if name == 'libnccl':
            number = ctypes.c_int()
            return nccl(number.value) if lib.ncclGetVersion(ctypes.byref(number)) == 0 else None
    except (OSError, AttributeError):   # libnccl before 2.3 has no such call
        pass
    return None


def cudnn(number):
    """7104 -> '7.1.4', 90100 -> '9.1.0': the form changed with cuDNN 9."""
    major = 10000 if number >= 90000 else 1000
    return '%d.%d.%d' % (number // major, number % major // 100, number % 100)


def nccl(number):
    """2708 -> '2.7.8', 22105 -> '2.21.5': the form changed with NCCL 2.9."""
    major = 10000 if number >= 10000 else 1000
    return '%d.%d.%d' % (number // major, number % major // 100, number % 100)


def folder(path):
    """Where a library really lies."""
    return os.path.dirname(os.path.realpath(path))
