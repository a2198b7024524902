"""The image's pip: installs above the locked packages, which stay as they are.

`python -m pip` runs `main`. The locked packages belong to root and are compared with the lock; what a user installs goes into a
folder of the user's (see envbuild_overlay). A locked version changes only where the user names its package. Runs on Python 2.7 and
3.5+, with nothing but the standard library and the pip beside this file.
"""

from __future__ import print_function

import json
import os
import re
import shutil
import sys
import tempfile

import envbuild_overlay as overlay

LOCK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lock.json")
ELSEWHERE = ("--target", "-t", "--prefix", "--root")  # who says where to install knows why
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def main():
    """Run pip with this process's arguments and end with its exit code."""
    from pip._internal.cli.main import main as pip

    arguments = sys.argv[1:]
    command = next((word for word in arguments if not word.startswith("-")), "")
    elsewhere = any(word.split("=")[0] in ELSEWHERE for word in arguments)
    folder = None if elsewhere else overlay.existing()
    constraints = ""
    if command == "install" and not elsewhere:
        is_first = folder is None
        folder = overlay.writable()
        if folder is None:
            sys.exit(_nowhere())
        _prepare(folder)
        constraints = _constraints(arguments)
        at = arguments.index(command) + 1
        ours = ["--prefix", folder, "--constraint", constraints, "--no-warn-script-location"]
        if sys.version_info[0] == 2:
            ours.append("--use-feature=2020-resolver")  # its older resolver does not refuse what contradicts a constraint
        arguments = arguments[:at] + ours + [word for word in arguments[at:] if word != "--user"]
        if is_first:
            _say("installing into %s, above the locked packages of %s" % (folder, overlay.name))
    if folder is not None:
        # What lies outside of sys.prefix pip neither replaces nor removes.
        sys.prefix = folder
    os.environ.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    try:
        code = pip(arguments)
    finally:
        if constraints:
            os.unlink(constraints)
    if constraints and code:
        _say("locked packages keep their versions unless you name them: pip install PACKAGE OTHER")
    elif constraints:
        _tell_hidden(folder)
    sys.exit(code)


def _nowhere():
    return (
        "pip: no folder for additional packages can be written to: tried %s.\n"
        "Mount a work folder that you may write to and run as its owner: docker run --user $(id -u):$(id -g) -v $PWD:/workspace ...; "
        "or name a folder: -e %s=FOLDER." % (", ".join(overlay.candidates()) or "none, as %s is off" % overlay.OVERRIDE, overlay.OVERRIDE)
    )


def _locked():
    """Version by canonical name of what the lock pins in this prefix."""
    with open(LOCK) as stream:
        lock = json.load(stream)
    artifacts = next((each["artifacts"] for each in lock["prefixes"] if each["name"] == overlay.prefix), ())
    return {str(one["name"]): str(one["version"]) for one in artifacts}


def _constraints(arguments):
    """A file that holds every locked package at its version, but for those that `arguments` name."""
    named = set(_named(arguments))
    with tempfile.NamedTemporaryFile("w", prefix="locked-", suffix=".txt", delete=False) as stream:
        for name, version in sorted(_locked().items()):
            if name not in named:
                stream.write("%s==%s\n" % (name, version))
    return stream.name


def _named(arguments):
    """Canonical names of the packages that the command line asks for, those in files of requirements too."""
    words = iter(arguments)
    for word in words:
        if word in ("-r", "--requirement"):
            for line in _lines(next(words, "")):
                yield line
        elif word.startswith(("--requirement=", "-r")):
            for line in _lines(word.split("=", 1)[1] if "=" in word else word[2:]):
                yield line
        elif not word.startswith("-"):
            yield _project(word)


def _lines(path):
    try:
        with open(path) as stream:
            return [_project(line.strip()) for line in stream if not line.lstrip().startswith(("#", "-"))]
    except (IOError, OSError, UnicodeDecodeError):
        return []  # pip says what is wrong with it


def _project(requirement):
    file = os.path.basename(requirement.rstrip("/"))
    text = file.split("-")[0] if file.endswith(".whl") else requirement
    found = NAME.match(text)
    return canonical(found.group(0)) if found else ""


def canonical(name):
    """As indexes compare names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _tell_hidden(folder):
    """Say which locked packages the additions stand before."""
    locked = _locked()
    for name, version in sorted(_added(folder)):
        if name in locked and locked[name] != version:
            _say(
                "%s %s is used instead of the locked %s; `pip uninstall %s` brings that one back"
                % (name, version, locked[name], name)
            )


def _added(folder):
    """Canonical name and version of what is installed in `folder`."""
    site = overlay.site_packages(folder)
    for entry in os.listdir(site) if os.path.isdir(site) else ():
        found = re.match(r"([^-]+)-([^-]+)(-py[0-9.]+)?\.(dist|egg)-info$", entry)
        if found:
            yield canonical(found.group(1)), found.group(2)


def _prepare(folder):
    """Give `folder` what pip looks for in a virtual environment, and have git leave it alone."""
    settings = os.path.join(sys.prefix, "pyvenv.cfg")
    if os.path.exists(settings) and not os.path.exists(os.path.join(folder, "pyvenv.cfg")):
        shutil.copyfile(settings, os.path.join(folder, "pyvenv.cfg"))
    note = os.path.join(overlay.WORK, ".envbuild", ".gitignore")
    if folder.startswith(os.path.dirname(note)) and not os.path.exists(note):
        with open(note, "w") as stream:
            stream.write("# Written by envbuild for this machine; safe to delete.\n*\n")


def _say(text):
    print("envbuild: " + text, file=sys.stderr)


if __name__ == "__main__":
    main()
