# Processes crash, and the kernel has pagehaul take their cores: the handler runs in the root of init, which has this tree in /root.
set -eu
cat > /out/c <<'END'
directory = /root/out/cores
runtime = /root/tmp/run
recipients = none
max_total = 100%
keep_free = 0
END
echo '|/root/usr/local/bin/pagehaul core-handler --config /root/out/c %P %I %u %g %s %t %c %h %e' > /proc/sys/kernel/core_pattern
echo 16 > /proc/sys/kernel/core_pipe_limit
ulimit -c unlimited
# The handler writes after the process is gone.
handled() {
    for comm in /proc/[0-9]*/comm; do
        if [ "$(cat "$comm" 2>/dev/null || true)" = pagehaul ]; then
            pid=${comm%/comm}
            tail --pid="${pid#/proc/}" -f /dev/null
        fi
    done
}
# 64 MiB and a bit, in a variable of the shell.
status=0
bash -c 'x=$(head -c 50000000 /dev/zero | tr "\0" y); kill -SEGV $$' || status=$?
handled
echo "$status" > /out/status
# With a limit in the shell, as a service has one.
(ulimit -c 8192; bash -c 'x=$(head -c 50000000 /dev/zero | tr "\0" y); kill -ABRT $$') || true
handled
(ulimit -c 0; bash -c 'kill -SEGV $$') || true
handled
ls /out/cores > /out/list
number=0
for core in /out/cores/*.zst; do
    number=$((number + 1))
    # 3: incomplete.
    pagehaul info --json "$core" > "/out/info.$number" || [ $? = 3 ]
    zstd -dqc "$core" > /scratch/core
    gdb -batch -ex bt -ex 'p $_siginfo.si_signo' /usr/bin/bash /scratch/core > "/out/gdb.$number" 2>&1 || true
done
dmesg | grep pagehaul > /out/messages || true
