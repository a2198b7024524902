from __future__ import absolute_import, division, print_function

import unittest

import boot  # noqa: F401
from envbuild_smoke import machine_checks, plan
from envbuild_smoke.machine_checks import container, driver, equal, gpus, libraries, peercopy
from envbuild_smoke.machine import mapped, nominal, probe_cuda, probe_nvml
from machines import CPU_IMAGE, GB, GPU_IMAGE, found, gpu, options, statuses

TWO = [('A', '8.0')] * 2
NAMED = [gpu(0), gpu(1)]
CUDNN = [{'libcudnn': [{'path': '/w/libcudnn.so.8', 'version': '8.9.7'}]}]


def before(image=GPU_IMAGE, facts=None, **changes):
    """Run all checks before the start, on a healthy machine with two GPUs unless `facts` describes another one."""
    facts, opts = found(TWO) if facts is None else facts, options(**changes)
    device = plan.choose_device(opts, image, facts)
    counts, left_out = plan.choose_counts(opts['counts'], device)
    return machine_checks.before(facts, image, device, counts, left_out, opts)


def of(key, made):
    """The checks with this id."""
    return [check for check in made if check['id'] == key]


# Check -> the faults that it must find: (status, words of its message, facts of the machine, other options).
PLANTED = {
    'DEVICES': [
        ('inconclusive', 'there is no GPU: no NVIDIA driver', found(library=False), {}),
        ('fail', 'expected 1 GPU, but only 0 can be used', found(library=False), {'expect': 'gpu'}),
        ('inconclusive', 'not tested with 2 devices, because only 1 can be used', found(TWO[:1]), {}),
        ('fail', 'expected 3 GPUs, but only 2 can be used', found(TWO), {'expect_gpus': 3}),
    ],
    'DRIVER': [
        ('fail', "cuInit returns error 803: the image's libcuda does not match the driver in the kernel; the loaded file is "
                 '/baked/libcuda.so.1, of driver 535.1; the driver in the kernel is 550.54', found(code=803, cuda={'path': '/baked/libcuda.so.1', 'release': '535.1'}), {}),
        ('fail', "cuInit returns error 804: the image's forward-compatibility libcuda", found(code=804), {}),
        ('fail', 'the host was not restarted', found(code=999, nvml={'code': 18, 'driver': None}), {}),
        ('fail', 'connect to the MPS server', found(code=805), {}),
        ('fail', 'supports CUDA 11.8, and the image needs CUDA 12.4', found(TWO, driver_cuda='11.8'), {}),
    ],
    'ARCH': [
        ('fail', 'GPU 0 (A, capability 6.1) cannot run this framework, which has native code only for 7.0, 8.0', found([('A', '6.1')] * 2), {}),
        ('warn', 'the driver compiles it at the first start', found([('A', '9.0')] * 2), {}),
        ('warn', 'at every start, because CUDA_CACHE_DISABLE', found([('A', '9.0')] * 2, CUDA_CACHE_DISABLE='1'), {}),
        ('warn', 'because CUDA_CACHE_MAXSIZE is too small', found([('A', '9.0')] * 2, CUDA_CACHE_MAXSIZE='33554432'), {}),
        ('fail', 'because CUDA_DISABLE_PTX_JIT is set', found([('A', '9.0')] * 2, CUDA_DISABLE_PTX_JIT='1'), {}),
        ('fail', 'a driver for CUDA 12.0 cannot compile PTX of CUDA 12.4', found([('A', '9.0')] * 2, driver_cuda='12.0'), {}),
    ],
    'VISIBLE': [
        ('fail', 'there is no GPU 7, only 2 GPUs; CUDA ignores this entry and all entries after it. CUDA uses 1 GPU', found(
            TWO[:1], nvml={'devices': NAMED}, CUDA_VISIBLE_DEVICES='0,7'), {}),
        ('fail', 'no GPU with the UUID GPU-9', found(TWO[:1], CUDA_VISIBLE_DEVICES='GPU-9'), {}),
        ('fail', 'it names 0 twice', found(TWO[:1], CUDA_VISIBLE_DEVICES='0,0'), {}),
        ('fail', 'one MIG slice at a time', found(TWO[:1], CUDA_VISIBLE_DEVICES='MIG-1,MIG-2'), {}),
        ('fail', '"all" is neither', found(CUDA_VISIBLE_DEVICES='all', nvml={'devices': NAMED}), {}),
        ('warn', 'hides every GPU', found(code=100, CUDA_VISIBLE_DEVICES=''), {}),
        ('warn', 'hides every GPU', found(code=100, CUDA_VISIBLE_DEVICES='-1'), {}),
        ('warn', 'to pass no GPU to the container', found(library=False, NVIDIA_VISIBLE_DEVICES='void'), {}),
        ('fail', 'does not include compute', found(TWO, NVIDIA_DRIVER_CAPABILITIES='utility'), {}),
    ],
    'MIG': [
        ('warn', 'MIG is on for GPU 0, 1: a CUDA process sees only one slice', found([gpu(0, mig=True), gpu(1, mig=True)]), {}),
        ('warn', 'this container has received none', found(code=100, nvml={'devices': [gpu(0, mig=True)]}), {}),
    ],
    'MPS': [
        ('warn', 'shared through MPS', found(TWO, host={'mps': True}), {}),
        ('warn', 'at most 30 % of a GPU', found(TWO, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE='30'), {}),
    ],
    'MIXED': [
        ('warn', 'used: 4 x A with 16 GB (GPU 0, 1, 2, 3); left out: 2 x B with 16 GB (GPU 4, 5)', found([('A', '8.0')] * 4 + [('B', '8.0')] * 2), {}),
        ('warn', 'used: 2 x A with 16 GB (GPU 0, 1) and 1 x B with 16 GB (GPU 2)', found(TWO + [('B', '8.0')]), {'devices': 'all'}),
        ('warn', 'left out: 1 x A with 8 GB (GPU 2)', found([gpu(0), gpu(1), gpu(2, mem_bytes=8 * GB)]), {}),
    ],
    'MEMORY': [
        ('warn', 'GPU 1 has the least free memory: 0.9 of 16.0 GB', found([gpu(0), gpu(1, mem_free_bytes=9 * GB // 10)]), {}),
        ('fail', 'GPU 0 has the least free memory: 0.1 of 16.0 GB', found([gpu(0, mem_free_bytes=GB // 10), gpu(1)]), {}),
    ],
    'BUSY': [
        ('warn', 'another program already uses GPU 1: 2 processes compute on it', found([gpu(0), gpu(1, processes=2)]), {}),
        ('warn', 'its load is 70 %', found([gpu(0, util_pct=70), gpu(1)]), {}),
        ('warn', '9.0 GB of its memory are in use', found([gpu(0, mem_used_bytes=9 * GB), gpu(1)]), {}),
        ('warn', 'compute mode exclusive process', found([gpu(0, compute_mode='exclusive process'), gpu(1)]), {}),
        ('fail', 'GPU 1 is in compute mode prohibited', found([gpu(0), gpu(1, compute_mode='prohibited')]), {}),
    ],
    'HEALTH': [
        ('fail', 'GPU 1 has counted 3 memory errors', found([gpu(0), gpu(1, ecc_errors=3)]), {}),
        ('fail', 'GPU 0 has faulty memory', found([gpu(0, memory_fault=True), gpu(1)]), {}),
    ],
    'THROTTLE': [
        ('warn', 'the clock of GPU 0 is kept low by heat (limited by hardware), at 91 degrees C', found([gpu(0, held_down=['heat (limited by hardware)'], temperature_c=91), gpu(1)]), {}),
        ('warn', 'clocks set by a person', found([gpu(0, held_down=['clocks set by a person']), gpu(1)]), {}),
    ],
    'PCIE': [('warn', 'GPU 1 uses 4 of its 16 PCIe lanes', found([gpu(0), gpu(1, pcie_width=4)]), {})],
    'PEER': [('warn', "in 1 of 1 pairs, the GPUs cannot access each other's memory. The first pair is GPU 0 and 1 (SYS: from one processor", found(
        [gpu(0, peers=[]), gpu(1, peers=[0])], links='SYS'), {})],
    'SHM': [('warn', '/dev/shm has 67 MB free', found(TWO, host={'shm_free_bytes': 64 << 20}), {})],
    'MEMLOCK': [('warn', 'only 65 kB of memory may be locked, which is not enough for mlx5_0', found(TWO, host={'memlock_bytes': 65536, 'infiniband': ['mlx5_0']}), {})],
    'RAM': [
        ('warn', '1.0 GB of memory are free', found(TWO, host={'mem_available_bytes': GB}), {}),
        ('warn', '0.5 GB of memory are free within the container\'s limit of 2.0 GB', found(
            TWO, host={'mem_limit_bytes': 2 * GB, 'mem_limit_free_bytes': GB // 2}), {}),
    ],
    'CORES': [
        ('warn', '2 devices with 1 thread each on 1 cores', found(TWO, host={'cores_usable': 1}), {}),
        ('warn', '2 devices with 16 threads each on 16 cores: threads must share cores', found(TWO), {'threads': 16}),
    ],
    'NUMA': [('warn', 'GPU 1 is close to the cores 32-47, but this container may use only 0-15', found([gpu(0), gpu(1, near_cpus=list(range(32, 48)))]), {})],
    'ENV': [('warn', "set: NCCL_P2P_DISABLE (GPUs exchange data through the host's memory)", found(TWO, NCCL_P2P_DISABLE='1'), {})],
    'TIME': [
        ('warn', 'in steps of 4e+03 us', found(TWO, host={'clock_step_s': .004}), {}),
        ('warn', 'the clock (acpi_pm)', found(TWO, host={'clock_source': 'acpi_pm'}), {}),
    ],
}


class Before(unittest.TestCase):
    def test_every_planted_fault_is_seen_and_has_a_remedy(self):
        for key, faults in PLANTED.items():
            for status, words, facts, asked in faults:
                made = [check for check in of(key, before(facts=facts, **asked)) if check['status'] == status and words in check['message']]
                self.assertTrue(made, '%s does not say "%s": %s' % (key, words, [c['message'] for c in of(key, before(facts=facts, **asked))]))
                self.assertTrue(made[0]['next_step'], (key, words))

    def test_a_healthy_machine_passes_all_of_them(self):
        made = before()
        self.assertEqual(set(check['id'] for check in made), set(PLANTED))
        self.assertEqual([check for check in made if check['status'] != 'pass'], [])

    def test_a_cpu_image_is_asked_about_no_gpu(self):
        made = before(CPU_IMAGE, found(library=False))
        self.assertEqual(sorted(check['id'] for check in made), ['CORES', 'DEVICES', 'ENV', 'RAM', 'TIME'])
        self.assertEqual(set(check['status'] for check in made), {'pass'})

    def test_what_nobody_asked_for_is_not_told(self):
        without_card = found(TWO, host={'memlock_bytes': 65536})
        self.assertEqual(of('MEMLOCK', before(facts=without_card))[0]['status'], 'pass')
        alone = found(TWO[:1], host={'shm_free_bytes': 64 << 20})
        made = before(facts=alone, counts='1')
        self.assertEqual((of('SHM', made)[0]['status'], of('PEER', made)), ('pass', []))
        silent = found([gpu(0, mem_free_bytes=None, mem_used_bytes=None, processes=None, util_pct=None, compute_mode=None, mig=None, pcie_width=None)])
        made = before(facts=silent, counts='1')
        self.assertEqual((of('MEMORY', made)[0]['status'], of('PCIE', made)), ('skip', []))

    def test_the_remedy_of_an_old_driver_knows_what_the_image_has(self):
        old = found(TWO, driver_cuda='11.8', cuda={'compat_folder': '/usr/local/cuda-12.4/compat'})
        self.assertIn('LD_LIBRARY_PATH=/usr/local/cuda-12.4/compat', of('DRIVER', before(facts=old))[0]['next_step'])
        by_compat = found(TWO, cuda={'compat': True, 'path': '/usr/local/cuda-12.4/compat/libcuda.so.1'})
        self.assertIn('through the forward-compatibility library', of('DRIVER', before(facts=by_compat))[0]['message'])


class Devices(unittest.TestCase):
    def look(self, picture, facts, **changes):
        opts = options(**changes)
        device = plan.choose_device(opts, picture, facts)
        counts, left_out = plan.choose_counts(opts['counts'], device)
        return device.kind, counts, gpus.devices(device, picture, left_out, opts)[0]['status']

    def test_cpu_image(self):
        self.assertEqual(self.look(CPU_IMAGE, found()), ('cpu', [1, 2], 'pass'))
        self.assertEqual(self.look(CPU_IMAGE, found([('A', '8.0')])), ('cpu', [1, 2], 'pass'))
        self.assertEqual(self.look(CPU_IMAGE, found(), expect='gpu')[2], 'fail')
        with self.assertRaises(plan.Refusal):
            self.look(CPU_IMAGE, found(), device='cuda')

    def test_gpu_image_without_gpu_is_never_a_pass(self):
        nothing = found(library=False)
        self.assertEqual(self.look(GPU_IMAGE, nothing)[::2], (None, 'inconclusive'))
        self.assertEqual(self.look(GPU_IMAGE, nothing, allow_cpu=True), ('cpu', [1, 2], 'inconclusive'))
        self.assertEqual(self.look(GPU_IMAGE, nothing, allow_cpu=True, expect='cpu'), ('cpu', [1, 2], 'pass'))
        self.assertEqual(self.look(GPU_IMAGE, nothing, expect='gpu')[::2], (None, 'fail'))
        self.assertEqual(self.look(GPU_IMAGE, nothing, expect_gpus=2)[2], 'fail')

    def test_gpu_image_with_gpus(self):
        two, one = found([('A', '8.0')] * 2), found([('A', '8.0')])
        self.assertEqual(self.look(GPU_IMAGE, two), ('cuda', [1, 2], 'pass'))
        self.assertEqual(self.look(GPU_IMAGE, found([('A', '8.0')] * 6)), ('cuda', [1, 2, 4, 6], 'pass'))
        self.assertEqual(self.look(GPU_IMAGE, one), ('cuda', [1], 'inconclusive'))
        self.assertEqual(self.look(GPU_IMAGE, one, counts='1'), ('cuda', [1], 'pass'))
        self.assertEqual(self.look(GPU_IMAGE, one, expect_gpus=2)[2], 'fail')

    def test_the_largest_set_of_equal_gpus_is_used(self):
        mixed = found([('B', '8.0')] * 2 + [('A', '8.0')] * 4)
        device = plan.choose_device(options(), GPU_IMAGE, mixed)
        self.assertEqual((device.available, device.numbers), (4, [2, 3, 4, 5]))
        self.assertEqual(plan.choose_device(options(devices='all'), GPU_IMAGE, mixed).numbers, list(range(6)))
        stronger = [gpu(0, 'B'), gpu(1, 'A', multiprocessors=100)]
        self.assertEqual(equal.largest(stronger), [1])
        self.assertEqual(equal.largest([]), [])


class Driver(unittest.TestCase):
    def test_codes_of_cuinit(self):
        for code in sorted(probe_cuda.MEANING) + [12345]:
            made = driver.driver(found(code=code), GPU_IMAGE)
            if code != 100:                     # the check DEVICES reports this code
                self.assertEqual(statuses(made), [('DRIVER', 'fail')])
                self.assertIn(str(code), made[0]['message'])
                self.assertTrue(made[0]['next_step'])
        self.assertEqual(driver.driver(found(code=100), GPU_IMAGE), [])
        self.assertEqual(driver.driver(found(library=False), GPU_IMAGE), [])

    def test_driver_must_support_the_images_cuda(self):
        for has, needs, want in (('12.4', '12.4', 'pass'), ('12.0', '12.4', 'pass'), ('11.8', '12.4', 'fail'), ('13.0', '12.4', 'pass'),
                                 ('9.0', '9.2', 'fail'), ('10.1', '9.2', 'pass'), ('10.0', '10.1', 'fail')):
            made = driver.driver(found(driver_cuda=has), dict(GPU_IMAGE, cuda=needs))
            self.assertEqual(statuses(made), [('DRIVER', want)], (has, needs))

    def test_architectures(self):
        device = plan.Device('cuda', 1, '')
        for capability, want in (('7.0', 'pass'), ('7.5', 'pass'), ('8.6', 'pass'), ('9.0', 'warn'), ('12.0', 'warn'), ('6.1', 'fail')):
            self.assertEqual(statuses(gpus.architecture(found([('A', capability)]), GPU_IMAGE, device)), [('ARCH', want)], capability)

    def test_names_of_files_and_addresses(self):
        self.assertEqual(probe_cuda.release_of('/usr/lib/libcuda.so.550.54.14'), '550.54.14')
        self.assertEqual(probe_cuda.release_of('/usr/lib/libcuda.so.1'), None)
        self.assertEqual(probe_nvml.address('00000000:3B:00.0'), (0, 59, 0))
        self.assertEqual((probe_nvml.address(None), probe_nvml.address('no')), (None, None))
        self.assertEqual(container.spans([8, 0, 1, 2]), '0-2,8')


class Contents(unittest.TestCase):
    def test_a_cpu_build_in_a_gpu_image_fails(self):
        versions = {'name': 'f', 'version': '1.2.3+cpu', 'cuda_build': None}
        self.assertEqual(statuses(libraries.contents(GPU_IMAGE, versions)), [('VERSION', 'pass'), ('BUILD', 'fail')])

    def test_versions(self):
        right = {'name': 'f', 'version': '1.2.3', 'cuda_build': '12.4.1'}
        self.assertEqual(statuses(libraries.contents(GPU_IMAGE, right)), [('VERSION', 'pass'), ('BUILD', 'pass')])
        for_every_minor = {'name': 'f', 'version': '1.2.3', 'cuda_build': '12'}
        self.assertEqual(statuses(libraries.contents(GPU_IMAGE, for_every_minor)), [('VERSION', 'pass'), ('BUILD', 'pass')])
        untold = {'name': 'f', 'version': '1.2.3', 'cuda_build': 'unknown'}
        self.assertEqual(statuses(libraries.contents(GPU_IMAGE, untold)), [('VERSION', 'pass'), ('BUILD', 'warn')])
        other = {'name': 'f', 'version': '1.2.4', 'cuda_build': '11.8'}
        self.assertEqual(statuses(libraries.contents(GPU_IMAGE, other)), [('VERSION', 'fail'), ('BUILD', 'warn')])


class Loaded(unittest.TestCase):
    def judge(self, ranks, said=None, **lock):
        image = dict(GPU_IMAGE, **dict({'cudnn': '8.9.7', 'nccl': '2.21.5'}, **lock))
        return libraries.loaded(2, image, dict({'cudnn': None, 'nccl': None}, **(said or {})), ranks)

    def test_the_lock_s_own_is_right(self):
        self.assertEqual(statuses(self.judge(CUDNN * 2)), [('LIBS', 'pass'), ('CUDNN', 'pass')])
        self.assertIn('the lock has no version of it', of('CUDNN', self.judge(CUDNN * 2, cudnn=None))[0]['message'])

    def test_another_cudnn_than_the_lock_s(self):
        made = of('CUDNN', self.judge(CUDNN * 2, cudnn='8.9.2'))[0]
        self.assertEqual((made['status'], made['message']), ('fail', 'cuDNN 8.9.7 is loaded, from /w/libcudnn.so.8, but '
                                                                     'the lock has 8.9.2'))
        self.assertIn('LD_LIBRARY_PATH', made['next_step'])

    def test_ranks_that_differ(self):
        other = [{'libnccl': [{'path': '/o/libnccl.so.2', 'version': version}]} for version in ('2.21.5', '2.4.8')]
        self.assertIn('rank 1 has NCCL 2.4.8 from /o/libnccl.so.2', of('NCCL', self.judge(other))[0]['message'])
        self.assertEqual(statuses(of('CUDNN', self.judge(CUDNN + [{}]))), [('CUDNN', 'fail')])

    def test_cudnn_older_than_the_framework_was_compiled_with(self):
        for built, want in (('9.1.0', 'fail'), ('8.10.0', 'fail'), ('8.9.2', 'pass'), ('8', 'pass'), ('8907', 'pass'), ('64_8', 'pass')):
            self.assertEqual(of('CUDNN', self.judge(CUDNN, {'cudnn': built}))[0]['status'], want, built)

    def test_what_is_part_of_the_framework_s_own_file(self):
        self.assertEqual(statuses(self.judge([{}], {'cudnn': '8.9.7', 'nccl': 2708})), [('CUDNN', 'pass'), ('NCCL', 'warn')])
        self.assertEqual(self.judge([{}]), [])
        silent = [{'libcudnn': [{'path': '/w/libcudnn.so.8', 'version': None}]}]
        self.assertEqual(statuses(of('CUDNN', self.judge(silent))), [('CUDNN', 'skip')])
        self.assertEqual(statuses(of('CUDNN', self.judge(silent, {'cudnn': '8.9.7'}))), [('CUDNN', 'pass')])

    def test_two_files_of_one_library(self):
        two = [dict(CUDNN[0], libcublas=[{'path': '/a/libcublas.so.12', 'version': None}, {'path': '/b/libcublas.so.12', 'version': None}])]
        self.assertEqual(statuses(self.judge(two))[0], ('LIBS', 'warn'))
        self.assertEqual(machine_checks.after(1, CPU_IMAGE, {}, [{'libraries': each} for each in two], [], []), [])

    def test_how_versions_are_coded(self):
        self.assertEqual((mapped.named('/w/libcudnn.so.8.9.7'), mapped.named('/w/libcudnn.so.8')), ('8.9.7', None))
        self.assertEqual([mapped.cudnn(n) for n in (6021, 7104, 8907, 90100, 91002)], ['6.0.21', '7.1.4', '8.9.7', '9.1.0', '9.10.2'])
        self.assertEqual([mapped.nccl(n) for n in (2213, 2708, 2804, 21003, 22105)], ['2.2.13', '2.7.8', '2.8.4', '2.10.3', '2.21.5'])


class PeerCopies(unittest.TestCase):
    def judge(self, *pairs, **answer):
        made = [dict({'gpus': list(gpus), 'peer': True, 'wrong': 0, 'GBps': 20.0}, **more) for gpus, more in pairs]
        return peercopy.judge(dict({'pairs': made, 'problem': '', 'hung': False}, **answer), [0, 1])[0]

    def test_verdicts(self):
        self.assertEqual(self.judge(((0, 1), {}))['status'], 'pass')
        self.assertEqual(self.judge(((0, 1), {'wrong': 3}))['status'], 'fail')
        self.assertEqual(self.judge(((0, 1), {}), ((0, 2), {'wrong': 3}))['status'], 'pass')        # GPU 2 is not used
        self.assertEqual(self.judge(problem='GPU 1: no result', hung=True)['status'], 'fail')
        self.assertEqual(self.judge(((0, 1), {'not_measured': 'no memory'}))['status'], 'warn')
        self.assertEqual(self.judge(problem='cuInit fails')['status'], 'warn')

    def test_what_a_gpu_should_reach(self):
        a100 = {'cc': '8.0', 'multiprocessors': 108, 'clock_khz': 1410000, 'mem_clock_khz': 1215000, 'mem_bus_bits': 5120}
        self.assertAlmostEqual(nominal.gflops(a100)['fp32_gflops'], 19492, delta=1)
        self.assertAlmostEqual(nominal.gflops(a100)['fp64_gflops'], 19492, delta=1)
        self.assertAlmostEqual(nominal.memory(a100), 1555.2)
        self.assertEqual((nominal.gflops({'cc': '99.0'}), nominal.memory({'cc': '99.0'})), ({}, None))


class Used(unittest.TestCase):
    def judge(self, mem=2 * GB, load=90, held=(), contexts=None, seconds=9.0, processes=0, errors=0, **before):
        seen = [{'uuid': 'GPU-%d' % index, 'mem_used_bytes': mem, 'util_pct': load, 'temperature_c': 80, 'held_down': list(held),
                 'processes': processes, 'ecc_errors': errors} for index in (0, 1)]
        results = [{'timing': {'train_mnist_s': seconds / 3, 'bench_mnist_s': seconds * 2 / 3, 'oracle_s': 99.0}, 'contexts': contexts}] * 2
        return machine_checks.after(2, GPU_IMAGE, {'cudnn': None, 'nccl': None}, results, [gpu(0, **before), gpu(1, **before)], seen)

    def test_gpus_that_worked(self):
        self.assertEqual(statuses(self.judge()), [('USED', 'pass')])

    def test_gpus_that_did_not(self):
        self.assertIn('GPU 0 was not used: its memory use rose by 0 MB, no new process appeared on it', self.judge(mem=GB // 2)[0]['message'])
        self.assertIn('no rank opened it', self.judge(mem=GB // 2, contexts=[])[0]['message'])
        self.assertIn('did no work', self.judge(load=0)[0]['message'])
        self.assertEqual(statuses(self.judge(load=0) + self.judge(mem=0)), [('USED', 'fail')] * 2)
        self.assertEqual(statuses(self.judge(load=0, mig=True)), [('USED', 'pass')])

    def test_without_nvml_cuda_is_asked(self):
        nobody = dict(mem_used_bytes=None, processes=None, load=None)
        self.assertEqual(statuses(self.judge(mem=None, **nobody)), [('USED', 'skip')])
        self.assertEqual(statuses(self.judge(mem=None, contexts=[], **nobody)), [('USED', 'fail')])
        both = [{'uuid': 'GPU-%d' % index, 'used_bytes': GB} for index in (0, 1)]
        self.assertEqual(statuses(self.judge(mem=None, contexts=both, **nobody)), [('USED', 'pass')])
        self.assertIn('GPU 1 was not used', self.judge(mem=None, contexts=both[:1], **nobody)[0]['message'])

    def test_one_witness_is_enough(self):
        both = [{'uuid': None, 'used_bytes': None}]
        for changes in ({'mem': 2 * GB}, {'mem': 0, 'processes': 1}, {'mem': 0, 'contexts': both}):
            self.assertEqual(statuses(self.judge(**changes)), [('USED', 'pass')])

    def test_no_load_in_a_short_time_is_not_idleness(self):
        self.assertEqual(statuses(self.judge(load=0, seconds=1.0) + self.judge(load=None)), [('USED', 'pass')] * 2)

    def test_memory_errors_while_it_ran(self):
        self.assertEqual(statuses(self.judge(errors=2)), [('USED', 'pass'), ('HEALTH', 'fail'), ('HEALTH', 'fail')])
        self.assertEqual(statuses(self.judge(errors=None)), [('USED', 'pass')])

    def test_releases_of_windows_linux(self):
        self.assertTrue(probe_nvml.in_windows('5.15.90.1-microsoft-standard-WSL2'))
        self.assertFalse(probe_nvml.in_windows('6.1.0-13-amd64'))

    def test_clocks_held_down_while_it_ran(self):
        self.assertEqual(statuses(self.judge(held=['heat (limited by software)', 'power limit'])), [('USED', 'pass'), ('THROTTLE', 'warn')])
        self.assertEqual(statuses(self.judge(held=['power limit'])), [('USED', 'pass')])


if __name__ == '__main__':
    unittest.main()
