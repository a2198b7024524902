"""Make requests from the words of the matrix: first the meaning is drawn, then the words for it.

Only the plain YAML is used, so that the meaning of a request does not depend on the program that reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from brute_force import Wish, accepts, satisfies
from brute_world import Build, World
from hypothesis import strategies as st
from packaging.version import Version

PROVIDERS = ["apt", "tag", "conda", "wheels", "distribution"]
SIGNS = ["==", "=", ">=", "<=", "<", ">", "!=", "~="]
GARBAGE = [
    "", " ", "-", "--", "+", "_", ".", "..", "*", "=", "==", "===", ">=", "~=", "!=", "<>", ",", ",,", ":", "/", "@",
    "\0", "\n", "\t", "é", "ß", "İ", "\u0663", "\u2167", "\uff11", "\u00b2", "\u202e", "\u200b", "\ud800", "😀",
    "cuda", "cu", "py", "sm_", "v", "cpu", "gpu", "local", "latest", "None", "true", "9" * 30, "1." * 40 + "1", "-1",
    "0", "00", "1e9", "0x9", "1.2.3.4.5.6.7.8", "1!2.0", "2.0rc1", "2.0.dev3", "1.0+cu118", "+cpu", "cuda9.0.176.1",
    "py3.", "py399", "cuda>=", ">=1,<", "'", '"', "$(id)", "%s", "{0}", "../..", "--json", "-h", "a" * 200,
    "a/" * 30 + ":x",
]  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """A request as a user types it, and its meaning."""

    text: str
    options: dict[str, Any]
    wish: Wish

    @property
    def argv(self) -> list[str]:
        found = [self.text]
        for name, value in self.options.items():
            for each in value if isinstance(value, list) else [value]:
                found += [f"--{'os' if name == 'system' else name}", each]
        return found


class Requests:
    """The Hypothesis strategies for one matrix."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.names = {name: [head["short"], name, *head["aliases"]] for name, head in world.heads.items()}
        rows = world.tables["gpus"].values()
        self.boards = [(word, row["capability"], row.get("host", "")) for row in rows for word in _spellings(row)]
        capabilities = [item for row in world.tables["architectures"].values() for item in row["capabilities"]]
        self.boards += [(word, item, "") for item in capabilities for word in (f"sm_{item.replace('.', '')}", item)]
        drivers = [row["driver_min"] for row in (*world.tables["cuda"].values(), *world.tables["driver_rules"].values())]
        branches = list(world.tables["drivers"])
        self.drivers = [*drivers, *branches, *(f"{branch}.{minor}" for branch in branches for minor in ("10", "130", "90.07"))]
        self.systems = [(word, names) for word, names in _systems(world).items()]

    def asked(self) -> st.SearchStrategy[Asked]:
        """Valid requests. Most are close to a build that exists."""
        return _asked(self)


@st.composite
def _asked(draw: st.DrawFn, requests: Requests) -> Asked:
    framework = draw(st.sampled_from(sorted(requests.world.heads)))
    return _Saying(draw, requests, draw(st.sampled_from(requests.world.builds[framework]))).all()


def meant(world: World, frameworks: Sequence[tuple[str, str, str]], said: Sequence[str]) -> list[tuple[str, str, str]]:
    """The frameworks that names mean beside each other.

    The usual name of an add-on means its table for the base framework that is named, too. A longer name means the add-on in the
    usual table; its base framework is then added. If the other table has no such release, the request means a release that does
    not exist, and is refused.
    """
    found = list(frameworks)
    for at, ((usual, clauses, cuda), name) in enumerate(zip(frameworks, said, strict=True)):
        names = [each for each, _, _ in found]
        heads = {(head.get("instead_of"), head.get("beside")): table for table, head in world.heads.items()}
        others = [heads[usual, each] for each in names if (usual, each) in heads]
        fitting = [
            table for table in others if any(satisfies(build.version, clauses, Version) for build in world.builds[table])
        ]
        below = [build.holds[0][0] for build in world.builds[usual] if build.holds]
        if not others or not below or set(below) & set(names) or set(others) & set(names):
            continue
        if name in (usual, world.heads[usual]["short"]):
            found[at] = ((fitting or others)[0], clauses, cuda)
        else:
            found.append((below[0], "", ""))
    return found


