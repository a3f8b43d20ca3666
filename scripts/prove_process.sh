#!/bin/sh
# Proves cores and checkpoints of live processes on real programs; as root.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
cargo build --release --locked --quiet -p pagehaul -p lab --bins
cargo build --release --locked --quiet -p pagehaul --example subject
drgn=$("$target/release/lab" python)
criu=$("$target/release/lab" criu)
run="python3 scripts/prove_process.py $target/release/pagehaul $target/release/examples/subject --criu $criu --drgn $drgn"
if [ "$(id -u)" = 0 ]; then exec $run; else exec sudo $run; fi
