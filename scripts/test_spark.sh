#!/bin/sh
# Tests extraction on a real Spark cluster on loopback: a master, two workers, and one executor killed in the middle.
# Usage: scripts/test_spark.sh [bench DUMP...]
#   bench  prints the seconds of one worker and of two, with optimized programs
# Needs Java 17. Spark is installed once into a virtual environment in target/spark, 700 MB.
set -eu
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
profile=dev directory=debug
[ "${1-}" != bench ] || { profile=release; directory=release; }
cargo build --quiet --locked --profile $profile -p pagehaul-fleet
strip -o "$work/pagehaul-fleet" "$target/$directory/pagehaul-fleet"
wheel=$(scripts/wheel.sh dev "$(uname -m)" "$work/pagehaul-fleet")
python=$target/spark/bin/python
[ -x "$python" ] || python3 -m venv "$target/spark"
"$python" -m pip install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==26.0.1 pandas==2.3.3
"$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall "$wheel"
if [ "${1-}" = bench ]; then
    shift
    "$python" crates/python/tests/spark_cluster.py bench "$work/pagehaul-fleet" "$@"
    exit
fi
cargo run --quiet --locked -p pagehaul-synth --example dumps -- "$work"
"$python" crates/python/tests/spark_cluster.py check "$work" "$work/pagehaul-fleet"
