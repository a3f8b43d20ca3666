#!/bin/sh
# Writes a bill of materials of each program that is shipped to a directory, in CycloneDX, and reads it back: the crates that are linked
# into it or build it, with versions, licences and checksums.
# Usage: scripts/sbom.sh DIRECTORY [x86_64|aarch64]...   (default: this machine's architecture)
set -eu
cd "$(dirname "$0")/.."
out=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- "$(uname -m)"
# Times of the bill are the commit's.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
# It changes what is linked: scripts/static.sh builds without it.
unset CARGO_RESOLVER_FEATURE_UNIFICATION
bill() { # bill NAME KIND
    crates=$(scripts/static.sh --crates "$2" "$arch")
    # Word splitting is meant.
    # shellcheck disable=SC2086
    scripts/bill.py cyclonedx "$1" $crates >"$out/$1-$arch.cdx.json"
    # shellcheck disable=SC2086
    scripts/check_bill.py "$out/$1-$arch.cdx.json" $crates
}
for arch; do
    bill pagehaul full
    bill pagehaul-capture capture
    bill pagehaul-core-handler handler
    bill pagehaul-fleet fleet
done
