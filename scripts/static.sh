#!/bin/sh
# Builds pagehaul as one static file, without what no capture kernel needs (mounting), and says where it is.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
if rustup target list --installed 2>/dev/null | grep -q x86_64-unknown-linux-musl && command -v musl-gcc >/dev/null; then
    triple=x86_64-unknown-linux-musl
    cargo build --locked --profile capture --target $triple -p pagehaul --no-default-features
else
    triple=x86_64-unknown-linux-gnu
    RUSTFLAGS="-C target-feature=+crt-static" cargo build --locked --profile capture --target $triple -p pagehaul --no-default-features
fi
binary=$target/$triple/capture/pagehaul
size=$(stat -c %s "$binary")
echo "$binary: $size bytes"
[ "$size" -lt 10000000 ] || { echo "static: larger than 10 MB" >&2; exit 1; }
# A static file names no interpreter.
! readelf -l "$binary" 2>/dev/null | grep -q INTERP || { echo "static: not static" >&2; exit 1; }
