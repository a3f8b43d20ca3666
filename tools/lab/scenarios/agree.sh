# Records the same events with pagehaul, trace-cmd and perf at once, and counts the same calls with pagehaul, perf and the kernel.
set -u
STOP=/tmp/stop
uname -r > /out/release
tracing=/sys/kernel/tracing
# The command that each recorder runs: reports that recording has begun, and waits for the stop file.
until_stopped() {
    touch "/tmp/ready.$1"
    until [ -e $STOP ]; do sleep 0.2; done
}
export -f until_stopped
export STOP
# Waits two minutes at most for a recorder to begin.
ready() {
    for i in $(seq 600); do
        [ -e "/tmp/ready.$1" ] && return
        sleep 0.2
    done
    echo "$1 did not begin" >&2
    exit 1
}
FILE_MIB=${FILE_MIB:-64}
ANON_MIB=${ANON_MIB:-150}
begin() { rm -f $STOP /tmp/ready.*; }
end_all() {
    touch $STOP
    wait
}

# Direct reclaim, kswapd, write-back and swap at once.
pressure() {
    sleep 1
    for i in 1 2; do
        dd if=/dev/zero of="/scratch/file$i" bs=1M count="$FILE_MIB" conv=fsync status=none &
    done
    for i in 1 2 3; do
        head -c "$((ANON_MIB * 1024 * 1024))" /dev/zero | tail -c "$((ANON_MIB * 1024 * 1024))" > /dev/null &
    done
    wait
    sleep 2
}
export -f pressure
export FILE_MIB ANON_MIB

mkswap "$SWAP" > /dev/null && swapon "$SWAP"
echo "== formats of this kernel's events"
mkdir -p /out/formats
for event in "$tracing"/events/vmscan/mm_*; do
    mkdir -p "/out/formats/events/vmscan/${event##*/}"
    cat "$event/format" > "/out/formats/events/vmscan/${event##*/}/format"
done

echo "== reclaim, three recorders"
begin
trace-cmd record -q -C mono -b 8192 -e vmscan -o /out/trace.dat bash -c 'until_stopped trace-cmd' > /out/trace-cmd.log 2>&1 &
ready trace-cmd
perf record -q -a -k CLOCK_MONOTONIC -m 4096 -e 'vmscan:*' -o /out/perf.data -- bash -c 'until_stopped perf' > /out/perf.log 2>&1 &
ready perf
pagehaul reclaim record --buffer-size 8M -o /out/pagehaul.pht -- bash -c pressure > /out/pagehaul.log 2>&1
cat /out/pagehaul.log
end_all
rm -f /scratch/file*
trace-cmd report -t /out/trace.dat > /out/report.txt 2> /out/report.log
trace-cmd report -t -R /out/trace.dat > /out/report-raw.txt 2> /dev/null
perf script --ns -i /out/perf.data > /out/perf.txt 2> /out/perf-script.log

# Each nice calls getpriority once, other programs do not.
CALLS=300
FUNCTION=__x64_sys_getpriority
call() { for i in $(seq $CALLS); do nice > /dev/null; done; }
calls_of() { # The count in a histogram of perf: the sum of its rows.
    awk -F'|' '/[um]?s \|/ { sum += $2 } END { print sum + 0 }' "$1"
}
{
    echo "calls $CALLS"
    # The kernel's own count of calls, where it was built with CONFIG_FUNCTION_PROFILER.
    if [ -e $tracing/function_profile_enabled ]; then
        echo $FUNCTION > $tracing/set_ftrace_filter
        echo 1 > $tracing/function_profile_enabled
        call
        echo 0 > $tracing/function_profile_enabled
        echo "function-profile $(awk -v f=$FUNCTION '$1 == f { sum += $2 } END { print sum + 0 }' $tracing/trace_stat/function*)"
        echo > $tracing/set_ftrace_filter
    else
        echo "function-profile not in this kernel"
    fi
    begin
    perf ftrace latency -a -T $FUNCTION -- bash -c 'until_stopped perf' > /tmp/perf-latency.txt 2>&1 &
    ready perf
    pagehaul latency -u $FUNCTION -- bash -c 'until_stopped pagehaul' > /tmp/latency.txt 2>&1 &
    ready pagehaul
    call
    end_all
    echo "perf-ftrace-latency $(calls_of /tmp/perf-latency.txt)"
    echo "pagehaul-latency $(sed -n 's/.*count: \([0-9]*\)$/\1/p' /tmp/latency.txt)"
    begin
    trace-cmd record -q -C mono -p function_graph -l $FUNCTION -l ksys_read -l vfs_read -o /out/graph.dat bash -c 'until_stopped graph' > /out/graph.log 2>&1 &
    ready graph
    call
    end_all
    echo "pagehaul-latency-of-a-recording $(pagehaul latency --from /out/graph.dat $FUNCTION | sed -n 's/.*count: \([0-9]*\)$/\1/p')"
    echo "trace-cmd-report $(trace-cmd report /out/graph.dat 2> /dev/null | grep -c "funcgraph_.*$FUNCTION")"
} > /out/calls.txt
cat /out/calls.txt
