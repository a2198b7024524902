#!/bin/sh
# The entry point of every image: starts the command in its arguments. If the working folder is mounted and the user cannot
# write to it, the script first prints what to do, because the command itself would only say "Permission denied". It prints
# nothing for a folder that is mounted read-only, because that is intended.
set -eu

if [ ! -w . ] && [ -r /proc/self/mountinfo ]; then
  folder=$(pwd)
  while read -r _ _ _ _ point options _; do
    case ${folder}/ in
      "${point%/}"/*)
        # The last mount that contains the folder decides. The root of the image does not count: no user mounted it.
        if [ "${point}" = / ]; then writable=''; else case ,${options}, in *,ro,*) writable='' ;; *) writable=${point} ;; esac; fi
        ;;
      *) ;;
    esac
  done < /proc/self/mountinfo
  if [ -n "${writable:-}" ]; then
    user=$(id -u)
    owner=$(stat -c %u:%g .)
    printf "envbuild: user %s cannot write to %s, which belongs to user %s: add '--user %s' to the command that starts the container, %s.\n" \
      "${user}" "${folder}" "${owner%%:*}" "${owner}" "or give the folder to user ${user}" >&2
  fi
fi

exec "$@"
