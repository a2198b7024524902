"""Reads a report from a file, and refuses it if a field that other modules use is missing or has a wrong type."""
from __future__ import absolute_import, division, print_function

import io
import json
import re

SCHEMA = 'envbuild-smoke/1'
TEXTS, WHOLE = (type(u''), str), (int, type(2 ** 64))      # in Python 2, each has two types
LARGEST = 1e15
MISSING = object()
WHAT_TO_DO = 'Name a file that envbuild-smoke run --json has written'
# The fields that are needed, each after the field that contains it. `?` after a name: it may be missing. `[]`: each entry of a
# list. The second word names one of KINDS; `?` after it: the value may be null.
FIELDS = '''
    status                                      text
    started_utc?                                text
    environment?                                object?
    environment.name?                           text
    mode?                                       object?
    mode.device?                                text?
    host?                                       object?
    devices?                                    list?
    devices[]                                   object
    devices[].name                              text
    checks?                                     list?
    checks[]                                    object
    checks[].id                                 text
    checks[].n                                  count?
    checks[].status                             text
    checks[].message                            text
    checks[].workload?                          text
    checks[].detail                             object
    checks[].detail.sync?                       text?
    training?                                   list?
    training[]                                  object
    training[].n                                count
    training[].workload?                        text?
    training[].net?                             text?
    training[].epochs                           count
    training[].images                           count
    training[].accuracy                         number
    runs?                                       list?
    runs[]                                      object
    runs[].n                                    count
    runs[].workload                             text
    runs[].net                                  text
    runs[].scaling                              text
    runs[].precision?                           text?
    runs[].sync?                                text?
    runs[].batch_per_device                     count
    runs[].images_per_s                         object
    runs[].images_per_s.solo                    positive?
    runs[].images_per_s.dp                      positive?
    runs[].images_per_s_interval?               object?
    runs[].images_per_s_interval.solo?          object?
    runs[].images_per_s_interval.solo.lo?       number?
    runs[].images_per_s_interval.solo.hi?       number?
    runs[].images_per_s_interval.dp?            object?
    runs[].images_per_s_interval.dp.lo?         number?
    runs[].images_per_s_interval.dp.hi?         number?
    runs[].speedup                              object?
    runs[].speedup.median?                      positive?
    runs[].speedup.lo?                          number?
    runs[].speedup.hi?                          number?
    parts?                                      list?
    parts[]                                     object
    parts[].framework                           text
    parts[].report                              object?
'''
FIELDS = [tuple(line.split()) for line in FIELDS.strip().splitlines()]


def _is_number(value):
    return isinstance(value, WHOLE + (float,)) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


KINDS = {
    'text': ('a text', lambda value: isinstance(value, TEXTS)),
    'object': ('an object', lambda value: isinstance(value, dict)),
    'list': ('a list', lambda value: isinstance(value, list)),
    'number': ('a number', _is_number),
    'positive': ('a number above 0', lambda value: _is_number(value) and value > 0),
    'count': ('a whole number of at least 1', lambda value: _is_number(value) and isinstance(value, WHOLE) and value >= 1),
}


class Unreadable(Exception):
    """A file has no report that can be used. The message names the file, what is wrong, and what to do."""


def read(path, framework='', whole=False):
    """Return the report in a file. Raises Unreadable.

    If the report covers several frameworks, return only the report of `framework`, unless `whole` is true.
    """
    try:
        with io.open(path, 'rb') as stream:
            text = stream.read().decode('utf-8')
    except (IOError, OSError) as error:
        raise Unreadable('the report %s cannot be read: %s. %s' % (path, error.strerror or error, WHAT_TO_DO))
    except ValueError:
        raise Unreadable('the report %s is not JSON, because it is not in UTF-8. %s' % (path, WHAT_TO_DO))
    report = _parsed(path, text)
    if not isinstance(report, dict) or report.get('schema') != SCHEMA:
        raise Unreadable('%s is not a report of envbuild-smoke run. %s' % (path, WHAT_TO_DO))
    _refuse_damaged(path, report, '')
    for number, part in enumerate(report.get('parts') or ()):
        if part['report']:
            _refuse_damaged(path, part['report'], 'parts[%d].report.' % number)
    if not report.get('parts') or whole:
        return report
    found = [part['report'] for part in report['parts'] if part['framework'] == framework and part['report']]
    if not found:
        raise Unreadable('%s has no report of %s' % (path, framework or 'a single framework: choose one with --framework'))
    return found[0]


def _parsed(path, text):
    try:
        return json.loads(text, parse_constant=_no_number)
    except ValueError as error:
        raise Unreadable('the report %s is not JSON: %s. %s' % (path, error, WHAT_TO_DO))
    except RuntimeError:            # Python's limit of nested calls
        raise Unreadable('the report %s is not JSON that can be read: its values are nested too deeply. %s' % (path, WHAT_TO_DO))


def _no_number(word):
    raise ValueError('%s is no number of JSON' % word)


def _refuse_damaged(path, report, prefix):
    problem = damage(report)
    if problem:
        raise Unreadable('the report %s is damaged: its field %s%s. Make the report again with envbuild-smoke run --json' % (path, prefix, problem))


def damage(report):
    """Return the first field of a report (a dictionary) that is missing or has a wrong value, and what it must be; or ''."""
    for path, kind in FIELDS:
        words, is_right = KINDS[kind.rstrip('?')]
        may_be_null = kind.endswith('?')
        for place, value in _values(report, path.rstrip('?')):
            if value is MISSING and not path.endswith('?'):
                return '%s is missing' % place
            if not (value is MISSING or is_right(value) or (value is None and may_be_null)):
                return '%s must be %s%s' % (place, words, ' or null' if may_be_null else '')
    return ''


def _values(report, path):
    """Return [(place in words, value)] for each place that a path means. A place inside a missing or null value is left out."""
    found = [('', report)]
    for step in re.findall(r'\w+|\[\]', path):
        there = [(place, value) for place, value in found if value is not MISSING and value is not None]
        if step == '[]':
            found = [('%s[%d]' % (place, number), value) for place, values in there for number, value in enumerate(values)]
        else:
            found = [(place + '.' * bool(place) + step, values.get(step, MISSING)) for place, values in there]
    return found
