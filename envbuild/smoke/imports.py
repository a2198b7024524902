"""Imports the modules of given distributions, each in a process of its own, and lists what the installed packages require.

The host runs it in the image with the Python of a prefix, as the image's user: ``python -c <this text> CONFIG``. CONFIG is
JSON: {"out": FILE, "wanted": [canonical project name], "skip": [[pattern, reason]], "limit_s": seconds for one import,
"workers": number of imports at once}. The answer is one JSON object in FILE. Lines "progress DONE TOTAL" (modules) go to
standard output. Standard library only, Python 2.7 and 3.5 on. It only lists what happened; the host judges.
"""
from __future__ import print_function, unicode_literals

import csv
import fnmatch
import io
import json
import os
import platform
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

SHOWN = 4000  # at most so many bytes of an import's output are kept, from its end, where the error is
MOST = 40  # at most so many modules of one distribution are imported: only namespaces of generated modules have more
NAME = re.compile(r'^[A-Za-z_][A-Za-z0-9_]*$')
OF_METADATA = ('.dist-info', '.egg-info', '.data')
LIBRARY_FOLDERS = ('/lib', '/usr/lib', '/usr/local/lib', '/lib64', '/usr/lib64', '/lib/x86_64-linux-gnu', '/usr/lib/x86_64-linux-gnu')
# End the process at once after the import, without waiting for the module's threads and exit handlers. The file in argv[2]
# proves that the import returned: a module may also end the process with exit status 0.
CHILD = 'import importlib, os, sys; importlib.import_module(sys.argv[1]); open(sys.argv[2], "w").close(); sys.stdout.flush(); os._exit(0)'


def canonical(name):
    return re.sub(r'[-_.]+', '-', name).lower()


def read_text(path):
    with io.open(path, encoding='utf-8', errors='replace') as stream:
        return stream.read()


def suffixes():
    """The endings of files that Python can import as modules."""
    if sys.version_info[0] == 2:
        import imp
        return ['.py'] + [suffix for suffix, _, kind in imp.get_suffixes() if kind == imp.C_EXTENSION]
    import importlib
    return ['.py'] + list(importlib.import_module('importlib.machinery').EXTENSION_SUFFIXES)


def module_of(filename, endings):
    """Return the name of the module that a file holds, or None. A plain shared library (libx.so) is no module."""
    for ending in sorted(endings, key=len, reverse=True):
        if filename.endswith(ending):
            stem = filename[:-len(ending)]
            return stem if NAME.match(stem) and not (ending == '.so' and stem.startswith('lib')) else None
    return None


def modules(paths, endings):
    """The top-level modules of a distribution; for a namespace package, the packages inside it."""
    found, files = set(), []
    for path in paths:
        parts = path.split('/')
        if parts[0] in ('..', '') or parts[0].endswith(OF_METADATA) or not all(NAME.match(part) for part in parts[:-1]):
            continue
        name = module_of(parts[-1], endings)
        if name is not None and '__pycache__' not in parts:
            files.append((parts[:-1], name))
    packages = set('.'.join(folders) for folders, name in files if name == '__init__' and folders)
    for folders, name in files:
        outer = ['.'.join(folders[:depth]) for depth in range(1, len(folders) + 1)]
        known = [one for one in outer if one in packages]
        found.add(known[0] if known else '.'.join(folders + [name]))
    return sorted(found)


def record(path):
    if sys.version_info[0] == 2:  # the csv module of Python 2 reads only bytes
        with open(path, 'rb') as stream:
            return [row[0].decode('utf-8', 'replace') for row in csv.reader(stream) if row]
    with io.open(path, encoding='utf-8', errors='replace', newline='') as stream:
        return [row[0] for row in csv.reader(stream) if row]


def headers(text):
    found = {'Requires-Dist': []}
    for line in text.splitlines():
        if not line.strip():
            break
        key, _, value = line.partition(':')
        if key == 'Requires-Dist':
            found[key].append(value.strip())
        elif key in ('Name', 'Version', 'Requires-Python'):
            found.setdefault(key, value.strip())
    return found


