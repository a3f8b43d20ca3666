#!/bin/sh
# Prints the path of versitygw, an S3 server for tests: from PATH, or built once into target/tools by Go, which takes two minutes of a
# CPU and a gigabyte of Go's caches. Needs Go 1.25 or newer; Go 1.21 and newer fetches the version that it needs.
set -eu
cd "$(dirname "$0")/.."
version=1.8.0
tools=$(realpath -m "${CARGO_TARGET_DIR:-target}/tools")
server=$(command -v versitygw || echo "$tools/bin/versitygw")
if [ ! -x "$server" ]; then
    command -v go >/dev/null || {
        echo "versitygw: go is not on PATH; install Go 1.25 or newer, then try again" >&2
        exit 1
    }
    GOBIN=$tools/bin go install "github.com/versity/versitygw/cmd/versitygw@v$version" >&2
fi
echo "$server"
