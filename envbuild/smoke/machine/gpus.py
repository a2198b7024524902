"""Measures the GPUs in a separate process, because a measurement may hang or crash.

The measurements also make contexts on the GPUs. This process must not have any.
"""
from __future__ import absolute_import, division, print_function

import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile

from .. import files
from ..clock import now, pause

POLL_S, SAY_S = 0.1, 2.0
STALL_S = 60                # seconds without progress after which the process is killed; making the first context may take long


def measure(found, say):
    """Return {'devices': [figures], 'pairs': [figures]} of all GPUs, or {'not_measured': reason}."""
    answer = ask(('rates', 'peers'), len(found['devices']), STALL_S, say)
    if answer['problem'] or len(answer['devices']) < len(found['devices']):
        return {'not_measured': answer['problem'] or 'the measuring process ended early'}
    return {'devices': answer['devices'], 'pairs': answer['pairs']}


def ask(wanted, count, stall, say):
    """Run gpu_work and return its results. `problem` says why they are incomplete, `hung` whether the process was killed."""
    folder = tempfile.mkdtemp(prefix='envbuild-smoke-')
    try:
        path = os.path.join(folder, 'gpus.json')
        files.write_json(path, {'doing': 'loading', 'devices': [], 'pairs': [], 'problem': ''})
        code = _run([sys.executable, files.PROGRAM, 'gpus', '--out', path, '--do', ','.join(wanted), '--count', str(count)], folder, path, stall, say)
        answer = files.read_json(path)
        answer['hung'] = code is None
        if code is None:
            answer['problem'] = '%s: no result within %d s' % (answer['doing'] or 'GPUs', stall)
        elif code:
            answer['problem'] = 'the process for %s ended with status %d: %s' % (
                answer['doing'], code, files.tail(os.path.join(folder, 'log'), 300).strip())
        return answer
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(argv, folder, path, stall, say):
    """Run the process and return its exit status; None if it was killed after `stall` seconds without progress."""
    with io.open(os.path.join(folder, 'log'), 'wb') as log, io.open(os.devnull, 'rb') as nothing:
        process = subprocess.Popen(argv, stdin=nothing, stdout=log, stderr=subprocess.STDOUT, close_fds=True, preexec_fn=os.setsid)
    heard = told = now()
    doing = ''
    try:
        while process.poll() is None and now() - heard < stall:
            pause(POLL_S)
            current = files.read_json(path)['doing']
            if current != doing:
                doing, heard = current, now()
            if now() - told > SAY_S:
                told = now()
                say('GPUs: %s' % doing)
        return process.poll()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
