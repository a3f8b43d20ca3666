#!/bin/sh
# Proves cores and checkpoints of live processes on real programs; as root. More arguments go to prove_process.py.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
cargo build --release --locked --quiet -p pagehaul -p lab --bins
cargo build --release --locked --quiet -p pagehaul --example subject
drgn=$("$target/release/lab" python)
criu=$("$target/release/lab" criu)
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
if $sudo "$criu" check >/dev/null 2>&1; then
    with="--criu $criu"
else
    echo "prove_process: CRIU does not work on this kernel (see \`$criu check\`): checkpoints are not proved here" >&2
    with=
fi
# Word splitting is meant.
exec $sudo python3 scripts/prove_process.py "$target/release/pagehaul" "$target/release/examples/subject" $with --drgn "$drgn" "$@"
