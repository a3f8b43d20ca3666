#!/bin/sh
# Makes source packages of HEAD in a directory, next to the tarballs that they build from: the .spec file for rpmbuild, a PKGBUILD, and
# Debian's .dsc, where dpkg-source is installed (dpkg-dev). scripts/lint_packages.sh checks the first and the last.
# Usage: scripts/source_packages.sh DIRECTORY
set -eu
cd "$(dirname "$0")/.."
umask 022
export LC_ALL=C TZ=UTC
mkdir -p "$1"
out=$(realpath "$1")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
maintainer=$(cat packaging/maintainer)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM HUP
scripts/source.sh "$out"
sed "s/@VERSION@/$version/g; s/@MAINTAINER@/$maintainer/g; s/@DATE@/$(date -u -d "@$SOURCE_DATE_EPOCH" '+%a %b %d %Y')/" \
    packaging/source/rpm.spec >"$out/pagehaul.spec"
sum() {
    sha256sum "$1" | cut -d ' ' -f 1
}
sed "s/@VERSION@/$version/; s/@MAINTAINER@/$maintainer/; s/@SOURCE_SHA256@/$(sum "$out/pagehaul-$version.tar.xz")/
    s/@VENDOR_SHA256@/$(sum "$out/pagehaul-$version-vendor.tar.xz")/" packaging/source/PKGBUILD >"$out/PKGBUILD"
cp packaging/source/pagehaul-core.install "$out/"

if ! command -v dpkg-source >/dev/null; then
    echo "source_packages: dpkg-source is not on PATH (Debian package dpkg-dev): no .dsc" >&2
    exit
fi
# Debian's, with the crates as a component of the source. Its names are others of the same tarballs.
ln -f "$out/pagehaul-$version.tar.xz" "$out/pagehaul_$version.orig.tar.xz"
ln -f "$out/pagehaul-$version-vendor.tar.xz" "$out/pagehaul_$version.orig-vendor.tar.xz"
ln -s "$out"/pagehaul_"$version".orig*.tar.xz "$scratch/"
tar -xf "$out/pagehaul-$version.tar.xz" -C "$scratch"
tree=$scratch/pagehaul-$version
mkdir "$tree/vendor"
tar -xf "$out/pagehaul-$version-vendor.tar.xz" -C "$tree/vendor"
cp -r packaging/source/debian "$tree/debian"
sed -i "s/@MAINTAINER@/$maintainer/" "$tree/debian/control"
for package in pagehaul pagehaul-kdump pagehaul-fleet pagehaul-core; do
    cp packaging/lintian/$package "$tree/debian/$package.lintian-overrides"
done
for script in packaging/kdump/debian/preinst packaging/kdump/debian/postinst packaging/kdump/debian/postrm packaging/debian/postrm \
    packaging/core/debian/postinst packaging/core/debian/postrm; do
    case $script in
    packaging/debian/*) package=pagehaul ;;
    packaging/kdump/*) package=pagehaul-kdump ;;
    packaging/core/*) package=pagehaul-core ;;
    esac
    # debhelper adds its own parts.
    sed '$a\\n#DEBHELPER#' $script >"$tree/debian/$package.${script##*/}"
done
cat >"$tree/debian/changelog" <<END
pagehaul ($version-1) unstable; urgency=medium

  * $version: see CHANGELOG.md.

 -- $maintainer  $(date -R -d "@$SOURCE_DATE_EPOCH")
END
# The licences of all crates, in the words of their manifests.
{
    cat packaging/copyright
    printf '\nFiles: vendor/*\nCopyright: the authors of the crates\nLicense: see-crates\n'
    printf ' Each crate has its licence texts in its directory. By its manifest:\n .\n'
    cargo metadata --locked --format-version 1 | python3 -c '
import json, sys
for package in sorted(json.load(sys.stdin)["packages"], key=lambda of: of["name"]):
    if package["source"]:
        print(" ", package["name"], package["version"] + ":", package["license"] or "see its directory")'
} >"$tree/debian/copyright"
(cd "$scratch" && dpkg-source -q -b "pagehaul-$version" && mv ./*.dsc ./*.debian.tar.xz "$out/")
