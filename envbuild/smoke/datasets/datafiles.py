"""Finds the published files of MNIST and CIFAR-10 in a folder, verifies their checksums, and reads them.

Known forms: MNIST as IDX files (raw or .gz) or Keras's mnist.npz; CIFAR-10 as binary or Python batches, or the .tar.gz of
either. Names, sizes and checksums are in datasets.json. A file is parsed or unpickled only after its checksum was verified.
"""
from __future__ import absolute_import, division, print_function

import codecs
import gzip
import hashlib
import io
import os
import pickle
import struct
import tarfile
import zlib

import numpy as np

from .. import files

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'datasets.json')
_CHUNK = 1 << 20
_IDX = ('train-images-idx3-ubyte', 'train-labels-idx1-ubyte', 't10k-images-idx3-ubyte', 't10k-labels-idx1-ubyte')
_BATCHES = tuple('data_batch_%d' % number for number in range(1, 6)) + ('test_batch',)


class Absent(Exception):
    """The folder does not exist, or it contains no file of the data set."""


class Damaged(Exception):
    """A file has the wrong checksum, or one file of a set is missing."""


def table():
    """Return the content of datasets.json, or of the file in ENVBUILD_SMOKE_DATASETS if that is set."""
    return files.read_json(os.environ.get('ENVBUILD_SMOKE_DATASETS') or TABLE)


def load(folder, dataset):
    """Read a data set from a folder. Images are uint8 NCHW, labels int64.

    Return ((images, labels) for training, (images, labels) for testing, the verified files as [{'name', 'bytes', 'md5' or
    'sha256'}]).
    """
    facts = table()[dataset]
    if not os.path.isdir(folder):
        raise Absent('the folder %s does not exist' % folder)
    for names, read in _FORMS[dataset]:
        found = dict((name, path) for name, path in ((name, _find(folder, name, facts)) for name in names) if path)
        if not found:
            continue
        missing = [name for name in names if name not in found]
        if missing:
            raise Damaged('%s exists, but %s, which must be in the same folder, does not' % (sorted(found)[0], missing[0]))
        verified = [_verify(found[name], facts['files']) for name in names]
        try:
            parts = read([found[name] for name in names])
        except (IOError, OSError, EOFError, ValueError, KeyError, zlib.error, struct.error, tarfile.TarError, pickle.PickleError) as error:
            raise Damaged('cannot read %s: %s: %s' % (os.path.basename(found[names[0]]), type(error).__name__, error))
        return parts[0], parts[1], verified
    raise Absent('%s contains no %s; supported data sets: %s' % (folder, facts['title'], ', '.join(sorted(facts['files']))))


def has_any(folder):
    """Whether a folder contains at least one file of MNIST or of CIFAR-10."""
    known = table()
    return any(_find(folder, name, known[dataset]) for dataset, forms in _FORMS.items() for names, _ in forms for name in names)


def _find(folder, name, facts):
    """Return the path of a file or of its .gz, in one of the data set's usual folders below `folder`; '' if there is none."""
    for below in facts['folders']:
        for ending in ('', '.gz'):
            path = os.path.join(folder, *(below.split('/') + [name + ending]))
            if name + ending in facts['files'] and os.path.isfile(path):
                return path
    return ''


def _verify(path, known):
    """Return the name, size and checksum of a file. Raises Damaged if they are not those of the published file."""
    name, size = os.path.basename(path), os.path.getsize(path)
    fact = known[name]
    if size != fact.get('bytes', size):
        raise Damaged('%s has %d bytes instead of %d: it is incomplete, or another file' % (name, size, fact['bytes']))
    kind = 'sha256' if 'sha256' in fact else 'md5'
    got = _digest(path, kind)
    if got != fact[kind]:
        raise Damaged('%s has the %s %s instead of %s: it is damaged, or another file' % (name, kind.upper(), got, fact[kind]))
    return {'name': name, 'bytes': size, kind: got}


