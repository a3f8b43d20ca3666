#!/bin/sh
# Side by side with gcore, a copy of /proc/PID/mem and CRIU; as root. More arguments go to bench/process.py.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
cargo build --release --locked --quiet -p pagehaul -p lab --bins
cargo build --release --locked --quiet -p pagehaul --example subject
cargo build --release --locked --quiet -p pagehaul-process --example frames
criu=$("$target/release/lab" criu)
"$criu" check >/dev/null 2>&1 || {
    echo "bench_process: CRIU does not work on this kernel (see \`$criu check\`): it and checkpoints are skipped" >&2
    criu=
}
exec python3 bench/process.py --pagehaul "$target/release/pagehaul" --subject "$target/release/examples/subject" \
    --frames "$target/release/examples/frames" ${criu:+--criu "$criu"} "$@"
