"""MEMORY, BUSY, HEALTH, THROTTLE, PCIE: the state of the used GPUs before any rank starts."""
from __future__ import absolute_import, division, print_function

from ..check_record import check

MB = 10 ** 6
NEEDED = {'mnist': 1000 * MB, 'cifar': 3000 * MB}       # contexts and libraries need 300 to 600 MB, batches need the rest
NOTHING_GOES = 300 * MB
LOAD_PCT = 10
HELD = 2000 * MB            # if more memory is in use, another program uses the GPU; an idle GPU reserves a few hundred MB
HARMLESS = ('power limit',)     # reasons for a low clock that are usual under load


def used(found, device):
    """The GPUs that the run uses."""
    return [each for each in found['devices'] if device.kind == 'cuda' and each['index'] in device.numbers]


def state(found, device, options):
    """Run all checks of this module."""
    gpus = used(found, device)
    if not gpus:
        return []
    return memory(gpus, options) + busy(gpus) + health(gpus) + throttle(None, gpus) + pcie(gpus)


def memory(gpus, options):
    """Check that enough of each GPU's memory is free."""
    known = [each for each in gpus if each['mem_free_bytes'] is not None]
    if not known:
        return [check('MEMORY', None, 'skip', 'not known: NVML reports how much memory is free, but it is missing', severity='warn')]
    need = NEEDED.get(options.get('workload'), max(NEEDED.values()))
    least = min(known, key=lambda each: each['mem_free_bytes'])
    free = least['mem_free_bytes']
    words = 'GPU %d has the least free memory: %.1f of %.1f GB' % (least['index'], free / 1e9, least['mem_bytes'] / 1e9)
    status = 'fail' if free < NOTHING_GOES else 'warn' if free < need else 'pass'
    return [check('MEMORY', None, status, words, severity='warn', value=free, limit=need, unit='bytes',
                  next_step='' if status == 'pass' else ('End the processes that nvidia-smi lists for this GPU, or choose '
                                                         'other GPUs with --devices.'))]


def busy(gpus):
    """Check that no other process uses the GPUs, and that their compute mode allows this test."""
    forbidden = [each for each in gpus if each['compute_mode'] == 'prohibited']
    if forbidden:
        return [check('BUSY', None, 'fail', 'GPU %d is in compute mode prohibited, so no program may use it' % forbidden[0]['index'],
                      next_step='To allow programs, run on the host: nvidia-smi -i %d -c 0' % forbidden[0]['index'])]
    for each in gpus:
        signs = []
        if each['processes']:
            signs.append('%d process%s compute on it' % (each['processes'], '' if each['processes'] == 1 else 'es'))
        if (each['util_pct'] or 0) >= LOAD_PCT:
            signs.append('its load is %d %%' % each['util_pct'])
        if (each['mem_used_bytes'] or 0) > max(HELD, each['mem_bytes'] // 20):
            signs.append('%.1f GB of its memory are in use' % (each['mem_used_bytes'] / 1e9))
        if signs:
            return [check('BUSY', None, 'warn', 'another program already uses GPU %d: %s' % (each['index'], ', '.join(signs)), severity='warn',
                          value=each['util_pct'], limit=LOAD_PCT, unit='%',
                          next_step=('Measured speeds mean little until the GPU is free: run nvidia-smi on the host to '
                                     'see who uses it.'))]
    alone = [each for each in gpus if (each['compute_mode'] or '').startswith('exclusive')]
    if alone:
        return [check('BUSY', None, 'warn', ('GPU %d is in compute mode %s: a framework that opens all GPUs in each '
                                             'process will fail') % (
            alone[0]['index'], alone[0]['compute_mode']), severity='warn', next_step=('To change the compute mode, run on '
                                                                                      'the host: nvidia-smi -i %d -c 0') % alone[0]['index'])]
    return [check('BUSY', None, 'pass', 'no other program uses the GPUs', severity='warn')]


def health(gpus):
    """Check the memory errors that each GPU itself has counted."""
    for each in gpus:
        if each['memory_fault']:
            return [check('HEALTH', None, 'fail', 'GPU %d has faulty memory that it will disable at the next reset' % each['index'],
                          next_step='Reset the GPU or restart the host. If the error returns, have the board replaced.')]
        if each['ecc_errors']:
            return [uncorrected(None, each['index'], each['ecc_errors'], 'has counted')]
    return [check('HEALTH', None, 'pass', 'the GPUs report no memory errors', value=0, limit=0, unit='errors')]


def uncorrected(n, index, errors, counted):
    """Return the failed check HEALTH of a GPU with uncorrected memory errors: its results may be wrong."""
    return check('HEALTH', n, 'fail', 'GPU %d %s %d memory error%s that it could not correct' % (index, counted, errors, '' if errors == 1 else 's'),
                 value=errors, limit=0, unit='errors',
                 next_step=('Run nvidia-smi -q -d ECC on the host. Reset the GPU or restart the host before you trust '
                            'results.'))


def throttle(n, gpus):
    """Check that nothing keeps the clocks low, before the run (n is None) or during it.

    `gpus` is [{'index', 'held_down', 'temperature_c'}].
    """
    for each in gpus:
        reasons = [words for words in each['held_down'] if words not in HARMLESS]
        if reasons:
            return [check('THROTTLE', n, 'warn', 'the clock of GPU %d is kept low by %s, at %s degrees C' % (
                each['index'], ' and '.join(reasons), each['temperature_c']), severity='warn', value=each['temperature_c'], unit='C',
                next_step='To remove the limit, run: nvidia-smi -rac' if reasons == ['clocks set by a person'] else
                ('Check cooling, power and the output of nvidia-smi -q -d PERFORMANCE on the host. Until then, measured '
                 'speeds mean little.'))]
    sleepy = [each['index'] for each in gpus if each.get('persistence') is False]
    words = '; persistence mode is off, so the driver starts again each time when the first process opens a GPU' if sleepy else ''
    return [check('THROTTLE', n, 'pass', 'nothing keeps a clock low' + words, severity='warn',
                  next_step='Run nvidia-smi -pm 1 or nvidia-persistenced on the host.' if sleepy else '')]


def pcie(gpus):
    """Check that the PCIe link uses all its lanes. The generation is not checked, because an idle link lowers it."""
    known = [each for each in gpus if each['pcie_width'] and each['pcie_width_max']]
    narrow = [each for each in known if each['pcie_width'] < each['pcie_width_max']]
    if not known:
        return []
    if narrow:
        first = narrow[0]
        return [check('PCIE', None, 'warn', 'GPU %d uses %d of its %d PCIe lanes' % (first['index'], first['pcie_width'], first['pcie_width_max']),
                      severity='warn', value=first['pcie_width'], limit=first['pcie_width_max'], unit='lanes',
                      next_step=('Check whether the slot has fewer lanes. If not, reinsert the board, and check the '
                                 'setting for PCIe bifurcation in the BIOS.'))]
    return [check('PCIE', None, 'pass', 'all PCIe lanes are used', severity='warn', value=known[0]['pcie_width'], unit='lanes')]
