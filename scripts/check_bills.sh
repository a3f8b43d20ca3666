#!/bin/sh
# Compares the crates that each program of packages names (section .dep-v0) with its bill of materials.
# Usage: scripts/check_bills.sh DIRECTORY DEB...   (the directory: that of scripts/sbom.sh)
set -eu
cd "$(dirname "$0")/.."
bills=$1
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM HUP
for deb; do
    arch=x86_64
    case $deb in *_arm64.deb) arch=aarch64 ;; esac
    rm -rf "$scratch/tree"
    dpkg-deb -x "$deb" "$scratch/tree"
    found=
    for program in bin/pagehaul:pagehaul lib/pagehaul/pagehaul-capture:pagehaul-capture lib/pagehaul/makedumpfile:pagehaul-capture \
        lib/pagehaul/core-handler:pagehaul-core-handler bin/pagehaul-fleet:pagehaul-fleet; do
        [ -e "$scratch/tree/usr/${program%:*}" ] || continue
        found=yes
        scripts/check_bill.py "$bills/${program#*:}-$arch.cdx.json" --program "$scratch/tree/usr/${program%:*}"
    done
    [ -n "$found" ] || { echo "check_bills: $deb has no program that is known" >&2; exit 1; }
done
