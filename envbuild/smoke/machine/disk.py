"""Measures the disk of a folder: sequential access, and 4 KB at random offsets, with O_DIRECT if the file system allows it.

It writes one temporary file of at most 256 MB and removes it. Each part takes at most a few seconds.
"""
from __future__ import absolute_import, division, print_function

import ctypes
import os
import random
import tempfile

from ..clock import now

FILE_BYTES, BLOCK, SMALL = 256 << 20, 4 << 20, 4096
LIMIT_S, RANDOM_S = 4.0, 1.0
SPARE = 1 << 30             # bytes that must stay free on the disk
O_DIRECT = getattr(os, 'O_DIRECT', 0)

_libc = ctypes.CDLL(None, use_errno=True)
for _name in ('pread64', 'pwrite64'):
    getattr(_libc, _name).restype = ctypes.c_ssize_t
    getattr(_libc, _name).argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64]


def measure(folder):
    """Return MB/s of sequential access, and 4 KB operations per second; `not_measured` if the folder cannot be used."""
    try:
        stat = os.statvfs(folder)
        if stat.f_bavail * stat.f_frsize < FILE_BYTES + SPARE:
            return {'not_measured': 'less than %.1f GB are free in %s' % ((FILE_BYTES + SPARE) / 1e9, folder)}
        handle, path = tempfile.mkstemp(prefix='.envbuild-smoke-', dir=folder)
    except (IOError, OSError) as error:
        return {'not_measured': 'cannot write to %s: %s' % (folder, os.strerror(error.errno or 0))}
    os.close(handle)
    try:
        return _measure(folder, path)
    except (IOError, OSError) as error:
        return {'not_measured': '%s: %s' % (folder, os.strerror(error.errno or 0))}
    finally:
        os.unlink(path)


def _measure(folder, path):
    handle, direct = _open(path)
    try:
        buffer = _aligned(BLOCK)
        written, seconds = _walk(_libc.pwrite64, handle, buffer, FILE_BYTES, flush=True)
        out = {'folder': folder, 'direct': direct, 'bytes': written, 'write_MBps': written / seconds / 1e6}
        if not direct:
            _forget(handle, written)
        read, seconds = _walk(_libc.pread64, handle, buffer, written)
        out['read_MBps'] = read / seconds / 1e6
        if not direct:
            _forget(handle, written)
        out['read_4k_per_s'] = _random(_libc.pread64, handle, buffer, written)
        out['write_4k_per_s'] = _random(_libc.pwrite64, handle, buffer, written, sync=True)
        return out
    finally:
        os.close(handle)


def _open(path):
    """Return (file descriptor, whether it bypasses the page cache). Only a write shows whether O_DIRECT works."""
    if O_DIRECT:
        try:
            handle = os.open(path, os.O_RDWR | O_DIRECT)
        except OSError:
            handle = None
        if handle is not None:
            if _libc.pwrite64(handle, _aligned(SMALL)[1], SMALL, 0) == SMALL:
                return handle, True
            os.close(handle)
    return os.open(path, os.O_RDWR), False


def _aligned(size):
    """Return (buffer, address). The address is the start of a page of memory, as O_DIRECT requires.

    Large buffers contain random bytes, because some disks compress data.
    """
    owner = ctypes.create_string_buffer(os.urandom(1 << 16) * (size >> 16) + b'\0' * (2 * SMALL), size + 2 * SMALL) if size >= 1 << 16 else \
        ctypes.create_string_buffer(size + 2 * SMALL)
    return owner, -(-ctypes.addressof(owner) // SMALL) * SMALL


def _call(operation, handle, address, size, offset):
    done = operation(handle, address, size, offset)
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done


def _walk(operation, handle, buffer, limit, flush=False):
    """Read or write the file from its start, for at most LIMIT_S seconds. Return (bytes, seconds)."""
    start, at = now(), 0
    while at < limit and now() - start < LIMIT_S:
        done = _call(operation, handle, buffer[1], min(BLOCK, limit - at), at)
        if not done:
            break
        at += done
    if flush:
        os.fsync(handle)
    return at, max(now() - start, 1e-9)


def _random(operation, handle, buffer, size, sync=False):
    """Return the number of 4 KB operations per second, done one at a time. A write counts once it has reached the disk."""
    places, start, count = random.Random(7), now(), 0
    while now() - start < RANDOM_S:
        _call(operation, handle, buffer[1], SMALL, places.randrange(size // SMALL) * SMALL)
        if sync:
            os.fdatasync(handle)
        count += 1
    return count / (now() - start)


def _forget(handle, size):
    """Ask the kernel to drop the file from its cache."""
    os.fsync(handle)
    advise = getattr(_libc, 'posix_fadvise64', None)
    if advise is not None:
        advise(ctypes.c_int(handle), ctypes.c_int64(0), ctypes.c_int64(size), ctypes.c_int(4))
