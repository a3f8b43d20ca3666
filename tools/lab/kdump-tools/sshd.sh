# Runs an ssh server as root in a mount namespace of its own, with the users that it needs.
# Usage: sh -c SCRIPT sshd.sh UID GID HOME COMMAND...
uid=$1 gid=$2 home=$3
shift 3
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/sshd
cat >/run/passwd <<EOF
root:*:0:0:root:/root:/bin/sh
sshd:*:65534:65534::/run/sshd:/usr/sbin/nologin
dump:*:$uid:$gid::$home:/bin/sh
EOF
mount --bind /run/passwd /etc/passwd
exec "$@"
