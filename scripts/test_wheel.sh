#!/bin/sh
# Tests the Python package: builds the wheel without optimization, and runs crates/python/tests with the Python at hand, and with the
# oldest and the newest that the wheel supports among those of PATH and pyenv.
set -eu
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Stands for both programs, which have tests of their own.
for program in pagehaul pagehaul-fleet; do
    printf '#!/bin/sh\necho %s "$@"\nexit 3\n' $program >"$work/$program"
done
wheel=$(scripts/wheel.sh dev "$(uname -m)" "$work/pagehaul" "$work/pagehaul-fleet")
python=$target/python/bin/python
"$python" -m pip install --quiet --disable-pip-version-check --requirement crates/python/tests/requirements.txt
"$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall "$wheel"

"$python" - "$wheel" <<'END'
import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
name = next(name for name in wheel.namelist() if name.endswith(".dist-info/licenses/third-party-licenses.txt"))
text = wheel.read(name).decode()
for crate in ("pyo3", "zstd", "parquet"):
    assert f"\n{crate} " in text, f"the wheel has no licence of {crate}"
END

mkdir "$work/dumps"
cargo build --quiet --locked --workspace --bin pagehaul --bin pagehaul-fleet --example dumps
"$target/debug/examples/dumps" "$work/dumps"
run() { # run PYTHON
    PAGEHAUL_DUMPS="$work/dumps" PAGEHAUL_FLEET="$target/debug/pagehaul-fleet" "$1" -m unittest discover --quiet --start-directory crates/python/tests
}
run "$python"
said=$("$target/python/bin/pagehaul" info "a b" || echo "status $?")
[ "$said" = "pagehaul info a b
status 3" ] || { echo "test_wheel: the command pagehaul said: $said" >&2; exit 1; }
# The oldest Python that mypy knows, and the newest.
for version in 3.10 3.14; do
    "$python" -m mypy --strict --no-error-summary --python-version $version --cache-dir "$target/mypy" \
        --config-file crates/python/pyproject.toml --package pagehaul
    "$python" -m mypy --strict --no-error-summary --python-version $version --cache-dir "$target/mypy" \
        --config-file crates/python/pyproject.toml crates/python/tests/typed_use.py
done

# A machine that has the wheel only: its programs in place of their stand-ins, and of other programs those of a small system. The guide's
# commands and examples run as written.
"$python" -m venv "$work/alone"
alone=$work/alone/bin/python
"$alone" -m pip install --quiet --disable-pip-version-check --no-index --no-deps "$wheel"
programs=$("$alone" -c 'import pagehaul, pathlib; print(pathlib.Path(pagehaul.__file__).parent / "bin")')
for program in pagehaul pagehaul-fleet; do
    strip -o "$programs/$program" "$target/debug/$program"
done
env -i PATH="$work/alone/bin:/usr/bin:/bin" HOME="$work" PAGEHAUL_DUMPS="$work/dumps" PAGEHAUL="$work/alone/bin/pagehaul" \
    PAGEHAUL_FLEET="$work/alone/bin/pagehaul-fleet" "$alone" -m unittest discover --quiet -k guide --start-directory crates/python/tests

# Other versions import the same files: the wheel is for all of them.
"$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --target "$work/site" "$wheel"
versions() {
    for minor in $(seq 9 20); do
        for found in "$(command -v "python3.$minor" || true)" "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$minor".*/bin/python3; do
            # A shim of pyenv can be on PATH without its version.
            "$found" -c '' 2>/dev/null && echo "$found" && break
        done || true
    done
}
for other in $(versions | sed -n '1p;$p'); do
    "$other" --version
    PYTHONPATH=$work/site run "$other"
done
