#!/bin/sh
# Checks packages with lintian and rpmlint, and fails on every tag that packaging/lintian or packaging/rpmlint.toml does not explain.
# Where one of them is not installed, it says what it did not check.
# Usage: scripts/lint_packages.sh FILE...   (.deb, .dsc, .changes, .rpm, .spec)
# Overrides serve packages of scripts/packages.sh and of packaging/source alike, so that an unused one (of severity info) is right.
set -eu
cd "$(dirname "$0")/.." || exit
export LC_ALL=C.UTF-8
status=0
for file; do
    linter=lintian
    case $file in *.rpm | *.spec) linter=rpmlint ;; esac
    command -v $linter >/dev/null || { echo "not checked: $(basename "$file"): $linter is not installed"; continue; }
    case $file in
    *.deb | *.dsc | *.changes)
        said=$(lintian --allow-root --tag-display-limit 0 --fail-on error,warning "$file" 2>&1) || status=1
        ;;
    *.rpm | *.spec)
        # It fails on errors only.
        said=$(rpmlint --config packaging/rpmlint.toml "$file" 2>&1) || status=1
        case $said in
        *" 0 errors, 0 warnings"*) said= ;;
        *) status=1 ;;
        esac
        ;;
    *)
        echo "lint_packages: unknown file $file" >&2
        exit 2
        ;;
    esac
    if [ -n "$said" ]; then printf '%s:\n%s\n' "$file" "$said"; else echo "ok   $(basename "$file")"; fi
done
exit $status
