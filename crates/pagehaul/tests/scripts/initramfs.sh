# Runs a distribution's script in a root directory that looks like the initramfs of a capture kernel. Nothing that it does
# reaches the machine: namespaces of its own, mounts that end with it, and programs that would reboot do nothing.
# Usage: unshare --user --map-root-user --mount sh initramfs.sh ROOT PAGEHAUL VMCORE COMMAND...
set -eu
root=$1 pagehaul=$2 vmcore=$3
shift 3
cd "$root"
mkdir -p usr host proc dev tmp bin lib run/initramfs sysroot kdump/mnt var/lib etc root stubs
mount --rbind /usr usr
if [ -d /etc/alternatives ]; then
    mkdir etc/alternatives
    mount --bind /etc/alternatives etc/alternatives
fi
mount --rbind /proc host
for name in self mounts cpuinfo meminfo consoles filesystems uptime; do
    ln -s "/host/$name" "proc/$name"
done
: >proc/vmcore
mount --bind "$vmcore" proc/vmcore
for name in null zero random urandom; do
    : >"dev/$name"
    mount --bind "/dev/$name" "dev/$name"
done
if [ -n "${RAW_DEVICE:-}" ]; then
    : >dev/raw
    mount --bind "$RAW_DEVICE" dev/raw
fi
ln -s /proc/self/fd dev/fd
: >dev/console
: >dev/kmsg
# The links of merged-usr, but for the directories that the scripts' files are in.
[ ! -e /lib64 ] || ln -s usr/lib64 lib64
for directory in bin lib; do
    for path in /usr/$directory/*; do
        [ -e "$directory/${path##*/}" ] || ln -s "$path" "$directory/"
    done
done
# The file system that dumps go to, a mount point as dracut leaves it.
mount -t tmpfs tmpfs sysroot
: >pagehaul
mount --bind "$pagehaul" pagehaul
ln -s /pagehaul stubs/makedumpfile
stub() { # stub NAME: a program with the body on standard input
    { echo '#!/bin/sh'; cat; } >"stubs/$1"
    chmod 755 "stubs/$1"
}
for name in systemctl reboot halt poweroff umount logger systemd-cat journalctl dmesg; do
    echo "exit 0" | stub "$name"
done
# Another host is this one.
stub ssh <<'EOF'
while :; do
    case $1 in
    -i | -o) shift 2 ;;
    -*) shift ;;
    *) break ;;
    esac
done
shift
exec sh -c "$*"
EOF
stub scp <<'EOF'
exit 0
EOF
stub ip <<'EOF'
case $* in
*route*) echo "192.0.2.1 dev eth0 src 192.0.2.2" ;;
*) echo "    inet 192.0.2.2/24 scope global eth0" ;;
esac
EOF
# These are called by their paths.
mkdir sbin
ln -s /stubs/ip sbin/ip
printf '#!/bin/sh\nexec /pagehaul dmesg "$1"\n' >sbin/vmcore-dmesg
chmod 755 sbin/vmcore-dmesg
status=0
env -i PATH=/stubs:/usr/bin:/usr/sbin HOME=/root chroot . "$@" || status=$?
# What is written to the mount is gone with it.
cp -r sysroot "$root/saved"
exit $status
