"""Decides which of envbuild's own pins apply if several builds share the CUDA vendor's packages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envbuild.matrix.package_pins import Pin, contradiction, own_pins, pins_of
from envbuild.matrix.types import Requirement
from envbuild.matrix.versions import numbers
from envbuild.resolve.search.build import Build
from envbuild.resolve.search.compatibility import share_packages


def choices_of(build: Build, beside: Sequence[Build]) -> tuple[Requirement, ...]:
    """The pins of envbuild's own (``choices``) that a build keeps if it shares a prefix with the builds ``beside`` it.

    If one of the other builds has no such pins, its metadata pins all packages, and ``build`` keeps none of its own pins.
    Otherwise ``build`` keeps the pins that contradict neither the requirements of the other builds nor the pins of a build for
    a newer CUDA.
    """
    if not build.variant.choices:
        return ()
    others = [each for each in beside if each != build and share_packages(build, each)]
    if any(not each.variant.choices for each in others):
        return ()
    asked = {pin for each in others for pin in pins_of(each.release, each.variant)}
    for each in sorted((build, *others), key=_newness, reverse=True):
        kept = tuple(_compatible(each.variant.choices, each.variant.python[-1], asked))
        if each == build:
            return kept
        asked |= own_pins(kept)
    return ()


def _compatible(choices: Sequence[Requirement], python: str, asked: set[Pin]) -> Iterator[Requirement]:
    for choice in choices:
        if not contradiction(asked | own_pins((choice,)), python):
            yield choice


def _newness(build: Build) -> tuple[object, ...]:
    return numbers(build.variant.cuda), build.framework.name
