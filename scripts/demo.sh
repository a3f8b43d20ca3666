#!/bin/sh
# Crashes a real kernel in a virtual machine, runs pagehaul in its capture kernel, and opens the dump with drgn.
# Usage: scripts/demo.sh [KERNEL]
set -eu
cd "$(dirname "$0")/.."
kernel=${1:-6.12}
cargo build --release --locked --quiet -p pagehaul -p lab
target=${CARGO_TARGET_DIR:-target}
echo "== a $kernel kernel crashes; pagehaul captures it in the 256 MiB capture kernel"
"$target/release/lab" crash --kernel "$kernel" --capture-args "-d 31 -c zstd"
echo
echo "== the dump, as pagehaul describes it and as drgn opens it"
"$target/release/lab" show --kernel "$kernel" --pagehaul "$target/release/pagehaul"
