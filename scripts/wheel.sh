#!/bin/sh
# Builds the Python wheel with maturin, which is installed once into a virtual environment in target/python, and prints its path.
# Usage: scripts/wheel.sh [PROFILE]   a Cargo profile, release by default
set -eu
cd "$(dirname "$0")/.."
profile=${1:-release}
maturin=1.16.0
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
python=$target/python/bin/python
[ -x "$python" ] || python3 -m venv "$target/python"
[ "$("$target/python/bin/maturin" --version 2>/dev/null)" = "maturin $maturin" ] ||
    "$python" -m pip install --quiet --disable-pip-version-check "maturin==$maturin"
strip=
[ "$profile" != release ] || strip=--strip
rm -f "$target/wheels/$profile"/*.whl
# Word splitting is meant.
# shellcheck disable=SC2086
"$target/python/bin/maturin" build --quiet --locked --manifest-path crates/python/Cargo.toml --profile "$profile" $strip \
    --interpreter "$python" --out "$target/wheels/$profile" >&2
echo "$target/wheels/$profile"/*.whl
