#!/bin/bash
# Runs the command of one RUN of a generated Dockerfile, whose SHELL this is. The build context mounts this folder at /mnt.
#
# Before the command: the secrets of the build, if it got any, become variables and files. After it: what it left in /tmp goes, no
# program gives more rights than its user has, and everything that it wrote gets one time, so that each build makes the same layer.
# The functions with a dash in their names are what the RUNs call, beside ordinary commands. What they take from the build context
# or from another stage is mounted below /mnt; a mount needs a place there, which the empty files beside this one are.
set -eu -o pipefail

readonly epoch=1577836800             # 2020-01-01, the time of everything that a step writes
readonly scratch=/dev/shm/envbuild    # in memory, and in no layer; secrets.py of envbuild knows this path
cache=/mnt/cache                      # of downloads: kept by the builder between builds
if [[ ! -w "${cache}" ]]; then
  cache=/tmp/cache
fi

# --- Debian packages ---------------------------------------------------------------------------------------------------------------

# apt-install NAME...: from the files that the lock pins, where they are mounted, without any network; else from the mirror.
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

# apt-install-listed: the same for the packages that are listed in the file /mnt/packages, one per line.
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

# apt-install-held NAME=VERSION|FILE...: exactly these, and no later upgrade changes them.
apt-install-held() {
  apt-install "$@"
  local names=("${@##*/}")
  names=("${names[@]%%=*}")
  apt-mark hold "${names[@]%.deb}"
}

# apt-repository NAME LINE: another source of packages, signed by the key /mnt/cuda/keys/NAME.gpg, during this step only: a later
# change of its key must not break apt-get in images made from this one.
apt-repository() {
  echo "deb [signed-by=/mnt/cuda/keys/$1.gpg] $2" > "/etc/apt/sources.list.d/$1.list"
  echo "/etc/apt/sources.list.d/$1.list" >> "${scratch}/repositories"
}

# apt-archive LINE...: where the base's own sources no longer answer (its system is past its end of life), these take their place.
# An index may outlive its packages, so one of them is fetched: libc, of which security suites have the newest. That tells of hosts
# without a name, too, for which `apt-get update` ends well.
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

# What apt is told during this step: this machine's proxies and mirror, the cache, and not to mind the dates of an archive's indices.
# The image is never told so.
ask_mirror() {
  local system
  system="$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)"
  mkdir -p "${cache}/apt/${system}/archives/partial" "${cache}/lists/${system}/partial"
  exec 9> "${cache}/apt/lock"
  flock 9 # stages are built side by side
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

# list-packages-of FILE PROGRAM...: writes the names of the packages whose libraries the programs are linked with. With --recursive
# before them, of all that these need, too: packages that are installed from files alone.
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

# --- Files that are fetched, and checked against the lock ----------------------------------------------------------------------------

# fetch FILE SHA256 URL
fetch() {
  mkdir -p "${1%/*}"
  curl -fsSL --retry 3 -o "$1" "$3"
  echo "$2  $1" | sha256sum --check --strict
  echo "$1" >> "${scratch}/fetched"
}

# fetch-key NAME FINGERPRINT URL: the signing key of a repository, for apt-repository.
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

# conda-create FOLDER: unpacks the conda packages that were fetched by the program that was fetched last, which asks no channel.
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

# --- Python packages ---------------------------------------------------------------------------------------------------------------

# make-venv PYTHON PREFIX [FOLDER]: with the mounted virtualenv, where there is one: the last that is one file and knows this Python.
# Packages of the distribution stay out, and nothing of the tool stays. A Python in FOLDER looks for its libraries beside itself.
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

# pip-install PREFIX [OPTION...]: exactly the files whose hashes /mnt/requirements.txt names: --no-deps leaves nothing to the index
# to decide.
pip-install() {
  local prefix=$1
  shift
  installer "${prefix}" --no-deps --require-hashes --only-binary :all: "$@" -r /mnt/requirements.txt
  compile "${prefix}"
}

# pip-install-built PREFIX: the wheels that an earlier stage built, by name, so that `pip freeze` shows a version and no path. uv
# records when a local wheel was made (uv_cache.json). That differs from build to build, so the record is removed, and its line in the
# list of installed files.
pip-install-built() {
  local file name version record wanted=()
  for file in /mnt/wheels/*.whl; do
    IFS=- read -r name version _ <<< "${file##*/}"
    wanted+=("${name}==${version}")
  done
  installer "$1" --no-index --find-links /mnt/wheels --no-deps "${wanted[@]}"
  find "$1" -path '*.dist-info/uv_cache.json' | while read -r record; do
    sed -i '/[.]dist-info\/uv_cache[.]json,/d' "${record%/*}/RECORD"
    rm "${record}"
  done
  compile "$1"
}

# pip-build PREFIX FOLDER [NAME=VALUE...]: wheels of the sources in /mnt/requirements.txt, or of the tree in /mnt/source.tar, by
# the tools in /mnt/requirements-build.txt. The variables are those of the build.
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

# A module that every Python of a build imports first. pip unpacks sources into folders with random names, which compilers write
# into what they make: numbers in their place make the same file each time.
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

# The locked uv, or, for Pythons that are too old for it, the locked pip.
installer() {
  local python="$1/bin/python"
  shift
  if [[ -e /mnt/tools/pip.whl ]]; then
    "${python}" /mnt/tools/pip.whl/pip --cache-dir="${cache}/pip" --no-python-version-warning install --no-compile "$@"
  else
    export UV_CACHE_DIR="${cache}/uv" UV_LINK_MODE=copy UV_NO_CONFIG=1 UV_PYTHON_DOWNLOADS=never
    /mnt/tools/uv pip install --python "${python}" "$@"
  fi
}

