#!/bin/sh
# Writes the source of HEAD to a directory: pagehaul-VERSION.tar.xz, and pagehaul-VERSION-vendor.tar.xz with all crates, which builds
# without a network once it is unpacked into the source. The same commit gives the same bytes.
# Usage: scripts/source.sh DIRECTORY
set -eu
cd "$(dirname "$0")/.."
umask 022
export LC_ALL=C TZ=UTC
out=$(realpath "$1")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
date=$(git log -1 --format=%ct)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM HUP
# xz with one thread: more would divide the data by their number.
git archive --prefix="pagehaul-$version/" HEAD | xz -6 -T1 >"$out/pagehaul-$version.tar.xz"
mkdir "$scratch/.cargo"
cargo vendor --locked --quiet "$scratch/vendor" >/dev/null
# By hand: cargo prints the path of the directory.
cat >"$scratch/.cargo/config.toml" <<'END'
[source.crates-io]
replace-with = "vendored-sources"

[source.vendored-sources]
directory = "vendor"
END
tar --sort=name --mtime="@$date" --owner=0 --group=0 --numeric-owner --format=gnu -C "$scratch" -cf - .cargo vendor |
    xz -6 -T1 >"$out/pagehaul-$version-vendor.tar.xz"
