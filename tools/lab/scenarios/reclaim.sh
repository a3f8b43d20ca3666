# Puts a guest under memory pressure. Each test becomes one recording.
# WRITERS, FILE_MIB, HUGE_MIB, SECONDS_EACH: see src/scenarios.rs.
set -u
mkswap "$SWAP" >/dev/null && swapon "$SWAP"
echo always > /sys/kernel/mm/transparent_hugepage/enabled
uname -r > /out/release
head -1 /proc/meminfo > /out/memory
cat /sys/kernel/mm/lru_gen/enabled > /out/lru_gen 2>/dev/null

# Frees what a test left in memory and on the disk.
settle() {
    rm -rf /scratch/*
    sync
    echo 3 > /proc/sys/vm/drop_caches
    echo 1 > /proc/sys/vm/compact_memory
}
record() { # record NAME COMMAND…
    name=$1
    shift
    echo "== $name"
    pagehaul reclaim record -q --buffer-size 16M -o "/out/$name.pht" -- "$@" > "/out/$name.log" 2>&1
    echo "exit status $?"
    settle
}

# Simple write-back: WRITERS dd threads, together several times the memory, each with fsync.
writeback() {
    for i in $(seq "$WRITERS"); do
        dd if=/dev/zero of="/scratch/dd$i" bs=1M count="$((FILE_MIB / WRITERS))" conv=fsync status=none &
    done
    wait
}

# Keeps memory in use: anonymous pages, and files that are written and read.
load() {
    while :; do
        head -c "$((HUGE_MIB * 512 * 1024))" /dev/zero | tr '\0' 'x' | tail -c "$((HUGE_MIB * 384 * 1024))" > /dev/null
    done &
    while :; do
        dd if=/dev/zero of=/scratch/load bs=1M count="$((HUGE_MIB * 2))" conv=fsync status=none
        cat /scratch/load > /dev/null
    done &
}

# Measures how many of the requested huge pages the kernel's pool gets, twice under load, then at rest.
hugepages() {
    wanted=$((HUGE_MIB / 2))
    pass() {
        echo "$wanted" > /proc/sys/vm/nr_hugepages
        got=$(cat /proc/sys/vm/nr_hugepages)
        echo "$1: $got of $wanted huge pages, $((got * 100 / wanted)) %"
        echo 0 > /proc/sys/vm/nr_hugepages
    }
    load
    sleep 5
    pass "pass 1"
    sleep 5
    pass "pass 2"
    kill $(jobs -p)
    wait 2>/dev/null
    sync
    pass "at rest"
}

fio_mixed() {
    fio --name=mixed --directory=/scratch --rw=randrw --rwmixread=70 --bs=16k --size="$((FILE_MIB / 4))M" --numjobs=2 \
        --ioengine=psync --runtime="$SECONDS_EACH" --time_based --end_fsync=1 --group_reporting --output-format=normal
}

sysbench_files() {
    cd /scratch || exit 1
    sysbench fileio --file-total-size="$((FILE_MIB / 2))M" --file-num=16 prepare
    sysbench fileio --file-total-size="$((FILE_MIB / 2))M" --file-num=16 --file-test-mode=rndrw \
        --time="$SECONDS_EACH" --threads=4 run
}

export WRITERS FILE_MIB HUGE_MIB SECONDS_EACH
export -f writeback load hugepages fio_mixed sysbench_files
settle
record writeback bash -c writeback
record hugepages bash -c hugepages
record fio bash -c fio_mixed
record sysbench bash -c sysbench_files
