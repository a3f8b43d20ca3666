#!/bin/sh
# Checks licences, sources and duplicates of all dependencies (deny.toml) with cargo-deny. An unoptimized build of it takes half the
# time and checks in under a second.
set -eu
cd "$(dirname "$0")/.."
deny=$(scripts/cargo_tool.sh cargo-deny 0.20.2)
exec "$deny" --locked check --hide-inclusion-graph bans licenses sources
