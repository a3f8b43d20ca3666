#!/bin/sh
# Prints the manual page of pagehaul-fleet, made of its help.
# Usage: scripts/fleet_manual.sh [EMULATOR] PROGRAM
set -eu
{
    "$@" --help
    for command in extract report sql compact remove metrics; do
        echo "== $command"
        "$@" $command --help
    done
} | "$(dirname "$0")/manual_page.sh" pagehaul-fleet 'tables and reports of many kernel crashes'
