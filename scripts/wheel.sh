#!/bin/sh
# Builds the Python wheel with maturin, which is installed once into a virtual environment in target/python, and prints its path.
# Usage: scripts/wheel.sh [PROFILE [ARCH [PROGRAM...]]]
#   PROFILE  a Cargo profile: release (default), quick, dev
#   ARCH     x86_64 or aarch64: this machine's by default
#   PROGRAM  what `python -m pagehaul` runs: files called pagehaul and pagehaul-fleet
# Wheels of the profile dev are for this machine and tests. The others run with glibc 2.17 and later: zig, which has the symbols of every
# glibc, links them, and maturin fails if a symbol is newer.
set -eu
cd "$(dirname "$0")/.."
profile=${1:-release}
arch=${2:-$(uname -m)}
[ $# = 0 ] || shift
[ $# = 0 ] || shift
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
python=$target/python/bin/python
[ -x "$python" ] || python3 -m venv "$target/python"
"$python" -m pip install --quiet --disable-pip-version-check maturin==1.16.0 wheel==0.45.1
out=$target/wheels/$profile
[ "$arch" = "$(uname -m)" ] || out=$out-$arch
rm -rf "$out"
options="--interpreter $python"
if [ "$profile" != dev ]; then
    "$python" -m pip install --quiet --disable-pip-version-check ziglang==0.17.1
    if command -v rustup >/dev/null && ! rustup target list --installed | grep -q "^$arch-unknown-linux-gnu"; then
        rustup target add "$arch-unknown-linux-gnu" >&2
    fi
    # maturin calls `python3 -m ziglang`.
    export PATH="$target/python/bin:$PATH"
    options="--zig --compatibility manylinux2014 --strip --target $arch-unknown-linux-gnu"
fi
# Word splitting is meant.
# shellcheck disable=SC2086
"$target/python/bin/maturin" build --quiet --locked --manifest-path crates/python/Cargo.toml --profile "$profile" $options \
    --out "$out" >&2
"$python" -m wheel unpack --dest "$out/unpacked" "$out"/*.whl >&2
root=$(echo "$out"/unpacked/*)
crates=pagehaul-python
strip=strip
[ "$arch" = "$(uname -m)" ] || strip=$arch-linux-gnu-strip
for program; do
    install -D -m 755 "$program" "$root/pagehaul/bin/$(basename "$program")"
    [ "$profile" = dev ] || "$strip" "$root/pagehaul/bin/$(basename "$program")"
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
