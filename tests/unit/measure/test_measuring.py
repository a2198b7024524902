"""The data that is read from libraries and wheels. The files are made here, byte by byte."""

from __future__ import annotations

import _ctypes
import io
import struct
import tempfile
import time
import tracemalloc
import zipfile
from pathlib import Path

import pytest
import zstandard
from elf_files import EXACT, FAMILY, LZ4, NATIVE, PTX, ZSTD, Shared, container, cubin, entry, lz4_of, wheel
from fuzzing import fuzz
from hypothesis import strategies as st

from envbuild.errors import InvalidInputError
from envbuild.measure import answer_json, elf, kernel_names, measuring
from envbuild.measure.damage import DamagedError

NAME = "widget-1.0-cp311-cp311-manylinux_2_28_x86_64.whl"
OWN = container(*(entry(NATIVE, number) for number in (70, 80, 90)), entry(PTX, 90, version=(8, 5)))


def measured(folder, content, name="libwidget.so"):
    path = folder / name
    path.write_bytes(content)
    found = measuring.measure(path, folder)
    assert [each.name for each in folder.iterdir()] == [name], "temporary files stay"
    return found


def test_everything_a_library_says_about_itself(tmp_path):
    library = Shared(
        fatbins={".nv_fatbin": OWN * 3, "__nv_relfatbin": OWN},
        needed=["libcudart.so.12", "libcudnn-1a2b3c4d.so.9", "libcuda.so.1", "libc.so.6"],
        soname="libwidget.so.1",
        rpath="$ORIGIN:/usr/local/lib",
        runpath="$ORIGIN/..",
        versions={
            "libc.so.6": ["GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.9", "GLIBC_PRIVATE"],
            "libstdc++.so.6": ["GLIBCXX_3.4.9", "GLIBCXX_3.4.21", "CXXABI_1.3.11", "CXXABI_1.3.2"],
        },
        constants=b"x" * 5_000_000 + b"NCCL version 2.21.5+cuda12.4\0",
    )
    found = measured(tmp_path, library.data())
    said = answer_json.as_json(found)
    assert said["gpu_code"] == {
        "native": ["7.0", "8.0", "9.0"],
        "ptx": ["9.0"],
        "share": 1.0,
        "certainty": "certain",
        "ptx_versions": ["8.5"],
        "lists": [{"native": ["7.0", "8.0", "9.0"], "ptx": ["9.0"], "containers": 3, "bytes": 3 * len(OWN), "of_cuda": False}],
    }
    (one,) = said["libraries"]
    assert one["entries"] == {
        ".nv_fatbin": {"7.0": 3, "8.0": 3, "9.0": 3, "9.0 PTX": 3},
        "__nv_relfatbin": {"7.0": 1, "8.0": 1, "9.0": 1, "9.0 PTX": 1},
    }
    assert (one["soname"], one["rpath"], one["runpath"]) == ("libwidget.so.1", ["$ORIGIN", "/usr/local/lib"], ["$ORIGIN/.."])
    assert (said["glibc"], said["glibcxx"], said["cxxabi"]) == ("2.17", "3.4.21", "1.3.11")
    assert (said["libcuda"], said["cuda"], said["cudnn"]) == ("linked", ["12"], ["9"])
    assert said["nccl"] == [{"version": "2.21.5", "cuda": "12.4"}]


def test_what_kernels_were_linked_from_is_listed_only_where_it_is_alone(tmp_path):
    parts = container(entry(PTX, 90, version=(8, 5))) * 9
    both = measured(tmp_path, Shared(fatbins={"__nv_relfatbin": parts, ".nv_fatbin": container(entry(NATIVE, 80))}).data())
    assert (both.own.native, both.own.ptx) == (("8.0",), ())
    assert measured(tmp_path, Shared(fatbins={"__nv_relfatbin": parts}).data()).own.ptx == ("9.0",)


