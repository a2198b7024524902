"""Make untrusted text (package metadata, advisories, container logs, reports) safe to print on a terminal.

Escape sequences in a text can move the cursor, change the title or write to the clipboard. Direction marks
(https://trojansource.codes) can make a text look like another one. All printed text goes through this module.
"""

from __future__ import annotations

import re

# Escape sequences that are removed, mostly colours and cursor movements in build output. The first line matches CSI sequences.
# The second line matches the control strings OSC, DCS, SOS, PM and APC up to their end (ECMA-48, 5.4 and 5.6). The third line
# matches short sequences of a few characters.
_SEQUENCE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]{0,4096}(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b[ -/]{1,8}[0-~]"
)
# Characters that are spelt out: control characters except tab and line feed, direction marks, line and paragraph separators,
# invisible joiners, half surrogates, and tag characters.
_ACTIVE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def plain(text: str) -> str:
    """Return ``text`` without escape sequences. Other control characters are spelt out, such as ``\\x07``."""
    if text.isascii() and text.isprintable():
        return text
    text = _SEQUENCE.sub("", text.replace("\r\n", "\n"))
    return _ACTIVE.sub(_spelt, text)


def plain_json(text: str) -> str:
    """Return JSON with control characters as JSON escapes. The value stays the same: these characters occur only in strings."""
    return _ACTIVE.sub(lambda found: "".join(f"\\u{unit:04x}" for unit in _units(found[0])), text)


def _spelt(found: re.Match[str]) -> str:
    number = ord(found[0])
    if found[0] == "\r":  # a carriage return, with which programs redraw a progress line
        return " "
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _units(character: str) -> list[int]:
    number = ord(character)
    if number < 0x10000:
        return [number]
    return [0xD800 + (number - 0x10000 >> 10), 0xDC00 + (number - 0x10000 & 0x3FF)]
