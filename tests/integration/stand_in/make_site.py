"""Make stand-ins of the servers that the build of a stack uses: small packages of the right names and versions, below /srv.

This program runs in a separate image, with that image's Python, and reads /spec.json. It writes /srv/manifest.json with the
hashes and keys that a lock must name instead of the real ones.
"""

import functools
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import textwrap
import zipfile
from pathlib import Path

SRV = Path("/srv")
SPEC = json.loads(Path("/spec.json").read_text())
MANIFEST = {"artifacts": {}, "files": {}, "fingerprints": {}}

NVCC = """\
#!/bin/sh
echo 'Cuda compilation tools, release 9.0, V9.0.176'
"""
# The setuptools of 2018 calls a method that Python 3.9 no longer has.
OLD_NAMES = "import html.parser\nhtml.parser.HTMLParser.unescape = staticmethod(html.unescape)\n"
# Functions of stand-in modules that the recipes' steps call. All other stand-in modules only have a version.
MODULES = {"numpy": "def get_include():\n    return '/usr/include'\n"}

CAFFE = """\
CXXFLAGS = -fPIC
lib:
\tmkdir -p build/lib
\techo 'int caffe() { return 1; }' | g++ -shared -fPIC -x c++ - -o build/lib/libcaffe.so
tools:
\tmkdir -p build/tools
\techo 'int main() { return 0; }' | g++ -x c++ - -o build/tools/caffe
py:
\tmkdir -p python/caffe
\techo '__version__ = "1.0.0"' > python/caffe/__init__.py
\techo 'int py() { return 1; }' | g++ -shared -fPIC -x c++ - -o python/caffe/_caffe.so
"""
CAFFE2 = """\
cmake_minimum_required(VERSION 3.0)
project(caffe2 CXX)
add_library(caffe2 SHARED caffe2.cc)
install(TARGETS caffe2 LIBRARY DESTINATION lib)
install(FILES caffe2.cc DESTINATION include/caffe2)
install(FILES macros.h DESTINATION include/caffe2/core)
install(FILES caffe2.py DESTINATION lib/python3.9/site-packages)
"""
# It must link with at least one system library, because the recipe's step looks for the packages of these libraries.
CAFFE2_SOURCE = "#include <string>\nstd::string caffe2(int n) { return std::string(n, 'x'); }\n"
TORCH = """\
#!/bin/sh
set -eu
test "$1" = -b
mkdir -p "${PREFIX}/bin" "${PREFIX}/lib"
for name in libTH.so.0 libluajit.so; do
    echo 'int f() { return 1; }' | g++ -shared -fPIC -x c++ - -o "${PREFIX}/lib/${name}"
done
echo 'int main() { return 0; }' | g++ -x c++ - -o "${PREFIX}/bin/luajit"
printf '#!/bin/sh\\nexec luajit "$@"\\n' > "${PREFIX}/bin/th"
chmod 0755 "${PREFIX}/bin/th"
"""
SETUP = "from setuptools import setup\nsetup(name={name!r}, version={version!r}, py_modules=[])\n"
SOURCES = {
    "caffe": {"Makefile": CAFFE},
    "caffe2": {"CMakeLists.txt": CAFFE2, "caffe2.cc": CAFFE2_SOURCE, "macros.h": "\n", "caffe2.py": "\n"},
    "lasagne": {"setup.py": SETUP.format(name="Lasagne", version="0.2.dev1")},
    "torch7": {"install.sh": TORCH},
}
MICROMAMBA = """\
#!/bin/sh
set -eu
while [ $# -gt 0 ]; do
    case "$1" in --prefix) prefix="$2"; shift ;; --file) list="$2"; shift ;; esac
    shift
done
mkdir -p "${prefix}/conda-meta"
sed -n 's#^file://##p' "${list}" | while read -r file; do tar -xzf "${file}" -C "${prefix}"; done
"""


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def archive(members):
    """A gzipped tar of ``members``, a mapping from path to text or bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        for path, content in members.items():
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(data), 0o755
            made.addfile(info, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), mtime=0)


def wheel(name, version):
    """A wheel for every Python, with one module named after the project."""
    stem = name.replace("-", "_")
    module = {"theano": "theano", "pyyaml": "yaml"}.get(name, stem)
    record = f"{stem}-{version}.dist-info"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        write = functools.partial(_put, made)  # without times: installers cache by address, so the wheel must not change
        write(f"{module}/__init__.py", f"__version__ = {version!r}\n" + MODULES.get(name, ""))
        write(f"{record}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        write(
            f"{record}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: stand-in\nRoot-Is-Purelib: true\nTag: py2-none-any\nTag: py3-none-any\n",
        )
        write(f"{record}/RECORD", "")
    return f"{stem}-{version}-py2.py3-none-any.whl", buffer.getvalue()


def _put(made, path, text):
    made.writestr(zipfile.ZipInfo(path), text)


def sdist(name, version, filename):
    stem = filename[: -len(".tar.gz")]
    setup = f"from setuptools import setup\nsetup(name={name!r}, version={version!r}, py_modules=[])\n"
    info = f"Metadata-Version: 1.0\nName: {name}\nVersion: {version}\n"
    return filename, archive({f"{stem}/setup.py": setup, f"{stem}/PKG-INFO": info})


def offer(index, project, filename, content):
    """Put a file on a package index."""
    page = SRV / index / project
    page.mkdir(parents=True, exist_ok=True)
    (page / filename).write_bytes(content)
    links = "".join(
        f'<a href="{file.name}#sha256={sha256(file.read_bytes())}">{file.name}</a>\n'
        for file in sorted(page.iterdir())
        if file.name != "index.html"
    )
    (page / "index.html").write_text(f"<!DOCTYPE html><html><body>\n{links}</body></html>\n")


def packages():
    for each in SPEC["artifacts"]:
        name, version = each["name"], each["version"]
        if Path("/real", each["filename"]).exists():  # a tool that also builds the other packages, so its real file is used
            filename, content = each["filename"], Path("/real", each["filename"]).read_bytes()
        elif each["filename"].endswith(".whl"):
            filename, content = wheel(name, version)
        else:
            filename, content = sdist(name, version, each["filename"])
        offer(each["index"], each["project"], filename, content)
        MANIFEST["artifacts"][each["filename"]] = {"filename": filename, "sha256": sha256(content)}
    for file in Path("/real").iterdir():
        offer("simple", file.name.split("-")[0].lower(), file.name, file.read_bytes())


def deb(repository, name, version, files, depends=""):
    folder = Path("/tmp/deb", name)
    (folder / "DEBIAN").mkdir(parents=True)
    control = f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: stand-in\nDescription: stand-in\n"
    (folder / "DEBIAN/control").write_text(control + (f"Depends: {depends}\n" if depends else ""))
    (folder / "DEBIAN/triggers").write_text("activate-noawait ldconfig\n")
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(0o755)
    place = SRV / repository
    place.mkdir(parents=True, exist_ok=True)
    run("dpkg-deb", "--build", folder, place / f"{name}_{version.replace(':', '.')}_amd64.deb")
    shutil.rmtree(folder)


def run(*command, **more):
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, **more)


def shared_object(soname):
    """A library that the loader's cache finds by this name."""
    source, target = Path("/tmp/x.c"), Path("/tmp/x.so")
    source.write_text("int stand_in(void) { return 1; }\n")
    run("gcc", "-shared", "-fPIC", f"-Wl,-soname,{soname}", source, "-o", target)
    return target.read_bytes()


