"""Generates digits: 28 x 28 grey images in ten classes, so hard that only a trained network reaches 97 % accuracy.

The bits are the same on every Python, NumPy and processor. The random numbers come from `random_sample` of NumPy's RandomState,
which never changes. Everything else is addition, multiplication, division, square root, floor and comparison, which IEEE 754
rounds exactly. Sines, logarithms and sums over an axis are not used, because their last bit depends on the library.
"""
from __future__ import absolute_import, division, print_function

import hashlib

import numpy as np

NAME = 'generated-digits/1'
SIDE = 28
CANVAS = 56
_PENS = (0.032, 0.046, 0.062)
_CHUNK = 1024

# The cosines of the multiples of a sixteenth of a full turn.
_COSINE = (1.0, 0.9238795325, 0.7071067812, 0.3826834324, 0.0, -0.3826834324, -0.7071067812, -0.9238795325,
           -1.0, -0.9238795325, -0.7071067812, -0.3826834324, 0.0, 0.3826834324, 0.7071067812, 0.9238795325)


def _arc(x, y, rx, ry, start, stop):
    """A polyline along an ellipse, from `start` to `stop` in sixteenths of a full turn, clockwise (y points downwards)."""
    return tuple((x + rx * _COSINE[k % 16], y + ry * _COSINE[(k + 12) % 16]) for k in range(start, stop + 1))


def _ring(x, y, rx, ry):
    return _arc(x, y, rx, ry, 0, 16)


# digit -> ways to write it -> strokes -> points (x right, y down, in a unit square)
_SHAPES = (
    ((_ring(.5, .5, .25, .38),), (_ring(.5, .5, .19, .38),), (_ring(.5, .5, .25, .38), ((.65, .28), (.35, .72)))),
    ((((.5, .1), (.5, .9)),), (((.34, .28), (.52, .1), (.52, .9)),),
     (((.36, .26), (.52, .1), (.52, .9)), ((.34, .9), (.70, .9)))),
    ((_arc(.5, .32, .23, .21, 8, 18) + ((.27, .88), (.75, .88)),),
     (_arc(.5, .30, .22, .20, 9, 17) + ((.28, .86), (.76, .86)),)),
    ((_arc(.46, .31, .24, .20, 9, 20), _arc(.46, .70, .27, .20, 12, 23)),
     (((.27, .12), (.70, .12), (.46, .44)), _arc(.46, .66, .26, .22, 12, 23))),
    ((((.63, .9), (.63, .1), (.22, .63), (.80, .63)),),
     (((.30, .1), (.27, .55), (.74, .55)), ((.69, .12), (.68, .9)))),
    ((((.72, .12), (.33, .12), (.30, .48)), _arc(.47, .66, .26, .23, 10, 23)),
     (((.70, .12), (.36, .12), (.33, .46)), _arc(.47, .67, .24, .22, 11, 22))),
    ((_ring(.5, .67, .24, .22), ((.62, .09), (.38, .38), (.27, .64))),
     (_ring(.5, .67, .24, .22), _arc(.72, .62, .46, .52, 8, 12))),
    ((((.24, .12), (.77, .12), (.45, .9)),), (((.24, .12), (.77, .12), (.45, .9)), ((.36, .5), (.72, .5)))),
    ((_ring(.5, .29, .19, .18), _ring(.5, .69, .24, .21)), (_ring(.5, .31, .17, .20), _ring(.5, .70, .20, .20))),
    ((_ring(.5, .33, .24, .22), ((.74, .34), (.68, .9))),
     (_ring(.5, .33, .24, .22), _arc(.28, .38, .46, .52, 0, 4))),
)


def _draw(strokes, pen):
    """Draw one glyph with soft edges: the grey value of each pixel depends on its distance to the nearest segment."""
    centre = (np.arange(CANVAS) + 0.5) / CANVAS
    px, py = centre[None, :], centre[:, None]
    nearest = np.ones((CANVAS, CANVAS)) * 9.0
    for stroke in strokes:
        for (ax, ay), (bx, by) in zip(stroke[:-1], stroke[1:]):
            dx, dy = bx - ax, by - ay
            along = np.clip(((px - ax) * dx + (py - ay) * dy) / (dx * dx + dy * dy), 0, 1)
            gap_x, gap_y = px - ax - along * dx, py - ay - along * dy
            nearest = np.minimum(nearest, np.sqrt(gap_x * gap_x + gap_y * gap_y))
    return np.clip((pen - nearest) * CANVAS * 1.2 + 0.5, 0, 1)


