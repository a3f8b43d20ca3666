#!/bin/sh
# Builds packages in target/packages, and prints their paths: the .deb and the .rpm of pagehaul, of pagehaul-kdump, and of
# pagehaul-fleet.
# Usage: scripts/packages.sh [x86_64|aarch64]
# The architecture is this machine's by default. Packages for the other one are in target/packages-ARCHITECTURE, and an emulator
# (qemu-user) runs the program that prints its manual pages.
#
# pagehaul: the static binary with every command, the small one for a capture kernel's initramfs, manual pages, shell
# completions, documentation and licences; the same files in both packages.
# pagehaul-kdump: the small binary in makedumpfile's place, for the distribution's kdump scripts. The .deb diverts
# /usr/bin/makedumpfile, the .rpm replaces it in the initramfs of the capture kernel by a dracut module.
# pagehaul-fleet: the static binary pagehaul-fleet, for machines where dumps are collected.
# No package depends on another.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
host=$(uname -m)
arch=${1:-$host}
case $arch in
x86_64) debian=amd64 ;;
aarch64) debian=arm64 ;;
*)
    echo "packages: unknown architecture $arch; usage: scripts/packages.sh [x86_64|aarch64]" >&2
    exit 2
    ;;
esac
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
out=$target/packages
emulator='' strip=strip
if [ "$arch" != "$host" ]; then
    out=$target/packages-$arch
    emulator=qemu-$arch-static
    strip=$arch-linux-gnu-strip
fi
# The same commit gives the same packages.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

full=$(scripts/static.sh full "$arch")
capture=$(scripts/static.sh capture "$arch")
fleet=$(scripts/static.sh fleet "$arch")
rm -rf "$out"
root=$out/root
doc=$root/usr/share/doc/pagehaul
mkdir -p "$root/usr/lib/pagehaul" "$root/usr/share/man/man1" "$doc"

"$strip" -o "$out/pagehaul" "$full"
install -D -m 755 "$out/pagehaul" "$root/usr/bin/pagehaul"
install -m 755 "$capture" "$root/usr/lib/pagehaul/pagehaul-capture"

$emulator "$full" man "$out/man"
install -m 644 "$out"/man/* "$root/usr/share/man/man1/"
gzip -9n "$root"/usr/share/man/man1/*

completion() { # completion SHELL PATH
    mkdir -p "$(dirname "$root/$2")"
    $emulator "$full" completions "$1" >"$root/$2"
}
completion bash usr/share/bash-completion/completions/pagehaul
completion zsh usr/share/zsh/site-functions/_pagehaul
completion fish usr/share/fish/vendor_completions.d/pagehaul.fish

for file in README.md CHANGELOG.md SECURITY.md LICENSE-MIT LICENSE-APACHE; do
    [ ! -e $file ] || install -m 644 $file "$doc/"
done
# The guides and references; records of benchmarks and experiments stay in the repository.
find docs -path docs/benchmarks -prune -o -path docs/experiments -prune -o -type f ! -name book.toml ! -name SUMMARY.md -print | while read -r file; do
    install -D -m 644 "$file" "$doc/$file"
done
cp packaging/copyright "$doc/copyright"
scripts/third_party_licenses.sh pagehaul | gzip -9n >"$doc/third-party-licenses.gz"
find "$root" -type d -exec chmod 755 {} +
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

# make_deb NAME TREE CONTROL [SCRIPT...]: builds a .deb of a tree with a control file and maintainer scripts.
make_deb() {
    name=$1 tree=$2 control=$3
    shift 3
    deb=$out/${name}_$version-1_$debian.deb
    mkdir "$out/deb" "$out/deb/DEBIAN"
    cp -a "$tree/usr" "$out/deb/"
    sed "s/@VERSION@/$version/; s/@ARCHITECTURE@/$debian/; s/@SIZE@/$(du -sk "$tree" | cut -f 1)/" "$control" >"$out/deb/DEBIAN/control"
    (cd "$out/deb" && find usr -type f -exec md5sum {} + | LC_ALL=C sort -k 2) >"$out/deb/DEBIAN/md5sums"
    for script; do
        install -m 755 "$script" "$out/deb/DEBIAN/"
    done
    dpkg-deb --root-owner-group -Zxz --build "$out/deb" "$deb" >/dev/null
    rm -rf "$out/deb"
    echo "$deb"
}

# make_rpm NAME TREE SPEC: builds an .rpm of a tree as a spec file describes it.
make_rpm() {
    rpm=$out/$1-$version-1.$arch.rpm
    rpmbuild -bb --quiet --target "$arch" --define "_topdir $(realpath "$out")/rpmbuild" --define "version $version" \
        --define "tree $(realpath "$2")" --define "filelist $(realpath "$out")/files" "$3" >"$out/rpmbuild.log" 2>&1 || {
        cat "$out/rpmbuild.log" >&2
        exit 1
    }
    mv "$out/rpmbuild/RPMS/$arch"/*.rpm "$rpm"
    rm -rf "$out/rpmbuild" "$out/rpmbuild.log"
    echo "$rpm"
}

# kdump_tree TREE: what both packages of pagehaul-kdump hold.
kdump_tree() {
    mkdir -p "$1/usr/share/doc/pagehaul-kdump"
    install -D -m 755 "$capture" "$1/usr/lib/pagehaul/makedumpfile"
    cp -a "$doc/copyright" "$doc/third-party-licenses.gz" LICENSE-MIT LICENSE-APACHE "$1/usr/share/doc/pagehaul-kdump/"
    chmod 644 "$1"/usr/share/doc/pagehaul-kdump/*
}

finish_tree() {
    find "$1" -type d -exec chmod 755 {} +
    find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

make_deb pagehaul "$root" packaging/control
(cd "$root" && find usr/bin/pagehaul usr/lib/pagehaul usr/share/man usr/share/bash-completion usr/share/zsh usr/share/fish \
    -type f) | sed 's|^|/|' >"$out/files"
make_rpm pagehaul "$root" packaging/pagehaul.spec

scripts=packaging/kdump/debian
kdump_tree "$out/kdump-deb"
mkdir -p "$out/kdump-deb/usr/bin"
ln -s ../lib/pagehaul/makedumpfile "$out/kdump-deb/usr/bin/makedumpfile"
finish_tree "$out/kdump-deb"
make_deb pagehaul-kdump "$out/kdump-deb" $scripts/control $scripts/preinst $scripts/postinst $scripts/postrm

kdump_tree "$out/kdump-rpm"
install -D -m 755 packaging/kdump/dracut/module-setup.sh \
    "$out/kdump-rpm/usr/lib/dracut/modules.d/99pagehaul-kdump/module-setup.sh"
finish_tree "$out/kdump-rpm"
make_rpm pagehaul-kdump "$out/kdump-rpm" packaging/kdump/pagehaul-kdump.spec
root=$out/fleet
doc=$root/usr/share/doc/pagehaul-fleet
mkdir -p "$root/usr/bin" "$doc"
"$strip" -o "$root/usr/bin/pagehaul-fleet" "$fleet"
scripts/third_party_licenses.sh pagehaul-fleet | gzip -9n >"$doc/third-party-licenses.gz"
install -m 644 packaging/copyright LICENSE-MIT LICENSE-APACHE docs/schema.md docs/guide/src/fleet.md "$doc/"
finish_tree "$root"
make_deb pagehaul-fleet "$root" packaging/fleet/control
make_rpm pagehaul-fleet "$root" packaging/fleet/pagehaul-fleet.spec
rm -rf "$out/man" "$out/files" "$out/pagehaul" "$out/kdump-deb" "$out/kdump-rpm" "$out/fleet"
