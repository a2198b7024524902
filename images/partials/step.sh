#!/bin/bash
# The SHELL of a generated Dockerfile: runs the command of one RUN. The folder of this file is mounted at /mnt.
#
# Before the command: turns the secrets of the build, if there are any, into variables and files. After it: empties /tmp,
# removes the setuid and setgid bits of programs, and gives all written files the same time, so that every build makes the same
# layer.
#
# A RUN calls ordinary commands and the functions below whose names contain a dash. Files from the build context or from another
# stage are mounted below /mnt. Each mount needs an existing mount point: the empty files next to this one.
set -eu -o pipefail

readonly epoch=1577836800             # 2020-01-01, the modification time of every file that a step writes
readonly scratch=/dev/shm/envbuild    # in memory, so in no layer; envbuild's secrets.py uses the same path
cache=/mnt/cache                      # downloads, which the builder keeps between builds
if [[ ! -w "${cache}" ]]; then
  cache=/tmp/cache
fi

# --- Debian packages ----------------------------------------------------------------------------------------------------------

# apt-install NAME...: installs from the files that the lock pins if they are mounted (without network), else from the mirror.
apt-install() {
  if [[ -e /mnt/debs/SHA256SUMS ]]; then
    /bin/bash /mnt/apt.sh install /mnt/debs "$@"
  else
    ask_mirror
    apt-get update
    apt-get install -y --no-install-recommends "$@"
    remove_logs
  fi
}

# apt-install-listed: does the same for the packages that the file /mnt/packages lists, one per line.
apt-install-listed() {
  if [[ -e /mnt/debs/SHA256SUMS ]]; then
    local folders=()
    for sums in /mnt/debs*/SHA256SUMS; do
      folders+=("${sums%/*}")
    done
    /bin/bash /mnt/apt.sh listed /mnt/packages "${folders[@]}"
  else
    local names
    mapfile -t names < /mnt/packages
    apt-install "${names[@]}"
  fi
}

# apt-install-held NAME=VERSION|FILE...: installs exactly these and holds them, so that no later upgrade changes them.
apt-install-held() {
  apt-install "$@"
  local names=("${@##*/}")
  names=("${names[@]%%=*}")
  apt-mark hold "${names[@]%.deb}"
}

# apt-repository NAME LINE: adds a package source, signed by the key /mnt/cuda/keys/NAME.gpg, for this step only. If it stayed,
# a later change of its key would break apt-get in images made from this one.
apt-repository() {
  echo "deb [signed-by=/mnt/cuda/keys/$1.gpg] $2" > "/etc/apt/sources.list.d/$1.list"
  echo "/etc/apt/sources.list.d/$1.list" >> "${scratch}/repositories"
}

# apt-archive LINE...: replaces the base's package sources if they no longer answer, because its system is past its end of life.
# The index may still exist when the packages are gone, so this downloads one package: libc, which security suites update often.
# The download also fails if a host name does not resolve; `apt-get update` reports success then.
readonly archived="# The indices of an archive are past their dates."
apt-archive() {
  ask_mirror
  mkdir /tmp/fetched
  if ! { apt-get update && apt-get install -y --no-install-recommends --reinstall --download-only \
    -o Dir::Cache::Archives=/tmp/fetched libc6 && ls /tmp/fetched/libc6_*.deb; }; then
    rm -rf /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list
    printf '%s\n' "${archived}" "$@" > /etc/apt/sources.list
    ask_mirror
    apt-get update
  fi
  remove_logs
}

# Configures apt for this step: proxies and mirror of the building machine, the cache, and no check of the dates of an archive's
# indices. None of this is stored in the image.
ask_mirror() {
  local system
  system="$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)"
  mkdir -p "${cache}/apt/${system}/archives/partial" "${cache}/lists/${system}/partial"
  exec 9> "${cache}/apt/lock"
  flock 9 # stages are built in parallel
  {
    echo 'Acquire::Retries "3";'
    echo "Dir::Cache \"${cache}/apt/${system}\"; Dir::State::Lists \"${cache}/lists/${system}\";"
    if [[ -e "${scratch}/ca" ]]; then
      echo "Acquire::https::CAInfo \"${scratch}/ca\";"
    fi
    if [[ -e "${scratch}/sources.list" ]]; then
      echo "Dir::Etc::SourceList \"${scratch}/sources.list\";"
    fi
    if [[ -e "${scratch}/apt.conf" ]]; then
      cat "${scratch}/apt.conf"
    fi
    if [[ -e /etc/apt/sources.list ]] && grep -qxF "${archived}" /etc/apt/sources.list; then
      echo 'Acquire::Check-Valid-Until "false";'
    fi
  } > "${scratch}/apt.settings"
  export APT_CONFIG="${scratch}/apt.settings" DEBIAN_FRONTEND=noninteractive
}

