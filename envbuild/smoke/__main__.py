"""The entry point of `python /opt/envbuild/smoke VERB`: makes this folder importable only as the package `envbuild_smoke`.

Python puts the folder of a script first on sys.path. Then our modules, such as `image` and `stats`, would hide modules of the
same name that a framework imports. So this module removes the folder from sys.path and adds the package to sys.modules
itself.
"""
from __future__ import absolute_import, division, print_function

import os
import sys
import types

NAME = 'envbuild_smoke'
HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != HERE]
    package = types.ModuleType(NAME)
    package.__path__ = [HERE]
    package.__file__ = os.path.join(HERE, '__init__.py')
    sys.modules[NAME] = package
    if sys.argv[1:2] in (['worker'], ['gpus']):         # their output is a log, and the framework may replace the streams
        return _call()
    return __import__(NAME + '.streams', fromlist=['guarded']).guarded(_call)


def _call():
    if sys.argv[1:2] != ['probe']:
        # The reference network is small. BLAS threads do not make it faster, and on a busy machine they can spin for minutes.
        # Each rank gets its own number of threads later, from its plan.
        os.environ.setdefault('OPENBLAS_NUM_THREADS', '1')
    try:
        import numpy  # noqa: F401
    except Exception as error:      # a NumPy built for another processor or Python can raise any exception
        hidden = _hidden()
        sys.stderr.write('envbuild-smoke: %s cannot import NumPy: %s: %s\n%s.\n' % (
            sys.executable, type(error).__name__, error, hidden or ('Every framework of this image needs NumPy. Build the '
                                                                    'image again')))
        return 1
    try:
        return __import__(NAME + '.cli', fromlist=['main']).main(sys.argv[1:])
    except Exception as error:
        hidden = _hidden()
        if not hidden:
            raise
        sys.stderr.write('envbuild-smoke: %s: %s\n%s.\n' % (type(error).__name__, error, hidden))
        return 1


def _hidden():
    """Return a sentence about a file that hides another module, or ''. The import error itself does not name the cause then."""
    try:
        import traceback
        text = traceback.format_exc()
    except Exception:                   # the module traceback itself may be hidden
        text = ''
    shadows = __import__(NAME + '.shadows', fromlist=['found'])
    return shadows.words(shadows.found(text))


if __name__ == '__main__':
    sys.exit(main())
