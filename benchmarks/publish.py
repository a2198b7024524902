"""What does `envbuild publish` make, send and move? Publish environments, publish them again, change one recipe, publish again.

    python benchmarks/publish.py [--change RECIPE] [--scratch FOLDER] NAME…

The environments go from a copy of this checkout to an empty `docker-registry` (a package of Debian) on loopback. Three runs of
`envbuild publish` follow: the first publishes everything, the second has nothing to do, and before the third, the smoke adapter
of one recipe gets a comment. This program asks the registry for its tags and digests before and after each run, without code of
envbuild. After each run, the programs in READERS that are installed read each tag, and cosign checks the signatures.

The exit code is 1 in these cases: the second run moved or added a tag; the third run changed no tag, or the tag of an
environment without this recipe; a reader refused an image or read another digest.

It needs a container engine that answers, or `ENVBUILD_HOME` of a private one. The images must be those that can be built on
this machine, and that train on a CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from loopback_registry import registry

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = "bench/published"
ACCEPT = ", ".join(
    f"application/vnd.{kind}+json"
    for kind in ("oci.image.manifest.v1", "oci.image.index.v1", "docker.distribution.manifest.v2")
)

# Programs of other projects, each with the command that prints the digest of the image `{image}`. cosign's command checks the
# image's signature with the public key in the file `{key}`.
READERS = {
    "cosign": "cosign verify --key {key} --insecure-ignore-tlog=true --allow-insecure-registry {image}",
    "crane": "crane digest --insecure {image}",
    "oras": "oras manifest fetch --plain-http --descriptor {image}",
    "skopeo": "skopeo inspect --tls-verify=false --format {{{{.Digest}}}} docker://{image}",
}


def digests(host: str) -> dict[str, str]:
    """The digest that each tag names. Tags of referrers (`sha256-…`) are left out: they follow their images."""
    with urllib.request.urlopen(f"http://{host}/v2/{REPOSITORY}/tags/list") as answer:
        tags = json.load(answer)["tags"] or []
    found = {}
    for tag in (each for each in tags if not each.startswith("sha256-")):
        asked = urllib.request.Request(
            f"http://{host}/v2/{REPOSITORY}/manifests/{tag}", headers={"Accept": ACCEPT}, method="HEAD"
        )
        with urllib.request.urlopen(asked) as answer:
            found[tag] = answer.headers["Docker-Content-Digest"]
    return found


def read_by_others(host: str, tags: dict[str, str], public: Path) -> tuple[dict[str, int], list[str]]:
    """Read each tag with each reader that is installed, and compare the digest with the one in ``tags``.

    Return the number of tags that each reader confirmed, and a line for each tag that a reader did not confirm.
    """
    counts, faults = {}, []
    env = {**os.environ, "HOME": str(public.parent)}
    for reader in filter(shutil.which, READERS):
        counts[reader] = 0
        for tag, digest in tags.items():
            argv = READERS[reader].format(image=f"{host}/{REPOSITORY}:{tag}", key=public).split()
            done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=120, check=False)
            if done.returncode == 0 and digest in done.stdout:
                counts[reader] += 1
            else:
                faults.append(f"{reader} on {tag}: exit {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
    return counts, faults


def frameworks(copy: Path, name: str) -> set[str]:
    """The names of the recipes of all frameworks in the environment ``name``."""
    lock = json.loads((copy / "images/environments" / name / "lock.json").read_text())
    return {each["recipe"] for each in lock["environment"]["frameworks"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--change", default="chainer", metavar="RECIPE")
    parser.add_argument("--scratch", type=Path, help="the folder for the copy and the registry")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        return measure(Path(folder), options.names, options.change)


def measure(scratch: Path, names: list[str], recipe: str) -> int:
    """Publish three times, print a table, and return the exit code."""
    copy, key, public = scratch / "checkout", scratch / "cosign.key", scratch / "cosign.pub"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(copy)], check=True)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    pair = ec.generate_private_key(ec.SECP256R1())
    key.write_bytes(pair.private_bytes(*form))
    shown = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    public.write_bytes(pair.public_key().public_bytes(*shown))
    touched = {name for name in names if recipe in frameworks(copy, name)}
    print(f"{len(names)} environments, {len(touched)} of them with the recipe {recipe}", flush=True)
    print(f"{'':24} {'seconds':>8} {'exit':>5} {'new tags':>9} {'moved':>6} {'as before':>10}", flush=True)
    faults = []
    with registry(scratch) as place:
        before: dict[str, str] = {}
        for title in ("the first run", "nothing changed", f"{recipe} changed"):
            if title.startswith(recipe):
                with (copy / "images/recipes" / recipe / "smoke.py").open("a") as adapter:
                    adapter.write("# A comment.\n")
            began = time.monotonic()
            argv = [
                sys.executable,
                "-m",
                "envbuild",
                "--root",
                str(copy),
                "publish",
                *names,
                "--to",
                f"{place.host}/{REPOSITORY}",
            ]
            argv += ["--key", str(key), "--allow-cpu", "--expect", "cpu", "--keep-going", "--progress", "plain"]
            with (scratch / "log").open("w") as log:
                code = subprocess.run(
                    argv, stdout=log, stderr=log, env={**os.environ, "COSIGN_PASSWORD": ""}, check=False
                ).returncode
            seconds, after = time.monotonic() - began, digests(place.host)
            new = after.keys() - before.keys()
            moved = {tag for tag in after.keys() & before.keys() if after[tag] != before[tag]}
            kept = len(after) - len(new) - len(moved)
            print(f"{title:24} {seconds:8.1f} {code:5} {len(new):9} {len(moved):6} {kept:10}", flush=True)
            if code:
                faults.append(f"{title}: exit {code}\n{(scratch / 'log').read_text()[-3000:]}")
            if before.keys() - after.keys():
                faults.append(f"{title}: tags are gone: {sorted(before.keys() - after.keys())}")
            if title == "nothing changed" and new | moved:
                faults.append(f"{title}: new or moved tags: {sorted(new | moved)}")
            if title.startswith(recipe):
                others = {tag for tag in new | moved if not any(tag.startswith(name.replace("+", "_")) for name in touched)}
                print("  changed:", *sorted(new | moved), sep="\n    ", flush=True)
                if others or not moved:
                    faults.append(f"{title}: tags of other environments: {sorted(others)}; moved: {len(moved)}")
            counts, refused = read_by_others(place.host, after, public)
            print(f"  read by {', '.join(f'{reader} {count}' for reader, count in counts.items()) or 'nobody'}", flush=True)
            faults += refused
            before = after
    print(*faults, sep="\n", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