remove_logs() {
  rm -rf /var/log/apt/* /var/log/*.log /var/cache/ldconfig/aux-cache /var/cache/debconf/*-old /var/lib/dpkg/*-old
}

# list-packages-of [--recursive] FILE PROGRAM...: writes to FILE the names of the packages whose libraries the programs are
# linked with. --recursive adds the dependencies of these packages; it is needed when packages are installed from files only.
list-packages-of() {
  local needed=(cat)
  if [[ "$1" == --recursive ]]; then
    shift
    needed=(with_dependencies)
  fi
  local file=$1
  shift
  ldd "$@" | awk '$3 ~ "^(/usr)?/lib/" {print $3}' | sort -u | xargs readlink -f | sed 's#^/usr##; s#^#*#' | xargs dpkg -S \
    | cut -d: -f1 | sort -u | "${needed[@]}" > "${file}"
}

with_dependencies() {
  xargs apt-cache depends --installed --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
    --no-enhances | sed -n '/^[a-z0-9]/{s/:.*//;p}' | sort -u
}

# --- Downloads, checked against the lock --------------------------------------------------------------------------------------

# fetch FILE SHA256 URL: downloads one file and checks its hash.
fetch() {
  mkdir -p "${1%/*}"
  curl -fsSL --retry 3 -o "$1" "$3"
  echo "$2  $1" | sha256sum --check --strict
  echo "$1" >> "${scratch}/fetched"
}

# fetch-key NAME FINGERPRINT URL: downloads the signing key of a repository, for apt-repository.
fetch-key() {
  export GNUPGHOME="${scratch}/gnupg"
  install -d -m 0700 "${GNUPGHOME}"
  mkdir -p /cuda/keys /cuda/packages
  curl -fsSL --retry 3 -o /tmp/key "$3"
  gpg --batch --import /tmp/key
  gpg --batch --export "$2" > "/cuda/keys/$1.gpg"
  if [[ ! -s "/cuda/keys/$1.gpg" ]]; then
    echo "the key at $3 is not $2" >&2
    exit 1
  fi
}

# conda-create FOLDER: installs the fetched conda packages into FOLDER. The last fetched file is the installer; it runs offline.
conda-create() {
  local files program
  mapfile -t files < "${scratch}/fetched"
  program=${files[-1]}
  unset 'files[-1]'
  chmod 0755 "${program}"
  printf '%s\n' @EXPLICIT "${files[@]/#/file://}" > /tmp/explicit.txt
  MAMBA_ROOT_PREFIX=/tmp/mamba "${program}" create --yes --offline --no-rc --prefix "$1" --file /tmp/explicit.txt
  rm -rf "$1/conda-meta"
}

# --- Python packages ----------------------------------------------------------------------------------------------------------

