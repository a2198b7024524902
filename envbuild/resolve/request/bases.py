"""Reads the base in a request: a provider, or the user's own image."""

from __future__ import annotations

import re
from typing import get_args

from envbuild.errors import UnknownNameError, UsageError
from envbuild.matrix.similar_names import did_you_mean, nearest
from envbuild.model.words import Provider
from envbuild.resolve.request.draft import Draft

PROVIDERS = tuple(word for word in get_args(Provider))
# The form of https://pkg.go.dev/github.com/distribution/reference, for an image with a host, a tag or a digest.
_IMAGE = re.compile(
    r"(?=.{1,255}$)([A-Za-z0-9.-]+(:[0-9]{1,5})?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)


def read_base(draft: Draft, base: str | None, systems: tuple[str, ...]) -> tuple[str, str]:
    """The requested provider, and the image if the base is an image of the user's own; both are empty if no base is named."""
    said = draft.get("base")
    text = (base or "").strip()
    if base is not None and not text:
        raise UsageError("--base is empty.", hint="Name a provider or an image, or leave the option out.")
    slug = draft.get("image")
    if not text and slug:
        raise UnknownNameError(
            f"{slug!r} in {draft.text!r} stands for a base image, but the name does not say which image.",
            code="base-image-needed",
            hint="Name the image with --base IMAGE, and use the name without this ending.",
        )
    if not text or text.lower() in PROVIDERS:
        return _provider(draft, text.lower(), said), ""
    if not _IMAGE.fullmatch(text) or not re.search(r"[/:@]", text):
        raise _unknown(text, "neither a provider nor an image with a tag", " Write an image as name:tag.")
    if said or (slug and slug != image_slug(text).lower()):
        raise UsageError(f"{draft.text!r} names a different base than {text}.", code="contradiction", hint="Name one base.")
    if len(systems) != 1 or not re.fullmatch(r"==\d+\.\d+", draft.get("python")):
        raise UsageError(
            f"The contents of {text} are not known before it is used.",
            code="base-needs-os",
            hint="Say which system and which Python the image contains, for example --os debian11 --python 3.6.",
        )
    return "local", text


def _unknown(text: str, what: str, more: str) -> UnknownNameError:
    near = nearest(text, PROVIDERS)
    return UnknownNameError(f"{text!r} is {what}.", hint=f"{did_you_mean(near)}Providers: {', '.join(PROVIDERS)}.{more}")


def _provider(draft: Draft, text: str, said: str) -> str:
    if text and said and text != said:
        raise UsageError(
            f"{draft.text!r} names the base {said}, but the option names {text}.", code="contradiction", hint="Name one base."
        )
    if "local" in (text, said):
        raise UsageError(
            "The base `local` means an image of your own.",
            code="base-needs-image",
            hint="Name the image, for example --base my/python:3.6.",
        )
    return text or said


def image_slug(image: str) -> str:
    """An image reference, written as a part of an environment's name. ``_`` and ``-`` are doubled, so that different images get
    different names."""
    slug = image.replace("_", "__").replace("-", "--").replace("/", "_").replace(":", "-").replace("@", "_-")
    if len(slug) <= 60:
        return slug
    import hashlib

    return f"{slug[:40].rstrip('-_.')}-{hashlib.sha256(image.encode()).hexdigest()[:12]}"
