"""Lists the real contents of an image. The host runs it in the image, as ``python -S -s -E -B -c <this text> CONFIG``.

CONFIG is JSON: {"out": FILE, "prefixes": [FOLDER], "quick": bool, "paths": [PATH]}. The answer is one JSON object in FILE.
Lines "progress DONE TOTAL" (bytes) go to standard output. Standard library only, Python 2.7 and 3.5 on. It judges nothing: the
host compares the list with the lock. It never imports what it examines, so that a modified package cannot hide its changes.
"""
from __future__ import print_function, unicode_literals

import base64
import csv
import hashlib
import io
import json
import os
import re
import stat
import subprocess
import sys

PIECE = 1 << 20
SMALL = 1 << 20  # "quick" hashes files up to this size and compares only the size of larger ones
DPKG_INFO = '/var/lib/dpkg/info'
DIVERSIONS = '/var/lib/dpkg/diversions'
NEEDED = ('/bin/', '/sbin/', '/lib/', '/lib64/', '/usr/bin/', '/usr/sbin/', '/usr/lib/', '/usr/libexec/')
SKIPPED = ('/proc', '/sys', '/dev')
HASHED = re.compile(r'^sha(256|384|512)=')  # hashes that count in RECORD: its specification allows no weaker ones
# Files that venv, virtualenv and uv make themselves: no installed package lists them.
OF_THE_PREFIX = re.compile(r'^(_virtualenv\.(py|pth)|\.lock|no-global-site-packages\.txt|orig-prefix\.txt|easy-install\.pth)$')
# KEEPERS: files in which programs keep credentials. SETTINGS: files that must not contain TELLING, a proxy or a password.
KEEPERS = (r'/(\.netrc|_netrc|\.pypirc|\.git-credentials|\.dockercfg|\.pgpass|id_(rsa|dsa|ecdsa|ed25519)|\.aws/credentials'
           r'|\.docker/config\.json|\.(bash|python|sh)_history|\.?pip/pip\.conf|uv/uv\.toml)$'
           r'|^/etc/(pip\.conf$|apt/auth\.conf)|^/run/secrets/')
SETTINGS = r'^/etc/(apt/|environment$|profile|wgetrc$|gitconfig$)|/(\.gitconfig|\.wgetrc|\.curlrc|\.npmrc|\.condarc)$'
TELLING = br'(?im)://[^/\s:@]+:[^/\s@]+@|^\s*Acquire::https?::Proxy|^\s*(export\s+)?https?_proxy\s*='
SECRETS = [(re.compile(where), re.compile(what), words) for where, what, words in (
    (KEEPERS, br'.', 'may hold credentials'), (SETTINGS, TELLING, 'contains a proxy or a password'),
    (r'\.(pem|key)$', br'-----BEGIN [A-Z ]*PRIVATE KEY-----', 'is a private key'))]
OF_THE_BIN = re.compile(r'^(python[\d.]*(-config)?|activate.*|Activate\.ps1|deactivate.*|pydoc\.bat)$')


def read_text(path):
    with io.open(path, encoding='utf-8', errors='replace') as stream:
        return stream.read()


def headers(path):
    """Return the first Name and the first Version in a METADATA or PKG-INFO file."""
    found = {}
    for line in read_text(path).splitlines():
        if not line.strip():
            break
        key, _, value = line.partition(':')
        if key in ('Name', 'Version'):
            found.setdefault(key, value.strip())
    return found.get('Name', ''), found.get('Version', '')


def record_rows(path):
    """Return (relative path, 'sha256=...' or '', size or '') of each row of RECORD. The csv module of Python 2 reads bytes."""
    if sys.version_info[0] == 2:
        with open(path, 'rb') as stream:
            rows = [[cell.decode('utf-8', 'replace') for cell in row] for row in csv.reader(stream)]
    else:
        with io.open(path, encoding='utf-8', errors='replace', newline='') as stream:
            rows = list(csv.reader(stream))
    return [(row + ['', ''])[:3] for row in rows if row and row[0]]


def distributions(site):
    """Return every distribution that is installed in the folder ``site``, with the files that its metadata lists."""
    found = []
    for entry in sorted(os.listdir(site)):
        folder = os.path.join(site, entry)
        if entry.endswith('.dist-info') and os.path.isdir(folder):
            found.append(from_dist_info(site, folder, entry))
        elif entry.endswith('.egg-info'):
            found.append(from_egg_info(site, folder, entry))
        elif entry.endswith(('.egg', '.egg-link')):
            found.append({'name': entry, 'version': '', 'folder': entry, 'kind': 'egg', 'rows': []})
    return found