def _digest(path, kind):
    total = hashlib.new(kind)
    with io.open(path, 'rb') as stream:
        for piece in iter(lambda: stream.read(_CHUNK), b''):
            total.update(piece)
    return total.hexdigest()


def _content(path):
    opened = gzip.open(path, 'rb') if path.endswith('.gz') else io.open(path, 'rb')
    try:
        return opened.read()
    finally:
        opened.close()


def _idx(path):
    """Read an IDX file of unsigned bytes: two zeros, 8, the number of dimensions, the sizes as four bytes each, the numbers."""
    data = _content(path)
    zeros, kind, dimensions = struct.unpack('>HBB', data[:4])
    if zeros or kind != 8:
        raise ValueError('the file does not begin with the header of an IDX file of bytes')
    shape = struct.unpack('>%dI' % dimensions, data[4:4 + 4 * dimensions])
    return np.frombuffer(data, 'uint8', offset=4 + 4 * dimensions).reshape(shape)


def _read_idx(paths):
    arrays = [_idx(path) for path in paths]
    return _pair(arrays[0][:, None], arrays[1]), _pair(arrays[2][:, None], arrays[3])


def _read_npz(paths):
    with np.load(paths[0]) as stored:
        return tuple(_pair(stored['x_' + part][:, None], stored['y_' + part]) for part in ('train', 'test'))


def _pair(images, labels):
    images, labels = np.array(images, 'uint8'), np.array(labels, 'int64').reshape(-1)
    if len(images) != len(labels) or not len(labels) or labels.min() < 0 or labels.max() > 9:
        raise ValueError('%d images with %d labels, or labels outside 0 to 9' % (len(images), len(labels)))
    return images, labels


def _binary(data):
    """Read the binary form of CIFAR-10: records of a label and 3072 bytes."""
    records = np.frombuffer(data, 'uint8').reshape(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def _pickled(data):
    """Read the Python form of CIFAR-10: a dictionary of b'data' and b'labels', pickled by Python 2."""
    batch = _Unpickler(io.BytesIO(data), **({} if str is bytes else {'encoding': 'bytes'})).load()
    return np.asarray(batch[b'data'], 'uint8').reshape(-1, 3, 32, 32), np.asarray(batch[b'labels'])


class _Unpickler(pickle.Unpickler):
    """An unpickler that creates only arrays.

    Files are unpickled only after their checksum was verified. This class is a second safeguard.
    """

    def find_class(self, module, name):
        if (module, name) == ('_codecs', 'encode'):         # how Python 3 writes bytes for Python 2
            return codecs.encode
        if module.split('.')[0] == 'numpy' and name in ('_reconstruct', 'ndarray', 'dtype'):
            return {'ndarray': np.ndarray, 'dtype': np.dtype}.get(name) or _reconstruct()
        raise pickle.UnpicklingError('a batch file has no %s.%s' % (module, name))


def _reconstruct():
    core = getattr(np, '_core', None) or np.core
    return core.multiarray._reconstruct


def _joined(batches):
    images, labels = [np.concatenate(parts) for parts in zip(*batches[:-1])]
    return _pair(images, labels), _pair(*batches[-1])


def _read_batches(decode):
    return lambda paths: _joined([decode(_content(path)) for path in paths])


def _read_tar(ending, decode):
    def read(paths):
        with tarfile.open(paths[0], 'r:gz') as archive:
            members = dict((os.path.basename(member.name), member) for member in archive.getmembers() if member.isfile())
            return _joined([decode(archive.extractfile(members[name + ending]).read()) for name in _BATCHES])
    return read


# data set -> for each form: the names of its files, and the function that reads a list of their paths into (training pair, test
# pair)
_FORMS = {
    'mnist': ((_IDX, _read_idx), (('mnist.npz',), _read_npz)),
    'cifar10': ((tuple(name + '.bin' for name in _BATCHES), _read_batches(_binary)), (_BATCHES, _read_batches(_pickled)),
                (('cifar-10-binary.tar.gz',), _read_tar('.bin', _binary)), (('cifar-10-python.tar.gz',), _read_tar('', _pickled))),
}
