"""Base images in names."""

from __future__ import annotations

import pytest
from real_matrix import FACTS

from envbuild.errors import EnvbuildError
from envbuild.resolve.request.bases import image_slug
from envbuild.resolve.request.parser import parse


@pytest.mark.parametrize(
    ("image", "slug"),
    [
        ("python:3.6", "python-3.6"), ("my/python:3.6-slim", "my_python-3.6--slim"), ("my-python:3.6", "my--python-3.6"),
        ("my_python:3.6", "my__python-3.6"), ("host:5000/a/b@sha256:0f", "host-5000_a_b_-sha256-0f"),
    ],
)  # fmt: skip
def test_slugs_tell_images_apart(image: str, slug: str) -> None:
    assert image_slug(image) == slug
    long = f"registry.example.org/a/b@sha256:{'0' * 64}"
    assert len(image_slug(long)) <= 60 and image_slug(long) != image_slug(long.replace("a/b", "a/c"))


@pytest.mark.parametrize(
    ("words", "base", "systems"),
    [
        ("cupy-12.3.0-cuda11.8-py311-debian12-debian", "debian", {"debian12"}),
        ("cupy-12 debian12 debian", "debian", {"debian12"}),
        ("cupy-12 debian", "", {"debian11", "debian12", "debian13"}),
        ("cupy-12 debian debian", "debian", {"debian11", "debian12", "debian13"}),
    ],
)
def test_debian_is_a_family_of_systems_and_after_a_system_the_base(words: str, base: str, systems: set[str]) -> None:
    request = parse(words.split(), matrix=FACTS)
    assert (request.base, set(request.systems)) == (base, systems)


@pytest.mark.parametrize("image", ["my/python:3.6", "python@sha256:" + "0" * 64, "host.example:5000/a/b:C.1", "localhost/a"])
def test_an_image_of_the_user_has_the_form_of_a_reference(image: str) -> None:
    request = parse(["cupy-12", "debian11", "py39"], matrix=FACTS, base=image)
    assert (request.base, request.image) == ("local", image)


@pytest.mark.parametrize("image", ["", " ", "debian:", "debian:12@sha256:00", "a//b", "/a:1", "a:b:c", "a:" + "b" * 200])
def test_what_is_no_reference_is_refused(image: str) -> None:
    with pytest.raises(EnvbuildError):
        parse(["cupy-12", "debian11", "py39"], matrix=FACTS, base=image)
