#!/bin/sh
# Prints the licence texts of all that is linked into the static programs of packages of this workspace: crates, Rust's standard library,
# and the C library.
# Usage: scripts/third_party_licenses.sh PACKAGE...
set -eu
cd "$(dirname "$0")/.."
registry=${CARGO_HOME:-$HOME/.cargo}/registry/src
packages=
for package; do packages="$packages --package $package"; done
# Word splitting is meant.
# shellcheck disable=SC2086
cargo tree --locked $packages --edges normal --prefix none --target x86_64-unknown-linux-musl \
    --format '{p} {l}' | sed 's/ (\*)$//' | LC_ALL=C sort -u |
    while read -r name version license; do
        # Crates of this workspace are not in the registry.
        directory=$(find "$registry" -mindepth 2 -maxdepth 2 -name "$name-${version#v}" | head -n 1)
        [ -n "$directory" ] || continue
        printf '%s %s: %s\n\n' "$name" "${version#v}" "$license"
        find "$directory" -maxdepth 2 \( -iname 'licen[sc]e*' -o -iname 'copying*' \) -type f -print0 | LC_ALL=C sort -z |
            xargs -0r cat
        printf '\n%s\n\n' "--------------------------------------------------------------------------------"
    done
printf 'The Rust standard library: MIT OR Apache-2.0\nCopyright (c) The Rust Project Contributors\n\n%s\n\n' \
    "--------------------------------------------------------------------------------"
# As scripts/static.sh chooses it.
for library in musl-dev libc6-dev libc6; do
    [ "$library" != musl-dev ] || command -v musl-gcc >/dev/null || continue
    [ -e "/usr/share/doc/$library/copyright" ] || continue
    printf 'The C library (Debian package %s)\n\n' "$library"
    cat "/usr/share/doc/$library/copyright"
    break
done
