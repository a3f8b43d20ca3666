#!/bin/sh
# Reading dumps, side by side with libkdumpfile and drgn. Usage: scripts/bench_read.sh [VMCORE [OPTION...]]
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
cargo build --release --locked --quiet -p pagehaul -p lab
cargo build --release --locked --quiet -p pagehaul-vmcore --example reading
vmcore=$(scripts/bench_vmcore.sh "${1:-}")
[ $# -gt 0 ] && shift
mkdir -p "$target/bench"
cc -O2 -Wall -o "$target/bench/kdumpfile" bench/peer/kdumpfile.c -ldl
cp "$target/release/examples/reading" "$target/bench/reading"
exec python3 bench/read.py "$vmcore" --tools "$target/bench" --pagehaul "$target/release/pagehaul" \
    --python "$("$target/release/lab" python | tail -n 1)" "$@"
