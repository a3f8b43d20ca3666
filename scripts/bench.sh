#!/bin/sh
# Side by side with makedumpfile (from PATH, or Debian's newest), cp and the bare codec loop; then reading. Usage: scripts/bench.sh [VMCORE]
# Without a vmcore, the lab makes one of 6 GiB, full of real files' contents.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
cargo build --release --locked --quiet -p pagehaul -p lab
cargo build --release --locked --quiet -p pagehaul-codec --example codecs
vmcore=$(scripts/bench_vmcore.sh "${1:-}")
python3 bench/compare.py "$vmcore" --pagehaul "$target/release/pagehaul" \
    --makedumpfile "$("$target/release/lab" makedumpfile)" --codec-loop "$target/release/examples/codecs"
exec scripts/bench_read.sh "$vmcore"
