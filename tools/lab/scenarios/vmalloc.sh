# Measures purges of hundreds of thousands of freed areas, and the backlog before them.
set -u
SECONDS_EACH=${SECONDS_EACH:-8}
STOP=/tmp/stop
uname -r > /out/release
# The command that each tracer runs: reports that tracing has begun, and waits for the stop file.
until_stopped() {
    touch "/tmp/ready.$1"
    until [ -e $STOP ]; do sleep 0.2; done
}
export -f until_stopped
export STOP
# Waits two minutes at most for a tracer to begin.
ready() {
    for i in $(seq 600); do
        [ -e "/tmp/ready.$1" ] && return
        sleep 0.2
    done
    echo "$1 did not begin" >&2
    exit 1
}

# Runs all tracers at once, from before the work until after it.
all_at_once() { # all_at_once NAME FUNCTION
    rm -f $STOP /tmp/ready.*
    perf ftrace latency -a -T "$2" -- bash -c 'until_stopped perf' > "/out/$1-perf.txt" 2>&1 &
    # perf clears the tracer's settings when it begins, so it starts first.
    ready perf
    pagehaul latency -u "$2" -- bash -c 'until_stopped kprobe' > "/out/$1-kprobe.txt" &
    pagehaul latency -u "$2" --mechanism fprobe -- bash -c 'until_stopped fprobe' > "/out/$1-fprobe.txt" &
    pagehaul latency "$2" --in-kernel -- bash -c 'until_stopped in-kernel' > "/out/$1-in-kernel.txt" &
    pagehaul latency -u "$2" --mechanism graph -- bash -c 'until_stopped graph' > "/out/$1-graph.txt" &
    for each in kprobe fprobe in-kernel graph; do ready $each; done
}
end_all() {
    touch $STOP
    wait
}

echo "== a known number of calls: each nice calls getpriority once, other programs do not"
all_at_once calls __x64_sys_getpriority
for i in $(seq 300); do nice > /dev/null; done
end_all

echo "== the function that purges"
all_at_once purge purge_vmap_node
insmod /vmalloc_stress.ko threads=4 areas=3000 pages=4 seconds="$SECONDS_EACH"
while [ "$(cat /sys/module/vmalloc_stress/parameters/running)" = 1 ]; do sleep 0.5; done
rmmod vmalloc_stress
# Purges continue for a while after the last area was freed.
sleep 3
end_all
dmesg | grep 'vmalloc_stress: .*threads' > /out/module.txt

echo "== the backlog over time"
# With a higher priority than the module's threads, which would keep it from printing every second.
nice -n -15 pagehaul vmalloc -i 1 --buffer-size 32M -- nice -n 15 bash -c "insmod /vmalloc_stress.ko threads=4 areas=3000 pages=4 seconds=$SECONDS_EACH
    sleep $((SECONDS_EACH + 2)); rmmod vmalloc_stress" > /out/backlog.txt
sysctl -qw kernel.kptr_restrict=1
pagehaul vmalloc > /out/snapshot.txt

echo "== overhead: the same work without tracing, and with each mechanism"
run() { # run NAME COMMAND…
    name=$1
    shift
    for round in 1 2 3; do
        dmesg -C
        "$@" bash -c 'insmod /vmalloc_stress.ko threads=2 areas=1000 pages=1 seconds=4; sleep 5; rmmod vmalloc_stress' > /dev/null
        echo "$name $(dmesg | sed -n 's/.*threads, \([0-9]*\) areas.*/\1/p')" >> /out/overhead.txt
    done
}
run none env
run kprobe pagehaul latency alloc_vmap_area --
run fprobe pagehaul latency alloc_vmap_area --mechanism fprobe --
run graph pagehaul latency alloc_vmap_area --mechanism graph --
run in-kernel pagehaul latency alloc_vmap_area --in-kernel --
run perf perf ftrace latency -a -T alloc_vmap_area --
cat /out/overhead.txt
