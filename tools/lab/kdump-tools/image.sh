#!/bin/sh
# Makes the disk of a Debian system with the distribution's kernel and further packages, as apt configures them one after the other.
# Needs root. Usage: image.sh SUITE MIRROR DIRECTORY OWNER RELEASE SIZE PACKAGE...; leaves root.disk, vmlinuz and initrd.img in the
# directory. RELEASE is the kernel whose debug symbols the lab has: a suite may have a newer one.
set -eu
PATH=$PATH:/usr/sbin:/sbin
suite=$1 mirror=$2 out=$3 owner=$4 release=$5 size=$6
shift 6
tree=$out/tree
here=$(dirname "$0")
trap 'rm -rf "$tree"' EXIT

in_tree() {
    chroot "$tree" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
}

add() {
    in_tree apt-get install -q -y --no-install-recommends "$@"
}

debootstrap --variant=minbase --include=systemd-sysv,udev,iproute2,procps,file,bsdextrautils "$suite" "$tree" "$mirror"
# No service starts in a directory.
printf '#!/bin/sh\nexit 101\n' >"$tree/usr/sbin/policy-rc.d"
chmod 755 "$tree/usr/sbin/policy-rc.d"
echo '/dev/vda / ext4 defaults 0 1' >"$tree/etc/fstab"
echo guest >"$tree/etc/hostname"
add initramfs-tools busybox-static zstd
# kdump-tools' hook makes an initramfs for each kernel, and would look for the root device of this directory: the kernel
# comes first, and kdump-tools makes its initramfs when it starts in the guest.
add "linux-image-$release"
for package; do
    add "$package"
done
rm "$tree/usr/sbin/policy-rc.d"
in_tree apt-get clean
rm -rf "$tree"/var/lib/apt/lists/*

# The script that the lab puts on the disk runs once all services have started; the console is the lab's.
mkdir "$tree/lab"
cp "$here/lab.service" "$tree/etc/systemd/system/"
ln -s ../lab.service "$tree/etc/systemd/system/multi-user.target.wants/lab.service"
for unit in serial-getty@ttyS0.service apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer dpkg-db-backup.timer; do
    ln -sf /dev/null "$tree/etc/systemd/system/$unit"
done

cp "$tree"/boot/vmlinuz-* "$out/vmlinuz"
cp "$tree"/boot/initrd.img-* "$out/initrd.img"
ls "$tree/lib/modules" >"$out/release"
truncate -s "$size" "$out/root.disk"
mke2fs -q -F -t ext4 -E lazy_itable_init=0,nodiscard -d "$tree" "$out/root.disk"
chmod 644 "$out/vmlinuz" "$out/initrd.img" "$out/release"
chown "$owner" "$out"/*
