#!/bin/sh
# Installs the Debian packages that a purpose needs and the machine lacks. Does nothing where all are installed.
# Usage: scripts/setup.sh [--print|--missing] [build|x86_64|aarch64|riscv64|emulator|demo|spark|browser|test]...
#   --print  only print the packages, as for a machine that has none
#   --missing  only print the packages that this machine lacks
#   build  a C compiler and musl, for the static binary and the packages
#   x86_64, aarch64  what the static binary for that architecture needs besides
#   riscv64  what the lab's programs for riscv64 guests need besides
#   emulator  a program that runs binaries for arm64
#   demo   a C compiler, and Python for drgn and the wheel
#   browser  Chromium, for the tests of web pages
#   spark  Java, for the tests on a Spark cluster
#   test   everything that `make test` and the benchmarks run (the default)
set -eu
# debootstrap is in a directory that is not on every user's PATH.
PATH=$PATH:/usr/sbin
packages=
need() { # need PROGRAM PACKAGE...
    program=$1
    shift
    lacks command -v "$program" && packages="$packages $*"
    true
}

# Whether a test of what is installed fails.
lacks() {
    $print || ! "$@" >/dev/null 2>&1
}

need_compiler() {
    need cc gcc libc6-dev
    $print || command -v cargo >/dev/null 2>&1 || {
        echo "setup: cargo is not on PATH; install Rust (1.95 or newer; https://rustup.rs), then try again" >&2
        exit 1
    }
}

need_musl() {
    need musl-gcc musl-tools
    # Where rustup cannot fetch the target, static builds use glibc.
    if ! $print && command -v rustup >/dev/null 2>&1 && ! rustup target list --installed | grep -q musl; then
        rustup target add x86_64-unknown-linux-musl || echo "setup: no musl target; static builds will use glibc" >&2
    fi
}

# Both C libraries' headers are those of the kernel's ABI that the codecs use, so that Debian's compiler for glibc serves musl.
need_architecture() {
    [ "$1" != "$(uname -m)" ] || return 0
    need "$1-linux-gnu-gcc" "gcc-$(echo "$1" | tr _ -)-linux-gnu" "libc6-dev-$2-cross"
    if ! $print && command -v rustup >/dev/null 2>&1 && ! rustup target list --installed | grep -q "$1-unknown-linux-musl"; then
        rustup target add "$1-unknown-linux-musl" || echo "setup: no target $1-unknown-linux-musl; nothing is built for it" >&2
    fi
}

# Linked with Debian's compiler to Debian's glibc.
need_riscv64() {
    need riscv64-linux-gnu-gcc gcc-riscv64-linux-gnu libc6-dev-riscv64-cross
    if ! $print && command -v rustup >/dev/null 2>&1 && ! rustup target list --installed | grep -q riscv64gc-unknown-linux-gnu; then
        rustup target add riscv64gc-unknown-linux-gnu || echo "setup: no target riscv64gc-unknown-linux-gnu; nothing is built for it" >&2
    fi
}

need_emulator() {
    [ "$(uname -m)" = aarch64 ] || need qemu-aarch64-static qemu-user-static
}

need_python() {
    need python3 python3
    # Debian's python3 has no ensurepip, which `python3 -m venv` needs, without this package.
    lacks python3 -c 'import ensurepip' && packages="$packages python3-venv"
    true
}

need_test_programs() {
    need c++ g++
    need crash crash
    need trace-cmd trace-cmd
    # Cores and checkpoints of live processes are validated on and with these.
    need gdb gdb
    need lldb lldb
    need eu-readelf elfutils
    need redis-server redis-server
    need age age
    need zstd zstd
    # A judge of interrupted dumps.
    lacks /usr/bin/python3 -c 'import kdumpfile' && packages="$packages python3-libkdumpfile"
    # Wrong clocks and certificates, for captures to a store.
    need faketime faketime
    need openssl openssl
    lacks test -d /usr/lib/postgresql && packages="$packages postgresql"
    # The packages are installed into a clean Debian root.
    need debootstrap debootstrap
    need rpmbuild rpm
    need lintian lintian
    need rpmlint rpmlint
}

print=false missing=false
case ${1-} in
--print) print=true; shift ;;
--missing) missing=true; shift ;;
esac
for purpose in "${@:-test}"; do
    case $purpose in
    # Python lists the crates of what is shipped: scripts/bill.py.
    build) need_compiler; need_musl; need python3 python3 ;;
    aarch64) need_architecture aarch64 arm64 ;;
    x86_64) need_architecture x86_64 amd64 ;;
    riscv64) need_riscv64 ;;
    emulator) need_emulator ;;
    demo) need_compiler; need_python ;;
    browser) need chromium chromium ;;
    spark) need java openjdk-17-jre-headless ;;
    test) need_compiler; need_musl; need_python; need_test_programs ;;
    *)
        echo "setup: unknown purpose $purpose; usage: scripts/setup.sh [--print|--missing] [build|x86_64|aarch64|riscv64|emulator|demo|spark|browser|test]..." >&2
        exit 2
        ;;
    esac
done
if $print || $missing; then
    # Word splitting is meant: a package a line.
    # shellcheck disable=SC2086
    printf '%s\n' $packages
    exit
fi
[ -n "$packages" ] || exit 0
sudo=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || {
        echo "setup: install these packages as root, then try again:$packages" >&2
        exit 1
    }
    sudo=sudo
fi
$sudo apt-get update -q
# Word splitting is meant: a list of packages.
# shellcheck disable=SC2086
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $packages