def from_dist_info(site, folder, entry):
    metadata, record = os.path.join(folder, 'METADATA'), os.path.join(folder, 'RECORD')
    name, version = headers(metadata) if os.path.isfile(metadata) else ('', '')
    rows = record_rows(record) if os.path.isfile(record) else None
    if rows is not None:
        # Installers empty .data. NumPy 1.15.0's RECORD has two rows for a script there, and pip 20.3 corrects only one of them.
        rows = [row for row in rows if not row[0].split('/')[0].endswith('.data')]
    return {'name': name or entry, 'version': version, 'folder': entry, 'kind': 'wheel' if rows is not None else 'no-record',
            'rows': [(os.path.normpath(os.path.join(site, path)), digest, size) for path, digest, size in rows or []]}


def from_egg_info(site, folder, entry):
    """Describe a distribution in the old egg-info format, which lists files without hashes."""
    inside = os.path.isdir(folder)
    about = os.path.join(folder, 'PKG-INFO') if inside else folder
    name, version = headers(about) if os.path.isfile(about) else ('', '')
    listing = os.path.join(folder, 'installed-files.txt')
    lines = read_text(listing).splitlines() if inside and os.path.isfile(listing) else []
    return {'name': name or entry, 'version': version, 'folder': entry, 'kind': 'egg-info',
            'rows': [(os.path.normpath(os.path.join(folder, line)), '', '') for line in lines if line]}


class Progress(object):
    def __init__(self, total):
        self.done, self.total, self.shown = 0, total, 0

    def add(self, count):
        self.done += count
        if self.done - self.shown >= 64 * PIECE or self.done >= self.total:
            self.shown = self.done
            print('progress %d %d' % (self.done, self.total))
            sys.stdout.flush()


def digest_of(path, kind, progress):
    calculated = hashlib.new(kind)
    with open(path, 'rb') as stream:
        for piece in iter(lambda: stream.read(PIECE), b''):
            calculated.update(piece)
            progress.add(len(piece))
    return base64.urlsafe_b64encode(calculated.digest()).rstrip(b'=').decode('ascii')


def glance(row, quick):
    """Compare a file's size with RECORD. Return ('missing' | 'modified' | '', bytes to hash, or None to hash nothing)."""
    path, recorded, size = row
    try:
        there = os.stat(path)
    except OSError:
        return 'missing', None
    if size.isdigit() and int(size) != there.st_size:
        return 'modified', None
    return '', None if not recorded or (quick and there.st_size > SMALL) else there.st_size


def hashed_state(row, progress):
    """Return '' if the file has the recorded hash, else 'modified' or 'unreadable'."""
    kind, _, wanted = row[1].partition('=')
    try:
        return '' if digest_of(row[0], kind, progress) == wanted.rstrip('=') else 'modified'
    except (IOError, OSError, ValueError):
        return 'unreadable'


def is_pointed_here(row, prefix):
    """Whether a script differs from RECORD only in its first line, the path of Python: old installers did not correct RECORD.

    Such scripts begin with `#!python` in the wheel: https://packaging.python.org/en/latest/specifications/binary-distribution-format/
    """
    path, recorded, size = row
    kind, _, wanted = recorded.partition('=')
    try:
        with open(path, 'rb') as stream:
            first, rest = stream.readline(), stream.read()
        calculated = hashlib.new(kind)
    except (IOError, OSError, ValueError):
        return False
    if not first.startswith(('#!%s/bin/python' % prefix).encode('utf-8')):
        return False
    shipped = b'#!python\n' + rest
    calculated.update(shipped)
    return base64.urlsafe_b64encode(calculated.digest()).decode('ascii').rstrip('=') == wanted.rstrip('=') and size in ('', str(len(shipped)))


def replaced_by(row, claims, quick):
    """The other package whose RECORD a file matches, or ''. If two wheels contain the same path, one overwrites the other."""
    for name, other in claims:
        state, size = glance(other, quick)
        if other != row and other[1] and not state and (size is None or not hashed_state(other, Progress(1 << 62))):
            return name
    return ''


def is_compiled_again(path, known):
    """Whether a file is bytecode of a recorded source. Such a file may be missing or compiled again: only its source counts."""
    return path.endswith(('.pyc', '.pyo')) and is_bytecode_of(path, known)


