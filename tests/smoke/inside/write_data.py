"""Write small files in the formats of MNIST and CIFAR-10, and a table of their checksums: write_data.py FOLDER.

Tests also import it as a module.
"""
from __future__ import absolute_import, division, print_function

import gzip
import hashlib
import io
import json
import os
import pickle
import struct
import sys
import tarfile

import boot  # noqa: F401
import numpy as np
from envbuild_smoke.datasets import datafiles, shapes, synth

TRAIN, TEST = 1200, 200


def mnist(folder, form, train, test):
    """Write the files; `form` is raw, gz or npz."""
    if form == 'npz':
        arrays = {'x_train': train[0][:, 0], 'y_train': train[1], 'x_test': test[0][:, 0], 'y_test': test[1]}
        np.savez(os.path.join(folder, 'mnist.npz'), **arrays)
        return
    for prefix, (pictures, labels) in (('train', train), ('t10k', test)):
        for kind, array in (('images-idx3', pictures[:, 0]), ('labels-idx1', labels)):
            data = struct.pack('>HBB', 0, 8, array.ndim) + struct.pack('>%dI' % array.ndim, *array.shape) + array.astype('uint8').tobytes()
            path = os.path.join(folder, '%s-%s-ubyte' % (prefix, kind))
            with gzip.open(path + '.gz', 'wb') if form == 'gz' else io.open(path, 'wb') as stream:
                stream.write(data)


def cifar(folder, form, train, test):
    """Write the files; `form` is bin, py, bin.tar or py.tar."""
    ending, encode = ('.bin', _binary) if form.startswith('bin') else ('', _pickled)
    parts = [(train[0][k::5], train[1][k::5]) for k in range(5)] + [test]
    files = dict((name + ending, encode(*part)) for name, part in zip(datafiles._BATCHES, parts))
    if not form.endswith('.tar'):
        for name, data in files.items():
            with io.open(os.path.join(folder, name), 'wb') as stream:
                stream.write(data)
        return
    with tarfile.open(os.path.join(folder, 'cifar-10-%s.tar.gz' % ('binary' if ending else 'python')), 'w:gz') as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo('cifar-10-batches/' + name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def _binary(pictures, labels):
    return np.concatenate([labels[:, None].astype('uint8'), pictures.reshape(len(labels), -1)], axis=1).tobytes()


def _pickled(pictures, labels):
    return pickle.dumps({b'data': pictures.reshape(len(labels), -1), b'labels': [int(label) for label in labels]}, 2)


def table(folder):
    """Write the table of the files in the folder beside the folder; return its path."""
    facts = datafiles.files.read_json(datafiles.TABLE)
    for dataset in facts.values():
        present = [name for name in dataset['files'] if os.path.exists(os.path.join(folder, name))]
        dataset['files'] = dict((name, _fact(os.path.join(folder, name), dataset['files'][name])) for name in present)
    path = folder.rstrip('/') + '.json'
    with io.open(path, 'wb') as stream:
        stream.write(json.dumps(facts).encode('ascii'))
    return path


def _fact(path, public):
    with io.open(path, 'rb') as stream:
        data = stream.read()
    kinds = [kind for kind in ('sha256', 'md5') if kind in public]
    return dict([(kind, hashlib.new(kind, data).hexdigest()) for kind in kinds], bytes=len(data))


if __name__ == '__main__':
    mnist(sys.argv[1], 'gz', synth.digits(TRAIN, 1), synth.digits(TEST, 2))
    cifar(sys.argv[1], 'py', shapes.shapes(TRAIN, 1), shapes.shapes(TEST, 2))
    print(table(sys.argv[1]))
