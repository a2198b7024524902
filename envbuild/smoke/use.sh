#!/bin/sh
# The command envbuild-use. An image may hold several prefixes (sets of packages, each with its own Python): list them, or enter
# one.
#
# The file `prefixes` in the parent folder has a line `/opt/envs/NAME  WORDS` for each prefix. The indented lines below it
# are variables (NAME=VALUE) that only the frameworks of this prefix may see.
set -eu
list=${0%/*}/../prefixes

if [ "$#" -eq 0 ]; then
  sed -n 's#^/[^ ]*/##p' "${list}"
  printf '\n%s\n%s\n' 'envbuild-use NAME             starts a shell in one of them' 'envbuild-use NAME COMMAND...  runs one command in it'
  exit 0
fi

name=$1
shift
if [ "$#" -eq 0 ]; then
  export debian_chroot="${name}"   # the prompt of Debian's and Ubuntu's shells shows it
  set -- "${SHELL:-bash}"
fi

# Leave the prefix that was entered before: remove its program folder, and its variables unless the user changed them.
known='' chosen='' in_chosen=''
while read -r line; do
  case ${line} in
    /*)
      folder=${line%% *}
      known="${known} ${folder##*/}"
      PATH=$(printf '%s' "${PATH}" | sed "s#${folder}/bin:##g")
      in_chosen=''
      if [ "${folder##*/}" = "${name}" ]; then chosen=${folder} in_chosen=yes; fi
      ;;
    [A-Z]*=*)
      if [ -n "${in_chosen}" ]; then
        set -- "${line}" "$@"
      elif [ "$(printenv "${line%%=*}" || :)" = "${line#*=}" ]; then
        unset "${line%%=*}"
      fi
      ;;
    *) ;;   # a comment
  esac
done < "${list}"

if [ -z "${chosen}" ]; then
  echo "envbuild-use: '${name}' is none of the environments in this image:${known}" >&2
  exit 2
fi
export PATH="${chosen}/bin:${PATH}" VIRTUAL_ENV="${chosen}"
exec env "$@"
