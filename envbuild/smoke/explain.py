"""What each check means, for people: `envbuild-smoke explain ID`."""
from __future__ import absolute_import, division, print_function

import textwrap

from . import explain_machine

TEXTS = {
    'HOSTS': ('all processes of the launcher have connected, with equal images', '''
        mpirun, torchrun, srun or Kubernetes starts one process per device. All processes connect to the address of rank 0
        (MASTER_ADDR, or the first host of Slurm's list). Each process must connect within --join seconds, run the same image,
        and see the devices that it needs. The message names the ranks that are missing: read their own output, and check the
        firewalls between the hosts. GPUs that differ between hosts are a warning.'''),
    'IMPORT': ('the framework can be imported', '''
        Every rank imports the framework and opens its device. If this fails, the image is broken: a library is missing, a wheel
        is for another Python or processor, or a dependency is too new.'''),
    'DEVICE': ('training ran on the right device', '''
        The test asks the framework on which devices its parameters are and on which its steps ran. A GPU run fails if the
        framework used the CPU instead without reporting it.'''),
    'RUN': ('every rank ended normally', '''
        This check fails if a rank raised an exception, was killed (137 or SIGKILL usually means that the memory limit was
        reached) or crashed. The message names the rank that failed first; the other ranks only lost their connection to it.'''),
    'HANG': ('all ranks make progress', '''
        This check fails if no rank made progress for --stall seconds, or if a signal or a debugger has stopped a rank. Seconds
        in which ranks of this machine waited for a processor do not count, up to five times the limit. The message names the
        rank and the phase; the report's logs contain the stacks of all ranks. On GPUs, a common cause is copying between GPUs
        while an IOMMU or ACS is active (try NCCL_P2P_DISABLE=1). Between machines, common causes are a firewall or a wrong
        network interface (NCCL_SOCKET_IFNAME). The check is inconclusive if --timeout ended the run before a hang could be
        confirmed: on a busy machine, a healthy run may need longer.'''),
    'COLL': ('collective operations give exact results', '''
        The test runs all-reduce, broadcast and all-gather on whole numbers, whose sums are exact, in several sizes and types.
        It compares every element on every rank. The numbers are so large that a smaller type cannot hold them, so an exchange
        in a smaller type is noticed.'''),
    'ORACLE': ('training steps give the right weights', '''
        A float64 NumPy network (with tanh and average pooling: smooth functions, so that small errors stay small) trains four
        steps on the same batches from the same start. The largest relative error of any parameter may be 4e-5 in single
        precision (4e-6 is usual). For the kernels of convolutions on GPUs the limit is 4e-4, because cuDNN may compute their
        gradients by a Winograd transform, which rounds more (1e-4 was seen). A larger error fails. The message then names the
        fault that explains it, with its size: another learning rate, momentum or decay, wrong labels, a parameter or a
        replica that is left out, or gradients in half precision. An error that looks like TF32, bfloat16 or float16 is only a
        warning if an option or a variable requests this precision. TF32 is switched off on every GPU. The message suggests a
        race between updates only if the error is random and one device alone is right. With the largest number of devices,
        the network then trains 20 more steps, in which the learning rate falls by 1 % per step. For each of the 24 steps,
        NumPy computes the update again from the weights before the step. The two updates may differ by at most 5e-5 of a
        typical update (5e-6 is usual), in kernels on GPUs by 2e-4. If a reduced precision is allowed, the limit is 0.08. So
        the check finds a fault that occurs in every k-th step, for k up to 20, and names the steps. After training and
        timing, all of this is done once more, so that a small fault is found that begins only after many steps of the
        process. The same 24 steps show whether the framework reports the right losses, and whether it computes the right
        outputs without gradients: NumPy computes both from the framework's weights, and they may differ by 2e-5 (2e-7 is
        usual; on GPUs 4e-4; in an allowed reduced precision 0.08). The accuracy does not show these faults: without any
        exchange of gradients it is still 98 %.'''),
    'BUCKETS': ('a network that fills several exchange buckets gets the right weights', '''
        Frameworks exchange gradients in buckets (25 MB in DistributedDataParallel). They send one bucket while the backward
        pass computes the next. A small network fits into the first bucket, so it cannot show faults in later ones. Therefore a
        dense network of 40 MB trains three steps on several devices. Its weights may differ by at most 1e-4 from those of a
        float64 NumPy network, and must have the same bits in every replica. If they are wrong, the message names the parameters
        that are wrong in the first faulty step and, if it is known, what happened to their gradients: not exchanged, lost, one
        step late, summed, averaged twice, taken from one replica, or rounded. If ORACLE warned about a reduced precision that
        is allowed, an error below 3 % is only a warning, provided that the error of each layer resembles simulated rounding in
        every step.'''),
    'REPLICA': ('all replicas have the same bits', '''
        The test compares the bits of all parameters between replicas after every step, after training and after the last timed
        lap (a lap is a group of steps that are timed together). If replicas differ, the exchange leaves something out.'''),
    'EXCHANGE': ('the timed steps average the gradients of all devices', '''
        After the last timed lap and after training, the same model makes more steps from known weights: 21 steps in a row,
        or as many as take about 12 s, but at least two. The steps start from two sets of weights in turn, so a step that
        uses the gradient of an earlier step is noticed. On CPUs, one set of the steps after training is that of the trained
        LeNet, so a fault that occurs only late in a training is noticed. Each step must change the weights by the mean of
        the gradients that single devices compute, each on its own part of the batch. The error is given as a share of the
        difference between the gradients of the devices. It is 1 if nothing is exchanged, or if a device had the wrong
        images. It may be at most 0.1 (0.05 for LeNet in single precision, and 0.002 in the steps after training on CPUs); a
        framework without faults stays below 0.0001 with LeNet. The test also compares the losses of the ranks: two ranks
        with exactly equal losses had the same images. Devices that train alone on purpose (indep) must end with different
        weights. A single device, with timed batches and with batches of training, must compute the gradient that NumPy
        computes for the same images (at most 32 of them for ResNet-20 and VGG19). For LeNet in single precision, the two
        may differ by 0.02 % on CPUs (0.2 % at trained weights), and by 3 % on GPUs; for other networks, by 25 %. Images for
        which a rounding error may switch a ReLU or a maximum are left out; without other images, LeNet's limit is 3 % on
        CPUs, too. In each single parameter, they may differ by 50 % of the gradient of this parameter, so a layer that does
        not train is noticed also if it has a small part of the gradient. If a reduced precision is allowed, it is enough
        that a step of ResNet-20 or VGG19 contains half of NumPy's gradient, and a tenth of that of each large parameter.
        For LeNet in single precision, smaller errors fail too: an error above 0.002 if another learning rate or a weight
        decay explains most of it, the same error in a single large parameter, and any error if most numbers of the gradient
        are rounded to bfloat16 or float16. The message says which. The losses that the framework reports for these steps
        may be wrong by 0.1 % for LeNet in single precision, else by 8 %. With one device this check is shown only if it
        fails, or if the adapter cannot set weights.'''),
    'LOSS': ('the loss falls', '''
        The loss must stay finite, and the median loss of the last ten steps must be below a quarter of the median loss of the
        first ten. If no limit was measured for the data, it is enough that this median falls. If there was too little training,
        the loss is not judged.'''),
    'ACC': ('the network learns', '''
        This is the accuracy on images that were not trained on. The limit depends on the data and the network: 0.97 for
        generated digits, where a framework without faults reaches 0.985 to 0.992 in two epochs; 0.93 for generated shapes and
        resnet20, which reaches 0.97. No limit was measured for real MNIST and CIFAR-10: it is enough that the accuracy is
        better than guessing, and the message says so. If the training is shorter than the one for which a limit was measured,
        or has fewer images, the accuracy is not judged. --min-accuracy sets your own limit. For LeNet, the outputs for the
        first 256 test images, and for the first 37 of them alone, are also compared with those that NumPy computes from the
        same weights; the limits are those of the outputs in ORACLE. This check shows that the network learns. It does not
        show that data parallelism is right; ORACLE and REPLICA show that.'''),
    'SAVE': ('the trained model can be saved and restored', '''
        After training on the largest number of devices, the test saves one replica in the framework's own format and restores
        it into a new model on one device. All parameters must be restored exactly. The outputs for 64 images should be the same
        bit by bit; a difference of 1e-6 of the largest output is allowed (1e-4 on GPUs, whose libraries may choose another
        algorithm for the new model). The trained model must also give the same outputs when it is asked twice.'''),
    'DATA': ('the data files are the published ones', '''
        The test uses files of MNIST or CIFAR-10 in --data (or mounted at /data) only if their sizes and SHA-256 or MD5
        checksums match the published files. A damaged, incomplete or missing file is a failure; the test never replaces it
        silently by generated images. `envbuild data fetch` downloads complete files.'''),
    'NET': ('the framework can build the network', '''
        Some frameworks cannot build some networks, for example because they have no batch normalisation. The test then skips
        the workload and gives the reason.'''),
    'PART': ('each of several frameworks passes by itself', '''
        If an image has several frameworks, they are tested one after the other. Each is tested by a process of the Python in
        which it is installed, with the variables that envbuild-use would set. The result of the whole test is the worst of
        their results. A framework without a test is skipped with the reason, and does not count. `run --framework NAME` tests
        only one.'''),
    'WORK': ('a framework that does not train solves its own tasks', '''
        Some frameworks cannot train a network, so the test claims nothing about data parallelism. Instead, the test gives them
        small tasks of their own kind whose results are known. If the framework cannot compute on the devices of this run, the
        result is inconclusive: importing a framework proves nothing.'''),
    'COMPILE': ('the framework can compile code at run time', '''
        The framework compiles and runs a small function, and the test compares the result with NumPy. It uses torch.compile
        (C++ on the CPU, Triton on a GPU), jax.jit, tf.function(jit_compile=True), or a kernel of CuPy. If this fails, the
        message names what is missing: a C++ compiler, Python's headers, setuptools, or CUDA's headers. The check is skipped if
        this version of the framework or of Python has no such compiler, if the image was built without one on purpose
        (options: {compile: "no"} in its matrix row), or if a variable such as TORCHDYNAMO_DISABLE switches the compiler off.'''),
    'SPEED': ('more devices train faster', '''
        The speedup is N times the step time of one device alone, divided by the step time of N devices with exchange. With
        --scaling strong, the factor N is left out. The test measures both in turn, in several rounds, and shows the median of
        the ratios with a confidence interval. The interval is wider if the rounds depend on each other. On GPUs, with a network
        that is large enough (--workload cifar), 80 % of N is good and 60 % is ok. A lower speedup is a warning that names its
        cause: contention (devices slow each other down even without any exchange), communication-bound, input-bound, or a clock
        that is kept low. If steps take only a few milliseconds because the GPU waits for the host, they are called launch-bound
        and are not judged. A low speed never fails the test, unless --min-speedup or --min-efficiency requires a value. Then
        the check fails if the whole interval is below the required value. It passes if the median reaches this value and the
        interval reaches at most a tenth below it. In all other cases it is inconclusive: if the median is too low but the
        interval reaches above the required value, if there were fewer than six rounds, or if the machine is noisy. CPU workers
        share cores and are never judged, so a required value makes a CPU run inconclusive.'''),
    'SYNC': ('other ways to synchronise devices do what they should', '''
        --sync parameters:K averages parameters every K steps. --sync async:S lets no process be more than S steps ahead of the
        slowest. Both use only operations that every framework has. The test compares each with averaging gradients: speed,
        accuracy, and how far the replicas differ at the end. With SGD and momentum, parameters:1 and async:0 are the same as
        averaging gradients, so they must give the weights of the reference network. The others are judged by what they learn. A
        process that got further ahead than allowed fails the check.'''),
    'BASELINE': ('the result is not worse than an earlier report', '''
        With --baseline REPORT, a check that passed in that report must pass here, and the accuracy may be at most two points
        lower. The speed is worse if its median is lower by more than --tolerance (default: a tenth) and the two intervals do
        not overlap. A lower speed is a warning, or a failure if --tolerance was given. On the CPU the speed is shown and not
        judged. The test compares only equal workloads, networks, batches, scalings and device models, and lists what it could
        not compare.'''),
}
TEXTS.update(explain_machine.TEXTS)


def text(key):
    """Return the explanation of one check. Raises KeyError for an unknown check."""
    title, body = TEXTS[key]
    return '%s: %s\n\n%s' % (key, title, textwrap.fill(' '.join(body.split()), 100))
