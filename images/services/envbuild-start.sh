#!/bin/bash
# Starts services of this image, and ends when the first of them ends: envbuild-start NAME… [-- OPTIONS for the last NAME].
set -euo pipefail
folder=/opt/envbuild/services

there_are() {
    echo "usage: envbuild-start NAME... [-- OPTIONS for the last NAME]"
    echo "services of this image: $(basename -a "$folder"/* | tr '\n' ' ')"
}

names=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case "$1" in
        -h | --help) there_are && exit 0 ;;
    esac
    if [ ! -x "$folder/$1" ]; then
        echo "envbuild-start: there is no service $1" >&2
        there_are >&2
        exit 2
    fi
    names+=("$1")
    shift
done
if [ ${#names[@]} -eq 0 ]; then
    there_are >&2
    exit 2
fi
if [ $# -gt 0 ]; then
    shift
fi

last="${names[-1]}"
unset 'names[-1]'
if [ ${#names[@]} -eq 0 ]; then
    exec "$folder/$last" "$@"
fi
running=()
for name in "${names[@]}"; do
    "$folder/$name" &
    running+=($!)
done
"$folder/$last" "$@" &
running+=($!)
trap 'kill "${running[@]}" 2> /dev/null || true' EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
code=0
wait -n || code=$?
exit "$code"
