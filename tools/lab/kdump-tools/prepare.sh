# Waits until kdump-tools has made its initramfs and loaded the capture kernel.
for second in $(seq 900); do
    [ "$(cat /sys/kernel/kexec_crash_loaded)" = 1 ] && break
    sleep 1
done
[ "$(cat /sys/kernel/kexec_crash_loaded)" = 1 ] || echo "PHLAB error kdump-tools loaded no capture kernel"
sync
echo PHLAB prepared
poweroff -f
