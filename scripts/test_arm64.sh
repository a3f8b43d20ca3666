#!/bin/bash
# Runs the static binary for arm64 in an emulator (qemu-user), and compares what it writes and prints with what this machine's
# binary does: captures of synthetic x86_64 and arm64 machines, conversions, info and verify.
# Usage: scripts/test_arm64.sh [VMCORE...]
#   VMCORE  more sources, captured at level 31
set -euo pipefail
# Sources are named from here.
sources=()
for source; do sources+=("$(realpath "$source")"); done
cd "$(dirname "$0")/.."
target=$(realpath "${CARGO_TARGET_DIR:-target}")
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/pagehaul-arm64.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM HUP

if ! rustup target list --installed 2>/dev/null | grep -q aarch64-unknown-linux; then
    echo "test_arm64: not tested: Rust has no target for arm64 here; try: rustup target add aarch64-unknown-linux-musl" >&2
    exit 0
fi
cargo build --locked --quiet --workspace --bin pagehaul --example vmcore
arm64=$(realpath "$(scripts/static.sh capture aarch64)")
for machine in x86_64 arm64; do
    "$target/debug/examples/vmcore" "$scratch/$machine" $machine
done
mkdir "$scratch/native" "$scratch/emulated"
emulator=
[ "$(uname -m)" = aarch64 ] || emulator=qemu-aarch64-static

fail() {
    echo "test_arm64: $*" >&2
    exit 1
}

# both ARGUMENT...: runs both binaries, each in its own directory, and compares standard output.
both() {
    (cd "$scratch/native" && "$target/debug/pagehaul" "$@") >"$scratch/native.out" || fail "pagehaul $* failed"
    (cd "$scratch/emulated" && $emulator "$arm64" "$@") >"$scratch/emulated.out" || fail "the arm64 binary failed: pagehaul $*"
    cmp "$scratch/native.out" "$scratch/emulated.out" || fail "the binaries print different things: pagehaul $*"
}

# same FILE: both wrote the same bytes.
same() {
    cmp "$scratch/native/$1" "$scratch/emulated/$1" || fail "the binaries write different dumps"
    rm "$scratch"/{native,emulated}/"$1"
}

runs=0
for machine in x86_64 arm64; do
    for options in "-d 31 -c zstd" "-d 0 -c lzo" "-d 1 -c zlib" "-d 31 -c zstd:9" "-d 16 -c snappy" "-d 31 --format elf" "-d 8 --format flattened"; do
        # shellcheck disable=SC2086
        both capture -q -t 2 $options "$scratch/$machine" dump
        both info --json dump
        both verify dump
        both convert -q -t 2 -c zlib:9 --format kdump dump converted
        same converted
        same dump
        runs=$((runs + 1))
    done
    echo "ok   an $machine machine: $runs captures and conversions have the same bytes"
    runs=0
done
for source in "${sources[@]}"; do
    both capture -q -t 2 -d 31 "$source" dump
    both dmesg dump
    both verify dump
    same dump
    echo "ok   $source at level 31: the same bytes"
done
