"""Writes the catalogue as the files of a static site. All text that comes from data is escaped. Scripts and styles are separate
files."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from envbuild import codec
from envbuild.catalogue.machines import Machines
from envbuild.catalogue.model import PROOFS, Catalogue, CatalogueEntry, InstalledPart, SearchRow
from envbuild.jinja_settings import jinja_environment
from envbuild.matrix.versions import newest_first

if TYPE_CHECKING:
    import jinja2

_HERE = Path(__file__).parent
_ASSETS = ("style.css", "machines.js", "search.js", "page.js")
_SCHEMA = "catalogue.schema.json"  # beside catalogue.json, which names it
_FIELDS = (
    "name", "frameworks", "python", "os", "cuda", "driver_min", "released", "proofs", "page", "builds", "driver", "gpus",
    "proved_on",
)  # fmt: skip
_NEWS = 100  # maximum number of entries in the feed
_NEVER = "2000-01-01"  # the date of a feed if no entry has a date


def pages(
    catalogue: Catalogue, machines: Machines, *, shm_size: str, url: str = "", asked_registry: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield path and text of every file except the bills of materials.

    ``url`` is the site's address, with a final slash. ``asked_registry`` says whether a registry was asked for the images. The
    commands that start an image set the size of /dev/shm to ``shm_size``.
    """
    templates = _templates()
    shared = {"title": catalogue.title, "made_by": catalogue.made_by, "updated": catalogue.updated, "since": catalogue.since}
    for name in _ASSETS:
        yield name, (_HERE / "site" / name).read_text(encoding="utf-8")
    yield "catalogue.json", _json({"$schema": _SCHEMA, **codec.encode(catalogue)})
    yield _SCHEMA, resources.files("envbuild.schemas").joinpath("catalogue.json").read_text(encoding="utf-8")
    yield "data/catalogue.js", _script(catalogue, machines)
    index = templates.get_template("index.html.j2")
    yield (
        "index.html",
        index.render(
            **shared,
            root="",
            entries=sorted(catalogue.entries, key=_best_first),
            pinned=sum("locked" in entry.kinds for entry in catalogue.entries),
            trained=sum(bool({"smoke-cpu", "smoke-gpu"} & {*entry.kinds}) for entry in catalogue.entries),
            others=len(catalogue.rows) - len(catalogue.entries),
            choices=_choices(catalogue.rows),
            levels=PROOFS.values(),
            gpus=[board[0] for board in machines.boards],
            drivers=sorted({*machines.branches}, key=newest_first),
        ),
    )
    page = templates.get_template("environment.html.j2")
    badge = templates.get_template("badge.svg.j2")
    for entry in catalogue.entries:
        yield entry.page, page.render(**shared, **_about(entry, shm_size), root="../", asked_registry=asked_registry)
        yield f"badges/{entry.name}.svg", badge.render(**_badge(entry))
    yield "feed.xml", templates.get_template("feed.xml.j2").render(**shared | _feed(catalogue, url))


def _templates() -> jinja2.Environment:
    made = jinja_environment(_HERE / "templates", autoescape=True)
    made.filters |= {
        "address": quote,
        "bytes": size,
        "count": "{:,}".format,
        "downloads": _downloads,
        "level": level,
        "rate": _rate,
        "percent": _percent,
    }
    return made


def _best_first(entry: CatalogueEntry) -> tuple[int, str]:
    return -len(entry.kinds), entry.name


def level(entry: CatalogueEntry) -> str:
    """The last stage that is proved for an environment, in words."""
    return PROOFS[entry.kinds[-1]] if entry.kinds else "nothing yet"


def size(count: int) -> str:
    """Format a number of bytes for people, in units of 1000."""
    amount = float(count)
    for unit in ("B", "kB", "MB"):
        if amount < 999.5:
            return f"{amount:.0f} {unit}"
        amount /= 1000
    return f"{amount:.2f} GB"


def _downloads(part: InstalledPart) -> str:
    """Format the number of bytes to download for a part, and the number of the part's files whose size is unknown."""
    if part.unknown == len(part.files):
        return "unknown"
    return f"{size(part.size)}, and {part.unknown} of unknown size" if part.unknown else size(part.size)


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"  # noqa: RUF001 - a dash in an empty cell


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"  # noqa: RUF001 - a dash in an empty cell


def _about(entry: CatalogueEntry, shm_size: str) -> dict[str, Any]:
    options = ["--gpus all"] if entry.cuda else []
    options += [f"--shm-size={shm_size}", '-v "$PWD:/workspace"']
    return {"entry": entry, "proofs": PROOFS, "options": " ".join(options), "tag": entry.name.replace("+", "_")}


