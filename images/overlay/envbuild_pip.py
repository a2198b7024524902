"""The image's pip: installs packages into a separate folder and leaves the locked packages as they are.

`python -m pip` runs `main`. The locked packages belong to root, and `verify` compares them with the lock. Packages that a user
installs go into another folder (see envbuild_overlay). A locked package is replaced only if the user names it. Runs on Python
2.7 and 3.5+, with nothing but the standard library and the pip in this folder.
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
ELSEWHERE = ("--target", "-t", "--prefix", "--root")  # with these, the user has chosen another folder
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
            ours.append("--use-feature=2020-resolver")  # its older resolver ignores constraints
        arguments = arguments[:at] + ours + [word for word in arguments[at:] if word != "--user"]
        if is_first:
            _say("installing into %s, above the locked packages of %s" % (folder, overlay.name))
    if folder is not None:
        # pip neither replaces nor removes packages outside of sys.prefix.
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
        "pip: cannot write to any folder for additional packages: tried %s.\n"
        "Mount a work folder that you may write to and run as its owner: docker run --user $(id -u):$(id -g) -v $PWD:/workspace ...; "
        "or name a folder: -e %s=FOLDER." % (", ".join(overlay.candidates()) or "none, as %s is off" % overlay.OVERRIDE, overlay.OVERRIDE)
    )


def _locked():
    """Return {canonical name: version} of the packages that the lock pins in this prefix."""
    with open(LOCK) as stream:
        lock = json.load(stream)
    artifacts = next((each["artifacts"] for each in lock["prefixes"] if each["name"] == overlay.prefix), ())
    return {str(one["name"]): str(one["version"]) for one in artifacts}


def _constraints(arguments):
    """Write a constraints file with every locked package except those that `arguments` name; return its path."""
    named = set(_named(arguments))
    with tempfile.NamedTemporaryFile("w", prefix="locked-", suffix=".txt", delete=False) as stream:
        for name, version in sorted(_locked().items()):
            if name not in named:
                stream.write("%s==%s\n" % (name, version))
    return stream.name


def _named(arguments):
    """Yield the canonical names of the packages on the command line and in its requirements files."""
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
        return []  # pip will report the problem


def _project(requirement):
    file = os.path.basename(requirement.rstrip("/"))
    text = file.split("-")[0] if file.endswith(".whl") else requirement
    found = NAME.match(text)
    return canonical(found.group(0)) if found else ""


def canonical(name):
    """Return the name in the form in which indexes compare names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _tell_hidden(folder):
    """Say which locked packages are hidden by added ones."""
    locked = _locked()
    for name, version in sorted(_added(folder)):
        if name in locked and locked[name] != version:
            _say(
                "%s %s is used instead of the locked %s; to return to it: pip uninstall %s"
                % (name, version, locked[name], name)
            )


def _added(folder):
    """Yield the canonical name and the version of each package in `folder`."""
    site = overlay.site_packages(folder)
    for entry in os.listdir(site) if os.path.isdir(site) else ():
        found = re.match(r"([^-]+)-([^-]+)(-py[0-9.]+)?\.(dist|egg)-info$", entry)
        if found:
            yield canonical(found.group(1)), found.group(2)


def _prepare(folder):
    """Make `folder` look like a virtual environment to pip, and make git ignore it."""
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
