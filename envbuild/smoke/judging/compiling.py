"""COMPILE: checks that the framework can compile kernels when a program runs. Pure functions."""
from __future__ import absolute_import, division, print_function

from ..check_record import check
from . import known_errors

OPTION = 'compile'      # a row's option: `no` if its images must not contain a compiler
WITHOUT = 'this image was made without a compiler on purpose (options: {compile: "no"} in its matrix row)'


def is_left_out(options):
    """Whether the image is meant to have no compiler."""
    return options.get(OPTION) == 'no'


def left_out():
    """The check COMPILE of an image without a compiler."""
    return [check('COMPILE', None, 'skip', 'does not apply: ' + WITHOUT)]


def checks(n, found):
    """The check COMPILE of one launch; `found` is the result of rank.compiling."""
    if not found:
        return []
    if 'skip' in found:
        return [check('COMPILE', n, 'skip', 'does not apply: ' + found['skip'])]
    if 'error' in found:
        known, remedy = known_errors.cause(found['error'])
        cause = ' and '.join(found['absent']) or ('%s (%s)' % (known, _first_line(found['error'])) if known else _first_line(found['error']))
        return [check('COMPILE', n, 'fail', 'a small function cannot be compiled: ' + cause, detail=found, unit='s',
                      next_step='Install what is missing, or build the image again: the recipe installs it unless the '
                                'matrix row has options: {compile: "no"}.' if found['absent'] else remedy or 'The report contains the whole error.')]
    tasks = found['tasks']
    wrong = [task for task in tasks if not task['right']]
    if wrong or not tasks:
        words = '%s gives a wrong result: %s' % (wrong[0]['what'], wrong[0]['detail']) if wrong else 'nothing was compiled'
        return [check('COMPILE', n, 'fail', words, detail=found, next_step=('Run the same package on another machine and '
                                                                            'compare.'))]
    words = 'compiled, with the right result: %s' % ', '.join('%s (%s)' % (task['what'], task['detail']) for task in tasks)
    return [check('COMPILE', n, 'pass', words, value=round(found['seconds'], 3), unit='s', detail=found)]


def _first_line(text):
    """The first line of an error; with the next one if it only announces it, as in "backend='inductor' raised:"."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [text]
    return ' '.join(lines[:2] if lines[0].endswith(':') else lines[:1])[:300]
