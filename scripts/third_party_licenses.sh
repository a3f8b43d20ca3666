#!/bin/sh
# Prints the licence texts of all that is linked into the static programs of packages of this workspace: crates, Rust's standard library,
# and the C library. Fails where a text is missing.
# Usage: scripts/third_party_licenses.sh [--target TRIPLE] [--crates DIRECTORY] PACKAGE...
#   --target  what the programs are built for; musl by default, if scripts/static.sh would link to it
#   --crates  where `cargo vendor` put the crates; cargo's registry by default
set -eu
cd "$(dirname "$0")/.."
triple=$(uname -m)-unknown-linux-musl
command -v musl-gcc >/dev/null || triple=$(uname -m)-unknown-linux-gnu
crates=
while :; do
    case ${1-} in
    --target) triple=$2 ;;
    --crates) crates=$2 ;;
    *) break ;;
    esac
    shift 2
done
fail() {
    echo "third_party_licenses: $*" >&2
    exit 1
}
packages=
for package; do packages="$packages --package $package"; done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM HUP

# directory NAME VERSION: prints where the source of a crate is.
directory() {
    if [ -n "$crates" ]; then
        # The newest of several versions has no version in its name.
        for candidate in "$crates/$1-$2" "$crates/$1"; do
            [ ! -e "$candidate/Cargo.toml" ] || { echo "$candidate"; return; }
        done
    else
        find "${CARGO_HOME:-$HOME/.cargo}/registry/src" -mindepth 2 -maxdepth 2 -name "$1-$2" | head -n 1
    fi
}

line=--------------------------------------------------------------------------------
# Word splitting is meant.
# shellcheck disable=SC2086
cargo tree --locked $packages --edges normal --prefix none --target "$triple" --format '{p}|{l}' >"$scratch/tree"
# Crates of this workspace have their directory in parentheses; an empty line is between packages.
sed '/^$/d; s/ (\*)$//; /^[^|]* (\//d; s/ (proc-macro)|/|/' "$scratch/tree" | LC_ALL=C sort -u >"$scratch/crates"
while IFS='|' read -r crate license; do
    name=${crate%% *} version=${crate##* v}
    source=$(directory "$name" "$version")
    [ -n "$source" ] || fail "the source of $name $version is not there"
    printf '%s %s: %s\n\n' "$name" "$version" "$license"
    find "$source" -maxdepth 2 \( -iname 'licen[sc]e*' -o -iname 'unlicen[sc]e*' -o -iname 'copying*' -o -iname 'notice*' \) -type f -print0 |
        LC_ALL=C sort -z >"$scratch/texts"
    if [ -s "$scratch/texts" ]; then
        xargs -0 cat <"$scratch/texts"
    else
        # Its authors' choice lets us pass it on by this one.
        case $license in
        *Apache-2.0*) echo "Its source has no licence text. Taken by Apache-2.0, whose text is LICENSE-APACHE of pagehaul." ;;
        *) fail "$name $version has no licence text" ;;
        esac
    fi
    printf '\n%s\n\n' $line
done <"$scratch/crates"
printf 'The Rust standard library: MIT OR Apache-2.0\nCopyright (c) The Rust Project Contributors\n\n%s\n\n' $line

# Where distributions have the C library's: Debian, then Fedora, openSUSE and Arch.
case $triple in
*-musl) set -- /usr/share/doc/musl-dev/copyright /usr/share/licenses/musl/* ;;
*) set -- /usr/share/doc/libc6-dev/copyright /usr/share/doc/libc6/copyright /usr/share/licenses/glibc/* \
    /usr/share/licenses/glibc-devel-static/* ;;
esac
printf 'The C library\n\n'
found=
for text; do
    [ -f "$text" ] || continue
    cat "$text"
    found=$text
    # The others are the same, of another package.
    case $text in */copyright) break ;; esac
done
[ -n "$found" ] || fail "no licence text of the C library; looked for $*"
case $triple:$found in
*-musl:*) ;;
*/copyright)
    # Debian's says where the text is.
    printf '\n%s\n\n' $line
    cat /usr/share/common-licenses/LGPL-2.1
    ;;
esac
