#!/bin/sh
# Makes a manual page of a program's help: scripts/manual_page.sh NAME DESCRIPTION <HELP >PAGE
# A line "== NAME" in the help begins a section.
set -eu
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml" | head -n 1)
printf '.TH %s 1 "" "pagehaul %s"\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n.nf\n' "$1" "$version" "$1" "$2"
# A dot or a quote at the start of a line is roff's.
sed "s/\\\\/\\\\e/g; s/-/\\\\-/g; s/^\([.']\)/\\\\\&\1/; s/^== \(.*\)/.fi\n.SH \1\n.nf/"
printf '.fi\n'
