#!/bin/sh
# Says where a vmcore for benchmarks is: the one given, or one of 6 GiB full of real files' contents that the lab makes.
# Usage: scripts/bench_vmcore.sh [VMCORE]; `lab` and `pagehaul` are built.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
vmcore=${1:-}
if [ -z "$vmcore" ]; then
    vmcore=$target/bench/vmcore
    if [ ! -e "$vmcore" ]; then
        raw=$("$target/release/lab" dump-guest --memory 6G | tail -n 1)
        # makedumpfile does not read QEMU's ELF files; as the kernel lays it out, it does.
        mkdir -p "$target/bench"
        "$target/release/pagehaul" capture -q --force -d 0 -f elf "$raw" "$vmcore"
    fi
fi
echo "$vmcore"
