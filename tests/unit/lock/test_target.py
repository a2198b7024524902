"""Tags, markers and Python bounds for a target, checked with facts about real wheels."""

import sys

import pytest
from packaging import tags
from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement
from packaging.specifiers import InvalidSpecifier

from envbuild.lock.target import Target, read_requirement, read_specifiers

PY27 = Target(python="2.7", glibc="2.31")
PY35 = Target(python="3.5", glibc="2.23")
PY36 = Target(python="3.6", glibc="2.27")
PY311 = Target(python="3.11", glibc="2.36")


@pytest.mark.parametrize(
    ("target", "filename", "fits"),
    [
        (PY27, "a-1.0-cp27-cp27mu-manylinux1_x86_64.whl", True),
        (PY27, "a-1.0-cp27-cp27m-manylinux1_x86_64.whl", False),
        (PY27, "a-1.0-py2-none-any.whl", True),
        (PY27, "a-1.0-py3-none-any.whl", False),
        (PY27, "a-1.0-cp27-none-linux_x86_64.whl", True),
        (PY35, "a-1.0-cp35-cp35m-manylinux2014_x86_64.whl", True),
        (PY35, "a-1.0-cp34-abi3-manylinux2010_x86_64.whl", True),
        (PY35, "a-1.0-cp35-cp35m-manylinux_2_24_x86_64.whl", False),
        (PY36, "a-1.0-cp36-cp36m-manylinux_2_27_x86_64.whl", True),
        (PY36, "a-1.0-cp36-cp36m-manylinux_2_28_x86_64.whl", False),
        (PY36, "a-1.0-cp36-cp36m-win_amd64.whl", False),
        (PY36, "a-1.0-cp37-abi3-manylinux1_x86_64.whl", False),
        (PY311, "a-1.0-cp311-cp311-manylinux_2_36_x86_64.whl", True),
        (PY311, "a-1.0-cp311-cp311-musllinux_1_2_x86_64.whl", False),
        (PY311, "a-1.0-cp311-cp311-manylinux_2_28_aarch64.whl", False),
        (PY311, "a-1.0-py3-none-manylinux2014_x86_64.whl", True),
        (PY311, "a-1.0-py3.whl", False),
    ],
)
def test_a_wheel_fits_or_not(target, filename, fits):
    assert (target.rank_of_wheel(filename) is not None) is fits


def test_the_most_specific_wheel_and_the_highest_build_win():
    names = [
        "a-1.0-py3-none-any.whl",
        "a-1.0-cp36-abi3-manylinux2014_x86_64.whl",
        "a-1.0-cp311-cp311-manylinux1_x86_64.whl",
        "a-1.0-1-cp311-cp311-manylinux_2_28_x86_64.whl",
        "a-1.0-2-cp311-cp311-manylinux_2_28_x86_64.whl",
    ]
    assert sorted(names, key=PY311.rank_of_wheel) == names[::-1]


def test_markers_and_tags_are_those_of_the_running_interpreter_when_it_is_the_target():
    """For the running Python, its own tags and markers agree with those computed for it as a target."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    glibc = next(t for t in tags.platform_tags() if t.startswith("manylinux_")).split("_")
    here = Target(python=version, glibc=f"{glibc[1]}.{glibc[2]}")
    assert set(here.rank) == {tag for tag in tags.sys_tags() if "x86_64" in tag.platform or tag.platform == "any"}
    own = default_environment()
    for name in ("os_name", "sys_platform", "platform_machine", "platform_system", "python_version", "implementation_name"):
        assert here.markers[name] == own[name]


@pytest.mark.parametrize(
    ("target", "text", "wanted"),
    [
        (PY27, 'enum34 ; python_version < "3.4"', True),
        (PY35, 'enum34 ; python_version < "3.4"', False),
        (PY27, 'a ; sys_platform == "linux2"', True),
        (PY311, 'a ; sys_platform == "linux"', True),
        (PY311, 'a ; platform_system == "Linux" and platform_machine == "x86_64"', True),
        (PY311, 'a ; python_full_version < "3.11.3"', True),
        (PY311, 'a ; extra == "gpu"', False),
    ],
)
def test_markers(target, text, wanted):
    assert target.wants(read_requirement(text)) is wanted


def test_extras_are_asked_by_normalized_name():
    requirement = read_requirement('nvidia-thing==12.9 ; extra == "and-cuda"')
    assert PY311.wants(requirement, frozenset({"and-cuda"}))
    assert PY311.wants(read_requirement('b ; extra == "and_cuda"'), frozenset({"and-cuda", "other"}))
    assert not PY311.wants(requirement, frozenset({"other"}))


@pytest.mark.parametrize(
    ("bounds", "accepted"),
    [
        ("", True),
        (">=2.7, !=3.0.*, !=3.1.*", True),
        (">=3.6.*", True),
        (">=3.6.2", True),
        (">=3.6.3", False),
        (">=3.7", False),
        ("~=3.6", True),
        ("not a bound", True),
    ],
)
def test_requires_python(bounds, accepted):
    assert PY36.accepts_python(bounds) is accepted


def test_old_spellings_are_understood_and_nonsense_is_not():
    assert str(read_specifiers(">=2.6.*,<4")) == str(read_specifiers("<4,>=2.6"))
    assert str(read_requirement("numpy (>=1.13.3)").specifier) == ">=1.13.3"
    assert str(read_requirement("six (>=1.5.*) ; python_version<'3'").specifier) == ">=1.5"
    assert str(read_requirement("b (>=1.0,)").specifier) == ">=1.0"
    # pandas up to 0.24 requires the first, Celery the second.
    assert str(read_requirement("pytz (>=2011k)").specifier) == ">=2011"
    assert str(read_requirement("pytz (>dev) ; python_version<'3'").specifier) == ""
    assert str(read_requirement("a>=2011k,<3.0rc1").specifier) == "<3.0rc1,>=2011"
    with pytest.raises(InvalidSpecifier):
        read_specifiers("newest")
    with pytest.raises(InvalidRequirement):
        read_requirement("a b c")
