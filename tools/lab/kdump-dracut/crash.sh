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
chmod 755 /lab/pagehaul
# As `systemctl enable` does. The lab starts the scripts itself.
mkdir -p /etc/systemd/system/multi-user.target.wants
ln -sf /usr/lib/systemd/system/kdump.service /etc/systemd/system/multi-user.target.wants/
# Kernels of these distributions panic on an oops, Debian's does not.
sysctl -q -w kernel.panic_on_oops=1
begin=$(date +%s%N)
/lab/pagehaul kdump check --json >/lab/check.json
end=$(date +%s%N)
milliseconds=$(((end - begin) / 1000000))
say took "$(printf '%d.%03d' $((milliseconds / 1000)) $((milliseconds % 1000)))"
say checked "$(sed -n 's/^ *"\(id\|severity\)": "\(.*\)",$/\2/p' /lab/check.json | tr '\n' ' ')"
sh /lab/snapshot.sh || say error "snapshot.sh failed"
sync
say crash
# Where the guest deviates from the distribution, `kdump check` may have a problem (kdump_dracut.rs).
/lab/pagehaul kdump test --yes --ignore-problems
say error "kdump test did not crash the guest"
