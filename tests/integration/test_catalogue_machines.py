"""The site's JavaScript under node answers as the resolver does: it never says that something fits if the resolver says no."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import judges
import pytest

from envbuild import workspace
from envbuild.catalogue.machines import MachineTable
from envbuild.catalogue.model import Catalogue
from envbuild.catalogue.pages import pages
from envbuild.errors import EnvbuildError
from envbuild.matrix.types import Matrix
from envbuild.pipeline import catalogue_rows, committed, resolving
from envbuild.pipeline.catalogue_entries import entry_of
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.stored_locks import read_locked
from envbuild.pipeline.tools import Tools

NODE = judges.path_of("node")
ASK = Path(__file__).parent / "site" / "ask.mjs"
ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.judges("node")
Question = dict[str, str]

ODD_DRIVERS = ("384", "525.60", "R470", "391.1", "999.1", "0.1", "346", "580.65.06", "580.65.05", "535.104.05", "12345.1")


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    home = tmp_path_factory.mktemp("home")
    return Tools(workspace.find(str(ROOT), [], {**os.environ, "ENVBUILD_HOME": str(home)}))


@pytest.fixture(scope="module")
def site(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The part of the site that answers questions, with every name of the matrix and the committed environments that are no
    single builds.
    """
    table = MachineTable(matrix=tools.matrix)
    locks = [locked for name in committed.names(tools) if (locked := read_locked(tools, name)) is not None]
    entries = [entry_of(tools, locked, "", with_machine=False) for locked in locks]
    rows = catalogue_rows.rows_of(tools, entries, [locked.lock.environment for locked in locks], table)
    machines = table.machines()
    whole = Catalogue(
        schema=1, made_by="a test", title="A test", updated="", matrix="", since="", words={}, entries=(), rows=tuple(rows)
    )
    folder = tmp_path_factory.mktemp("site")
    for path, text in pages(whole, machines, shm_size="2g"):
        if path in ("data/catalogue.js", "machines.js"):
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    return folder


