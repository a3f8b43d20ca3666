#!/bin/sh
# Writes a bill of materials of each program to a directory, in CycloneDX: the crates that are linked into it, with versions, licences
# and checksums. By cargo-cyclonedx.
# Usage: scripts/sbom.sh DIRECTORY
set -eu
cd "$(dirname "$0")/.."
out=$(realpath "$1")
cyclonedx=$(scripts/cargo_tool.sh cargo-cyclonedx 0.5.9)
# Times of the bill are the commit's.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
for program in pagehaul pagehaul-fleet; do
    crate=${program#pagehaul-}
    # It writes next to each manifest of the workspace.
    "$cyclonedx" cyclonedx --quiet --format json --spec-version 1.5 --target x86_64-unknown-linux-musl --no-build-deps \
        --manifest-path "crates/$crate/Cargo.toml" --override-filename "$program.cdx"
    # Crates of this workspace are named by their paths.
    sed "s|file://$PWD/|file:///pagehaul/|g" "crates/$crate/$program.cdx.json" >"$out/$program.cdx.json"
    git ls-files --others --directory --exclude-standard -- '*.cdx.json' | xargs -r rm -f
done