def version_of(prefix):
    """Ask the prefix's Python for its version X.Y.Z; '' if it cannot start."""
    program = 'import sys; print(".".join(str(part) for part in sys.version_info[:3]))'
    try:
        asked = subprocess.Popen([os.path.join(prefix, 'bin', 'python'), '-S', '-s', '-E', '-c', program], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
        return asked.communicate()[0].decode('ascii', 'replace').strip()
    except OSError:
        return ''


def examine(prefix, quick, recorded=None):
    """Return a prefix's distributions and all files that differ from RECORD. Add all recorded paths to the set `recorded`."""
    sites = sites_of(prefix)
    found = [dict(one, site=site) for site in sites for one in distributions(site)]
    claims = {}
    for name, row in ((one['name'], row) for one in found for row in one['rows']):
        claims.setdefault(row[0], []).append((name, row))
    known = set(claims)
    if recorded is not None:
        recorded.update(known)
    for one in found:
        one['looks'] = [(row, glance(row, quick)) for row in one['rows'] if not is_compiled_again(row[0], known)]
    progress = Progress(sum(size or 0 for one in found for _, (_, size) in one['looks']))
    answer = {key: [] for key in ('distributions', 'missing', 'modified', 'replaced', 'unreadable', 'unhashed')}
    for one in found:
        hashed, info = 0, os.path.join(one['site'], one['folder'], '')
        for row, (state, size) in one['looks']:
            if size is not None:
                state = hashed_state(row, progress)
                hashed += 1
            if state == 'modified':
                other = replaced_by(row, claims[row[0]], quick)
                state = '' if other or is_pointed_here(row, prefix) else state
                answer['replaced'] += [{'path': row[0], 'of': one['name'], 'by': other}] if other else []
            # Rows of .dist-info need no hash: installers add some, and nothing imports the modules that publishers leave there.
            if not state and one['kind'] == 'wheel' and not row[0].startswith(info) and not any(HASHED.match(each[1]) for _, each in claims[row[0]]):
                state = 'unhashed'
            if state:
                answer[state].append({'path': row[0], 'of': one['name']})
        answer['distributions'].append(dict({key: one[key] for key in ('name', 'version', 'folder', 'kind')}, files=len(one['rows']), hashed=hashed))
    owned = [os.path.join(one['site'], one['folder']) for one in found]
    answer.update(sites=sites, bytes=progress.done, unrecorded=unrecorded(prefix, sites, known, owned))
    return answer


def sites_of(prefix):
    """The folders of installed packages below ``prefix``, each once (lib64 is a link to lib)."""
    found = []
    for lib in ('lib', 'lib64'):
        base = os.path.join(prefix, lib)
        for entry in sorted(os.listdir(base)) if os.path.isdir(base) else ():
            for folder in ('site-packages', 'dist-packages'):
                site = os.path.join(base, entry, folder)
                if entry.startswith('python') and os.path.isdir(site):
                    found.append(os.path.realpath(site))
    return sorted(set(found))


def unrecorded(prefix, sites, known, owned):
    """Return files that no distribution recorded, except bytecode of a recorded source and the files of the prefix itself."""
    found = []
    for site in sites:
        for folder, folders, files in os.walk(site):
            folders.sort()
            for name in files:
                path = os.path.join(folder, name)
                if path in known or is_bytecode_of(path, known):
                    continue
                if folder == site and OF_THE_PREFIX.match(name) or folder in owned or path in owned:
                    continue
                found.append(path)
    scripts = os.path.join(os.path.realpath(prefix), 'bin')
    for name in sorted(os.listdir(scripts)) if os.path.isdir(scripts) else ():
        path = os.path.join(scripts, name)
        if path not in known and not OF_THE_BIN.match(name) and not os.path.isdir(path):
            found.append(path)
    return found


def is_bytecode_of(path, known):
    folder, name = os.path.split(path)
    if not name.endswith(('.pyc', '.pyo')):
        return False
    if os.path.basename(folder) == '__pycache__':
        return os.path.join(os.path.dirname(folder), name.split('.')[0] + '.py') in known or \
            os.path.join(os.path.dirname(folder), re.sub(r'\.[^.]+(\.opt-\d)?\.py[co]$', '', name) + '.py') in known
    return path[:-1] in known


def packages():
    """Return {name: version} of the installed Debian packages, from dpkg's database; None if there is no such database."""
    path = '/var/lib/dpkg/status'
    if not os.path.isfile(path):
        return None
    found = {}
    for block in read_text(path).split('\n\n'):
        fields = dict(line.split(': ', 1) for line in block.splitlines() if ': ' in line and not line.startswith(' '))
        if fields.get('Status', '').endswith(' installed'):
            found[fields.get('Package', '')] = fields.get('Version', '')
    return found


def packaged_files():
    """Compare the files of Debian packages with dpkg's checksums; return how many were compared and which differ.

    dpkg has no checksums of configuration files. Only missing programs and libraries count: images may omit documentation."""
    diverted = set(read_text(DIVERSIONS).splitlines()) if os.path.isfile(DIVERSIONS) else set()
    compared, modified, missing = 0, [], []
    for entry in sorted(os.listdir(DPKG_INFO)) if os.path.isdir(DPKG_INFO) else ():
        if not entry.endswith('.md5sums'):
            continue
        for line in read_text(os.path.join(DPKG_INFO, entry)).splitlines():
            wanted, _, path = line.partition('  ')
            path = '/' + path.strip()
            if path in diverted or len(wanted) != 32:
                continue
            found = md5_of(path)
            compared += found is not None
            if found is None and path.startswith(NEEDED):
                missing.append({'path': path, 'of': entry[:-8].split(':')[0]})
            elif found is not None and found != wanted:
                modified.append({'path': path, 'of': entry[:-8].split(':')[0]})
    return {'compared': compared, 'modified': modified, 'missing': missing}


def md5_of(path):
    """The MD5 of a file, or None if the file is missing. dpkg's lists have no stronger checksum."""
    calculated = hashlib.md5()
    try:
        with open(path, 'rb') as stream:
            for piece in iter(lambda: stream.read(PIECE), b''):
                calculated.update(piece)
    except (IOError, OSError):
        return None
    return calculated.hexdigest()


def owned_files(wanted):
    """Return which Debian package owns each path in ``wanted``, by dpkg's file lists. /bin and /usr/bin count as one folder."""
    places = {}
    for path in wanted:
        places[path] = path
        places[path[4:] if path.startswith('/usr/') else '/usr' + path] = path
    owners = {}
    for entry in sorted(os.listdir(DPKG_INFO)) if os.path.isdir(DPKG_INFO) else ():
        if entry.endswith('.list'):
            for line in read_text(os.path.join(DPKG_INFO, entry)).splitlines():
                if line in places:
                    owners[places[line]] = entry[:-5].split(':')[0]
    return owners


def whole_image(recorded):
    """Find files that give rights (setuid, setgid, capabilities), files that anybody may write, and possible credentials.

    Files that came with a package are not searched for credentials, because some packages contain keys for their tests."""
    privileged, writable, secret = [], [], []
    for folder, folders, files in os.walk('/'):
        folders[:] = sorted(name for name in folders if os.path.join(folder, name) not in SKIPPED)
        for name in folders + files:
            path = os.path.join(folder, name)
            try:
                mode = os.lstat(path).st_mode
            except OSError:
                continue
            if stat.S_ISREG(mode) and (mode & (stat.S_ISUID | stat.S_ISGID) or has_capability(path)):
                privileged.append({'path': path, 'mode': oct(stat.S_IMODE(mode)).replace('0o', '').lstrip('0')})
            if (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) and mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                writable.append({'path': path, 'kind': 'folder' if stat.S_ISDIR(mode) else 'file'})
            if stat.S_ISREG(mode) and path not in recorded and secret_in(path):
                secret.append({'path': path, 'what': secret_in(path)})
    owners = owned_files([one['path'] for one in privileged + secret])
    return {'privileged': [dict(one, package=owners.get(one['path'], '')) for one in privileged], 'writable': writable,
            'secrets': [one for one in secret if one['path'] not in owners]}


def secret_in(path):
    """Say which secret a file may contain; '' for none."""
    for pattern, telling, words in SECRETS:
        if pattern.search(path):
            with open(path, 'rb') as stream:
                if telling.search(stream.read(SMALL)):
                    return words
    return ''


def has_capability(path):
    """Whether the file has capabilities: rights that the kernel gives to whoever runs it, such as raw sockets to `ping`."""
    try:
        if hasattr(os, 'getxattr'):
            return bool(getattr(os, 'getxattr')(path, 'security.capability', follow_symlinks=False))
        import ctypes  # Python 2 has no getxattr, but the C library has
        return ctypes.CDLL(None).lgetxattr(path if isinstance(path, bytes) else path.encode('utf-8'), b'security.capability', None, 0) > 0
    except (ImportError, OSError, ValueError):  # a file without the attribute raises
        return False


def about(path):
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return None
    return {'folder': stat.S_ISDIR(mode), 'executable': bool(mode & 0o111)}


def main(config):
    recorded = set()
    prefixes = {prefix: dict(examine(prefix, config.get('quick', False), recorded), python=version_of(prefix))
                for prefix in config['prefixes']}
    answer = whole_image(recorded)
    answer.update({'python': '.'.join(str(part) for part in sys.version_info[:3]), 'prefixes': prefixes, 'packages': packages(), 'packaged': packaged_files(),
              'paths': {path: about(path) for path in config.get('paths', ())}})
    text = json.dumps(answer)
    with io.open(config['out'], 'w', encoding='utf-8') as stream:
        stream.write(text if not isinstance(text, bytes) else text.decode('ascii'))


if __name__ == '__main__':
    main(json.loads(sys.argv[1]))
