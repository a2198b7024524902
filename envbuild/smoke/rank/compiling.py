"""Phase `compile`: lets the framework compile a small function at run time, runs it, and compares the result with NumPy."""
from __future__ import absolute_import, division, print_function

import os
import sysconfig
import threading

from ..clock import now, pause

LONGEST_S = 300         # a C++ compiler on a busy machine takes a minute; a compilation that takes longer than this is a hang


def measure(session):
    """Compile on rank 0; other ranks return {}.

    The result has `tasks` (as from exercise()), or `skip` (why this does not apply), or `error` and what the image lacks
    (`absent`).
    """
    adapter = session.adapter
    if session.ctx.rank:
        return {}
    start, over = now(), threading.Event()
    thread = threading.Thread(target=_beat, args=(session.heart, over))
    thread.daemon = True
    thread.start()
    try:
        found = {'tasks': adapter.compile_and_run()}
    except NotImplementedError as error:
        found = {'skip': str(error)}
    except Exception as error:  # any exception of the compiler is the result
        found = {'error': '%s: %s' % (type(error).__name__, error), 'absent': absent(getattr(adapter, 'compile_needs', ()))}
    finally:
        over.set()
        thread.join()
    return dict(found, seconds=now() - start)


def _beat(heart, over):
    """Send heartbeats while the compiler runs, because it prints nothing; stop after LONGEST_S, so that a hang is noticed."""
    until = now() + LONGEST_S
    while now() < until and not over.is_set():
        heart.beat()
        pause(0.2)         # not Event.wait, which on Python 2.7 depends on the time of day


def absent(needs):
    """List what compiling needs and the image lacks."""
    return [words for name, words in ((name, CHECKS[name]()) for name in needs) if words]


def _compiler():
    name = os.environ.get('CXX') or 'g++'
    places = [name] if os.sep in name else [os.path.join(folder, name) for folder in os.environ.get('PATH', '').split(os.pathsep)]
    return '' if any(os.access(place, os.X_OK) for place in places) else 'the image has no C++ compiler (%s)' % name


def _headers():
    folder = sysconfig.get_paths()['include']
    return '' if os.path.exists(os.path.join(folder, 'Python.h')) else 'the folder %s has no Python.h' % folder


def _setuptools():
    try:
        __import__('setuptools')
    except ImportError:
        return 'setuptools is not installed'
    return ''


def _cuda_headers():
    """Look for CUDA's headers in the toolkit's folder and in NVIDIA's wheels; return what is missing, or ''."""
    import numpy
    site = os.path.dirname(os.path.dirname(os.path.abspath(numpy.__file__)))
    wheels = os.path.join(site, 'nvidia')
    folders = [os.path.join(os.environ.get('CUDA_PATH') or '/usr/local/cuda', 'include')]
    folders += [os.path.join(wheels, name, 'include') for name in (os.listdir(wheels) if os.path.isdir(wheels) else ())]
    if any(os.path.exists(os.path.join(folder, 'cuda_fp16.h')) for folder in folders):
        return ''
    return 'the headers of the CUDA runtime are missing (cuda_fp16.h)'


CHECKS = {'compiler': _compiler, 'headers': _headers, 'setuptools': _setuptools, 'cuda headers': _cuda_headers}