def _glyphs():
    """All glyphs as one flat array of pixels, and for each digit the indices of its glyphs."""
    pictures, of_digit = [], []
    for ways in _SHAPES:
        of_digit.append([])
        for strokes in ways:
            for pen in _PENS:
                of_digit[-1].append(len(pictures))
                pictures.append(_draw(strokes, pen))
    return np.array(pictures).reshape(-1), of_digit


def wave(u):
    """A smooth wave of period 2 made of parabolas. It replaces a sine, because its arithmetic is exact."""
    r = u - 2.0 * np.floor((u + 1.0) * 0.5)
    return 4.0 * r * (1.0 - np.abs(r))


def between(draw, low, high, *shape):
    return low + (high - low) * draw.random_sample(shape)


def order(n, seed):
    """A permutation of 0 to n - 1 that is the same on every machine. (NumPy does not promise this for RandomState.shuffle.)"""
    return np.argsort(np.random.RandomState(seed).random_sample(n), kind='mergesort')


def warp(draw, n, side=SIDE, scales=(.62, .86), shift_most=.11):
    """Return which point of the glyph each pixel of n images shows, after random rotation, shear, scale, shift and bending."""
    half = between(draw, -.15, .15, n, 1)                     # tangent of half the angle of rotation
    cosine, sine = (1 - half * half) / (1 + half * half), 2 * half / (1 + half * half)
    shear = between(draw, -.35, .35, n, 1)
    scale = between(draw, scales[0], scales[1], 2, n, 1)
    shift = between(draw, -shift_most, shift_most, 2, n, 1)
    bend = between(draw, -.035, .035, 4, n, 1)
    phase = between(draw, 0, 2, 4, n, 1)
    line = (np.arange(side) + 0.5) / side - 0.5
    u = np.tile(line, side)[None] - shift[0]
    v = np.repeat(line, side)[None] - shift[1]
    a, b = cosine * u + sine * v, cosine * v - sine * u
    a, b = (a - shear * b) / scale[0], b / scale[1]
    a = a + bend[0] * wave(2 * b + phase[0]) + bend[1] * wave(3 * b + phase[1])
    b = b + bend[2] * wave(2 * a + phase[2]) + bend[3] * wave(3 * a + phase[3])
    return a, b


def look(flat, glyph, a, b):
    """Return the grey values of glyphs at fractional coordinates, by bilinear interpolation."""
    gx = np.clip((a + 0.5) * CANVAS - 0.5, 0, CANVAS - 1.001)
    gy = np.clip((b + 0.5) * CANVAS - 0.5, 0, CANVAS - 1.001)
    x0, y0 = np.floor(gx).astype('int64'), np.floor(gy).astype('int64')
    fx, fy = gx - x0, gy - y0
    at = glyph[:, None] * (CANVAS * CANVAS) + y0 * CANVAS + x0
    top = flat[at] * (1 - fx) + flat[at + 1] * fx
    bottom = flat[at + CANVAS] * (1 - fx) + flat[at + CANVAS + 1] * fx
    return top * (1 - fy) + bottom * fy


def pick(of_class, labels, chances):
    """Return, for each label, the index of one glyph of its class. `chances` are random numbers that select the glyph."""
    return np.array([of_class[c][int(p * len(of_class[c]))] for c, p in zip(labels, chances)], 'int64')


def digits(n, seed):
    """Return (images uint8 [n, 1, 28, 28], labels int64 [n]): equally many images of each class, in random order."""
    flat, of_digit = _glyphs()
    labels = (np.arange(n) % 10)[order(n, seed)]
    draw = np.random.RandomState(seed + 1)
    glyph = pick(of_digit, labels, draw.random_sample(n))
    images = np.empty((n, SIDE * SIDE), 'uint8')
    for start in range(0, n, _CHUNK):
        part = slice(start, min(n, start + _CHUNK))
        count = part.stop - start
        grey = look(flat, glyph[part], *warp(draw, count)) * between(draw, .70, 1.0, count, 1)
        noise = draw.random_sample((3, count, SIDE * SIDE))
        grey = grey + (noise[0] + noise[1] + noise[2] - 1.5) * .12
        grey = np.where(draw.random_sample((count, SIDE * SIDE)) < .004, 1.0, grey)
        images[part] = np.floor(np.clip(grey, 0, 1) * 255 + 0.5).astype('uint8')
    return images.reshape(n, 1, SIDE, SIDE), labels.astype('int64')


def digest(*arrays):
    """SHA-256 over the bytes of arrays. It identifies a data set or a set of weights."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()
