"""What each check means, for people: `envbuild-smoke explain ID`."""
from __future__ import absolute_import, division, print_function

import textwrap

from . import explain_machine

TEXTS = {
    'HOSTS': ('all processes of the launcher came, with equal images', '''
        Started by mpirun, torchrun, srun or Kubernetes, once per device, the processes meet at rank 0's address (MASTER_ADDR,
        or the first host of Slurm's list). Each must come within --join seconds, carry the same image, and see the devices
        that it brings. Whoever is missing is named by its rank: look at its own output, and at firewalls between the hosts.
        GPUs that differ between hosts are a warning.'''),
    'IMPORT': ('the framework can be imported', '''
        Every rank imports the framework and claims its device. A failure here is a broken image: a missing library, a wheel
        for another Python or processor, a dependency that is too new.'''),
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
        A float64 NumPy network without switches (tanh, average pooling) trains four steps on the same batches from the same
        start. The largest relative error over parameters is at most 4e-5 in single precision (4e-6 is usual). More fails, and
        the fault that explains it is named, with its size: another learning rate, momentum or decay, wrong labels, a parameter or a
        replica that is left out, gradients in half precision. Only where an option or a
        variable asks for TF32, bfloat16 or float16 is an error that resembles that precision's a warning. TF32 is switched
        off on every GPU. A race is suspected only where the error is random and one device is right.
        Accuracy cannot see these faults: without any exchange it stays at 98 %.'''),
    'BUCKETS': ('a network larger than one exchange bucket gets the weights that it must get', '''
        Frameworks exchange gradients in buckets (25 MB in DistributedDataParallel), one while the backward pass still computes the
        next. A small network fits into the first, and shows nothing of what happens to a second. So a dense network of 40 MB
        trains three steps on several devices, and its weights are compared with those of float64 NumPy: at most 1e-4 apart, and
        the same bits in every replica. Where they are not, the parameters are named that are wrong in the first step that goes
        wrong, and what was done to their gradients, if it is known: not exchanged, lost, late by a step, summed, averaged twice, those of
        one replica, or rounded. Where ORACLE saw a reduced precision that is allowed, an error below 3 % is a warning if each
        layer resembles the simulated rounding in each step.'''),
    'REPLICA': ('all replicas hold the same bits', '''
        After every step, after training and after the last timed lap the bits of all parameters are compared between replicas.
        If they drift apart, the exchange misses something.'''),
    'EXCHANGE': ('the steps that are timed average the gradients of all devices', '''
        After the last timed lap and after training, the model that was timed or trained takes a few more steps from known
        weights. What they move must be the mean of the gradients that single devices compute, each on its own part of the
        batch. The difference is given in units of how much the gradients of the devices differ: 1 means that nothing is
        exchanged, or that a device had the wrong images; 0.1 is allowed (0.05 for LeNet in single precision), a healthy framework
        stays below 0.001. Losses of the
        ranks are compared throughout: two ranks with exactly equal losses had the same images. Devices that are meant to
        train alone (indep) must end with different weights. The gradient of a single device that was
        timed must be NumPy's, to 3 % of its size for LeNet in single precision, else to a quarter; for ResNet-20 and VGG19 of at most
        32 images, and where a reduced precision is allowed, a step of those two must hold half of the gradient. That is looked at with one
        device, too, where this check is shown only if it fails or if the adapter cannot set weights.'''),
    'LOSS': ('the loss falls', '''
        It must stay finite, and the last ten steps must be below a quarter of the first ten; on data that no limit is calibrated
        for it must fall at all. Where there was too little training to tell, it is not judged.'''),
    'ACC': ('the network learns', '''
        Accuracy on images that were not trained on. The limit belongs to the data and the network: 0.97 for generated digits,
        where a healthy framework reaches 0.985 to 0.992 in two epochs; 0.93 for generated shapes and resnet20, which reaches
        0.97. For real MNIST and CIFAR-10 none is calibrated: it must beat guessing, and the message says so. With less training
        than a limit was calibrated for nothing is judged. --min-accuracy sets your own.
        This shows that learning works; it does not show that data parallelism does (ORACLE and REPLICA do).'''),
    'SAVE': ('what was trained can be saved and restored', '''
        After training on the most devices one replica is saved in the framework's own format and restored into a fresh model on
        one device. All parameters must come back as they were, and the answers to 64 images must be the same: bit by bit as a
        rule, 1e-6 of the largest is allowed (1e-4 on GPUs, whose libraries may choose another algorithm for the fresh model).'''),
    'DATA': ('the data is what it says', '''
        Files of MNIST or CIFAR-10 in --data (or mounted at /data) are used only if their sizes and SHA-256 or MD5 checksums are
        those of the public files. A damaged, truncated or missing file is a failure: generated images never take its place
        without a word. `envbuild data fetch` gets whole files.'''),
    'NET': ('the framework can build the network', '''
        Some networks are beyond some frameworks, such as batch normalisation for one that has none. Such a workload does not
        apply, with the reason.'''),
    'PART': ('each of several frameworks passes on its own', '''
        An image of several frameworks is tested one framework after the other, each by a process under the Python that holds it,
        with the variables that envbuild-use would set. The whole is as good as the worst of them. What has no test here is
        skipped with the reason and counts for nothing. `run --framework NAME` tests one alone.'''),
    'WORK': ('a framework that does not train does what it is for', '''
        Some frameworks have nothing to train: there is no data parallelism to prove, and none is claimed. They are given
        small tasks of their own kind whose answers are known.'''),
    'COMPILE': ('what the framework compiles at run time is compiled', '''
        A small function is compiled anew, run and compared with NumPy: by torch.compile (C++ on the CPU, Triton on a GPU), jax.jit,
        tf.function(jit_compile=True), or as a kernel of CuPy. Where that fails the message names what is missing: a C++ compiler,
        Python's headers, setuptools, CUDA's headers. It does not apply where the release or the Python has no such compiler,
        and where the image was made without on purpose (options: {compile: "no"} in its row).'''),
    'SPEED': ('more devices are faster', '''
        Speedup is N times the time of one device alone over the time of all devices with exchange, from rounds in which the
        ways alternate: the median of their ratios with an interval, which is wider where the rounds depend on each other. On
        GPUs, and with a network that has something to compute (--workload cifar), 80 % of N is good and 60 % ok; less is a
        warning that names what is in the way: contention (devices slow each other down without any exchange),
        communication-bound, input-bound, a clock held down. Steps of a few milliseconds in which the GPU waits for the host
        are called launch-bound and are not judged.
        Speed never fails, unless --min-speedup or --min-efficiency sets a floor. It fails where the whole interval is below
        the floor, and passes where the median is not below it and the interval reaches at most a tenth below it. All else is
        inconclusive: a median below the floor with an interval across it, fewer than six rounds, a noisy machine. CPU workers
        share cores and are never judged; with a floor a CPU run is inconclusive.'''),
    'SYNC': ('other ways to train in parallel do what they promise', '''
        --sync parameters:K averages parameters every K steps; --sync async:S lets no process run more than S steps ahead of the
        slowest. They are made from what every framework can do, and each is run beside averaging gradients: speed, accuracy,
        and how far apart the replicas end. parameters:1 and async:0 must give the reference network's weights, for with SGD and
        momentum they are the same thing; the others are judged by what they learn. A process that got further ahead than
        allowed fails.'''),
    'BASELINE': ('no worse than the report it is compared with', '''
        --baseline REPORT: what passed there and does not here fails; so does accuracy that is more than two points lower. Speed
        is a regression where its median is lower by more than --tolerance (a tenth unless said) and the intervals of both do
        not overlap: a warning, and a failure where --tolerance was given. On the CPU it is reported and not judged. Only equal
        workloads, networks, batches, scalings and device models are compared; the rest is named.'''),
}
TEXTS.update(explain_machine.TEXTS)


def text(key):
    """Return the explanation of one check. Raises KeyError for an unknown check."""
    title, body = TEXTS[key]
    return '%s: %s\n\n%s' % (key, title, textwrap.fill(' '.join(body.split()), 100))