def repositories():
    library = "usr/lib/x86_64-linux-gnu"
    special = {
        "libopenmpi1.10": {f"{library}/{name}": shared_object(name) for name in ("libmpi.so.12", "libmpi_cxx.so.1")},
        "libboost-python-dev": {f"{library}/libboost_python-py35.so": shared_object("libboost_python-py35.so.1")},
        "python-opencv": {"usr/lib/python2.7/dist-packages/cv2.x86_64-linux-gnu.so": shared_object("cv2.so")},
        "cuda-core-9-0": {"usr/local/cuda-9.0/bin/nvcc": NVCC.encode()},
    }
    for repository, named in SPEC["debs"].items():
        for name, version in named.items():
            default = {f"usr/local/cuda-9.0/lib64/{name}.txt": version.encode()} if repository != "ubuntu" else {}
            deb(repository, name, version, special.get(name, default))
        place = SRV / repository
        run("sh", "-c", "apt-ftparchive packages . > Packages", cwd=place)
        run("sh", "-c", "apt-ftparchive release . > /tmp/Release && mv /tmp/Release Release", cwd=place)
        if repository != "ubuntu":
            sign(repository, place)


def sign(name, place):
    address = f"{name}@stand-in.invalid"
    run(
        "gpg",
        "--batch",
        "--quiet",
        "--pinentry-mode",
        "loopback",
        "--passphrase",
        "",
        "--quick-generate-key",
        f"{name} <{address}>",
        "rsa2048",
        "sign",
        "never",
    )
    run(
        "gpg",
        "--batch",
        "--quiet",
        "--local-user",
        address,
        "--armor",
        "--detach-sign",
        "--output",
        place / "Release.gpg",
        place / "Release",
    )
    (place / "key.pub").write_bytes(subprocess.check_output(["gpg", "--armor", "--export", address]))
    listed = subprocess.check_output(["gpg", "--with-colons", "--list-keys", address], text=True)
    MANIFEST["fingerprints"][name] = (
        next(line for line in listed.splitlines() if line.startswith("fpr")).strip(":").split(":")[-1]
    )


def python_tree():
    """The Python of this image as a folder that works at any path."""
    members = {"bin/python3.6": Path("/usr/bin/python3.9").read_bytes()}
    for path in Path("/usr/lib/python3.9").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            members["lib/python3.9/" + str(path.relative_to("/usr/lib/python3.9"))] = path.read_bytes()
    members["lib/python3.9/sitecustomize.py"] = OLD_NAMES
    return archive(members)


def files():
    place = SRV / "files"
    for path in SPEC["files"]:
        name = path.rpartition("/")[2]
        if name.startswith("micromamba"):
            content = MICROMAMBA.encode()
        elif name.startswith("python-"):
            content = python_tree()
        else:
            content = archive({"share/" + name: name})
        target = place / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        MANIFEST["files"][path] = sha256(content)


def sources():
    place = SRV / "sources"
    place.mkdir(parents=True)
    for name in SPEC["sources"]:
        members = {f"source/{path}": textwrap.dedent(text) for path, text in SOURCES[name].items()}
        (place / f"{name}.tar").write_bytes(gzip.decompress(archive(members)))


os.environ["SOURCE_DATE_EPOCH"] = "1577836800"
packages()
repositories()
files()
sources()
(SRV / "manifest.json").write_text(json.dumps(MANIFEST))
