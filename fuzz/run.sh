#!/bin/sh
# Builds every fuzz target, writes the seed corpora, and runs each target for SECONDS (default 60) on one core.
# Usage: fuzz/run.sh [SECONDS [TARGET...]]; SECONDS of 0 only builds. Stops at the first crash.
set -eu
cd "$(dirname "$0")"
seconds=${1:-60}
[ $# -gt 0 ] && shift
version=0.13.2
tools=$(realpath -m "${CARGO_TARGET_DIR:-../target}/tools")
fuzz=$(command -v cargo-fuzz || echo "$tools/bin/cargo-fuzz")
[ -x "$fuzz" ] || cargo install --quiet --locked --debug --root "$tools" cargo-fuzz --version $version
# A nightly compiler has AddressSanitizer; the stable one has only coverage, with the options of nightly ones unlocked.
if cargo +nightly --version >/dev/null 2>&1; then
    export RUSTUP_TOOLCHAIN=nightly
    sanitizer=address
else
    export RUSTC_BOOTSTRAP=1
    sanitizer=none
fi
"$fuzz" build --sanitizer $sanitizer
[ "$seconds" -gt 0 ] || exit 0
cargo run --quiet --example seeds
for target in ${*:-$("$fuzz" list)}; do
    echo "== $target, $seconds s"
    [ ! -d "../tools/fuzz-targets/corpus/$target" ] || cp "../tools/fuzz-targets/corpus/$target"/* "corpus/$target/"
    "$fuzz" run --sanitizer $sanitizer "$target" -- -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -max_len=65536 -print_final_stats=1
done
