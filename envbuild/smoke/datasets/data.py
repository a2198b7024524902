"""Prepares the data of a run. The parent process generates or reads it once, and saves it in files that the ranks read.

The reference phases and the measurements of speed always use generated images, so that their results mean the same on every
machine. Training uses the public data set if its files are in the data folder. Else it uses generated images of the same size.
A damaged file is a failure: generated images never silently replace it.
"""
from __future__ import absolute_import, division, print_function

import os

import numpy as np

from ..check_record import check
from . import datafiles, synth

MOUNTED = '/data'
BENCH_IMAGES = 2048         # at most this many images are made to measure speed, unless two global batches need more
SUBSET_SEED = 0             # selects a part of a public data set: the same part in every run, whatever the run's seed


class Unusable(Exception):
    """There is no data to train on; `made` is the failed check for the report."""

    def __init__(self, made):
        Exception.__init__(self, made['message'])
        self.made = made


class Prepared(object):
    """The data of one run. `oracle` has the arrays on which the reference network trains; `entries` and `checks` are for the
    report.

    `places` says where the files are, for the plan: {'oracle': place, workload: {'train': place, 'test': place, 'bench':
    place}}, where a place is {'images': path, 'labels': path}. Creating it raises Unusable if there is no data to train on.
    """

    def __init__(self, options, parts, folder, batches, largest):
        self._folder, self._seed = folder, options['seed']
        self.places, self.entries, self.checks, self.oracle = {}, [], [], None
        if set(('oracle', 'buckets')) & set(options['phases']):
            self.oracle = synth.digits(batches, self._seed + 100)
            self.places['oracle'] = self._keep('oracle', *self.oracle)
        for part in parts:
            self.places[part.name] = places = {}
            if 'train' in options['phases']:
                train, test, entry, made = _for_training(part, options, self._seed)
                self.entries.append(entry)
                self.checks += made
                for kind, pair in (('train', train), ('test', test)):
                    places[kind] = self._keep('%s-%s' % (part.name, kind), *pair)
            if 'bench' in options['phases']:
                pair = part.workload.generate(_enough(largest * part.batch), self._seed + 400)
                places['bench'] = self._keep('%s-bench' % part.name, *pair)

    def _keep(self, name, pictures, labels):
        place = dict((kind, os.path.join(self._folder, '%s-%s.npy' % (name, kind))) for kind in ('images', 'labels'))
        np.save(place['images'], pictures)
        np.save(place['labels'], labels)
        return place


def _enough(batch):
    """Return the number of images for measuring speed: eight global batches, at most BENCH_IMAGES, but at least two batches."""
    return max(2 * batch, min(8 * batch, BENCH_IMAGES))


def _for_training(part, options, seed):
    """Return (training pair, test pair, entry for the report, checks) of one workload; a pair is (images, labels).

    Raises Unusable if files are damaged, or if the user asked for this data set and its files are missing.
    """
    asked, folder = options['data'], options['data'] or (MOUNTED if os.path.isdir(MOUNTED) else '')
    made = []
    if folder:
        try:
            return _public(part, folder)
        except datafiles.Damaged as error:
            raise Unusable(_check(part, 'fail', '%s: %s' % (folder, error), next_step=(
                'Download the files again with `envbuild data fetch %s`. Without --data and a mount at %s, images are generated.' % (part.workload.dataset, MOUNTED))))
        except datafiles.Absent as error:
            if asked and (options['workload'] != 'auto' or not datafiles.has_any(folder)):
                raise Unusable(_check(part, 'fail', str(error), next_step=('Download the files with `envbuild data fetch '
                                                                           '%s`, or leave out --data.') % (
                    part.workload.dataset)))
            if asked:
                made = [_check(part, 'skip', '%s: generated images are used' % error)]
    train = part.workload.generate(part.train_images, seed + 200)
    test = part.workload.generate(part.test_images, seed + 300)
    return train, test, _entry(part, part.workload.generated, 'generated', train, test, []), made


def _public(part, folder):
    train, test, verified = datafiles.load(folder, part.workload.dataset)
    train, test = _some(train, part.train_images), _some(test, part.test_images)
    entry = _entry(part, datafiles.table()[part.workload.dataset]['title'], folder, train, test, verified)
    return train, test, entry, [_check(part, 'pass', '%s: %s verified' % (entry['name'], ', '.join(
        '%s (%s)' % (each['name'], 'SHA-256' if 'sha256' in each else 'MD5') for each in verified)), detail={'files': verified})]


def _some(pair, count):
    """Return `count` of the images, the same ones in every run; all images if there are fewer."""
    images, labels = pair
    if count >= len(labels):
        return pair
    chosen = synth.order(len(labels), SUBSET_SEED)[:count]
    return images[chosen], labels[chosen]


def _entry(part, name, source, train, test, verified):
    return {'workload': part.name, 'name': name, 'source': source, 'n_train': len(train[1]), 'n_test': len(test[1]),
            'sha256': synth.digest(*(train + test)), 'files': verified}


def _check(part, status, message, **more):
    return dict(check('DATA', None, status, message, **more), workload=part.name)