# make-venv PYTHON PREFIX [FOLDER]: makes a virtual environment, with the mounted virtualenv if there is one (the last release
# that is a single file and supports this Python). It contains no packages of the distribution, and neither pip nor virtualenv.
# If the Python lies in FOLDER, its libraries are linked into PREFIX, where it looks for them.
make-venv() {
  if [[ -e /mnt/tools/virtualenv.whl ]]; then
    PYTHONPATH=/mnt/tools/virtualenv.whl "$1" -m virtualenv --no-download --no-pip --no-setuptools --no-wheel "$2"
    if [[ $# -gt 2 ]]; then
      find "$3/lib" -maxdepth 1 -name '*.so*' -exec ln -st "$2/lib" {} +
    fi
    compile "$2"
  else
    "$1" -m venv --without-pip "$2"
  fi
}

# pip-install PREFIX [OPTION...]: installs exactly the files whose hashes /mnt/requirements.txt lists. With --no-deps the index
# cannot add anything.
pip-install() {
  local prefix=$1
  shift
  install_in_order "${prefix}" --no-deps --require-hashes --only-binary :all: "$@" -r /mnt/requirements.txt
  compile "${prefix}"
}

# pip-install-built PREFIX: installs the wheels of an earlier stage by name, so that `pip freeze` shows a version and not a
# path. uv records when a local wheel was made (uv_cache.json). This time differs in every build, so the record is removed, and
# its line in the list of installed files too.
pip-install-built() {
  local file name version record wanted=()
  for file in /mnt/wheels/*.whl; do
    IFS=- read -r name version _ <<< "${file##*/}"
    wanted+=("${name}==${version}")
  done
  install_in_order "$1" --no-index --find-links /mnt/wheels --no-deps "${wanted[@]}"
  find "$1" -path '*.dist-info/uv_cache.json' | while read -r record; do
    sed -i '/[.]dist-info\/uv_cache[.]json,/d' "${record%/*}/RECORD"
    rm "${record}"
  done
  compile "$1"
}

# pip-build PREFIX FOLDER [NAME=VALUE...]: builds wheels from the source packages in /mnt/requirements.txt, or from the source
# tree in /mnt/source.tar, with the tools in /mnt/requirements-build.txt. The variables are set during the build.
pip-build() {
  local prefix=$1 folder=$2
  shift 2
  installer "${prefix}" --target /tmp/build-tools --no-deps --require-hashes --only-binary :all: -r /mnt/requirements-build.txt
  number-names > /tmp/build-tools/sitecustomize.py
  export PYTHONPATH=/tmp/build-tools SOURCE_DATE_EPOCH="${epoch}"
  for variable in "$@"; do
    export "${variable?}"
  done
  local wanted=(--require-hashes --no-binary :all: -r /mnt/requirements.txt)
  if [[ -s /mnt/source.tar ]]; then
    tar -xf /mnt/source.tar -C /tmp
    wanted=(/tmp/source)
  fi
  "${prefix}/bin/python" -m pip --no-cache-dir wheel --no-deps --no-build-isolation "${wanted[@]}" -w "${folder}"
}

# Prints a module that every Python of a build imports first. pip unpacks sources into folders with random names, and compilers
# write these names into their output. The module replaces the random names by numbers, so every build makes the same files.
number-names() {
  cat << 'END'
import itertools
import os
import tempfile
import uuid


def mkdtemp(suffix=None, prefix=None, dir=None):
    for number in itertools.count():
        name = '%s%d%s' % (prefix or 'tmp', number, suffix or '')
        path = os.path.abspath(os.path.join(dir or tempfile.gettempdir(), name))
        try:
            os.mkdir(path, 0o700)
        except OSError:
            if not os.path.lexists(path):
                raise
        else:
            return path


numbers = itertools.count()
tempfile.mkdtemp = mkdtemp
uuid.uuid4 = lambda: uuid.UUID(int=next(numbers), version=4)
END
}

# Runs the installer. If two packages have a file at the same path with different contents, the last package by name wins. uv
# writes both at the same time, so the winner would differ between builds.
install_in_order() {
  local prefix=$1 names name
  installer "$@"
  names="$(list_overlapping "${prefix}")"
  for name in ${names}; do
    if [[ -e /mnt/tools/pip.whl ]]; then
      "${prefix}/bin/python" /mnt/tools/pip.whl/pip uninstall -y "${name}"
    else
      /mnt/tools/uv pip uninstall --python "${prefix}/bin/python" "${name}"
    fi
    installer "$@"
  done
}

# Prints, in order, the names of the packages of this step that share a path with another one and do not agree on its content.
list_overlapping() {
  # shellcheck disable=SC2016 # the variables are awk's
  find "$1" -path '*.dist-info/RECORD' -cnewer "${scratch}/begun" -print0 | xargs -0 -r awk -F, '
    NF > 2 {
      hash = $(NF - 1)
      path = substr($0, 1, length($0) - length(hash) - length($NF) - 2)
      if (path in owners && (hash == "" || hash != hashes[path])) differs[path] = 1
      owners[path] = owners[path] "\n" FILENAME
      hashes[path] = hash
    }
    END { for (path in differs) print owners[path] }' \
    | sed -n 's#.*/\([^/]*\)-[^/]*[.]dist-info/RECORD$#\1#p' | tr 'A-Z_.' 'a-z--' | LC_ALL=C sort -u
}

# Runs the locked uv, or the locked pip if the Python is too old for uv.
installer() {
  local python="$1/bin/python"
  shift
  if [[ -e /mnt/tools/pip.whl ]]; then
    "${python}" /mnt/tools/pip.whl/pip --cache-dir="${cache}/pip" --no-python-version-warning install --no-compile "$@"
  else
    export UV_CACHE_DIR="${cache}/uv" UV_LINK_MODE=copy UV_NO_CONFIG=1 UV_PYTHON_DOWNLOADS=never
    RUST_LOG=uv_install_wheel=debug /mnt/tools/uv pip install --python "${python}" "$@" 2>&1 | tee "${scratch}/said"
    refuse_incomplete_wheels
  fi
}

# Fails if a wheel lacks files that its RECORD lists. uv removes them from RECORD and says so in its log, but only when it unpacks
# the wheel. Therefore the wheel must leave the cache. Folders, which end with a slash, do not count: some wheels list them.
refuse_incomplete_wheels() {
  local lines line package
  lines="$(grep -E '[^/]`(,| are listed) .*missing from the wheel archive for' "${scratch}/said" || true)"
  if [[ -z "${lines}" ]]; then
    return 0
  fi
  while IFS= read -r line; do
    package="${line##*archive for \`}"
    package="${package%%\`*}"
    line="${line%% are listed in *}"
    echo "The wheel of ${package} lacks files that its RECORD lists: ${line#*Files }" >&2
    /mnt/tools/uv cache clean "${package%%[ =]*}"
  done <<< "${lines}"
  return 1
}

# Compiles the modules that this step installed, because importing a framework without bytecode takes twice as long. From Python
# 3.7 on, SOURCE_DATE_EPOCH makes bytecode refer to its source by hash. Older bytecode contains the source's time, so times are
# set first. Modules of earlier layers are not compiled again: that would store them twice. Errors are ignored: some packages
# contain files that do not compile. Without -S, Python imports what .pth files of other packages name, and bytecode depends on
# what the interpreter has imported. Each core compiles 400 modules at a time (compileall itself uses one core for a list of
# files); the bytecode of a module does not depend on which others are compiled with it.
compile() {
  local python=("$1/bin/python" -S)
  if [[ -e /mnt/tools/pip.whl ]]; then
    python=("$1/bin/python") # finds the standard library by its own site.py
  fi
  "${python[@]}" -c 'import compileall'
  rm -f "$1/.lock" # uv's lock file, which everybody may write to
  settle
  { find "$1" -name '*.py' -cnewer "${scratch}/begun" | sort \
    | SOURCE_DATE_EPOCH="${epoch}" PYTHONHASHSEED=0 xargs -r -d '\n' -n 400 -P "$(nproc)" "${python[@]}" -m compileall -qq; } || true
}

# --- The image itself ---------------------------------------------------------------------------------------------------------

# make-user NAME: makes user 1000 and the work folder. A container can run with any user id: everybody may write to the home
# folder, and group 0, which engines give to unknown ids, may write to the work folder.
make-user() {
  export SOURCE_DATE_EPOCH="${epoch}"
  local other
  other="$(getent passwd 1000 || true)"
  if [[ -n "${other}" ]]; then
    userdel --remove "${other%%:*}"
  fi
  getent group 1000 || groupadd --gid 1000 "$1"
  useradd --uid 1000 --gid 1000 --create-home --shell /bin/bash "$1"
  chage --lastday 2020-01-01 "$1"
  chmod 1777 "/home/$1"
  install -d -o 1000 -g 0 -m 2775 /workspace
  rm -f /var/log/lastlog /var/log/faillog
}

# rename-user OLD NEW: renames the user, its group and its home folder.
rename-user() {
  usermod --login "$2" --home "/home/$2" --move-home "$1"
  local group
  group="$(id -gn 1000)"
  groupmod --new-name "$2" "${group}"
}

# copy-file FROM TO [USERS]: copies a file or folder of the user's recipe. USERS is TO or a parent folder of it inside the work
# folder or a home folder; it is given to the user and to group 0, with everything in it.
copy-file() {
  mkdir -p "${2%/*}/"
  cp -rT "$1" "$2"
  if [[ $# -gt 2 ]]; then
    chown -R 1000:0 "$3"
    chmod -R g=u "$3"
  fi
}

# link-cuda VERSION: links /usr/local/cuda to this version and adds its libraries to the loader's path.
link-cuda() {
  test -e /usr/local/cuda || ln -s "cuda-$1" /usr/local/cuda
  printf "/usr/local/cuda-$1/%s\n" lib64 extras/CUPTI/lib64 > /etc/ld.so.conf.d/envbuild-cuda.conf
  ldconfig
}

# record NAME HERE FOLDER [alone]: lists, for `verify`, files that belong to no package: hashes of the files below HERE, and
# links, under the paths that they have below FOLDER. `alone` means that FOLDER must contain nothing else.
record() {
  mkdir -p /opt/envbuild/installed
  {
    if [[ "${4:-}" == alone ]]; then
      echo "folder $3"
    fi
    find "$2" -type f -print0 | sort -z | xargs -0 sha256sum
    find "$2" -type l -printf 'link %l  %p\n' | sort
  } | sed "s#  $2/#  $3/#" > "/opt/envbuild/installed/$1"
}

# install-envbuild PYTHON: installs the lock, the bill of materials, the smoke test, and the pip with which users add packages.
install-envbuild() {
  cp -r /mnt/envbuild /opt/
  local before=
  if [[ -d /opt/envbuild/overlay ]]; then
    sh /opt/envbuild/overlay/install.sh
    before='PYTHONNOUSERSITE=1 '
  fi
  printf '#!/bin/sh\n%sexec %s /opt/envbuild/smoke "$@"\n' "${before}" "$1" > /usr/local/bin/envbuild-smoke
  chmod 0755 /usr/local/bin/envbuild-smoke
  if [[ -e /opt/envbuild/prefixes ]]; then
    printf '#!/bin/sh\nexec sh /opt/envbuild/smoke/use.sh "$@"\n' > /usr/local/bin/envbuild-use
    chmod 0755 /usr/local/bin/envbuild-use
  fi
}

# --- The end of every step ----------------------------------------------------------------------------------------------------

finish() {
  if [[ -e "${scratch}/repositories" ]]; then
    xargs -a "${scratch}/repositories" rm -f
  fi
  remove_temporary_files
  remove_rights
  compile_again
  remove_caches
  settle
}

remove_temporary_files() {
  find /tmp -mindepth 1 -maxdepth 1 | sort | comm -23 - "${scratch}/tmp" | xargs -r -d '\n' rm -rf
}

# Removes setuid bits, setgid bits and file capabilities from all files, also from those of the base. An image without getcap
# has no file capabilities, because getcap is installed together with setcap, which sets them.
remove_rights() {
  find / -xdev -type f -perm /6000 -exec chmod a-s {} +
  if command -v getcap > /dev/null; then
    find / -xdev -type f -perm /111 -exec getcap {} + | sed 's/ .*//' | xargs -r -n 1 setcap -r
  fi
}

# Compiles the distribution's Python modules again, with a fixed hash seed and in a fixed order. Distributions compile them
# during installation with -E, which ignores PYTHONHASHSEED, and before Python 3.11 the order of a frozenset in bytecode depends
# on this seed (https://github.com/python/cpython/issues/81777).
compile_again() {
  local compiled="${scratch}/compiled"
  find /usr/lib /usr/share -xdev -path '*/__pycache__/*.cpython-3*.pyc' -newer "${scratch}/before" > "${compiled}"
  sed 's/.*[.]cpython-3\([0-9]*\)[.].*/\1/' "${compiled}" | sort -u | while read -r minor; do
    sed -n "s#__pycache__/\(.*\)[.]cpython-3${minor}[.]pyc#\1.py#p" "${compiled}" | sort \
      | PYTHONHASHSEED=0 "/usr/bin/python3.${minor}" -S -m py_compile -
  done
}

# Removes files that differ in each installation: the machine id, which two containers must not share, and caches of fonts and
# manual pages, which programs rebuild if they are missing.
remove_caches() {
  if [[ /etc/machine-id -nt "${scratch}/before" ]]; then
    : > /etc/machine-id
  fi
  find /var/lib/dbus /var/cache/fontconfig /var/cache/man /usr/share/fonts /usr/local/share/fonts -xdev -type f \
    -newer "${scratch}/before" \( -name machine-id -o -name '*.cache-*' -o -name index.db -o -name .uuid \) -delete \
    2> /dev/null || true
}

# Sets the same time on everything that is newer than the start of the step. Files with the (older) time of their package keep
# it, because the package's bytecode refers to it.
settle() {
  find / -xdev ! -path /proc ! -path /sys ! -path /mnt ! -path /etc/hosts ! -path /etc/resolv.conf \
    -newer "${scratch}/before" -exec touch -hcd "@${epoch}" {} +
}

mkdir -p "${scratch}"
# Ten seconds before the step, because builders make mount points in the image just before it. Files of earlier layers are
# older: each step sets their times when it ends.
touch -d '-10 seconds' "${scratch}/before"
touch "${scratch}/begun"
find /tmp -mindepth 1 -maxdepth 1 | sort > "${scratch}/tmp"
if [[ -s /mnt/secret ]]; then
  # shellcheck source=/dev/null # secrets of the building machine, which must not get into the image
  . /mnt/secret
fi
trap 'echo "step.sh: this command failed: ${BASH_COMMAND}" >&2' ERR
eval "$1"
finish
