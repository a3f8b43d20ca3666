#!/bin/bash
# Builds packages of HEAD twice, in directories, registries and with settings that differ, and compares them byte for byte. No path of
# a build may be in a program, and each names the crates that its bill of materials has.
# Usage: scripts/test_reproducible.sh [PACKAGE]...   (as scripts/packages.sh; default: all)
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- pagehaul pagehaul-kdump pagehaul-fleet pagehaul-core
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/pagehaul-reproducible.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM HUP
cargo_home=${CARGO_HOME:-$HOME/.cargo}
# The second build begins much later: others may have committed by then.
commit=$(git rev-parse HEAD)
unset SOURCE_DATE_EPOCH RUSTFLAGS CARGO_TARGET_DIR PAGEHAUL_PROFILE

fail() {
    echo "test_reproducible: $*" >&2
    exit 1
}

# build DIRECTORY VARIABLE=VALUE... -- PACKAGE...: builds a clone in the directory. Prints the packages' paths.
build() {
    local directory=$1 settings=()
    shift
    while [ "$1" != -- ]; do settings+=("$1"); shift; done
    shift
    git clone --quiet --no-local . "$directory/source"
    git -C "$directory/source" checkout --quiet "$commit"
    # The same downloads under another path.
    mkdir "$directory/cargo"
    local entry
    for entry in "$cargo_home"/*; do ln -s "$entry" "$directory/cargo/"; done
    env CARGO_HOME="$directory/cargo" "${settings[@]}" "$directory/source/scripts/packages.sh" "$@"
}

mkdir "$scratch/a" "$scratch/another-directory-with-a-long-name"
(umask 022 && build "$scratch/a" TZ=UTC LC_ALL=C -- "$@") >"$scratch/first"
# What is built a second later has another time.
(umask 077 && build "$scratch/another-directory-with-a-long-name" TZ=Pacific/Auckland LC_ALL=C.UTF-8 CARGO_BUILD_JOBS=1 -- "$@") \
    >"$scratch/second"
while read -r first && read -r second; do
    cmp "$first" "$second" || fail "$(basename "$first") differs: diffoscope $first $second"
    echo "ok   $(sha256sum "$first" | cut -c 1-64)  $(basename "$first")"
done < <(sed "s|^target|$scratch/a/source/target|" "$scratch/first" |
    paste -d '\n' - <(sed "s|^target|$scratch/another-directory-with-a-long-name/source/target|" "$scratch/second"))

# What scanners read.
mkdir "$scratch/bills"
"$scratch/a/source/scripts/sbom.sh" "$scratch/bills"
"$scratch/a/source/scripts/check_bills.sh" "$scratch/bills" "$scratch/a/source/target/packages"/*.deb

# Programs as they are packed.
for deb in "$scratch/a/source/target/packages"/*.deb; do
    dpkg-deb -x "$deb" "$scratch/tree"
done
programs=$(find "$scratch/tree" -type f -perm -u+x -exec sh -c 'head -c 4 "$1" | grep -q ELF' _ {} \; -print)
[ -n "$programs" ] || fail "the packages have no programs"
for program in $programs; do
    # Not the home of who builds alone: that may be /root, where kdump's keys are.
    for path in "$scratch" "$cargo_home" /registry/src "${RUSTUP_HOME:-$HOME/.rustup}"; do
        ! grep -aqF "$path" "$program" || fail "$program has the path $path"
    done
    echo "ok   no path of the build is in ${program#"$scratch/tree"}"
done
