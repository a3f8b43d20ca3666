#!/bin/sh
# Makes everything that a release attaches to its tag, in target/release-VERSION, from a clean commit: packages, the static binary for
# capture kernels, the source with all crates, what distributions build from it, a bill of materials of each program, and SHA256SUMS.
# Usage: scripts/release.sh [x86_64] [aarch64]   (default: this machine's architecture)
set -eu
cd "$(dirname "$0")/.."
umask 022
export LC_ALL=C TZ=UTC
[ $# -gt 0 ] || set -- "$(uname -m)"
[ -z "$(git status --porcelain)" ] || { echo "release: the tree has changes that are not committed" >&2; exit 1; }
target=${CARGO_TARGET_DIR:-target}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
grep -q "^## $version" CHANGELOG.md || { echo "release: CHANGELOG.md has no section \"## $version\"" >&2; exit 1; }
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
# Only what is shipped: tests build otherwise.
unset PAGEHAUL_PROFILE RUSTFLAGS CFLAGS
out=$target/release-$version
rm -rf "$out"
mkdir -p "$out"

for arch; do
    echo "== packages for $arch" >&2
    scripts/packages.sh "$arch" >"$out/list"
    while read -r package; do cp "$package" "$out/"; done <"$out/list"
    rm "$out/list"
    echo "== the static binary for $arch" >&2
    cp "$(scripts/static.sh capture "$arch")" "$out/pagehaul-capture-$version-$arch"
done
echo "== bills of materials" >&2
scripts/sbom.sh "$out" "$@"
scripts/check_bills.sh "$out" "$out"/*.deb
echo "== source" >&2
scripts/source_packages.sh "$out"
(cd "$out" && find . -type f ! -name SHA256SUMS -printf '%P\n' | sort | xargs -d '\n' sha256sum >SHA256SUMS)
cat "$out/SHA256SUMS"
scripts/lint_packages.sh "$out/pagehaul.spec"
