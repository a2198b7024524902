"""Finds files that hide a module of Python or of an installed package.

For example, a `random.py` in a folder of PYTHONPATH breaks every package that imports `random`. This module imports only os and
sys, because any other module may be the hidden one.
"""
from __future__ import absolute_import, division, print_function

import os
import sys


def found(text=''):
    """Return [[module, path]] of the files that hide a module, if they were imported or if `text` (a traceback) names them."""
    standard = _standard_folders()
    out = []
    for place, entry in enumerate(sys.path):
        folder = os.path.abspath(entry or os.curdir)
        if folder in standard or os.path.realpath(folder) in standard or '-packages' in folder or not os.path.isdir(folder):
            continue
        for name in sorted(os.listdir(folder)):
            path = _module_at(folder, name)
            module = name[:-3] if name.endswith('.py') else name
            later = [other for other in sys.path[place + 1:] if os.path.abspath(other or os.curdir) != folder]
            if path and (_is_standard(module, standard) or _is_there(module, later)) and (_is_imported(module, path) or path in text):
                out.append([module, path])
    return out


def words(shadows):
    """Return a sentence about the first of `shadows`; '' if there is none."""
    if not shadows:
        return ''
    return '%s hides the module %s that other programs import: rename the file, or remove its folder from PYTHONPATH' % (shadows[0][1], shadows[0][0])


def _standard_folders():
    own = os.path.dirname(os.path.abspath(os.__file__))
    name = 'python%d.%d' % sys.version_info[:2]
    return set([own, os.path.dirname(os.path.realpath(os.__file__))] + [
        entry for entry in sys.path if os.path.basename(entry) in (name, 'lib-dynload') or entry.endswith('.zip')])


def _module_at(folder, name):
    """Return the file of the module or package that the entry `name` of a folder holds; '' if it holds none."""
    path = os.path.join(folder, name)
    if name.endswith('.py'):
        return path
    inside = os.path.join(path, '__init__.py')
    return inside if os.path.isfile(inside) else ''


def _is_standard(module, folders):
    return module in sys.builtin_module_names or module in getattr(sys, 'stdlib_module_names', ()) or _is_there(module, folders)


def _is_there(module, folders):
    return any(os.path.isfile(os.path.join(folder, module + '.py')) or os.path.isfile(os.path.join(folder, module, '__init__.py'))
               for folder in folders)


def _is_imported(module, path):
    origin = getattr(sys.modules.get(module), '__file__', None) or ''
    return os.path.abspath(origin).replace('.pyc', '.py') == path
