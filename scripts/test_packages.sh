#!/bin/bash
# Builds the packages, installs each into a clean Debian 12 root, also by the README's own commands, runs pagehaul there, removes
# it, and checks that nothing is left. pagehaul-kdump is tried with a stand-in for makedumpfile, and in an initramfs that Debian's
# dracut makes; real crashes are in `lab kdump-tools`. debootstrap makes the root once; it is cached with the lab's downloads.
# Needs root or sudo.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${PAGEHAUL_LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pagehaul-lab}
clean=$cache/debian-12
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/pagehaul-packages.XXXXXX")
root=$scratch/root

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

fail() {
    echo "test_packages: $*" >&2
    exit 1
}

trap 'as_root rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM HUP

# Prints the Debian mirror that this machine uses.
mirror() {
    if [ -n "${PAGEHAUL_LAB_MIRROR:-}" ]; then
        echo "$PAGEHAUL_LAB_MIRROR"
        return
    fi
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        awk '$2 ~ /^(bullseye|bookworm|trixie|forky|sid|stable|oldstable|testing)$/ && $3 == "main" { print $1; exit }'
}

make_clean_root() {
    mkdir -p "$cache"
    as_root rm -rf "$clean.part"
    as_root /usr/sbin/debootstrap --variant=minbase bookworm "$clean.part" "$(mirror)" >"$scratch/log" 2>&1 || {
        tail -n 5 "$scratch/log" >&2
        fail "debootstrap failed"
    }
    as_root find "$clean.part/var/cache/apt" "$clean.part/var/lib/apt/lists" -type f -delete
    as_root mv "$clean.part" "$clean"
}

in_root() {
    as_root chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

# Lists every path of the root, except the package managers' records and the test's own files.
paths() {
    as_root find "$root" \( -path "$root/var/lib/dpkg" -o -path "$root/var/lib/rpm" -o -path "$root/var/log" -o \
        -path "$root/var/lib/apt" -o -path "$root/var/cache/apt" -o -path "$root/test" \) -prune -o -print | LC_ALL=C sort
}

check_installed() {
    local file
    [ "$(in_root pagehaul --version)" = "pagehaul $version" ] || fail "pagehaul --version does not print $version"
    for file in man/man1/pagehaul.1.gz man/man1/pagehaul-capture.1.gz doc/pagehaul/README.md doc/pagehaul/LICENSE-MIT \
        doc/pagehaul/LICENSE-APACHE doc/pagehaul/third-party-licenses.gz bash-completion/completions/pagehaul \
        zsh/site-functions/_pagehaul fish/vendor_completions.d/pagehaul.fish; do
        [ -s "$root/usr/share/$file" ] || fail "/usr/share/$file is missing or empty"
    done
    gzip -dc "$root/usr/share/man/man1/pagehaul.1.gz" | grep -q '^\.SH' || fail "pagehaul.1 is not a manual page"
    in_root bash -c 'source /usr/share/bash-completion/completions/pagehaul && complete -p pagehaul' >/dev/null ||
        fail "the bash completion does not load"
    in_root pagehaul capture -q --force -d 31 -t 1 /test/vmcore /test/dump
    in_root /usr/lib/pagehaul/pagehaul-capture capture -q --force -d 31 -t 1 /test/vmcore /test/dump.capture
    cmp "$root/test/dump" "$root/test/dump.capture" || fail "the two binaries write different dumps"
    in_root pagehaul info /test/dump | grep -q '^format *kdump-compressed' || fail "pagehaul info does not read the dump"
    in_root pagehaul verify /test/dump >/dev/null || fail "pagehaul verify rejects the dump"
}

# A package whose configuration is left has the state rc.
check_removed() {
    [ -z "$(in_root dpkg-query -W 'pagehaul*' 2>/dev/null)" ] || fail "dpkg knows a package after its purge: $(in_root dpkg-query -W 'pagehaul*')"
    paths >"$scratch/after"
    diff "$scratch/before" "$scratch/after" >"$scratch/diff" || fail "removing the $1 leaves: $(cat "$scratch/diff")"
}

is_ours() { # is_ours DIRECTORY PROGRAM: whether this makedumpfile is pagehaul, with the options of Debian's and Fedora's scripts
    as_root chroot "$1" "$2" -v | grep -q "pagehaul $version" && as_root chroot "$1" "$2" --check-params -F -c -d 31 /proc/vmcore
}

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
scripts/packages.sh >"$scratch/packages"
{ read -r deb; read -r rpm; read -r kdump_deb; read -r kdump_rpm; read -r fleet_deb; read -r fleet_rpm; read -r core_deb; read -r core_rpm; } <"$scratch/packages"
xargs -d '\n' scripts/lint_packages.sh <"$scratch/packages"
scripts/test_upstream.sh
cargo build --locked --quiet --workspace --example vmcore
"${CARGO_TARGET_DIR:-target}/debug/examples/vmcore" "$scratch/vmcore"
[ -e "$clean" ] || make_clean_root
as_root cp -a --reflink=auto "$clean" "$root"
as_root mkdir "$root/test"
as_root cp --sparse=always "$scratch/vmcore" "$deb" "$kdump_deb" "$fleet_deb" "$core_deb" "$root/test/"
# The distribution's makedumpfile, where Debian and where Fedora have it.
printf '#!/bin/sh\necho distribution\n' >"$scratch/makedumpfile"
for directory in /usr/bin /usr/sbin; do
    as_root install -m 755 "$scratch/makedumpfile" "$root$directory/makedumpfile"
done
# rpm creates its database, which is not the package's.
as_root mkdir -p "$root/var/lib/rpm"
paths >"$scratch/before"

in_root dpkg -i "/test/$(basename "$deb")" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; fail "dpkg -i failed"; }
check_installed
# What `kdump apply` keeps goes when the package is purged.
in_root sh -c 'mkdir -p /var/lib/pagehaul/kdump && echo "[]" >/var/lib/pagehaul/kdump/apply.json'
in_root dpkg -P pagehaul >/dev/null
check_removed .deb
echo "ok   $(basename "$deb"): installs, runs and uninstalls in Debian 12"

