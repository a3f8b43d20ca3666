# Fedora's kdump-utils. The .rpm has kdumpctl make the initramfs.
make -s -C "$sources" install DESTDIR="$tree"
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
install_package
image=/var/lib/kdump/initramfs-${release}kdump.img
