"""The verbs of envbuild, and the command lines of envbuild in texts for the user."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

# Verb → (module, one line of help). A module is imported only when its verb runs, so that every command starts fast.
VERBS: dict[str, tuple[str, str]] = {
    "init": ("init", "Write an envbuild.yaml, the description of your own environment."),
    "add": ("add", "Add packages to an envbuild.yaml and pin them."),
    "list": ("list", "List the environments of the matrix."),
    "show": ("show", "Show an environment: its versions, files and proofs."),
    "explain": ("explain", "Explain why a request gets its environment, or why it is refused."),
    "resolve": ("resolve", "Show which environment a request means."),
    "lock": ("lock", "Pin every file of an environment by hash (needs a package index)."),
    "fetch": ("fetch", "Download every file that a lock pins, and check its hash."),
    "bundle": ("bundle", "Write all files that builds need into one folder, for machines without a network."),
    "render": ("render", "Write the Dockerfile and requirements of a locked environment."),
    "build": ("build", "Build and verify the image of a locked environment."),
    "save": ("save", "Write a built image as an OCI layout or an archive."),
    "push": ("push", "Push built images to a registry."),
    "publish": ("publish", "Make images, and push them with signed statements of their contents and test results."),
    "attest": ("attest", "Attach a signed smoke report to an image in a registry."),
    "pull": ("pull", "Pull published images from a registry, or build them if the registry does not have them."),
    "run": ("run", "Run a command in the image of an environment; pull or build the image if needed."),
    "export": ("export", "Write a Compose file or a devcontainer.json for an image."),
    "registry": ("registry", "List the images of a repository in a registry, or remove images that are no longer needed."),
    "verify": ("verify", "Compare an image with its lock."),
    "linkcheck": ("linkcheck", "Check that the shared libraries of an image fit together."),
    "smoke": ("smoke", "Train a small network in an image on one and on several devices, and judge the result."),
    "data": ("data", "List or download public data sets for the smoke test."),
    "launch": ("launch", "Run the smoke test on several machines."),
    "make": ("make", "Run all stages: resolve, lock, render, build, verify, linkcheck, smoke, report."),
    "plan": ("plan", "Show which images must be made again and why, and divide the work."),
    "ci": ("ci", "Write the pipeline of a CI system."),
    "evidence": ("evidence", "Show the proofs of environments, make missing proofs, or record them."),
    "sbom": ("sbom", "Print a CycloneDX bill of materials for the packages that a lock pins."),
    "check": ("check", "Judge environments by the policy of your site."),
    "audit": ("audit", "List known vulnerabilities of the packages that a lock pins."),
    "report": ("report", "Show a stored smoke report, or compare two."),
    "doctor": ("doctor", "Show what this machine has and lacks for envbuild: engine, driver, GPUs, disk."),
    "engine": ("engine", "Start, stop or show the private container engine."),
    "cache": ("cache", "List, check or remove the layers of composed images."),
    "catalogue": ("catalogue", "Write a static site about all environments of the checkout."),
    "matrix": ("matrix", "Show, check and update the compatibility matrix."),
    "bake": ("bake", "Write the build file of many images for docker buildx bake."),
    "update": ("update", "Add new releases and renew locks, as one git branch with the text of a pull request."),
    "completion": ("completion", "Print the completion script for your shell."),
}
# A command line of envbuild in a text follows a backtick, a colon, or another command. A mention of --help names no command.
_COMMAND = re.compile(rf"(?:(?<=`)|(?<=: )|(?<=&& ))envbuild (?=(?:{'|'.join(VERBS)})\b)(?![a-z ]*--help)")

_FILES = ("text", "script")  # the fields of JSON documents with the text of a file


def with_options(text: str, words: Sequence[str]) -> str:
    """Return ``text`` with the options ``words`` in each command line of envbuild, so that the user can copy this command.

    A command line that already has options before its verb is not changed.
    """
    if not words or "envbuild " not in text:
        return text
    return _COMMAND.sub(lambda _found: f"envbuild {shlex.join(words)} ", text)


def with_options_everywhere(value: Any, words: Sequence[str]) -> Any:
    """Return a JSON value with the options ``words`` in the command lines of its texts, as :func:`with_options` adds them.

    The texts of files, such as pipelines and job scripts, are left as they are: they may be used on another machine.
    """
    if not words:
        return value
    if isinstance(value, str):
        return with_options(value, words)
    if isinstance(value, dict):
        return {key: each if key in _FILES else with_options_everywhere(each, words) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [with_options_everywhere(each, words) for each in value]
    return value