def test_a_library_without_a_list_of_sections_is_read_by_its_segments(tmp_path):
    content = bytearray(Path(_ctypes.__file__).read_bytes())
    whole = answer_json.as_json(measured(tmp_path, bytes(content)))["libraries"][0]
    content[40:48], content[60:64] = bytes(8), bytes(4)
    cut = answer_json.as_json(measured(tmp_path, bytes(content)))["libraries"][0]
    assert whole["glibc"] and "libc.so.6" in whole["needed"]
    for name in ("soname", "needed", "rpath", "runpath", "glibc", "glibcxx", "cxxabi"):
        assert cut[name] == whole[name], name


def test_a_library_packed_by_upx_is_read_by_its_segments(tmp_path):
    content = Shared(
        fatbins={".nv_fatbin": OWN}, needed=["libcuda.so.1"], versions={"libc.so.6": ["GLIBC_2.17"]}, is_loadable=True
    ).data()
    packed = content[:60] + bytes(4) + content[64:] + b"UPX!" + bytes(32)
    found = measured(tmp_path, packed)
    said = answer_json.as_json(found)
    assert (said["needed"], said["libcuda"], said["unread"]) == (["libcuda.so.1"], "linked", ["libwidget.so"])
    assert said["gpu_code"] | {"lists": []} == {
        "native": [],
        "ptx": [],
        "share": 0.0,
        "certainty": "unclear",
        "ptx_versions": [],
        "lists": [],
    }
    assert "UPX" in said["notes"][0]
    with pytest.raises(InvalidInputError, match="list of sections that is damaged"):
        measured(tmp_path, content[:60] + bytes(4) + content[64:])


def test_segments_with_changed_bytes_never_end_in_a_traceback(tmp_path):
    content = bytearray(Path(_ctypes.__file__).read_bytes())
    content[40:48], content[60:64] = bytes(8), bytes(4)
    for at in range(64, 4096, 11):
        _never_a_traceback(tmp_path / "libwidget.so", bytes(content[:at]) + b"\xff" + bytes(content[at + 1 :]))


def test_names_of_the_cuda_runtime_may_contain_a_hash(tmp_path):
    for name in ("libcudart-80664282.so.12.1", "libcudart.3eda8113.so.12"):
        assert answer_json.summary(measured(tmp_path, Shared(needed=[name]).data()))["cuda"] == ["12"]


def test_libcuda_that_is_opened_by_name(tmp_path):
    assert answer_json.summary(measured(tmp_path, Shared(constants=b"\0libcuda.so.1\0").data()))["libcuda"] == "by name"
    assert answer_json.summary(measured(tmp_path, Shared(constants=b"\0libcudart.so\0").data()))["libcuda"] == "no"


@pytest.mark.parametrize(
    ("number", "flags", "told"),
    [(35, 0, "3.5"), (90, EXACT, "9.0a"), (100, FAMILY, "10.0f"), (120, 0, "12.0"), (121, EXACT, "12.1a")],
)
def test_capabilities(tmp_path, number, flags, told):
    found = measured(tmp_path, Shared(fatbins={".nv_fatbin": container(entry(NATIVE, number, flags=0x11 | flags))}).data())
    assert found.own.native == (told,)


def compressed(kernel, how):
    name = cubin(kernel)
    if how == LZ4:
        return entry(NATIVE, 35, lz4_of(name), flags=0x11 | LZ4)
    return entry(NATIVE, 35, zstandard.compress(name * 50), flags=0x11 | ZSTD) if how == ZSTD else entry(NATIVE, 35, name)


