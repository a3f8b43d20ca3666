#!/bin/sh
# Builds every fuzz target, writes the seed corpora, and runs each target for SECONDS (default 60) on one core.
# Usage: fuzz/run.sh [SECONDS [TARGET...]]; SECONDS of 0 only builds. Stops at the first crash.
set -eu
cd "$(dirname "$0")"
seconds=${1:-60}
[ $# -gt 0 ] && shift
cargo +nightly fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz
cargo +nightly fuzz build
[ "$seconds" -gt 0 ] || exit 0
cargo run --quiet --example seeds
for target in ${*:-$(cargo +nightly fuzz list)}; do
    echo "== $target, $seconds s"
    cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -max_len=65536 -print_final_stats=1
done
