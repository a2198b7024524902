"""VERSION, BUILD, CUDNN, NCCL, LIBS: compare the framework, and the libraries that it has loaded, with the image's lock."""
from __future__ import absolute_import, division, print_function

from ..machine import mapped
from ..check_record import check
from .versions import numbers, release

TWICE_HARMLESS = 'libcudart'          # several wheels may each load their own copy of this library without harm
CALLED = {'libcudnn': ('CUDNN', 'cudnn', 'cuDNN'), 'libnccl': ('NCCL', 'nccl', 'NCCL')}


def contents(image, versions, on_gpu=False):
    """Compare the version and the CUDA version that the framework reports with the lock.

    If no lock names a CUDA version, the check BUILD runs only on GPUs, and every CUDA version passes.
    """
    out = []
    if image['version']:
        same = release(versions['version']) == release(image['version'])
        out.append(check('VERSION', None, 'pass' if same else 'fail', 'the framework reports version %s, the lock has %s' % (
            versions['version'], image['version']), next_step='' if same else 'Build the image again.'))
    built = versions['cuda_build']
    if image['cuda'] is None:
        return out + ([check('BUILD', None, 'pass', 'built with CUDA %s; no lock says which CUDA it should be' % built)] if on_gpu and built else [])
    if not built:
        return out + [check('BUILD', None, 'fail', '%s %s is a CPU build, but the image is a GPU image' % (versions['name'], versions['version']),
                            next_step='Install the framework\'s package for CUDA %s.' % image['cuda'])]
    pairs = list(zip(numbers(built)[:2], numbers(image['cuda'])))       # versions are compared up to the length of the shorter one
    alike = bool(pairs) and all(one == other for one, other in pairs)
    return out + [check('BUILD', None, 'pass' if alike else 'warn', ('built with CUDA %s; the lock of the image has CUDA '
                                                                     '%s') % (built, image['cuda']),
                        severity='fail' if alike else 'warn',
                        next_step='' if alike else 'Install the framework\'s package for CUDA %s.' % image['cuda'])]


def loaded(n, image, versions, ranks):
    """Check the libraries that the ranks have mapped; `ranks` holds the result of `mapped.facts` for each rank."""
    out = twice(n, ranks)
    for name in sorted(CALLED):
        out += _one(n, name, image, versions, ranks)
    return out


def twice(n, ranks):
    """Check that no process has loaded two files of the same library."""
    for rank, libraries in enumerate(ranks):
        for name, found in sorted(libraries.items()):
            if len(found) > 1 and name != TWICE_HARMLESS:
                return [check('LIBS', n, 'warn', 'rank %d has loaded two copies of %s: %s' % (rank, name, ' and '.join(
                    '%s%s' % (each['path'], ' (%s)' % each['version'] if each['version'] else '') for each in found)), severity='warn',
                    value=len(found), limit=1, unit='files', detail={'libraries': libraries},
                    next_step=('Remove one of the copies. It may come from LD_LIBRARY_PATH, or from a package that '
                               'contains its own CUDA.'))]
    if not any(ranks):
        return []
    return [check('LIBS', n, 'pass', ', '.join('%s%s' % (name, ' %s' % found[0]['version'] if found[0]['version'] else '')
                                               for name, found in sorted(ranks[0].items())), severity='warn', value=1, limit=1, unit='files',
                  detail={'libraries': ranks[0]})]


def _one(n, name, image, versions, ranks):
    """Return the check CUDNN or NCCL, from the versions of the loaded files.

    If the library is part of one of the framework's own files, the version that the framework reports is used.
    """
    key, field, title = CALLED[name]
    wanted, said = image[field], word(versions[field], field)
    found = [libraries[name][0] if name in libraries else None for libraries in ranks]
    there = [each for each in found if each]
    told = [each['version'] for each in there]
    if len(set(told)) > 1 or (there and len(there) < len(ranks)):
        return [check(key, n, 'fail', 'ranks differ: %s' % ', '.join('rank %d has %s' % (
            rank, '%s %s from %s' % (title, each['version'], each['path']) if each else 'none') for rank, each in enumerate(found)),
            next_step='Start all ranks with the same LD_LIBRARY_PATH and the same packages.')]
    if not there or not told[0]:
        return _by_its_word(key, n, title, wanted, said, there)
    where = '%s %s is loaded, from %s' % (title, told[0], found[0]['path'])
    if wanted and not alike(told[0], wanted):
        return [check(key, n, 'fail', '%s, but the lock has %s' % (where, wanted),
                      next_step=('Another copy is found first. Check LD_LIBRARY_PATH, LD_PRELOAD and packages that were '
                                 'installed later, or build the image again.'))]
    if said and name == 'libcudnn' and cannot_replace(told[0], said):
        return [check(key, n, 'fail', '%s, but the framework was compiled with %s' % (where, said),
                      next_step='Install %s %s or a newer release of the same major version.' % (title, said))]
    return [check(key, n, 'pass', where + ('' if wanted else '; the lock has no version of it'))]


def _by_its_word(key, n, title, wanted, said, there):
    """Check the version that the framework reports, because no file of the library reports its version."""
    where = 'from %s' % there[0]['path'] if there else "part of the framework's own files"
    if not said or not wanted:
        return [check(key, n, 'skip', '%s does not report its version' % there[0]['path'])] if there else []
    if alike(said, wanted):
        return [check(key, n, 'pass', 'the framework reports %s %s, %s' % (title, said, where))]
    return [check(key, n, 'warn', 'the framework reports %s %s, the lock has %s' % (title, said, wanted), severity='warn',
                  next_step='Build the image again, or correct the matrix.')]


def word(said, field):
    """Convert a version as frameworks write it (8907, '8.9.7', '64_7', None) into numbers with dots."""
    text = str(said or '').split('_')[-1]
    if text.isdigit() and int(text) >= 1000:
        return mapped.cudnn(int(text)) if field == 'cudnn' else mapped.nccl(int(text))
    return text


def alike(one, other):
    """Whether two versions are equal in the parts that both have, at most three: '8' equals '8.9.7'."""
    one, other = numbers(one), numbers(other)
    length = min(3, len(one), len(other))
    return one[:length] == other[:length]


def cannot_replace(version, built):
    """Whether this cuDNN cannot replace the cuDNN `built`, with which the framework was compiled.

    The major versions must be equal, and the minor version must be at least that of `built`.
    """
    version, built = numbers(version), numbers(built)
    return version[:1] != built[:1] or (len(built) > 1 and version[:2] < built[:2])
