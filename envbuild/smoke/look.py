"""The verb `probe`: describes the machine, the driver, and the version and CUDA that the framework reports. It trains nothing.

With --measure it also measures how fast the machine's parts are. With --listen or --connect it measures only the network
between two machines.
"""
from __future__ import absolute_import, division, print_function

import io
import os
import shutil
import subprocess
import tempfile
import time

from . import adapters, machine, plan
from . import image as images
from .clock import now, pause
from .judging import endings
from .launching.launch import Launch
from .machine import network, probe
from .reporting import report

SCHEMA = 'envbuild-smoke-probe/1'
TOPOLOGY = ('nvidia-smi', 'topo', '-m')
TOPOLOGY_S = 20


def look(options, argv, say):
    """Return the answer as one dictionary. Its `error` says why the framework could not be imported, or is None."""
    found, image = probe.facts(), images.read(options['lock'], options['framework'])
    head = report.new(options, image, found, argv, time.time())
    answer = {'schema': SCHEMA, 'error': None, 'framework': None, 'cuda': found['cuda']}
    answer.update((key, head[key]) for key in ('started_utc', 'argv', 'environment', 'image', 'host', 'variables', 'devices', 'topology'))
    if options['listen'] or options['connect']:
        answer.update(_network(options, say))
        return answer
    answer['topology_text'] = _topology() if len(found['devices']) > 1 else ''
    if options['adapter'] or image['recipe']:
        chosen = dict(image['options'], **options['options'])
        style = adapters.style_of(adapters.load(options['adapter'] or image['recipe']), 'cpu', chosen)
        say('importing the framework')
        answer['framework'], answer['error'] = _ask(options, image, style, found)
    answer['measured'] = machine.measure(options['measure'], found, options['disk'] or tempfile.gettempdir(), say)
    return answer


def _network(options, say):
    """Run one side of a network measurement between two machines.

    Return {'network': the speeds, 'error': why they could not be measured}, with None for what does not apply. The side that
    waits measures nothing: both are None.
    """
    try:
        if options['listen']:
            listener = network.listen(options['listen'])
            say('waiting on port %d; on the other machine, start envbuild-smoke probe --connect THIS-MACHINE:%d' % ((options['listen'],) * 2))
            network.serve(listener)
            listener.close()
            return {'network': None, 'error': None}
        host, _, port = options['connect'].rpartition(':')
        if not host or not port.isdigit():
            raise plan.Refusal('--connect takes HOST:PORT')
        say('measuring the network to %s' % host)
        return {'network': dict(network.measure((host, int(port))), to=options['connect']), 'error': None}
    except network.Unreachable as error:
        return {'network': None, 'error': '%s' % error}


def _topology():
    """Return the topology as nvidia-smi prints it; '' if nvidia-smi is missing, fails or does not end in time."""
    out = tempfile.TemporaryFile()
    try:
        with io.open(os.devnull, 'r+b') as nothing:
            process = subprocess.Popen(TOPOLOGY, stdin=nothing, stdout=out, stderr=nothing, close_fds=True)
        until = now() + TOPOLOGY_S
        while process.poll() is None and now() < until:
            pause(0.05)
        if process.poll() is None:
            process.kill()
            process.wait()
        out.seek(0)
        return out.read().decode('utf-8', 'replace') if process.returncode == 0 else ''
    except OSError:
        return ''
    finally:
        out.close()


def _ask(options, image, style, found):
    """Import the framework in one process on the CPU.

    Return (framework section of the report, None) or (None, error message).
    """
    folder = tempfile.mkdtemp(prefix='envbuild-smoke-')
    try:
        asked = plan.launch(options, image, plan.Device('cpu', 1, ''), 1, [1], style, folder, found['host']['cores_usable'])
        with Launch(asked, lambda n, monitor: None) as launch:
            outcome = launch.watch(now() + options['timeout'])
        if outcome.kind == 'done':
            return report.framework(asked['adapter'], outcome.results[0]), None
        return None, endings.ending(1, outcome)[-1]['message']
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def table(answer):
    """The answer as lines for people."""
    if 'network' in answer:
        return ['%-12s %s' % ('network', network.words(answer['network']))] if answer['network'] else [answer['error'] or (
            'the other machine shows the measurements')]
    lines, made = probe.table(answer), answer['framework']
    if answer['topology_text']:
        lines += ['', 'nvidia-smi topo -m:', answer['topology_text'].rstrip(), '']
    if made:
        lines.append('%-12s %s %s (CUDA %s, cuDNN %s, NCCL %s), Python %s, NumPy %s' % (
            'framework', made['name'], made['version'], made['cuda_build'] or 'none', made['cudnn'] or 'none', made['nccl'] or 'none',
            made['python'], made['numpy']))
    return lines + machine.table(answer['measured'], answer) + (['%-12s %s' % ('framework', answer['error'])] if answer['error'] else [])
