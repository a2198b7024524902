"""Make Python find the packages that the user of the image added, before the locked ones.

A .pth file of each prefix calls `activate` at the start of every interpreter. Runs on Python 2.7 and 3.5+, with nothing but the
standard library. Like a user's site-packages, the additions are left out by `python -s`, `python -I` and PYTHONNOUSERSITE.
"""

import os
import site
import sys

WORK = "/workspace"  # usually a mounted project folder, so additions stay with the project
OVERRIDE = "ENVBUILD_PACKAGES"          # a folder of the user's choice; `off` for none

name = prefix = ""


def activate(environment, prefix_name):
    """Make the packages that were added to this prefix of `environment` come before the locked ones."""
    global name, prefix  # envbuild_pip reads them later, in the same process
    if name:
        return  # site reads the .pth files of a virtual environment twice
    name, prefix = environment, prefix_name
    if sys.flags.no_user_site or os.environ.get("PYTHONNOUSERSITE"):
        return
    ours = [os.path.join(os.path.dirname(os.path.abspath(__file__)), prefix)]  # contains only pip
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
    """Return the folders that may contain additions, preferred ones first."""
    given = os.environ.get(OVERRIDE, "")
    if given:
        return [] if given == "off" else [os.path.join(given, name, prefix)]
    bases = [os.path.join(os.path.expanduser("~"), ".local", "share", "envbuild")]
    if os.path.isdir(WORK):
        bases.insert(0, os.path.join(WORK, ".envbuild", "packages"))
    return [os.path.join(base, name, prefix) for base in bases]


def existing():
    """Return the first candidate folder that contains additions, or None."""
    return next((folder for folder in candidates() if os.path.isdir(site_packages(folder))), None)


def writable():
    """Return the folder for new additions: the existing one, else the first one that can be made, else None."""
    return existing() or next((folder for folder in candidates() if _can_write(folder)), None)


def site_packages(folder):
    """Return the site-packages folder of this Python below `folder`."""
    return os.path.join(folder, "lib", "python%d.%d" % sys.version_info[:2], "site-packages")


def _can_write(folder):
    try:
        if not os.path.isdir(folder):
            os.makedirs(folder)
    except (IOError, OSError):
        return False
    return os.access(folder, os.W_OK | os.X_OK)
