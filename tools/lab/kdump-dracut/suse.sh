# openSUSE's kdump, installed as its CMakeLists.txt has it, without kdumptool (C++, which only sizes the reservation).
install -D -t "$tree/usr/lib/kdump" "$sources"/kdump-read-config.sh "$sources"/init/load.sh "$sources"/init/unload.sh
install -D -t "$tree/usr/sbin" "$sources/init/mkdumprd"
install -D -t "$tree/usr/lib/dracut/modules.d/99kdump" "$sources"/dracut/kdump-save "$sources"/dracut/*.sh \
    "$sources"/dracut/setup-kdump.functions "$sources"/dracut/kdump-save.service
install -D -m 644 -t "$tree/usr/lib/systemd/system" "$sources/init/kdump.service"
mkdir -p "$tree/etc/sysconfig" "$tree/var/lib/kdump" "$tree/var/crash"
cp "$sources/process_cond.awk" "$sources"/*.in "$tree/lab/"
in_tree HAVE_FADUMP=FALSE gawk -f /lab/process_cond.awk /lab/sysconfig.kdump.in >"$tree/etc/sysconfig/kdump"
in_tree ARCH=x86_64 gawk -f /lab/process_cond.awk /lab/70-kdump.rules.in >"$tree/usr/lib/kdump/70-kdump.rules"
# Programs that openSUSE's dracut puts into every initramfs, and the driver of the disk.
cat >>"$tree/etc/sysconfig/kdump" <<CONF
KDUMP_KERNELVER=$release
KDUMP_DUMPFORMAT=zstd
KDUMP_REQUIRED_PROGRAMS="df mkfifo cat rm mkdir nproc reboot umount"
CONF
echo 'force_drivers+=" virtio_pci virtio_blk ext4 "' >"$tree/etc/dracut.conf.d/lab.conf"
# Stand-ins: of a program that Debian lacks, and of findmnt, because the disk is not mounted here. dracut does not see them.
mkdir "$tree/lab/stand-ins"
printf '#!/bin/sh\necho %s\n' "$release" >"$tree/lab/stand-ins/get_kernel_version"
printf '#!/bin/sh\necho /dev/vda / ext4 rw\n' >"$tree/lab/stand-ins/findmnt"
chmod 755 "$tree"/lab/stand-ins/*
# Without them, the .rpm's own mkdumprd fails.
install_package
in_tree PATH=/lab/stand-ins:/usr/sbin:/usr/bin:/sbin:/bin mkdumprd -f
image=/var/lib/kdump/initrd
