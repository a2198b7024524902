"""Formats answers as aligned plain text. All verbs use these functions, so that their outputs use the same words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from envbuild.cli.session import Session


def columns(rows: Sequence[Sequence[str]], *, indent: str = "", gap: str = "  ") -> str:
    """Format rows as left-aligned columns without trailing spaces."""
    if not rows:
        return ""
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(max(map(len, rows)))]
    return "\n".join(
        indent + gap.join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows
    )


def environment(answer: Mapping[str, Any]) -> str:
    """Format an environment as text for ``resolve`` and ``show``."""
    rows: list[list[str]] = []
    for framework in answer["frameworks"]:
        package = framework["package"]
        rows.append([framework["name"], framework["version"], "" if package == framework["name"] else package])
    rows += _upon(answer["frameworks"])
    rows += _pythons(answer)
    rows.append(["os", answer["os"], ""])
    for part in ("cuda", "cudnn", "nccl"):
        own = [(each["name"], (each[part], "")) for each in answer["frameworks"] if each.get(part)]
        rows += _told(part, (answer.get(part) or "", ""), own)
    rows.append(["base", answer["base"]["image"], _provider(answer["base"])])
    if answer.get("driver_min"):
        rows.append(["driver", f">= {answer['driver_min']}", ""])
    codes = [(each["name"], _code(each.get("compute_capability"))) for each in answer["frameworks"] if each.get("cuda")]
    rows += _told("gpu", _code(answer.get("compute_capability")), [(name, code) for name, code in codes if any(code)])
    rows += _own(answer.get("custom") or {})
    proved = [f"{kind} (earlier smoke test)" if kind in answer.get("earlier", ()) else kind for kind in answer["evidence"]]
    rows.append(["evidence", ", ".join(proved) or "none yet", ""])
    text = f"{answer['name']}\n\n{columns(rows, indent='  ')}"
    for each in answer.get("proved_instead", ()):
        text += f"\n  trained with the same frameworks and CUDA: {each['name']}  ({', '.join(each['evidence'])})"
    text += "".join(f"\n  from your overlay: {row}" for row in answer.get("overlaid", ()))
    reasons = [[reason["choice"], f"{reason['because']}{_cited(reason['source'])}"] for reason in answer.get("reasons", ())]
    return f"{text}\n\nwhy\n{columns(reasons, indent='  ')}" if reasons else text


def warnings(session: Session, texts: Iterable[str]) -> None:
    """Print each warning on standard error."""
    for text in texts:
        session.err(f"warning: {text}")


def seconds(value: float) -> str:
    """Format a duration, given in seconds, in readable units."""
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def size(count: float) -> str:
    """Format a number of bytes in decimal units (kB, MB, GB), as registries do."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f} B"


def _pythons(answer: Mapping[str, Any]) -> list[list[str]]:
    """Return the table rows about Python: one row for each prefix with its frameworks, or one row if there are no prefixes."""
    prefixes = answer.get("prefixes") or ()
    told = [[each["name"], f"python {each['python']}: {', '.join(each['frameworks'])}"] for each in prefixes]
    return [["" if index else "prefixes", *cells] for index, cells in enumerate(told)] or [["python", answer["python"], ""]]


def _own(custom: Mapping[str, Any]) -> list[list[str]]:
    """Return the table rows about what the user's recipe adds: packages, files, ports and services."""
    copied = [f"{each['source']} -> {each['target']}" for each in custom.get("files", ())]
    ports = [str(port) for port in custom.get("ports", ())]
    services = [f"{each['name']} ({', '.join(map(str, each['ports']))})" for each in custom.get("services", ())]
    parts = {"pip": custom.get("pip"), "apt": custom.get("apt"), "files": copied, "ports": ports, "services": services}
    return [[key, ", ".join(texts), ""] for key, texts in parts.items() if texts]


def _upon(frameworks: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the table rows about base frameworks that are not among ``frameworks`` themselves."""
    named = {each["name"] for each in frameworks}
    below = [
        f"{under['name']} {under['version']}"
        for each in frameworks
        for under in each.get("upon", ())
        if under["name"] not in named
    ]
    return [["" if index else "upon", what, ""] for index, what in enumerate(dict.fromkeys(below))]


def _told(part: str, whole: tuple[str, str], own: Sequence[tuple[str, tuple[str, str]]]) -> list[list[str]]:
    """Return the table rows for ``part``: one row for the ``whole`` environment, or one row for each framework if the values of
    the frameworks differ.

    A row has a value and a remark.
    """
    if len({cells for _, cells in own}) < 2:
        return [[part, *whole]] if whole[0] else []
    return [["" if index else part, value, f"{name} {note}".rstrip()] for index, (name, (value, note)) in enumerate(own)]


def _code(capability: Mapping[str, Any] | None) -> tuple[str, str]:
    """Describe the GPU code: the capabilities with native code, those on which an add-on runs only by PTX, and whether newer
    GPUs can run its PTX."""
    if not capability:
        return "", ""
    only = capability.get("only_ptx", ())
    parts = [f"{', '.join(only)} only by PTX"] if only else []
    parts += [f"newer by PTX of {', '.join(capability['ptx'])}"] if capability["ptx"] else []
    return ", ".join(capability["sass"]), f"(and {'; '.join(parts)})" if parts else "(no PTX)"


def _provider(base: Mapping[str, Any]) -> str:
    others = base.get("other_providers") or ()
    return f"provider {base['provider']}" + (f"; also {', '.join(others)}" if others else "")


def _cited(source: str) -> str:
    return f" [{source}]" if source else ""
