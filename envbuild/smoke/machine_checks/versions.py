"""Parses versions of libraries and frameworks."""
from __future__ import absolute_import, division, print_function

import re


def numbers(version):
    """'9.0.176' -> [9, 0, 176]; parsing stops at the first part that is no number."""
    out = []
    for part in version.split('.'):
        if not part.isdigit():
            break
        out.append(int(part))
    return out


def release(version):
    """Remove the suffixes that packages add to a framework's version: 2.13.0+cpu, 1.5.1.post0, 2.4.0-rc1."""
    return re.sub(r'\.post\d+$', '', version.split('+')[0]).replace('-', '')
