"""Packages that the image's user added, above the locked ones: where they lie, and how every Python of the image finds them.

A .pth file of each prefix calls `activate` at the start of every interpreter. Runs on Python 2.7 and 3.5+, with nothing but the
standard library. Like a user's site-packages, the additions are left out by `python -s`, `python -I` and PYTHONNOUSERSITE.
"""

import os
import site
import sys

WORK = "/workspace"  # what lies there stays with the project, where it is mounted
OVERRIDE = "ENVBUILD_PACKAGES"          # a folder of the user's choice; `off` for none

name = prefix = ""


def activate(environment, prefix_name):
    """Make the packages that were added to this prefix of `environment` come before the locked ones."""
    global name, prefix  # the program `pip` asks for them later, in the same process
    if name:
        return  # site reads the .pth files of a virtual environment twice
    name, prefix = environment, prefix_name
    if sys.flags.no_user_site or os.environ.get("PYTHONNOUSERSITE"):
        return
    ours = [os.path.join(os.path.dirname(os.path.abspath(__file__)), prefix)]  # holds pip, and nothing else
    found = existing()
    if found:
        before = set(sys.path)
        site.addsitedir(site_packages(found))
        ours += [path for path in sys.path if path not in before]
    locked = site_packages(sys.prefix)
    rest = [path for path in sys.path if path not in ours]
    at = rest.index(locked) if locked in rest else len(rest)
    sys.path[:] = rest[:at] + ours + rest[at:]


def candidates():
    """The folders that may hold additions, best first."""
    given = os.environ.get(OVERRIDE, "")
    if given:
        return [] if given == "off" else [os.path.join(given, name, prefix)]
    bases = [os.path.join(os.path.expanduser("~"), ".local", "share", "envbuild")]
    if os.path.isdir(WORK):
        bases.insert(0, os.path.join(WORK, ".envbuild", "packages"))
    return [os.path.join(base, name, prefix) for base in bases]


def existing():
    """The first of the folders that holds additions, None where none does."""
    return next((folder for folder in candidates() if os.path.isdir(site_packages(folder))), None)


def writable():
    """Where additions go: to the ones that there are, else into the first folder that can be made now; None where none can."""
    return existing() or next((folder for folder in candidates() if _can_write(folder)), None)


def site_packages(folder):
    """The packages of this Python below `folder`."""
    return os.path.join(folder, "lib", "python%d.%d" % sys.version_info[:2], "site-packages")


def _can_write(folder):
    try:
        if not os.path.isdir(folder):
            os.makedirs(folder)
    except (IOError, OSError):
        return False
    return os.access(folder, os.W_OK | os.X_OK)