class _Saying:
    """Builds one request, part by part. Most parts stay free, because few combinations of conditions can be satisfied."""

    def __init__(self, draw: st.DrawFn, requests: Requests, build: Build) -> None:
        self.draw = draw
        self.requests = requests
        self.build = build
        self.dashed: list[str] = []
        self.free: list[str] = []
        self.options: dict[str, Any] = {}
        self.wish: dict[str, Any] = {}
        self.heads: list[str] = []
        self.frameworks: list[tuple[str, str, str]] = []
        self.said: list[str] = []

    def often(self, times: int, of: int = 10) -> bool:
        return self.draw(st.integers(0, of - 1)) < times

    def one(self, values: Any) -> Any:
        return self.draw(st.sampled_from(list(values)))

    def all(self) -> Asked:
        """Mostly one framework, else two or three that possibly go together."""
        self.say_framework(self.build)
        for _ in range(self.one([0, 0, 0, 0, 0, 0, 0, 1, 1, 2])):
            if (other := self.another()) is not None:
                self.say_framework(other)
        self.say_device()
        self.say_python()
        self.say_system()
        self.say_base()
        self.say_hardware()
        conditions = any(set(head) & set("=<>~!") for head in self.heads)
        heads = " ".join(self.heads) if conditions else "+".join(self.heads)
        # After a condition, the next part must be a separate word.
        joint = " " if conditions else "-"
        text = " ".join([joint.join(filter(None, [heads, "-".join(self.dashed)])), *self.free])
        wish = {"device": "gpu" if self.needs_gpu() else "", **self.wish}
        if self.often(1):
            text = text.upper()
        return Asked(text, self.options, Wish(frameworks=tuple(meant(self.requests.world, self.frameworks, self.said)), **wish))

    def needs_gpu(self) -> bool:
        return any(self.wish.get(part) for part in ("cuda", "cudnn", "nccl", "driver", "gpus"))

    def another(self) -> Build | None:
        """A build of another framework. Mostly it has the same CUDA and a Python in common."""
        said = {name for name, _, _ in self.frameworks}
        free = sorted(set(self.requests.world.heads) - said)
        if not free:
            return None
        builds = self.requests.world.builds[self.one(free)]
        near = [
            build
            for build in builds
            if build.cuda == self.build.cuda and set(build.row["python"]) & set(self.build.row["python"])
        ]
        return self.one(near if near and self.often(8) else builds)

    def say_framework(self, build: Build) -> None:
        name = self.one(self.requests.names[build.framework])
        self.said.append(name)
        head, clauses = self.say_version(build, name)
        whole = clauses.removeprefix("==")
        if whole.count(".") >= 2 and any(other.version == whole for other in self.requests.world.builds[build.framework]):
            clauses = f"==={whole}"  # a complete version of a release means exactly this release
        self.heads.append(head)
        self.frameworks.append((build.framework, clauses, ""))

    def say_version(self, build: Build, name: str) -> tuple[str, str]:
        """The words for a framework with its version, and their meaning."""
        version = build.version if self.often(8) else self.one(self.requests.world.builds[build.framework]).version
        parts = version.split(".")
        line = ".".join(parts[: self.draw(st.integers(1, len(parts)))])
        form = self.one(["none", "dashed", "dashed", "dashed", "dashed", "free", "interval"])
        if form == "dashed":
            return f"{name}-{'v' if self.often(1) else ''}{line}", f"=={line}"
        if form == "free":
            clause = self.one(SIGNS) + line
            return name + clause, clause
        if form == "interval":
            clause = f">={version},<{int(parts[0]) + 1}"
            return name + clause, clause
        return name, ""

    def say_device(self) -> None:
        form = self.one(["", "", "line", "line", "wheel", "free", "cpu", "gpu", "libraries", "libraries"])
        cuda = self.build.cuda if self.often(8) else self.one(self.requests.world.tables["cuda"])
        if form in ("cpu", "gpu"):
            self.dashed.append(form)
            self.wish["device"] = form
        elif form == "libraries":
            for library in ("cudnn", "nccl"):
                if self.often(5):
                    clause = self.one(SIGNS) + self.one(self.near(library))
                    self.free.append(library + clause)
                    self.wish[library] = clause
        elif form and cuda:
            line = cuda if form == "wheel" or self.often(5) else cuda.split(".")[0]
            clause = f"=={line}" if form != "free" else self.one(SIGNS) + line
            if form == "free":
                self.free.append(f"cuda{clause}")
            else:
                self.dashed.append(f"cu{cuda.replace('.', '')}" if form == "wheel" else f"cuda{line}")
            self.wish["cuda"] = clause

    def near(self, library: str) -> list[str]:
        """The versions of a library: mostly those that the build could use, because few of all versions are."""
        rows = list(self.requests.world.tables[library].values())
        need = self.build.row.get(library)
        fitting = [row for row in rows if need and accepts(need, row["version"])]
        return [row["version"] for row in (fitting if fitting and self.often(7) else rows)]

    def say_python(self) -> None:
        form = self.one(["", "", "", "dashed", "option", "free"])
        version = self.one(self.build.row["python"] if self.often(7) else self.requests.world.tables["pythons"])
        clause = f"=={version}" if form in ("dashed", "option") else self.one(SIGNS) + version
        if form == "dashed":
            self.dashed.append(self.one(["py", "python", "cp"]) + self.one([version, version.replace(".", "")]))
        elif form == "option":
            self.options["python"] = self.one([version, version.replace(".", ""), f"py{version}", clause])
        elif form == "free":
            self.free.append(f"python{clause}")
        self.wish["python"] = clause if form else ""

    def say_system(self) -> None:
        form = self.one(["", "", "", "dashed", "option"])
        if form:
            word, names = self.one(self.requests.systems)
            if form == "dashed":
                self.dashed.append(word)
            else:
                self.options["system"] = word
            self.wish["systems"] = names

    def say_base(self) -> None:
        form = self.one(["", "", "", "", "dashed", "option", "image"])
        python, systems = self.wish.get("python", ""), self.wish.get("systems", ())
        if form == "image" and len(systems) == 1 and python.startswith("==") and "~" not in python:
            self.options["base"] = self.wish["image"] = "my/python:3"
            self.wish["base"] = "local"
        elif form in ("dashed", "option"):
            self.wish["base"] = base = self.one(PROVIDERS)
            if form == "dashed":
                self.dashed.append(base)
            else:
                self.options["base"] = base

    def say_hardware(self) -> None:
        if self.often(3):
            self.options["driver"] = self.wish["driver"] = self.one(self.requests.drivers)
        if self.often(3):
            boards = [self.one(self.requests.boards) for _ in range(1 + self.often(2))]
            self.options["gpu"] = [word for word, _, _ in boards]
            self.wish["gpus"] = tuple(capability for _, capability, _ in boards)
            self.wish["host"] = next((host for _, _, host in boards if host), "")


