"""The adapters: how the smoke test trains with each framework. There is one file per recipe, with a class `Adapter`.

The file must follow the guest's language rules (Python 2.7 and 3.5). It imports its framework only inside methods, never at
module level, because the parent process reads `style` from it and must not load a framework. All arrays between guest and
adapter are NumPy arrays in the layout of `nets` (NCHW, OIHW, dense weights (out, in)); the adapter transposes them. It may use
these modules of the guest: `networks` (`from ..networks.layouts import to_hwio`) and `launching.mpi`. An adapter that chooses
between several classes lists them in `sides`.

    class Adapter(object):
        name = 'numpy'
        style = 'process'       # 'process': one device per process; 'single': all devices in one process; or a style for each
                                # kind of device: {'cpu': 'process', 'cuda': 'single'}. If the style depends on the options,
                                # write a static method style_under(options) instead
        semantics = {}          # texts for the report: how gradients are averaged, what the adapter had to correct

        def setup(self, ctx)    # import the framework, claim the devices of ctx (rank.context.Context), and ask for full
                                # precision (no TF32) unless ctx.plain: then keep the framework's defaults
        def versions(self)      # {'name', 'version', 'cuda_build', 'cudnn', 'nccl', 'arch_list'}: as the framework itself reports them
        def make(self, net, weights, lr, momentum, replicas, sync)
                                # return a handle: the network (nets.Net, built from its layers) with these weights, and SGD
                                # with classical momentum. replicas: indices in ctx.devices of the devices to use; always [0]
                                # for style 'process'. sync: 'mean' averages gradients over all replicas and processes, 'none'
                                # trains each replica alone. Each replica normalises its own part of the batch; nets has the
                                # constants of batch normalisation. If the framework must send the weights of rank 0 to all
                                # ranks, start from ctx.start(weights) instead
        def put(self, handle, images, labels)
                                # uint8 NCHW of the global batch -> the batch on the devices, in contiguous equal shards
        def step(self, handle, batch, lr)
                                # run one training step, which may be asynchronous; return a token for loss()
        def loss(self, token)   # the mean loss over this process's part of the batch, as a float
        def drain(self)         # wait until every device has finished
        def copies(self, handle)            # the number of copies of the parameters (replicas) in this process
        def weights(self, handle, copy)     # {parameter: float32 array} of one copy
        def assign(self, handle, copy, weights)         # set the weights of one copy; momentum stays as it is
        def predict(self, handle, images)   # logits of copy 0, with running means and variances instead of the batch's
        def save(self, handle, folder)      # save copy 0 in the framework's own format, below an empty folder
        def restore(self, handle, folder)   # load a saved copy, with its running means, into every copy of a similar handle
        def evidence(self, handle)          # {'parameters': [device], 'compute': [device], 'memory_bytes': n or None}
        def close(self)
        # optional: True if several ranks may share a GPU (ctx.shared); otherwise --devices must not name a GPU twice
        shares_gpus = False
        # optional: slow preparations that are needed once, such as running a compiler. It must call beat() now and then: a rank
        # that reports no progress for too long counts as hanging
        def prepare(self, beat)
        # optional: called with True before the phases that are compared with the reference, and with False after them. In
        # between, the framework must use deterministic algorithms, chosen by rules and not by timing, if it offers them and can
        # switch back. It must switch back, because the later training and timing must use the algorithms that every user gets.
        # Some settings cannot be switched back within a process, so they are not used: CNTK's force_deterministic_algorithms,
        # XLA_FLAGS, TF_CUDNN_DETERMINISTIC and CUBLAS_WORKSPACE_CONFIG. Caffe and Torch 7 always choose by rules. No check
        # requires that batches of different shapes give equal bits.
        def exact(self, wanted)
        # optional: networks that the adapter cannot build, {name: reason}
        without = {}
        # optional: says why the framework uses only one device ({'devices': reason}) or trains nothing ({'training': reason})
        # with these options (of the matrix row). A reason may be {'cuda': text} if it holds for one kind of device only. The
        # parent calls this method of the class, so it must not import the framework. If the framework trains nothing, only
        # setup, versions, close and exercise are needed. exercise runs tasks with known results: [{'what': text, 'right': bool,
        # 'detail': text}], or raises NotImplementedError(reason) if it cannot compute on these devices
        @staticmethod
        def limits(options)
        def exercise(self)
        # optional: compile a small function as users do, but without any cache, run it, and compare the result; return tasks
        # like exercise(). It raises the framework's own exceptions, or NotImplementedError(reason) if this release, Python or
        # device has no such compiler. compile_needs names the needed parts of the image: keys of rank.compiling.CHECKS
        compile_needs = ()
        def compile_and_run(self)
        # optional, only for style 'process': the framework's own collectives, and the types that they support. op: 'allreduce'
        # (sum), 'broadcast' (from root), 'allgather' (list in order of rank). Without them, the collectives of ctx.group are
        # checked
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
    """There is no adapter file with this name."""


def names():
    """Return the names of the adapters that are installed in this image."""
    found = (entry[:-3] for entry in os.listdir(FOLDER) if entry.endswith('.py') and not entry.startswith('_'))
    return sorted(name.rstrip('_') for name in found)


def load(name):
    """Load the class Adapter of the recipe `name`, or of a file if `name` is a path."""
    if os.sep in name:
        return _load_file(name).Adapter
    for module in (name, name + '_'):
        if os.path.exists(os.path.join(FOLDER, module + '.py')):
            return importlib.import_module('%s.%s' % (__name__, module)).Adapter
    raise UnknownAdapter('this image has no adapter "%s"; installed adapters: %s' % (name, ', '.join(names()) or 'none'))


def style_of(adapter, kind, options):
    """Return how the adapter uses several devices: 'process' (one process per device) or 'single' (one process for all)."""
    if hasattr(adapter, 'style_under'):
        return adapter.style_under(options)
    return adapter.style[kind] if isinstance(adapter.style, dict) else adapter.style


def _load_file(path):
    if not os.path.exists(path):
        raise UnknownAdapter('the adapter file %s does not exist' % path)
    name = '%s._%s' % (__name__, os.path.splitext(os.path.basename(path))[0])
    if getattr(sys.modules.get(name), '__file__', None) == path:
        return sys.modules[name]
    module = types.ModuleType(str(name))         # on Python 2, text from a plan is unicode
    module.__file__ = path
    module.__package__ = __name__
    sys.modules[module.__name__] = module
    with open(path) as stream:
        exec(compile(stream.read(), path, 'exec'), module.__dict__)
    return module