@pytest.mark.parametrize("how", [0, LZ4, ZSTD])
def test_kernels_of_cuda_libraries_linked_statically_are_not_the_own_ones(tmp_path, how):
    """The kernels of CUDA libraries may even be the majority."""
    theirs = [container(compressed(f"_Z{number}gemv_kernelI6float219cublasGemvParams", how)) for number in range(60)]
    own = [container(entry(NATIVE, 37, cubin(f"_Z{number}pointwise")), entry(NATIVE, 70)) for number in range(40)]
    other = [container(entry(NATIVE, 60, cubin("_Z8magma_lu")))] * 10
    code = b"".join([*theirs, bytes(24), *own, *other])
    found = measured(tmp_path, Shared(fatbins={".nv_fatbin": code}).data())
    assert found.own == (("3.7", "7.0"), (), 0.8, "likely")
    assert [(each.native, each.containers, each.of_cuda) for each in found.lists] == [
        (("3.5",), 60, True),
        (("3.7", "7.0"), 40, False),
        (("6.0",), 10, False),
    ]


_MANY = bytes(33 * 2**20)


@pytest.mark.parametrize(
    ("name", "library", "is_known"),
    [
        ("libcufft.so.12", Shared(fatbins={".nv_fatbin": OWN}, constants=_MANY), False),
        ("libcufft.so.12", Shared(variables=_MANY), False),
        ("libnvrtc.so.13", Shared(constants=_MANY), True),
        ("libcufft.so.12", Shared(fatbins={".nv_fatbin": OWN}, variables=_MANY[2**21 :]), True),
        ("libwidget.so", Shared(fatbins={".nv_fatbin": OWN}, constants=_MANY), True),
    ],
)
def test_a_large_library_of_nvidia_with_few_kernels_has_them_elsewhere(tmp_path, name, library, is_known):
    """As cuFFT 12.0.0 and 12.5.0. A framework's library may have few kernels, and NVRTC has none."""
    found = measured(tmp_path, library.data(), name)
    said = answer_json.as_json(found)["gpu_code"]
    if is_known:
        assert said == (None if not library.fatbins else said | {"native": ["7.0", "8.0", "9.0"], "certainty": "certain"})
        assert found.notes == ()
    else:
        assert (said["native"], said["lists"], said["certainty"]) == ([], [], "unclear")
        assert found.notes == (f"most GPU code of {name} is in a form that cannot be read: its GPUs are not known",)


def test_lists_of_equal_share_are_unclear(tmp_path):
    code = b"".join(container(entry(NATIVE, number)) for number in (50, 60, 70))
    assert measured(tmp_path, Shared(fatbins={".nv_fatbin": code}).data()).own.certainty == "unclear"


def test_lz4_is_unpacked_as_far_as_asked():
    data = cubin("_Z1a") + b"a" * 300 + b"bcd" + b"\0" * 20
    assert kernel_names.unpack_lz4(lz4_of(data), 10_000) == data
    assert kernel_names.unpack_lz4(lz4_of(data), 80) == data[:80]
    assert kernel_names.unpack_lz4(lz4_of(data)[:40], 10_000) == data[: len(kernel_names.unpack_lz4(lz4_of(data)[:40], 10_000))]


def test_a_wheel(tmp_path):
    needed = ["libcudnn.so.8", "libinner.so.2", "libcudart.so.13"]
    content = wheel(
        {
            "widget/lib/libwidget.so": Shared(fatbins={".nv_fatbin": OWN}, needed=needed).data(),
            "widget/lib/libinner.so.2": Shared(soname="libinner.so.2", needed=["libm.so.6"]).data(),
            "widget.libs/libcudart.f08d9a.so.13": Shared(soname="libcudart.so.13").data(),
            "widget/lib/libcublas.so.12": Shared(fatbins={".nv_fatbin": container(entry(NATIVE, 50)) * 9}).data(),
            "widget/lib/libscript.so": b"INPUT(libwidget.so)",
            "widget/other.txt": b"no library",
        }
    )
    found = measured(tmp_path, content, NAME)
    said = answer_json.summary(found)
    assert (said["project"], said["version"], said["requires_python"]) == ("widget", "1.0", ">=3.8")
    assert said["tags"] == ["cp311-cp311-manylinux_2_28_x86_64"]
    # As in torchvision 0.26.0: the loader does not find the renamed library by its DT_SONAME.
    assert said["needed"] == ["libcudart.so.13", "libcudnn.so.8", "libm.so.6"], (
        "what the wheel holds is not needed from outside"
    )
    assert found.own.native == ("7.0", "8.0", "9.0"), "a library of NVIDIA's beside it does not count"
    assert [each.of_nvidia for each in found.libraries] == [False, False, True, True]
    assert len(said["sha256"]) == 64


