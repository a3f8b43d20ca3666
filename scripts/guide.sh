#!/bin/sh
# Builds the guide and the other documents as a book of web pages, in target/guide, with mdBook. Fails if a link in it leads nowhere, as with Debian 13's package (0.4.48+ds-2), whose pages lack book.js and fonts.
set -eu
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
mdbook=$(scripts/cargo_tool.sh mdbook 0.5.4)
"$mdbook" build docs -d "$target/guide" >&2
cd "$target/guide"
# The page of unknown addresses has the links of a web server's root.
dead=$(find . -name '*.html' ! -name 404.html ! -name print.html | while read -r page; do
    grep -oE '(href|src)="[^"#]+' "$page" | cut -d'"' -f2 | grep -vE '^[a-z]+:' | sort -u | while read -r link; do
        [ -e "$(dirname "$page")/$link" ] || echo "$page: $link"
    done
done)
[ -z "$dead" ] || { echo "guide: links that lead nowhere:" "$dead" >&2; exit 1; }
echo "$target/guide/index.html"
