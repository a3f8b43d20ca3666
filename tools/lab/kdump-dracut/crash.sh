# Has the distribution's scripts load the capture kernel, and crashes.
say() {
    echo "PHLAB $*"
}
if [ -x /usr/bin/kdumpctl ]; then
    kdumpctl start || say error "kdumpctl start failed"
    say status "$(kdumpctl status 2>&1 | tr '\n' ' ')"
else
    bash /usr/lib/kdump/load.sh || say error "load.sh failed"
fi
say loaded "$(cat /sys/kernel/kexec_crash_loaded)"
sync
say crash
chmod 755 /lab/pagehaul
# Debian around the scripts, and a directory without a mount of its own: not all is as `kdump check` wants it.
/lab/pagehaul kdump test --yes --ignore-problems
say error "kdump test did not crash the guest"
