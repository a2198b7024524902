"""Generates shapes: 32 x 32 colour images in ten classes, which replace CIFAR-10 if its files are missing.

The class is the shape of the large figure in the image. Each image also has a background and a small figure of a random shape.
The colours of all three are random and do not depend on the class; they have shades and waves. Noise covers the whole image.
The bits are the same on every Python, NumPy and processor: this module follows the rules of `synth`.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from . import synth

NAME = 'generated-shapes/1'
SIDE = 32
_CANVAS = synth.CANVAS
_CHUNK = 512


def _disc(px, py, x, y, r):
    """Return how far inside the disc each point lies; negative if outside. The functions of the other shapes do the same."""
    return r - np.sqrt((px - x) * (px - x) + (py - y) * (py - y))


def _convex(px, py, *corners):
    """A convex polygon. Its corners are listed clockwise, with y downwards."""
    inside = None
    for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1]):
        dx, dy = bx - ax, by - ay
        depth = ((py - ay) * dx - (px - ax) * dy) / np.sqrt(dx * dx + dy * dy)
        inside = depth if inside is None else np.minimum(inside, depth)
    return inside


def _box(px, py, left, top, right, bottom):
    return _convex(px, py, (left, top), (right, top), (right, bottom), (left, bottom))


def _star(px, py):
    tips = ((.5, .08), (.90, .37), (.75, .84), (.25, .84), (.10, .37))
    notches = ((.61, .35), (.68, .56), (.5, .69), (.32, .56), (.39, .35))
    points = [_convex(px, py, notches[k - 1], tips[k], notches[k]) for k in range(5)]
    return _most(_convex(px, py, *notches), *points)


def _most(*forms):
    out = forms[0]
    for form in forms[1:]:
        out = np.maximum(out, form)
    return out


def _forms():
    """Return, for each class, the ways to draw it, as functions of the coordinates."""
    return (
        (lambda x, y: _disc(x, y, .5, .5, .36), lambda x, y: _disc(x, y, .5, .5, .30)),
        (lambda x, y: np.minimum(_disc(x, y, .5, .5, .40), -_disc(x, y, .5, .5, .25)),
         lambda x, y: np.minimum(_disc(x, y, .5, .5, .36), -_disc(x, y, .5, .5, .17))),
        (lambda x, y: _box(x, y, .18, .18, .82, .82), lambda x, y: _box(x, y, .15, .26, .85, .74)),
        (lambda x, y: np.minimum(_box(x, y, .14, .14, .86, .86), -_box(x, y, .29, .29, .71, .71)),
         lambda x, y: np.minimum(_box(x, y, .12, .22, .88, .78), -_box(x, y, .26, .36, .74, .64))),
        (lambda x, y: _convex(x, y, (.5, .12), (.88, .84), (.12, .84)), lambda x, y: _convex(x, y, (.35, .12), (.86, .84), (.14, .84))),
        (lambda x, y: _most(_box(x, y, .40, .12, .60, .88), _box(x, y, .12, .40, .88, .60)),
         lambda x, y: _most(_box(x, y, .36, .16, .64, .84), _box(x, y, .16, .36, .84, .64))),
        (_star,),
        (lambda x, y: np.minimum(_disc(x, y, .46, .5, .39), -_disc(x, y, .64, .5, .32)),
         lambda x, y: np.minimum(_disc(x, y, .54, .5, .39), -_disc(x, y, .36, .5, .32))),
        (lambda x, y: np.minimum(_disc(x, y, .5, .66, .42), .66 - y), lambda x, y: np.minimum(_disc(x, y, .5, .34, .42), y - .34)),
        (lambda x, y: _most(_box(x, y, .14, .20, .86, .40), _box(x, y, .14, .60, .86, .80)),
         lambda x, y: _most(_box(x, y, .20, .14, .40, .86), _box(x, y, .60, .14, .80, .86))),
    )


def _glyphs():
    """All shapes as one flat array of coverage, and for each class the indices of its shapes."""
    centre = (np.arange(_CANVAS) + 0.5) / _CANVAS
    px, py = centre[None, :], centre[:, None]
    pictures, of_class = [], []
    for ways in _forms():
        of_class.append(list(range(len(pictures), len(pictures) + len(ways))))
        pictures += [np.clip(form(px, py) * _CANVAS + 0.5, 0, 1) for form in ways]
    return np.array(pictures).reshape(-1), of_class


def _paint(draw, n, place, low, high):
    """Return random colours for n images, (n, 3, 1024): a base colour, a shade across the image, and a wave."""
    u, v = place
    base = synth.between(draw, low, high, n, 3, 1)
    slope = synth.between(draw, -.20, .20, 2, n, 3, 1)
    height, pitch = synth.between(draw, 0, .06, n, 3, 1), synth.between(draw, 2, 9, 2, n, 1, 1)
    return base + slope[0] * u + slope[1] * v + height * synth.wave(pitch[0] * u + pitch[1] * v)


def _colour(draw, n, cover, beside):
    """Colour n images: the background, the small figure over it, and the large, lighter figure over both."""
    line = (np.arange(SIDE) + 0.5) / SIDE - 0.5
    place = np.tile(line, SIDE), np.repeat(line, SIDE)
    ground = _paint(draw, n, place, .05, .55)
    figure = _paint(draw, n, place, .15, .55) + ground
    other = _paint(draw, n, place, .1, .8)
    picture = ground + (other - ground) * beside[:, None]
    return picture + (figure - picture) * cover[:, None]


def shapes(n, seed):
    """Return (images uint8 [n, 3, 32, 32], labels int64 [n]): equally many images of each class, in random order."""
    flat, of_class = _glyphs()
    labels = (np.arange(n) % 10)[synth.order(n, seed)]
    draw = np.random.RandomState(seed + 1)
    glyphs = [synth.pick(of_class, which, draw.random_sample(n)) for which in (labels, (draw.random_sample(n) * 10).astype('int64'))]
    images = np.empty((n, 3, SIDE * SIDE), 'uint8')
    for start in range(0, n, _CHUNK):
        part = slice(start, min(n, start + _CHUNK))
        count = part.stop - start
        cover = synth.look(flat, glyphs[0][part], *synth.warp(draw, count, SIDE, (.60, .90), .12))
        beside = synth.look(flat, glyphs[1][part], *synth.warp(draw, count, SIDE, (.16, .28), .42))
        picture = _colour(draw, count, cover, beside)
        noise = draw.random_sample((2, count, 3, SIDE * SIDE))
        images[part] = np.floor(np.clip(picture + (noise[0] + noise[1] - 1) * .12, 0, 1) * 255 + 0.5).astype('uint8')
    return images.reshape(n, 3, SIDE, SIDE), labels.astype('int64')
