#!/bin/sh
# Builds a .deb and an .rpm of pagehaul in target/packages, and prints their paths.
#
# Both hold the same files: the static binary with every command, the small one for a capture kernel's initramfs, manual
# pages, shell completions, documentation and licences. Neither depends on another package.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
out=$target/packages
# The same commit gives the same packages.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

full=$(scripts/static.sh full)
capture=$(scripts/static.sh capture)
rm -rf "$out"
root=$out/root
doc=$root/usr/share/doc/pagehaul
mkdir -p "$root/usr/lib/pagehaul" "$root/usr/share/man/man1" "$doc"

strip -o "$out/pagehaul" "$full"
install -D -m 755 "$out/pagehaul" "$root/usr/bin/pagehaul"
install -m 755 "$capture" "$root/usr/lib/pagehaul/pagehaul-capture"

"$full" man "$out/man"
install -m 644 "$out"/man/* "$root/usr/share/man/man1/"
gzip -9n "$root"/usr/share/man/man1/*

completion() { # completion SHELL PATH
    mkdir -p "$(dirname "$root/$2")"
    "$full" completions "$1" >"$root/$2"
}
completion bash usr/share/bash-completion/completions/pagehaul
completion zsh usr/share/zsh/site-functions/_pagehaul
completion fish usr/share/fish/vendor_completions.d/pagehaul.fish

for file in README.md CHANGELOG.md SECURITY.md LICENSE-MIT LICENSE-APACHE; do
    [ ! -e $file ] || install -m 644 $file "$doc/"
done
# The guides and references; records of benchmarks and experiments stay in the repository.
find docs -path docs/benchmarks -prune -o -path docs/experiments -prune -o -type f -print | while read -r file; do
    install -D -m 644 "$file" "$doc/$file"
done
cp packaging/copyright "$doc/copyright"
scripts/third_party_licenses.sh | gzip -9n >"$doc/third-party-licenses.gz"
find "$root" -type d -exec chmod 755 {} +
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

# The .deb: the tree, and a control file.
mkdir "$out/deb"
cp -a "$root/usr" "$out/deb/"
mkdir "$out/deb/DEBIAN"
sed "s/@VERSION@/$version/; s/@SIZE@/$(du -sk "$root" | cut -f 1)/" packaging/control >"$out/deb/DEBIAN/control"
(cd "$out/deb" && find usr -type f -exec md5sum {} + | LC_ALL=C sort -k 2) >"$out/deb/DEBIAN/md5sums"
deb=$out/pagehaul_$version-1_amd64.deb
dpkg-deb --root-owner-group -Zxz --build "$out/deb" "$deb" >/dev/null

# The .rpm: the same tree, as a spec file lists it.
(cd "$root" && find usr/bin/pagehaul usr/lib/pagehaul usr/share/man usr/share/bash-completion usr/share/zsh usr/share/fish \
    -type f) | sed 's|^|/|' >"$out/files"
rpmbuild -bb --quiet --target x86_64 --define "_topdir $(realpath "$out")/rpmbuild" --define "version $version" \
    --define "tree $(realpath "$root")" --define "filelist $(realpath "$out")/files" packaging/pagehaul.spec >"$out/rpmbuild.log" 2>&1 || {
    cat "$out/rpmbuild.log" >&2
    exit 1
}
rpm=$out/pagehaul-$version-1.x86_64.rpm
mv "$out"/rpmbuild/RPMS/x86_64/*.rpm "$rpm"
rm -rf "$out/rpmbuild" "$out/rpmbuild.log" "$out/deb" "$out/man" "$out/files" "$out/pagehaul"
echo "$deb"
echo "$rpm"