# The README's commands, where it has the packages.
sed -n 's/^\$ .*sudo \(apt install [^ ]*\).*/\1/p' README.md | sed "s/_amd64/_$(dpkg --print-architecture)/" >"$scratch/commands"
[ "$(wc -l <"$scratch/commands")" = 2 ] || fail "the README installs other packages: $(cat "$scratch/commands")"
as_root mkdir -p "$root/test/target/packages"
as_root cp "$deb" "$kdump_deb" "$root/test/target/packages/"
while read -r command; do
    # Debian's own kdump-tools, which is recommended, is in no list of the root.
    in_root sh -c "cd /test && DEBIAN_FRONTEND=noninteractive $command --yes" >"$scratch/log" 2>&1 </dev/null ||
        { cat "$scratch/log" >&2; fail "$command fails"; }
done <"$scratch/commands"
check_installed
is_ours "$root" /usr/bin/makedumpfile || fail "/usr/bin/makedumpfile is not pagehaul after the README's commands"
in_root apt-get purge --yes pagehaul pagehaul-kdump >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; fail "apt-get purge fails"; }
[ "$(in_root /usr/bin/makedumpfile)" = distribution ] || fail "apt-get purge does not restore makedumpfile"
check_removed "packages that the README installs"
echo "ok   the README's commands: install both packages, and apt-get purge removes them"

# With the host's rpm. Debian's patch asks for --force-debian; the database is inside the root.
on_root() {
    as_root rpm --root "$root" --dbpath /var/lib/rpm "$@"
}
on_root -i --force-debian "$rpm"
[ "$(on_root -q --qf '%{VERSION} %{LICENSE}' pagehaul)" = "$version MIT OR Apache-2.0" ] || fail "rpm -q finds another package"
check_installed
on_root -e --force-debian pagehaul
check_removed .rpm
echo "ok   $(basename "$rpm"): installs, runs and uninstalls"

