#!/bin/sh
# cp, as kdump-tools calls makedumpfile.
[ "$1" != --dump-dmesg ] || exec touch "$3"
for last; do :; done
exec cat "$last"
