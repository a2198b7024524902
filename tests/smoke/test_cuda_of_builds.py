"""The CUDA version that adapters report on a machine without a GPU.

Images for GPUs are built and verified on such machines, too.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import GUEST, REPOSITORY, Guest

# Prints the answers of each adapter for a CPU build and a CUDA build. The fakes have the fields that `versions` reads.
PROGRAM = """
import json, os, sys, types


class Fake(object):
    def __init__(self, **fields):
        self.__dict__.update(fields)


guest = types.ModuleType('envbuild_smoke')
guest.__path__ = [sys.argv[1]]
sys.modules['envbuild_smoke'] = guest
from envbuild_smoke import adapters
from envbuild_smoke.machine import mapped

site = sys.argv[2]


def framework(name, **more):
    return Fake(__version__='1.0', __file__=os.path.join(site, name, '__init__.py'), **more)


def said(name, **fields):
    side = object.__new__(adapters.load(name))
    side.ctx, side.on_gpu = Fake(kind='cpu', devices=[0]), False
    for field, value in fields.items():
        setattr(side, field, value)
    return side.versions()['cuda_build']


def plugin(**versions):
    for name in ('jax', 'jax._src', 'jax._src.lib'):
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules['jax._src.lib'].cuda_versions = Fake(**versions) if versions else None


torch7 = sys.modules[adapters.load('torch7').__module__]
torch7.CUDA_LIBRARY = os.path.join(site, 'libTHC.so')
keras, told = framework('keras'), {}
runtime = framework('cupy', cuda=Fake(runtime=Fake(runtimeGetVersion=lambda: 12090)))
for build in ('cpu', 'cuda'):
    with_cuda = build == 'cuda'
    mapped.paths = lambda name, with_cuda=with_cuda: ['/usr/lib/lib%s.so' % name] if with_cuda else []
    plugin(**(dict(cuda_runtime_build_version=lambda: 12080, cudnn_build_version=lambda: 90800) if with_cuda else {}))
    sys.modules['pygpu'] = types.ModuleType('pygpu') if with_cuda else None
    (os.makedirs if with_cuda else os.path.join)(os.path.join(site, 'cupy'))
    if with_cuda:
        with open(os.path.join(site, 'libTHC.so'), 'wb') as stream:
            stream.write(b'ELF' + bytes(5000) + b'libc.so.6\\0libcublas.so.9.0\\0libcudart.so.9.0\\0')
    told[build] = {
        'caffe': said('caffe', caffe=framework('caffe')), 'cntk': said('cntk', cntk=framework('cntk')),
        'keras_cntk': said('keras_cntk', keras=keras), 'keras_theano': said('keras_theano', keras=keras),
        'keras_jax': said('keras_jax', keras=keras),
        'keras_pytorch': said('keras_pytorch', keras=keras, torch=Fake(version=Fake(cuda='12.4' if with_cuda else None))),
        'torch7': said('torch7'),
        'chainer': said('chainer', chainer=framework('chainer', cuda=Fake(available=False))),
    }
told['cuda']['cupy-cuda129'] = said('cupy', cupy=runtime)
os.makedirs(os.path.join(site, 'cupy_cuda12x-13.6.0.dist-info'))
told['cuda']['cupy-cuda12x'] = said('cupy', cupy=runtime)
with open(torch7.CUDA_LIBRARY, 'wb') as stream:
    stream.write(b'ELF')
told['cuda']['torch7, linked statically'] = said('torch7')
print(json.dumps(told))
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A copy of the guest with every adapter."""
    folder = tmp_path / "smoke"
    shutil.copytree(GUEST, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for adapter in (REPOSITORY / "images/recipes").glob("*/smoke.py"):
        shutil.copy(adapter, folder / "adapters" / f"{adapter.parent.name}.py")
    return folder


def test_a_build_with_cuda_is_none_for_cpus_where_there_is_no_gpu(guest: Guest, installed: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    command = [guest.executable, "-c", PROGRAM, str(installed), str(site)]
    done = subprocess.run(command, env=guest.env(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert set(told["cpu"].values()) == {None}, told["cpu"]
    assert told["cuda"] == {
        "caffe": "unknown",
        "chainer": "unknown",
        "cntk": "unknown",
        "cupy-cuda129": "12.9",
        "cupy-cuda12x": "12",
        "keras_cntk": "unknown",
        "keras_jax": "12.8",
        "keras_pytorch": "12.4",
        "keras_theano": "unknown",
        "torch7": "9.0",
        "torch7, linked statically": "unknown",
    }
