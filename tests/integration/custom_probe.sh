#!/bin/bash
# Inside a container of a user's own image: starts its services and asks each of them. Runs as whoever the container runs as.
set -euo pipefail
umask 022
folder="$(mktemp -d)"
python -c 'import tqdm, termcolor'
test "$(python /workspace/hello.py)" = hello
test "$(getent passwd 1000 | cut -d: -f1)" = alice
file /workspace/hello.py > /dev/null
test -z "$(find / -xdev -name 'ssh_host_*_key' 2> /dev/null)"

# A client wants to be somebody: where nobody has this number, the trick of the server serves it too.
client() { "$@"; }
if ! getent passwd "$(id -u)" > /dev/null; then
    printf 'probe:x:%s:%s::%s:/bin/bash\n' "$(id -u)" "$(id -g)" "$folder" > "$folder/passwd"
    client() { LD_PRELOAD=libnss_wrapper.so NSS_WRAPPER_PASSWD="$folder/passwd" NSS_WRAPPER_GROUP=/etc/group "$@"; }
fi
client ssh-keygen -q -t ed25519 -N '' -f "$folder/key"
client ssh-keygen -q -t ed25519 -N '' -f "$folder/stranger"
SSH_AUTHORIZED_KEYS="$(cat "$folder/key.pub")" JUPYTER_TOKEN=sesame MARK="a  b" \
    envbuild-start jupyter tensorboard ssh > "$folder/log" 2>&1 &
services=$!
trap 'code=$?; [ "$code" = 0 ] || tail -n 40 "$folder/log"; kill "$services" 2> /dev/null || true; exit "$code"' EXIT

python - <<'ASK'
import time, urllib.error, urllib.request

def ask(url, patience=180):
    until = time.time() + patience
    while True:
        try:
            return urllib.request.urlopen(url, timeout=30).status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            if time.time() > until:
                raise
            time.sleep(1)

assert ask('http://127.0.0.1:8888/api/contents') == 403
assert ask('http://127.0.0.1:8888/api/contents?token=sesame') == 200
assert ask('http://127.0.0.1:6006/') == 200
ASK

options=(-n -F none -p 2222 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o IdentitiesOnly=yes -o BatchMode=yes)
told="$(client ssh "${options[@]}" -i "$folder/key" alice@127.0.0.1 'echo "$MARK|$(pwd)|$(command -v python)|$(umask)"; python -c "import tqdm"')"
test "$told" = "a  b|$PWD|/opt/env/bin/python|0022" || { echo "ssh told: $told"; exit 1; }
if client ssh "${options[@]}" -i "$folder/stranger" alice@127.0.0.1 true; then
    echo "a strange key may log in"
    exit 1
fi
if SSH_AUTHORIZED_KEYS='' envbuild-start ssh 2> /dev/null; then
    echo "ssh starts without a key"
    exit 1
fi
kill "$services"
wait "$services" || true
echo "everything answered"
