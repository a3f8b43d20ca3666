#!/bin/bash
# Builds the packages for arm64, then installs, runs and removes each in a guest of the lab: Debian's 6.12 kernel and programs of
# Debian 12, dpkg and rpm among them (tools/lab/scenarios/packages.sh). Dumps that the arm64 binaries write are compared with this machine's.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath "${CARGO_TARGET_DIR:-target}")
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/pagehaul-packages.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM HUP

scripts/packages.sh aarch64 >"$scratch/packages"
files=()
add() { # add FILE NAME: the guest has it in /test
    files+=(--file "$1:/test/$2")
}
for name in pagehaul pagehaul-kdump pagehaul-fleet pagehaul-core; do
    for kind in deb rpm; do
        read -r file
        add "$file" $name.$kind
    done
done <"$scratch/packages"
cargo build --locked --quiet --workspace --bin pagehaul --bin lab --example vmcore
for machine in x86_64 arm64; do
    "$target/debug/examples/vmcore" "$scratch/$machine" $machine
    "$target/debug/pagehaul" capture -q -d 31 "$scratch/$machine" "$scratch/$machine.dump"
    add "$scratch/$machine" $machine
    add "$scratch/$machine.dump" $machine.dump
done
# The lab puts a pagehaul into every guest: this one needs no other build.
"$target/debug/lab" run --kernel 6.12-arm64 --scratch 64M --swap 0M \
    --pagehaul "$target/aarch64-unknown-linux-musl/capture/pagehaul" --package dpkg --package rpm --package diffutils \
    --package libc-bin --package findutils "${files[@]}" --out "$scratch/out" tools/lab/scenarios/packages.sh >"$scratch/log" 2>&1 || {
    cat "$scratch/log" "$scratch/out/packages.stdout" "$scratch/out/packages.stderr" >&2 || true
    exit 1
}
grep '^ok' "$scratch/out/packages.stdout"
