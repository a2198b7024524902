#!/bin/sh
# Checks one host before a launch and prints a line for each fact: a word, then its value. Changes nothing. `envbuild launch` runs
# it on every host, with arguments NAME=VALUE that say what to check, and judges the output.
set -u

image='' runtime='' programs='' gpus='' first='' master='' port='' interface='' rdma='' folder=''
for word; do
    value=${word#*=}
    case ${word} in
        image=*) image=${value} ;;
        runtime=*) runtime=${value} ;;
        programs=*) programs=${value} ;;
        gpus=*) gpus=${value} ;;
        first=*) first=${value} ;;
        master=*) master=${value} ;;
        port=*) port=${value} ;;
        interface=*) interface=${value} ;;
        rdma=*) rdma=${value} ;;
        folder=*) folder=${value} ;;
        *) ;;
    esac
done

# Prints the last line of a command's output, at most 300 characters.
last() { printf '%s' "$1" | tail -n 1 | cut -c 1-300; }
# Runs a command that may hang, for at most this many seconds.
within() {
    seconds=$1
    shift
    if command -v timeout > /dev/null; then timeout "${seconds}" "$@"; else "$@"; fi
}

machine=$(uname -m)
echo "machine ${machine}"
for program in ${programs}; do
    if command -v "${program}" > /dev/null; then echo "program ${program}"; else echo "no-program ${program}"; fi
done
if command -v mpirun > /dev/null; then
    version=$(mpirun --version 2> /dev/null | head -n 1)
    echo "mpirun ${version##* }"
fi

if [ "${runtime}" = docker ] && command -v docker > /dev/null; then
    if version=$(within 20 docker version --format '{{.Server.Version}}' 2>&1); then
        echo "engine ${version}"
        root=$(within 20 docker info --format '{{.DockerRootDir}}' 2> /dev/null || true)
        if [ -d "${root}" ]; then
            free=$(df -Pk "${root}" | awk 'NR == 2 { print $4 }')
            echo "engine-free-kib ${free}"
        fi
        # shellcheck disable=SC2016
        runtimes=$(within 20 docker info --format '{{range $name, $_ := .Runtimes}}{{$name}} {{end}}' 2> /dev/null || true)
        echo "runtimes ${runtimes}"
        if found=$(within 20 docker image inspect --format '{{.Id}}' "${image}" 2> /dev/null); then
            echo "image ${found}"
        elif said=$(within 60 docker manifest inspect "${image}" 2>&1); then
            echo "image-pullable yes"
        else
            said=$(last "${said}")
            echo "no-image ${said}"
        fi
    else
        said=$(last "${version}")
        echo "no-engine ${said}"
    fi
fi
if [ "${runtime}" = file ]; then
    if [ -r "${image}" ]; then echo "image ${image}"; else echo "no-image no such file here, or it cannot be read"; fi
fi

if [ "${gpus}" = yes ]; then
    if ! command -v nvidia-smi > /dev/null; then
        echo "no-gpu nvidia-smi is not installed"
    elif said=$(within 60 nvidia-smi --query-gpu=driver_version,name --format=csv,noheader 2>&1); then
        printf '%s\n' "${said}" | sed 's/^/gpu /'
    else
        said=$(last "${said}")
        echo "no-gpu ${said}"
    fi
    for place in nvidia-container-runtime nvidia-container-runtime-hook nvidia-ctk; do
        if command -v "${place}" > /dev/null; then echo "toolkit ${place}"; fi
    done
    for file in /etc/cdi/nvidia* /var/run/cdi/nvidia*; do
        if [ -e "${file}" ]; then echo "toolkit ${file}"; fi
    done
fi

if [ -n "${interface}" ]; then
    if [ ! -e "/sys/class/net/${interface}" ]; then
        names=''
        for each in /sys/class/net/*; do names="${names} ${each##*/}"; done
        echo "no-interface${names}"
    else
        state=$(cat "/sys/class/net/${interface}/operstate" 2> /dev/null || true)
        echo "interface ${state}"
    fi
fi
if [ "${rdma}" = yes ]; then
    found=''
    for each in /dev/infiniband/uverbs*; do if [ -e "${each}" ]; then found=${each}; fi; done
    if [ -n "${found}" ]; then echo "rdma ${found}"; else echo "no-rdma"; fi
fi

if [ "${first}" = yes ]; then
    # Listening sockets, state 0A, have the port in hexadecimal.
    hex=$(printf '%04X' "${port}")
    if cat /proc/net/tcp /proc/net/tcp6 2> /dev/null | awk -v port=":${hex}" '$4 == "0A" && substr($2, length($2) - 4) == port { found = 1 } END { exit !found }'; then
        echo "port taken"
    else
        echo "port free"
    fi
    if [ -n "${folder}" ]; then
        if [ ! -d "${folder}" ]; then echo "no-folder it does not exist"; elif [ ! -w "${folder}" ]; then echo "no-folder you cannot write to it"; else echo "folder yes"; fi
    fi
elif [ -n "${master}" ]; then
    if ! getent hosts "${master}" > /dev/null; then
        echo "no-name ${master}"
    elif command -v bash > /dev/null && command -v timeout > /dev/null; then
        # Nothing listens on the port yet. So a refused connection shows that the host can be reached. No answer shows that
        # packets are dropped.
        # shellcheck disable=SC2016
        said=$(LC_ALL=C timeout 5 bash -c 'exec 3<> "/dev/tcp/$0/$1"' "${master}" "${port}" 2>&1)
        status=$?
        case ${status}:${said} in
            0:* | *[Rr]efused*) echo "reach yes" ;;
            124:*) echo "no-reach no answer within 5 s" ;;
            *)
                said=$(last "${said##*: }")
                echo "no-reach ${said}"
                ;;
        esac
    fi
fi
free=$(df -Pk /dev/shm 2> /dev/null | awk 'NR == 2 { print $2 }')
echo "shm-kib ${free:-0}"
now=$(date +%s)
echo "clock ${now}"
echo "end"
