#!/bin/sh
# Runs a step of `make test` and records how long it took; then prints the longest ones.
# Usage: scripts/step.sh NAME COMMAND [ARGUMENT]...   or   scripts/step.sh --begin | --report
set -eu
# The same file from every directory of the project.
steps=${CARGO_TARGET_DIR:-$(dirname "$0")/../target}/steps.txt
case $1 in
--begin)
    mkdir -p "${steps%/*}"
    : >"$steps"
    ;;
--report)
    echo "the ten longest steps, in seconds:"
    sort -rn "$steps" | head -n 10
    awk '{ sum += $1 } END { printf "%d in all steps\n", sum }' "$steps"
    ;;
*)
    name=$1
    shift
    begin=$(date +%s)
    status=0
    "$@" || status=$?
    echo "$(($(date +%s) - begin)) $name" >>"$steps"
    exit "$status"
    ;;
esac