STATED = {
    "widget/python/build_info.py": (
        b"build_info = collections.OrderedDict([('cuda_compute_capabilities', ['sm_35', 'compute_80']), "
        b"('cuda_version', '11.2'), ('cudnn_version', '8'), ('is_cuda_build', True)])",
        [("cuda", "11.2"), ("cudnn", "8")],
    ),
    "widget_core/build_info.py": (
        b"cuda_version_number = '10.1'\ncudnn_version_number = '7'\n",
        [("cuda", "10.1"), ("cudnn", "7")],
    ),
    "widget/version.py": (b"cuda: Optional[str] = '12.4'\nhip: Optional[str] = None\n", [("cuda", "12.4")]),
    "widget/.data/_wheel.json": (
        b'{"cuda": "12.x", "nccl": {"version": "2.25.1", "filenames": ["libnccl.so.2.25.1"]}, "cudnn": {"version": "8.8.1"}}',
        [("cuda", "12"), ("cudnn", "8.8.1"), ("nccl", "2.25.1")],
    ),
    "widget/other.py": (b"cuda = '9.0'", []),
    "widget-1.0.dist-info/version.py": (b"cuda = '9.0'", []),
    "version.py": (b"cuda = ''; has_cuda = '1'; cuda = None", []),
}


@pytest.mark.parametrize("file", STATED)
def test_versions_that_files_of_a_wheel_state(tmp_path, file):
    """As TensorFlow from 2.3 on, TensorFlow 1.15 and 2.1, PyTorch, and CuPy."""
    content, stated = STATED[file]
    found = answer_json.summary(measured(tmp_path, wheel({file: content}), NAME))["built_with"]
    assert [(each["library"], each["version"]) for each in found] == stated
    assert {each["file"] for each in found} <= {file}


def test_nccl_that_does_not_contain_the_version_of_cuda(tmp_path):
    """As in TensorFlow 2.5.0, which builds NCCL with Bazel."""
    found = measured(tmp_path, Shared(constants=b"NCCL version 2.8.3+cudaCUDA_MAJOR.CUDA_MINOR\0").data())
    assert answer_json.summary(found)["nccl"] == [{"version": "2.8.3", "cuda": ""}]


def test_files_that_record_describes_wrongly(tmp_path):
    """As in PyTorch 1.9.1. METADATA may differ, and a file with another hash but the right size is not found."""
    hashed = "sha256=" + "A" * 43
    record = (
        f"widget/a.txt,{hashed},9\nwidget/b.txt,{hashed},2\nwidget/none,{hashed},1\nwidget-1.0.dist-info/METADATA,{hashed},1\n"
    )
    content = wheel({"widget/a.txt": b"a", "widget/b.txt": b"bb", "widget-1.0.dist-info/RECORD": record.encode()})
    found = answer_json.as_json(measured(tmp_path, content, NAME))["wrong_record"]
    real = "sha256=ypeBEsobvcr6wjGzmiPcTaeG7_gUfE5yuYB3ha_uSLs"
    assert found == [{"file": "widget/a.txt", "recorded": hashed, "contained": real}]


def overlapping(content):
    """The library with headers that give the whole file as the content of three sections."""
    begin = int.from_bytes(content[40:48], "little")
    heads = bytearray(content[begin:])
    for number in (4, 5, 6):
        struct.pack_into("<QQ", heads, 64 * number + 24, 0, len(content))
    return content[:begin] + bytes(heads)


def section_sizes(content, size):
    """The library with this size in the header of its section with GPU code."""
    begin = int.from_bytes(content[40:48], "little")
    at = begin + 64 * 5 + 32
    return content[:at] + struct.pack("<Q", size) + content[at + 8 :]