def distribution(site, entry):
    """Describe the distribution whose metadata is this entry of the folder `site`; None if the entry is something else."""
    folder = os.path.join(site, entry)
    inside = os.path.isdir(folder)
    wheel = entry.endswith('.dist-info') and inside
    if not wheel and not entry.endswith('.egg-info'):
        return None
    about = os.path.join(folder, 'METADATA' if wheel else 'PKG-INFO') if inside else folder
    listing = os.path.join(folder, 'RECORD' if wheel else 'installed-files.txt')
    asked = os.path.join(folder, 'requires.txt')
    top = os.path.join(folder, 'top_level.txt')
    told = headers(read_text(about)) if os.path.isfile(about) else headers('')
    paths = []
    if inside and os.path.isfile(listing):
        rows = record(listing) if wheel else read_text(listing).splitlines()
        base = site if wheel else folder
        paths = [os.path.relpath(os.path.normpath(os.path.join(base, row)), site) for row in rows if row]
    return {'name': canonical(told.get('Name') or entry.split('-')[0]), 'version': told.get('Version', ''), 'requires': told['Requires-Dist'],
            'python': told.get('Requires-Python', ''),
            'sections': read_text(asked) if not wheel and inside and os.path.isfile(asked) else '', 'site': site, 'paths': paths,
            'top': read_text(top).split() if inside and os.path.isfile(top) else []}


def installed():
    """Return the distributions on this Python's path by name.

    If two have one name, the first counts: Python imports that one.
    """
    found = {}
    for site in sys.path:
        if os.path.basename(site) in ('site-packages', 'dist-packages') and os.path.isdir(site):
            for entry in sorted(os.listdir(site)):
                one = distribution(site, entry)
                if one is not None:
                    found.setdefault(one['name'], one)
    return found


def modules_to_import(one, endings):
    """The modules of a distribution, from its list of files or, without a list, from top_level.txt."""
    by_files = modules(one['paths'], endings)
    if by_files:
        return by_files
    names = [name for name in one['top'] if NAME.match(name)]
    return sorted(name for name in names if any(os.path.exists(os.path.join(one['site'], name + end)) for end in [''] + endings))


def reason_to_skip(module, rules):
    top = module.split('.')[0]
    for pattern, reason in rules:
        if fnmatch.fnmatchcase(module, pattern) or fnmatch.fnmatchcase(top, pattern):
            return reason
    return ''


def attempt(module, limit_s, folder):
    """Import one module in a process of its own. Return ('ok' | 'failed' | 'timeout', exit code, the end of its output)."""
    marker = os.path.join(folder, 'imported-' + module)
    said = os.path.join(folder, 'said-' + module)
    with open(said, 'wb') as stream, open(os.devnull, 'rb') as nothing:
        child = subprocess.Popen([sys.executable, '-c', CHILD, module, marker], stdin=nothing, stdout=stream, stderr=subprocess.STDOUT,
                                 cwd=folder, preexec_fn=os.setsid)
        end = os.times()[4] + limit_s       # a clock that never jumps, unlike the time of day
        while child.poll() is None and os.times()[4] < end:
            time.sleep(0.02)
        late = child.poll() is None
        try:
            os.killpg(child.pid, signal.SIGKILL)  # also ends all processes that the import started
        except OSError:
            pass
        code = child.wait()
    with open(said, 'rb') as stream:
        stream.seek(max(0, os.path.getsize(said) - SHOWN))
        text = stream.read().decode('utf-8', 'replace').strip()
    return 'timeout' if late else 'ok' if os.path.exists(marker) else 'failed', code, text


