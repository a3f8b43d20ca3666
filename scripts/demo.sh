#!/bin/sh
# Crashes a real kernel in a virtual machine, runs pagehaul in its capture kernel, opens the dump with drgn, and explains the crash.
# Usage: scripts/demo.sh [KERNEL]
# Ends with the triage of the dump, its web page and three commands, which were run before they are printed.
set -eu
cd "$(dirname "$0")/.."
kernel=${1:-6.12}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
cache=${PAGEHAUL_LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pagehaul-lab}
missing=$(scripts/setup.sh --missing demo | xargs)
cat <<END
== pagehaul: a $kernel kernel crashes in a virtual machine, its memory is captured, and the crash is explained
   What this takes at first; later runs fetch and compile nothing:
     time       4 minutes of processor time, more than 3 of them to compile
     downloads  420 MB: a kernel, its debug symbols for drgn (320 MB), QEMU, drgn; Rust's crates, if they are missing
     disk       1.4 GB in $cache
                0.3 GB in $target
     packages   of Debian, installed: ${missing:-none, all are there}
END
begun=$(date +%s)
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
trap 'exit 1' INT TERM HUP

# part NAME: the next part begins. Prints what the last one took.
parts=0
part() {
    times >"$files/times"
    now=$(date +%s)
    spent=$(cpu_of "$files/times")
    [ -z "${name-}" ] || printf '   %-42s %4d s, %4d s of CPU\n' "$name" $((now - since)) $((spent - before)) >>"$files/parts"
    name=$1 since=$now before=$spent
    [ -z "$name" ] || { parts=$((parts + 1)); printf '\n== %d of 4: %s\n' $parts "$name"; }
}

# The processor time of children in the output of `times`.
cpu_of() {
    awk 'NR == 2 { gsub(/[ms]/, " "); print int($1 * 60 + $2 + $3 * 60 + $4 + 0.5) }' "$1"
}

part "Debian packages that are missing"
scripts/setup.sh demo

part "compile, and fetch the kernel's symbols"
# One build, so that what the programs share is compiled once: the lab, its guest's init, and pagehaul with what is shown here. Static
# with glibc, which needs no other target. No optimization across crates: half of the time.
triple=$(uname -m)-unknown-linux-gnu
export RUSTFLAGS="-C target-feature=+crt-static"
cargo build --profile quick --locked --target "$triple" --no-default-features --features pagehaul/html,pagehaul/census \
    -p lab -p lab-guest -p pagehaul --bin lab --bin lab-guest --bin pagehaul
built=$target/$triple/quick
export PAGEHAUL_LAB_GUEST="$built/lab-guest"
"$built/lab" debuginfo --kernel "$kernel" >/dev/null

part "crash the kernel, and capture its memory"
"$built/lab" crash --kernel "$kernel" --capture-args "-d 31 -c zstd" --pagehaul "$built/pagehaul"

part "the dump in drgn and pagehaul"
"$built/lab" show --kernel "$kernel" --pagehaul "$built/pagehaul" >"$files/shown"
part ""
cat "$files/shown"
printf '\n== this took %d s, %d s of CPU\n' $(($(date +%s) - begun)) "$spent"
cat "$files/parts"
