"""The report: one JSON object (schema envbuild-smoke/1, envbuild/schemas/smoke-report.json), and a table for people."""
from __future__ import absolute_import, division, print_function

import os
import platform

import numpy as np

from .. import stats
from ..clock import utc
from ..verdict import FAIL
from . import tables

SCHEMA = 'envbuild-smoke/1'
MEASURED = ('SPEED', 'SYNC', 'BASELINE')      # checks with lines of their own below the table


def new(options, image, found, argv, started):
    """Return a report with everything that is known before the first launch."""
    host = dict(found['host'])
    host['driver'] = host['driver'] or os.environ.get('ENVBUILD_HOST_DRIVER') or None
    return {
        'schema': SCHEMA, 'status': 'error', 'exit_code': FAIL, 'reason': '', 'notes': [],
        'mode': {'device': None, 'gpu_image': image['cuda'] is not None, 'allow_cpu': options['allow_cpu'], 'expect': options['expect']},
        'started_utc': utc(started), 'duration_s': 0.0, 'argv': argv, 'seed': options['seed'],
        'environment': {'name': image['name'], 'lock': image['lock_sha256'], 'cuda': image['cuda'], 'cudnn': image['cudnn'],
                        'nccl': image['nccl'], 'driver_min': image['driver_min']},
        'image': {'ref': os.environ.get('ENVBUILD_IMAGE', ''), 'id': os.environ.get('ENVBUILD_IMAGE_ID', '')},
        'host': host, 'variables': found['variables'], 'framework': None, 'devices': found['devices'], 'topology': found['topology'],
        'checks': [],
        'collectives': [], 'link': None, 'runs': [], 'schemes': [], 'training': [], 'data': None, 'datasets': [], 'timing': {}, 'logs': {},
        'allocator': {'variables': {}, 'set_by_test': []}, 'plain_runs': [],
    }


def empty():
    """Return an empty report, for a run that failed before `new` was called."""
    return {'schema': SCHEMA, 'status': 'error', 'exit_code': FAIL, 'reason': '', 'started_utc': utc(), 'duration_s': 0.0, 'checks': [],
            'notes': [], 'framework': None, 'collectives': [], 'link': None, 'runs': [], 'schemes': [], 'training': [], 'logs': {}}


def framework(adapter, result):
    """Return the report's section `framework`, from the result of rank 0."""
    return dict(result['framework'], adapter=os.path.basename(adapter), python=platform.python_version(), numpy=np.__version__,
                semantics=result['semantics'])


def _cell(check):
    if check is None:
        return '-'
    value = check['value']
    if check['status'] == 'skip':
        return 'skip'
    if check['id'] == 'ORACLE':
        shown = '%.0e' % value
    elif check['id'] == 'ACC':
        shown = stats.percent(value)
    else:
        shown = check['status']
    return shown if check['status'] == 'pass' else check['status'] + ' ' + (shown if shown != check['status'] else '')


def table(report):
    """A short table: checks by number of devices, speed, verdict. Plain ASCII for any locale."""
    lines = []
    made = report['framework']
    if made:
        cuda = ', CUDA %s' % made['cuda_build'] if made['cuda_build'] else ''
        lines.append('envbuild-smoke  %s %s%s, Python %s, NumPy %s' % (made['name'], made['version'], cuda, made['python'], made['numpy']))
    counts = sorted(set(check['n'] for check in report['checks'] if check['n']))
    if counts:
        kind = 'CPU worker' if report['mode']['device'] == 'cpu' else 'GPU'
        lines.append('%-14s' % 'check' + ''.join('%18s' % ('%d %s%s' % (n, kind, 's' if n > 1 else '')) for n in counts))
        keys = []
        for check in report['checks']:
            key = check['id'], check.get('workload', '')
            if check['n'] and key not in keys and check['id'] not in MEASURED:
                keys.append(key)
        for key in keys:
            cells = [next((c for c in report['checks'] if (c['id'], c.get('workload', '')) == key and c['n'] == n), None) for n in counts]
            lines.append('%-14s' % ' '.join(key).lower() + ''.join('%18s' % _cell(cell).strip() for cell in cells))
    lines += tables.measured(report)
    lines += ['%s %s: %s' % (check['status'], check['id'], check['message']) + (' -> ' + check['next_step'] if check['next_step'] else '')
              for check in report['checks'] if check['status'] in ('fail', 'warn', 'inconclusive')]
    lines += report['notes'] + ([report['reason']] if report['status'] == 'error' and report['reason'] else [])
    warnings = sum(1 for check in report['checks'] if check['status'] == 'warn')
    lines.append('%s in %.0f s%s' % (report['status'].upper(), report['duration_s'], ', %d warning%s' % (
        warnings, '' if warnings == 1 else 's') if warnings else ''))
    return lines
