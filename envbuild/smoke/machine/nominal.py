"""The speed that a GPU should reach, computed from its multiprocessors, clocks and memory bus as the driver reports them.

FP32 and FP64 say how many multiply-adds a multiprocessor does in a cycle, by compute capability:
https://docs.nvidia.com/cuda/cuda-c-programming-guide/ (arithmetic instructions). On A100 (8.0) and H100 (9.0), cuBLAS computes
fp64 on tensor cores, which are twice as fast: https://resources.nvidia.com/en-us-gpu-resources/h100-datasheet-24306.
"""
from __future__ import absolute_import, division, print_function

KINDS = (('fp64_gflops', 'fp64'), ('fp32_gflops', 'fp32'), ('tf32_gflops', 'tf32'), ('fp16_gflops', 'fp16'))
FP32 = {'3.0': 192, '3.5': 192, '3.7': 192, '5.0': 128, '5.2': 128, '5.3': 128, '6.0': 64, '6.1': 128, '6.2': 128, '7.0': 64, '7.2': 64,
        '7.5': 64, '8.0': 64, '8.6': 128, '8.7': 128, '8.9': 128, '9.0': 128, '10.0': 128, '12.0': 128}
FP64 = {'3.0': 8, '3.5': 64, '3.7': 64, '5.0': 4, '5.2': 4, '5.3': 4, '6.0': 32, '6.1': 4, '6.2': 4, '7.0': 32, '7.2': 2, '7.5': 2,
        '8.0': 64, '8.6': 2, '8.7': 2, '8.9': 2, '9.0': 128, '10.0': 64, '12.0': 2}


def gflops(device):
    """Return {'fp64_gflops', 'fp32_gflops'} at the highest clock. A key is missing if its speed is unknown."""
    cycles = 2e-6 * device.get('clock_khz', 0) * device.get('multiprocessors', 0)
    tables = (('fp64_gflops', FP64), ('fp32_gflops', FP32))
    return dict((key, cycles * known[device['cc']]) for key, known in tables if device['cc'] in known and cycles)


def memory(device):
    """Return GB/s of the GPU's memory: two transfers per cycle of the memory clock, over the whole bus; None if unknown."""
    return 2e-6 * device.get('mem_clock_khz', 0) * device.get('mem_bus_bits', 0) / 8 or None
