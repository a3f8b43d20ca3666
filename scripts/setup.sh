#!/bin/sh
# Installs what building and proving pagehaul needs and a bare Debian lacks. Does nothing where all of it is there.
set -eu
packages=
need() { # need PROGRAM PACKAGE
    command -v "$1" >/dev/null 2>&1 || packages="$packages $2"
}
need cc "gcc libc6-dev"
need c++ g++
need musl-gcc musl-tools
need make make
need python3 python3
need crash crash
need trace-cmd trace-cmd
# What cores and checkpoints of live processes are proved on and with.
need gdb gdb
need lldb lldb
need eu-readelf elfutils
need redis-server redis-server
need zstd zstd
[ -d /usr/lib/postgresql ] || packages="$packages postgresql"
# ensurepip is what `python3 -m venv` lacks on Debian without this package.
python3 -c 'import ensurepip' >/dev/null 2>&1 || packages="$packages python3-venv"
if [ -n "$packages" ]; then
    if [ "$(id -u)" = 0 ]; then
        sudo=
    elif command -v sudo >/dev/null 2>&1; then
        sudo=sudo
    else
        echo "setup: these packages are needed; install them as root, then try again:$packages" >&2
        exit 1
    fi
    $sudo apt-get update -q
    # Word splitting is meant: a list of packages.
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $packages
fi
command -v cargo >/dev/null 2>&1 || {
    echo "setup: cargo is not on PATH; install Rust (1.95 or newer), then try again" >&2
    exit 1
}
# For the static binary. Where rustup cannot fetch it, static builds use glibc.
if command -v rustup >/dev/null 2>&1 && ! rustup target list --installed | grep -q musl; then
    rustup target add x86_64-unknown-linux-musl || echo "setup: no musl target; static builds will use glibc" >&2
fi
