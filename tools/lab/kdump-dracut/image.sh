#!/bin/sh
# Makes the disk of a Debian system whose kdump is Fedora's or openSUSE's, from the disk of one with kdump-tools, and installs the
# .rpm of pagehaul-kdump. Needs root; mounts are in a namespace of this script.
# Usage: image.sh fedora|suse DISK SOURCES RPM RELEASE DIRECTORY OWNER; leaves root.disk and initramfs.list in the directory.
set -eu
PATH=$PATH:/usr/sbin:/sbin
[ "${IN_NAMESPACE:-}" ] || IN_NAMESPACE=1 exec unshare --mount sh "$0" "$@"
distribution=$1 disk=$2 sources=$3 package=$4 release=$5 out=$6 owner=$7
here=$(dirname "$0")
tree=$out/tree
trap 'umount -R "$tree/proc" "$tree/sys" "$tree/dev" 2>/dev/null || :; rm -rf --one-file-system "$tree" "$out/sources"' EXIT

in_tree() {
    chroot "$tree" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
}

install_package() {
    rpm --root "$tree" --dbpath /var/lib/rpm -i --nodeps --force-debian "$package"
}

mkdir "$tree"
debugfs -R "rdump / $tree" "$disk"
for directory in proc sys dev; do
    mount --rbind --make-rslave "/$directory" "$tree/$directory"
done
printf '#!/bin/sh\nexit 101\n' >"$tree/usr/sbin/policy-rc.d"
chmod 755 "$tree/usr/sbin/policy-rc.d"
cp /etc/resolv.conf "$tree/etc/resolv.conf"
in_tree dpkg --purge kdump-tools
in_tree apt-get update -q
in_tree apt-get install -q -y --no-install-recommends dracut-core keyutils gawk xz-utils
in_tree apt-get clean
rm -rf "$tree"/var/lib/apt/lists/* "$tree"/var/lib/kdump "$tree"/var/crash "$tree/usr/sbin/policy-rc.d" "$tree/lab/run.sh"

# As they are. A copy, because Fedora's Makefile writes generated files next to the sources.
cp -r "$sources" "$out/sources"
sources=$out/sources
# Installs the distribution's scripts, the package, and names the initramfs in $image.
. "$here/$distribution.sh"
in_tree lsinitrd "$image" >"$out/initramfs.list"
grep makedumpfile "$out/initramfs.list"

umount -R "$tree/proc" "$tree/sys" "$tree/dev"
truncate -s 3G "$out/root.disk"
mke2fs -q -F -t ext4 -E lazy_itable_init=0,nodiscard -d "$tree" "$out/root.disk"
chown "$owner" "$out"/*
