# Injects one fault into kdump, says what `pagehaul kdump check` finds, and crashes. /lab/fault names it: `none` is none; `install`
# installs pagehaul's package in place of a crash.
say() {
    echo "PHLAB $*"
}
# What the host reads while a script of the distribution says nothing.
while sleep 20; do say alive; done &
read -r fault </lab/fault
chmod 755 /lab/pagehaul
settings=/etc/default/kdump-tools
initrd=/var/lib/kdump/initrd.img-$(uname -r)

loaded() {
    for second in $(seq 900); do
        [ "$(cat /sys/kernel/kexec_crash_loaded)" = 1 ] && return
        sleep 1
    done
    say error "kdump-tools loaded no capture kernel"
}
# As the next boot would do.
load() {
    kdump-config unload
    kdump-config load
} >/dev/null 2>&1
setting() {
    echo "$1" >>$settings
    load
}
# Keeps kdump-tools from making it again.
damaged_initrd() {
    cat >"$initrd"
    load
}

if [ "$fault" = install ]; then
    dpkg -i /lab/pagehaul-kdump.deb || say error "dpkg -i failed"
    loaded
    # Debian's defaults leave a hang to the operator.
    echo kernel.softlockup_panic=1 >/etc/sysctl.d/lab.conf
    sync
    say installed
    poweroff -f
fi
loaded
case $fault in
none) ;;
unit-masked) systemctl -q mask kdump-tools-dump.service ;;
rescue-default) setting 'KDUMP_CMDLINE_APPEND="reset_devices nr_cpus=1 systemd.unit=rescue.target"' ;;
not-executable) chmod -x /usr/lib/pagehaul/makedumpfile ;;
truncated-program) truncate -s 1M /usr/lib/pagehaul/makedumpfile ;;
no-program) rm /usr/bin/makedumpfile ;;
empty-initramfs) damaged_initrd </dev/null ;;
cut-initramfs)
    head -c 2000000 "$initrd" >/lab/cut
    damaged_initrd </lab/cut
    ;;
initramfs-without-modules)
    (cd / && echo etc/hostname | cpio --quiet -o -H newc | gzip) >/lab/cut
    damaged_initrd </lab/cut
    ;;
wrong-level) setting 'MAKEDUMP_ARGS="-F -c -d x"' ;;
wrong-root) setting 'KDUMP_CMDLINE="root=/dev/vdz ro console=ttyS0"' ;;
small-target)
    mount -t tmpfs -o size=64k none /var/crash
    echo 'none /var/crash tmpfs size=64k 0 0' >>/etc/fstab
    ;;
no-kernel) setting KDUMP_KERNEL=/nowhere ;;
unbalanced-quote) setting 'KDUMP_NUM_DUMPS="' ;;
*) say error "unknown fault $fault" ;;
esac
sync
/lab/pagehaul kdump check --json >/lab/check.json
say checked "$(sed -n 's/^ *"\(id\|severity\)": "\(.*\)",$/\2/p' /lab/check.json | tr '\n' ' ')"
sync
say crash
echo 1 >/proc/sys/kernel/sysrq
echo c >/proc/sysrq-trigger
