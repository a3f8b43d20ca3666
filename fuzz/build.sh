#!/bin/sh
# Builds every fuzz target without a fuzzer's instrumentation, on the toolchain at hand: that they build is what CI
# checks. `run.sh` runs them.
set -eu
cd "$(dirname "$0")"
cargo build --locked --quiet --bins