def _badge(entry: CatalogueEntry) -> dict[str, Any]:
    words = level(entry)
    left, right = (round(6.4 * len(text)) + 14 for text in ("envbuild", words))
    color = "#12703a" if "smoke-cpu" in entry.kinds or "smoke-gpu" in entry.kinds else "#1d5bd6" if entry.kinds else "#5b6472"
    return {"label": "envbuild", "words": words, "left": left, "right": right, "color": color}


def _choices(rows: Sequence[SearchRow]) -> dict[str, list[str]]:
    """Return the entries of each selection list on the search page. Versions are sorted newest first."""
    return {
        "framework": sorted({title for row in rows for title, _ in row.frameworks}, key=str.lower),
        "cuda": sorted({row.cuda for row in rows if row.cuda}, key=newest_first),
        "python": sorted({python for row in rows for python in row.python.split(", ")}, key=newest_first),
        "os": sorted({row.os for row in rows}),
    }


def _script(catalogue: Catalogue, machines: Machines) -> str:
    """Return the data of the search page as a script. The data is not JSON, because a page that is opened as a local file can
    load scripts, but not JSON."""
    data = {
        "fields": _FIELDS,
        "levels": list(PROOFS),
        "spoken": PROOFS,
        "words": catalogue.words,
        "rows": [codec.encode(_packed(row)) for row in catalogue.rows],
        "machines": codec.encode(machines),
    }
    return f'"use strict";\nglobalThis.envbuildCatalogue = {_compact(data)};\n'


def _packed(row: SearchRow) -> list[Any]:
    """Return the values of the fields in ``_FIELDS``. The values of the last three fields (from ``driver`` on) are left out if
    all three are empty."""
    page = 1 if row.page else 0
    found = [row.name, row.frameworks, row.python, row.os, row.cuda, row.driver_min, row.released, row.proofs, page, row.builds]
    last = [row.driver, row.gpus, row.proved_on]
    return [*found, *last] if any(last) else found


def _json(document: Mapping[str, Any]) -> str:
    """Format ``document`` with one environment per line, so that plain tools such as diff can compare two catalogues."""
    lines = []
    for key, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            items = ",\n    ".join(map(_compact, value))
            lines.append(f"  {_compact(key)}: [\n    {items}\n  ]")
        else:
            lines.append(f"  {_compact(key)}: {_compact(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _compact(value: Any) -> str:
    return (
        json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    )


# --- the feed -----------------------------------------------------------------------------------------------------------


def _feed(catalogue: Catalogue, url: str) -> dict[str, Any]:
    news = sorted(_news(catalogue), key=lambda each: (each["updated"], each["title"]), reverse=True)[:_NEWS]
    newest = news[0]["updated"] if news else _time(catalogue.updated)
    return {"news": news, "id": _id(url or catalogue.title), "updated": newest, "url": url}


def _news(catalogue: Catalogue) -> Iterator[dict[str, str]]:
    """Yield the entries of the feed. There is an entry for each day on which an environment got proofs. There are also entries
    for the changes of an environment since the earlier catalogue, and for removed environments."""
    for entry in catalogue.entries:
        days: dict[str, list[str]] = {}
        for proof in entry.proofs:
            days.setdefault(proof.date, []).append(PROOFS[proof.kind])
        for day, kinds in days.items():
            text = f"Proved: {', '.join(dict.fromkeys(kinds))}."
            yield _item(f"{entry.name}: {kinds[-1]}", day, text, entry.page, f"{entry.name} {day}")
        if entry.changes:
            text = "\n".join(entry.changes)
            key = f"{entry.name} {entry.lock.sha256} {catalogue.since}"
            yield _item(f"{entry.name} changed", catalogue.updated, text, entry.page, key)
    for name in catalogue.gone:
        yield _item(
            f"{name} was removed", catalogue.updated, "It is no longer in the catalogue.", "", f"{name} {catalogue.since}"
        )


def _item(title: str, day: str, text: str, page: str, key: str) -> dict[str, str]:
    return {"title": title, "updated": _time(day), "text": text, "page": page, "id": _id(key)}


def _id(text: str) -> str:
    return uuid.uuid5(uuid.NAMESPACE_URL, f"envbuild catalogue {text}").urn


def _time(day: str) -> str:
    return f"{day or _NEVER}T00:00:00Z"
