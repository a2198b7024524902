"""What each check means, for people: `envbuild-smoke explain ID`."""
from __future__ import absolute_import, division, print_function

import textwrap

TEXTS = {
    'DEVICES': ('the devices that were asked for are there', '''
        A GPU image must see a GPU. Without one the answer is inconclusive, never a pass: nothing was proved. --allow-cpu runs
        the framework's CPU side and labels the report; --expect cpu says that this is what you wanted. With a single GPU the
        counts above one are inconclusive too: data parallelism needs two.'''),
    'DRIVER': ('the driver can run this image\'s CUDA', '''
        libcuda must load and initialise, and its CUDA version must not be older than what the framework was built with. Every
        error code of cuInit that containers meet has its own message and remedy.'''),
    'ARCH': ('the framework has code for this GPU', '''
        A GPU needs native code of its own major architecture, or PTX that the driver compiles at first start (which can take
        many minutes). With neither the framework stops with "no kernel image is available".'''),
    'MIXED': ('all GPUs are alike', '''
        A synchronous step runs at the speed of the slowest device. Choose equal ones with CUDA_VISIBLE_DEVICES.'''),
    'SHM': ('/dev/shm is large enough', '''
        NCCL exchanges between processes through /dev/shm. Docker gives 64 MB, which several processes exhaust:
        "posix_fallocate failed: No space left on device". Start the container with --shm-size=1g or --ipc=host.'''),
    'ENV': ('no variable slows the run down', '''
        Some variables are left over from debugging: CUDA_LAUNCH_BLOCKING makes every kernel wait, NCCL_P2P_DISABLE and
        NCCL_SHM_DISABLE take away the fast paths, CUDA_INJECTION64_PATH and CUDA_PROFILE attach a profiler.'''),
    'IMPORT': ('the framework can be imported', '''
        Every rank imports the framework and claims its device. A failure here is a broken image: a missing library, a wheel
        for another Python or processor, a dependency that is too new.'''),
    'VERSION': ('the framework is the one that the image promises', '''
        The version that the imported framework reports is compared with the image's lock.'''),
    'BUILD': ('a GPU image holds a GPU build', '''
        A CPU build in a GPU image imports and trains without a word, on the CPU. The framework itself is asked which CUDA it
        was built with.'''),
    'DEVICE': ('the work was done where it should be', '''
        The framework is asked on which devices the parameters live and the steps ran. A silent fall-back to the CPU is a
        failure of a GPU run.'''),
    'RUN': ('every rank ran to its end', '''
        A rank that raised an exception, was killed (137 or SIGKILL is usually the memory limit) or crashed. The rank that
        failed first is named; the others only lost their peer.'''),
    'HANG': ('nothing stands still', '''
        No rank got further for --stall seconds, or the run passed --timeout. The message names the rank and the phase; the
        stacks of all ranks are in the report's logs. On GPUs think of peer-to-peer through an active IOMMU or ACS
        (try NCCL_P2P_DISABLE=1), and of a firewall or a wrong interface between machines (NCCL_SOCKET_IFNAME).'''),
    'COLL': ('collectives give exactly the right answers', '''
        All-reduce, broadcast and all-gather of whole numbers, whose sums are exact, in several sizes and types; every element
        on every rank is compared.'''),
    'ORACLE': ('four training steps give the weights that they must give', '''
        A float64 NumPy network trains four steps on the same batches from the same start. The largest relative error over
        parameters is at most 1e-3 in single precision (1e-6 is usual). Up to 0.2 means that a reduced precision such as TF32
        is active: a warning. More is a fault of arithmetic or of averaging, and the nearest of the known faults is named.
        Accuracy cannot see these faults: without any exchange it stays at 98 %.'''),
    'REPLICA': ('all replicas hold the same bits', '''
        After every step and after training the bits of all parameters are compared between replicas. If they drift apart,
        the exchange misses something.'''),
    'LOSS': ('the loss falls', '''
        It must stay finite, and the last ten steps must be below a quarter of the first ten.'''),
    'ACC': ('the network learns', '''
        Accuracy on generated digits that were not trained on. A healthy framework reaches 0.985 to 0.992 in two epochs. This
        shows that learning works; it does not show that data parallelism does (ORACLE and REPLICA do).'''),
    'PART': ('each of several frameworks passes on its own', '''
        An image of several frameworks is tested one framework after the other, each by a process under the Python that holds it,
        with the variables that envbuild-use would set. The whole is as good as the worst of them. What has no test here is
        skipped with the reason and counts for nothing. `run --framework NAME` tests one alone.'''),
    'WORK': ('a framework that does not train does what it is for', '''
        Some frameworks have nothing to train: there is no data parallelism to prove, and none is claimed. They are given
        small tasks of their own kind whose answers are known.'''),
    'SPEED': ('more devices are faster', '''
        Speedup is N times the time of one device alone over the time of all devices with exchange, from rounds in which the
        ways alternate. Speed warns, unless --min-speedup makes a demand. CPU workers share cores and are
        never judged; with --min-speedup a CPU run is inconclusive.'''),
}


def text(key):
    """The explanation of one check; KeyError for an unknown one."""
    title, body = TEXTS[key]
    return '%s: %s\n\n%s' % (key, title, textwrap.fill(' '.join(body.split()), 100))
