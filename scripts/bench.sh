#!/bin/sh
# Side by side with makedumpfile (from PATH), cp and the bare codec loop. Usage: scripts/bench.sh [VMCORE]
# Without a vmcore, the lab makes one of 6 GiB, full of real files' contents.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
cargo build --release --locked --quiet -p pagehaul -p lab
cargo build --release --locked --quiet -p pagehaul-codec --example codecs
vmcore=${1:-}
if [ -z "$vmcore" ]; then
    raw=$("$target/release/lab" dump-guest --memory 6G | tail -n 1)
    # makedumpfile does not read QEMU's ELF files; as the kernel lays it out, it does.
    vmcore=$target/bench/vmcore
    mkdir -p "$target/bench"
    "$target/release/pagehaul" capture -q --force -d 0 -f elf "$raw" "$vmcore"
fi
exec python3 bench/compare.py "$vmcore" --pagehaul "$target/release/pagehaul" \
    --codec-loop "$target/release/examples/codecs"
