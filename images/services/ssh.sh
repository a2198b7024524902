#!/bin/bash
# Starts an SSH server on port 2222, where the image's user can log in with a key. Keys are accepted from SSH_AUTHORIZED_KEYS,
# /etc/ssh/authorized_keys and ~/.ssh/authorized_keys. Arguments are passed on to sshd.
# The server runs as the container's user. It makes a new host key, so that no two containers share one. To use your own host
# key, mount it at /etc/ssh/host_key, readable for the container's user.
set -euo pipefail
umask 077
own="$(mktemp -d /tmp/ssh-XXXXXX)"

cat <(printf '%s\n' "${SSH_AUTHORIZED_KEYS:-}") /etc/ssh/authorized_keys "$HOME/.ssh/authorized_keys" 2>/dev/null \
    | sed '/^[[:space:]]*$/d' > "$own/authorized_keys" || true
if [ ! -s "$own/authorized_keys" ]; then
    echo "ssh: nobody could log in: set SSH_AUTHORIZED_KEYS, or mount a file at /etc/ssh/authorized_keys" >&2
    exit 1
fi

# ssh requires an entry for its user in the password file, but a container can run with any user id. So the image's user gets
# this id, in a password file of its own.
unset LD_PRELOAD
if [ "$(id -u)" = 0 ]; then
    mkdir -p -m 0755 /run/sshd
    usermod --password '*' "$USER" # no password, yet not locked: sshd refuses locked accounts
elif [ "$(id -u)" != "$(id -u "$USER")" ]; then
    awk -F: -v OFS=: -v user="$USER" -v uid="$(id -u)" -v gid="$(id -g)" \
        '$1 == user {$3 = uid; $4 = gid} $1 == user || $3 != uid' /etc/passwd > "$own/passwd"
    export LD_PRELOAD=libnss_wrapper.so NSS_WRAPPER_PASSWD="$own/passwd" NSS_WRAPPER_GROUP=/etc/group
fi

host_key=/etc/ssh/host_key
if [ ! -r "$host_key" ]; then
    host_key="$own/host_key"
    ssh-keygen -q -t ed25519 -N '' -C '' -f "$host_key"
fi

# sshd starts sessions with almost no variables. So the variables of the image are exported again, except those of the session.
(
    unset HOME LOGNAME MAIL OLDPWD PWD SHELL SHLVL TERM USER "${!SSH_@}"
    export -p
) > "$own/variables"
cat > "$own/session" <<SESSION
#!/bin/bash
. "$own/variables"
cd "$PWD"
if [ -n "\${SSH_ORIGINAL_COMMAND:-}" ]; then
    exec /bin/bash -c "\$SSH_ORIGINAL_COMMAND"
fi
exec /bin/bash
SESSION
chmod 0700 "$own/session"
if [ "$(id -u)" = 0 ]; then
    chown -R "$USER:" "$own"
fi

# StrictModes would refuse the home folder, because every user may write to it. The keys are in a folder of the server instead.
cat > "$own/sshd_config" <<CONFIG
Port 2222
HostKey $host_key
PidFile none
AuthorizedKeysFile $own/authorized_keys
AuthenticationMethods publickey
PubkeyAuthentication yes
PasswordAuthentication no
ChallengeResponseAuthentication no
PermitRootLogin no
AllowUsers $USER
UsePAM no
StrictModes no
PrintMotd no
X11Forwarding no
ForceCommand $own/session
Subsystem sftp /usr/lib/openssh/sftp-server
CONFIG
umask 022
echo "ssh: $(ssh-keygen -l -f "$host_key") for $USER on port 2222"
exec /usr/sbin/sshd -D -e -f "$own/sshd_config" "$@"