def attempt_all(tasks, config):
    """Run the imports of all `tasks`, several at once, and write the outcome of each into its task."""
    folder = tempfile.mkdtemp(prefix='envbuild-imports-')
    waiting, lock, done = list(reversed(tasks)), threading.Lock(), []

    def work():
        while True:
            with lock:
                if not waiting:
                    return
                task = waiting.pop()
            try:
                task['outcome'], task['code'], task['said'] = attempt(task['module'], config['limit_s'], folder)
            except Exception as error:  # for example too little memory for another process: reported, and not counted as a pass
                task['outcome'], task['code'], task['said'] = 'failed', 1, 'the import could not be tested: %s' % error
            with lock:
                done.append(task)
                print('progress %d %d' % (len(done), len(tasks)))
                sys.stdout.flush()

    threads = [threading.Thread(target=work) for _ in range(max(1, min(config['workers'], len(tasks))))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shutil.rmtree(folder, ignore_errors=True)


def needed(path):
    """The shared libraries that a 64-bit ELF file names (DT_NEEDED); [] for any other file.

    The format: https://man7.org/linux/man-pages/man5/elf.5.html
    """
    try:
        with open(path, 'rb') as stream:
            head = stream.read(64)
            if head[:6] != b'\x7fELF\x02\x01':
                return []
            start, = struct.unpack_from('<Q', head, 32)
            size, count = struct.unpack_from('<HH', head, 54)
            stream.seek(start)
            table = stream.read(size * count)
            parts = [struct.unpack_from('<IIQQQQ', table, size * number) for number in range(count)]
            _, _, offset, _, _, length = next(part for part in parts if part[0] == 2)
            stream.seek(offset)
            dynamic = stream.read(length)
            pairs = [struct.unpack_from('<QQ', dynamic, place) for place in range(0, len(dynamic) - 15, 16)]
            address, extent = dict(pairs)[5], dict(pairs)[10]
            base = next(part for part in parts if part[0] == 1 and part[3] <= address < part[3] + part[5])
            stream.seek(base[2] + address - base[3])
            strings = stream.read(extent)
        return [strings[value:strings.index(b'\0', value)].decode('utf-8', 'replace') for tag, value in pairs if tag == 1]
    except (IOError, OSError, KeyError, ValueError, StopIteration, struct.error):
        return []


def libraries_here():
    """Return the names of all shared libraries in the linker's cache, in library folders and in the installed packages."""
    found = set()
    folders = list(LIBRARY_FOLDERS) + os.environ.get('LD_LIBRARY_PATH', '').split(':') + [os.path.join(sys.prefix, 'lib')]
    folders.append(os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(sys.executable))), 'lib'))
    for folder in folders:
        if folder and os.path.isdir(folder):
            found.update(os.listdir(folder))
    for site in sys.path:
        if os.path.basename(site) in ('site-packages', 'dist-packages'):
            for _, _, names in os.walk(site):
                found.update(name for name in names if '.so' in name)
    for program in ('/sbin/ldconfig', '/usr/sbin/ldconfig'):
        if os.path.exists(program):
            asked = subprocess.Popen([program, '-p'], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            lines = asked.communicate()[0].decode('utf-8', 'replace').splitlines()
            found.update(line.split()[0] for line in lines if '=>' in line)
            break
    return found


def missing_libraries(one, here):
    found = []
    for path in one['paths']:
        if '.so' in os.path.basename(path):
            absent = [name for name in needed(os.path.join(one['site'], path)) if name not in here]
            found += [{'distribution': one['name'], 'path': path, 'library': name} for name in absent]
    return found


def markers():
    """The variables that markers of PEP 508 may use."""
    version = sys.version_info
    implementation = getattr(sys, 'implementation', None)
    told = implementation.version if implementation else version
    kind = told[3]
    return {'os_name': os.name, 'sys_platform': sys.platform, 'platform_machine': platform.machine(),
            'platform_python_implementation': platform.python_implementation(), 'platform_release': platform.release(),
            'platform_system': platform.system(), 'platform_version': platform.version(),
            'python_version': '.'.join(platform.python_version_tuple()[:2]), 'python_full_version': platform.python_version(),
            'implementation_name': implementation.name if implementation else '',
            'implementation_version': '%d.%d.%d' % tuple(told[:3]) + ('' if kind == 'final' else '%s%d' % (kind[0], told[4]))}


def main(config):
    found, endings = installed(), suffixes()
    tasks, skipped, without = [], [], []
    for name in config['wanted']:
        if name not in found:
            continue
        every = modules_to_import(found[name], endings)
        if not every:
            without.append(name)
        for number, module in enumerate(every):
            reason = reason_to_skip(module, config['skip'])
            if not reason and number >= MOST:
                reason = 'only the first %d modules of a distribution are tested' % MOST
            if reason:
                skipped.append({'distribution': name, 'module': module, 'reason': reason})
            else:
                tasks.append({'distribution': name, 'module': module})
    attempt_all(tasks, config)
    here = libraries_here()
    wanted = [found[name] for name in config['wanted'] if name in found]
    about = [dict((key, one[key]) for key in ('name', 'version', 'requires', 'python', 'sections')) for _, one in sorted(found.items())]
    answer = {'markers': markers(), 'distributions': about, 'modules': tasks, 'skipped': skipped, 'without': without,
              'absent': [name for name in config['wanted'] if name not in found],
              'libraries': [each for one in wanted for each in missing_libraries(one, here)]}
    text = json.dumps(answer)
    with io.open(config['out'], 'w', encoding='utf-8') as stream:
        stream.write(text if not isinstance(text, bytes) else text.decode('ascii'))


if __name__ == '__main__':
    main(json.loads(sys.argv[1]))
