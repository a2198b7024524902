"""Every output format with real reports."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from report_files import NAMES, load

from envbuild.report import comparison, html_page, junit_xml, markdown_page, plain_text, view

NASTY = "<script>alert('1')</script>&\"\x00\x1b[31m|`*_\ud7ff\uffff"


def test_the_table_shows_one_and_two_workers_and_ends_with_the_paths() -> None:
    lines = plain_text.table(load("pass"), ["out/report.json", "out/report.html"]).splitlines()
    assert lines[0].startswith("PASS  numpy-2.4.6-cpu-py311-debian12")
    assert any("not judged (CPU workers)" in line for line in lines)
    heading = next(line for line in lines if "workers" in line and "images/s" in line)
    assert heading.split() == ["workers", "images/s", "speedup", "[96", "%]", "efficiency", "accuracy", "verdict"]
    rows = [line.split() for line in lines if re.match(r"\s+[12]\s", line)]
    assert rows[0] == ["1", "1,773", "1.00", "100", "%", "98.9", "%", "pass"]
    assert rows[1] == ["2", "1,902", "1.10", "[0.94,", "1.27]", "55", "%", "98.9", "%", "pass"]
    assert lines[-2:] == ["report  out/report.json", "        out/report.html"]


def test_the_figures_are_those_of_the_report() -> None:
    content = load("pass")
    (group,) = view.view(content).groups
    one, two = group.rows
    run = next(run for run in content["runs"] if run["n"] == 2)
    assert (two.speedup, two.low, two.high) == tuple(run["speedup"][key] for key in ("median", "lo", "hi"))
    assert (two.images_per_s, two.efficiency) == (run["images_per_s"]["dp"], run["efficiency"])
    assert one.images_per_s == two.solo_per_s == run["images_per_s"]["solo"]  # not the figure of the launch with one worker
    assert [row.accuracy for row in group.rows] == [t["accuracy"] for t in content["training"]]
    first = run["rounds"][0]
    together = next(r for r in group.rounds if r.workers == 2 and r.index == 1)
    assert together.together == pytest.approx(run["steps_per_round"] * run["global_batch"] / first["dp_s"])
    assert together.solo == pytest.approx(run["steps_per_round"] * run["batch_per_device"] / first["solo_s"])


def test_with_several_numbers_of_workers_each_row_tells_its_own_yardstick() -> None:
    content = load("pass")
    four = json.loads(json.dumps(next(run for run in content["runs"] if run["n"] == 2)))
    four.update(n=4, images_per_s={"solo": 1500.0, "indep": 5000.0, "dp": 4000.0})
    content["runs"].append(four)
    text = plain_text.table(content)
    assert "1 worker in the same rounds" in text and "1 worker: measured between the rounds of 4 workers." in text
    one, two, last = view.view(content).groups[0].rows
    assert (one.images_per_s, two.solo_per_s, last.solo_per_s) == (1500.0, content["runs"][1]["images_per_s"]["solo"], 1500.0)
    for other in (markdown_page.markdown(content), html_page.html(content)):
        assert "1 worker in the same rounds" in other and "between the rounds of 4 workers" in other
    assert "same rounds" not in plain_text.table(load("pass"))


def test_what_a_plain_script_gets_stands_beside_what_the_test_gets() -> None:
    content = load("pass")
    key = {name: content["runs"][-1][name] for name in ("workload", "net", "scaling")}
    content["plain_runs"] = [{**key, "n": 2, "images_per_s": {"solo": 1234.0, "dp": 1456.0}}]
    for shown in (plain_text.table(content), markdown_page.markdown(content), html_page.html(content)):
        assert "plain script" in shown and "1,234" in shown and "1,456" in shown
        assert "without the memory allocator settings of the smoke test" in shown
    content["plain_runs"][0]["net"] = "another"
    assert "1,234" not in plain_text.table(content)


def test_a_failed_check_comes_with_its_next_step() -> None:
    text = plain_text.table(load("fail"))
    assert text.startswith("FAIL  ")
    assert "FAIL ACC (1 worker): 98.9 % of 2048 test images are right\n     next: See ORACLE" in text
    sentence, hint = view.summary(load("fail"))
    assert sentence == "98.9 % of 2048 test images are right" and hint.startswith("See ORACLE")


def test_a_gpu_image_on_the_cpu_is_labelled_in_every_format_and_no_row_passes() -> None:
    content = load("allow-cpu")
    for text in (plain_text.table(content), markdown_page.markdown(content), html_page.html(content)):
        assert "GPU image run on the CPU" in text
        assert "not judged (CPU workers)" in text
    assert [row.verdict for row in view.view(content).groups[0].rows] == ["inconclusive (checks passed on CPU)"] * 2
    content["notes"] = []
    assert "GPU image run on CPU: this proves nothing about GPUs." in plain_text.table(content)


@pytest.mark.parametrize("name", NAMES)
def test_junit_is_xml_whose_counts_are_right(name: str) -> None:
    content = load(name)
    root = ElementTree.fromstring(junit_xml.junit(content).encode())
    (suite,) = root
    cases = suite.findall("testcase")
    assert root.tag == "testsuites" and len(cases) == len(content["checks"]) + 1 == int(suite.attrib["tests"])
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.attrib[attribute]) == len(suite.findall(f"testcase/{tag}"))
    failed = [check for check in content["checks"] if check["status"] == "fail"]
    assert len(suite.findall("testcase/failure")) == len(failed) + (content["status"] == "fail")


@pytest.mark.parametrize("name", ["no-gpu", "allow-cpu"])
def test_in_junit_nothing_of_an_inconclusive_run_passes(name: str) -> None:
    suite = ElementTree.fromstring(junit_xml.junit(load(name)).encode())[0]
    assert all(case.find("skipped") is not None for case in suite.findall("testcase"))


def test_in_junit_a_report_without_a_verdict_is_an_error() -> None:
    suite = ElementTree.fromstring(junit_xml.junit({"status": "splendid"}).encode())[0]
    assert suite.attrib["errors"] == "1" and suite.attrib["tests"] == "1"


class _Page(HTMLParser):
    """Collects elements that could load or run something, and the open tags."""

    VOID = frozenset({"meta", "link", "br", "hr", "img", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [
            value or "" for key, value in attrs if key in ("src", "href", "srcset", "action") or key.startswith("on")
        ]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def page(text: str) -> _Page:
    parser = _Page()
    parser.feed(text)
    parser.close()
    return parser


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_well_formed_and_loads_nothing(name: str) -> None:
    text = html_page.html(load(name))
    seen = page(text)
    assert seen.wrong == [] and seen.open == []
    assert seen.links == [] and not {"script", "link", "img", "iframe", "object"} & set(seen.tags)
    assert "url(" not in text and "@import" not in text
    assert "Content-Security-Policy" in text and "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text and "@media print" in text


def test_the_plots_are_svg_and_tell_the_figures() -> None:
    drawn = re.findall(r"<svg.*?</svg>", html_page.html(load("pass")), re.DOTALL)
    labels = [ElementTree.fromstring(svg).attrib["aria-label"] for svg in drawn]
    assert "Speedup: 1 worker 1.00, 2 workers 1.10" in labels
    assert "Accuracy: 1 worker 98.9 %, 2 workers 98.9 %" in labels
    assert {label.partition(":")[0] for label in labels} == {
        "Speedup",
        "Efficiency",
        "Images per second in each repeat",
        "All-reduce bus bandwidth by message size",
        "Training loss per step",
        "Accuracy",
        "Seconds",
    }


def test_other_exchanges_stand_beside_averaging_gradients_in_every_format() -> None:
    content = load("schemes")
    rows = [
        line.split() for line in plain_text.table(content).splitlines() if line.lstrip().startswith(("parameters:4", "async:2"))
    ]
    assert [(row[0], row[2], row[3]) for row in rows] == [("parameters:4", "mnist", "2"), ("async:2", "mnist", "2")]
    assert "2 of 2" in markdown_page.markdown(content) and "-0.9 points" in markdown_page.markdown(content)
    text = html_page.html(content)
    assert page(text).wrong == [] and "Other exchanges" in text
    labels = [ElementTree.fromstring(svg).attrib["aria-label"] for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]
    assert any(label.startswith("Milliseconds per step: 2 workers: computing 324 ms") for label in labels)


def test_two_gpus_have_their_links_and_the_nominal_rate_beside_the_measured() -> None:
    content = load("schemes")
    content["devices"] = [{"index": 0, "name": "NVIDIA H200"}, {"index": 1, "name": "NVIDIA H200"}]
    content["topology"] = {"gpus": [0, 1], "links": [["X", "NV18"], ["NV18", "X"]]}
    content["link"] = {"name": "NVLink 4 x 18", "GBps": 450.0}
    for each in content["collectives"]:
        each["nominal_GBps"] = 450.0
    text = html_page.html(content)
    assert page(text).wrong == [] and "GPU 1 NVIDIA H200" in text and "NV18" in text
    assert "the link&#39;s nominal 450 GB/s" in text and "of 450" in text


def test_each_workload_has_its_own_figures_and_checks() -> None:
    content = load("schemes")
    other = [{**each, "workload": "cifar", "net": "resnet20", "accuracy": 0.5} for each in content["training"]]
    failed = {**next(c for c in content["checks"] if c["id"] == "ACC" and c["n"] == 2), "workload": "cifar", "status": "fail"}
    content |= {"training": [*content["training"], *other], "checks": [*content["checks"], failed], "status": "fail"}
    lines = plain_text.table(content).splitlines()
    mnist, cifar = (lines[next(i for i, line in enumerate(lines) if line.startswith(w)) + 3] for w in ("mnist", "cifar"))
    assert "96.0 %" in mnist and mnist.endswith("pass")
    assert "50.0 %" in cifar and cifar.endswith("fail")
    assert any(line.startswith("FAIL ACC (cifar, 2 workers)") for line in lines)


def test_a_report_without_runs_has_a_page_without_plots() -> None:
    text = html_page.html(load("no-gpu"))
    assert "<svg" not in text and "there is no GPU" in text


def test_text_of_the_report_can_not_become_markup() -> None:
    content = load("fail")
    content["environment"]["name"] = NASTY
    content["notes"] = [NASTY]
    content["logs"] = {NASTY: NASTY}
    for check in content["checks"]:
        check.update(id=NASTY, title=NASTY, message=NASTY, next_step=NASTY, unit=NASTY, detail={NASTY: NASTY})
    text = html_page.html(content)
    assert "<script" not in text and page(text).wrong == []
    assert "<script" not in markdown_page.markdown(content)
    suite = ElementTree.fromstring(junit_xml.junit(content).encode())[0]
    assert len(suite.findall("testcase")) == len(content["checks"]) + 1


def test_markdown_has_one_row_per_check_and_keeps_its_columns() -> None:
    content = load("fail")
    content["checks"][0]["message"] = "a | b\nc"
    rows = [line for line in markdown_page.markdown(content).splitlines() if line.startswith("| ✅") or line.startswith("| ❌")]
    assert len(rows) == sum(check["status"] in ("pass", "fail") for check in content["checks"])
    assert all(len(re.split(r"(?<!\\)\|", row)) == 8 for row in rows)


@pytest.mark.parametrize("status", ["pass", "fail", "inconclusive", "error"])
def test_the_verdict_is_the_status(status: str) -> None:
    assert view.verdict_of({"status": status}) == status


@pytest.mark.parametrize("status", [None, "", "PASS", "ok", True, 0, [], {}])
def test_anything_else_is_an_error_never_a_pass(status: object) -> None:
    assert view.verdict_of({"status": status}) == "error"
    assert plain_text.table({"status": status}).startswith("ERROR")


def test_comparing_a_report_with_itself_finds_nothing() -> None:
    text = comparison.compare(load("pass"), load("pass"))
    assert "(within the noise)" in text and "+0.0 %" in text
    assert "checks: the same" in text and "facts: the same" in text


def test_comparing_names_what_changed_and_calls_only_apart_intervals_different() -> None:
    before, after = load("pass"), load("pass")
    after["status"] = "fail"
    after["framework"]["version"] = "9.9"
    run = next(run for run in after["runs"] if run["n"] == 2)
    run["speedup"].update(median=0.5, lo=0.4, hi=0.6)
    replica = next(check for check in after["checks"] if check["id"] == "REPLICA" and check["n"] == 2)
    replica.update(status="fail", message="replicas differ")
    text = comparison.compare(before, after)
    assert "(B is worse)" in text
    assert "REPLICA (2 workers): pass → fail" in text and "replicas differ" in text
    assert "Framework version: 2.4.6 → 9.9" in text
    assert "(B is better)" in comparison.compare(after, before)
    assert "only in A" in comparison.compare(before, load("no-gpu"))
