"""The verb `probe`: the machine, the driver, and the framework's own idea of its version and CUDA; nothing is trained."""
from __future__ import absolute_import, division, print_function

import shutil
import tempfile
import time

from . import adapters, endings, image as images, plan, probe, report
from .launch import Launch

SCHEMA = 'envbuild-smoke-probe/1'


def look(options, argv, say):
    """The answer as one JSON object; `error` says why the framework could not be asked, None if all is well."""
    found, image = probe.facts(), images.read(options['lock'], options['framework'])
    head = report.new(options, image, found, argv, time.time())
    answer = {'schema': SCHEMA, 'error': None, 'framework': None, 'cuda': found['cuda']}
    answer.update((key, head[key]) for key in ('started_utc', 'argv', 'environment', 'image', 'host', 'variables', 'devices', 'topology'))
    if options['adapter'] or image['recipe']:
        style = adapters.style_of(adapters.load(options['adapter'] or image['recipe']), 'cpu')
        say('importing the framework')
        answer['framework'], answer['error'] = _ask(options, image, style, found)
    return answer


def _ask(options, image, style, found):
    """(framework section, None) or (None, why not), from one process on the CPU that imports the framework."""
    folder = tempfile.mkdtemp(prefix='envbuild-smoke-')
    try:
        asked = plan.launch(options, image, plan.Device('cpu', 1, ''), 1, [1], style, folder, found['host']['cores_usable'])
        with Launch(asked, lambda n, monitor: None) as launch:
            outcome = launch.watch(time.time() + options['timeout'])
        if outcome.kind == 'done':
            return report.framework(asked['adapter'], outcome.results[0]), None
        return None, endings.ending(1, outcome)[-1]['message']
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def table(answer):
    """The answer as lines for people."""
    lines, made = probe.table(answer), answer['framework']
    if made:
        lines.append('%-12s %s %s (CUDA %s, cuDNN %s, NCCL %s), Python %s, NumPy %s' % (
            'framework', made['name'], made['version'], made['cuda_build'] or 'none', made['cudnn'] or 'none', made['nccl'] or 'none',
            made['python'], made['numpy']))
    return lines + (['%-12s %s' % ('framework', answer['error'])] if answer['error'] else [])
