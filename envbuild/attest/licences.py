"""Collects the licences that the packages in an image state in their metadata. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any

# A shell script that runs in the image. For each Python package, it prints the path of the metadata file and the lines about
# name, version and licence. For each Debian package, it prints the name, the version and the lines about the licence.
QUESTION = r"""
find / -xdev \( -path '*.dist-info/METADATA' -o -path '*.egg-info/PKG-INFO' \) -type f 2>/dev/null | sort |
while read -r path; do
  printf '\001%s\n' "$path"
  sed -n -e '/^\r\{0,1\}$/q' -e '/^\(Name\|Version\|License\|License-Expression\|Classifier: License\)/p' "$path"
done
dpkg-query --show --showformat '${db:Status-Status} ${Package} ${Version}\n' 2>/dev/null |
while read -r status name version; do
  [ "$status" = installed ] || continue
  printf '\001deb %s %s\n' "$name" "$version"
  sed -n '/^License:/p' "/usr/share/doc/$name/copyright" 2>/dev/null | sort -u
done
"""
_LONGEST = 200  # maximum characters of a licence: some packages state the whole text of the licence instead of a name


def predicate(image: str, lock: str, told: str, metadata: Iterable[str] = ()) -> Mapping[str, Any]:
    """Return the licences of the packages in ``image``. ``told`` is the output of the script :data:`QUESTION`.

    ``metadata`` has the text of METADATA of each package whose files are in the image without their METADATA. In the result,
    ``unknown`` is the number of packages that state no licence.
    """
    found = [*_packages(told), *(entry for text in metadata for entry in _of_python(_head(text)))]
    packages = sorted(found, key=lambda each: (each["type"], each["name"], each["version"]))
    unique = [each for number, each in enumerate(packages) if each not in packages[:number]]
    unknown = sum(not each["licences"] for each in unique)
    return {"image": image, "lock": lock, "packages": unique, "unknown": unknown}


def _packages(told: str) -> Iterator[dict[str, Any]]:
    for part in told.split("\x01")[1:]:
        head, *lines = part.splitlines()
        words = head.split()
        if len(words) == 3 and words[0] == "deb":
            yield _entry("deb", words[1], words[2], _values(lines, "License"))
            continue
        yield from _of_python(lines)


def _head(metadata: str) -> list[str]:
    """Return the lines before the description."""
    return list(takewhile(str.strip, metadata.splitlines()))


def _of_python(lines: list[str]) -> Iterator[dict[str, Any]]:
    name, version = _values(lines, "Name"), _values(lines, "Version")
    if name and version:
        yield _entry("pypi", name[0], version[0], _stated_by_python(lines))


def _stated_by_python(lines: list[str]) -> list[str]:
    """Return the licence expression of a Python package, because it is exact. Without an expression, return the licence names.
    Without names, return the classifiers."""
    named = [each for each in _values(lines, "License") if each.upper() != "UNKNOWN"]
    classified = [each.rpartition("::")[2].strip() for each in _values(lines, "Classifier") if each.startswith("License")]
    return _values(lines, "License-Expression") or named or classified


def _values(lines: list[str], field: str) -> list[str]:
    found = (line.partition(":") for line in lines)
    return [value.strip() for name, _, value in found if name == field and value.strip()]


def _entry(kind: str, name: str, version: str, licences: list[str]) -> dict[str, Any]:
    return {"type": kind, "name": name, "version": version, "licences": sorted({each[:_LONGEST] for each in licences})}
