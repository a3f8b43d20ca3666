#!/bin/sh
# Crashes a real kernel in a virtual machine, runs pagehaul in its capture kernel, and opens the dump with drgn.
# Usage: scripts/demo.sh [KERNEL]
set -eu
cd "$(dirname "$0")/.."
kernel=${1:-6.12}
target=${CARGO_TARGET_DIR:-target}
cargo build --release --locked --quiet -p lab
lab=$target/release/lab
# Debug symbols are a download of 300 MB or more, for drgn; pagehaul is built meanwhile.
"$lab" debuginfo --kernel "$kernel" >/dev/null &
symbols=$!
pagehaul=$(scripts/static.sh capture)
wait $symbols
echo "== a $kernel kernel crashes; pagehaul captures it in the 256 MiB capture kernel"
"$lab" crash --kernel "$kernel" --capture-args "-d 31 -c zstd" --pagehaul "$pagehaul"
echo
echo "== the dump in pagehaul and in drgn"
"$lab" show --kernel "$kernel" --pagehaul "$pagehaul"
