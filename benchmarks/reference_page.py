"""Write the tables of the page about the reference check: healthy runs, and runs on GPUs.

reference_distribution.py makes the healthy runs on CPUs. benchmarks/gpu/run makes the runs on GPUs, and benchmarks/gpu/take_in
stores the results of the runs on GPUs.
"""

import json
import re
import textwrap

import guest

DATA = guest.ROOT / "benchmarks" / "reference_distribution.json"
DOCS = guest.ROOT / "docs" / "explanation"
PAGE, OTHER_PAGE = DOCS / "reference-check.md", DOCS / "detection.md"
QUANTILES = (0.5, 0.9, 0.99, 0.999, 1.0)
BEGIN, END = "<!-- healthy runs begin -->", "<!-- healthy runs end -->"
GPU_BEGIN, GPU_END = "<!-- runs on GPUs begin -->", "<!-- runs on GPUs end -->"
GPU_RESULTS = guest.ROOT / "benchmarks" / "gpu" / "results"
ARITHMETIC = {
    "float32": "single precision, deterministic algorithms",
    "cudnn.benchmark": "single precision, with `cudnn.benchmark`",
    "tf32": "TF32, which was asked for",
    "bf16": "autocast to bfloat16, which was asked for",
}
SUM_BEGIN, SUM_END = "<!-- number of healthy runs begins -->", "<!-- number of healthy runs ends -->"
TITLES = {
    "numpy": "NumPy",
    "pytorch": "PyTorch",
    "mxnet": "MXNet",
    "jax": "JAX",
    "tensorflow": "TensorFlow",
    "chainer": "Chainer",
    "theano": "Theano",
    "lasagne": "Lasagne",
    "cntk": "CNTK",
}


def write(results):
    """Store ``results`` in place of the stored results of the same frameworks, and write the pages."""
    content = merged(json.loads(DATA.read_text()), results)
    DATA.write_text(json.dumps(content, indent=1) + "\n")
    PAGE.write_text(gpu_page(page(PAGE.read_text(), content), gpu_results()))
    OTHER_PAGE.write_text(other_page(OTHER_PAGE.read_text(), content))


def gpu_results():
    """Return the stored results of runs on GPUs, by date."""
    return [json.loads(path.read_text()) for path in sorted(GPU_RESULTS.glob("*.json"))]


def merged(content, results):
    """Return ``content`` with ``results`` in place of its results of the same frameworks.

    If a stored result is of the same version and has the error of each run, the stored runs are kept in addition to the new
    runs.
    """
    found = {each["adapter"]: each for each in content["healthy"]}
    for each in results:
        if each["what"] != "healthy":
            raise SystemExit("not a file of `healthy`: {}".format(each["what"]))
        old = found.get(each["adapter"], {"version": "", "runs": 0})
        new = each
        if old["version"] == each["version"] and "errors" in old:
            new = summary(each["adapter"], each["version"], dict(old["errors"], **each["errors"]), each["limit"])
        if old["version"] == each["version"] and new["runs"] < old["runs"]:
            raise SystemExit(f"{each['adapter']}: {old['runs']} runs are stored, the new file has only {each['runs']}")
        found[each["adapter"]] = new
    return dict(content, healthy=list(found.values()))


def summary(adapter, version, errors, limit):
    """Return the result of healthy runs in the form in which ``healthy`` stores it. ``errors`` maps the seed of a run to its
    error."""
    values = list(errors.values())
    above = [seed for seed, value in errors.items() if not value <= limit]
    quantiles = {f"{q:g}": float(f"{quantile(values, q):.3g}") for q in QUANTILES}
    return {"what": "healthy", "adapter": adapter, "version": version, "runs": len(values), "quantiles": quantiles,
            "above the limit": len(above), "limit": limit, "seeds above": above, "errors": errors}  # fmt: skip


