#!/bin/sh
# Checks licences, sources and duplicates of all dependencies (deny.toml) with cargo-deny: from PATH, or built once into
# target/tools. An unoptimized build takes half the time and checks in under a second.
set -eu
cd "$(dirname "$0")/.."
version=0.20.2
tools=$(realpath -m "${CARGO_TARGET_DIR:-target}/tools")
deny=$(command -v cargo-deny || echo "$tools/bin/cargo-deny")
[ -x "$deny" ] || cargo install --quiet --locked --debug --root "$tools" cargo-deny --version $version
exec "$deny" --locked check --hide-inclusion-graph bans licenses sources
