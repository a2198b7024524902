"""Finds the shared libraries that a process has really mapped, and asks cuDNN and NCCL for their versions.

Locks, search paths and packages only say which library should be loaded. The kernel's list of mappings says which one is
loaded.
"""
from __future__ import absolute_import, division, print_function

import io
import os
import re
import subprocess
import sys
import tempfile

from ..clock import now, pause

WATCHED = ('libcuda', 'libcudart', 'libcublas', 'libcudnn', 'libnccl')
MAPS = '/proc/self/maps'
ASK_S = 20


def paths(name, maps=MAPS):
    """Return the mapped files of a library (libNAME.so*), each once, sorted by path."""
    pattern = re.compile(r'(/.*/%s(?:-[0-9a-f]{8})?\.so(?:\.[\d.]+)?)$' % re.escape(name))
    try:
        with io.open(maps, encoding='utf-8', errors='replace') as stream:
            found = (pattern.search(line.rstrip('\n')) for line in stream)
            return sorted(set(str(match.group(1)) for match in found if match))
    except (IOError, OSError):
        return []


def facts():
    """Return {library: [{'path', 'version'}]} of the WATCHED libraries that this process has mapped; version may be None."""
    found = dict((name, paths(name)) for name in WATCHED)
    beside = sorted(set(folder(path) for name in WATCHED for path in found[name]))
    versions = dict((path, _version(name, path, beside) or named(path)) for name in ASKED for path in found[name])
    return dict((name, [{'path': path, 'version': versions.get(path)} for path in found[name]]) for name in WATCHED if found[name])


def _version(name, path, beside):
    """Return the version that the file itself reports, or None.

    `beside` lists the folders of all libraries that this process has mapped. A separate process asks the library, because
    cuDNN 8 loads cuBLAS and files of its own at its first call. If cuDNN does not find these, it aborts the process.
    """
    own = os.environ.get('LD_LIBRARY_PATH')
    environment = dict(os.environ, LD_LIBRARY_PATH=os.pathsep.join(beside + ([own] if own else [])))
    out = tempfile.TemporaryFile()
    try:
        with io.open(os.devnull, 'r+b') as nothing:
            process = subprocess.Popen([sys.executable, '-S', '-E', '-c', ASKED[name][0], path], stdin=nothing, stdout=out, stderr=nothing,
                                       close_fds=True, env=environment)
        until = now() + ASK_S
        while process.poll() is None and now() < until:
            pause(0.02)
        if process.poll() is None:
            process.kill()
            process.wait()
        out.seek(0)
        said = out.read().strip()
        return ASKED[name][1](int(said)) if process.returncode == 0 and said.isdigit() else None
    except OSError:
        return None
    finally:
        out.close()


def named(path):
    """The version in the name of the file that a link leads to: libcudnn.so.8 -> libcudnn.so.8.9.7."""
    found = re.search(r'\.so\.(\d+\.\d+\.\d+)$', os.path.realpath(path))
    return found.group(1) if found else None


def cudnn(number):
    """7104 -> '7.1.4', 90100 -> '9.1.0': the form changed with cuDNN 9."""
    major = 10000 if number >= 90000 else 1000
    return '%d.%d.%d' % (number // major, number % major // 100, number % 100)


def nccl(number):
    """2708 -> '2.7.8', 22105 -> '2.21.5': the form changed with NCCL 2.9."""
    major = 10000 if number >= 10000 else 1000
    return '%d.%d.%d' % (number // major, number % major // 100, number % 100)


def folder(path):
    """The folder of a library, with links resolved."""
    return os.path.dirname(os.path.realpath(path))


# For each library: a program that asks the library for its version in another Python process, and a function that converts the
# answer. The program loads the parts of cuDNN 8 first. If cuDNN loaded them itself on a machine without a driver, it would
# mistake an earlier error of the dynamic loader for a failure to load a part, and abort.
ASKED = {
    'libcudnn': ('''
import sys
sys.path[:] = [entry for entry in sys.path if entry]      # the working folder may hide a module
import ctypes, glob, os
for part in glob.glob(os.path.join(os.path.dirname(sys.argv[1]), 'libcudnn_ops*.so*')):
    try:
        ctypes.CDLL(part, ctypes.RTLD_GLOBAL)
    except OSError:
        pass
ask = ctypes.CDLL(sys.argv[1]).cudnnGetVersion
ask.restype = ctypes.c_size_t
print(ask())
''', cudnn),
    'libnccl': ('''
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import ctypes
number = ctypes.c_int()
ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(number))
print(number.value)
''', nccl),
}
