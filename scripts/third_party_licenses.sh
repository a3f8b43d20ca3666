#!/bin/sh
# Prints the licence texts of all crates that are linked into the binary.
set -eu
cd "$(dirname "$0")/.."
registry=${CARGO_HOME:-$HOME/.cargo}/registry/src
cargo tree --locked --package pagehaul --edges normal --prefix none --target x86_64-unknown-linux-musl \
    --format '{p} {l}' | sed 's/ (\*)$//' | LC_ALL=C sort -u |
    while read -r name version license; do
        # Crates of this workspace are not in the registry.
        directory=$(find "$registry" -mindepth 2 -maxdepth 2 -name "$name-${version#v}" | head -n 1)
        [ -n "$directory" ] || continue
        printf '%s %s: %s\n\n' "$name" "${version#v}" "$license"
        find "$directory" -maxdepth 2 \( -iname 'licen[sc]e*' -o -iname 'copying*' \) -type f -exec cat {} +
        printf '\n%s\n\n' "--------------------------------------------------------------------------------"
    done
