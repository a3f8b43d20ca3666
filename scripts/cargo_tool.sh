#!/bin/sh
# Prints the path of a tool that cargo installs: from PATH, or built once, without optimization, into target/tools.
# Usage: scripts/cargo_tool.sh NAME VERSION
set -eu
cd "$(dirname "$0")/.."
tools=$(realpath -m "${CARGO_TARGET_DIR:-target}/tools")
tool=$(command -v "$1" || echo "$tools/bin/$1")
[ -x "$tool" ] || cargo install --quiet --locked --debug --root "$tools" "$1" --version "$2" >&2
echo "$tool"