check_fleet() {
    [ "$(in_root pagehaul-fleet --version)" = "pagehaul-fleet $version" ] || fail "pagehaul-fleet --version does not print $version"
    [ -s "$root/usr/share/doc/pagehaul-fleet/third-party-licenses.gz" ] || fail "pagehaul-fleet has no licences"
    gzip -dc "$root/usr/share/man/man1/pagehaul-fleet.1.gz" | grep -q '^\.SH extract' || fail "pagehaul-fleet.1 has no section extract"
    # Outside: it starts itself through /proc, which the root lacks.
    as_root "$root/usr/bin/pagehaul-fleet" extract "$scratch/vmcore" --to "$root/test/tables" | grep -q '1 dumps of 1 crashes' ||
        fail "pagehaul-fleet extract fails"
    in_root pagehaul-fleet report /test/tables >/dev/null || fail "pagehaul-fleet report fails"
}

in_root dpkg -i "/test/$(basename "$fleet_deb")" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; fail "dpkg -i failed"; }
check_fleet
in_root dpkg -P pagehaul-fleet >/dev/null
check_removed .deb
on_root -i --force-debian "$fleet_rpm"
check_fleet
on_root -e --force-debian pagehaul-fleet
check_removed .rpm
echo "ok   $(basename "$fleet_deb"), $(basename "$fleet_rpm"): install, make tables and uninstall"

# Its scripts leave kernel.core_pattern alone where no systemd runs.
check_core() {
    [ "$(in_root /usr/lib/pagehaul/core-handler --version)" = "pagehaul-core-handler $version" ] || fail "core-handler --version does not print $version"
    grep -q '^kernel.core_pattern = |/usr/lib/pagehaul/core-handler ' "$root/usr/lib/sysctl.d/60-pagehaul-core.conf" || fail "the sysctl settings lack the handler"
    [ "$(cat /proc/sys/kernel/core_pattern)" = "$pattern" ] || fail "a package in a root changes this machine's core_pattern"
}

pattern=$(cat /proc/sys/kernel/core_pattern)
in_root dpkg -i "/test/$(basename "$core_deb")" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; fail "dpkg -i failed"; }
check_core
in_root dpkg -P pagehaul-core >/dev/null
check_removed .deb
on_root -i --nodeps --force-debian "$core_rpm"
check_core
on_root -e --force-debian pagehaul-core
# The directory is of systemd's package, which this root lacks.
as_root rmdir --ignore-fail-on-non-empty "$root/usr/lib/sysctl.d"
check_removed .rpm
echo "ok   $(basename "$core_deb"), $(basename "$core_rpm"): install and uninstall"

in_root dpkg -i "/test/$(basename "$kdump_deb")" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; fail "dpkg -i failed"; }
grep -q "makedumpfile of the distribution is" "$scratch/log" || fail "the diversion comes without a note"
is_ours "$root" /usr/bin/makedumpfile || fail "/usr/bin/makedumpfile is not pagehaul"
gzip -dc "$root/usr/share/man/man1/makedumpfile.1.gz" | grep -q 'DUMPFILE' || fail "makedumpfile.1 does not describe it"
[ "$(in_root makedumpfile.distrib)" = distribution ] || fail "the distribution's makedumpfile is gone"
in_root sh -c '/usr/bin/makedumpfile -F -c -d 31 /test/vmcore | /usr/bin/makedumpfile -R /test/dump.kdump' >/dev/null
[ -s "$root/test/dump.kdump" ] || fail "makedumpfile -F and -R leave no dump"
# Again, as an upgrade does, and away.
in_root dpkg -i "/test/$(basename "$kdump_deb")" >/dev/null
in_root dpkg -r pagehaul-kdump >/dev/null
[ "$(in_root /usr/bin/makedumpfile)" = distribution ] || fail "removal does not restore makedumpfile"
in_root dpkg -P pagehaul-kdump >/dev/null
check_removed "pagehaul-kdump's .deb"
echo "ok   $(basename "$kdump_deb"): diverts makedumpfile, captures and restores"

