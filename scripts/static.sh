#!/bin/sh
# Builds pagehaul as one static file and prints its path.
# Usage: scripts/static.sh [capture|full]
#   capture  for a capture kernel's initramfs: under 10 MB, without mount, census, process and trace commands (default)
#   full     every command
set -eu
cd "$(dirname "$0")/.."
kind=${1:-capture}
target=${CARGO_TARGET_DIR:-target}
case $kind in
capture) set -- --profile capture --no-default-features; directory=capture; limit=10000000 ;;
full) set -- --release; directory=release; limit=100000000 ;;
*) echo "static: unknown kind $kind; usage: scripts/static.sh [capture|full]" >&2; exit 2 ;;
esac
if rustup target list --installed 2>/dev/null | grep -q x86_64-unknown-linux-musl && command -v musl-gcc >/dev/null; then
    triple=x86_64-unknown-linux-musl
else
    triple=x86_64-unknown-linux-gnu
    export RUSTFLAGS="-C target-feature=+crt-static"
fi
cargo build --locked --quiet --target $triple -p pagehaul --bin pagehaul "$@" >&2
binary=$target/$triple/$directory/pagehaul
size=$(stat -c %s "$binary")
[ "$size" -lt $limit ] || { echo "static: $binary has $size bytes, more than $limit" >&2; exit 1; }
# A static file names no interpreter.
! readelf -l "$binary" 2>/dev/null | grep -q INTERP || { echo "static: $binary is not static" >&2; exit 1; }
echo "$binary"