def _spellings(row: dict[str, Any]) -> list[str]:
    return [row["name"], row["name"].lower().replace(" ", ""), *row.get("aliases", [])]


def _systems(world: World) -> dict[str, tuple[str, ...]]:
    """The names of a system: its name, codename or image; and its family, which means all systems of the family."""
    rows = world.tables["systems"].values()
    found: dict[str, tuple[str, ...]] = {row["family"]: () for row in rows}
    for row in rows:
        found[row["family"]] += (row["name"].lower(),)
    for row in rows:
        found |= dict.fromkeys((row["name"].lower(), row["codename"].lower()), (row["name"].lower(),))
    return found


@st.composite
def garbled(draw: st.DrawFn, requests: Requests) -> tuple[str, dict[str, Any]]:
    """A request with parts of its text removed, repeated, exchanged or replaced by invalid ones."""
    asked = draw(requests.asked())
    text, options = asked.text, dict(asked.options)
    for _ in range(draw(st.integers(1, 3))):
        at, to = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        change = draw(st.sampled_from(["drop", "repeat", "insert", "insert", "replace", "text", "option", "word"]))
        if change == "drop":
            text = text[:at] + text[to:]
        elif change == "repeat":
            text = text[:to] + draw(st.sampled_from(["", "-", " ", "+"])) + text[at:]
        elif change == "insert":
            text = text[:at] + draw(st.sampled_from(GARBAGE)) + text[at:]
        elif change == "replace":
            text = text[:at] + draw(st.sampled_from(GARBAGE)) + text[to:]
        elif change == "text":
            text = text[:at] + draw(st.text(max_size=4)) + text[at:]
        elif change == "word":
            text = text + draw(st.sampled_from([" ", "-", "+", ","])) + draw(requests.asked()).text
        else:
            name = draw(st.sampled_from(["driver", "gpu", "python", "system", "base"]))
            options[name] = draw(st.one_of(st.sampled_from(GARBAGE), st.text(max_size=6), st.just(text[at:to])))
    return text, options