def quantile(values, share):
    """Return a quantile of ``values``, with linear interpolation. ``share`` is between 0 and 1. NumPy is not needed."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def page(text, content):
    """Return the page about the reference check with the table of the healthy runs, and what follows from the number of
    runs."""
    lines = ["| framework | runs | median | 99 % | largest |", "|---|---|---|---|---|"]
    for each in content["healthy"]:
        figures = ["{:.1e}".format(each["quantiles"][key]) for key in ("0.5", "0.99", "1")]
        words = ["{} {}".format(TITLES.get(each["adapter"], each["adapter"]), each["version"]), "{:,}".format(each["runs"])]
        lines.append("| {} |".format(" | ".join(words + figures)))
    return _between(text, BEGIN, END, "\n".join(lines) + "\n\n" + textwrap.fill(_bound(content), 128))


def gpu_page(text, results):
    """Return the page about the reference check with a table of each of ``results``, which benchmarks/gpu/take_in stored."""
    return _between(text, GPU_BEGIN, GPU_END, "\n\n".join(map(_gpu_tables, results)))


def _gpu_tables(found):
    framework = found["pytorch"]["framework"]
    words = (
        "Measured on {}, on one {} with driver {}, with PyTorch {} and cuDNN {}. The error of a step is relative to the usual "
        "change of the parameter in one step. It was measured in {} runs of 24 steps with each arithmetic. Only one error of "
        "each step was recorded: the one that is largest in relation to its limit."
    )
    device, steps = found["devices"][0]["name"], found["reference"]["float32"]["step_runs"]
    lines = [
        textwrap.fill(
            words.format(found["date"], device, found["driver"], framework["version"], framework["cudnn"], steps), 128
        ),
        "",
    ]
    titles = ("arithmetic", "healthy runs", "verdicts", "largest error of a kernel", "of another parameter")
    lines += ["| {} |".format(" | ".join((*titles, "of a step: kernel", "another parameter"))), "|" + 7 * "---|"]
    for setting, title in ARITHMETIC.items():
        each = found["reference"][setting]
        figures = [_figure(each[kind].get(name)) for kind in ("largest", "steps") for name in ("kernels", "others")]
        lines.append("| {} |".format(" | ".join([title, str(each["runs"]), _counts(each["statuses"]), *figures])))
    lines += ["", "| fault | verdicts | named cause | largest error |", "|---|---|---|---|"]
    for fault, each in found["faults"].items():
        named = _counts({f"`{name}`" if name else "no name": count for name, count in each["named"].items()})
        lines.append(f"| {fault} | {_counts(each['statuses'])} | {named} | {each['error']['most']:.1e} |")
    return "\n".join(lines)


def _figure(error):
    return "not recorded" if error is None else f"{error:.1e}"


def _counts(counts):
    return ", ".join(f"{word}: {count}" for word, count in counts.items())


def other_page(text, content):
    """Return the page about planted faults with the number of healthy runs."""
    runs, above = _counted(content)
    words = "{} of {} healthy runs exceeded the limit of the reference check.".format(
        f"{above:,}" if above else "None",
        runs,
    )
    return _between(text, SUM_BEGIN, SUM_END, words, gap="")


def _counted(content):
    every = content["healthy"]
    return "{:,}".format(sum(each["runs"] for each in every)), sum(each["above the limit"] for each in every)


def _bound(content):
    every, (runs, above) = content["healthy"], _counted(content)
    largest = max(each["quantiles"]["1"] for each in every)
    words = "The limit is **{}**. ".format(("{:.0e}".format(every[0]["limit"])).replace("e-0", "e-"))
    few = ["{} ({})".format(TITLES.get(each["adapter"], each["adapter"]), "{:,}".format(each["runs"]))
           for each in every if each["runs"] < 1000]  # fmt: skip
    if above:
        return words + "{} of {} healthy runs exceeded it.".format(f"{above:,}", runs)
    total = sum(each["runs"] for each in every)
    words += (
        "No healthy run exceeded it. With {} runs, the rate of false alarms is below {:.2g} % with 95 % confidence (by the "
        "rule of three: three divided by the number of runs). The largest error seen is {:.0f} % of the limit.".format(
            runs, 300.0 / total, 100 * largest / every[0]["limit"]
        )
    )
    if few:
        words += " Fewer than 1,000 runs were made with {}, so for one of these frameworks alone the bound is higher.".format(
            " and ".join(few)
        )
    return words


def _between(text, begin, end, words, gap="\n"):
    if begin not in text:
        raise SystemExit(f"the page has no mark {begin}")
    return re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: gap.join((begin, words, end)), text, flags=re.DOTALL)
