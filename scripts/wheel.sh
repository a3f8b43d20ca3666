#!/bin/sh
# Builds the Python wheel with maturin, which is installed once into a virtual environment in target/python, and prints its path.
# Usage: scripts/wheel.sh [PROFILE [PROGRAM...]]
#   PROFILE  a Cargo profile: release (default), dev
#   PROGRAM  what `python -m pagehaul` runs: files called pagehaul and pagehaul-fleet
set -eu
cd "$(dirname "$0")/.."
profile=${1:-release}
[ $# = 0 ] || shift
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
python=$target/python/bin/python
[ -x "$python" ] || python3 -m venv "$target/python"
"$python" -m pip install --quiet --disable-pip-version-check maturin==1.16.0 wheel==0.45.1
strip=
[ "$profile" != release ] || strip=--strip
out=$target/wheels/$profile
rm -rf "$out"
# Word splitting is meant.
# shellcheck disable=SC2086
"$target/python/bin/maturin" build --quiet --locked --manifest-path crates/python/Cargo.toml --profile "$profile" $strip \
    --interpreter "$python" --out "$out" >&2
"$python" -m wheel unpack --dest "$out/unpacked" "$out"/*.whl >&2
root=$(echo "$out"/unpacked/*)
crates=pagehaul-python
for program; do
    install -D -m 755 "$program" "$root/pagehaul/bin/$(basename "$program")"
    crates="$crates $(basename "$program")"
done
licenses=$(echo "$root"/*.dist-info)/licenses
mkdir -p "$licenses"
cp LICENSE-MIT LICENSE-APACHE "$licenses/"
# shellcheck disable=SC2086
scripts/third_party_licenses.sh $crates >"$licenses/third-party-licenses.txt"
"$python" -m wheel pack --dest-dir "$out" "$root" >&2
rm -r "$out/unpacked"
echo "$out"/*.whl
