"""The framework's side of the smoke test: one file per recipe, with a class `Adapter`.

The file obeys the guest's language rules and imports its framework inside its methods only, never at module level: the
parent process reads `style` from it and must stay free of frameworks. All arrays that pass between guest and adapter are
NumPy in the canonical layout of nets (NCHW, OIHW, dense weights (out, in)); the adapter transposes. It may use these modules of the guest:
`networks` (`from ..networks.layouts import to_hwio`) and `launching.mpi`. An adapter that chooses between several classes lists them in
`sides`.

    class Adapter(object):
        name = 'numpy'
        style = 'process'       # 'process': one device per process; 'single': all devices in one process; or for each kind of
                                # device its own: {'cpu': 'process', 'cuda': 'single'}. Where it depends on the options:
                                # a static method style_under(options)
        semantics = {}          # words for the report: how gradients are averaged, what the adapter had to correct

        def setup(self, ctx)    # import the framework, claim the devices of ctx (rank.context.Context)
        def versions(self)      # {'name', 'version', 'cuda_build', 'cudnn', 'nccl', 'arch_list'}: as the framework itself reports them
        def make(self, net, weights, lr, momentum, replicas, sync)
                                # a handle: the network (nets.Net, built from its layers) with these weights and SGD with
                                # classical momentum. replicas: places in ctx.devices that take part (style single), [0] for
                                # process style. sync: 'mean' averages gradients over all replicas and processes, 'none' trains
                                # each replica alone. Batch normalisation is each replica's own; nets has its constants
        def put(self, handle, images, labels)
                                # uint8 NCHW of the global batch -> the batch on the devices, in contiguous equal shards
        def step(self, handle, batch, lr)
                                # one training step, may be asynchronous; a token for the loss
        def loss(self, token)   # the mean loss over this process's part of the batch, as a float
        def drain(self)         # wait until every device has finished
        def copies(self, handle)            # how many copies of the parameters this process holds
        def weights(self, handle, copy)     # {parameter: float32 array} of one copy
        def assign(self, handle, copy, weights)         # the reverse; momentum stays as it is
        def predict(self, handle, images)   # logits of copy 0, running means and variances in place of the batch's
        def save(self, handle, folder)      # copy 0 in the framework's own format, below an empty folder
        def restore(self, handle, folder)   # into every copy of a handle that was made like it; running means as well
        def evidence(self, handle)          # {'parameters': [device], 'compute': [device], 'memory_bytes': n or None}
        def close(self)
        # optional: ranks may share a GPU (ctx.shared); else naming one twice is refused
        shares_gpus = False
        # optional: what takes long once, such as running a compiler; calling beat() is news, for there may be a limit on silence
        def prepare(self, beat)
        # optional: called with True before the phases that are compared with the reference, with False after them. Between the two,
        # handles are made and stepped by deterministic algorithms, chosen by rules and not by timing, wherever the framework
        # offers both and can go back: what is trained and timed later must be what every user gets. Left as they are: CNTK's
        # force_deterministic_algorithms, XLA_FLAGS, TF_CUDNN_DETERMINISTIC and CUBLAS_WORKSPACE_CONFIG, which count for the whole
        # process. Caffe and Torch 7 choose by rules anyway. No check compares bits of batches of different shapes.
        def exact(self, wanted)
        # optional: networks that it cannot build, {name: why not}
        without = {}
        # optional: why the framework uses one device only ('devices'), or trains nothing ('training'), under these options
        # (the matrix row's); a reason may be {'cuda': words} if it is so on devices of one kind only. The parent asks the
        # class, so no framework is imported for it. Without training, setup, versions, close and exercise are all: tasks with
        # known answers, [{'what': words, 'right': bool, 'detail': words}]
        @staticmethod
        def limits(options)
        def exercise(self)
        # optional: compile a small function the way programs do, anew, run it, and compare: tasks as of exercise(). It raises what
        # the framework raises, and NotImplementedError(why) if this release, Python or device has no such compiler.
        # compile_needs names what that takes, of rank.compiling.CHECKS
        compile_needs = ()
        def compile_and_run(self)
        # optional, style 'process' only: the framework's own collectives and the types that they know. op: 'allreduce' (sum),
        # 'broadcast' (from root), 'allgather' (list in order of rank). Without them those of ctx.group are checked
        collective_types = ('float32',)
        def collective(self, op, array, root)
"""
from __future__ import absolute_import, division, print_function

import importlib
import os
import sys
import types

FOLDER = os.path.dirname(os.path.abspath(__file__))


class UnknownAdapter(Exception):
    """There is no adapter file of that name."""


def names():
    """The adapters that are installed here."""
    found = (entry[:-3] for entry in os.listdir(FOLDER) if entry.endswith('.py') and not entry.startswith('_'))
    return sorted(name.rstrip('_') for name in found)


def load(name):
    """The Adapter class of a recipe's name, or of a file when `name` is a path to one."""
    if os.sep in name:
        return _load_file(name).Adapter
    for module in (name, name + '_'):
        if os.path.exists(os.path.join(FOLDER, module + '.py')):
            return importlib.import_module('%s.%s' % (__name__, module)).Adapter
    raise UnknownAdapter('no adapter "%s" is installed here; there are: %s' % (name, ', '.join(names()) or 'none'))


def style_of(adapter, kind, options):
    """How the adapter uses several devices: 'process' (one process for each device) or 'single' (one process for all)."""
    if hasattr(adapter, 'style_under'):
        return adapter.style_under(options)
    return adapter.style[kind] if isinstance(adapter.style, dict) else adapter.style


def _load_file(path):
    if not os.path.exists(path):
        raise UnknownAdapter('there is no adapter file %s' % path)
    name = '%s._%s' % (__name__, os.path.splitext(os.path.basename(path))[0])
    if getattr(sys.modules.get(name), '__file__', None) == path:
        return sys.modules[name]
    module = types.ModuleType(str(name))         # a plan's text is unicode on Python 2
    module.__file__ = path
    module.__package__ = __name__
    sys.modules[module.__name__] = module
    with open(path) as stream:
        exec(compile(stream.read(), path, 'exec'), module.__dict__)
    return module
