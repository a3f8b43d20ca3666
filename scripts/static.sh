#!/bin/sh
# Builds pagehaul or pagehaul-fleet as one static file, or both, and prints their paths.
# Usage: scripts/static.sh [--crates] [capture|network|handler|full|fleet|programs] [x86_64|aarch64]
#   --crates  only print what it is built for and cargo's arguments that choose its crates: scripts/bill.py takes them
#   capture  for a capture kernel's initramfs: under 10 MB, without mount, census, process and trace commands (default)
#   network  the same, and dumps on web servers and in object stores by URL
#   handler  the kernel's core handler: as network, with the commands of live processes, under 12 MB
#   full     every command
#   fleet    pagehaul-fleet
#   programs full and fleet, with the same features, so that what both need is built once
# No path of the build is in what is optimized, so that two builds of a commit in different directories are equal
# (scripts/test_reproducible.sh). The architecture is this machine's by default. PAGEHAUL_PROFILE=quick builds full, fleet and programs in half of the time.
set -eu
cd "$(dirname "$0")/.."
print=false
[ "${1-}" != --crates ] || { print=true; shift; }
kind=${1:-capture}
host=$(uname -m)
arch=${2:-$host}
target=${CARGO_TARGET_DIR:-target}
usage() {
    echo "static: unknown $1; usage: scripts/static.sh [capture|network|handler|full|fleet|programs] [x86_64|aarch64]" >&2
    exit 2
}
programs=pagehaul
profile=${PAGEHAUL_PROFILE:-release}
features=
case $kind in
capture) features=--no-default-features ;;
network) features="--no-default-features --features remote" ;;
handler) features="--no-default-features --features process,remote" ;;
full) ;;
fleet) programs=pagehaul-fleet ;;
programs) programs="pagehaul pagehaul-fleet" ;;
*) usage "kind $kind" ;;
esac
case $kind in
capture | network | handler) set -- --profile capture; directory=capture; limit=10000000 ;;
*) set -- --profile "$profile"; directory=$profile; limit=100000000 ;;
esac
# It has both the commands of live processes and the network, and is in no initramfs.
[ "$kind" != handler ] || limit=12000000
case $arch in
x86_64 | aarch64) ;;
*) usage "architecture $arch" ;;
esac
triple=$arch-unknown-linux-musl
if ! rustup target list --installed 2>/dev/null | grep -q "$triple"; then
    triple=$arch-unknown-linux-gnu
elif [ "$arch" = "$host" ] && ! command -v musl-gcc >/dev/null; then
    triple=$arch-unknown-linux-gnu
fi
crates=
for program in $programs; do crates="$crates -p $program"; done
if $print; then
    echo "$triple$crates${features:+ $features}"
    exit
fi
# Flags for rustc, separated as CARGO_ENCODED_RUSTFLAGS has them: paths may have spaces.
separator=$(printf '\037')
flags=$(printf '%s' "${RUSTFLAGS-}" | tr -s ' ' '\037')
flag() {
    flags=${flags:+$flags$separator}$1
}
# map FROM TO: the path TO is in the programs in place of FROM. The codecs' C code has paths in its assertions.
c_flags=${CFLAGS-}
map() {
    flag "--remap-path-prefix=$1=$2"
    case $1 in
    # The crate that runs the C compiler divides CFLAGS at spaces.
    *' '*) ;;
    *) c_flags="$c_flags -ffile-prefix-map=$1=$2" ;;
    esac
}
# Builds of tests have other flags than those of the lab if they are mapped, and all would be built twice. What is shipped has the list of
# its crates inside, for scanners that look for known faults (cargo-auditable).
if [ "$profile" = release ]; then
    # Settings of who builds do not change it, such as CARGO_RESOLVER_FEATURE_UNIFICATION, which makes the binary a third larger.
    for variable in $(env | sed -n 's/^\(CARGO_[A-Z0-9_]*\)=.*/\1/p'); do
        case $variable in
        CARGO_HOME | CARGO_TARGET_DIR | CARGO_BUILD_JOBS | CARGO_HTTP_* | CARGO_NET_* | CARGO_REGISTR* | CARGO_SOURCE_*) ;;
        *) unset "$variable" ;;
        esac
    done
    PATH=$(dirname "$(scripts/cargo_tool.sh cargo-auditable 0.7.7)"):$PATH
    # As `cargo auditable` sets them, which gives the wrapper's path: symbols have a hash of it.
    export PATH RUSTC_WORKSPACE_WRAPPER=cargo-auditable
    export CARGO_AUDITABLE_ORIG_ARGS='{"offline":false,"locked":true,"frozen":false,"config":[]}'
    cargo fetch --locked --quiet
    # Without it, cargo-auditable lists the crates of all features that any crate of the workspace asks for. One list is of one program;
    # two builds of it may run at once.
    if [ "$kind" != programs ]; then
        mkdir -p "$target/auditable"
        CARGO_SBOM_PATH=$(realpath "$target/auditable")/$kind-$arch.json
        # Word splitting is meant.
        # shellcheck disable=SC2086
        scripts/bill.py auditable $programs "$triple" $crates $features >"$CARGO_SBOM_PATH.$$"
        mv "$CARGO_SBOM_PATH.$$" "$CARGO_SBOM_PATH"
        export CARGO_SBOM_PATH
    fi
    map "$(realpath -m "$target")" /target
    map "$PWD" /pagehaul
    for sources in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do
        map "$sources" /crates
    done
    export CFLAGS="$c_flags"
    # Packages have no debug information.
    export CARGO_PROFILE_RELEASE_DEBUG=false
fi
[ $triple = "$arch-unknown-linux-musl" ] || flag -Ctarget-feature=+crt-static
if [ "$arch" != "$host" ]; then
    compiler=$arch-linux-gnu-gcc
    case $triple in
    *-gnu) linker=$compiler ;;
    # Rust's own linker and C library. The C code of the codecs calls only what both C libraries have.
    *) linker=rust-lld ;;
    esac
    command -v "$compiler" >/dev/null || {
        echo "static: $compiler is not on PATH; install gcc-$(echo "$arch" | tr _ -)-linux-gnu, then try again" >&2
        exit 1
    }
    name=$(echo "$triple" | tr - _)
    export "CC_$name=$compiler" "AR_$name=$arch-linux-gnu-ar"
    export "CARGO_TARGET_$(echo "$name" | tr '[:lower:]' '[:upper:]')_LINKER=$linker"
fi
[ -z "$flags" ] || export CARGO_ENCODED_RUSTFLAGS="$flags"
for program in $programs; do set -- -p "$program" --bin "$program" "$@"; done
# Programs of one profile with other features have one name: a build that runs at this moment must not put its own in this one's place.
out=$target
case $kind in
network | handler)
    out=$target/$kind
    CARGO_BUILD_BUILD_DIR=$(realpath -m "$target")
    export CARGO_BUILD_BUILD_DIR
    ;;
esac
# Word splitting is meant.
# shellcheck disable=SC2086
cargo build --locked --quiet --target "$triple" --target-dir "$out" "$@" $features >&2
for program in $programs; do
    binary=$out/$triple/$directory/$program
    size=$(stat -c %s "$binary")
    [ "$size" -lt $limit ] || { echo "static: $binary has $size bytes, more than $limit" >&2; exit 1; }
    # A static file names no interpreter.
    ! readelf -l "$binary" 2>/dev/null | grep -q INTERP || { echo "static: $binary is not static" >&2; exit 1; }
    echo "$binary"
done
