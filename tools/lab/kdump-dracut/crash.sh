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
echo 1 >/proc/sys/kernel/sysrq
echo c >/proc/sysrq-trigger