DAMAGED = {
    "a section behind the end": (section_sizes(Shared(fatbins={".nv_fatbin": OWN}).data(), 2**60), "has a section of"),
    "cut off": (Shared(fatbins={".nv_fatbin": OWN}).data()[:-100], "list of sections that is damaged, or was cut off"),
    "only a head": (Shared().data()[:40], "ends within its ELF header"),
    "no magic": (Shared(fatbins={".nv_fatbin": b"nonsense" * 4}).data(), "has no header of GPU code at byte"),
    "a lying container": (
        Shared(fatbins={".nv_fatbin": struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 2**63) + bytes(64)}).data(),
        "claims 9223372036854775808 bytes",
    ),
    "a lying entry": (
        Shared(fatbins={".nv_fatbin": container(struct.pack("<HHIQIIHHIIIQQQ", 2, 0, 64, 2**40, *[0] * 10))}).data(),
        "claims more bytes than its container has",
    ),
    "an entry without an end": (
        Shared(fatbins={".nv_fatbin": container(struct.pack("<HHIQIIHHIIIQQQ", 2, 0, 0, 0, *[0] * 10))}).data(),
        "claims more bytes than its container has",
    ),
    "nothing but zeros": (Shared(fatbins={".nv_fatbin": bytes(2**20 + 64)}).data(), "more than 1048576 empty bytes"),
    "too many entries": (Shared(fatbins={".nv_fatbin": container(*[entry(NATIVE, 70)] * 501)}).data(), "more than 500 entries"),
    "a name without an end": (Shared(soname="x" * 4200).data(), "has a name of more than 4096 bytes"),
    "a path without an end": (Shared(runpath="x" * 70_000).data(), "has a text of more than 65536 bytes where names are"),
    "overlapping sections": (
        overlapping(Shared(fatbins={".nv_fatbin": OWN, "a.nv_fatbin": OWN}).data()),
        "has sections that overlap each other",
    ),
    "a name far behind the end": (
        Shared(soname="x").data().replace(struct.pack("<QQ", 14, 1), struct.pack("<QQ", 14, 2**55)),
        "refers to byte 36028797018964",
    ),
    "too many GPUs": (
        Shared(
            fatbins={
                ".nv_fatbin": container(*(entry(NATIVE, n) for n in range(500))) * 2
                + b"".join(container(*(entry(NATIVE, 500 * m + n) for n in range(500))) for m in range(1, 5))
            }
        ).data(),
        "has GPU code for more GPUs",
    ),
    "too many versions of PTX": (
        Shared(fatbins={".nv_fatbin": container(*(entry(PTX, 90, version=(n, 0)) for n in range(201)))}).data(),
        "more versions of PTX, than there are",
    ),
    "an unknown mark": (
        Shared(fatbins={".nv_fatbin": container(entry(NATIVE, 90, flags=0x400011))}).data(),
        "with marks that no",
    ),
    "both marks": (
        Shared(fatbins={".nv_fatbin": container(entry(NATIVE, 90, flags=0x11 | EXACT | FAMILY))}).data(),
        "with marks that no",
    ),
    "text": (b"hello", "is neither a wheel nor a shared library"),
    "nothing": (b"", "is neither a wheel nor a shared library"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_libraries(tmp_path, name):
    content, why = DAMAGED[name]
    with pytest.raises(InvalidInputError, match=why) as caught:
        measured(tmp_path, content)
    assert caught.value.code == "measure-damaged"
    assert caught.value.message.startswith("libwidget.so ")


def _lying(content, name, size):
    """The wheel with another unpacked size for a member in its central directory."""
    at = content.index(name.encode(), content.index(b"PK\1\2")) - 46
    return content[: at + 24] + struct.pack("<L", size) + content[at + 28 :]


def _placed_at(content, place):
    """The wheel with this offset of its first member in a zip64 field of its central directory."""
    begin = content.index(b"PK\1\2")
    name = int.from_bytes(content[begin + 28 : begin + 30], "little")
    entry = bytearray(content[begin : begin + 46 + name])
    extra = struct.pack("<HHQ", 1, 8, place)
    struct.pack_into("<H", entry, 30, len(extra))
    struct.pack_into("<I", entry, 42, 0xFFFFFFFF)
    rest = bytearray(content[begin + 46 + name :])
    size = int.from_bytes(rest[-10:-6], "little") + len(extra)
    struct.pack_into("<I", rest, len(rest) - 10, size)
    return content[:begin] + bytes(entry) + extra + bytes(rest)


def _saying(project, version):
    """A wheel whose METADATA has this project and version."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("widget-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n")
    return out.getvalue()


def _packed(how):
    out = io.BytesIO(wheel({}))
    with zipfile.ZipFile(out, "a", how) as archive:
        archive.writestr("widget/libwidget.so", bytes(5000))
    return out.getvalue()


def test_wheels_for_other_systems(tmp_path):
    content = wheel({"widget/libwidget.so": Shared(fatbins={".nv_fatbin": OWN}).data()})
    reasons = dict.fromkeys(("win_amd64", "macosx_11_0_arm64", "manylinux_2_28_aarch64"), "is not for Linux on x86-64")
    reasons["musllinux_1_2_x86_64"] = "is for Linux with the C library musl, but images have glibc"
    for tags, reason in reasons.items():
        name = f"widget-1.0-cp311-cp311-{tags}.whl"
        with pytest.raises(InvalidInputError, match=reason) as caught:
            measured(tmp_path, content, name)
        assert caught.value.code == "measure-platform"
        (tmp_path / name).unlink()
    assert measured(tmp_path, content, "widget-1.0-cp311-cp311-manylinux_2_28_aarch64.linux_x86_64.whl").own is not None


def test_a_wheel_for_every_system_that_contains_libraries_is_measured(tmp_path):
    """bitsandbytes 0.42.0 is such a wheel."""
    name = "widget-1.0-py3-none-any.whl"
    found = measured(tmp_path, wheel({"widget/libwidget.so": Shared(fatbins={".nv_fatbin": OWN}).data()}), name)
    assert found.own.native == ("7.0", "8.0", "9.0")
    (note,) = answer_json.as_json(found)["notes"]
    assert note == "its name says that it is for every system, but it contains libraries for Linux on x86-64"
    plain = measured(tmp_path, wheel({"widget/code.py": b""}), name)
    assert plain.own is None and answer_json.as_json(plain)["notes"] == []
    (tmp_path / name).unlink()
    assert answer_json.as_json(measured(tmp_path, Shared().data()))["notes"] == []


def test_a_wheel_with_more_files_than_a_plain_zip_can_list_is_measured(tmp_path):
    members = {f"widget/data/{number}.txt": b"" for number in range(65_600)}
    whole = wheel(members | {"widget/libwidget.so": Shared(fatbins={".nv_fatbin": OWN}).data()})
    assert b"PK\6\6" in whole
    assert measured(tmp_path, whole, NAME).own is not None
    end = whole.rindex(b"PK\6\6")
    huge = whole[: end + 40] + struct.pack("<Q", 2**26) + whole[end + 48 :]
    with pytest.raises(InvalidInputError, match="has a directory of 67108864 bytes"):
        measured(tmp_path, huge, NAME)


class _StopsServing(io.BytesIO):
    """A server that sends the end of a file, but no other part of it."""

    def read(self, size=-1):
        if self.tell() < len(self.getvalue()) - 300:
            raise zipfile.BadZipFile("the server stopped sending parts of it")
        return super().read(size)


def test_a_server_that_stops_serving_parts():
    content = wheel({"widget/libwidget.so": Shared(fatbins={".nv_fatbin": OWN}).data()})
    with (
        pytest.raises(DamagedError, match="the server stopped sending parts"),
        measuring.opened(_StopsServing(content), NAME),
    ):
        pytest.fail("it was read")


def test_damaged_wheels(tmp_path):
    whole = wheel({"widget/libwidget.so": Shared(fatbins={".nv_fatbin": OWN * 50}).data()})
    flipped = bytearray(whole)
    flipped[60] ^= 0xFF
    broken = wheel({"widget/libwidget.so": DAMAGED["a lying container"][0]})
    cases = {
        "truncated": (whole[:-200], "is truncated, or no wheel"),
        "half": (whole[: len(whole) // 2], "is truncated, or no wheel"),
        "damaged": (bytes(flipped), "is not a readable wheel"),
        "a size that cannot be": (_lying(whole, "widget/libwidget.so", 2**32 - 2), "which is impossible"),
        "a smaller size": (_lying(whole, "widget/libwidget.so", 100), "is not a readable wheel|cut off|CRC"),
        "a place far behind the end": (_placed_at(whole, 2**55), "at byte 36028797018963968, but only"),
        "no metadata": (whole.replace(b"METADATA", b"METADATE"), "has 0 METADATA files"),
        "a project that is a path": (_saying("/tmp/x/owned", "1.0"), "which its file name contradicts"),
        "a path of the same name": (_saying("widget\n /../x", "1.0"), "which its file name contradicts"),
        "another project": (_saying("gadget", "1.0"), "which its file name contradicts"),
        "another version": (_saying("widget", "1.0.1"), "which its file name contradicts"),
        "no version": (_saying("widget", "../1"), "has no proper name or version"),
        "bzip2": (_packed(zipfile.ZIP_BZIP2), "compressed by a method that wheels do not use"),
        "lzma": (_packed(zipfile.ZIP_LZMA), "compressed by a method that wheels do not use"),
        "zip64": (
            whole[:-22] + struct.pack("<IIQI", 0x07064B50, 0, 0, 1) + whole[-22:],
            "has a zip64 directory at another place",
        ),
        "a damaged member": (broken, "contains widget/libwidget.so, which has GPU code at byte"),
    }
    for name, (content, why) in cases.items():
        with pytest.raises(InvalidInputError, match=why) as caught:
            measured(tmp_path, content, NAME)
        assert caught.value.code == "measure-damaged", name
    with pytest.raises(InvalidInputError, match=r"its name must end with \.whl"):
        (tmp_path / NAME).unlink()
        measured(tmp_path, whole, "widget.zip")


def test_long_search_paths(tmp_path):
    folders = [f"$ORIGIN/../../nvidia/some_library_{number}/lib" for number in range(200)]
    assert measured(tmp_path, Shared(runpath=":".join(folders)).data()).libraries[0].needs.runpath == tuple(folders)


def test_absurd_versions_are_no_versions(tmp_path):
    """Python refuses to convert a number with more than 4,300 digits."""
    digits = "9" * 4000
    library = Shared(
        needed=[f"libcudart.so.{digits}", f"libcudnn.so.{digits}", f"libcudart.so.1{digits[:400]}", "libcudart.so.12"],
        versions={"libc.so.6": [f"GLIBC_{digits}", "GLIBC_2.17"]},
    )
    said = answer_json.summary(measured(tmp_path, library.data()))
    assert (said["cuda"], said["cudnn"], said["glibc"]) == (["12"], [], "2.17")


@pytest.mark.parametrize(
    ("marker", "glibc"), [("GLIBC_ABI_DT_RELR", "2.36"), ("GLIBC_ABI_GNU2_TLS", "2.42"), ("GLIBC_ABI_OTHER", "2.42")]
)
def test_abilities_of_the_loader_need_a_newer_glibc(tmp_path, marker, glibc):
    """The linker adds GLIBC_ABI_DT_RELR for `-z pack-relative-relocs`."""
    library = Shared(versions={"libc.so.6": ["GLIBC_2.2.5", marker]})
    assert answer_json.summary(measured(tmp_path, library.data()))["glibc"] == glibc


def test_what_the_parser_may_read_is_limited():
    limited = elf.Limited(io.BytesIO(bytes(5000)), 5000, most=4000)
    assert len(limited.read(3000)) == 3000
    with pytest.raises(DamagedError, match="more than 4000 bytes of names and lists"):
        limited.read(1001)
    with pytest.raises(DamagedError, match="more than 4000 bytes of names and lists"):
        limited.read()


def test_text_like_that_of_nccl_takes_no_time(tmp_path):
    """For a text that almost matches, the time once grew with the square of its length."""
    begun = time.process_time()
    found = measured(tmp_path, Shared(constants=b"NCCL version 1." + b"1" * 4_000_000).data())
    assert answer_json.summary(found)["nccl"] == []
    found = measured(tmp_path, Shared(constants=b"NCCL version 1.1." * 200_000 + b"NCCL version 2.27.7+cuda13.0\0").data())
    assert answer_json.summary(found)["nccl"] == [{"version": "2.27.7", "cuda": "13.0"}]
    assert time.process_time() - begun < 30


def test_memory_does_not_grow_with_the_library(tmp_path):
    big = container(entry(NATIVE, 70, b"\1\2\3\4" * 1_500_000)) * 4
    path = tmp_path / NAME
    path.write_bytes(wheel({"widget/libwidget.so": Shared(fatbins={".nv_fatbin": big}, constants=bytes(20_000_000)).data()}))
    del big
    measuring.measure(path, tmp_path)  # the first run also imports modules
    tracemalloc.start()
    try:
        assert measuring.measure(path, tmp_path).libraries[0].size > 40_000_000
        assert tracemalloc.get_traced_memory()[1] < 18_000_000
    finally:
        tracemalloc.stop()


_WHOLE = Shared(
    fatbins={".nv_fatbin": container(compressed("_Z1a", LZ4), compressed("_Z1b", ZSTD)) + OWN},
    needed=["libc.so.6"],
    soname="libwidget.so",
    versions={"libc.so.6": ["GLIBC_2.17"], "libm.so.6": ["GLIBC_2.3"]},
    constants=b"NCCL version 2.1.5+cuda9.0",
).data()
_IN_WHEEL = wheel({"widget/libwidget.so": _WHOLE})


def _never_a_traceback(path, content):
    path.write_bytes(content)
    try:
        measuring.measure(path, path.parent)
    except InvalidInputError as error:
        assert error.code == "measure-damaged"


_CHANGES = st.lists(st.tuples(st.integers(0, 2**16), st.binary(min_size=1, max_size=8)), min_size=1, max_size=6)


def _changed(content, changes, cut):
    data = bytearray(content)
    for at, piece in changes:
        place = at % len(data)
        data[place : place + len(piece)] = piece
    return bytes(data[: len(data) - cut])


@fuzz(200, _CHANGES, st.sampled_from([0, 0, 1, 64, 700]))
def test_a_changed_library_never_ends_in_a_traceback(changes, cut):
    _in_a_folder("libwidget.so", _changed(_WHOLE, changes, cut))


@fuzz(200, _CHANGES, st.sampled_from([0, 0, 1, 64, 300]))
def test_a_changed_wheel_never_ends_in_a_traceback(changes, cut):
    _in_a_folder(NAME, _changed(_IN_WHEEL, changes, cut))


@fuzz(200, st.lists(st.binary(max_size=80), max_size=5), st.integers(0, 2**64 - 1))
def test_any_gpu_code_never_ends_in_a_traceback(payloads, size):
    body = b"".join(entry(NATIVE, 70, each, flags=0x11 | (LZ4 if len(each) % 2 else ZSTD)) for each in payloads)
    code = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, size if size % 3 == 0 else len(body)) + body
    _in_a_folder("libwidget.so", Shared(fatbins={".nv_fatbin": code}).data())


def _in_a_folder(name, content):
    with tempfile.TemporaryDirectory() as folder:
        _never_a_traceback(Path(folder) / name, content)
