"""What the checks of machine, driver and libraries mean: a part of the texts of `explain`."""
from __future__ import absolute_import, division, print_function

TEXTS = {
    'DEVICES': ('the devices that were asked for are there', '''
        A GPU image must see a GPU. Without one the answer is inconclusive, never a pass: nothing was proved. --allow-cpu runs
        the framework's CPU side and labels the report; --expect cpu says that this is what you wanted. With a single GPU the
        counts above one are inconclusive too: data parallelism needs two.'''),
    'DRIVER': ('the driver can run this image\'s CUDA', '''
        libcuda must load and initialise, and its CUDA version must not be older than what the framework was built with; from CUDA
        11 on any minor version of the same major one does. Every error code of cuInit that containers meet has its own message
        and remedy. 803: a libcuda lies in the image that is not the kernel's driver's; 804: the image's forward-compatibility
        libcuda (the package cuda-compat) works on data-center GPUs only. The message names the file that is really loaded.'''),
    'ARCH': ('the framework has code for this GPU', '''
        A GPU needs native code of its own major architecture, or PTX that the driver compiles at first start, which takes minutes,
        with large frameworks half an hour; it is kept in ~/.nv if CUDA_CACHE_MAXSIZE has room for it. A driver older than the CUDA
        that made the PTX cannot compile it. With neither the framework stops with "no kernel image is available".'''),
    'VISIBLE': ('variables name the GPUs that are there', '''
        NVIDIA_VISIBLE_DEVICES tells the container toolkit which GPUs to hand over, CUDA_VISIBLE_DEVICES tells CUDA which of those
        to use; inside a container numbers begin at 0 again. CUDA stops at the first entry that is not there, without a word, and
        uses only those before it.'''),
    'MIG': ('no GPU is cut into slices', '''
        With Multi-Instance GPU a process sees one slice, and slices have no peer access: NCCL refuses to work across them. One
        slice can be tested with --counts 1; data parallelism needs whole GPUs (nvidia-smi -mig 0).'''),
    'MPS': ('no server shares the GPUs', '''
        With the Multi-Process Service several users share a GPU, and each may be held to a share of its multiprocessors
        (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE). Answers stay right, speeds are those of a share.'''),
    'MIXED': ('all GPUs are alike', '''
        A synchronous step runs at the speed of the slowest device. So GPUs are grouped into sets of the same model, memory and
        capability, and the largest set is used; the others are named. --devices all uses them together, --devices 0,2 some.'''),
    'MEMORY': ('enough of each GPU\'s memory is free', '''
        CUDA, cuDNN and NCCL take 300 to 600 MB before the first tensor. What other processes hold is not there for the test, which
        then fails with "out of memory" far from the cause.'''),
    'BUSY': ('nobody else uses the GPUs', '''
        Processes, load and memory in use before anything was started, as NVML tells them: of other containers, too. In compute
        mode "exclusive process" a second process on a GPU fails, in "prohibited" every one.'''),
    'HEALTH': ('the GPUs know of no fault of their memory', '''
        GPUs with ECC count memory errors that they could not correct, and take faulty pages or rows out of use at the next reset.
        Results of a GPU that has counted one since its driver was loaded, or that waits for a reset, are not to be trusted. The count
        is read before the test and after it.'''),
    'THROTTLE': ('nothing holds the clocks down', '''
        Heat, power brakes and clocks that a person has set (nvidia-smi -ac, -lgc) make a GPU slower than its kind. A power limit
        under load is usual and not told here. The same is looked at while the test runs.'''),
    'PCIE': ('all PCIe lanes are used', '''
        A board that sits badly, or in a slot with fewer lanes, reaches the host with half the speed or less. The generation of an
        idle link says nothing, it sleeps; the number of lanes does.'''),
    'PEER': ('GPUs reach each other\'s memory', '''
        With peer access two GPUs exchange directly, over NVLink or a PCIe switch; without it through the host's memory. That is
        slower and not wrong, so it warns. The words are those of nvidia-smi topo -m: NVn, PIX, PXB, PHB, NODE, SYS.'''),
    'PEERCOPY': ('what is copied between GPUs arrives unchanged', '''
        A pattern goes from each GPU to each other one and back, and every number is compared. With an IOMMU or PCIe access control
        (ACS) in the way, peer copies can corrupt data or hang without an error; all training on several GPUs is then wrong.'''),
    'USED': ('the GPUs have really worked', '''
        While the test ran, NVML was asked some times a second for memory, processes and load, and at its end each rank asked CUDA
        on which GPUs it has a context. A GPU counts as used if one of them says so: memory that rose by more than 50 MB, a new
        process, a context. NVML may know none of it (virtual machines, WSL), and on a GPU that others use, too, memory may fall.
        After three seconds of training a load that stayed at 0 % is a failure; after less it may be too little to be seen.'''),
    'SHM': ('/dev/shm is large enough', '''
        NCCL exchanges between processes through /dev/shm. Docker gives 64 MB, which several processes exhaust:
        "posix_fallocate failed: No space left on device". Start the container with --shm-size=1g or --ipc=host.'''),
    'MEMLOCK': ('enough memory may be locked', '''
        InfiniBand and RoCE cards read memory themselves, so it must be locked. Under a small limit (ulimit -l) NCCL and MPI fail
        with "Cannot allocate memory" or fall back to Ethernet.'''),
    'RAM': ('enough of the host\'s memory is free', '''
        The container's limit counts, if it has one: a process above it is killed (137, SIGKILL) without a message of its own.'''),
    'CORES': ('there are cores for all threads', '''
        Threads of all devices together should not outnumber the cores that the container may use (affinity and quota): else they
        take turns, and one device alone looks faster than it is.'''),
    'NUMA': ('each GPU is near some of the cores', '''
        On a machine with several processors each GPU hangs at one of them. A container that is bound to the cores of another
        reaches it over the link between processors, with less bandwidth.'''),
    'ENV': ('no variable slows the run down', '''
        Some variables are left over from debugging: CUDA_LAUNCH_BLOCKING makes every kernel wait, NCCL_P2P_DISABLE and
        NCCL_SHM_DISABLE take away the fast paths, CUDA_INJECTION64_PATH and CUDA_PROFILE attach a profiler.'''),
    'TIME': ('the clock can time a step', '''
        Steps take milliseconds. A clock source such as jiffies, hpet or acpi_pm is coarse or slow to read; tsc or the hypervisor's
        own is meant. A lap also fails if devices still work after its end: the loss of its last step must be there within a quarter of
        the time of the lap.'''),
    'VERSION': ('the framework is the one that the image promises', '''
        The version that the imported framework reports is compared with the image's lock.'''),
    'BUILD': ('a GPU image holds a GPU build', '''
        A CPU build in a GPU image imports and trains without a word, on the CPU. The framework itself is asked which CUDA it
        was built with.'''),
    'CUDNN': ('the cuDNN that is loaded is the lock\'s', '''
        After the run each rank looks which libcudnn the kernel has mapped for it, and asks that file for its version. It must be
        the lock's, and the same for all ranks. Another copy earlier on the library path is the usual cause: "Loaded runtime CuDNN
        library: 7.0.5 but source was compiled with 7.1.4". Where it is part of the framework's own file, the framework is asked.'''),
    'NCCL': ('the NCCL that is loaded is the lock\'s', '''
        As for cuDNN. Ranks with different versions of NCCL hang or fail at the first collective.'''),
    'LIBS': ('each CUDA library is loaded once', '''
        Two files of the same library in one process (one from the image's CUDA, one from a wheel) lead to undefined symbols, wrong
        versions and crashes. Both are named.'''),
}
