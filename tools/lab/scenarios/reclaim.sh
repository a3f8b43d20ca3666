# A guest under memory pressure: each test is recorded, and comes out as a file of its own.
# WRITERS, FILE_MIB, HUGE_MIB, SECONDS_EACH: see scenarios/reclaim.rs.
set -u
mkswap "$SWAP" >/dev/null && swapon "$SWAP"
echo always > /sys/kernel/mm/transparent_hugepage/enabled
uname -r > /out/release
head -1 /proc/meminfo > /out/memory
cat /sys/kernel/mm/lru_gen/enabled > /out/lru_gen 2>/dev/null

# What a test left in memory is not the next one's business.
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

# Memory that is wanted again and again: anonymous pages in use, and files read beside them.
load() {
    while :; do
        head -c "$((HUGE_MIB * 512 * 1024))" /dev/zero | tr '\0' 'x' | tail -c "$((HUGE_MIB * 384 * 1024))" > /dev/null
    done &
    while :; do
        dd if=/dev/zero of=/scratch/load bs=1M count="$((HUGE_MIB * 2))" conv=fsync status=none
        cat /scratch/load > /dev/null
    done &
}

# Huge pages through the kernel's own pool: what part of the pages asked for it finds, twice under load, then at rest.
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
