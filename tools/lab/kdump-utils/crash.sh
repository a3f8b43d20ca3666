# Has kdumpctl load the capture kernel, and crashes.
say() {
    echo "PHLAB $*"
}
kdumpctl start || say error "kdumpctl start failed"
say status "$(kdumpctl status 2>&1 | tr '\n' ' ')"
sync
say crash
echo 1 >/proc/sys/kernel/sysrq
echo c >/proc/sysrq-trigger
