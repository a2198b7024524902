"""Which reduced precisions a run can be in. Only these may explain weights that are not the reference's.

TF32 needs capability 8.0 and CUDA 11 (https://docs.nvidia.com/cuda/cublas/, compute type FAST_TF32), and libraries use it unasked.
All others must be asked for: by an option `precision` of the run, or by a variable of the framework or of oneDNN
(https://oneapi-src.github.io/oneDNN/dev_guide_attributes_fpmath_mode.html).
"""
from __future__ import absolute_import, division, print_function

TF32_OFF = 'NVIDIA_TF32_OVERRIDE'
TF32_CAPABILITY, TF32_CUDA = (8, 0), (11, 0)
HALF_CAPABILITY = (7, 0)        # the first with tensor cores, to which MXNet may give single precision as float16
KINDS = ('tf32', 'bf16', 'fp16')

# variable -> {its value, in lower case: the precisions that it allows}
ASKED = dict((name, {'bf16': ('bf16',), 'f16': ('fp16',), 'tf32': ('tf32',), 'any': KINDS})
             for name in ('ONEDNN_DEFAULT_FPMATH_MODE', 'DNNL_DEFAULT_FPMATH_MODE', 'TF_SET_ONEDNN_FPMATH_MODE'))
ASKED['JAX_DEFAULT_MATMUL_PRECISION'] = {'bfloat16': ('bf16',), 'fastest': ('bf16',), 'tensorfloat32': ('tf32',)}
ASKED['TF_ENABLE_AUTO_MIXED_PRECISION'] = {'1': ('fp16',), 'true': ('fp16',)}
OPTION = {'tf32': ('tf32',), 'bf16': ('bf16',), 'fp16': ('fp16',), 'mixed_bfloat16': ('bf16',), 'mixed_float16': ('fp16',)}
ON_TENSOR_CORES = 'MXNET_CUDA_TENSOR_OP_MATH_ALLOW_CONVERSION'


def possible(kind, devices, cuda, options, variables):
    """{precision: what allows it} on devices of this kind ('cpu' or 'cuda') with their facts, the CUDA of the image or framework."""
    found = {}
    capabilities = [_numbers(device['cc']) for device in devices if device.get('cc')] if kind == 'cuda' else []
    if max(capabilities or [(0, 0)]) >= TF32_CAPABILITY and _numbers(cuda or '0') >= TF32_CUDA and variables.get(TF32_OFF) != '0':
        found['tf32'] = 'set NVIDIA_TF32_OVERRIDE=0 for single precision'
    if max(capabilities or [(0, 0)]) >= HALF_CAPABILITY and variables.get(ON_TENSOR_CORES) == '1':
        found['fp16'] = 'unset %s for single precision' % ON_TENSOR_CORES
    for name, values in sorted(ASKED.items()):
        for each in values.get(variables.get(name, '').lower(), ()):
            found.setdefault(each, 'unset %s for single precision' % name)
    for each in OPTION.get(options.get('precision'), ()):
        found.setdefault(each, 'option precision asks for it')
    return found


def _numbers(text):
    return tuple(int(part) for part in str(text).split('.')[:2] if part.isdigit())
