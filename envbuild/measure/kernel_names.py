"""Read the name of the first kernel in an entry of a fat binary. Only the beginning of the entry is unpacked for this.

The name shows whether the kernels of a container belong to the framework or to a library of CUDA. CUDA's own libraries, when
they are linked statically, bring kernels for GPUs for which the framework itself was not compiled.
"""

from __future__ import annotations

import re

from envbuild.measure.fatbin import LZ4, NATIVE, ZSTD, Entry, Read

_PACKED, _UNPACKED = 24 * 1024, 32 * 1024
# Names of CUDA's helper functions (such as division) are excluded, because the compiler may add these functions to any kernel.
_SECTION = re.compile(rb"\.text\.((?!__cuda)[A-Za-z_$][\w$.]{2,400})")
_PTX_ENTRY = re.compile(rb"\.entry ([A-Za-z_$][\w$]{2,400})")
# Matches kernels of cuBLAS, cuDNN, cuFFT, cuSPARSE, cuSOLVER, cuRAND and NPP, by the names that their static libraries use.
_LIBRARY = re.compile(
    r"cublas|cudnn|cusparse|cusolver|curand|cufft|(?:regular|vector|prime|bluestein|composite)\w*_fft|nppi|csrMmt?_"
    r"|^(?:maxwell|volta|turing|ampere|sm\d\d)_[a-z0-9]*(?:gemm|scudnn|884|1688|16816)|^[cdsz]gemm_",
    re.IGNORECASE,
)


def first_kernel(read: Read, entry: Entry) -> str:
    """The mangled name of the first kernel of ``entry``; empty if the beginning of the entry contains no name."""
    data = read(entry.begin, min(entry.size, _PACKED))
    if entry.flags & LZ4:
        data = unpack_lz4(data, _UNPACKED)
    elif entry.flags & ZSTD:
        data = _unpack_zstd(data)
    found = (_SECTION if entry.kind == NATIVE else _PTX_ENTRY).search(data)
    return found[1].decode("ascii", errors="replace") if found else ""


def is_of_cuda(kernel: str) -> bool:
    """Whether a kernel with this name belongs to one of CUDA's own libraries."""
    return _LIBRARY.search(kernel) is not None


def unpack_lz4(data: bytes, most: int) -> bytes:
    """Unpack at most the first ``most`` bytes of an LZ4 block. The result is shorter if ``data`` ends earlier, or is damaged.

    The format: https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md. LZ4 libraries are not used, because they unpack
    only whole blocks.
    """
    out = bytearray()
    at = 0
    try:
        while at < len(data) and len(out) < most:
            token = data[at]
            literals, at = _length(data, at + 1, token >> 4)
            out += data[at : at + min(literals, most)]
            at += literals
            offset = data[at] | data[at + 1] << 8
            matched, at = _length(data, at + 2, token & 15)
            if not 0 < offset <= len(out):
                break
            start = len(out) - offset
            wanted = min(matched + 4, most)
            pattern = bytes(out[start : start + wanted])
            out += (pattern * (wanted // len(pattern) + 1))[:wanted]
    except IndexError:
        pass
    return bytes(out[:most])


def _length(data: bytes, at: int, length: int) -> tuple[int, int]:
    """Read a length whose first four bits are ``length``, and whose further bytes begin at ``at``. Return the whole length, and
    the position of the next field."""
    if length == 15:
        while True:
            more = data[at]
            at += 1
            length += more
            if more != 255:
                break
    return length, at


def _unpack_zstd(data: bytes) -> bytes:
    import zstandard

    out = b""
    stream = zstandard.ZstdDecompressor(max_window_size=2**27).decompressobj()
    try:
        for at in range(0, len(data), 512):
            out += stream.decompress(data[at : at + 512])
            if len(out) >= _UNPACKED:
                break
    except zstandard.ZstdError:  # the data is damaged or incomplete: what was unpacked before is enough
        pass
    return out[:_UNPACKED]
