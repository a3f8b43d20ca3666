#!/bin/sh
# Crashes a real kernel in a virtual machine, runs pagehaul in its capture kernel, opens the dump with drgn, and explains the crash.
# Usage: scripts/demo.sh [KERNEL]
set -eu
cd "$(dirname "$0")/.."
kernel=${1:-6.12}
target=${CARGO_TARGET_DIR:-target}
cat <<END
== This fetches Debian packages (a kernel, QEMU, the kernel's debug symbols for drgn), compiles for some minutes at first,
== and keeps about 1.4 GB in ${PAGEHAUL_LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pagehaul-lab} and 0.5 GB in $target.
END
cargo build --profile quick --locked -p lab
lab=$target/quick/lab
"$lab" debuginfo --kernel "$kernel" >/dev/null &
symbols=$!
pagehaul=$(scripts/static.sh demo)
wait $symbols
echo "== a $kernel kernel crashes; pagehaul captures it in the 256 MiB capture kernel"
"$lab" crash --kernel "$kernel" --capture-args "-d 31 -c zstd" --pagehaul "$pagehaul"
echo
echo "== the dump in pagehaul"
"$lab" show --kernel "$kernel" --pagehaul "$pagehaul"