# A program that does not run on the machine.
dpkg-deb -R "$kdump_deb" "$scratch/broken"
printf '#!/bin/sh\nexit 1\n' >"$scratch/broken/usr/lib/pagehaul/makedumpfile"
dpkg-deb --root-owner-group --build "$scratch/broken" "$scratch/broken.deb" >/dev/null
as_root cp "$scratch/broken.deb" "$root/test/"
in_root dpkg -i /test/broken.deb >"$scratch/log" 2>&1 && fail "a program that does not run is installed without an error"
grep -q "does not run on this machine" "$scratch/log" || { cat "$scratch/log" >&2; fail "dpkg does not say what is wrong"; }
[ "$(in_root /usr/bin/makedumpfile)" = distribution ] || fail "a program that does not run is in makedumpfile's place"
# The next version runs.
in_root dpkg -i "/test/$(basename "$kdump_deb")" >/dev/null
is_ours "$root" /usr/bin/makedumpfile || fail "the version that runs is not in makedumpfile's place"
in_root dpkg -i /test/broken.deb >/dev/null 2>&1 || :
in_root dpkg -P pagehaul-kdump >/dev/null
[ "$(in_root /usr/bin/makedumpfile)" = distribution ] || fail "removal of a broken package does not restore makedumpfile"
as_root rm "$root/test/broken.deb"
check_removed "a broken .deb"
echo "ok   $(basename "$kdump_deb"): leaves makedumpfile alone where its own program does not run"

# The root's rpm knows no package that has /bin/sh, which the scriptlets run.
on_root -i --nodeps --force-debian "$kdump_rpm"
[ "$(in_root /usr/sbin/makedumpfile)" = distribution ] || fail "the .rpm changes makedumpfile outside of the initramfs"
on_root -e --force-debian pagehaul-kdump
check_removed "pagehaul-kdump's .rpm"

# An initramfs with a module that installs makedumpfile as kdump-utils' 99kdumpbase does.
as_root cp /etc/resolv.conf "$root/etc/resolv.conf"
in_root sh -c 'apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends dracut-core cpio' \
    >"$scratch/log" 2>&1 || { tail -n 5 "$scratch/log" >&2; fail "dracut cannot be installed"; }
modules=$root/usr/lib/dracut/modules.d
as_root mkdir "$modules/99kdumpbase"
as_root tee "$modules/99kdumpbase/module-setup.sh" >/dev/null <<'MODULE'
check() { [[ $IN_KDUMP ]]; }
depends() { echo base; }
install() { inst /sbin/makedumpfile /sbin/makedumpfile; }
MODULE
as_root chmod 755 "$modules/99kdumpbase/module-setup.sh"
on_root -i --nodeps --force-debian "$kdump_rpm"
make_initramfs() { # make_initramfs VARIABLE=VALUE...: unpacks a new initramfs to /test/initramfs
    as_root rm -rf "$root/test/initramfs"
    as_root mkdir "$root/test/initramfs"
    in_root "$@" dracut --force --no-kernel --no-early-microcode --no-compress /test/initrd 1.0 >"$scratch/log" 2>&1 ||
        { tail -n 5 "$scratch/log" >&2; fail "dracut failed"; }
    in_root sh -c 'cd /test/initramfs && cpio -id --quiet </test/initrd'
}
make_initramfs IN_KDUMP=1
for program in /usr/bin/makedumpfile /usr/sbin/makedumpfile /sbin/makedumpfile; do
    is_ours "$root/test/initramfs" $program || fail "$program in the initramfs is not pagehaul"
done
make_initramfs IN_KDUMP=
[ ! -e "$root/test/initramfs/usr/bin/makedumpfile" ] || fail "an initramfs that is not for kdump has makedumpfile"
on_root -e --force-debian pagehaul-kdump
make_initramfs IN_KDUMP=1
[ "$(as_root chroot "$root/test/initramfs" /bin/sh /usr/sbin/makedumpfile)" = distribution ] ||
    fail "removal does not restore makedumpfile in the initramfs"
echo "ok   $(basename "$kdump_rpm"): replaces makedumpfile in the initramfs of kdump only, and restores it"