def asked(site: Path, questions: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    lines = "".join(f"{json.dumps(each)}\n" for each in questions)
    done = subprocess.run(
        [str(NODE), str(ASK), str(site)], input=lines, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def names_in(site: Path) -> list[str]:
    text = (site / "data/catalogue.js").read_text(encoding="utf-8").partition("envbuildCatalogue = ")[2].rstrip().rstrip(";")
    return [row[0] for row in json.loads(text)["rows"]]


def drawn(matrix: Matrix, names: Sequence[str], count: int, seed: int) -> list[Question]:
    """Random questions: known and unknown drivers near every limit, GPUs in several spellings, capabilities."""
    dice = random.Random(seed)
    found: list[Question] = []
    while len(found) < count:
        question = {"name": dice.choice(names), "driver": draw_driver(matrix, dice), "gpu": draw_gpu(matrix, dice)}
        if question["driver"] or question["gpu"]:
            found.append(question)
    return found


def draw_driver(matrix: Matrix, dice: random.Random) -> str:
    limit = dice.choice([row.driver_min for row in (*matrix.cuda, *matrix.driver_rules)])
    parts = [int(part) for part in limit.split(".")]
    parts[-1] = max(0, parts[-1] + dice.choice((-1, 0, 1)))
    branch = dice.choice(matrix.drivers).branch
    near = ".".join(str(part).zfill(2) for part in parts)
    return dice.choice(
        ("", dice.choice(ODD_DRIVERS), branch, f"{int(branch) + dice.randrange(3)}.{dice.randrange(200)}", near, near, near)
    )


def draw_gpu(matrix: Matrix, dice: random.Random) -> str:
    board, other = dice.choice(matrix.gpus), dice.choice(matrix.gpus)
    capability = dice.choice(dice.choice(matrix.architectures).capabilities).replace(".", "")
    words = board.name.split()
    spellings = (
        "",
        f"sm_{capability}",
        f"NVIDIA {board.name}",
        f"{board.name}, {other.name}",
        f"nvidia corporation [{board.name.upper()}]",
        " ".join(dice.sample(words, max(1, len(words) - 1))),
        dice.choice((board.name, *board.aliases)).lower(),
        board.name,
    )
    return dice.choice(spellings)


def resolved(tools: Tools, question: Question) -> tuple[str, str]:
    """The answer of the resolver (``yes``, ``no`` or ``unknown``) and its reason."""
    constraints = Constraints(driver=question["driver"] or None, gpu=question["gpu"] or None)
    try:
        found = resolving.resolve_request(tools, [question["name"]], constraints)
    except EnvbuildError as error:
        return ("no" if error.exit_code == 3 else "unknown"), error.message
    if found.environment.name != question["name"]:
        return "no", f"it answers {found.environment.name}"
    return "yes", "\n".join(found.warnings)


def compare(tools: Tools, site: Path, questions: Sequence[Question]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for question, page in zip(questions, asked(site, questions), strict=True):
        theirs, why = resolved(tools, question)
        ours = {"fits": "yes", "remarks": "yes", "no": "no", "unknown": "unknown"}[page["state"]]
        # If no architecture has the capability, the resolver accepts it with a warning; the page answers `unknown`.
        if theirs == "yes" and ours == "unknown" and "the matrix has no architecture" in why:
            continue
        assert ours == theirs, (question, page, why)
        counts[ours] = counts.get(ours, 0) + 1
        if page["state"] == "fits":  # the resolver has no warning about the machine then
            assert not any(word in why for word in ("PTX", "minor-version", "not checked", "does not use the GPU")), (
                question,
                page,
                why,
            )
    return counts


def test_forty_drawn_questions_get_the_resolvers_answers(tools: Tools, site: Path) -> None:
    too_new = {"name": "horovodpytorch-0.16.1-cuda8.0-py36-ubuntu18.04", "driver": "12345.1", "gpu": ""}
    assert compare(tools, site, [too_new]) == {"no": 1}, "no GPU that this driver supports can run the build"
    counts = compare(tools, site, drawn(tools.matrix, names_in(site), 40, seed=7))
    assert counts["yes"] > 4, counts
    assert counts["no"] > 8, counts


@pytest.mark.prove
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_five_hundred_drawn_questions_get_the_resolvers_answers(tools: Tools, site: Path, seed: int) -> None:
    counts = compare(tools, site, drawn(tools.matrix, names_in(site), 500, seed=seed))
    assert counts["yes"] > 50, counts
    assert counts["no"] > 100, counts
    assert counts["unknown"] > 5, counts


TABLE = """
+---------------------------------------------------------------------------------------+
| NVIDIA-SMI 535.104.05             Driver Version: 535.104.05   CUDA Version: 12.2     |
|-----------------------------------------+----------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |
|=========================================+======================+======================|
|   0  NVIDIA A100-SXM4-80GB          On  | 00000000:07:00.0 Off |                    0 |
| N/A   34C    P0              61W / 400W |      4MiB / 81920MiB |      0%      Default |
|   1  NVIDIA A100-SXM4-80GB          On  | 00000000:0B:00.0 Off |                    0 |
+---------------------------------------------------------------------------------------+
| Processes:                                                                            |
|    0   N/A  N/A      1234      C   python                                     1000MiB |
"""
OLD_TABLE = """
| NVIDIA-SMI 384.130                Driver Version: 384.130                   |
|   0  GeForce GTX 108...  Off  | 00000000:02:00.0 Off |                  N/A |
"""
NAMED = "GPU 0: NVIDIA GeForce RTX 4090 (UUID: GPU-1)\nGPU 1: Tesla T4 (UUID: GPU-2)\n"
CSV = "name, driver_version\nNVIDIA H100 80GB HBM3, 550.54.15\nNVIDIA H100 80GB HBM3, 550.54.15\n"
LONG = "Driver Version                            : 470.82.01\n    Product Name                          : Tesla K80\n"


def test_what_nvidia_smi_prints_is_read(site: Path) -> None:
    texts = [TABLE, OLD_TABLE, NAMED, CSV, LONG, "NVIDIA-SMI has failed because it couldn't communicate", "hello"]
    table, old, named, csv, long, failed, other = asked(site, [{"smi": text} for text in texts])
    assert table == {"driver": "535.104.05", "gpus": ["NVIDIA A100-SXM4-80GB"] * 2}
    assert old["driver"] == "384.130"
    assert old["gpus"] == []
    assert "shortened the name" in old["error"]
    assert named["gpus"] == ["NVIDIA GeForce RTX 4090", "Tesla T4"]
    assert csv == {"driver": "550.54.15", "gpus": ["NVIDIA H100 80GB HBM3"] * 2}
    assert long == {"driver": "470.82.01", "gpus": ["Tesla K80"]}
    assert "error" in failed
    assert "error" in other
    # A table in a mail, a Jetson (which has no bus address), and rows in a form that nobody knows yet.
    jetson = (
        TABLE.splitlines()[2] + "\n|   0  Orin (nvgpu)                  N/A  | N/A              N/A |                  N/A |\n"
    )
    texts = [
        TABLE.replace("\n|", "\n> |"),
        TABLE.replace("\n|", "\n    |"),
        jetson,
        TABLE.replace("| 00000000", "| at 00000000"),
    ]
    quoted, indented, small, unknown = asked(site, [{"smi": text} for text in texts])
    assert quoted == indented == table
    assert small["gpus"] == ["Orin (nvgpu)"]
    assert (unknown["driver"], unknown["gpus"]) == ("", []) and "No GPU could be read" in unknown["error"]


H100, OLD = "NVIDIA H100 80GB HBM3", "GeForce GTX 1080 Ti"
COMMAND = "me@host:~$ nvidia-smi --query-gpu={} --format=csv,noheader\n"


@pytest.mark.parametrize(
    ("paste", "driver", "gpus"),
    [
        (f"{H100}, 550.54.15\n{H100}, 550.54.15\n", "550.54.15", [H100] * 2),
        (f"550.54.15, {H100}\n", "550.54.15", [H100]),
        (f"> 550.54.15, {H100}\n", "550.54.15", [H100]),
        (f"384.130, {OLD}", "384.130", [OLD]),
        (f"{OLD}, 391.35\n", "391.35", [OLD]),
        (f"0, {OLD}, 391.35, 6.1\n1, {OLD}, 391.35, 6.1\n", "391.35", [OLD] * 2),
        (f"{OLD}, 11178 MiB, 391.35, P8, 12.34 W, 250.50 W, 0 %", "391.35", [OLD]),
        (f"0, GPU-5e8b34ac, 00000000:0A:00.0, {H100}, 81559, 450.00, 550.54.15, P0, Default, [N/A]", "550.54.15", [H100]),
        (f"{H100}, 450.00\n", "", [H100]),  # the limit of the power
        (f"{H100}, 81559 MiB, P4\n", "", [H100]),  # P4 is a power state here
        (f"{H100}, 535.104.05, Active\nTITAN RTX, 535.104.05, Active", "535.104.05", [H100, "TITAN RTX"]),
        ("Orin (nvgpu), 540.4.0\n", "540.4.0", ["Orin (nvgpu)"]),
        ("NVIDIA Future 9000, 999.10.02\n", "999.10.02", ["NVIDIA Future 9000"]),
        (f"{H100}\n{OLD}\n550.54.15\n", "550.54.15", [H100, OLD]),
        (f"{COMMAND.format('driver_version,power.draw,gpu_name')}391.35, 400.12, {OLD}\nme@host:~$ \n", "391.35", [OLD]),
        (f"{COMMAND.format('index,name')[:-10]}\nindex, name, driver_version\n0, {OLD}, 391.35", "391.35", [OLD]),
        (f"> name, driver_version\n> {OLD}, 391.35", "391.35", [OLD]),
    ],
)  # fmt: skip
def test_rows_without_titles_are_read_if_they_are_clear(site: Path, paste: str, driver: str, gpus: Sequence[str]) -> None:
    assert asked(site, [{"smi": paste}]) == [{"driver": driver, "gpus": list(gpus)}]


@pytest.mark.parametrize(
    "paste",
    [
        f"{OLD}, 391.35, 11178\n",  # the units are left out, so 391.35 may be watts
        f"{OLD}, 391.35, 400.12\n",
        f"{H100}, 391.35\n{H100}, 402.11\n",
        f"{H100}, 550.54.15, 535.104.05\n",
        f"{H100}, {OLD}, 550.54.15\n",
        f"{H100}, 550.54.15\na board that nobody knows, 550.54.15\n",
        f"{H100}, 550.54.15\n550.54.15, {OLD}\n",
        f"{H100}, 550.54.15\n{OLD}, 535.104.05\n",
        f"{H100}\na board that nobody knows\n",
        "391.35\n",
        "hello, world\n",
    ],
)
def test_rows_that_are_not_clear_give_no_machine_but_say_what_to_paste(site: Path, paste: str) -> None:
    (told,) = asked(site, [{"smi": paste}])
    assert not told.get("driver") and not told.get("gpus")
    assert "nvidia-smi --query-gpu=name,driver_version --format=csv`" in told["error"] or "several drivers" in told["error"]


MIXED_TABLE = """
| NVIDIA-SMI 525.147.05   Driver Version: 525.147.05   CUDA Version: 12.0     |
|   0  Tesla K80           Off  | 00000000:05:00.0 Off |                    0 |
| N/A   34C    P0    61W / 149W |      4MiB / 11441MiB |      0%      Default |
|   1  NVIDIA A100-SXM4-80GB          On  | 00000000:0B:00.0 Off |                    0 |
"""
MIXED_CSV = "index, name, driver_version\n0, NVIDIA GeForce GTX 1080 Ti, 570.86.15\n1, NVIDIA B200, 570.86.15\n"
MIXED_LONG = """
Driver Version                            : 470.82.01
GPU 00000000:02:00.0
    Product Name                          : GeForce GTX 980
GPU 00000000:03:00.0
    Product Name                          : NVIDIA GeForce RTX 3090
"""


@pytest.mark.parametrize("paste", [MIXED_TABLE, MIXED_CSV, MIXED_LONG, f"{TABLE}{NAMED}"])
def test_a_machine_with_different_gpus_gets_the_resolvers_answers(tools: Tools, site: Path, paste: str) -> None:
    """An image fits such a machine only if it fits each GPU, whichever of them is named first."""
    (told,) = asked(site, [{"smi": paste}])
    gpus = list(dict.fromkeys(told["gpus"]))
    assert len(gpus) == 2, told

    def about(name: str, names: Sequence[str]) -> Question:
        return {"name": name, "driver": told["driver"], "gpu": ", ".join(names)}

    names = names_in(site)
    both, first, second, turned = (
        [each["state"] for each in asked(site, [about(name, some) for name in names])]
        for some in (gpus, gpus[:1], gpus[1:], gpus[::-1])
    )
    assert turned == both
    split = {name for name, *states in zip(names, first, second, strict=True) if ("no" in states) != (states == ["no", "no"])}
    assert len(split) > 20, "no image tells these GPUs apart"
    dice = random.Random(5)
    chosen = [
        *dice.sample(sorted(split), 6),
        *dice.sample([name for name, state in zip(names, both, strict=True) if state != "no"], 2),
    ]
    counts = compare(tools, site, [about(name, order) for name in chosen for order in (gpus, gpus[::-1])])
    assert counts["no"] >= 12 and counts["yes"] == 4, counts


def test_the_list_of_names_completes_the_table_that_shortens_them(site: Path) -> None:
    listed = "GPU 0: GeForce GTX 1080 Ti (UUID: GPU-1)\n"
    both, turned = asked(site, [{"smi": f"{OLD_TABLE}{listed}"}, {"smi": f"{listed}{OLD_TABLE}"}])
    assert both == turned == {"driver": "384.130", "gpus": ["GeForce GTX 1080 Ti"]}


def test_an_unknown_machine_gets_no_answer(site: Path) -> None:
    name = names_in(site)[0]
    gpus = ["Radeon RX 7900", "sm_99", "RTX", "a toaster"]
    answers = asked(site, [*({"name": name, "driver": "550.1", "gpu": gpu} for gpu in gpus), {"name": name, "driver": "new"}])
    assert [answer["state"] for answer in answers] == ["unknown"] * 5
