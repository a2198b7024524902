"""What the checks of machine, driver and libraries mean: a part of the texts of `explain`."""
from __future__ import absolute_import, division, print_function

TEXTS = {
    'DEVICES': ('the requested devices exist', '''
        A GPU image needs a GPU. Without a GPU the result is inconclusive, never a pass, because nothing was proved. With
        --allow-cpu, the framework is tested on the CPU if there is no GPU, and the result stays inconclusive. If --expect cpu
        is given too, the test can pass, because you asked for the CPU. With a single GPU, larger --counts are inconclusive too,
        because data parallelism needs two GPUs.'''),
    'LOOPBACK': ('processes of this machine can connect to each other', '''
        Ranks on one machine exchange data through its loopback interface (lo, address 127.0.0.1). Before several ranks are
        started, the test opens a connection to this address. If the interface is down, as in a new network namespace, no rank
        can reach another one, and each would wait for minutes: ip link set lo up.'''),
    'DRIVER': ('the driver can run this image\'s CUDA', '''
        libcuda must load and initialise, and must support the CUDA version with which the framework was built. From CUDA 11 on,
        any minor version of the same major version is enough. Each error code of cuInit that occurs in containers has its own
        message and remedy. 803: the image contains a libcuda that does not match the driver in the kernel. 804: the image's
        forward-compatibility libcuda (the package cuda-compat) works only on data-center GPUs. The message names the file that
        is really loaded.'''),
    'ARCH': ('the framework has code for this GPU', '''
        A GPU needs native code for its own major architecture, or PTX that the driver compiles at the first start. Compiling
        takes minutes, and half an hour for large frameworks. The driver keeps the result in ~/.nv if CUDA_CACHE_MAXSIZE is
        large enough. A driver cannot compile PTX of a newer CUDA. Without native code and PTX, the framework stops with "no
        kernel image is available".'''),
    'VISIBLE': ('environment variables name GPUs that exist', '''
        NVIDIA_VISIBLE_DEVICES tells the container toolkit which GPUs to pass to the container. CUDA_VISIBLE_DEVICES tells CUDA
        which of these to use; inside a container, numbers start at 0 again. At the first entry that does not exist, CUDA
        silently stops reading and uses only the GPUs before it.'''),
    'MIG': ('no GPU is divided into MIG slices', '''
        With Multi-Instance GPU (MIG), a process sees only one slice of a GPU. Slices cannot access each other's memory, so NCCL
        refuses to use several of them. One slice can be tested with --counts 1. Data parallelism needs whole GPUs (nvidia-smi
        -mig 0).'''),
    'MPS': ('no MPS server shares the GPUs', '''
        With the Multi-Process Service (MPS), several users share a GPU, and each may be limited to a part of its
        multiprocessors (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE). Results stay right, but measured speeds are those of a shared GPU.'''),
    'MIXED': ('all GPUs are equal', '''
        In synchronous training, every step takes as long as the slowest device. So the test groups GPUs of the same model,
        memory and compute capability, uses the largest group, and names the others. --devices all uses all GPUs together,
        --devices 0,2 only those two.'''),
    'MEMORY': ('enough of each GPU\'s memory is free', '''
        CUDA, cuDNN and NCCL need 300 to 600 MB of GPU memory before training starts. If other processes hold too much memory,
        the test fails later with "out of memory", which does not show the cause.'''),
    'BUSY': ('no other program uses the GPUs', '''
        NVML reports the processes, the load and the used memory before the test starts, including those of other containers. In
        compute mode "exclusive process", a second process on the same GPU fails; in "prohibited", every process fails.'''),
    'HEALTH': ('the GPUs report no memory errors', '''
        GPUs with ECC count memory errors that they cannot correct, and disable faulty pages or rows at the next reset. Do not
        trust the results of a GPU that has counted such an error since its driver was loaded, or that needs a reset. The test
        reads the count before and after training.'''),
    'THROTTLE': ('nothing keeps the clocks low', '''
        Heat, power brakes and clocks that a person has set (nvidia-smi -ac, -lgc) make a GPU slower than usual. A power limit
        under load is normal and not reported. The test also reads the clocks during training.'''),
    'PCIE': ('all PCIe lanes are used', '''
        A board that is not fully inserted, or is in a slot with fewer lanes, exchanges data with the host at half the speed or
        less. The check compares the number of lanes, not the PCIe generation, because an idle link lowers its generation.'''),
    'PEER': ("GPUs can access each other's memory", '''
        With peer access, two GPUs exchange data directly, over NVLink or a PCIe switch. Without it, they exchange data through
        the host's memory. That is slower but gives right results, so it is only a warning. The abbreviations are those of
        nvidia-smi topo -m: NVn, PIX, PXB, PHB, NODE, SYS.'''),
    'PEERCOPY': ('data copied between GPUs arrives unchanged', '''
        The test copies a pattern from each GPU to each other GPU and back, and compares every number. If an IOMMU or PCIe
        access control (ACS) is active, copies between GPUs can corrupt data or hang without an error. Then all training on
        several GPUs is wrong.'''),
    'USED': ('the GPUs did the work', '''
        While training runs, NVML reports memory, processes and load several times per second. At the end, each rank asks CUDA
        on which GPUs it has a context. A GPU counts as used if one of these sources shows it: memory use that rose by more than
        50 MB, a new process, or a context. In virtual machines and WSL, NVML may report none of this, and if others use the
        GPU, its memory use may fall. A load that stayed at 0 % is a failure after three seconds of training; a shorter training
        may be too short to show a load.'''),
    'SHM': ('/dev/shm is large enough', '''
        NCCL exchanges data between processes through /dev/shm. Docker gives a container 64 MB, and several processes need more:
        "posix_fallocate failed: No space left on device". Start the container with --shm-size=1g or --ipc=host.'''),
    'MEMLOCK': ('enough memory can be locked', '''
        InfiniBand and RoCE cards read memory themselves, so this memory must be locked. If the limit (ulimit -l) is small, NCCL
        and MPI fail with "Cannot allocate memory" or use Ethernet instead.'''),
    'RAM': ('enough of the host\'s memory is free', '''
        If the container has a memory limit, the limit counts: the kernel kills a process that exceeds it (137, SIGKILL), and
        the process writes no message.'''),
    'CORES': ('there are cores for all threads', '''
        The threads of all devices together should not outnumber the cores that the container may use (affinity and quota).
        Otherwise threads must share cores, and one device alone looks faster than it is.'''),
    'NUMA': ('each GPU is close to cores that the container may use', '''
        On a machine with several processors, each GPU is connected to one of them. A container that may use only the cores of
        another processor reaches the GPU over the link between the processors, with less bandwidth.'''),
    'ENV': ('no environment variable slows training', '''
        Some variables are left over from debugging: CUDA_LAUNCH_BLOCKING makes every kernel wait, NCCL_P2P_DISABLE and
        NCCL_SHM_DISABLE switch off the fast connections, CUDA_INJECTION64_PATH and CUDA_PROFILE attach a profiler.'''),
    'TIME': ('the clock is right, and precise enough to time a step', '''
        Steps take milliseconds. The clock sources jiffies, hpet and acpi_pm are coarse or slow to read; use tsc or the clock
        source of the hypervisor. The check also fails if devices are still computing when a timed lap ends: the loss of its
        last step must be available soon after the lap, within a quarter of the lap's duration. And it fails if the clock of a
        rank of this machine runs at another speed than that of the process that started it (by 5 % of the time and 0.5 s), or
        if the latter runs at another speed than the kernel's count in /proc/uptime.'''),
    'VERSION': ('the framework has the version in the lock', '''
        The check compares the version that the imported framework reports with the image's lock.'''),
    'BUILD': ('a GPU image has a GPU build of the framework', '''
        A CPU build in a GPU image imports and trains without any error, but on the CPU. The test asks the framework with which
        CUDA it was built.'''),
    'CUDNN': ('the loaded cuDNN has the version in the lock', '''
        After training, each rank looks up which libcudnn is mapped into its memory, and asks this file for its version. It must
        be the version in the lock, and the same on all ranks. A mismatch is usually caused by another copy earlier on the
        library path: "Loaded runtime CuDNN library: 7.0.5 but source was compiled with 7.1.4". If cuDNN is linked statically
        into the framework, the test asks the framework for the version.'''),
    'NCCL': ('the loaded NCCL has the version in the lock', '''
        After training, each rank looks up which libnccl is mapped into its memory, and asks this file for its version. It must
        be the version in the lock, and the same on all ranks. Ranks with different versions of NCCL hang or fail at the first
        collective operation.'''),
    'LIBS': ('each CUDA library is loaded once', '''
        If one process loads two files of the same library (one from the image's CUDA, one from a wheel), this leads to
        undefined symbols, wrong versions and crashes. The message names both files.'''),
}
