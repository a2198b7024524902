"""The values of the options of `envbuild-smoke`. Each function returns the value of a text, or raises ArgumentTypeError."""
from __future__ import absolute_import, division, print_function

import argparse
import os

from . import sync as schemes
from .datasets import workloads as known_workloads
from .networks import nets as known_nets

LARGEST_SEED = 2 ** 31 - 1


def phases(text):
    known = ('coll', 'oracle', 'buckets', 'train', 'save', 'bench', 'compile')
    chosen = text.split(',')
    if not set(chosen) <= set(known):
        raise argparse.ArgumentTypeError('phases are %s' % ', '.join(known))
    if 'save' in chosen:
        chosen.append('train')          # saving needs a trained model
    return [phase for phase in known if phase in chosen]


def workloads(text):
    if text != 'auto' and not set(text.split(',')) <= set(known_workloads.NAMES):
        raise argparse.ArgumentTypeError('a workload must be auto, or one or more of: %s' % ', '.join(known_workloads.NAMES))
    return text


def nets(text):
    chosen = text.split(',') if text else []
    if not set(chosen) <= set(known_nets.NAMES):
        raise argparse.ArgumentTypeError('networks are %s' % ', '.join(known_nets.NAMES))
    return chosen


def scaling(text):
    chosen = text.split(',')
    if not set(chosen) <= set(('weak', 'strong')):
        raise argparse.ArgumentTypeError('the scaling must be weak, strong or weak,strong')
    return chosen


def counts(text):
    if text != 'auto' and not all(part.isdigit() and int(part) > 0 for part in text.split(',')):
        raise argparse.ArgumentTypeError('the counts must be auto, or numbers of at least 1, separated by commas')
    return text


def floors(text):
    """Parse floors such as `2:1.2,4:2.0` into {number of devices: ratio}; {} for an empty text."""
    try:
        found = {} if not text else dict((str(int(n)), float(ratio)) for n, ratio in (part.split(':') for part in text.split(',')))
    except ValueError:
        found = {'': 0.0}
    if not all(0 < ratio < float('inf') for ratio in found.values()):      # false for nan, which no speed would miss
        raise argparse.ArgumentTypeError('write DEVICES:RATIO, for example 2:1.2,4:2.0')
    return found


def sync(text):
    try:
        return schemes.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error))


def parts(text):
    chosen = text.split(',') if text else []
    if not set(chosen) <= set(('cpu', 'disk', 'network', 'gpu')):
        raise argparse.ArgumentTypeError('only these parts can be measured: cpu, disk, network, gpu')
    return chosen


def report_file(text):
    if os.path.isdir(text):
        raise argparse.ArgumentTypeError('%s is a folder: name a file in it' % text)
    return text


def _number(kind, is_right, words):
    """Return a function that turns a text into a number of this `kind`. `words` say which numbers `is_right` accepts."""
    def parse(text):
        value = kind(text)
        if not is_right(value):
            raise argparse.ArgumentTypeError('must be a number ' + words)
        return value
    parse.__name__ = 'number'       # argparse shows this name if the text is no number at all
    return parse


# All comparisons are false for nan.
positive = _number(int, lambda value: value >= 1, 'of at least 1')
any_number = _number(int, lambda value: value >= 0, 'of at least 0')
seed = _number(int, lambda value: 0 <= value <= LARGEST_SEED, 'from 0 to %d' % LARGEST_SEED)
seconds = _number(float, lambda value: 0 < value < float('inf'), 'above 0')
share = _number(float, lambda value: 0 <= value < 1, 'from 0 to below 1, for example 0.1')
accuracy = _number(float, lambda value: 0 <= value <= 1, 'from 0 to 1')
