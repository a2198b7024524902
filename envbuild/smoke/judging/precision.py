"""Finds the reduced precisions that a run can use. Only these precisions may explain weights that differ from the reference's.

Each must be requested by an option `precision` of the run, or by a variable of the framework or of oneDNN
(https://oneapi-src.github.io/oneDNN/dev_guide_attributes_fpmath_mode.html). TF32 on GPUs is never in use: the launch sets
NVIDIA_TF32_OVERRIDE=0, which in NVIDIA's libraries overrides a program's own settings (https://docs.nvidia.com/cuda/cublas/).
If a framework generates its own kernels, its adapter switches TF32 off.
"""
from __future__ import absolute_import, division, print_function

HALF_CAPABILITY = (7, 0)        # the first capability with tensor cores, on which MXNet may compute float32 as float16
KINDS = ('tf32', 'bf16', 'fp16')

# variable -> {its value in lower case: the precisions that it allows}; oneDNN computes only on CPUs
ASKED_ON_CPU = dict((name, {'bf16': ('bf16',), 'f16': ('fp16',), 'tf32': ('tf32',), 'any': KINDS})
             for name in ('ONEDNN_DEFAULT_FPMATH_MODE', 'DNNL_DEFAULT_FPMATH_MODE', 'TF_SET_ONEDNN_FPMATH_MODE'))
ASKED_ON_GPU = {'TF_ENABLE_AUTO_MIXED_PRECISION': {'1': ('fp16',), 'true': ('fp16',)}}
OPTION = {'tf32': ('tf32',), 'bf16': ('bf16',), 'fp16': ('fp16',), 'mixed_bfloat16': ('bf16',), 'mixed_float16': ('fp16',)}
ON_TENSOR_CORES = 'MXNET_CUDA_TENSOR_OP_MATH_ALLOW_CONVERSION'


def possible(kind, devices, options, variables):
    """Return {precision: advice on the setting that allows it} for a run on these devices of this kind ('cpu' or 'cuda')."""
    found = {}
    capabilities = [_numbers(device['cc']) for device in devices if device.get('cc')] if kind == 'cuda' else []
    if max(capabilities or [(0, 0)]) >= HALF_CAPABILITY and variables.get(ON_TENSOR_CORES) == '1':
        found['fp16'] = 'unset %s to compute in single precision' % ON_TENSOR_CORES
    for name, values in sorted((ASKED_ON_GPU if kind == 'cuda' else ASKED_ON_CPU).items()):
        for each in values.get(variables.get(name, '').lower(), ()):
            found.setdefault(each, 'unset %s to compute in single precision' % name)
    for each in OPTION.get(options.get('precision'), ()):
        if (kind, each) == ('cuda', 'tf32'):
            continue
        found.setdefault(each, 'leave out the option precision to compute in single precision')
    return found


def _numbers(text):
    return tuple(int(part) for part in str(text).split('.')[:2] if part.isdigit())
