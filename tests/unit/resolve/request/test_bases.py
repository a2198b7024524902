"""Base images in names."""

from __future__ import annotations

import pytest

from envbuild.resolve.request.bases import image_slug


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
