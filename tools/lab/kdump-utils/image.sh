#!/bin/sh
# Makes the disk of a Debian system whose kdump is Fedora's kdump-utils, from the disk of one with kdump-tools, and installs the
# .rpm of pagehaul-kdump, which has kdumpctl make the initramfs. Needs root; mounts are in a namespace of this script.
# Usage: image.sh DISK SOURCES RPM RELEASE DIRECTORY OWNER; leaves root.disk in the directory.
set -eu
PATH=$PATH:/usr/sbin:/sbin
[ "${IN_NAMESPACE:-}" ] || IN_NAMESPACE=1 exec unshare --mount sh "$0" "$@"
disk=$1 sources=$2 package=$3 release=$4 out=$5 owner=$6
tree=$out/tree
trap 'umount -R "$tree/proc" "$tree/sys" "$tree/dev" 2>/dev/null || :; rm -rf --one-file-system "$tree" "$out/sources"' EXIT

in_tree() {
    chroot "$tree" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
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
in_tree apt-get install -q -y --no-install-recommends dracut-core keyutils gawk
in_tree apt-get clean
rm -rf "$tree"/var/lib/apt/lists/* "$tree"/var/lib/kdump "$tree"/var/crash "$tree/usr/sbin/policy-rc.d" "$tree/lab/run.sh"

# As it is. Its Makefile writes generated files next to the sources.
cp -r "$sources" "$out/sources"
make -s -C "$out/sources" install DESTDIR="$tree"
echo "KDUMP_KERNELVER=$release" >>"$tree/etc/sysconfig/kdump"
# The disk is not mounted here: its mount and its driver are named. Debian's dracut puts dash and few programs into an initramfs.
cat >"$tree/etc/kdump.conf" <<CONF
dracut_args --mount "/dev/vda /sysroot ext4 defaults" --add-drivers "virtio_pci virtio_blk ext4"
path /var/crash
core_collector makedumpfile -l --message-level 7 -d 31
extra_bins /usr/bin/grep /usr/bin/id /usr/bin/getopt
force_no_rebuild 1
CONF
# kdumpctl loads the capture kernel with keys of the session (kdump.service has this line).
mkdir -p "$tree/etc/systemd/system/lab.service.d"
printf '[Service]\nKeyringMode=shared\n' >"$tree/etc/systemd/system/lab.service.d/keyring.conf"

rpm --root "$tree" --dbpath /var/lib/rpm -i --nodeps --force-debian "$package"
image=/var/lib/kdump/initramfs-${release}kdump.img
in_tree lsinitrd "$image" >"$out/initramfs.list"
grep makedumpfile "$out/initramfs.list"

umount -R "$tree/proc" "$tree/sys" "$tree/dev"
truncate -s 3G "$out/root.disk"
mke2fs -q -F -t ext4 -E lazy_itable_init=0,nodiscard -d "$tree" "$out/root.disk"
chown "$owner" "$out"/*
