#!/bin/sh
# Builds packages in target/packages, and prints their paths: the .deb and the .rpm of pagehaul, of pagehaul-kdump, of
# pagehaul-fleet, and of pagehaul-core.
# Usage: scripts/packages.sh [x86_64|aarch64] [pagehaul|pagehaul-kdump|pagehaul-fleet|pagehaul-core]...
# All four by default, for this machine's architecture. Packages for the other one are in target/packages-ARCHITECTURE, and an
# emulator (qemu-user) runs the program that prints its manual pages.
#
# pagehaul: the static binary with every command, the small one for a capture kernel's initramfs, manual pages, shell
# completions, documentation and licences; the same files in both packages.
# pagehaul-kdump: the small binary in makedumpfile's place, for the distribution's kdump scripts. The .deb diverts
# /usr/bin/makedumpfile, the .rpm replaces it in the initramfs of the capture kernel by a dracut module.
# pagehaul-fleet: the static binary pagehaul-fleet, for machines where dumps are collected.
# pagehaul-core: the kernel's core handler, and the sysctl settings that name it.
# No package depends on another.
set -eu
cd "$(dirname "$0")/.."
# Files have the same permissions whatever those of the builder's are.
umask 022
export LC_ALL=C TZ=UTC
target=${CARGO_TARGET_DIR:-target}
host=$(uname -m)
arch=$host
case ${1:-} in
x86_64 | aarch64) arch=$1; shift ;;
esac
debian=amd64
[ "$arch" = x86_64 ] || debian=arm64
[ $# -gt 0 ] || set -- pagehaul pagehaul-kdump pagehaul-fleet pagehaul-core
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
maintainer=$(cat packaging/maintainer)

mkdir -p "$out"
# Of this run: two may run at once, and give the same packages.
trees=$(mktemp -d "$out/trees.XXXXXX")
trap 'rm -rf "$trees"' EXIT
trap 'exit 1' INT TERM HUP

# The size of a tree in KiB as Debian Policy 5.6.20 counts it, on any file system.
installed_size() {
    find "$1" \( -type f -printf '%s\n' -o -printf '1024\n' \) | awk '{ kib += int(($1 + 1023) / 1024) } END { print kib }'
}

# make_deb NAME TREE CONTROL [SCRIPT...]: builds a .deb of a tree with a control file and maintainer scripts.
make_deb() {
    name=$1 tree=$2 control=$3
    shift 3
    deb=$out/${name}_$version-1_$debian.deb
    mkdir "$trees/deb" "$trees/deb/DEBIAN"
    cp -a "$tree/usr" "$trees/deb/"
    changelog=$trees/deb/usr/share/doc/$name/changelog.Debian
    cat >"$changelog" <<END
$name ($version-1) unstable; urgency=medium

  * $version: CHANGELOG.md of the source says what it has.

 -- $maintainer  $(date -R -d "@$SOURCE_DATE_EPOCH")
END
    gzip -9n "$changelog"
    # Debian Policy 12.7.
    if [ -e "$trees/deb/usr/share/doc/$name/CHANGELOG.md" ]; then
        gzip -9nc "$trees/deb/usr/share/doc/$name/CHANGELOG.md" >"${changelog%.Debian}.gz"
        rm "$trees/deb/usr/share/doc/$name/CHANGELOG.md"
    fi
    install -D -m 644 "packaging/lintian/$name" "$trees/deb/usr/share/lintian/overrides/$name"
    find "$trees/deb/usr/share/lintian" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    find "$trees/deb/usr/share/doc/$name" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    sed "s/@VERSION@/$version/; s/@ARCHITECTURE@/$debian/; s/@MAINTAINER@/$maintainer/; s/@SIZE@/$(installed_size "$tree")/" "$control" >"$trees/deb/DEBIAN/control"
    (cd "$trees/deb" && find usr -type f -exec md5sum {} + | LC_ALL=C sort -k 2) >"$trees/deb/DEBIAN/md5sums"
    for script; do
        install -m 755 "$script" "$trees/deb/DEBIAN/"
    done
    # More threads would divide the data by their number.
    dpkg-deb --root-owner-group -Zxz --threads-max=1 --build "$trees/deb" "$trees/deb.part" >/dev/null
    mv "$trees/deb.part" "$deb"
    rm -rf "$trees/deb"
    echo "$deb"
}

# make_rpm NAME TREE SPEC: builds an .rpm of a tree as a spec file describes it.
make_rpm() {
    rpm=$out/$1-$version-1.$arch.rpm
    rpmbuild -bb --quiet --target "$arch" --define "_topdir $(realpath "$trees")/rpmbuild" --define "version $version" \
        --define "_buildhost localhost" --define "maintainer $maintainer" \
        --define "changelog_date $(date -u -d "@$SOURCE_DATE_EPOCH" '+%a %b %d %Y')" \
        --define "tree $(realpath "$2")" --define "filelist $(realpath "$trees")/files" "$3" >"$trees/rpmbuild.log" 2>&1 || {
        cat "$trees/rpmbuild.log" >&2
        exit 1
    }
    mv "$trees/rpmbuild/RPMS/$arch"/*.rpm "$rpm"
    rm -rf "$trees/rpmbuild"
    echo "$rpm"
}

# licenses CRATE DIRECTORY: puts the licences of a program, and of the crates in it, into a directory.
licenses() {
    mkdir -p "$2"
    install -m 644 packaging/copyright LICENSE-MIT LICENSE-APACHE "$2/"
    scripts/third_party_licenses.sh "$1" | gzip -9n >"$2/third-party-licenses.gz"
}

# finish_tree TREE: gives the files of a tree the same permissions and times on every machine.
finish_tree() {
    find "$1" -type f -path '*/doc/*' -exec chmod 644 {} +
    find "$1" -type d -exec chmod 755 {} +
    find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

pagehaul() {
    full=$(scripts/static.sh full "$arch")
    capture=$(scripts/static.sh capture "$arch")
    root=$trees/pagehaul
    doc=$root/usr/share/doc/pagehaul
    mkdir -p "$root/usr/bin" "$root/usr/lib/pagehaul" "$root/usr/share/man/man1"
    "$strip" -o "$root/usr/bin/pagehaul" "$full"
    install -m 755 "$capture" "$root/usr/lib/pagehaul/pagehaul-capture"

    $emulator "$full" man "$trees/man"
    install -m 644 "$trees"/man/* "$root/usr/share/man/man1/"
    gzip -9n "$root"/usr/share/man/man1/*
    completion bash usr/share/bash-completion/completions/pagehaul
    completion zsh usr/share/zsh/site-functions/_pagehaul
    completion fish usr/share/fish/vendor_completions.d/pagehaul.fish

    licenses pagehaul "$doc"
    for file in README.md CHANGELOG.md SECURITY.md; do
        [ ! -e $file ] || install -m 644 $file "$doc/"
    done
    # The guides and references; records of benchmarks and experiments stay in the repository.
    find docs -path docs/benchmarks -prune -o -path docs/experiments -prune -o \
        -type f ! -name book.toml ! -name SUMMARY.md -print | while read -r file; do
        install -D -m 644 "$file" "$doc/$file"
    done
    finish_tree "$root"
    make_deb pagehaul "$root" packaging/control packaging/debian/postrm
    (cd "$root" && find usr/bin/pagehaul usr/lib/pagehaul usr/share/man usr/share/bash-completion usr/share/zsh usr/share/fish \
        -type f) | sed 's|^|/|' >"$trees/files"
    make_rpm pagehaul "$root" packaging/pagehaul.spec
}

manual() { # manual NAME DESCRIPTION <HELP
    mkdir -p "$root/usr/share/man/man1"
    scripts/manual_page.sh "$1" "$2" | gzip -9n >"$root/usr/share/man/man1/$1.1.gz"
}

completion() { # completion SHELL PATH
    mkdir -p "$(dirname "$root/$2")"
    $emulator "$full" completions "$1" >"$root/$2"
}

kdump() {
    capture=$(scripts/static.sh capture "$arch")
    root=$trees/kdump
    install -D -m 755 "$capture" "$root/usr/lib/pagehaul/makedumpfile"
    licenses pagehaul "$root/usr/share/doc/pagehaul-kdump"
    # makedumpfile's own page is in section 8.
    $emulator "$capture" makedumpfile -h | manual makedumpfile 'captures crash dumps, by pagehaul'
    cp -a "$root" "$root-rpm"

    scripts=packaging/kdump/debian
    mkdir -p "$root/usr/bin"
    ln -s ../lib/pagehaul/makedumpfile "$root/usr/bin/makedumpfile"
    finish_tree "$root"
    make_deb pagehaul-kdump "$root" $scripts/control $scripts/preinst $scripts/postinst $scripts/postrm

    install -D -m 755 packaging/kdump/dracut/module-setup.sh \
        "$root-rpm/usr/lib/dracut/modules.d/99pagehaul-kdump/module-setup.sh"
    finish_tree "$root-rpm"
    make_rpm pagehaul-kdump "$root-rpm" packaging/kdump/pagehaul-kdump.spec
}

fleet() {
    fleet=$(scripts/static.sh fleet "$arch")
    root=$trees/fleet
    doc=$root/usr/share/doc/pagehaul-fleet
    mkdir -p "$root/usr/bin"
    "$strip" -o "$root/usr/bin/pagehaul-fleet" "$fleet"
    licenses pagehaul-fleet "$doc"
    mkdir -p "$root/usr/share/man/man1"
    scripts/fleet_manual.sh $emulator "$fleet" | gzip -9n >"$root/usr/share/man/man1/pagehaul-fleet.1.gz"
    install -m 644 docs/schema.md docs/guide/src/fleet.md "$doc/"
    finish_tree "$root"
    make_deb pagehaul-fleet "$root" packaging/fleet/control
    make_rpm pagehaul-fleet "$root" packaging/fleet/pagehaul-fleet.spec
}

core() {
    handler=$(scripts/static.sh handler "$arch")
    root=$trees/core
    doc=$root/usr/share/doc/pagehaul-core
    install -D -m 755 "$handler" "$root/usr/lib/pagehaul/core-handler"
    install -D -m 644 packaging/core/60-pagehaul-core.conf "$root/usr/lib/sysctl.d/60-pagehaul-core.conf"
    licenses pagehaul "$doc"
    install -m 644 packaging/core/core.conf docs/guide/src/core-handler.md "$doc/"
    finish_tree "$root"
    make_deb pagehaul-core "$root" packaging/core/debian/control packaging/core/debian/postinst packaging/core/debian/postrm
    make_rpm pagehaul-core "$root" packaging/core/pagehaul-core.spec
}

for package; do
    case $package in
    pagehaul) pagehaul ;;
    pagehaul-kdump) kdump ;;
    pagehaul-fleet) fleet ;;
    pagehaul-core) core ;;
    *)
        echo "packages: unknown package $package;" \
            "usage: scripts/packages.sh [x86_64|aarch64] [pagehaul|pagehaul-kdump|pagehaul-fleet|pagehaul-core]..." >&2
        exit 2
        ;;
    esac
done
