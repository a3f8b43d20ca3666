#!/bin/sh
# Builds what the source packages of distributions pack, without a network, into a directory: programs, manual pages, completions, and the
# licences of all that is linked into the programs.
# Usage: packaging/source/build.sh CRATES DIRECTORY
#   CRATES  where the crates' tarball of scripts/source.sh has them: its directory vendor
# PAGEHAUL_PROFILE=unoptimized builds in a fraction of the time, to try a recipe.
set -eu
cd "$(dirname "$0")/../.."
umask 022
crates=$(realpath "$1")
mkdir -p "$2/pagehaul" "$2/pagehaul-fleet" "$2/completions" "$2/cargo"
out=$(realpath "$2")
profile=${PAGEHAUL_PROFILE:-release}
small=${PAGEHAUL_PROFILE:-capture}
host=$(rustc -vV | sed -n 's/^host: //p')

# Neither settings nor crates of who builds. Cargo refuses two names of one directory: it has that of the tarball's own settings.
export CARGO_HOME="$out/cargo"
printf '[source.crates-io]\nreplace-with = "vendored-sources"\n\n[source.vendored-sources]\ndirectory = "%s"\n' "$crates" >"$CARGO_HOME/config.toml"
unset RUSTFLAGS CARGO_RESOLVER_FEATURE_UNIFICATION CARGO_TARGET_DIR
# No path of the build is in the programs: neither of Rust's sources nor of the codecs' C code. The last match counts.
# Flags are separated as CARGO_ENCODED_RUSTFLAGS has them.
separator=$(printf '\037')
flags=--remap-path-prefix=$PWD=/pagehaul$separator--remap-path-prefix=$crates=/crates
export CFLAGS="${CFLAGS-} -ffile-prefix-map=$PWD=/pagehaul -ffile-prefix-map=$crates=/crates"
export CARGO_ENCODED_RUSTFLAGS="$flags"
cargo build --locked --offline --profile "$profile" -p pagehaul --bin pagehaul -p pagehaul-fleet --bin pagehaul-fleet
cp "target/$profile/pagehaul" "$out/pagehaul/"
cp "target/$profile/pagehaul-fleet" "$out/pagehaul-fleet/"
# Static, for an initramfs, is only what is built for a named target: macros cannot be.
export CARGO_ENCODED_RUSTFLAGS="$flags$separator-Ctarget-feature=+crt-static"
static() { # static NAME [ARGUMENT]...
    name=$1
    shift
    cargo build --locked --offline --profile "$small" --target "$host" -p pagehaul --bin pagehaul --no-default-features "$@"
    cp "target/$host/$small/pagehaul" "$out/pagehaul/$name"
}
static pagehaul-capture
static core-handler --features process,remote

"$out/pagehaul/pagehaul" man "$out/man"
"$out/pagehaul/pagehaul" makedumpfile -h | scripts/manual_page.sh makedumpfile 'captures crash dumps, by pagehaul' >"$out/makedumpfile.1"
scripts/fleet_manual.sh "$out/pagehaul-fleet/pagehaul-fleet" >"$out/pagehaul-fleet.1"
for shell in bash zsh fish; do "$out/pagehaul/pagehaul" completions $shell >"$out/completions/$shell"; done
# The static programs have the C library inside.
for package in pagehaul pagehaul-fleet; do
    CARGO_NET_OFFLINE=true scripts/third_party_licenses.sh --target "$host" --crates "$crates" $package >"$out/$package/third-party-licenses"
done

for program in pagehaul/pagehaul pagehaul/pagehaul-capture pagehaul/core-handler pagehaul-fleet/pagehaul-fleet; do
    for path in "$PWD/" "$crates/" /registry/src; do
        ! grep -aqF "$path" "$out/$program" || { echo "build: $program has the path $path" >&2; exit 1; }
    done
done