# Bytecode with checked hashes instead of times (SOURCE_DATE_EPOCH makes that the default from Python 3.7 on; before, bytecode holds
# its source's time, which is therefore settled first), and only of what this step installed: rewriting what an earlier layer holds
# would store it twice. Without bytecode a framework's import takes twice as long. Some packages hold files that do not compile.
compile() {
  local jobs=(-j 0)
  if [[ -e /mnt/tools/pip.whl ]]; then
    jobs=() # an old Python has none
  fi
  rm -f "$1/.lock" # of uv: everybody may write to it
  settle
  { find "$1" -name '*.py' -cnewer "${scratch}/begun" | sort \
    | SOURCE_DATE_EPOCH="${epoch}" PYTHONHASHSEED=0 "$1/bin/python" -m compileall -qq ${jobs[@]+"${jobs[@]}"} -i -; } || true
}

# --- The image itself --------------------------------------------------------------------------------------------------------------

# make-user NAME: user 1000, and the work folder. Any user id works: the home folder is writable for all, the work folder for
# group 0, which engines give to unknown ids.
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

# rename-user OLD NEW: the user, its group and its home.
rename-user() {
  usermod --login "$2" --home "/home/$2" --move-home "$1"
  local group
  group="$(id -gn 1000)"
  groupmod --new-name "$2" "${group}"
}

# copy-file FROM TO [USERS]: a user's own file or folder. USERS, a part of the way to it that lies in the work folder or in a home,
# is the user's, and, as everything there, of whoever is in group 0.
copy-file() {
  mkdir -p "${2%/*}/"
  cp -rT "$1" "$2"
  if [[ $# -gt 2 ]]; then
    chown -R 1000:0 "$3"
    chmod -R g=u "$3"
  fi
}

# link-cuda VERSION: the usual name of its folder, and the libraries where the loader looks.
link-cuda() {
  test -e /usr/local/cuda || ln -s "cuda-$1" /usr/local/cuda
  printf "/usr/local/cuda-$1/%s\n" lib64 extras/CUPTI/lib64 > /etc/ld.so.conf.d/envbuild-cuda.conf
  ldconfig
}

# record NAME HERE FOLDER [alone]: lists the files below HERE by sha256, and the links, as what lies below FOLDER, for `verify`,
# where no package's record tells of them. With `alone`, nothing else may ever lie in FOLDER.
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

# install-envbuild PYTHON: lock, bill of materials and smoke test, and what lets users add packages.
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

# --- The end of every step ---------------------------------------------------------------------------------------------------------

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

# Setuid, setgid and file capabilities, whoever brought them (the base, too). Only an image that has getcap can hold capabilities:
# whoever sets them has both programs.
remove_rights() {
  find / -xdev -type f -perm /6000 -exec chmod a-s {} +
  if command -v getcap > /dev/null; then
    find / -xdev -type f -perm /111 -exec getcap {} + | sed 's/ .*//' | xargs -r -n 1 setcap -r
  fi
}

# Distributions compile Python's modules while they install it. They start it with -E, which ignores PYTHONHASHSEED, and before
# Python 3.11 the order of a frozenset in bytecode depends on that seed (https://github.com/python/cpython/issues/81777). So what
# this step compiled there is compiled again, in a fixed order and with a fixed seed.
compile_again() {
  local compiled="${scratch}/compiled"
  find /usr/lib /usr/share -xdev -path '*/__pycache__/*.cpython-3*.pyc' -newer "${scratch}/before" > "${compiled}"
  sed 's/.*[.]cpython-3\([0-9]*\)[.].*/\1/' "${compiled}" | sort -u | while read -r minor; do
    sed -n "s#__pycache__/\(.*\)[.]cpython-3${minor}[.]pyc#\1.py#p" "${compiled}" | sort \
      | PYTHONHASHSEED=0 "/usr/bin/python3.${minor}" -S -m py_compile -
  done
}

# Removes files that differ in each installation: the machine id, which no two containers may share, and caches of fonts and manual
# pages, which programs make again when they are missing.
remove_caches() {
  if [[ /etc/machine-id -nt "${scratch}/before" ]]; then
    : > /etc/machine-id
  fi
  find /var/lib/dbus /var/cache/fontconfig /var/cache/man /usr/share/fonts /usr/local/share/fonts -xdev -type f \
    -newer "${scratch}/before" \( -name machine-id -o -name '*.cache-*' -o -name index.db -o -name .uuid \) -delete \
    2> /dev/null || true
}

# Gives everything that is younger than the step one time. What has the time of its package keeps it, as the package's bytecode
# refers to it.
settle() {
  find / -xdev ! -path /proc ! -path /sys ! -path /mnt ! -path /etc/hosts ! -path /etc/resolv.conf \
    -newer "${scratch}/before" -exec touch -hcd "@${epoch}" {} +
}

mkdir -p "${scratch}"
# Ten seconds earlier than the step, because builders make mount points in the image just before it. Nothing below is that young:
# the steps that made it ended so, too.
touch -d '-10 seconds' "${scratch}/before"
touch "${scratch}/begun"
find /tmp -mindepth 1 -maxdepth 1 | sort > "${scratch}/tmp"
if [[ -s /mnt/secret ]]; then
  # shellcheck source=/dev/null # what the machine that builds must not tell the image
  . /mnt/secret
fi
trap 'echo "step.sh: this failed: ${BASH_COMMAND}" >&2' ERR
eval "$1"
finish
