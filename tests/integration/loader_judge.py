"""Compare the link check's search with the answers of the image's own dynamic loader, run in a container."""

from __future__ import annotations

import json
from pathlib import Path

from envbuild.engine.client import Engine
from envbuild.linkcheck import rules
from envbuild.linkcheck.loader import Loader
from envbuild.linkcheck.tree import Tree
from envbuild.pipeline import link_check, link_check_sources
from envbuild.pipeline.tools import Tools

# For each object: the libraries that the loader finds (name → file without links), and those that it does not find.
ASK = """
import json, os, re, subprocess, sys
told = {}
for path in open('/tmp/objects').read().split('\\n'):
    if not path:
        continue
    found, missing = {}, []
    said = subprocess.run(['/lib64/ld-linux-x86-64.so.2', '--list', path], capture_output=True, text=True)
    for line in said.stdout.splitlines():
        match = re.match(r'\\s+(\\S+) => (.+?)(?: \\(0x[0-9a-f]+\\))?$', line)
        if match and match[2] == 'not found':
            missing.append(match[1])
        elif match and "/" not in match[1] and match[2].startswith('/'):
            found[match[1]] = os.path.realpath(match[2])
    versions = sorted(set(re.findall(r"version `([^']+)' not found", said.stdout + said.stderr)))
    told[path] = [found, sorted(set(missing)), versions, said.returncode]
print('ANSWER' + json.dumps(told))
"""


def differences(tools: Tools, engine: Engine, image: str, folder: Path) -> tuple[list[str], int]:
    """The objects of ``image`` about which the two disagree, with both answers. Also the number of compared objects."""
    source = link_check_sources.of_engine(tools, image)
    tree = Tree(link_check.facts_of(tools, source, rules.load(tools.workspace.images)))
    loader = Loader(tree, source.environment)
    paths = [path for path, facts in tree.objects() if facts.needed and not facts.damage]
    (folder / "objects").write_text("\n".join(paths))
    (folder / "ask.py").write_text(ASK)
    said = engine.run(
        image,
        ["/tmp/ask.py"],
        entrypoint=["/usr/bin/python3"],
        user="0",
        deliver={"/tmp/objects": folder / "objects", "/tmp/ask.py": folder / "ask.py"},
        network="none",
    )
    (answer,) = [line for line in said.output.splitlines() if line.startswith("ANSWER")]
    told = json.loads(answer.removeprefix("ANSWER"))
    unlike = []
    for path in paths:
        found, missing, _, code = told[path]
        process = loader.load(path, program=None, held={})
        assert process is not None
        ours = {name: each.real for (_, name), each in process.found.items()}
        lacking = sorted({each.name for each in process.missing})
        if code == 0 or missing:
            common = {name: ours.get(name) for name in found}
            if common != found or lacking != missing:
                other = {name: (common[name], file) for name, file in found.items() if common[name] != file}
                unlike.append(f"{path}: ours and the loader's: {other}; not found: ours {lacking}, the loader's {missing}")
    return unlike, len(paths)
