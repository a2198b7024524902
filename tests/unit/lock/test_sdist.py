"""The metadata of source archives, in each of the formats of two decades."""

import io
import tarfile
import zipfile

import pytest

from envbuild.lock import sdist


def archive(tmp_path, files, name="demo-1.0.tar.gz"):
    path = tmp_path / name
    if name.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as out:
            for inner, text in files.items():
                out.writestr(f"demo-1.0/{inner}", text)
        return path
    with tarfile.open(path, "w:gz") as out:
        for inner, text in files.items():
            info = tarfile.TarInfo(f"demo-1.0/{inner}")
            info.size = len(text.encode())
            out.addfile(info, io.BytesIO(text.encode()))
    return path


OLD = "Metadata-Version: 1.1\nName: demo\nVersion: 1.0\n"


@pytest.mark.parametrize("name", ["demo-1.0.tar.gz", "demo-1.0.zip"])
def test_requires_txt_with_extras_and_markers(tmp_path, name):
    text = (
        'six>=1.5\n\n[:python_version<"3.4"]\nenum34\n\n[test]\npytest\n\n'
        '[test:sys_platform=="win32"]\npywin32; python_version<"3"\n'
    )
    found = sdist.read(archive(tmp_path, {"PKG-INFO": OLD, "src/demo.egg-info/requires.txt": text}, name))
    assert found.requires == (
        "six>=1.5",
        'enum34 ; (python_version<"3.4")',
        'pytest ; extra == "test"',
        'pywin32 ; (python_version<"3") and (sys_platform=="win32") and extra == "test"',
    )
    assert (found.name, found.version) == ("demo", "1.0")
    assert found.build_requires == ("setuptools", "wheel")


def test_what_setuptools_found_nothing_to_require_for_requires_nothing(tmp_path):
    """setuptools writes requires.txt only if there are requirements.

    What setup.py would require on other systems does not count.
    """
    setup = "import sys, setuptools\nold = ['x'] if sys.version_info < (3,) else []\nsetuptools.setup(install_requires=old)"
    files = {"PKG-INFO": OLD, "setup.py": setup, "src/demo.egg-info/SOURCES.txt": "setup.py\n"}
    assert sdist.read(archive(tmp_path, files)).requires == ()
    elsewhere = {"PKG-INFO": OLD, "setup.py": setup, "tests/data/other/other.egg-info/SOURCES.txt": "setup.py\n"}
    with pytest.raises(sdist.UnreadableSdistError):
        sdist.read(archive(tmp_path, elsewhere))


def test_a_distutils_archive_requires_nothing(tmp_path):
    files = {"PKG-INFO": OLD, "setup.py": "from distutils.core import setup\nsetup(name='demo')\n"}
    assert sdist.read(archive(tmp_path, files)).requires == ()


def test_plain_literals_in_setup_py_are_read(tmp_path):
    setup = """
import setuptools
if __name__ == "__main__":
    setuptools.setup(name="demo", install_requires=["six", "b>1"],
                     extras_require={":python_version == '2.6'": ["ordereddict"], "fast": "c"})
"""
    found = sdist.read(archive(tmp_path, {"PKG-INFO": OLD, "setup.py": setup}))
    assert found.requires == ("six", "b>1", "ordereddict ; (python_version == '2.6')", 'c ; extra == "fast"')


@pytest.mark.parametrize(
    "setup",
    [
        "setup(install_requires=open('r.txt').read().split())",
        "setup(install_requires=['a'] if old else [])",
        "setup(**{'install_requires': ['a']})",
        "needs = {'install_requires': ['a']}\nsetup(name='demo', **needs)",
        "print 'Python 2 only'\nsetup(install_requires=['a'])",
        "setup(install_requires=['a'])\nsetup(install_requires=['b'])",
    ],
)
def test_what_only_running_would_tell_is_refused(tmp_path, setup):
    with pytest.raises(sdist.UnreadableSdistError, match="running"):
        sdist.read(archive(tmp_path, {"PKG-INFO": OLD, "setup.py": setup}))


def test_modern_metadata_is_believed_unless_dynamic(tmp_path):
    static = "Metadata-Version: 2.2\nName: demo\nVersion: 1.0\nRequires-Python: >=3.8\nRequires-Dist: a>1\n"
    found = sdist.read(archive(tmp_path, {"PKG-INFO": static, "demo.egg-info/requires.txt": "b\n"}))
    assert (found.requires, found.requires_python) == (("a>1",), ">=3.8")
    dynamic = static + "Dynamic: Requires-Dist\n"
    assert sdist.read(archive(tmp_path, {"PKG-INFO": dynamic, "demo.egg-info/requires.txt": "b\n"})).requires == ("b",)


def test_pyproject_and_setup_cfg_declare_too(tmp_path):
    project = '[build-system]\nrequires = ["hatchling>=1"]\n[project]\nname = "demo"\ndependencies = ["a", "b>2"]\n'
    found = sdist.read(archive(tmp_path, {"PKG-INFO": OLD, "pyproject.toml": project}))
    assert found.requires == ("a", "b>2")
    assert found.build_requires == ("hatchling>=1", "setuptools", "wheel")
    config = "[options]\ninstall_requires =\n    a\n    b>2\nsetup_requires =\n    pbr\n"
    found = sdist.read(archive(tmp_path, {"PKG-INFO": OLD, "setup.cfg": config, "setup.py": "setup()"}))
    assert (found.requires, found.build_requires) == (("a", "b>2"), ("setuptools", "wheel", "pbr"))


def test_setup_requires_becomes_a_build_requirement(tmp_path):
    files = {"PKG-INFO": OLD, "setup.py": "setup(setup_requires=['pbr>=1.3', \"pytest-runner\"])\n"}
    assert sdist.read(archive(tmp_path, files)).build_requires == ("setuptools", "wheel", "pbr>=1.3", "pytest-runner")


def test_damaged_archives_are_refused_in_words(tmp_path):
    broken = tmp_path / "demo-1.0.tar.gz"
    broken.write_bytes(archive(tmp_path, {"PKG-INFO": OLD}).read_bytes()[:40])
    with pytest.raises(sdist.UnreadableSdistError, match="unpacked"):
        sdist.read(broken)
    with pytest.raises(sdist.UnreadableSdistError, match="PKG-INFO"):
        sdist.read(archive(tmp_path, {"setup.py": ""}))
    with pytest.raises(sdist.UnreadableSdistError, match=r"pyproject\.toml"):
        sdist.read(archive(tmp_path, {"PKG-INFO": OLD, "pyproject.toml": "= ="}))
